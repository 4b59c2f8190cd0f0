//! Whole jobs, timed from outside: from the start of the launcher to its end.

use std::time::Instant;

use fastpath_base::clock;
use fastpath_machine::measure::{observe_clock_step_ns, time_calls};
use fastpath_report::catalogue::Test;
use fastpath_report::record::{Case, Clock, Histogram, Timing};
use fastpath_report::statistics::summarize;

use crate::program::RunError;

/// Default numbers of warm-up jobs and of measured jobs.
pub(crate) const JOBS: [u64; 2] = [1, 10];

/// Measures the properties of the kernel's clock, which times the jobs.
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

/// Times jobs that only call `MPI_Init` and `MPI_Finalize`, after `warmup` untimed jobs. `start` runs one job, and
/// returns its failure.
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
            // The job has no results to print, so `Empty` is no failure here.
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
