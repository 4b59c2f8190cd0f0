//! Agreement of members by an exchange of words. Algorithms are fixed, and not reported. FABRIC is defined in
//! `coll.rs`.
#![allow(unsafe_code)]

use super::choose::{JobProcessors, NodeMap};
use super::fabric::{Fabric, drive};
use super::nodes::SubFabric;
use super::vector::Vector;
use super::{allgather, barrier, bcast};
use crate::common::consts::{MPI_ERR_INTERN, MPI_SUCCESS};
use crate::common::error::{Error, Result};
use crate::p2p::channel::Channel;
use fastpath_protocol::buffer::Buffer;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Maximum number of words, and of bytes of text, in an outcome; see [`broadcast_outcome`].
const MOST: u64 = 1 << 24;

/// Members of a group on a blocking fabric, such as [`Channel`].
pub(crate) trait Members: Fabric + Sized {
    /// Returns the error deferred by [`Fabric::put_off`], only once.
    fn conclude(&self) -> Result;

    /// Sends words. Does not wait for the receiver if the words are few.
    fn send_words(&self, to: u32, words: &[u64]) -> Result {
        // SAFETY: a send reads the words, which live until it returns.
        drive(unsafe { self.send(to, buffer(words)) })
    }

    /// Receives words to fill the slice.
    fn recv_words(&self, from: u32, words: &mut [u64]) -> Result {
        let members = AtOnce(self);
        // SAFETY: the words live until the call returns.
        drive(unsafe { members.recv(from, buffer_mut(words)) })
    }

    fn exchange_words(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result {
        let members = AtOnce(self);
        // SAFETY: the words live until the call returns, and the borrows do not overlap.
        drive(unsafe { members.exchange(to, buffer(out), from, buffer_mut(into)) })
    }
}

impl Members for Channel<'_> {
    fn conclude(&self) -> Result {
        Channel::conclude(self, Ok(()))
    }
}

#[cfg(test)]
impl Members for super::simulator::SimRank<'_> {
    fn conclude(&self) -> Result {
        Ok(())
    }
}

/// Fabric for agreements. A message of unexpected length ends the call, so that the words of that message are not
/// passed on.
struct AtOnce<'m, M>(&'m M);

impl<M: Members> AtOnce<'_, M> {
    /// Returns the result of a receive, including a deferred error.
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

    fn room(&self) -> JobProcessors<'_> {
        self.0.room()
    }

    fn nodes(&self) -> Option<&NodeMap> {
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

pub(crate) fn gather_all<const WORDS: usize>(
    members: &impl Members, mine: [u64; WORDS],
) -> Result<Vec<[u64; WORDS]>> {
    drive(gather(&AtOnce(members), mine))
}

/// Gathers the words of all members, in a call that may be outstanding. The fabric handles messages of other lengths.
pub(crate) async fn gather<F: Fabric, const WORDS: usize>(
    f: &F, mine: [u64; WORDS],
) -> Result<Vec<[u64; WORDS]>> {
    let mut all = vec![[0; WORDS]; f.size() as usize];
    if let Some(first) = all.first_mut() {
        *first = mine;
    }
    let bytes = size_of_val(&mine) as u64;
    // SAFETY: the vector has room for the words of each member, those of this rank first, until the call has ended.
    unsafe { allgather::bruck_packed(f, all.as_mut_ptr().cast(), |n| bytes * n as u64).await? };
    all.rotate_right(f.rank() as usize);
    Ok(all)
}

/// Sends `value` from the first member of `ranks` to the others. `position` is the caller's index in `ranks`.
pub(crate) fn broadcast(
    members: &impl Members, ranks: &[u32], position: u32, value: u64,
) -> Result<u64> {
    let mut word = [value];
    let members = AtOnce(members);
    drive(broadcast_within(&SubFabric::among(&members, ranks, position), 0, &mut word))?;
    Ok(word[0])
}

/// Sends words from member `root` to all others. The slices of all members have one length.
pub(crate) fn broadcast_from(members: &impl Members, root: u32, words: &mut [u64]) -> Result {
    drive(broadcast_within(&AtOnce(members), root, words))
}

/// Sends any number of words from member `root` to all others. With a `failure` of the root, the other members return
/// that error. Only the root passes words and a failure. The root returns `Ok` and raises the failure itself.
pub(crate) fn broadcast_outcome(
    members: &impl Members, root: u32, failure: Option<&Error>, words: &mut Vec<u64>,
) -> Result {
    let code = failure.map_or(MPI_SUCCESS, Error::code);
    let cause = failure.map_or("", Error::message);
    let advice = failure.and_then(Error::advice).unwrap_or("");
    let mut head = [code as u64, words.len() as u64, cause.len() as u64, advice.len() as u64];
    broadcast_from(members, root, &mut head)?;
    if head[1..].iter().any(|&count| count > MOST) {
        return Err(Error::new(
            MPI_ERR_INTERN,
            format!("rank {root} sent an invalid result: {head:?}"),
        ));
    }
    let [code, count, cause_bytes, bytes] = head.map(|word| word as usize);
    let bytes = cause_bytes + bytes;
    words.extend(to_words(&[cause, advice].concat().into_bytes()));
    words.resize(count + bytes.div_ceil(8), 0);
    broadcast_from(members, root, words)?;
    let text = to_bytes(&words.split_off(count), bytes);
    if members.rank() == root || code == MPI_SUCCESS as usize {
        return Ok(());
    }
    let (cause, advice) = text.split_at(cause_bytes);
    let text = format!("rank {root} failed: {}", String::from_utf8_lossy(cause));
    let advice = (!advice.is_empty()).then(|| String::from_utf8_lossy(advice).into_owned());
    Err(Error::new(code as i32, text).with_advice(advice))
}

/// Packs bytes into words. Zeros fill the last word.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(whole)
    };
    bytes.chunks(8).map(word).collect()
}

pub(crate) fn to_bytes(words: &[u64], bytes: usize) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).take(bytes).collect()
}

async fn broadcast_within<F: Fabric>(f: &F, root: u32, words: &mut [u64]) -> Result {
    let data = Vector::raw(words.as_mut_ptr().cast(), size_of_val(words) as u64);
    // SAFETY: the words live until the call has ended, and no other code uses them.
    unsafe { bcast::binomial(f, data, root).await }
}

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
    use std::cell::Cell;

    /// Rank 4 of 8. The messages that it receives are too short, and it defers the errors.
    #[derive(Default)]
    struct ShortReceiver {
        disagreement: Cell<Option<Error>>,
        receives: Cell<u32>,
        sends: Cell<u32>,
    }

    impl ShortReceiver {
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

    impl Members for ShortReceiver {
        fn conclude(&self) -> Result {
            self.disagreement.take().map_or(Ok(()), Err)
        }
    }

    impl Fabric for ShortReceiver {
        type Ticket = bool;
        type Near = OnStack;

        fn rank(&self) -> u32 {
            4
        }

        fn size(&self) -> u32 {
            8
        }

        fn room(&self) -> JobProcessors<'_> {
            JobProcessors::Own
        }

        fn nodes(&self) -> Option<&NodeMap> {
            None
        }

        async unsafe fn send(&self, _: u32, _: Buffer) -> Result {
            ShortReceiver::send(self)
        }

        async unsafe fn recv(&self, _: u32, _: Buffer) -> Result {
            self.receive()
        }

        async unsafe fn exchange(&self, _: u32, _: Buffer, _: u32, _: Buffer) -> Result {
            ShortReceiver::send(self).and(self.receive())
        }

        unsafe fn start_send(&self, _: u32, _: Buffer) -> Result<bool> {
            ShortReceiver::send(self).map(|()| false)
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
        type Agreement = fn(&ShortReceiver) -> Result;
        let agreements: [(Agreement, u32); 6] = [
            (|m| gather_all(m, [7]).map(drop), 1),
            (|m| broadcast(m, &[0, 1, 2, 3, 4, 5, 6, 7], 4, 0).map(drop), 0),
            (|m| broadcast_from(m, 0, &mut [0, 0]), 0),
            (|m| synchronize(m), 1),
            (|m| m.recv_words(0, &mut [0]), 0),
            (|m| m.exchange_words(0, &[7], 0, &mut [0]), 1),
        ];
        for (agree, sends) in agreements {
            let members = ShortReceiver::default();
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
    fn broadcast_outcome__brings_words_and_the_error_of_the_root_to_all() {
        for (size, root) in (1..=5).flat_map(|size| (0..size).map(move |root| (size, root))) {
            for failure in [None, Some("no room"), Some("")] {
                let results = run(size, Mode::Rendezvous, |m| {
                    let failure = failure.map(|text| {
                        Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some("receive more"))
                    });
                    let is_root = m.rank() == root;
                    let mut words = if is_root { vec![1, 2, 3] } else { vec![] };
                    let own = failure.as_ref().filter(|_| is_root);
                    let told = broadcast_outcome(m, root, own, &mut words);
                    assert_eq!(words, [1, 2, 3]);
                    told.err().map(|e| {
                        (e.code(), e.message().to_owned(), e.advice() == Some("receive more"))
                    })
                });
                for (rank, result) in results.into_iter().enumerate() {
                    let expected = failure.filter(|_| rank as u32 != root);
                    let text = expected.map(|text| format!("rank {root} failed: {text}"));
                    assert_eq!(result, text.map(|text| (MPI_ERR_TRUNCATE, text, true)));
                }
            }
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
