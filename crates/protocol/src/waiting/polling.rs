//! Polling: calls that may answer "not yet" (tests, probes). They never sleep, since the program may have other work.
//! On a node with more ranks than processors they yield, since a peer may need this processor to answer.
//!
//! A program that only polls should yield at once, and a program that works between its polls should not. Time between
//! two polls shows work of more than a microsecond. For shorter work, [`PollYields`] learns whether messages and
//! requests go on without yields.
#![allow(unsafe_code)]

use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;

/// Least number of nanoseconds between two yields that are not free. A switch of processes takes 0.5 to 1 us.
const HOLD_NS: u64 = 10_000;
/// Time between two polls, in nanoseconds, above which the program works. A loop of polls takes a fifth of it.
const WORK_NS: u64 = 1_000;
/// Misses without a yield at the end of a series, from which on the series ended by itself.
const MISSES_BY_ITSELF: u32 = 16;
/// Score from which on the program is taken to work between its polls.
const SCORE_WORKS: u8 = 4;
/// Largest score.
const SCORE_MOST: u8 = 8;
/// Nanoseconds without a message or request until a yield that was held is made.
const IDLE_NS: u64 = 50_000;
/// Nanoseconds of a yield after which a series has no free ones. To hold it for [`IDLE_NS`] costs a tenth of that,
/// and shows whether the program works.
const LONG_NS: u64 = 10 * IDLE_NS;
/// Misses for each reading of the clock in a program that works: a reading takes as long as half of a miss.
const MISSES_PER_CLOCK: u32 = 16;
/// Peers whose messages are counted at each miss.
const PEERS_COUNTED: usize = 32;

/// Decides which missed polls yield the processor on a node with more ranks than processors.
///
/// A series of misses ends when a message arrives or the program makes a request or sends. In a program that waits, the
/// first misses of a series yield, at most one for each rank. Later misses yield when the process has run for as long
/// as the last yield took, or when nothing has happened for [`IDLE_NS`]. Each such yield that brings nothing doubles
/// that time. In a program that works, a miss yields when both are true: otherwise it would lose its time slice.
///
/// The score rises with each series that ends by itself, and falls with each that ends soon after a yield.
#[derive(Debug, Clone, Copy, Default)]
pub struct PollYields {
    /// [`Worker::count_traffic`] when the series began.
    series: u64,
    /// How sure it is that the program works between its polls.
    score: u8,
    /// Free yields that the series has left.
    free: u32,
    /// Yields in the series.
    yielded: u32,
    /// Whether the last yield took longer than [`LONG_NS`].
    was_long: bool,
    /// Misses since the series began or last yielded.
    misses: u32,
    /// When the series began or last yielded, or the program last worked between two polls, in nanoseconds.
    since_ns: u64,
    /// Nanoseconds from then to the next yield.
    idle_limit_ns: u64,
    /// Misses since the last reading of the clock.
    unread: u32,
    /// When the last miss that read the clock returned to the program, in nanoseconds.
    returned_ns: u64,
    /// When the process has run for as long as the last yield took, in nanoseconds.
    held_until_ns: u64,
}

impl PollYields {
    /// Whether a miss yields. `series`: [`Worker::count_traffic`]; `ranks`: ranks awake on this node; `now_ns`: reads
    /// the clock.
    fn yields(&mut self, series: u64, ranks: u32, now_ns: impl FnOnce() -> u64) -> bool {
        self.unread += 1;
        let is_new = series != self.series;
        if self.works() && !is_new && self.unread < MISSES_PER_CLOCK {
            self.misses = self.misses.saturating_add(1);
            return false;
        }
        let now_ns = now_ns();
        if is_new {
            self.begin_series(series, ranks, now_ns);
        } else if now_ns.saturating_sub(self.returned_ns) > WORK_NS * u64::from(self.unread) {
            (self.free, self.since_ns) = (0, now_ns);
        }
        (self.returned_ns, self.unread) = (now_ns, 0);
        self.misses = self.misses.saturating_add(1);
        if self.free > 0 {
            self.free -= 1;
            return true;
        }
        let is_idle = now_ns - self.since_ns >= self.idle_limit_ns;
        let is_due = now_ns >= self.held_until_ns;
        if self.works() { is_idle && is_due } else { is_idle || is_due }
    }

    fn works(&self) -> bool {
        self.score >= SCORE_WORKS
    }

    fn begin_series(&mut self, series: u64, ranks: u32, now_ns: u64) {
        if self.misses >= MISSES_BY_ITSELF {
            self.score = (self.score + 1).min(SCORE_MOST);
        } else if self.yielded > 0 {
            self.score = self.score.saturating_sub(1);
        }
        self.free = if self.works() || self.was_long { 0 } else { ranks };
        (self.series, self.yielded, self.misses) = (series, 0, 0);
        (self.since_ns, self.idle_limit_ns) = (now_ns, IDLE_NS);
    }

    /// A yield ended at `ended_ns`, after `took_ns`.
    fn note_yield(&mut self, ended_ns: u64, took_ns: u64) {
        (self.returned_ns, self.since_ns) = (ended_ns, ended_ns);
        self.held_until_ns = ended_ns + took_ns.max(HOLD_NS);
        self.idle_limit_ns = (2 * self.idle_limit_ns).min(took_ns.max(IDLE_NS));
        self.was_long = took_ns > LONG_NS;
        (self.yielded, self.misses) = (self.yielded.saturating_add(1), 0);
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

    /// A number that changes with each message sent or received and with each request. Peers beyond
    /// [`PEERS_COUNTED`] do not count.
    fn count_traffic(&self) -> u64 {
        let peers = self.active.iter().take(PEERS_COUNTED);
        let slots = peers.map(|&peer| u64::from(self.endpoints[peer].lane.slots_moved()));
        self.counters.requests + self.counters.unexpected + slots.sum::<u64>()
    }

    /// Whether a miss lets another process run.
    fn yields_after_miss(&mut self) -> bool {
        match self.wait.mode {
            WaitMode::Spin => false,
            WaitMode::Yield => true,
            // A thread that never yields takes a whole slice each time: the kernel's own turns have to do then.
            _ if !self.is_crowded() => !self.wait.oversubscription.is_slow(clock::now_ns()),
            _ => {
                let series = self.count_traffic();
                let ranks = self.job.header().awake.load(Ordering::Relaxed);
                self.wait.poll_yields.yields(series, ranks, clock::now_ns)
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
    this.wait.poll_yields.note_yield(ended, ended - began);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const RANKS: u32 = 8;

    /// Polls `misses` times, `gap_ns` apart, of which each yield takes `yield_ns`. Returns the number of yields and the
    /// time afterwards.
    fn poll(
        yields: &mut PollYields, series: u64, misses: u32, gap_ns: u64, yield_ns: u64, mut now: u64,
    ) -> (u32, u64) {
        let mut count = 0;
        for _ in 0..misses {
            now += gap_ns;
            if yields.yields(series, RANKS, || now) {
                now += yield_ns;
                yields.note_yield(now, yield_ns);
                count += 1;
            }
        }
        (count, now)
    }

    #[test]
    fn polls__answered_soon__all_yield() {
        let (mut yields, mut now) = (PollYields::default(), 1_000_000);
        for step in 1..100 {
            let (count, after) = poll(&mut yields, step, 3, 100, 1_000, now);
            assert_eq!(count, 3);
            now = after;
        }
    }

    #[test]
    fn polls__answered_after_a_time_slice__yield_when_idle() {
        let (mut yields, mut now, slice) = (PollYields::default(), 1_000_000, 4_000_000);
        for step in 1..100 {
            // The first miss after the yield ends the series.
            let most = if step == 1 { 1 } else { 1 + (IDLE_NS / 100) as u32 };
            let (count, after) = poll(&mut yields, step, most, 100, slice, now);
            assert_eq!(count, 1);
            now = after;
        }
    }

    #[test]
    fn polls__of_a_program_that_works_between__seldom_yield() {
        for yield_ns in [1_000, 4_000_000] {
            let (mut yields, mut now, mut yielded) = (PollYields::default(), 1_000_000, 0);
            for step in 1..1000 {
                let (more, after) = poll(&mut yields, step, 250, 60, yield_ns, now);
                (yielded, now) = (yielded + more, after);
            }
            assert!(yielded <= 10 * RANKS, "{yielded} yields of {yield_ns} ns");
            // Idle, it yields as others do.
            let (count, _) = poll(&mut yields, 1000, 1_000_000, 60, yield_ns, now);
            assert!(count >= 10, "{count} yields of {yield_ns} ns");
        }
    }

    #[test]
    fn polls__of_a_program_that_works_between__seldom_read_the_clock() {
        let (mut yields, mut now, mut readings) = (PollYields::default(), 1_000_000, 0);
        for step in 1..1000 {
            for _ in 0..256 {
                now += 60;
                let count = &mut readings;
                yields.yields(step, RANKS, || {
                    *count += 1;
                    now
                });
            }
        }
        assert!(readings < 1000 * 256 / 12, "{readings} readings");
    }

    #[test]
    fn polls__far_apart__yield_once_in_the_hold_time() {
        let mut yields = PollYields::default();
        let (count, _) = poll(&mut yields, 1, 100, HOLD_NS / 5, 500, 1_000_000);
        assert!((17..=22).contains(&count), "{count} yields");
    }

    #[test]
    fn polls__without_an_answer__run_as_long_as_yields_take() {
        let (mut yields, slice) = (PollYields::default(), 4_000_000);
        let (count, _) = poll(&mut yields, 1, 200_000, 100, slice, 1_000_000);
        assert!((RANKS + 4..=RANKS + 6).contains(&count), "{count} yields");
    }
}
