//! Polling: calls that may answer "not yet" (tests, probes) take part in waiting. They never sleep, since the program
//! may have other work, but each miss on a crowded node yields the processor to a rank that may answer.
#![allow(unsafe_code)]

use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::config::WaitMode;

impl Worker {
    /// A call is about to answer "not yet", after a round of progress. About ten instructions where each rank has a
    /// processor: then one miss in 256 yields. A yield takes as long as ten polls; without any, a rank or thread that
    /// the kernel has put on the same processor waits for a time slice.
    ///
    /// # Safety
    /// `worker` is valid, and no reference to it lives in the caller across this call.
    #[inline]
    pub unsafe fn note_miss(worker: *mut Worker) {
        // SAFETY: valid by the contract; the reference ends before other threads are let in.
        let this = unsafe { &mut *worker };
        this.wait.misses = this.wait.misses.wrapping_add(1);
        if this.wait.misses == 0
            || this.is_crowded()
            || this.wait.is_wanted()
            || this.flood.held_back
        {
            // SAFETY: NO REFERENCE (`waiting`): none is held here.
            unsafe { yield_slow(worker) };
        }
    }
}

/// Lets another rank run, and other threads of this process into MPI.
#[cold]
#[inline(never)]
unsafe fn yield_slow(worker: *mut Worker) {
    // SAFETY: NO REFERENCE (`waiting`): this one ends before the lock is given up.
    let this = unsafe { &mut *worker };
    if this.flood.held_back {
        this.relieve(None);
    }
    let keeps = match this.wait.mode {
        WaitMode::Spin => true,
        // A thread that never yields takes a whole slice each time: the kernel's own turns have to do then.
        _ => !this.is_crowded() && this.wait.oversubscription.is_slow(clock::now_ns()),
    };
    if keeps && !this.wait.is_wanted() {
        return;
    }
    let (began, ended) = this.wait.door().yield_timed();
    // SAFETY: NO REFERENCE (`waiting`): a new one, since other threads may have used the worker meanwhile.
    unsafe { (*worker).note_yield(began, ended) };
}
