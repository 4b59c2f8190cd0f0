//! How the members of a communicator agree on a new one: small messages of fixed size.
#![allow(unsafe_code)]

use super::Channel;
use crate::error::Result;
use fastpath_protocol::buffer::Buffer;

/// A way to send words among the members of a group; [`Channel`] is one.
pub(crate) trait Members {
    /// The calling member's rank.
    fn rank(&self) -> u32;
    /// Number of members.
    fn size(&self) -> u32;
    /// Sends words, without waiting for the receiver when they are few.
    fn send(&self, to: u32, words: &[u64]) -> Result;
    /// Receives as many words as there is room for.
    fn recv(&self, from: u32, words: &mut [u64]) -> Result;
    /// Both at once.
    fn exchange(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result;
}

fn buffer(words: &[u64]) -> Buffer {
    Buffer::contiguous(words.as_ptr().cast_mut().cast(), size_of_val(words) as u64)
}

fn buffer_mut(words: &mut [u64]) -> Buffer {
    Buffer::contiguous(words.as_mut_ptr().cast(), size_of_val(words) as u64)
}

impl Members for Channel<'_> {
    fn rank(&self) -> u32 {
        self.comm.rank
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn send(&self, to: u32, words: &[u64]) -> Result {
        // SAFETY: a send reads the words, which live until it returns.
        unsafe { Channel::send(self, to, buffer(words)) }
    }

    fn recv(&self, from: u32, words: &mut [u64]) -> Result {
        // SAFETY: the words live until the call returns.
        unsafe { Channel::recv(self, from, buffer_mut(words)) }
    }

    fn exchange(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result {
        // SAFETY: the words live until the call returns; the borrows do not overlap.
        unsafe { Channel::exchange(self, to, buffer(out), from, buffer_mut(into)) }
    }
}

/// The contributions of all members, by rank. In each of log2(n) rounds a member passes on all it
/// has to one whose distance doubles (Bruck et al., 1997).
pub(crate) fn gather_all<const WORDS: usize>(
    members: &impl Members, mine: [u64; WORDS],
) -> Result<Vec<[u64; WORDS]>> {
    let (me, size) = (members.rank() as usize, members.size() as usize);
    let mut words = Vec::with_capacity(size * WORDS);
    words.extend(mine);
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        let (to, from) = ((me + size - have) % size, (me + have) % size);
        words.resize((have + count) * WORDS, 0);
        let (out, into) = words.split_at_mut(have * WORDS);
        members.exchange(to as u32, &out[..count * WORDS], from as u32, into)?;
        have += count;
    }
    let mut all = vec![[0; WORDS]; size];
    for (offset, entry) in words.chunks_exact(WORDS).enumerate() {
        all[(me + offset) % size].copy_from_slice(entry);
    }
    Ok(all)
}

/// Sends `value` from the first of `ranks` to the others, along a binomial tree. `position` is the
/// caller's index in `ranks`.
pub(crate) fn broadcast(
    members: &impl Members, ranks: &[u32], position: usize, value: u64,
) -> Result<u64> {
    let mut word = [value];
    broadcast_words(members, ranks, position, &mut word)?;
    Ok(word[0])
}

/// The same of several words, as many on all members.
pub(crate) fn broadcast_words(
    members: &impl Members, ranks: &[u32], position: usize, words: &mut [u64],
) -> Result {
    // The lowest bit of a position says how far away its parent is, and below it come its children.
    let reach = match position {
        0 => ranks.len().next_power_of_two(),
        _ => {
            let bit = 1 << position.trailing_zeros();
            members.recv(ranks[position - bit], words)?;
            bit
        }
    };
    let mut bit = reach >> 1;
    while bit > 0 {
        if let Some(&child) = ranks.get(position + bit) {
            members.send(child, words)?;
        }
        bit >>= 1;
    }
    Ok(())
}

/// The same from the member `root` to all others.
pub(crate) fn broadcast_from(members: &impl Members, root: u32, words: &mut [u64]) -> Result {
    let size = members.size();
    let ranks: Vec<u32> = (0..size).map(|i| (i + root) % size).collect();
    let position = (members.rank() + size - root) % size;
    broadcast_words(members, &ranks, position as usize, words)
}

/// Returns when all members have called it: the dissemination barrier of Hensgen, Finkel and Manber
/// (1988).
pub(crate) fn synchronize(members: &impl Members) -> Result {
    let (me, size) = (members.rank(), members.size());
    let mut distance = 1;
    while distance < size {
        let mut word = [0];
        members.exchange((me + distance) % size, &[0], (me + size - distance) % size, &mut word)?;
        distance *= 2;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Threads that are connected by queues.
    pub struct Thread {
        rank: u32,
        to: Vec<Sender<Vec<u64>>>,
        from: Vec<Receiver<Vec<u64>>>,
    }

    impl Members for Thread {
        fn rank(&self) -> u32 {
            self.rank
        }
        fn size(&self) -> u32 {
            self.to.len() as u32
        }
        fn send(&self, to: u32, words: &[u64]) -> Result {
            self.to[to as usize].send(words.to_vec()).unwrap();
            Ok(())
        }
        fn recv(&self, from: u32, words: &mut [u64]) -> Result {
            words.copy_from_slice(&self.from[from as usize].recv().unwrap());
            Ok(())
        }
        fn exchange(&self, to: u32, out: &[u64], from: u32, into: &mut [u64]) -> Result {
            self.send(to, out)?;
            self.recv(from, into)
        }
    }

    /// Runs `body` as each of `size` members and returns the results by rank. All messages must have
    /// been received at the end.
    pub fn run<R: Send>(size: usize, body: impl Fn(&Thread) -> R + Sync) -> Vec<R> {
        let mut threads: Vec<Thread> =
            (0..size).map(|rank| Thread { rank: rank as u32, to: vec![], from: vec![] }).collect();
        for to in 0..size {
            for from in 0..size {
                let (sender, receiver) = channel();
                threads[from].to.push(sender);
                threads[to].from.push(receiver);
            }
        }
        let body = &body;
        std::thread::scope(|scope| {
            let running: Vec<_> = threads
                .into_iter()
                .map(|thread| {
                    scope.spawn(move || {
                        let result = body(&thread);
                        (result, thread)
                    })
                })
                .collect();
            let ended: Vec<(R, Thread)> =
                running.into_iter().map(|thread| thread.join().unwrap()).collect();
            let all_received =
                ended.iter().all(|(_, t)| t.from.iter().all(|queue| queue.try_recv().is_err()));
            assert!(all_received, "a message is left");
            ended.into_iter().map(|(result, _)| result).collect()
        })
    }

    #[test]
    fn gather_all__gives_everyone_everything() {
        for size in 1..=9 {
            let expected: Vec<[u64; 2]> = (0..size as u64).map(|rank| [rank, 100 + rank]).collect();
            for all in
                run(size, |m| gather_all(m, [m.rank().into(), 100 + u64::from(m.rank())]).unwrap())
            {
                assert_eq!(all, expected);
            }
        }
    }

    #[test]
    fn broadcast__reaches_the_listed_ranks_in_any_order() {
        for size in 1..=9_u32 {
            let ranks: Vec<u32> =
                (0..size).rev().filter(|rank| size < 3 || rank % 3 != 1).collect();
            let results = run(size as usize, |m| {
                let position = ranks.iter().position(|&rank| rank == m.rank())?;
                Some(broadcast(m, &ranks, position, if position == 0 { 42 } else { 0 }).unwrap())
            });
            for (rank, result) in results.into_iter().enumerate() {
                assert_eq!(result, ranks.contains(&(rank as u32)).then_some(42));
            }
        }
    }

    #[test]
    fn synchronize__waits_for_all() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        for size in 1..=9 {
            let entered = AtomicUsize::new(0);
            run(size, |m| {
                entered.fetch_add(1, Ordering::SeqCst);
                synchronize(m).unwrap();
                assert_eq!(entered.load(Ordering::SeqCst), size);
            });
        }
    }
}
