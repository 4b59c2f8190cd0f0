//! What a point of a trace costs (`FASTPATH_TRACE`): on, and off.

use std::hint::black_box;
use std::io;

use fastpath_base::trace::{Point, read_ticks, record};
use fastpath_bootstrap::Job;

use super::{calibrate_calls, time_calls};

/// Points of the ring that is written to, as many as a job's by default.
const EVENTS: u32 = 16_384;

/// Nanoseconds, one value a batch: of a point with nothing recorded, of a reading of the clock of points alone, and of
/// a point that is recorded, reading and all. From then on this process records for good.
///
/// # Errors
/// No memory for the ring.
pub fn measure_points(samples: usize, batch_ns: u64) -> io::Result<[Vec<f64>; 3]> {
    let point = || record(Point::PostShort, black_box(1), 5, 8);
    let off = sample(samples, batch_ns, point);
    let clock = sample(samples, batch_ns, || _ = black_box(read_ticks()));
    let job: &'static Job = Box::leak(Box::new(Job::singleton().map_err(io::Error::other)?));
    job.start_trace(EVENTS, false).map_err(io::Error::other)?;
    Ok([off, clock, sample(samples, batch_ns, point)])
}

fn sample(samples: usize, batch_ns: u64, body: impl Fn()) -> Vec<f64> {
    let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| body()));
    (0..samples).map(|_| time_calls(calls, &body)).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn points__are_timed_off_and_on() {
        let [off, clock, on] = measure_points(3, 1000).unwrap();
        assert!([off, clock, on].iter().all(|times| times.len() == 3));
        assert!(fastpath_base::trace::is_on());
    }
}
