//! What a point of a trace costs (`FASTPATH_TRACE`): on, and off.

use std::hint::black_box;
use std::io;

use fastpath_base::trace::{Point, record};
use fastpath_bootstrap::Job;

use super::{calibrate_calls, time_calls};

/// Points of the ring that is written to, as many as a job's by default.
const EVENTS: u32 = 16_384;

/// Nanoseconds per point, one value a batch: first with nothing recorded, then recorded into a ring. From then on this
/// process records for good.
///
/// # Errors
/// No memory for the ring.
pub fn measure_points(samples: usize, batch_ns: u64) -> io::Result<[Vec<f64>; 2]> {
    let off = sample(samples, batch_ns);
    let job: &'static Job = Box::leak(Box::new(Job::singleton().map_err(io::Error::other)?));
    job.start_trace(EVENTS, false).map_err(io::Error::other)?;
    Ok([off, sample(samples, batch_ns)])
}

fn sample(samples: usize, batch_ns: u64) -> Vec<f64> {
    let point = || record(Point::PostShort, black_box(1), 5, 8);
    let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| point()));
    (0..samples).map(|_| time_calls(calls, point)).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn points__are_timed_off_and_on() {
        let [off, on] = measure_points(3, 1000).unwrap();
        assert_eq!((off.len(), on.len()), (3, 3));
        assert!(fastpath_base::trace::is_on());
    }
}
