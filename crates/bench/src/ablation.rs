//! `fastpath bench ablation`: starts with all optimisations off and enables one after the other. Reports time and
//! instructions (the table of the study "sm Latency", Open MPI, 2009).

use std::collections::BTreeMap;

use anyhow::Result;
use fastpath_base::config::FEATURES;
use fastpath_report::ablation::{name_step, tabulate};
use fastpath_report::document::Document;
use fastpath_report::output::{LEFT, make_bar, print_line};
use fastpath_report::record::interval;
use fastpath_report::record::{AblationStep, Breakdown, Case, Report, StepChange};

use crate::instructions::{CountedMpi, count};
use crate::options::MpiOptions;
use crate::peers::ComparedMpi;
use crate::program::{Program, ProgramJob, Settings};
use crate::result_files::{ResultFiles, ResultOptions};

/// Options of `fastpath bench ablation`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AblationOptions {
    /// Number of passes in which all steps are timed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Do not count instructions (counting needs valgrind)
    #[arg(long)]
    pub no_instructions: bool,
    /// Duration, iterations, tests
    #[command(flatten)]
    pub measure: Settings,
    /// The installation to measure
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Output of the result
    #[command(flatten)]
    pub results: ResultOptions,
}

/// Calls whose instructions are printed.
const CALLS: [&str; 2] = ["MPI_Send", "MPI_Recv"];

/// Message sizes in bytes, one for each kind of optimisation: a slot, a buffer, fragments, a large message.
const SIZES: [u64; 4] = [8, 1 << 10, 16 << 10, 256 << 10];

/// Message size, in bytes, of the window test: some optimisations act only if many messages follow each other.
const RATE_SIZE: u64 = 8;

/// Default duration of the samples of a case in one turn, in milliseconds.
const DURATION_MS: f64 = 50.0;

/// Lists the steps: the feature that each enables, and the features still off.
fn list_steps() -> impl Iterator<Item = (String, Vec<String>)> {
    let added = [""].into_iter().chain(FEATURES.iter().copied());
    added.enumerate().map(|(index, feature)| {
        let off = FEATURES[index..].iter().map(|&other| other.to_owned());
        (feature.to_owned(), off.collect())
    })
}

struct MeasuredStep {
    added: String,
    disabled: Vec<String>,
    cases: Vec<Case>,
    /// Medians of each turn, by test and size.
    turns: Vec<BTreeMap<(String, u64), f64>>,
}

impl MeasuredStep {
    fn mpi(&self, ours: &ComparedMpi) -> ComparedMpi {
        ComparedMpi {
            environment: vec![("FASTPATH_DISABLE".to_owned(), self.disabled.join(","))],
            ..ours.clone()
        }
    }

    fn take(&mut self, cases: Vec<Case>) {
        let medians =
            cases.iter().filter_map(|case| Some((name_case(case), case.samples.quantile(0.5)?)));
        self.turns.push(medians.collect());
        for case in cases {
            match self.cases.iter_mut().find(|c| c.key() == case.key()) {
                Some(earlier) => earlier.samples.merge(&case.samples),
                None => self.cases.push(case),
            }
        }
    }

    /// Compares this step's times with those of `before`, turn by turn.
    fn compare(&self, before: &MeasuredStep) -> Vec<StepChange> {
        let of_case = |case: &Case| {
            let name = name_case(case);
            let turns = self.turns.iter().zip(&before.turns);
            let pairs: Vec<(f64, f64)> = turns
                .filter_map(|(now, then)| Some((*now.get(&name)?, *then.get(&name)?)))
                .collect();
            let ratio = interval::of_pairs(&pairs)?;
            let (test, bytes) = name;
            Some(StepChange { test, bytes, ratio })
        };
        self.cases.iter().filter_map(of_case).collect()
    }
}

fn name_case(case: &Case) -> (String, u64) {
    (case.test.clone(), case.bytes)
}

/// Runs `fastpath bench ablation`.
///
/// # Errors
/// The program cannot be compiled, a job fails, or a file cannot be written. Earlier results are written.
pub fn run(options: &AblationOptions) -> Result<()> {
    let ours = ComparedMpi::ours(&options.mpi)?;
    let store = ResultFiles::open(&options.results, None)?;
    let program = Program::compile(&ours.mpicc)?;
    let mut report = ours.report();
    let make_step =
        |(added, disabled)| MeasuredStep { added, disabled, cases: Vec::new(), turns: Vec::new() };
    let mut steps: Vec<MeasuredStep> = list_steps().map(make_step).collect();
    let mut done = time_steps(options, &program, &ours, &mut steps, &mut report);
    for (index, step) in steps.iter().enumerate() {
        let before = index.checked_sub(1).map(|i| &steps[i]);
        let counted = match options.no_instructions || done.is_err() {
            true => Ok(Vec::new()),
            false => count_step(&step.mpi(&ours)),
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
    if !options.results.take_standard() {
        let steps = describe_steps(&report.ablation, options.turns).to_screen();
        steps.lines().for_each(print_line);
    }
    store.finish(&report).and(done)
}

/// Times all steps turn by turn, in alternating order, so that drift of the machine favours no step.
fn time_steps(
    options: &AblationOptions, program: &Program, ours: &ComparedMpi, steps: &mut [MeasuredStep],
    report: &mut Report,
) -> Result<()> {
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
                let job = step.mpi(ours).job(2, &settings);
                cases.extend(time_step(program, job, report)?);
            }
            step.take(cases);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Lists the tests of a step: a ping-pong by size, and small messages in windows.
fn list_settings(options: &AblationOptions) -> Vec<Settings> {
    let of_test = |name: &str, sizes: &[u64]| {
        let mut settings = options.measure.with_tests([name]);
        settings.case.sizes = sizes.to_vec();
        settings.timing.get_or_insert_with(|| "batch=16".to_owned());
        if settings.case.iterations.is_none() {
            settings.case.duration.get_or_insert(DURATION_MS);
        }
        settings
    };
    let asked = &options.measure.case.sizes;
    let sizes: &[u64] = if asked.is_empty() { &SIZES } else { asked };
    let mut all = vec![of_test("latency", sizes)];
    // Window tests cannot write the buffers that they send.
    if !options.measure.case.touch {
        all.push(of_test("rate", &[RATE_SIZE]));
    }
    all
}

fn time_step(program: &Program, job: ProgramJob, report: &mut Report) -> Result<Vec<Case>> {
    let outcome = program.run(&job.with_selection(), |_| {});
    outcome.failure.map_or(Ok(()), Err)?;
    if let Some(start) = outcome.start {
        report.run.mpi.version = start.library;
    }
    report.run.clock = outcome.clock;
    Ok(outcome.cases)
}

fn count_step(mpi: &ComparedMpi) -> Result<Vec<Breakdown>> {
    let counted = count(&CountedMpi { mpi, sizes: &[8], whole: false })?;
    let wanted = |b: &Breakdown| CALLS.contains(&b.operation.as_str());
    Ok(counted.into_iter().filter(wanted).collect())
}

fn describe_steps(steps: &[AblationStep], turns: u32) -> Document {
    let mut said = Document::default();
    if steps.iter().all(|step| step.cases.is_empty()) {
        return said;
    }
    said.text(format!(
        "times are medians; latency: half a round trip between two ranks; rate: time of one \
         message of many in flight; ratio: to the step before, with its 95 % interval over {turns} \
         passes; instructions: count for a call with 8 B (callgrind)",
    ));
    said.table(tabulate(steps));
    said
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::samples::make_case;

    fn make_step(turns: &[f64]) -> MeasuredStep {
        let mut step = MeasuredStep {
            added: String::new(),
            disabled: Vec::new(),
            cases: Vec::new(),
            turns: Vec::new(),
        };
        turns.iter().for_each(|&ns| step.take(vec![make_case(8, &[ns; 3])]));
        step
    }

    #[test]
    fn change__is_of_runs_in_the_same_turn() {
        // The machine gets slower from turn to turn; the step takes four fifths of the preceding step's time.
        let before = make_step(&[100.0, 200.0, 400.0]);
        let now = make_step(&[80.0, 160.0, 320.0]);
        let changes = now.compare(&before);
        assert_eq!((changes.len(), changes[0].bytes), (1, 8));
        assert_eq!(changes[0].test, "latency");
        let ratio = changes[0].ratio;
        let [low, high] = ratio.interval.unwrap();
        assert!((ratio.ratio - 0.8).abs() < 0.001 && high - low < 0.01, "{ratio:?}");
        assert_eq!((now.cases.len(), now.cases[0].samples.count()), (1, 9));
    }

    #[test]
    fn steps__go_from_all_off_to_all_on_each_feature_once() {
        let steps: Vec<_> = list_steps().collect();
        assert_eq!(steps.len(), FEATURES.len() + 1);
        assert_eq!((steps[0].0.as_str(), steps[0].1.len()), ("", FEATURES.len()));
        assert_eq!(steps[1].0, FEATURES[0]);
        assert_eq!(steps[1].1, FEATURES[1..]);
        assert!(steps[FEATURES.len()].1.is_empty());
    }
}
