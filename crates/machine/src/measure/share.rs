#![allow(unsafe_code)]
//! Share of two processors that a program gets, which shows whether other programs use them.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use fastpath_base::clock;

use super::pair::run_pair;

/// Smallest share with which a measurement counts as undisturbed. Kernel threads and interrupts take a few percent.
pub const UNDISTURBED: f64 = 0.9;

/// Duration of one measurement. A scheduler's time slice is some milliseconds long.
const DURATION: Duration = Duration::from_millis(20);

/// Measures which share of two processors' time this program gets, 0 to 1: the smaller of the two shares.
///
/// # Errors
/// This process may not use a processor.
pub fn measure_share(processors: [usize; 2]) -> io::Result<f64> {
    let other = Mutex::new(0.0);
    let own = run_pair(processors, spin, || {
        if let Ok(mut share) = other.lock() {
            *share = spin();
        }
    })?;
    Ok(own.min(other.into_inner().unwrap_or(0.0)))
}

/// Computes for [`DURATION`]; returns the share of that time in which this thread was on a processor.
fn spin() -> f64 {
    let (begin, began_ns) = (clock::now_ns(), thread_time_ns());
    let mut now = begin;
    while now - begin < DURATION.as_nanos() as u64 {
        now = clock::now_ns();
    }
    ((thread_time_ns() - began_ns) as f64 / (now - begin) as f64).min(1.0)
}

/// Processor time of this thread, in nanoseconds.
fn thread_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the result. This clock exists on every Linux, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measure::placement::allowed_processors;

    #[test]
    fn share__of_two_threads_on_one_processor_is_at_most_half() {
        let one = allowed_processors()[0];
        let share = measure_share([one, one]).unwrap();
        assert!(share > 0.0 && share < 0.7, "{share}");
    }

    #[test]
    fn share__on_a_processor_that_is_not_there_is_an_error() {
        assert!(measure_share([0, 1 << 20]).is_err());
    }
}
