//! `fastpath bench ablation`: everything off that can be switched off, then one optimisation after
//! the other on, in time and in instructions (the table of the study "sm Latency", Open MPI, 2009).

use std::fs;
use std::path::{Path, PathBuf};

use fastpath_base::config::FEATURES;

use crate::bench::options::{MeasureOptions, MpiOptions};
use crate::bench::{BenchError, choose_mpi, surroundings};
use crate::catalogue::find;
use crate::html;
use crate::instructions::{Counted, count};
use crate::output::print_line;
use crate::program::{Job, Program, STALL};
use crate::record::{AblationStep, Breakdown, Report};

/// Options of `fastpath bench ablation`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AblationOptions {
    /// The order in which the optimisations are switched on [default: as `fastpath info` lists them]
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(FEATURES))]
    pub order: Vec<String>,
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

/// Does what `fastpath bench ablation` was asked for.
///
/// # Errors
/// The program cannot be compiled, a job fails, a file cannot be written.
pub fn run(options: &AblationOptions) -> Result<(), BenchError> {
    let (mpicc, mpiexec) = choose_mpi(&options.mpi)?;
    let program = Program::compile(&mpicc)?;
    let mut report = Report::new(surroundings::describe_run());
    report.run.mpi.name = "fastpath".to_owned();
    report.run.mpi.path = format!("{}, {}", mpicc.display(), mpiexec.display());
    for (added, disabled) in list_steps(&options.order) {
        let environment = vec![("FASTPATH_DISABLE".to_owned(), disabled.join(","))];
        let cases = time_step(options, &program, &mpiexec, &environment, &mut report)?;
        let instructions = match options.no_instructions {
            true => Vec::new(),
            false => count_step(options, &mpicc, &mpiexec, &environment)?,
        };
        let step = AblationStep {
            added,
            disabled,
            cases,
            instructions,
        };
        if report.ablation.is_empty() {
            print_head(&step);
        }
        print_step(&step);
        report.ablation.push(step);
    }
    if let Some(path) = &options.json {
        let text = crate::output::json::format_report(&report);
        fs::write(path, text).map_err(|e| BenchError::Write(path.clone(), e))?;
    }
    if let Some(path) = &options.html {
        let page = html::write_page(std::slice::from_ref(&report), None);
        fs::write(path, page).map_err(|e| BenchError::Write(path.clone(), e))?;
    }
    Ok(())
}

fn time_step(
    options: &AblationOptions,
    program: &Program,
    mpiexec: &Path,
    environment: &[(String, String)],
    report: &mut Report,
) -> Result<Vec<crate::record::Case>, BenchError> {
    let tests: Vec<_> = find("latency").into_iter().collect();
    let mut settings = options.measure.settings(&tests);
    if settings.sizes.is_empty() {
        settings.sizes = SIZES.to_vec();
    }
    let job = Job {
        mpiexec: mpiexec.to_owned(),
        mpiexec_arguments: options.mpi.mpiexec_arg.clone(),
        environment: environment.to_vec(),
        ranks: 2,
        arguments: settings.arguments(),
        stall: STALL,
    };
    let outcome = program.run(&job, |_| {});
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

fn print_head(step: &AblationStep) {
    print_line(
        "latency: median, ns of half a round trip between two ranks; instructions of a call with 8 B (callgrind)",
    );
    let mut line = format!("{:<22}", "on");
    for case in &step.cases {
        line += &format!(" {:>10}", format!("{} B", case.bytes));
    }
    for b in &step.instructions {
        line += &format!(" {:>10}", b.operation);
    }
    print_line(&line);
}

fn print_step(step: &AblationStep) {
    let name = match step.added.as_str() {
        "" => "nothing".to_owned(),
        added => format!("+ {added}"),
    };
    let mut line = format!("{name:<22}");
    for case in &step.cases {
        let median = case.samples.quantile(0.5).unwrap_or(0.0);
        line += &format!(" {median:>10.1}");
    }
    for b in &step.instructions {
        line += &format!(" {:>10.2}", b.total);
    }
    print_line(&line);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
