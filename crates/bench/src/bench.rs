//! `fastpath bench`: measures MPI calls, and the hardware floor of each.
//!
//! The benchmark program ([`crate::program`]) is compiled for the measured MPI and run as a job for each number of
//! ranks. The table of a test is printed below its headline as soon as the test is measured. All results are collected
//! in one [`Report`].

pub mod copy;
mod files;
pub mod floor;
pub mod learnt;
pub mod options;
pub(crate) mod pipeline;
mod points;
mod screen;
pub(crate) mod startup;
pub mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastpath_base::tell;
use fastpath_base::tell::count;
use fastpath_report::catalogue::{self, Participants, Test, TestGroup};
use fastpath_report::document::{Document, Table};
use fastpath_report::output::chart::Charset;
use fastpath_report::output::table::describe_clock;
use fastpath_report::output::{head, make_bar, print_line};
use fastpath_report::record::{Case, Level, MissingTest, Mpi, Report};
use fastpath_report::refuse_usage;

use crate::interrupt;
use crate::levels::{LevelPlan, SharedBoard};
use crate::peers::ComparedMpi;
use crate::program::{Program, ProgramEvent, ProgramJob, RunError, STALL, Settings};
use crate::result_files::ResultFiles;
use files::Floors;
use options::BenchOptions;
use pipeline::Pipelines;
use screen::Screen;

struct Session {
    mpi: ComparedMpi,
    program: Program,
    report: Report,
    screen: Screen,
    pipeline: Pipelines,
}

/// Runs `fastpath bench TEST...`.
///
/// # Errors
/// An option is invalid, a job failed (its results are kept), nothing was measured, or writing failed.
pub fn run(options: &BenchOptions) -> Result<()> {
    if options.list {
        print_list();
        return Ok(());
    }
    let tests = options.choose_tests()?;
    if tests.is_empty() {
        refuse_usage!(
            "no test given; `fastpath bench --list` lists all tests, `fastpath bench latency` \
             runs one test"
        );
    }
    let summarized = options.summary.then(|| options.with_summary_defaults()).transpose()?;
    let options = summarized.as_ref().unwrap_or(options);
    options.path.check(&options.levels)?;
    options.check_buffers()?;
    let verbs = options.choose_verbs()?;
    let options = &BenchOptions { verbs, ..options.clone() };
    options.check_view()?;
    let no_table = options.check_places()?;
    let store = ResultFiles::open(&options.results, options.csv.as_deref())?;
    let mut mpi = ComparedMpi::ours(&options.mpi)?.on_hosts(&options.mpi);
    mpi.environment = options.path.environment();
    let mut report = mpi.report();
    // Clear the name: the library reports its own name when a job starts.
    report.run.mpi.name.clear();
    let mut session = Session {
        program: if options.has_level(Level::Mpi) {
            Program::compile(&mpi.mpicc)?
        } else {
            Program { path: PathBuf::new() }
        },
        mpi,
        report,
        screen: Screen::new(
            make_bar(1, !options.no_progress, ""),
            options.style,
            options.find_view(),
            !no_table && !options.summary,
        ),
        pipeline: Pipelines::default(),
    };
    let machine = head::describe_machine(&session.report.run.machine);
    session.screen.note(&machine);
    interrupt::keep_results();
    let (mut failure, mut written) = (None, Ok(()));
    for &ranks in &options.ranks {
        failure = session.run_ranks(&tests, options, ranks).err();
        written = store.save(&session.report);
        if failure.is_some() || written.is_err() {
            break;
        }
    }
    session.screen.finish(&session.report);
    if options.summary {
        let lines = summary::describe(&session.report.cases, Charset::of_locale());
        lines.iter().for_each(|line| print_line(line));
    }
    written.and(store.finish(&session.report))?;
    failure.map_or(Ok(()), Err)?;
    ensure!(!session.report.cases.is_empty(), "nothing was measured");
    Ok(())
}

impl Session {
    fn run_ranks(
        &mut self, tests: &[&'static Test], options: &BenchOptions, ranks: u32,
    ) -> Result<(), RunError> {
        let of = |class: Participants| tests.iter().copied().filter(move |t| t.class == class);
        let together: Vec<_> = tests
            .iter()
            .copied()
            .filter(|t| matches!(t.class, Participants::Pair | Participants::Everyone))
            .collect();
        if !together.is_empty() {
            let first = self.report.cases.len();
            let sizes = pipeline::list_sizes(&together, options, ranks);
            self.pipeline.begin_run(&sizes);
            let done = self.run_levels(&together, options, ranks);
            self.pipeline.end_run(&mut self.report.cases[first..]);
            let beside = self.pipeline.describe(&self.report.cases[first..]);
            self.screen.note_table(&beside);
            done?;
        }
        for test in of(Participants::Alone) {
            self.run_levels(&[test], options, ranks)?;
        }
        for test in of(Participants::Job) {
            let case = self.measure_job(test, options, ranks)?;
            self.screen.add(&case);
            self.report.cases.push(case);
        }
        Ok(())
    }

    fn measure_job(
        &mut self, test: &'static Test, options: &BenchOptions, ranks: u32,
    ) -> Result<Case, RunError> {
        let settings = Settings::default().with_tests([test.name]);
        let job = self.job(&settings, ranks);
        let jobs = [
            options.measure.case.warmup.unwrap_or(startup::JOBS[0]),
            options.measure.case.iterations.unwrap_or(startup::JOBS[1]),
        ];
        let clock = &mut self.report.run.clock;
        if clock.source.is_empty() {
            *clock = startup::observe_kernel_clock();
        }
        let clock = format!("clock {}", describe_clock(clock));
        self.screen.note(&clock);
        self.screen.bar.set_length(jobs.iter().sum());
        self.screen.bar.set_position(0);
        self.screen.bar.set_message(format!("{}, {}", test.name, count(ranks, "rank")));
        startup::measure(test, ranks, jobs, || {
            let failure = self.program.run(&job, |_| ()).failure;
            self.screen.bar.inc(1);
            failure
        })
    }

    fn job(&self, settings: &Settings, ranks: u32) -> ProgramJob {
        let longer = settings.case.duration.unwrap_or(0.0) / 500.0;
        ProgramJob {
            stall: STALL + Duration::from_secs_f64(longer),
            ..self.mpi.job(ranks, settings)
        }
    }

    fn run_levels(
        &mut self, tests: &[&'static Test], options: &BenchOptions, ranks: u32,
    ) -> Result<(), RunError> {
        for level in [Level::Verbs, Level::Transport, Level::Protocol, Level::Mpi] {
            if !options.has_level(level) {
                continue;
            }
            let fits = level == Level::Mpi || ranks == 2;
            let (there, not): (Vec<&'static Test>, Vec<_>) =
                tests.iter().partition(|t| fits && t.levels.contains(&level));
            for test in not {
                let reason = match fits {
                    true => format!("the test does not exist at level {}", level.name()),
                    false => {
                        format!("levels below MPI need exactly two ranks, not {ranks}; pass -n 2")
                    }
                };
                self.report.missing.push(MissingTest { test: test.name.to_owned(), level, reason });
            }
            if there.is_empty() {
                continue;
            }
            let settings = options.measure.with_tests(there.iter().map(|t| t.name));
            let job = self.job(&settings, ranks);
            if level == Level::Mpi {
                let program = self.program.clone();
                let alone = there.iter().any(|t| t.class == Participants::Alone);
                let job = if alone { job } else { job.with_selection() };
                self.run_program(&program, &job, &settings, level)?;
            } else {
                self.run_below(level, job, &settings, options)?;
            }
        }
        Ok(())
    }

    /// Runs the tests at a level below MPI. The ranks execute this program.
    fn run_below(
        &mut self, level: Level, job: ProgramJob, settings: &Settings, options: &BenchOptions,
    ) -> Result<(), RunError> {
        let failed = |e| RunError::Start(PathBuf::from("fastpath"), e);
        let board = SharedBoard::create().map_err(failed)?;
        let plan = LevelPlan {
            devices: options.path.devices.clone(),
            verbs: options.verbs.clone(),
            ..LevelPlan::new(level, settings, &board)
        };
        let (own, arguments) = plan.rank().map_err(failed)?;
        self.run_program(&own, &ProgramJob { arguments, ..job }, settings, level)
    }

    fn run_program(
        &mut self, program: &Program, job: &ProgramJob, settings: &Settings, level: Level,
    ) -> Result<(), RunError> {
        let Session { screen, pipeline, .. } = self;
        let (mut shown, mut stored) = (Floors::default(), Floors::default());
        let mut outcome = program.run(job, |event| match event {
            ProgramEvent::Start(start) => screen.note(&start.describe()),
            ProgramEvent::Case(case) => {
                let mut case = pipeline.attached(case).into_owned();
                shown.attach(&mut case);
                screen.add(&case);
            }
            ProgramEvent::Progress(progress) => {
                screen.bar.set_length(progress.total);
                screen.bar.set_position(progress.done);
                screen.bar.set_message(format!("{}, {} B", progress.test, progress.bytes));
            }
            ProgramEvent::Text(text) => screen.bar.suspend(|| tell!("{text}")),
            ProgramEvent::Missing(_)
            | ProgramEvent::Selection(_)
            | ProgramEvent::Learnt(_)
            | ProgramEvent::End { .. } => {}
        });
        let run = &mut self.report.run;
        run.clock = outcome.clock;
        if let Some(start) = &outcome.start {
            run.adapter.extend(start.adapter.iter().cloned());
            run.adapter.dedup();
        }
        if let Some(start) = outcome.start.filter(|_| run.mpi.name.is_empty()) {
            run.mpi = Mpi {
                name: name_library(&start.library),
                version: start.library.split_whitespace().collect::<Vec<_>>().join(" "),
                path: std::mem::take(&mut run.mpi.path),
            };
        }
        outcome.cases.iter_mut().for_each(|case| stored.attach(case));
        self.report.cases.extend(outcome.cases);
        self.report.missing.extend(outcome.missing);
        if let Some(failure) = &outcome.failure {
            self.note_unmeasured(settings, level, job.ranks, failure);
        }
        outcome.failure.map_or(Ok(()), Err)
    }

    /// Records tests that a failed job did not reach.
    fn note_unmeasured(
        &mut self, settings: &Settings, level: Level, ranks: u32, failure: &RunError,
    ) {
        let report = &mut self.report;
        let reason = failure.to_string();
        let reason = reason.lines().next().unwrap_or("").to_owned();
        let is_of_job =
            |c: &&Case| c.ranks == ranks && c.level == level && settings.tests.contains(&c.test);
        let last = report.cases.iter().rev().find(is_of_job);
        let at = last.and_then(|case| settings.tests.iter().position(|t| *t == case.test));
        for test in &settings.tests[at.unwrap_or(0)..] {
            report.missing.push(MissingTest {
                test: test.clone(),
                level,
                reason: format!("{}: {reason}", count(ranks, "rank")),
            });
        }
    }
}

/// Name of a library in tables: the words before its version.
fn name_library(says: &str) -> String {
    let is_version =
        |word: &str| word.starts_with("Version") || word.contains(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = says.split([' ', ',']).collect();
    let end = words.iter().skip(1).position(|word| is_version(word));
    let end = end.map_or(1, |at| at + 1);
    words[..end.min(words.len())].join(" ").to_lowercase()
}

fn print_list() {
    let hardware = [
        (
            "floor",
            "times of a cache line between two processors, of a copy of memory, and of transfer \
             methods for large messages",
        ),
        (
            "copy",
            "copy loops, alone and as a pipeline between two processors: the floor of large \
             messages",
        ),
    ];
    let mut said = Document::default();
    for (group, name) in TestGroup::ALL {
        let tests = catalogue::list().iter().filter(|t| t.group == group);
        list_tests(&mut said, name, tests.map(|t| (t.name, describe_test(t))));
    }
    let hardware = hardware.into_iter().map(|(name, text)| (name, text.to_owned()));
    list_tests(&mut said, "hardware", hardware);
    let mut rule = Document::default();
    rule.text(
        "The name of a group runs all of its tests; `all` runs all tests except those of the \
         hardware.",
    );
    let text = said.to_screen() + "\n" + &rule.to_screen();
    text.lines().for_each(print_line);
}

/// Describes a test, with its alternative names.
fn describe_test(test: &Test) -> String {
    let aliases = catalogue::list_aliases(test.name).collect::<Vec<_>>().join(", ");
    match aliases.is_empty() {
        true => test.text.to_owned(),
        false => format!("{} (other names: {aliases})", test.text),
    }
}

fn list_tests<'a>(
    said: &mut Document, group: &str, tests: impl Iterator<Item = (&'a str, String)>,
) {
    said.heading(format!("{group}:"));
    let mut table = Table::of("<22|");
    tests.for_each(|(name, text)| table.row([name, text.as_str()]));
    said.table(table);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn list__names_each_alternative_name() {
        let text = describe_test(catalogue::find("pingpong").unwrap());
        assert!(text.ends_with(" (other names: ping-pong, pingpong, send)"), "{text}");
        let plain = catalogue::find("rate").unwrap();
        assert_eq!(describe_test(plain), plain.text);
    }

    #[test]
    fn library__is_called_by_the_words_before_its_version() {
        for (says, name) in [
            ("Open MPI v5.0.11, package: x 5", "open mpi"),
            ("MPICH Version:\t5.0.2", "mpich"),
            ("Intel(R) MPI Library 2021.18 for Linux* OS", "intel(r) mpi library"),
            ("Fastpath 0.1.0", "fastpath"),
            ("Nameless", "nameless"),
            ("", ""),
        ] {
            assert_eq!(name_library(says), name);
        }
    }
}
