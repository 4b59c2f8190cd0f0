//! Execution of `fastpath compare`: with peers, with two stored results, with a stored comparison.

use std::fs;
use std::path::{Path, PathBuf};

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastpath_base::tell;
use fastpath_report::catalogue::{self, Participants};
use fastpath_report::compare::changed::ChangeReport;
use fastpath_report::compare::comparison::{self, Comparison};
use fastpath_report::compare::stored::{self, Rule};
use fastpath_report::compare::{markdown, show};
use fastpath_report::output;
use fastpath_report::output::file::{OutputFile, is_standard};
use fastpath_report::record::Report;
use fastpath_report::surroundings;

use super::kept::{ComparisonIdentity, StoredTurns, hash_library};
use super::options::CompareOptions;
use super::rounds::{Rounds, RunPlan, RunResult};
use super::turns::{Stop, Turns};
use crate::bench::pipeline::{self, Pipelines};
use crate::bench::startup;
use crate::peers::{ComparedMpi, find_remedy};
use crate::program::{JobResult, Program};

/// Exit code if an MPI could not be measured, or nothing could be compared.
const REFUSED: u8 = 2;

/// Exit code if the time limit ended the comparison early.
const UNFINISHED: u8 = 3;

/// Runs `fastpath compare`. Exit code 0; 1 if a stored result became worse; 2 if something could not be compared.
///
/// # Errors
/// Nothing could be compared, or the result could not be written; the exit code is 2.
pub fn run(options: &CompareOptions) -> Result<u8> {
    let peers = options.peers.list()?;
    match options.results.as_slice() {
        [] if peers.is_empty() => bail!(
            "nothing to compare; pass two stored results, or other MPIs with --peer NAME=MPICC or \
             --peers FILE"
        ),
        [] => run_peers(options, peers),
        _ if !peers.is_empty() => {
            bail!("stored results and --peer exclude each other; omit the results or --peer")
        }
        [one] => show_stored(options, one),
        [before, now] => compare_stored(options, before, now),
        _ => bail!("pass exactly two results; separate several runs of one side by commas"),
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

fn read_side(paths: &str) -> Result<Vec<Report>> {
    let read_one = |path: &str| Report::from_json(&read(path)?).with_context(|| path.to_owned());
    paths.split(',').map(read_one).collect()
}

fn compare_stored(options: &CompareOptions, before: &str, now: &str) -> Result<u8> {
    let rule = Rule {
        statistic: options.statistic,
        threshold: 1.0 + options.threshold / 100.0,
        common_only: options.common,
    };
    let files = Files::open(options)?;
    if files.readme.is_some() || files.levels.is_some() || options.keep.is_some() {
        bail!(
            "--readme, --levels and --keep need a comparison with other MPIs (--peer); omit these \
             options"
        );
    }
    let changes = stored::compare(&read_side(before)?, &read_side(now)?, rule);
    let json = || ChangeReport::new(&changes, rule).format_json();
    let table = || show::format_changes(&changes, rule, options.view.find_view());
    let page = || show::format_changes_page(&changes, rule);
    let said = output::print(&match printed_form(options) {
        Form::Json => json(),
        Form::Markdown => page(),
        Form::Table => table(),
    });
    if said.is_err() {
        // Standard output failed; print the result to standard error instead, so that it is not lost.
        tell::lines(&table());
    }
    let written = files.json.map_or(Ok(()), |target| target.finish(&json()));
    let page = files.markdown.map_or(Ok(()), |target| target.finish(&page()));
    said.and(written).and(page)?;
    Ok(changes.exit_code())
}

/// Form in which standard output gets the result.
enum Form {
    Table,
    Json,
    Markdown,
}

fn printed_form(options: &CompareOptions) -> Form {
    let prints = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_standard);
    match (prints(&options.json), prints(&options.markdown)) {
        (true, _) => Form::Json,
        (false, true) => Form::Markdown,
        (false, false) => Form::Table,
    }
}

fn show_stored(options: &CompareOptions, path: &str) -> Result<u8> {
    let hint = || format!("{path}: pass two results of `fastpath bench`, or one comparison");
    let comparison = Comparison::from_json(&read(path)?).with_context(hint)?;
    if options.keep.is_some() {
        bail!("--keep needs a comparison that is measured (--peer); omit --keep");
    }
    let files = Files::open(options)?;
    tell(options, files, &comparison)?;
    Ok(0)
}

/// Output files of a comparison, opened before anything is measured.
struct Files {
    json: Option<OutputFile>,
    markdown: Option<OutputFile>,
    levels: Option<String>,
    readme: Option<(OutputFile, String)>,
}

impl Files {
    fn open(options: &CompareOptions) -> Result<Files> {
        let open = |path: Option<&Path>| path.map(OutputFile::open).transpose();
        let readme = match options.readme.as_deref() {
            Some(path) => {
                let text = read(&path.to_string_lossy())?;
                open(Some(path))?.map(|target| (target, text))
            }
            None => None,
        };
        let is_file = |path: &&Path| !is_standard(path);
        if [&options.json, &options.markdown]
            .iter()
            .all(|path| path.as_deref().is_some_and(is_standard))
        {
            bail!(
                "--json and --markdown cannot both write to standard output; name a file for one"
            );
        }
        Ok(Files {
            json: open(options.json.as_deref().filter(is_file))?,
            markdown: open(options.markdown.as_deref().filter(is_file))?,
            levels: match &options.levels {
                Some(path) => Some(read(&path.to_string_lossy())?),
                None => None,
            },
            readme,
        })
    }

    /// Writes all files that can be written; returns the first failure.
    fn write(self, comparison: &Comparison) -> Result<()> {
        let finish = |target: Option<OutputFile>, text: &dyn Fn() -> String| {
            target.map_or(Ok(()), |t| t.finish(&text()))
        };
        let json = finish(self.json, &|| comparison.format_json());
        let page =
            finish(self.markdown, &|| markdown::format_page(comparison, self.levels.as_deref()));
        let readme = self.readme.map_or(Ok(()), |(target, text)| {
            let text = markdown::replace_table(&text, comparison)?;
            target.finish(&text)
        });
        json.and(page).and(readme)
    }
}

struct Contestant {
    peer: ComparedMpi,
    program: Program,
}

/// Names of MPIs that cannot be measured, with reasons.
type Failures = Vec<(String, String)>;

/// Compiles the program for each MPI. Also returns the MPIs for which that fails, with the reason.
fn compile(peers: Vec<ComparedMpi>) -> (Vec<Contestant>, Failures) {
    let (mut ready, mut failed) = (Vec::new(), Vec::new());
    for peer in peers {
        match Program::compile(&peer.mpicc) {
            Ok(program) => ready.push(Contestant { peer, program }),
            Err(e) => {
                let error = format!("{e:#}");
                let reason = find_remedy(&peer.name, &error).unwrap_or(error);
                failed.push((peer.name, reason));
            }
        }
    }
    (ready, failed)
}

fn run_peers(options: &CompareOptions, peers: Vec<ComparedMpi>) -> Result<u8> {
    let plans = options.measure.list_plans()?;
    let files = Files::open(options)?;
    let (contestants, failed) = gather(options, peers)?;
    let mut reports: Vec<Report> = contestants.iter().map(|c| c.peer.report()).collect();
    let kept = open_kept(options, &plans, &contestants, &mut reports)?;
    let mut rounds = Rounds::new(reports, options.statistic);
    for (name, reason) in &failed {
        // The result has the reason. With other peers it follows only after the measurement.
        if contestants.len() > 1 {
            tell!("fastpath: {name} is not compared; the reason follows the results");
        }
        rounds.note(name, String::new(), reason);
    }
    if let Err(stop) = run_rounds(options, &plans, &contestants, &mut rounds, kept) {
        return match stop {
            Stop::Kept(why) => Err(why),
            Stop::Time { done, total } => {
                tell!(
                    "fastpath: the time limit is reached after {done} of {total} turns; run the \
                     same command again to continue"
                );
                Ok(UNFINISHED)
            }
        };
    }
    note_same_library(&mut rounds, &contestants);
    let comparison = Comparison {
        schema: comparison::SCHEMA.to_owned(),
        version: comparison::VERSION,
        statistic: options.statistic,
        rounds: options.measure.rounds,
        rows: rounds.list_rows(),
        missing: rounds.list_missing().to_vec(),
        reports: rounds.reports,
    };
    tell(options, files, &comparison)?;
    let complete = failed.is_empty() && !comparison.rows.is_empty();
    Ok(if complete { 0 } else { REFUSED })
}

/// Returns this MPI and the peers with a compiled program, and the other peers with the reason.
fn gather(
    options: &CompareOptions, peers: Vec<ComparedMpi>,
) -> Result<(Vec<Contestant>, Failures)> {
    let peer = ComparedMpi::ours(&options.mpi)?;
    let program = Program::compile(&peer.mpicc)?;
    let (others, failed) = compile(peers);
    let all = [Contestant { peer, program }].into_iter().chain(others);
    let on_hosts = |c: Contestant| Contestant { peer: c.peer.on_hosts(&options.mpi), ..c };
    Ok((all.map(on_hosts).collect(), failed))
}

/// Opens the file of stored turns, if one is named, and sets the reports' start time to that of its first turn.
fn open_kept(
    options: &CompareOptions, plans: &[RunPlan], contestants: &[Contestant], reports: &mut [Report],
) -> Result<Option<StoredTurns>> {
    let Some(path) = &options.keep else {
        return Ok(None);
    };
    let identity = ComparisonIdentity::new(plans, contestants.iter().map(|c| &c.peer));
    let kept = StoredTurns::open(path, &identity, &surroundings::describe_run())?;
    for report in reports {
        report.run.started_unix_s = kept.started_unix_s;
    }
    Ok(Some(kept))
}

fn run_rounds(
    options: &CompareOptions, plans: &[RunPlan], contestants: &[Contestant], rounds: &mut Rounds,
    kept: Option<StoredTurns>,
) -> Result<(), Stop> {
    let mut turns = Turns {
        plans,
        rounds: options.measure.rounds,
        peers: contestants.len() - 1,
        kept,
        limit: options.stop_after.map(|ms| Duration::from_secs_f64(ms / 1000.0)),
        shows_progress: !options.no_progress,
    };
    let name = |mpi: usize| contestants[mpi].peer.name.clone();
    let mut pipelines = Pipelines::default();
    for plan in plans {
        pipelines.expect(&pipeline::list_sizes_of(&plan.settings, plan.ranks));
    }
    turns.make(rounds, name, |mpi, plan| {
        pipelines.begin_run(&pipeline::list_sizes_of(&plan.settings, plan.ranks));
        let mut outcome = measure(&contestants[mpi], plan);
        pipelines.end_run(&mut outcome.cases);
        let mut measured = RunResult::from(outcome);
        let failure = measured.failure.as_deref();
        let remedy = failure.and_then(|error| find_remedy(&contestants[mpi].peer.name, error));
        measured.failure = remedy.or(measured.failure);
        measured
    })
}

fn tell(options: &CompareOptions, files: Files, comparison: &Comparison) -> Result<()> {
    let table = || show::format_comparison(comparison, options.view.find_view());
    let text = match printed_form(options) {
        Form::Json => comparison.format_json(),
        Form::Markdown => markdown::format_page(comparison, files.levels.as_deref()),
        Form::Table => table(),
    };
    let said = output::print(&text);
    if said.is_err() {
        // Standard output failed; print the result to standard error instead, so that it is not lost.
        tell::lines(&table());
    }
    files.write(comparison)?;
    said
}

fn measure(contestant: &Contestant, plan: &RunPlan) -> JobResult {
    let (peer, program) = (&contestant.peer, &contestant.program);
    let job = peer.job(plan.ranks, &plan.settings);
    let names = plan.settings.tests.iter();
    let tests: Vec<_> = names.filter_map(|name| catalogue::find(name)).collect();
    match tests.iter().find(|test| test.class == Participants::Job) {
        None if tests.iter().any(|test| test.class == Participants::Alone) => {
            program.run(&job, |_| ())
        }
        None => program.run(&job.with_selection(), |_| ()),
        Some(test) => {
            let start = || program.run(&job, |_| ()).failure;
            let timed = startup::measure(test, plan.ranks, STARTS, start);
            let mut outcome = JobResult::default();
            match timed {
                Ok(case) => outcome.cases.push(case),
                Err(failure) => outcome.failure = Some(failure),
            }
            outcome
        }
    }
}

/// Numbers of warm-up starts and of measured starts in a run.
const STARTS: [u64; 2] = [1, 3];

/// Records peers that loaded this library instead of their own, because a library path is missing. Another build of
/// this library is not recorded: it is installed beside its own compiler wrapper.
fn note_same_library(rounds: &mut Rounds, contestants: &[Contestant]) {
    let ours = rounds.reports[0].run.mpi.version.clone();
    let library = |contestant: &Contestant| hash_library(&contestant.peer.mpicc);
    let is_other_build =
        |peer: &Contestant| ![0, library(&contestants[0])].contains(&library(peer));
    let same: Vec<String> = rounds.reports[1..]
        .iter()
        .map(|r| &r.run.mpi)
        .zip(&contestants[1..])
        .filter(|(mpi, peer)| !ours.is_empty() && mpi.version == ours && !is_other_build(peer))
        .map(|(mpi, _)| mpi.name.clone())
        .collect();
    for name in same {
        let reason = format!(
            "the benchmark program of {name} loads the library of the first MPI of the \
             comparison; set the library path of {name} with --peer-env \
             {name}:LD_LIBRARY_PATH=FOLDER"
        );
        rounds.note(&name, String::new(), &reason);
    }
}
