//! Interface: rings newly opened to this rank, and wake-ups.
#![allow(unsafe_code)]

use super::domain::Domain;
use super::wire::RingControl;
use crate::contract::Post;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::wait;
use fastpath_segment::{STATE_AWAKE, STATE_SLEEPING, Wakes, has_left};

/// Interface of this rank.
pub struct Iface {
    domain: &'static Domain,
    seen_generation: u32,
    seen: Vec<u64>,
}

impl Iface {
    /// Creates the interface of a domain's rank.
    pub fn new(domain: &'static Domain) -> Self {
        let words = domain.job.segment().layout().bitmap_words();
        Iface { domain, seen_generation: 0, seen: vec![0; words] }
    }

    /// Whether a peer has opened a ring since the last [`Iface::accept`]. Costs one load.
    #[inline]
    pub fn has_news(&self) -> bool {
        let generation = self.domain.incoming_generation(self.domain.me);
        generation.load(Ordering::Relaxed) != self.seen_generation
    }

    /// Releases the pair of a rank that has left, so that a later rank at its place can open a ring. If the release
    /// fails, the rank's bit stays set and does not count as a new ring.
    pub fn release(&mut self, left: u32) {
        let place = self.domain.job.segment().place(left as usize);
        if let Some(place) = place
            && let Some(seen) = self.seen.get_mut(place / 64)
            && self.domain.release_pair(left)
        {
            *seen &= !(1 << (place % 64));
        }
    }

    /// Calls `found` with each peer that has newly opened a ring to this rank.
    #[cold]
    pub fn accept(&mut self, mut found: impl FnMut(u32)) {
        let me = self.domain.me;
        // ORDERING: acquire pairs with the release in `ShmEndpoint::connect`.
        self.seen_generation = self.domain.incoming_generation(me).load(Ordering::Acquire);
        for (index, seen) in self.seen.iter_mut().enumerate() {
            // ORDERING: acquire pairs with the release in `ShmEndpoint::connect`.
            let now = self.domain.incoming_word(me, index).load(Ordering::Acquire);
            let mut fresh = now & !*seen;
            // If a bit is no longer set, it was set by a rank that wanted a ring to the previous rank of this place
            // (`Segment::announce_ring`). The bit may be set again for a ring to this rank.
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

#[cold]
#[inline(never)]
pub(super) fn wake_peer(peer: &Wakes) -> Post {
    // ORDERING: acquire pairs with the release of a rank that leaves the job, so that its last takes are visible.
    if has_left(peer.state.load(Ordering::Acquire)) {
        return Post::PeerGone;
    }
    peer.wake();
    Post::Done
}

/// Wakes the owner of a state word if it sleeps; returns whether it slept.
pub fn wake(word: &AtomicU32) -> bool {
    // Relaxed suffices: this word publishes no data, and messages and credits have their own stores.
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

#[cold]
#[inline(never)]
pub(super) fn wake_producer(control: &RingControl, producer: &Wakes) {
    if control.producer_waits.swap(0, Ordering::Relaxed) != 0 {
        producer.wake();
        producer.call.ring();
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_job::Job;

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
