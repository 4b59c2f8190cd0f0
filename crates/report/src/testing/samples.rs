//! Sample results for tests.

use crate::record::interval::Ratio;

use crate::record::{
    AblationStep, Breakdown, Case, FunctionShare, Level, MissingTest, Quantity, Report, Run,
    StepChange, Timing,
};

/// A latency case of `bytes` bytes with these samples.
pub fn make_case(bytes: u64, samples: &[f64]) -> Case {
    Case {
        test: "latency".into(),
        variant: String::new(),
        operation: "MPI_Send/MPI_Recv".into(),
        level: Level::Mpi,
        of: Quantity::HalfRoundTrip,
        unit: "ns".into(),
        bytes,
        ranks: 2,
        window: None,
        samples: samples.iter().copied().collect(),
        timing: Timing { operations_per_sample: 16, warmup_operations: 1000, overhead_ns: 0.4 },
        transport: Some("shm".into()),
        protocol: Some("eager short".into()),
        protocol_sizes: None,
        floor: Some([57.0, 58.0, 59.0].into_iter().collect()),
        floor_of: Some("cache line one way".into()),
        floor_line: None,
        lines: Some([56.0, 60.0]),
        checked: None,
        processors: vec![0, 1],
        processor_percent: None,
        defined: Default::default(),
        counts: Default::default(),
    }
}

/// Makes a report with two sizes of a latency, a rate, a barrier, and a missing test.
pub fn make_report() -> Report {
    let mut run = Run {
        tool: "fastpath 0.1.0 (0123abc)".into(),
        started_unix_s: 1_700_000_000,
        command: vec!["fastpath".into(), "bench".into()],
        ..Run::default()
    };
    run.mpi.name = "fastpath".into();
    run.mpi.version = "Fastpath 0.1.0".into();
    run.machine.host = "node7".into();
    run.machine.processors = 2;
    run.clock.source = "tsc".into();
    run.clock.frequency_hz = 2.5e9;
    let mut report = Report::new(run);
    report.cases.push(make_case(0, &[120.0, 130.5, 9000.0]));
    report.cases.push(make_case(64, &[150.0, 152.0, 155.0]));
    report.cases.push(Case {
        test: "rate".into(),
        of: Quantity::Message,
        window: Some(64),
        floor: None,
        floor_of: None,
        protocol: None,
        checked: Some(true),
        ..make_case(8, &[40.0, 50.0, 60.0])
    });
    report.cases.push(Case {
        test: "barrier".into(),
        operation: "MPI_Barrier".into(),
        of: Quantity::Call,
        ..make_case(0, &[160.0, 165.0])
    });
    report.missing.push(MissingTest {
        test: "put".into(),
        level: Level::Mpi,
        reason: "MPI_Win_create: MPI_ERR_UNSUPPORTED_OPERATION".into(),
    });
    let breakdown = Breakdown {
        mpi: "Fastpath".into(),
        operation: "MPI_Send".into(),
        level: Level::Mpi,
        bytes: 8,
        calls: 1000,
        total: 78.0,
        parts: vec![FunctionShare {
            level: "transport".into(),
            function: "am_short_known".into(),
            instructions: 30.0,
        }],
    };
    report.ablation.push(AblationStep {
        added: "sendi".into(),
        disabled: vec!["recvi".into()],
        cases: vec![make_case(8, &[95.0])],
        changes: vec![StepChange {
            test: "latency".into(),
            bytes: 8,
            ratio: Ratio { ratio: 0.9, interval: Some([0.8, 1.0]) },
        }],
        instructions: vec![breakdown.clone()],
    });
    report.breakdowns.push(breakdown);
    report
}
