//! What members tell each other in a few words while they agree on something: the algorithms of collective calls, by
//! name, whatever the number of ranks, and in no report.
#![allow(unsafe_code)]

use super::fabric::{Fabric, drive};
use super::nodes::Part;
use super::vector::Vector;
use super::{allgather, barrier, bcast};
use crate::channel::Channel;
use crate::error::Result;
use fastpath_protocol::buffer::Buffer;

/// Members of a group whose fabric blocks; [`Channel`] is one.
pub(crate) trait Members: Fabric + Sized {
    /// The error that [`Fabric::put_off`] has put off, if there is one.
    fn conclude(&self) -> Result;

    /// Sends words, without waiting for the receiver when they are few.
    fn send_words(&self, to: u32, words: &[u64]) -> Result {
        // SAFETY: a send reads the words, which live until it returns.
        finish(self, unsafe { self.send(to, buffer(words)) })
    }

    /// Receives as many words as there is room for.
    fn recv_words(&self, from: u32, words: &mut [u64]) -> Result {
        // SAFETY: the words live until the call returns.
        finish(self, unsafe { self.recv(from, buffer_mut(words)) })
    }

    /// Both at once.
    fn exchange_words(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result {
        // SAFETY: the words live until the call returns; the borrows do not overlap.
        finish(self, unsafe { self.exchange(to, buffer(out), from, buffer_mut(into)) })
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

/// Runs an algorithm to its end, and to the error that it has put off.
fn finish<T>(members: &impl Members, algorithm: impl Future<Output = Result<T>>) -> Result<T> {
    let result = drive(algorithm);
    members.conclude()?;
    result
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
    finish(members, gather(members, mine))
}

/// The same in a call that may be outstanding.
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
    finish(members, broadcast_within(&Part::among(members, ranks, position), 0, &mut word))?;
    Ok(word[0])
}

/// Sends words from the member `root` to all others; all have as many.
pub(crate) fn broadcast_from(members: &impl Members, root: u32, words: &mut [u64]) -> Result {
    finish(members, broadcast_within(members, root, words))
}

async fn broadcast_within<F: Fabric>(f: &F, root: u32, words: &mut [u64]) -> Result {
    let data = Vector::raw(words.as_mut_ptr().cast(), size_of_val(words) as u64);
    // SAFETY: the words live until the call has ended, and nothing else reads or writes them.
    unsafe { bcast::binomial(f, data, root).await }
}

/// Returns when all members have called it.
pub(crate) fn synchronize(members: &impl Members) -> Result {
    finish(members, barrier::dissemination(members))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::simulator::{Mode, run};
    use super::*;

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
