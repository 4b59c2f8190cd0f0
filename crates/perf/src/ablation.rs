//! `fastpath bench ablation`: everything off that can be switched off, then one optimisation after
//! the other on, in time and in instructions (the table of the study "sm Latency", Open MPI, 2009).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastpath_base::config::FEATURES;

use crate::bench::options::{MeasureOptions, MpiOptions};
use crate::bench::{BenchError, choose_mpi, surroundings};
use crate::catalogue::find;
use crate::compare::interval::{self, Ratio};
use crate::document::{Document, Table};
use crate::html;
use crate::instructions::{Counted, count};
use crate::output::file::Target;
use crate::output::{LEFT, make_bar};
use crate::program::{Job, Program, STALL, Settings};
use crate::record::{AblationStep, Breakdown, Case, Change, Report};

/// Options of `fastpath bench ablation`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AblationOptions {
    /// The order in which the optimisations are switched on [default: as `fastpath info` lists them]
    #[arg(long, value_delimiter = ',', value_parser =
        clap::builder::PossibleValuesParser::new(FEATURES))]
    pub order: Vec<String>,
    /// How often all steps are timed, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Without instructions (they need valgrind)
    #[arg(long)]
    pub no_instructions: bool,
    /// How long, how often, what
    #[command(flatten)]
    pub measure: MeasureOptions,
    /// The installation to measure
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page to this file, to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Calls of which the instructions are shown.
const CALLS: [&str; 2] = ["MPI_Send", "MPI_Recv"];

/// Sizes where the optimisations differ: a slot, a buffer, parts, a long message.
const SIZES: [u64; 4] = [8, 1 << 10, 16 << 10, 256 << 10];

/// Messages of this size in windows: some optimisations act only where many follow each other.
const RATE_SIZE: u64 = 8;

/// Milliseconds for the samples of a case in a turn where nothing else is asked for.
const DURATION_MS: f64 = 50.0;

/// What is switched on in each step, and what is still off.
fn list_steps(order: &[String]) -> Vec<(String, Vec<String>)> {
    let mut order = order.to_vec();
    for feature in FEATURES {
        if !order.iter().any(|o| o == feature) {
            order.push((*feature).to_owned());
        }
    }
    let mut steps = vec![(String::new(), order.clone())];
    for (index, feature) in order.iter().enumerate() {
        steps.push((feature.clone(), order[index + 1..].to_vec()));
    }
    steps
}

/// One step while it is measured.
struct Step {
    added: String,
    disabled: Vec<String>,
    /// With the samples of all turns.
    cases: Vec<Case>,
    /// The medians of each turn, by test and size.
    turns: Vec<BTreeMap<(String, u64), f64>>,
}

impl Step {
    fn environment(&self) -> Vec<(String, String)> {
        vec![("FASTPATH_DISABLE".to_owned(), self.disabled.join(","))]
    }

    fn take(&mut self, cases: Vec<Case>) {
        let medians = cases
            .iter()
            .filter_map(|case| Some((name_case(case), case.samples.quantile(0.5)?)));
        self.turns.push(medians.collect());
        for case in cases {
            match self.cases.iter_mut().find(|c| c.key() == case.key()) {
                Some(earlier) => earlier.samples.merge(&case.samples),
                None => self.cases.push(case),
            }
        }
    }

    /// Its time to that of another step, of the runs in the same turns.
    fn compare(&self, before: &Step) -> Vec<Change> {
        let of_case = |case: &Case| {
            let name = name_case(case);
            let turns = self.turns.iter().zip(&before.turns);
            let pairs: Vec<(f64, f64)> = turns
                .filter_map(|(now, then)| Some((*now.get(&name)?, *then.get(&name)?)))
                .collect();
            let ratio = interval::of_pairs(&pairs)?;
            let (test, bytes) = name;
            Some(Change { test, bytes, ratio })
        };
        self.cases.iter().filter_map(of_case).collect()
    }
}

fn name_case(case: &Case) -> (String, u64) {
    (case.test.clone(), case.bytes)
}

/// Does what `fastpath bench ablation` was asked for.
///
/// # Errors
/// The program cannot be compiled, a job fails, a file cannot be written. What was measured before is
/// shown and written.
pub fn run(options: &AblationOptions) -> Result<(), BenchError> {
    let (mpicc, mpiexec) = choose_mpi(&options.mpi)?;
    let json = options.json.as_deref().map(Target::open).transpose()?;
    let page = options.html.as_deref().map(Target::open).transpose()?;
    let program = Program::compile(&mpicc)?;
    let mut report = Report::new(surroundings::describe_run());
    report.run.mpi.name = "fastpath".to_owned();
    report.run.mpi.path = format!("{}, {}", mpicc.display(), mpiexec.display());
    let make_step = |(added, disabled)| Step {
        added,
        disabled,
        cases: Vec::new(),
        turns: Vec::new(),
    };
    let mut steps: Vec<Step> = list_steps(&options.order)
        .into_iter()
        .map(make_step)
        .collect();
    let mut done = time_steps(options, &program, &mpiexec, &mut steps, &mut report);
    for (index, step) in steps.iter().enumerate() {
        let before = index.checked_sub(1).map(|i| &steps[i]);
        let counted = match options.no_instructions || done.is_err() {
            true => Ok(Vec::new()),
            false => count_step(options, &mpicc, &mpiexec, &step.environment()),
        };
        let instructions = counted.unwrap_or_else(|e| {
            done = Err(e);
            Vec::new()
        });
        report.ablation.push(AblationStep {
            added: step.added.clone(),
            disabled: step.disabled.clone(),
            cases: step.cases.clone(),
            changes: before.map_or_else(Vec::new, |before| step.compare(before)),
            instructions,
        });
    }
    describe_steps(&report.ablation, options.turns).print();
    if let Some(file) = json {
        file.finish(&crate::output::json::format_report(&report))?;
    }
    if let Some(file) = page {
        file.finish(&html::write_page(std::slice::from_ref(&report), None))?;
    }
    done
}

/// Times all steps, turn by turn, up and down in turn, so that a machine that drifts favours none.
fn time_steps(
    options: &AblationOptions,
    program: &Program,
    mpiexec: &Path,
    steps: &mut [Step],
    report: &mut Report,
) -> Result<(), BenchError> {
    let bar = make_bar(u64::from(options.turns) * steps.len() as u64, true, LEFT);
    for turn in 0..options.turns {
        let mut order: Vec<usize> = (0..steps.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let step = &mut steps[index];
            bar.set_message(format!("turn {}, {}", turn + 1, name_step(&step.added)));
            let mut cases = Vec::new();
            for settings in list_settings(options) {
                let environment = step.environment();
                let job = make_job(options, mpiexec, &environment, &settings);
                cases.extend(time_step(program, job, report)?);
            }
            step.take(cases);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// What a step runs: a ping-pong by size, and small messages in windows.
fn list_settings(options: &AblationOptions) -> Vec<Settings> {
    let of_test = |name: &str, sizes: &[u64]| {
        let tests: Vec<_> = find(name).into_iter().collect();
        let mut settings = options.measure.settings(&tests);
        settings.sizes = sizes.to_vec();
        // The statistic has to be the same in every turn.
        settings.timing.get_or_insert_with(|| "batch=16".to_owned());
        if settings.iterations.is_none() {
            settings.duration_ms.get_or_insert(DURATION_MS);
        }
        settings
    };
    let asked = &options.measure.case.sizes;
    let sizes: &[u64] = if asked.is_empty() { &SIZES } else { asked };
    let mut all = vec![of_test("latency", sizes)];
    // Windows have no way to write what they send.
    if !options.measure.case.touch {
        all.push(of_test("rate", &[RATE_SIZE]));
    }
    all
}

fn make_job(
    options: &AblationOptions,
    mpiexec: &Path,
    environment: &[(String, String)],
    settings: &Settings,
) -> Job {
    Job {
        mpiexec: mpiexec.to_owned(),
        mpiexec_arguments: options.mpi.mpiexec_arg.clone(),
        environment: environment.to_vec(),
        ranks: 2,
        arguments: settings.arguments(),
        stall: STALL,
    }
}

fn time_step(program: &Program, job: Job, report: &mut Report) -> Result<Vec<Case>, BenchError> {
    let outcome = program.run(&job.with_selection(), |_| {});
    if let Some(failure) = outcome.failure {
        return Err(BenchError::Run(failure));
    }
    if let Some(start) = outcome.start {
        report.run.mpi.version = start.library;
    }
    report.run.clock = outcome.clock;
    Ok(outcome.cases)
}

fn count_step(
    options: &AblationOptions,
    mpicc: &Path,
    mpiexec: &Path,
    environment: &[(String, String)],
) -> Result<Vec<Breakdown>, BenchError> {
    let counted = count(&Counted {
        name: "fastpath",
        mpicc,
        mpiexec,
        arguments: &options.mpi.mpiexec_arg,
        environment,
        sizes: &[8],
        whole: false,
    })?;
    let wanted = |b: &Breakdown| CALLS.contains(&b.operation.as_str());
    Ok(counted.into_iter().filter(wanted).collect())
}

fn name_step(added: &str) -> String {
    match added {
        "" => "nothing".to_owned(),
        added => format!("+ {added}"),
    }
}

fn describe_steps(steps: &[AblationStep], turns: u32) -> Document {
    let mut said = Document::default();
    let Some(first) = steps.iter().find(|step| !step.cases.is_empty()) else {
        return said;
    };
    said.text(format!(
        "median, ns: latency (half a round trip between two ranks), rate (a message of many in \
         flight); ratio to the step before, with its 95 % interval over {turns} turns; \
         instructions of a call with 8 B (callgrind)",
    ));
    let mut table = Table::of("on<22");
    for case in &first.cases {
        table.add_columns([&format!("{} {} B>14", case.test, case.bytes), "ratio<20"]);
    }
    table.add_columns(
        first
            .instructions
            .iter()
            .map(|b| format!("{}>10", b.operation)),
    );
    for step in steps {
        let mut cells = vec![name_step(&step.added)];
        for case in &step.cases {
            let change = step.find_change(case);
            cells.push(format!("{:.1}", case.samples.quantile(0.5).unwrap_or(0.0)));
            cells.push(change.map_or_else(String::new, |c| describe_ratio(&c.ratio)));
        }
        cells.extend(step.instructions.iter().map(|b| format!("{:.2}", b.total)));
        table.row(cells);
    }
    said.table(table);
    said
}

fn describe_ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some([low, high]) => format!("{:.3} [{low:.3}, {high:.3}]", ratio.ratio),
        None => format!("{:.3}", ratio.ratio),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::samples::make_case;

    fn make_step(turns: &[f64]) -> Step {
        let mut step = Step {
            added: String::new(),
            disabled: Vec::new(),
            cases: Vec::new(),
            turns: Vec::new(),
        };
        turns
            .iter()
            .for_each(|&ns| step.take(vec![make_case(8, &[ns; 3])]));
        step
    }

    #[test]
    fn change__is_of_runs_in_the_same_turn() {
        // The machine gets slower from turn to turn; the step takes four fifths.
        let before = make_step(&[100.0, 200.0, 400.0]);
        let now = make_step(&[80.0, 160.0, 320.0]);
        let changes = now.compare(&before);
        assert_eq!((changes.len(), changes[0].bytes), (1, 8));
        assert_eq!(changes[0].test, "latency");
        let ratio = changes[0].ratio;
        let [low, high] = ratio.interval.unwrap();
        assert!(
            (ratio.ratio - 0.8).abs() < 0.001 && high - low < 0.01,
            "{ratio:?}"
        );
        assert_eq!((now.cases.len(), now.cases[0].samples.count()), (1, 9));
    }

    #[test]
    fn steps__go_from_all_off_to_all_on_each_feature_once() {
        let steps = list_steps(&["recvi".to_owned()]);
        assert_eq!(steps.len(), FEATURES.len() + 1);
        assert_eq!(
            (steps[0].0.as_str(), steps[0].1.len()),
            ("", FEATURES.len())
        );
        assert_eq!(steps[1].0, "recvi");
        assert!(!steps[1].1.contains(&"recvi".to_owned()));
        assert!(steps[FEATURES.len()].1.is_empty());
    }
}
