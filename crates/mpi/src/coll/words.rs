//! What members tell each other in a few words while they agree on something: the algorithms of collective calls, by
//! name, whatever the number of ranks, and in no report.
#![allow(unsafe_code)]

use super::choose::{Nodes, Room};
use super::fabric::{Fabric, drive};
use super::nodes::Part;
use super::vector::Vector;
use super::{allgather, barrier, bcast};
use crate::common::error::Result;
use crate::p2p::channel::Channel;
use fastpath_protocol::buffer::Buffer;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Members of a group whose fabric blocks; [`Channel`] is one.
pub(crate) trait Members: Fabric + Sized {
    /// The error that [`Fabric::put_off`] has put off, if there is one. It is told once.
    fn conclude(&self) -> Result;

    /// Sends words, without waiting for the receiver when they are few.
    fn send_words(&self, to: u32, words: &[u64]) -> Result {
        // SAFETY: a send reads the words, which live until it returns.
        drive(unsafe { self.send(to, buffer(words)) })
    }

    /// Receives as many words as there is room for.
    fn recv_words(&self, from: u32, words: &mut [u64]) -> Result {
        let members = AtOnce(self);
        // SAFETY: the words live until the call returns.
        drive(unsafe { members.recv(from, buffer_mut(words)) })
    }

    /// Both at once.
    fn exchange_words(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result {
        let members = AtOnce(self);
        // SAFETY: the words live until the call returns; the borrows do not overlap.
        drive(unsafe { members.exchange(to, buffer(out), from, buffer_mut(into)) })
    }
}

impl Members for Channel<'_> {
    fn conclude(&self) -> Result {
        Channel::conclude(self, Ok(()))
    }
}

#[cfg(test)]
impl Members for super::simulator::Rank<'_> {
    fn conclude(&self) -> Result {
        Ok(())
    }
}

/// Members that agree: where a message has not the length that is expected, the call ends there, and what did not come
/// is passed on to nobody, who would take it for an answer.
struct AtOnce<'m, M>(&'m M);

impl<M: Members> AtOnce<'_, M> {
    /// The result of a receive: the error that it has put off.
    fn check(&self, received: Result) -> Result {
        self.0.conclude()?;
        received
    }
}

impl<M: Members> Fabric for AtOnce<'_, M> {
    type Ticket = M::Ticket;
    type Near = M::Near;

    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn room(&self) -> Room<'_> {
        self.0.room()
    }

    fn nodes(&self) -> Option<&Nodes> {
        self.0.nodes()
    }

    unsafe fn send(&self, to: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        unsafe { self.0.send(to, data) }
    }

    async unsafe fn recv(&self, from: u32, data: Buffer) -> Result {
        // SAFETY: FABRIC.
        self.check(unsafe { self.0.recv(from, data).await })
    }

    async unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, into: Buffer) -> Result {
        // SAFETY: FABRIC.
        self.check(unsafe { self.0.exchange(to, out, from, into).await })
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<M::Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.0.start_send(to, data) }
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<M::Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.0.start_recv(from, data) }
    }

    async fn wait(&self, ticket: M::Ticket) -> Result {
        self.check(self.0.wait(ticket).await)
    }

    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        self.0.apart(algorithm)
    }

    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        // SAFETY: FABRIC.
        unsafe { self.0.allocate(layout) }
    }

    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: FABRIC.
        unsafe { self.0.release(at, layout) }
    }
}

fn buffer(words: &[u64]) -> Buffer {
    Buffer::contiguous(words.as_ptr().cast_mut().cast(), size_of_val(words) as u64)
}

fn buffer_mut(words: &mut [u64]) -> Buffer {
    Buffer::contiguous(words.as_mut_ptr().cast(), size_of_val(words) as u64)
}

/// The contributions of all members, by rank.
pub(crate) fn gather_all<const WORDS: usize>(
    members: &impl Members, mine: [u64; WORDS],
) -> Result<Vec<[u64; WORDS]>> {
    drive(gather(&AtOnce(members), mine))
}

/// The same in a call that may be outstanding. Whether a message of another length ends it at once is up to the fabric.
pub(crate) async fn gather<F: Fabric, const WORDS: usize>(
    f: &F, mine: [u64; WORDS],
) -> Result<Vec<[u64; WORDS]>> {
    let mut all = vec![[0; WORDS]; f.size() as usize];
    if let Some(first) = all.first_mut() {
        *first = mine;
    }
    let bytes = size_of_val(&mine) as u64;
    // SAFETY: there is room for the words of each member, the own ones come first, and all live until it has ended.
    unsafe { allgather::bruck_packed(f, all.as_mut_ptr().cast(), |n| bytes * n as u64).await? };
    all.rotate_right(f.rank() as usize);
    Ok(all)
}

/// Sends `value` from the first of `ranks` to the others. `position` is the caller's index in `ranks`.
pub(crate) fn broadcast(
    members: &impl Members, ranks: &[u32], position: u32, value: u64,
) -> Result<u64> {
    let mut word = [value];
    let members = AtOnce(members);
    drive(broadcast_within(&Part::among(&members, ranks, position), 0, &mut word))?;
    Ok(word[0])
}

/// Sends words from the member `root` to all others; all have as many.
pub(crate) fn broadcast_from(members: &impl Members, root: u32, words: &mut [u64]) -> Result {
    drive(broadcast_within(&AtOnce(members), root, words))
}

async fn broadcast_within<F: Fabric>(f: &F, root: u32, words: &mut [u64]) -> Result {
    let data = Vector::raw(words.as_mut_ptr().cast(), size_of_val(words) as u64);
    // SAFETY: the words live until the call has ended, and nothing else reads or writes them.
    unsafe { bcast::binomial(f, data, root).await }
}

/// Returns when all members have called it.
pub(crate) fn synchronize(members: &impl Members) -> Result {
    drive(barrier::dissemination(&AtOnce(members)))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::scratch::OnStack;
    use super::super::simulator::{Mode, run};
    use super::*;
    use crate::common::consts::MPI_ERR_TRUNCATE;
    use crate::common::error::Error;
    use std::cell::Cell;

    /// Rank 4 of 8, to whom others send too little; it puts the errors off.
    #[derive(Default)]
    struct Cheated {
        disagreement: Cell<Option<Error>>,
        receives: Cell<u32>,
        sends: Cell<u32>,
    }

    impl Cheated {
        fn receive(&self) -> Result {
            self.receives.set(self.receives.get() + 1);
            self.disagreement.set(Some(Error::new(MPI_ERR_TRUNCATE, String::from("too short"))));
            Ok(())
        }

        fn send(&self) -> Result {
            self.sends.set(self.sends.get() + 1);
            Ok(())
        }
    }

    impl Members for Cheated {
        fn conclude(&self) -> Result {
            self.disagreement.take().map_or(Ok(()), Err)
        }
    }

    impl Fabric for Cheated {
        type Ticket = bool;
        type Near = OnStack;

        fn rank(&self) -> u32 {
            4
        }

        fn size(&self) -> u32 {
            8
        }

        fn room(&self) -> Room<'_> {
            Room::Own
        }

        fn nodes(&self) -> Option<&Nodes> {
            None
        }

        async unsafe fn send(&self, _: u32, _: Buffer) -> Result {
            Cheated::send(self)
        }

        async unsafe fn recv(&self, _: u32, _: Buffer) -> Result {
            self.receive()
        }

        async unsafe fn exchange(&self, _: u32, _: Buffer, _: u32, _: Buffer) -> Result {
            Cheated::send(self).and(self.receive())
        }

        unsafe fn start_send(&self, _: u32, _: Buffer) -> Result<bool> {
            Cheated::send(self).map(|()| false)
        }

        unsafe fn start_recv(&self, _: u32, _: Buffer) -> Result<bool> {
            Ok(true)
        }

        async fn wait(&self, receives: bool) -> Result {
            if receives { self.receive() } else { Ok(()) }
        }
    }

    #[test]
    fn agreement__ends_where_a_message_is_too_short_and_passes_nothing_on() {
        type Agreement = fn(&Cheated) -> Result;
        let agreements: [(Agreement, u32); 6] = [
            (|m| gather_all(m, [7]).map(drop), 1),
            (|m| broadcast(m, &[0, 1, 2, 3, 4, 5, 6, 7], 4, 0).map(drop), 0),
            (|m| broadcast_from(m, 0, &mut [0, 0]), 0),
            (|m| synchronize(m), 1),
            (|m| m.recv_words(0, &mut [0]), 0),
            (|m| m.exchange_words(0, &[7], 0, &mut [0]), 1),
        ];
        for (agree, sends) in agreements {
            let members = Cheated::default();
            assert_eq!(agree(&members).unwrap_err().code(), MPI_ERR_TRUNCATE);
            assert_eq!((members.receives.get(), members.sends.get()), (1, sends));
        }
    }

    #[test]
    fn gather_all__gives_everyone_everything() {
        for size in 1..=9 {
            let expected: Vec<[u64; 2]> = (0..size as u64).map(|rank| [rank, 100 + rank]).collect();
            let told = |rank: u32| [rank.into(), 100 + u64::from(rank)];
            for all in run(size, Mode::Rendezvous, |m| gather_all(m, told(m.rank())).unwrap()) {
                assert_eq!(all, expected);
            }
        }
    }

    #[test]
    fn broadcast__reaches_the_listed_ranks_in_any_order() {
        for size in 1..=9_u32 {
            let ranks: Vec<u32> =
                (0..size).rev().filter(|rank| size < 3 || rank % 3 != 1).collect();
            let results = run(size, Mode::Rendezvous, |m| {
                let position = ranks.iter().position(|&rank| rank == m.rank())? as u32;
                Some(broadcast(m, &ranks, position, if position == 0 { 42 } else { 0 }).unwrap())
            });
            for (rank, result) in results.into_iter().enumerate() {
                assert_eq!(result, ranks.contains(&(rank as u32)).then_some(42));
            }
        }
    }

    #[test]
    fn broadcast_from__reaches_all_from_any_root() {
        for (size, root) in (1..=9).flat_map(|size| (0..size).map(move |root| (size, root))) {
            let results = run(size, Mode::Rendezvous, |m| {
                let mut words = if m.rank() == root { [42, 43] } else { [0; 2] };
                broadcast_from(m, root, &mut words).unwrap();
                words
            });
            assert_eq!(results, vec![[42, 43]; size as usize]);
        }
    }

    #[test]
    fn synchronize__waits_for_all() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        for size in 1..=9 {
            let entered = AtomicUsize::new(0);
            run(size, Mode::Eager, |m| {
                entered.fetch_add(1, Ordering::SeqCst);
                synchronize(m).unwrap();
                assert_eq!(entered.load(Ordering::SeqCst), size as usize);
            });
        }
    }
}
