//! Measurements: samples, their statistics, their clock, and the floor that the hardware sets.

pub mod copies;
pub mod floor;
mod pair;
pub mod pipeline;
pub mod placement;
pub mod share;
pub mod stream;
pub mod transfer;

use fastpath_base::clock;

/// `N` sizes, each four times the preceding size.
pub const fn steps_of_four<const N: usize>(from: u64) -> [u64; N] {
    let mut sizes = [from; N];
    let mut at = 1;
    while at < N {
        sizes[at] = 4 * sizes[at - 1];
        at += 1;
    }
    sizes
}

/// Smallest observed step of the monotonic clock, in nanoseconds. It includes the time of a reading.
pub fn observe_clock_step_ns() -> u64 {
    (0..1000)
        .map(|_| {
            let start = clock::now_ns();
            let mut now = clock::now_ns();
            while now == start {
                now = clock::now_ns();
            }
            now - start
        })
        .min()
        .unwrap_or(1)
}

/// Time per call in nanoseconds: the time of `calls` calls of `body`, divided by `calls`.
#[inline]
pub fn time_calls(calls: u64, mut body: impl FnMut()) -> f64 {
    let start = clock::now_ns();
    for _ in 0..calls {
        body();
    }
    (clock::now_ns() - start) as f64 / calls as f64
}

/// Number of calls of `body` that fill a batch of `batch_ns`, at least one. The calls of the search are a warm-up.
pub fn calibrate_calls(batch_ns: u64, mut body: impl FnMut(u64)) -> u64 {
    let found = find_batch(batch_ns, |calls| {
        let start = clock::now_ns();
        body(calls);
        (clock::now_ns() - start) as f64
    });
    found.0
}

/// Number of trials for each number of operations. The shortest trial is used: an interruption makes a trial longer,
/// which would give too short a batch.
const TRIALS: usize = 3;

/// Number of operations that fill a batch of `batch_ns`, at least one, and the expected time of the batch in
/// nanoseconds. `time` runs a number of operations and returns their time.
pub fn find_batch(batch_ns: u64, mut time: impl FnMut(u64) -> f64) -> (u64, f64) {
    let target = batch_ns as f64;
    let mut operations = 1u64;
    loop {
        let mut shortest = time(operations).max(1.0);
        for _ in 1..TRIALS {
            if shortest < target / 4.0 {
                break;
            }
            shortest = shortest.min(time(operations).max(1.0));
        }
        if shortest >= target / 4.0 {
            let scaled = (operations as f64 * target / shortest).ceil().max(1.0);
            return (scaled as u64, shortest * scaled / operations as f64);
        }
        operations *= 2;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn steps__are_of_four() {
        assert_eq!(steps_of_four::<3>(1 << 10), [1 << 10, 4 << 10, 16 << 10]);
    }

    #[test]
    fn clock_step__is_positive() {
        assert!(observe_clock_step_ns() > 0);
    }

    #[test]
    fn calibrate__needs_more_calls_for_a_longer_batch() {
        let spin = |calls: u64| {
            let mut x = 1u64;
            for _ in 0..calls * 50 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        };
        let short = calibrate_calls(10_000, spin);
        let long = calibrate_calls(10_000_000, spin);
        assert!(long > short, "{short} calls, then {long}");
    }

    #[test]
    fn calibrate__gives_one_for_a_call_longer_than_the_batch() {
        assert_eq!(calibrate_calls(0, |_| ()), 1);
    }

    #[test]
    fn find_batch__is_not_misled_by_one_interruption() {
        let mut calls = 0;
        let (operations, expected) = find_batch(20_000, |n| {
            calls += 1;
            100.0 * n as f64 + if calls == 3 { 5e6 } else { 0.0 }
        });
        assert_eq!((operations, expected), (200, 20_000.0));
    }
}
