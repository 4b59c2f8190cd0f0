//! The command line: commands, and which crate does each.

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use fastpath_audit::AuditOptions;
use fastpath_diagnose::doctor::DoctorOptions;
use fastpath_diagnose::ps::PsOptions;
use fastpath_diagnose::{doctor, info, ps};
use fastpath_explain::command::ExplainOptions;
use fastpath_report::html::PageOptions;
use fastpath_report::{html, output};

use fastpath_bench::ablation::{self, AblationOptions};
use fastpath_bench::bench;
use fastpath_bench::bench::copy::CopyOptions;
use fastpath_bench::bench::floor::FloorOptions;
use fastpath_bench::bench::options::BenchOptions;
use fastpath_bench::compare::options::CompareOptions;
use fastpath_bench::instructions::{self, InstructionOptions};
use fastpath_bench::levels;
use fastpath_bench::tune::TuneOptions;
use fastpath_bench::{compare, tune};

/// Measures, explains and diagnoses message passing on this machine.
#[derive(Parser, Debug)]
#[command(name = "fastpath", version = env!("BUILD_VERSION"), about)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Measure MPI calls, with the floor of the hardware beside them
    Bench(Box<Bench>),
    /// Find out the clock, unit and statistic behind another tool's table of numbers
    Audit(AuditOptions),
    /// Explain where bytes and nanoseconds go: what a bus and an adapter allow, and what remains
    Explain(Box<ExplainOptions>),
    /// Make an HTML page of stored results
    Page(PageOptions),
    /// Compare this MPI with others in one run, or a stored result with an earlier one
    Compare(Box<CompareOptions>),
    /// Show what is installed, its settings, what the machine offers, and which transports work
    Info(InfoOptions),
    /// Check RDMA adapters, libraries and limits, or with --host how hosts reach each other; say what is wrong and what
    /// to do (exit code 1: not healthy)
    Doctor(DoctorOptions),
    /// List the running jobs of this user, what each rank does, and with --why which rank waits for which
    Ps(PsOptions),
    /// Measure the constants behind the choice of protocols, and store them for jobs on this machine
    Tune(TuneOptions),
}

/// Options of `fastpath info`.
#[derive(Args, Debug)]
pub struct InfoOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print only which protocol serves which size, and why (as FASTPATH_REPORT=1 does in a job)
    #[arg(long)]
    pub protocols: bool,
    /// With --protocols: pass messages between two ranks for some seconds, and show what they learn from them
    #[arg(long, requires = "protocols")]
    pub learn: bool,
    /// Print only what the tool interface (MPI_T) lists: control variables, performance variables, events
    #[arg(long)]
    pub mpit: bool,
    /// Read another process's memory and report the result (started by `fastpath info`)
    #[arg(long, hide = true, value_name = "PID,ADDRESS")]
    pub probe_cma: Option<String>,
}

/// Examples below the help of `fastpath bench`.
const BENCH_EXAMPLES: &str = "Examples:
  fastpath bench pingpong                          half a round trip of 2 ranks, all sizes
  fastpath bench pingpong --summary                some seconds, one screen: latency, floor, a chart
  fastpath bench latency --sizes 8,4K,1M --touch   buffers written before, read after each message
  fastpath bench allreduce -n 2,4,8 --json r.json  stored; `fastpath page r.json` draws it
  fastpath bench latency --level mpi,transport     what the levels of the library add
  fastpath bench floor                             the hardware alone
  fastpath bench copy                              copy loops; the bare pipeline of large messages
  fastpath bench --list                            all tests";

/// Tests by name, or other measurements.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = BENCH_EXAMPLES)]
pub struct Bench {
    /// Other measurements
    #[command(subcommand)]
    pub other: Option<OtherBench>,
    /// Tests by name
    #[command(flatten)]
    pub options: BenchOptions,
}

/// Other measurements than by the benchmark program.
#[derive(Subcommand, Debug)]
pub enum OtherBench {
    /// The time of the hardware: a cache line between two processors, a copy of memory
    Floor(FloorOptions),
    /// The time of copies, singly and as a pipeline between two processors: the floor of large messages
    Copy(CopyOptions),
    /// The instructions of a call, by function (needs valgrind)
    Instructions(InstructionOptions),
    /// The gain of each optimisation: all off, then on one after the other
    Ablation(AblationOptions),
    /// One rank of a test below MPI (started by the launcher)
    #[command(hide = true)]
    Rank {
        /// What is measured, as JSON
        plan: String,
    },
}

/// Does a command; the exit code.
///
/// # Errors
/// It cannot be done, or its result cannot be written.
pub fn run(command: Command) -> Result<u8> {
    let mut code = 0;
    match command {
        Command::Bench(what) => run_bench(*what)?,
        Command::Audit(options) => fastpath_audit::run(&options)?,
        Command::Explain(options) => fastpath_explain::command::run(&options)?,
        Command::Page(options) => html::run(&options)?,
        Command::Info(options) => run_info(&options)?,
        Command::Compare(options) => code = compare::run::run(&options)?,
        Command::Doctor(options) => code = u8::from(!doctor::run(&options)?),
        Command::Ps(options) => ps::run(&options)?,
        Command::Tune(options) => tune::run(&options)?,
    }
    match output::find_failure() {
        Some(why) => bail!(why),
        None => Ok(code),
    }
}

/// Does what `fastpath bench` was asked for.
///
/// # Errors
/// A command that cannot be done, or whose result cannot be written.
pub fn run_bench(command: Bench) -> Result<()> {
    match command.other {
        Some(OtherBench::Floor(options)) => bench::floor::run(&options),
        Some(OtherBench::Copy(options)) => bench::copy::run(&options),
        Some(OtherBench::Instructions(options)) => instructions::run(&options),
        Some(OtherBench::Ablation(options)) => ablation::run(&options),
        Some(OtherBench::Rank { plan }) => {
            levels::run_rank(&plan).context("this rank cannot be measured")
        }
        None => bench::run(&command.options),
    }
}

/// Does what `fastpath info` was asked for.
///
/// # Errors
/// The output cannot be written.
pub fn run_info(options: &InfoOptions) -> Result<()> {
    match &options.probe_cma {
        Some(argument) => info::probe_as_reader(argument)?,
        None if options.mpit => info::mpit::print(options.json)?,
        None if options.protocols => {
            info::print_protocols(options.json)?;
            if options.learn {
                bench::learnt::print(options.json)?;
            }
        }
        None => info::print(&info::collect(), options.json)?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line__is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bench__takes_tests_and_other_measurements() {
        let parse = |words: &[&str]| {
            let line = [&["fastpath", "bench"], words].concat();
            match Cli::try_parse_from(line).unwrap().command {
                Command::Bench(bench) => *bench,
                _ => panic!("another command"),
            }
        };
        let tests = parse(&["pingpong", "-n", "4", "rate"]);
        assert!(tests.other.is_none());
        assert_eq!(tests.options.tests, ["pingpong", "rate"]);
        assert_eq!(tests.options.ranks, [4]);
        let floor = parse(&["floor", "--samples", "5"]);
        assert!(matches!(floor.other, Some(OtherBench::Floor(_))));
    }
}
