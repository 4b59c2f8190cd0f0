//! Polling: calls that may answer "not yet" (tests, probes). They never sleep, since the program may have other work. On
//! a node with more ranks than processors they yield, since a peer may need this processor to answer.
//!
//! A program that only polls should yield at once, and a program that works between its polls should not. Time between
//! two polls shows work of more than a microsecond. For shorter work, [`PollYields`] learns whether yields are followed
//! by messages.
#![allow(unsafe_code)]

use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;

/// Nanoseconds between two yields of a program that works between its polls. A switch of processes takes 0.5 to 1 us.
const HOLD_NS: u64 = 10_000;
/// Time between two polls, in nanoseconds, above which the program works. A loop of polls takes a fifth of it.
const WORK_NS: u64 = 1_000;
/// Nanoseconds without a message or request, after a yield of a time slice, until the next yield.
const PATIENCE_NS: u64 = 50_000;
/// Series from one trial of all free yields to the next.
const SERIES_PER_TRIAL: u32 = 16;

/// Decides which missed polls yield the processor on a node with more ranks than processors.
///
/// A series of misses ends when a message arrives or the program makes a request. Each series has a number of free
/// yields, which follow every miss. Later misses of the series yield once in [`HOLD_NS`]. A series that needs all its
/// free yields halves their number for the next one, and a series that ends before doubles it. One series in
/// [`SERIES_PER_TRIAL`] has as many as there are ranks, because ranks that hold the processor make all series long.
///
/// After a yield in which another process had a time slice, the process runs as long before it yields again, if messages
/// or requests go on meanwhile. If nothing happens for [`PATIENCE_NS`], the next miss yields: the program waits. Each
/// such yield that brings nothing doubles that time.
#[derive(Debug, Clone, Copy, Default)]
pub struct PollYields {
    /// Requests made and messages stored when the series began.
    series: (u64, u64),
    /// Number of series so far.
    count: u32,
    /// Free yields of a series that is no trial.
    free: u32,
    /// Free yields at the start of this series.
    granted: u32,
    /// Free yields that this series has left.
    left: u32,
    /// When the series began or last yielded, or the program last worked between two polls, in nanoseconds.
    since_ns: u64,
    /// Nanoseconds from then to the next yield, after a long one.
    patience_ns: u64,
    /// When the last miss returned to the program, in nanoseconds.
    returned_ns: u64,
    /// Time before which no yield is made that is not free, in nanoseconds.
    held_until_ns: u64,
    /// Whether another process had a time slice in the last yield. Then no yield is free.
    was_long: bool,
}

impl PollYields {
    /// Whether a miss at `now_ns` yields. `series`: requests made and messages stored so far; `ranks`: ranks awake on
    /// this node.
    fn yields(&mut self, series: (u64, u64), ranks: u32, now_ns: u64) -> bool {
        if series != self.series {
            if self.left > 0 {
                self.free = (2 * self.granted).min(ranks);
            }
            let is_trial = self.count.is_multiple_of(SERIES_PER_TRIAL);
            self.granted = if is_trial { ranks } else { self.free };
            (self.series, self.left, self.count) =
                (series, self.granted, self.count.wrapping_add(1));
            (self.since_ns, self.patience_ns) = (now_ns, PATIENCE_NS);
        }
        if now_ns.saturating_sub(self.returned_ns) > WORK_NS {
            (self.left, self.since_ns) = (0, now_ns);
        }
        self.returned_ns = now_ns;
        let is_due = now_ns >= self.held_until_ns;
        if self.was_long {
            return is_due || now_ns - self.since_ns >= self.patience_ns;
        }
        if self.left == 0 {
            return is_due;
        }
        self.left -= 1;
        if self.left == 0 {
            self.free = (self.free / 2).max(1);
        }
        true
    }

    /// A yield ended at `ended_ns`, after `took_ns`. `is_long`: another process had a time slice.
    fn note_yield(&mut self, ended_ns: u64, took_ns: u64, is_long: bool) {
        (self.returned_ns, self.since_ns) = (ended_ns, ended_ns);
        self.was_long = is_long;
        self.held_until_ns = ended_ns + if is_long { took_ns } else { HOLD_NS };
        if is_long {
            self.patience_ns = (2 * self.patience_ns).min(took_ns);
        }
    }
}

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

    /// Whether a miss lets another process run.
    fn yields_after_miss(&mut self) -> bool {
        let now = clock::now_ns();
        match self.wait.mode {
            WaitMode::Spin => false,
            WaitMode::Yield => true,
            // A thread that never yields takes a whole slice each time: the kernel's own turns have to do then.
            _ if !self.is_crowded() => !self.wait.oversubscription.is_slow(now),
            _ => {
                let series = (self.counters.requests, self.counters.unexpected);
                let ranks = self.job.header().awake.load(Ordering::Relaxed);
                self.wait.poll_yields.yields(series, ranks, now)
            }
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
    if !this.yields_after_miss() && !this.wait.is_wanted() {
        return;
    }
    let (began, ended) = this.wait.door().yield_timed();
    // SAFETY: NO REFERENCE (`waiting`): a new one, since other threads may have used the worker meanwhile.
    let this = unsafe { &mut *worker };
    this.note_yield(began, ended);
    let is_long = this.wait.oversubscription.is_long(ended - began);
    this.wait.poll_yields.note_yield(ended, ended - began, is_long);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const RANKS: u32 = 8;

    /// Polls `misses` times, `gap_ns` apart, of which each yield takes `yield_ns`. Returns the number of yields and the
    /// time afterwards.
    fn poll(
        yields: &mut PollYields, series: (u64, u64), misses: u32, gap_ns: u64, yield_ns: u64,
        mut now: u64,
    ) -> (u32, u64) {
        let mut count = 0;
        for _ in 0..misses {
            now += gap_ns;
            if yields.yields(series, RANKS, now) {
                now += yield_ns;
                yields.note_yield(now, yield_ns, yield_ns > 1_000_000);
                count += 1;
            }
        }
        (count, now)
    }

    #[test]
    fn polls__answered_soon__all_yield() {
        let (mut yields, mut now) = (PollYields::default(), 1_000_000);
        for step in 0..10 {
            now = poll(&mut yields, (step, 0), 3, 100, 1_000, now).1;
        }
        for step in 10..100 {
            let (count, after) = poll(&mut yields, (step, 0), 3, 100, 1_000, now);
            now = after;
            assert_eq!(count, 3);
        }
    }

    #[test]
    fn polls__of_a_program_that_works_between__seldom_yield() {
        let (mut yields, mut now, mut count) = (PollYields::default(), 1_000_000, 0);
        let begun = now;
        for step in 0..100 {
            let (more, after) = poll(&mut yields, (step, 0), 250, 60, 1_000, now);
            (count, now) = (count + more, after);
        }
        let worked = now - begun - u64::from(count) * 1_000;
        assert!(u64::from(count) * 1_000 < worked / 4, "{count} yields in {worked} ns");
        assert!(count >= 100, "{count} yields");
    }

    #[test]
    fn polls__far_apart__yield_once_in_the_hold_time() {
        let mut yields = PollYields::default();
        let (count, _) = poll(&mut yields, (1, 0), 100, HOLD_NS / 5, 500, 1_000_000);
        assert!((17..=22).contains(&count), "{count} yields");
    }

    #[test]
    fn polls__of_a_program_that_works__after_a_long_yield__run_as_long() {
        let (mut yields, slice) = (PollYields::default(), 4_000_000);
        let mut now = poll(&mut yields, (0, 0), 1, 100, slice, 1_000_000).1;
        let end = now + slice;
        let mut series = 0;
        while now + 250 * 60 < end {
            series += 1;
            let (count, after) = poll(&mut yields, (series, 0), 250, 60, slice, now);
            assert_eq!(count, 0);
            now = after;
        }
        assert_eq!(poll(&mut yields, (series, 0), 300, 60, slice, now).0, 1);
    }

    #[test]
    fn polls__of_a_program_that_waits__yield_again_after_a_long_yield() {
        let (mut yields, slice) = (PollYields::default(), 4_000_000);
        let misses = (2 * PATIENCE_NS / 100) as u32;
        let mut now = poll(&mut yields, (0, 0), 1, 100, slice, 1_000_000).1;
        for step in 1..20 {
            let (count, after) = poll(&mut yields, (step, 0), misses, 100, slice, now);
            assert_eq!(count, 1);
            now = after;
        }
        // Without an answer, the time doubles up to the time slice.
        let (count, _) = poll(&mut yields, (20, 0), 100_000, 100, slice, now);
        assert!((6..=8).contains(&count), "{count} yields");
    }
}
