//! Whole jobs, timed from outside: from the start of the launcher to its end.

use std::time::Instant;

use crate::catalogue::Test;
use crate::program::RunError;
use crate::record::{Case, Histogram, Level, Timing};

/// Jobs that are not counted, and those that are, when no number is asked for.
pub(crate) const JOBS: [u64; 2] = [1, 10];

/// Start and end of a job whose ranks call `MPI_Init` and `MPI_Finalize`; `start` runs one and says
/// what went wrong. The first of `jobs` is how many are not counted, the second how many are.
pub(crate) fn measure(
    test: &'static Test,
    ranks: u32,
    [warmup, jobs]: [u64; 2],
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
        variant: String::new(),
        operation: "MPI_Init/MPI_Finalize".to_owned(),
        level: Level::Mpi,
        of: test.of,
        unit: "ns".to_owned(),
        bytes: 0,
        ranks,
        window: None,
        samples,
        timing: Timing {
            operations_per_sample: 1,
            warmup_operations: warmup,
            overhead_ns: 0.0,
        },
        transport: None,
        protocol: None,
        protocol_sizes: None,
        floor: None,
        floor_of: None,
        floor_line: None,
        lines: None,
        checked: None,
        processors: Vec::new(),
        processor_percent: None,
        defined: std::collections::BTreeMap::new(),
        counts: std::collections::BTreeMap::new(),
    })
}
