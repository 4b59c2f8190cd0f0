//! Command line of `fastpath`: its commands, and the calls that execute them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
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

use crate::{examples, generate};

/// Measure, explain and diagnose message passing on this machine
#[derive(Parser, Debug)]
#[command(name = "fastpath", version = env!("BUILD_VERSION"), about)]
pub struct Cli {
    /// Command
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `fastpath`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Measure MPI calls, with the hardware floor of each
    Bench(Box<Bench>),
    /// Find the clock, unit and statistic behind another tool's table of numbers
    Audit(AuditOptions),
    /// Explain bandwidth and latency: limits of bus and adapter, and the remaining gap
    Explain(Box<ExplainOptions>),
    /// Make an HTML page of stored results
    Page(PageOptions),
    /// Compare this MPI with others in one run, or a stored result with an earlier one
    Compare(Box<CompareOptions>),
    /// Print version, settings, machine and usable transports
    Info(InfoOptions),
    /// Check RDMA adapters, libraries and limits, or with --host the connections between hosts; report problems and
    /// remedies (exit code 1: not healthy)
    Doctor(DoctorOptions),
    /// List this user's running jobs, what each rank does, and with --why which rank waits for which
    Ps(PsOptions),
    /// Measure the constants behind the choice of protocols, and store them for jobs on this machine
    Tune(TuneOptions),
    /// Internal: write manual pages and shell completions (started by the installation)
    #[command(hide = true)]
    Generate {
        /// Folder `share` of the installation
        share: PathBuf,
    },
}

/// Options of `fastpath info`.
#[derive(Args, Debug)]
pub struct InfoOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the meaning of each variable, the steps of each protocol, and the reason for each option that is not used
    #[arg(long)]
    pub explain: bool,
    /// Print only the protocol by message size, with reasons (as FASTPATH_REPORT=1 does in a job)
    #[arg(long)]
    pub protocols: bool,
    /// With --protocols: pass messages between two ranks for some seconds, and print the learned costs
    #[arg(long, requires = "protocols")]
    pub learn: bool,
    /// Print only the variables of the tool interface (MPI_T): control variables, performance variables, events
    #[arg(long)]
    pub mpit: bool,
    /// Internal: read another process's memory and report the result (started by `fastpath info`)
    #[arg(long, hide = true, value_name = "PID,ADDRESS")]
    pub probe_cma: Option<String>,
}

/// Tests by name, or other measurements.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    /// Other measurements
    #[command(subcommand)]
    pub other: Option<OtherBench>,
    /// Tests by name
    #[command(flatten)]
    pub options: BenchOptions,
}

/// Measurements without the benchmark program.
#[derive(Subcommand, Debug)]
pub enum OtherBench {
    /// Hardware floor: a cache line between two processors, a copy of memory
    Floor(FloorOptions),
    /// Copy loops, alone and as a pipeline between two processors: the floor of large messages
    Copy(CopyOptions),
    /// Instructions of a call, by function (needs valgrind)
    Instructions(InstructionOptions),
    /// Gain of each optimisation: all off, then one more enabled at each step
    Ablation(AblationOptions),
    /// Internal: one rank of a test below MPI (started by the launcher)
    #[command(hide = true)]
    Rank {
        /// Plan, as JSON
        plan: String,
    },
}

/// Parses the command line.
///
/// # Errors
/// The command line is invalid, or requests help or the version.
pub fn parse() -> clap::error::Result<Cli> {
    Cli::from_arg_matches(&examples::attach(Cli::command()).try_get_matches()?)
}

/// Executes a command; returns the exit code.
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
        Command::Generate { share } => generate::write_files(Cli::command(), &share)?,
    }
    match output::find_failure() {
        Some(why) => bail!(why),
        None => Ok(code),
    }
}

/// Runs `fastpath bench`.
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

/// Runs `fastpath info`.
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
        None => info::print(&info::collect(), options.json, options.explain)?,
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
