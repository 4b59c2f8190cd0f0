//! The benchmark program: one C source (`crates/bench/program/`) for every MPI library.
//!
//! The source is part of this binary. [`Program::compile`] builds it, once for each compiler wrapper. [`Program::run`]
//! starts it under a launcher and converts its output to [`Case`]s. Results before a failure are kept.

mod event;
mod job;
mod selection;
mod source;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};
use fastpath_report::record::{Case, Clock, MissingTest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::{CaseOptions, parse_intervals, parse_timing};

#[cfg(test)]
pub use event::parse_event;
pub use event::{CaseProgress, ProgramEvent, Start, VERSION as EVENTS_VERSION};
pub use job::RunError;
pub(crate) use job::await_end;
pub use selection::{LearnedCosts, Selection, VARIABLE};

/// The program, compiled for one MPI library.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
}

/// One run of the program under a launcher.
#[derive(Clone, Debug)]
pub struct ProgramJob {
    pub mpiexec: PathBuf,
    /// Further arguments of the launcher, before `-n`.
    pub mpiexec_arguments: Vec<String>,
    /// Variables for the launcher and its ranks, besides those of this process.
    pub environment: Vec<(String, String)>,
    pub ranks: u32,
    /// Arguments of the program: [`Settings::arguments`].
    pub arguments: Vec<String>,
    /// Silence after which the job is ended.
    pub stall: Duration,
}

impl ProgramJob {
    /// Requests that this library prints its protocol selection, unless the user has set the variable. Not for a job
    /// whose start or memory is measured.
    pub fn with_selection(mut self) -> ProgramJob {
        let (name, value) = VARIABLE;
        let given = self.environment.iter().any(|(set, _)| set == name);
        if !given && std::env::var_os(name).is_none() {
            self.environment.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// Longest silence of a job. A case is announced at its start; a case that takes longer counts as hung.
pub const STALL: Duration = Duration::from_secs(120);

/// Options of the program.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// Names of tests.
    #[arg(skip)]
    pub tests: Vec<String>,
    /// Parameters of a case
    #[command(flatten)]
    #[serde(flatten)]
    pub case: CaseOptions,
    /// Operations per sample: auto (enough to make the clock's cost negligible), each (one), batch=N
    #[arg(help_heading = "Measurement", long, value_parser = parse_timing)]
    pub timing: Option<String>,
    /// Largest sample of several operations, in bytes; None: no limit.
    #[arg(skip)]
    pub sample_bytes: Option<u64>,
    /// Number of rounds in which a case and its floor alternate
    #[arg(help_heading = "Measurement", long,
        value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub rounds: Option<u32>,
    /// Number of consecutive measurements of each size, one line each, without a pause; or `endless`
    #[arg(help_heading = "Measurement", long, value_parser = parse_intervals)]
    pub intervals: Option<String>,
    /// Activity of the ranks that take no part in a test
    #[arg(help_heading = "Measurement", long, value_parser = ["spin", "yield", "sleep", "barrier"])]
    pub idle: Option<String>,
    /// Do not measure the hardware floor
    #[arg(help_heading = "Measurement", long)]
    pub no_floor: bool,
}

impl Settings {
    /// Returns a copy with these tests.
    pub fn with_tests<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Settings {
        let tests = names.into_iter().map(str::to_owned).collect();
        Settings { tests, ..self.clone() }
    }

    /// Returns the program's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![self.tests.join(",")];
        for (name, value) in list_options(self) {
            match name.as_str() {
                "tests" => {}
                "no-floor" => words.extend(["--floor", "no"].map(str::to_owned)),
                _ => words.extend([format!("--{name}")].into_iter().chain(value)),
            }
        }
        words
    }
}

/// Lists the options that are set in a record, by field name, with their values if they have one.
pub fn list_options(record: &impl Serialize) -> Vec<(String, Option<String>)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(record) else {
        return Vec::new();
    };
    let bare = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let option = |(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some((name, None)),
        Value::Array(all) if all.is_empty() => None,
        Value::Array(all) => {
            let all: Vec<String> = all.into_iter().map(bare).collect();
            Some((name, Some(all.join(","))))
        }
        value => Some((name, Some(bare(value)))),
    };
    fields.into_iter().filter_map(option).collect()
}

/// Result of a job, up to its end or failure.
#[derive(Debug, Default)]
pub struct JobResult {
    /// First event; None if the program failed before this event.
    pub start: Option<Start>,
    /// Last known properties of the clock.
    pub clock: Clock,
    pub cases: Vec<Case>,
    /// Requested cases without a result.
    pub missing: Vec<MissingTest>,
    /// Costs that this library has learned from messages.
    pub learnt: Vec<LearnedCosts>,
    /// Reason for which the job failed.
    pub failure: Option<RunError>,
    /// Case that was being measured when the job ended.
    pub at: Option<CaseProgress>,
}

impl Program {
    /// Compiles the program with this compiler wrapper, or finds an earlier compilation. Fails without a working
    /// wrapper or a folder for the program.
    pub fn compile(mpicc: &Path) -> anyhow::Result<Program> {
        let path = source::compile(mpicc)?;
        Ok(Program { path })
    }

    /// Runs the program; `on_event` gets each event as it arrives.
    pub fn run(&self, job: &ProgramJob, mut on_event: impl FnMut(&ProgramEvent)) -> JobResult {
        let mut outcome = JobResult::default();
        let mut selection = None;
        outcome.failure = job::run(&self.path, job, |event| match event {
            ProgramEvent::Selection(said) => selection = Some(said),
            event => {
                on_event(&event);
                outcome.take(event);
            }
        })
        .err();
        if let Some(selection) = selection {
            outcome.cases.iter_mut().for_each(|c| selection.fill(c));
        }
        if outcome.failure.is_none() && outcome.cases.is_empty() && outcome.missing.is_empty() {
            outcome.failure = Some(RunError::Empty);
        }
        outcome
    }
}

impl JobResult {
    fn take(&mut self, event: ProgramEvent) {
        match event {
            ProgramEvent::Start(start) => {
                self.clock = start.clock.clone();
                self.start = Some(start);
            }
            ProgramEvent::Case(case) => {
                self.at = None;
                self.cases.push(*case);
            }
            ProgramEvent::Progress(progress) => self.at = Some(progress),
            ProgramEvent::Missing(missing) if !self.missing.contains(&missing) => {
                self.missing.push(missing);
            }
            ProgramEvent::End { clock } => {
                self.at = None;
                self.clock = clock;
            }
            ProgramEvent::Learnt(learnt) => self.learnt.push(learnt),
            ProgramEvent::Missing(_) | ProgramEvent::Selection(_) | ProgramEvent::Text(_) => {}
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn settings__become_arguments() {
        let case = CaseOptions {
            sizes: vec![0, 4096],
            duration: Some(2.5),
            check: true,
            touch: true,
            buffer: Some("alloc_mem".into()),
            offset: Some(3),
            layout: Some("strided".into()),
            ..CaseOptions::default()
        };
        let settings =
            Settings { case, sample_bytes: Some(4096), no_floor: true, ..Settings::default() };
        let settings = settings.with_tests(["latency", "rate"]);
        let words = settings.arguments().join(" ");
        let wanted = "latency,rate --buffer alloc_mem --check --duration 2.5 --floor no --offset 3 \
                      --sample-bytes 4096 --sizes 0,4096 --touch --type strided";
        assert_eq!(words, wanted);
    }
}
