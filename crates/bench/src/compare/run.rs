//! What `fastpath compare` does: with peers, with two stored results, with a stored comparison.

use std::fs;
use std::path::Path;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastpath_base::tell;
use fastpath_report::catalogue::{self, Class};
use fastpath_report::compare::changed::ChangeReport;
use fastpath_report::compare::comparison::{self, Comparison};
use fastpath_report::compare::stored::{self, Rule};
use fastpath_report::compare::{markdown, show};
use fastpath_report::output;
use fastpath_report::output::file::{Target, is_standard};
use fastpath_report::record::Report;
use fastpath_report::surroundings;

use super::kept::{Identity, Kept, hash_library};
use super::options::CompareOptions;
use super::peers::{Peer, find_remedy};
use super::rounds::{Measured, Plan, Rounds};
use super::turns::{Stop, Turns};
use crate::bench::pipeline::{self, Pipelines};
use crate::bench::startup;
use crate::program::{JobResult, Program};

/// Exit code where something was refused or could not be compared.
const REFUSED: u8 = 2;

/// Exit code where the time was up before all was measured.
const UNFINISHED: u8 = 3;

/// Does it; the exit code is 0, 1 where a stored result is worse than the other, 2 where something
/// could not be compared.
///
/// # Errors
/// The reason why nothing could be compared, or where it could not be written; the exit code is 2.
pub fn run(options: &CompareOptions) -> Result<u8> {
    let peers = options.peers.list()?;
    match options.results.as_slice() {
        [] if peers.is_empty() => bail!(
            "compare what? two stored results, or this MPI with others by --peer NAME=MPICC or \
             --peers FILE"
        ),
        [] => run_peers(options, peers),
        _ if !peers.is_empty() => bail!("either stored results or peers"),
        [one] => show_stored(options, one),
        [before, now] => compare_stored(options, before, now),
        _ => bail!("two results are compared; several runs of a side are separated by commas"),
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
        bail!("--readme, --levels and --keep are for comparisons with other MPIs");
    }
    let changes = stored::compare(&read_side(before)?, &read_side(now)?, rule);
    let json = || ChangeReport::new(&changes, rule).format_json();
    let table = || show::format_changes(&changes, rule);
    let said = output::print(&if is_json_printed(options) { json() } else { table() });
    if said.is_err() {
        // The last place where it can be seen.
        tell::lines(&table());
    }
    let written = files.json.map_or(Ok(()), |target| target.finish(&json()));
    let page = || show::format_changes_page(&changes, rule);
    let page = files.markdown.map_or(Ok(()), |target| target.finish(&page()));
    said.and(written).and(page)?;
    Ok(changes.exit_code())
}

/// Whether the standard output gets JSON in place of the table.
fn is_json_printed(options: &CompareOptions) -> bool {
    options.json.as_deref().is_some_and(is_standard)
}

fn show_stored(options: &CompareOptions, path: &str) -> Result<u8> {
    let comparison = Comparison::from_json(&read(path)?).with_context(|| path.to_owned())?;
    if options.keep.is_some() {
        bail!("--keep is for comparisons that are measured");
    }
    let files = Files::open(options)?;
    tell(options, files, &comparison)?;
    Ok(0)
}

/// The files of a comparison, opened before anything is measured.
struct Files {
    json: Option<Target>,
    markdown: Option<Target>,
    levels: Option<String>,
    readme: Option<(Target, String)>,
}

impl Files {
    fn open(options: &CompareOptions) -> Result<Files> {
        let open = |path: Option<&Path>| path.map(Target::open).transpose();
        let readme = match options.readme.as_deref() {
            Some(path) => {
                let text = read(&path.to_string_lossy())?;
                open(Some(path))?.map(|target| (target, text))
            }
            None => None,
        };
        let is_file = |path: &&Path| !is_standard(path);
        Ok(Files {
            json: open(options.json.as_deref().filter(is_file))?,
            markdown: open(options.markdown.as_deref())?,
            levels: match &options.levels {
                Some(path) => Some(read(&path.to_string_lossy())?),
                None => None,
            },
            readme,
        })
    }

    /// Writes all that can be written; returns the first failure.
    fn write(self, comparison: &Comparison) -> Result<()> {
        let finish = |target: Option<Target>, text: &dyn Fn() -> String| {
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

/// One that can be measured.
struct Contestant {
    peer: Peer,
    program: Program,
}

/// Names of those that cannot be measured, and why.
type Failures = Vec<(String, String)>;

/// Compiles the program for each; those that fail, with the reason.
fn compile(peers: Vec<Peer>) -> (Vec<Contestant>, Failures) {
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

fn run_peers(options: &CompareOptions, peers: Vec<Peer>) -> Result<u8> {
    let plans = options.measure.list_plans()?;
    let files = Files::open(options)?;
    let (contestants, failed) = gather(options, peers)?;
    let mut reports: Vec<Report> = contestants.iter().map(|c| c.peer.report()).collect();
    let kept = open_kept(options, &plans, &contestants, &mut reports)?;
    let mut rounds = Rounds::new(reports, options.statistic);
    for (name, reason) in &failed {
        tell!("fastpath: {name}: {reason}");
        rounds.note(name, String::new(), reason);
    }
    if let Err(stop) = run_rounds(options, &plans, &contestants, &mut rounds, kept) {
        return match stop {
            Stop::Kept(why) => Err(why),
            Stop::Time { done, total } => {
                tell!(
                    "fastpath: the time is up with {done} of {total} turns; the same command \
                     continues"
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

/// Ours and those peers that could be compiled for; the others, with the reason.
fn gather(options: &CompareOptions, peers: Vec<Peer>) -> Result<(Vec<Contestant>, Failures)> {
    let peer = Peer::ours(&options.mpi)?;
    let program = Program::compile(&peer.mpicc)?;
    let (others, failed) = compile(peers);
    let all = [Contestant { peer, program }].into_iter().chain(others);
    let on_hosts = |c: Contestant| Contestant { peer: c.peer.on_hosts(&options.mpi), ..c };
    Ok((all.map(on_hosts).collect(), failed))
}

/// The file of turns, if one is named; what it holds was begun earlier, and the reports say so.
fn open_kept(
    options: &CompareOptions, plans: &[Plan], contestants: &[Contestant], reports: &mut [Report],
) -> Result<Option<Kept>> {
    let Some(path) = &options.keep else {
        return Ok(None);
    };
    let identity = Identity::new(plans, contestants.iter().map(|c| &c.peer));
    let kept = Kept::open(path, &identity, &surroundings::describe_run())?;
    for report in reports {
        report.run.started_unix_s = kept.started_unix_s;
    }
    Ok(Some(kept))
}

fn run_rounds(
    options: &CompareOptions, plans: &[Plan], contestants: &[Contestant], rounds: &mut Rounds,
    kept: Option<Kept>,
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
        let mut measured = Measured::from(outcome);
        let failure = measured.failure.as_deref();
        let remedy = failure.and_then(|error| find_remedy(&contestants[mpi].peer.name, error));
        measured.failure = remedy.or(measured.failure);
        measured
    })
}

/// Prints the comparison and writes it to the files.
fn tell(options: &CompareOptions, files: Files, comparison: &Comparison) -> Result<()> {
    let text = match is_json_printed(options) {
        true => comparison.format_json(),
        false => show::format_comparison(comparison),
    };
    let said = output::print(&text);
    if said.is_err() {
        // The last place where it can be seen.
        tell::lines(&show::format_comparison(comparison));
    }
    files.write(comparison)?;
    said
}

fn measure(contestant: &Contestant, plan: &Plan) -> JobResult {
    let (peer, program) = (&contestant.peer, &contestant.program);
    let job = peer.job(plan.ranks, &plan.settings);
    let names = plan.settings.tests.iter();
    let tests: Vec<_> = names.filter_map(|name| catalogue::find(name)).collect();
    match tests.iter().find(|test| test.class == Class::Job) {
        None if tests.iter().any(|test| test.class == Class::Alone) => program.run(&job, |_| ()),
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

/// Starts of whole jobs in a run: those that are not counted, and those that are.
const STARTS: [u64; 2] = [1, 3];

/// A peer that runs on our library is no comparison: a path of libraries was forgotten. Another build of this library
/// says the same of itself, but is installed beside its own compiler wrapper.
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
        let reason =
            "it runs on the same library as ours: is its LD_LIBRARY_PATH set (--peer-env)?";
        rounds.note(&name, String::new(), reason);
    }
}
