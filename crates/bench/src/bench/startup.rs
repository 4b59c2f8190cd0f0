//! Whole jobs, timed from outside: from the start of the launcher to its end.

use std::time::Instant;

use fastpath_base::clock;
use fastpath_machine::measure::{observe_clock_step_ns, time_calls};
use fastpath_report::catalogue::Test;
use fastpath_report::record::{Case, Clock, Histogram, Timing};
use fastpath_report::statistics::summarize;

use crate::program::RunError;

/// Jobs that are not counted, and those that are, when no number is asked for.
pub(crate) const JOBS: [u64; 2] = [1, 10];

/// The kernel's clock, by which they are timed.
pub(super) fn observe_kernel_clock() -> Clock {
    let read = || time_calls(1000, || _ = std::hint::black_box(clock::now_ns()));
    let taken: Vec<f64> = (0..15).map(|_| read()).collect();
    Clock {
        source: "CLOCK_MONOTONIC".to_owned(),
        frequency_hz: 1e9,
        frequency_error_ppm: 0.0,
        resolution_ns: observe_clock_step_ns() as f64,
        read_ns: summarize(&taken).map_or(0.0, |s| s.median),
    }
}

/// Start and end of a job whose ranks call `MPI_Init` and `MPI_Finalize`; `start` runs one and says
/// what went wrong. The first of `jobs` is how many are not counted, the second how many are.
pub(crate) fn measure(
    test: &'static Test, ranks: u32, [warmup, jobs]: [u64; 2],
    mut start: impl FnMut() -> Option<RunError>,
) -> Result<Case, RunError> {
    let mut samples = Histogram::default();
    for turn in 0..warmup + jobs {
        let begin = Instant::now();
        let failure = start();
        let elapsed = begin.elapsed();
        match failure {
            // It has nothing to print.
            None | Some(RunError::Empty) => {}
            Some(failure) => return Err(failure),
        }
        if turn >= warmup {
            samples.record(elapsed.as_nanos() as f64);
        }
    }
    Ok(Case {
        test: test.name.to_owned(),
        operation: "MPI_Init/MPI_Finalize".to_owned(),
        of: test.of,
        unit: "ns".to_owned(),
        ranks,
        samples,
        timing: Timing { operations_per_sample: 1, warmup_operations: warmup, overhead_ns: 0.0 },
        ..Case::default()
    })
}
