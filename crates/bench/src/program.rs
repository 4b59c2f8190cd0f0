//! The benchmark program: one source in C (`crates/bench/program/`) for every MPI library.
//!
//! It is part of this binary. [`Program::compile`] builds it with a given compiler wrapper, once
//! for each wrapper; [`Program::run`] starts it under a launcher and turns what it prints into
//! [`Case`]s. What was measured before something went wrong is kept.

mod event;
mod job;
mod selection;
mod source;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};
use fastpath_report::record::{Case, Clock, Missing};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bench::options::{CaseOptions, parse_intervals, parse_timing};

#[cfg(test)]
pub use event::parse_event;
pub use event::{Event, Progress, Start, VERSION as EVENTS_VERSION};
pub use job::RunError;
pub(crate) use job::await_end;
pub use selection::{Learnt, Selection, VARIABLE};

/// The program, compiled for one MPI library.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
}

/// One start of the program under a launcher.
#[derive(Clone, Debug)]
pub struct Job {
    /// The launcher.
    pub mpiexec: PathBuf,
    /// Further arguments of the launcher, before `-n`.
    pub mpiexec_arguments: Vec<String>,
    /// Variables for the launcher and its ranks, besides those of this process.
    pub environment: Vec<(String, String)>,
    /// Number of ranks.
    pub ranks: u32,
    /// Arguments of the program: [`Settings::arguments`].
    pub arguments: Vec<String>,
    /// The job is ended when it has printed nothing for so long.
    pub stall: Duration,
}

impl Job {
    /// Asks our library to say which protocol serves which size, unless the user has asked for a form of
    /// it. Not for a job whose start or memory is measured.
    pub fn with_selection(mut self) -> Job {
        let (name, value) = VARIABLE;
        let given = self.environment.iter().any(|(set, _)| set == name);
        if !given && std::env::var_os(name).is_none() {
            self.environment.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// How long a job may be silent. A case says at its beginning that it begins; one that takes
/// longer than this is taken to hang.
pub const STALL: Duration = Duration::from_secs(120);

/// What the program is asked to do, in words of the command line.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// Names of tests.
    #[arg(skip)]
    pub tests: Vec<String>,
    /// What a case is
    #[command(flatten)]
    #[serde(flatten)]
    pub case: CaseOptions,
    /// Operations of one sample: auto (enough to make the clock's cost negligible), each (one), batch=N
    #[arg(long, value_parser = parse_timing)]
    pub timing: Option<String>,
    /// The most bytes of a sample that has several operations; None: no limit.
    #[arg(skip)]
    pub sample_bytes: Option<u64>,
    /// Turns in which a case and its floor alternate
    #[arg(long, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub rounds: Option<u32>,
    /// Number of times to measure each size, in a row, a line each, without a pause; or `endless`
    #[arg(long, value_parser = parse_intervals)]
    pub intervals: Option<String>,
    /// What the ranks that take no part do meanwhile
    #[arg(long, value_parser = ["spin", "yield", "sleep", "barrier"])]
    pub idle: Option<String>,
    /// Leave out the floor beside the cases
    #[arg(long)]
    pub no_floor: bool,
}

impl Settings {
    /// The same for these tests.
    pub fn with_tests<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Settings {
        let tests = names.into_iter().map(str::to_owned).collect();
        Settings { tests, ..self.clone() }
    }

    /// The program's arguments.
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

/// The options that are set in a record, and their values where they have one: names are those of its fields.
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

/// What came of a job, as far as it went.
#[derive(Debug, Default)]
pub struct JobResult {
    /// Who was measured; None where the program did not come so far.
    pub start: Option<Start>,
    /// The clock as it was known last.
    pub clock: Clock,
    /// What was measured.
    pub cases: Vec<Case>,
    /// What was asked for and could not be.
    pub missing: Vec<Missing>,
    /// What our library has learnt of its messages.
    pub learnt: Vec<Learnt>,
    /// Why the job did not end well.
    pub failure: Option<RunError>,
    /// The case that was being measured when the job ended.
    pub at: Option<Progress>,
}

impl Program {
    /// Compiles the program with this compiler wrapper, or finds what it compiled earlier.
    ///
    /// # Errors
    /// The wrapper is not there or fails; there is no folder to keep the program in.
    pub fn compile(mpicc: &Path) -> anyhow::Result<Program> {
        let path = source::compile(mpicc)?;
        Ok(Program { path })
    }

    /// Runs the program; `on_event` sees each event as it comes.
    pub fn run(&self, job: &Job, mut on_event: impl FnMut(&Event)) -> JobResult {
        let mut outcome = JobResult::default();
        let mut selection = None;
        outcome.failure = job::run(&self.path, job, |event| match event {
            Event::Selection(said) => selection = Some(said),
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
    fn take(&mut self, event: Event) {
        match event {
            Event::Start(start) => {
                self.clock = start.clock.clone();
                self.start = Some(start);
            }
            Event::Case(case) => {
                self.at = None;
                self.cases.push(*case);
            }
            Event::Progress(progress) => self.at = Some(progress),
            // Each size of a test may say the same.
            Event::Missing(missing) if !self.missing.contains(&missing) => {
                self.missing.push(missing);
            }
            Event::End { clock } => {
                self.at = None;
                self.clock = clock;
            }
            Event::Learnt(learnt) => self.learnt.push(learnt),
            Event::Missing(_) | Event::Selection(_) | Event::Text(_) => {}
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
