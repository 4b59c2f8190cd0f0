//! The interface: who has opened a ring to this rank, and the sleep of a rank that waits.
#![allow(unsafe_code)]

use super::domain::Domain;
use super::wire::Control;
use crate::contract::Post;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::wait;
use fastpath_bootstrap::segment::{STATE_AWAKE, STATE_SLEEPING, Wakes, has_left};

/// The interface of this rank.
pub struct Iface {
    domain: &'static Domain,
    seen_generation: u32,
    seen: Vec<u64>,
}

impl Iface {
    /// The interface of a domain's rank.
    pub fn new(domain: &'static Domain) -> Self {
        let words = domain.job.segment().layout().bitmap_words();
        Iface { domain, seen_generation: 0, seen: vec![0; words] }
    }

    /// Whether somebody has opened a ring since the last [`Iface::accept`]. One load.
    #[inline]
    pub fn has_news(&self) -> bool {
        let generation = self.domain.incoming_generation(self.domain.me);
        generation.load(Ordering::Relaxed) != self.seen_generation
    }

    /// Forgets a rank that has left: its place may be another one's, which opens a ring of its own. If the pair cannot
    /// be released, the bit of the rank stays, and is not taken for a new ring.
    pub fn release(&mut self, left: u32) {
        let place = self.domain.job.segment().place(left as usize);
        if let Some(place) = place
            && let Some(seen) = self.seen.get_mut(place / 64)
            && self.domain.release_pair(left)
        {
            *seen &= !(1 << (place % 64));
        }
    }

    /// Calls `found` with the rank of each peer that has newly opened a ring to this one.
    #[cold]
    pub fn accept(&mut self, mut found: impl FnMut(u32)) {
        let me = self.domain.me;
        // ORDERING: acquire pairs with the release in `ShmEndpoint::connect`.
        self.seen_generation = self.domain.incoming_generation(me).load(Ordering::Acquire);
        for (index, seen) in self.seen.iter_mut().enumerate() {
            // ORDERING: acquire pairs with the release in `ShmEndpoint::connect`.
            let now = self.domain.incoming_word(me, index).load(Ordering::Acquire);
            let mut fresh = now & !*seen;
            // A bit that has gone was of a rank that found this one's place taken (`Segment::announce_ring`). The rank
            // that has its place later may open a ring.
            *seen = now;
            while fresh != 0 {
                let place = index * 64 + fresh.trailing_zeros() as usize;
                fresh &= fresh - 1;
                let job = self.domain.job;
                let rank = job.segment().rank_at(place);
                if let Some(rank) = rank.filter(|&rank| job.reaches(rank)) {
                    found(rank as u32);
                }
            }
        }
    }
}

/// What a sender does that finds its peer's state word not awake; `place`: of which of the peer's workers.
#[cold]
#[inline(never)]
pub(super) fn wake_peer(peer: &Wakes, place: usize) -> Post {
    // ORDERING: acquire pairs with the release of a rank that leaves the job: what it took before is known.
    if has_left(peer.state_of(place).load(Ordering::Acquire)) {
        return Post::PeerGone;
    }
    peer.wake(place);
    Post::Done
}

/// Wakes the owner of a state word if it sleeps; says whether it did.
pub fn wake(word: &AtomicU32) -> bool {
    // Relaxed: nothing is handed over by this word; messages and credits are published by stores of their own.
    if word.load(Ordering::Relaxed) != STATE_SLEEPING {
        return false;
    }
    let slept =
        word.compare_exchange(STATE_SLEEPING, STATE_AWAKE, Ordering::Relaxed, Ordering::Relaxed);
    if slept.is_ok() {
        wait::futex_wake(word, u32::MAX);
    }
    slept.is_ok()
}

/// Wakes a producer that waits for room in a ring whose consumer we are, and calls its progress thread.
#[cold]
#[inline(never)]
pub(super) fn wake_producer(control: &Control, producer: &Wakes, place: usize) {
    if control.producer_waits.swap(0, Ordering::Relaxed) != 0 {
        producer.wake(place);
        producer.call.ring();
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_bootstrap::job::Job;

    #[test]
    fn ring__of_a_bit_that_went_and_came_again__is_found_again() {
        let jobs: &'static [Job] = Job::in_process(2).unwrap().leak();
        let domain: &'static Domain = Box::leak(Box::new(Domain::new(&jobs[1])));
        let mut iface = Iface::new(domain);
        let mut accept = || {
            let mut found = Vec::new();
            iface.accept(|peer| found.push(peer));
            found
        };
        let word = domain.incoming_word(1, 0);
        for _ in 0..2 {
            word.fetch_or(1, Ordering::Relaxed);
            assert_eq!((accept(), accept()), (vec![0], vec![]));
            word.fetch_and(!1, Ordering::Relaxed);
            assert_eq!(accept(), []);
        }
    }
}
