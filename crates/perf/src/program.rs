//! The benchmark program: one source in C (`crates/perf/program/`) for every MPI library.
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

use serde::{Deserialize, Serialize};

use crate::record::{Case, Clock, Missing};

pub use event::{Event, EventError, Progress, Start, VERSION as EVENTS_VERSION, parse_event};
pub use job::RunError;
pub use selection::{Selection, VARIABLE};
pub use source::CompileError;

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

/// What the program is asked to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of tests.
    pub tests: Vec<String>,
    /// Sizes in bytes; empty: each test's own.
    pub sizes: Vec<u64>,
    /// Operations of each case; None: by duration.
    pub iterations: Option<u64>,
    /// Duration of each case in milliseconds; None: the program's default.
    pub duration_ms: Option<f64>,
    /// Operations that warm up; None: found out.
    pub warmup: Option<u64>,
    /// Messages in flight; None: each test's own.
    pub window: Option<u32>,
    /// `auto`, `each` or `batch=N`.
    pub timing: Option<String>,
    /// The most bytes of a sample that has several operations; None: no limit.
    #[serde(default)]
    pub sample_bytes: Option<u64>,
    /// Turns in which a case and its floor alternate.
    pub rounds: Option<u32>,
    /// Cases in a row at each size: a number, or `endless`.
    pub intervals: Option<String>,
    /// Whether payloads are verified outside the timed loop.
    pub check: bool,
    /// Whether messages are written before each send and read after each receive.
    #[serde(default)]
    pub touch: bool,
    /// Where buffers come from, `malloc` or `alloc_mem`; None: malloc.
    #[serde(default)]
    pub buffer: Option<String>,
    /// How many bytes into that memory they begin; None: 0.
    #[serde(default)]
    pub offset: Option<u32>,
    /// How a message lies in memory, `bytes` or `strided`; None: bytes in a row.
    #[serde(default)]
    pub layout: Option<String>,
    /// What ranks do that take no part: `spin`, `yield`, `sleep` or `barrier`.
    pub idle: Option<String>,
    /// Without the floor beside the cases.
    pub no_floor: bool,
}

impl Settings {
    /// The program's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![self.tests.join(",")];
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([name.to_owned(), value]);
            }
        };
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        add("--sizes", (!sizes.is_empty()).then(|| sizes.join(",")));
        add("--iterations", self.iterations.map(|n| n.to_string()));
        add("--duration", self.duration_ms.map(|ms| ms.to_string()));
        add("--warmup", self.warmup.map(|n| n.to_string()));
        add("--window", self.window.map(|n| n.to_string()));
        add("--timing", self.timing.clone());
        add("--sample-bytes", self.sample_bytes.map(|n| n.to_string()));
        add("--rounds", self.rounds.map(|n| n.to_string()));
        add("--intervals", self.intervals.clone());
        add("--buffer", self.buffer.clone());
        add("--offset", self.offset.map(|n| n.to_string()));
        add("--type", self.layout.clone());
        add("--idle", self.idle.clone());
        add("--floor", self.no_floor.then(|| "no".to_owned()));
        for (wanted, flag) in [(self.check, "--check"), (self.touch, "--touch")] {
            if wanted {
                words.push(flag.to_owned());
            }
        }
        words
    }
}

/// What came of a job, as far as it went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Who was measured; None where the program did not come so far.
    pub start: Option<Start>,
    /// The clock as it was known last.
    pub clock: Clock,
    /// What was measured.
    pub cases: Vec<Case>,
    /// What was asked for and could not be.
    pub missing: Vec<Missing>,
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
    pub fn compile(mpicc: &Path) -> Result<Program, CompileError> {
        let path = source::compile(mpicc)?;
        Ok(Program { path })
    }

    /// Runs the program; `on_event` sees each event as it comes.
    pub fn run(&self, job: &Job, mut on_event: impl FnMut(&Event)) -> Outcome {
        let mut outcome = Outcome::default();
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

impl Outcome {
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
        let settings = Settings {
            tests: vec!["latency".into(), "rate".into()],
            sizes: vec![0, 4096],
            duration_ms: Some(2.5),
            sample_bytes: Some(4096),
            check: true,
            touch: true,
            buffer: Some("alloc_mem".into()),
            offset: Some(3),
            layout: Some("strided".into()),
            ..Settings::default()
        };
        let words = settings.arguments().join(" ");
        let wanted = "latency,rate --sizes 0,4096 --duration 2.5 --sample-bytes 4096 \
                      --buffer alloc_mem --offset 3 --type strided --check --touch";
        assert_eq!(words, wanted);
    }
}
