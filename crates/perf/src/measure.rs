//! Numbers that can be trusted: samples, their statistics, the clock behind them, and the floor
//! that the hardware sets.

pub mod floor;
pub mod placement;
pub mod statistics;
pub mod transfer;

use fastpath_base::clock;

/// The smallest step the monotonic clock was seen to make, in nanoseconds; what a reading costs
/// is part of it.
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

/// Nanoseconds per call: the time of `calls` calls of `body`, divided by `calls`.
#[inline]
pub fn time_calls(calls: u64, mut body: impl FnMut()) -> f64 {
    let start = clock::now_ns();
    for _ in 0..calls {
        body();
    }
    (clock::now_ns() - start) as f64 / calls as f64
}

/// How many calls of `body` fill a batch of `batch_ns`; at least one. The calls made to find out
/// are a warm-up.
pub fn calibrate_calls(batch_ns: u64, mut body: impl FnMut(u64)) -> u64 {
    let mut calls = 1u64;
    loop {
        let start = clock::now_ns();
        body(calls);
        let elapsed = (clock::now_ns() - start).max(1);
        if elapsed >= batch_ns / 4 {
            return (calls as u128 * batch_ns as u128 / elapsed as u128).max(1) as u64;
        }
        calls *= 2;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
}
