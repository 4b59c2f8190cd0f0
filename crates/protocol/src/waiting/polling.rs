//! Polling: calls that may answer "not yet" (tests, probes). They never sleep, because the program may have other work.
//! On a node with more ranks than processors they yield, because a peer may need this processor to answer.
//!
//! A program that only polls should yield at once. A program that works between its polls should not yield. More than a
//! microsecond between polls shows work. For shorter times, [`PollYields`] learns whether messages come without yields.
#![allow(unsafe_code)]

use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;

const PEERS_COUNTED: usize = 32;

impl Worker {
    /// Notes that a call will answer "not yet" after a round of progress. If each rank has a processor, this call takes
    /// about ten instructions, and one miss in 256 yields. A yield takes as long as ten polls. Without it, another rank
    /// or thread on this processor would wait for a time slice.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    #[inline]
    pub unsafe fn note_miss(worker: *mut Worker) {
        // SAFETY: valid by the contract; the reference ends before other threads enter.
        let this = unsafe { &mut *worker };
        this.wait.misses = this.wait.misses.wrapping_add(1);
        if this.wait.misses == 0
            || this.is_crowded()
            || this.wait.is_wanted()
            || this.flood.held_back
        {
            // SAFETY: NO REFERENCE (`waiting`): this function holds no reference at this point.
            unsafe { yield_slow(worker) };
        }
    }

    /// Returns a number that changes with each message or request, for [`PEERS_COUNTED`] peers.
    fn count_traffic(&self) -> u64 {
        let peers = self.active.iter().take(PEERS_COUNTED);
        let slots = peers.map(|&peer| u64::from(self.endpoints[peer].lane.slots_moved()));
        self.counters.requests + self.counters.unexpected + slots.sum::<u64>()
    }

    fn yields_after_miss(&mut self) -> bool {
        match self.wait.mode {
            WaitMode::Spin => false,
            WaitMode::Yield => true,
            // If a thread here never yields, each yield costs a whole slice: leave the sharing to the kernel.
            _ if !self.is_crowded() => !self.wait.oversubscription.is_slow(clock::now_ns()),
            _ => {
                let series = self.count_traffic();
                let ranks = self.job.header().awake.load(Ordering::Relaxed);
                self.wait.poll_yields.yields(series, ranks, clock::now_ns)
            }
        }
    }
}

/// Lets another rank run, and lets other threads of this process enter MPI.
#[cold]
#[inline(never)]
unsafe fn yield_slow(worker: *mut Worker) {
    // SAFETY: NO REFERENCE (`waiting`): this reference ends before the lock is released.
    let this = unsafe { &mut *worker };
    if let Some(call) = this.hooks.on_pause {
        call(this);
    }
    if this.flood.held_back {
        this.relieve(None);
    }
    if !this.yields_after_miss() && !this.wait.is_wanted() {
        return;
    }
    let (began, ended) = this.wait.door().yield_timed();
    // SAFETY: NO REFERENCE (`waiting`): a new reference, because other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
    this.note_yield(began, ended);
    this.wait.poll_yields.note_yield(ended, ended - began);
}
