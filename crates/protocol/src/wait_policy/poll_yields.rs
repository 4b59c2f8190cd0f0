/// Minimum time in nanoseconds between two yields that are not free ([`PollYields`]). A switch takes 0.5 to 1 us.
const HOLD_NS: u64 = 10_000;
/// The program counts as working if more nanoseconds than this pass between two polls. A loop takes a fifth of it.
const WORK_NS: u64 = 1_000;
/// If a series has at least this many misses since its last yield, its end is not attributed to that yield.
const MISSES_BY_ITSELF: u32 = 16;
/// The program counts as working between its polls if the score is at least this high.
const SCORE_WORKS: u8 = 4;
const SCORE_MOST: u8 = 8;
/// A delayed yield is due after this many nanoseconds without a message or request.
const IDLE_NS: u64 = 50_000;
/// After a yield of more nanoseconds than this, the next series has no free yields. A delay of [`IDLE_NS`] costs a
/// tenth of such a yield, and shows whether the program works.
const LONG_NS: u64 = 10 * IDLE_NS;
/// In a program that works, one in this many misses reads the clock. A reading takes as long as half a miss.
const MISSES_PER_CLOCK: u32 = 16;
/// Decides which missed polls yield the processor on a node with more ranks than processors.
///
/// A *miss* is a poll that finds nothing. A series of misses ends when a message arrives, or the program makes a
/// request or sends. In a program that waits, the first misses of a series yield (*free* yields), at most one for each
/// rank. Later misses yield if the process has run for as long as the last yield took, or if nothing has happened for
/// [`IDLE_NS`]. Within a series, each yield doubles the latter time. In a program that works, a miss yields only if
/// both conditions hold: otherwise the program would lose its time slice.
///
/// The score rises if a series ends long after its last yield, and falls if a series ends soon after a yield.
#[derive(Debug, Clone, Copy, Default)]
pub struct PollYields {
    series: u64,
    /// Confidence that the program works between its polls.
    score: u8,
    free: u32,
    yielded: u32,
    was_long: bool,
    /// Misses since the series began or last yielded.
    misses: u32,
    /// Time of the last of these events, in nanoseconds: start of a series, yield, work between two polls.
    since_ns: u64,
    idle_limit_ns: u64,
    unread: u32,
    /// Time, in nanoseconds, when the last miss that read the clock returned to the program.
    returned_ns: u64,
    /// Time, in nanoseconds, when the process will have run for as long as the last yield took.
    held_until_ns: u64,
}

impl PollYields {
    /// Returns whether a miss yields. `series` is the value of `Worker::count_traffic`, `ranks` the number of awake
    /// ranks on this node. `now_ns` reads the clock.
    pub(crate) fn yields(&mut self, series: u64, ranks: u32, now_ns: impl FnOnce() -> u64) -> bool {
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

    pub(crate) fn note_yield(&mut self, ended_ns: u64, took_ns: u64) {
        (self.returned_ns, self.since_ns) = (ended_ns, ended_ns);
        self.held_until_ns = ended_ns + took_ns.max(HOLD_NS);
        self.idle_limit_ns = (2 * self.idle_limit_ns).min(took_ns.max(IDLE_NS));
        self.was_long = took_ns > LONG_NS;
        (self.yielded, self.misses) = (self.yielded.saturating_add(1), 0);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const RANKS: u32 = 8;

    /// Polls `misses` times, `gap_ns` apart. Returns the number of yields and the time afterwards.
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
