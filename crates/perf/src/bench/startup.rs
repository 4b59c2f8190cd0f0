//! Whole jobs, timed from outside: from the start of the launcher to its end.

use std::time::Instant;

use super::Session;
use super::options::MeasureOptions;
use crate::catalogue::Test;
use crate::program::{RunError, Settings};
use crate::record::{Case, Histogram, Level, Timing};

/// Jobs that count when no number is asked for.
const JOBS: u64 = 10;

/// Start and end of a job whose ranks call `MPI_Init` and `MPI_Finalize`.
pub(super) fn measure(
    session: &Session,
    test: &'static Test,
    options: &MeasureOptions,
    ranks: u32,
) -> Result<Case, RunError> {
    let settings = Settings {
        tests: vec![test.name.to_owned()],
        ..Settings::default()
    };
    let job = session.job(&settings, ranks);
    let warmup = options.warmup.unwrap_or(1);
    let jobs = options.iterations.unwrap_or(JOBS);
    session.bar.set_length(warmup + jobs);
    let mut samples = Histogram::default();
    for turn in 0..warmup + jobs {
        session.bar.set_position(turn);
        session
            .bar
            .set_message(format!("{}, {ranks} ranks", test.name));
        let start = Instant::now();
        let outcome = session.program.run(&job, |_| ());
        let elapsed = start.elapsed();
        match outcome.failure {
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
        floor: None,
        floor_of: None,
        checked: None,
        processors: Vec::new(),
        defined: std::collections::BTreeMap::new(),
    })
}
