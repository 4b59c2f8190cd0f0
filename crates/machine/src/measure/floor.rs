#![allow(unsafe_code)]
//! Floor: time that the hardware needs for the least that a message requires.
//!
//! A message between two processors moves one cache line from the writer to a waiting reader. [`Lines`] holds two such
//! lines. The two sides write their lines in turn, and each side waits for the line of the other. Half a round trip is
//! the one-way time of a line: no library can be faster with loads and stores. The second floor is the plain memory
//! copy by size.

use std::ptr;

use fastpath_base::clock;
use fastpath_base::sync::Ordering;

use super::pair::{Word, run_pair};
use super::{calibrate_calls, time_calls};

/// The two lines of the round trip. All zero is the initial state, so that they can be in new shared memory.
#[repr(C)]
#[derive(Default)]
pub struct Lines {
    ping: Word,
    pong: Word,
}

const _: () = assert!(size_of::<Lines>() == 256);

/// Value that ends [`Lines::answer`].
const STOP: u64 = u64::MAX;

impl Lines {
    /// Executes `count` round trips after number `last`; returns the last number used. The other side must be in
    /// [`Lines::answer`].
    #[inline]
    pub fn ask(&self, last: u64, count: u64) -> u64 {
        for n in last + 1..=last + count {
            // ORDERING: release; pairs with the acquire load in `answer`. Only the number is passed, but a message
            // would need this ordering.
            self.ping.0.store(n, Ordering::Release);
            // ORDERING: acquire; pairs with the release store in `answer`.
            while self.pong.0.load(Ordering::Acquire) != n {}
        }
        last + count
    }

    /// Answers round trips until [`Lines::stop`].
    pub fn answer(&self) {
        let mut last = self.pong.0.load(Ordering::Relaxed);
        loop {
            // ORDERING: acquire; pairs with the release store in `ask` or `stop`.
            let n = self.ping.0.load(Ordering::Acquire);
            if n == STOP {
                // ORDERING: release; pairs with the acquire load in `stop`.
                self.pong.0.store(STOP, Ordering::Release);
                return;
            }
            if n != last {
                last = n;
                // ORDERING: release; pairs with the acquire load in `ask`.
                self.pong.0.store(n, Ordering::Release);
            }
        }
    }

    /// Ends [`Lines::answer`] on the other side, waits for its acknowledgement, and resets the lines for another use.
    pub fn stop(&self) {
        // ORDERING: release; pairs with the acquire load in `answer`.
        self.ping.0.store(STOP, Ordering::Release);
        // ORDERING: acquire; pairs with the release store in `answer`.
        while self.pong.0.load(Ordering::Acquire) != STOP {}
        self.pong.0.store(0, Ordering::Relaxed);
        // ORDERING: release; the partner is the start of the next `answer`, which must see both words reset. Starting
        // it synchronises with this thread anyway (a message, a thread start).
        self.ping.0.store(0, Ordering::Release);
    }

    /// Samples the one-way time in nanoseconds, each the mean over a batch of at least `batch_ns`. Takes up to
    /// `samples` samples, at least one, within `limit_ns`. The first batches are a warm-up. The other side must be in
    /// [`Lines::answer`].
    pub fn sample_one_way(&self, samples: usize, batch_ns: u64, limit_ns: u64) -> Vec<f64> {
        let begin = clock::now_ns();
        let mut last = 0;
        let trips = calibrate_calls(batch_ns, |n| last = self.ask(last, n));
        let mut taken = Vec::with_capacity(samples);
        while taken.len() < samples {
            let start = clock::now_ns();
            last = self.ask(last, trips);
            let now = clock::now_ns();
            taken.push((now - start) as f64 / (2 * trips) as f64);
            if now - begin > limit_ns {
                break;
            }
        }
        taken
    }
}

/// Samples the one-way time of a cache line between two processors of this machine, with two threads.
///
/// # Errors
/// This process may not use a processor.
pub fn measure_lines(
    processors: [usize; 2], samples: usize, batch_ns: u64,
) -> std::io::Result<Vec<f64>> {
    let lines = Lines::default();
    let lead = || {
        let taken = lines.sample_one_way(samples, batch_ns, u64::MAX);
        lines.stop();
        taken
    };
    run_pair(processors, lead, || lines.answer())
}

/// Measures the shortest one-way time of a cache line between two processors, in nanoseconds. `fastpath tune` stores
/// this time, and `fastpath info` compares it with the present one.
///
/// # Errors
/// This process may not use a processor.
pub fn measure_least_line(processors: [usize; 2]) -> std::io::Result<f64> {
    const SAMPLES: usize = 31;
    const BATCH_NS: u64 = 20_000;
    // Interference only makes samples larger.
    let lines = measure_lines(processors, SAMPLES, BATCH_NS)?;
    Ok(lines.into_iter().fold(f64::INFINITY, f64::min))
}

/// Sampler of memory copies from one buffer to another by the C library's `memcpy` on this thread, in nanoseconds. All
/// copies use the same two buffers, which stay in the caches if they fit.
pub struct CopyFloor {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl CopyFloor {
    /// Allocates and touches buffers for copies of up to `largest` bytes.
    pub fn new(largest: usize) -> CopyFloor {
        CopyFloor { from: vec![1; largest], to: vec![2; largest] }
    }

    /// Takes `samples` samples of copying `bytes` (at most `largest`), each the mean over a batch of at least
    /// `batch_ns`.
    pub fn sample(&mut self, bytes: usize, samples: usize, batch_ns: u64) -> Vec<f64> {
        let bytes = bytes.min(self.from.len());
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let copy = || {
            let (from, to) = std::hint::black_box((from, to));
            // SAFETY: both buffers have at least `bytes` bytes and are distinct.
            unsafe { ptr::copy_nonoverlapping(from, to, std::hint::black_box(bytes)) };
        };
        let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| copy()));
        (0..samples).map(|_| time_calls(calls, copy)).collect()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::thread;

    use super::*;
    use crate::measure::placement;

    #[test]
    fn lines__answer_every_round_trip_and_can_be_used_again() {
        let lines = Lines::default();
        for _ in 0..3 {
            thread::scope(|scope| {
                scope.spawn(|| lines.answer());
                assert_eq!(lines.ask(0, 100), 100);
                assert_eq!(lines.ask(100, 1), 101);
                lines.stop();
            });
        }
    }

    #[test]
    fn measure_lines__gives_the_samples_asked_for() {
        let cpus = placement::allowed_processors();
        // On one processor the two threads pass the line by time slices: slow, but valid.
        let pair = [cpus[0], *cpus.last().unwrap()];
        let samples = measure_lines(pair, 5, 1000).unwrap();
        assert_eq!(samples.len(), 5);
        assert!(samples.iter().all(|&s| s > 0.0));
    }

    #[test]
    fn measure_lines__with_a_processor_that_is_not_there_is_an_error() {
        let cpus = placement::allowed_processors();
        assert!(measure_lines([cpus[0], 1 << 20], 5, 1000).is_err());
        assert!(measure_lines([1 << 20, cpus[0]], 5, 1000).is_err());
    }

    #[test]
    fn lines__stop_sampling_at_the_limit_with_one_sample_at_least() {
        let lines = Lines::default();
        thread::scope(|scope| {
            scope.spawn(|| lines.answer());
            assert_eq!(lines.sample_one_way(1000, 1, 0).len(), 1);
            lines.stop();
        });
    }

    #[test]
    fn copy__moves_the_bytes_asked_for() {
        let mut floor = CopyFloor::new(4096);
        let samples = floor.sample(100, 3, 100);
        assert_eq!(samples.len(), 3);
        assert!(floor.to[..100].iter().all(|&b| b == 1));
        assert!(floor.to[100..].iter().all(|&b| b == 2));
    }
}
