//! The command line: commands, options, their checks.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use fastpath_base::config::{parse_duration_ns, parse_size};

use crate::bench::plan::{Plan, Test};
use crate::bench::{self, BenchError, Form, Launch};
use crate::info;

/// Measures, explains and diagnoses message passing on this machine.
#[derive(Parser, Debug)]
#[command(name = "fastpath", version, about)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Measure MPI calls, with the floor of the hardware beside them
    #[command(subcommand)]
    Bench(Bench),
    /// Say what is installed, how it is set, what the machine offers, which transports are open
    Info(InfoOptions),
}

/// Options of `fastpath info`.
#[derive(Args, Debug)]
pub struct InfoOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Read another process's memory and say what came of it (started by `fastpath info`)
    #[arg(long, hide = true, value_name = "PID,ADDRESS")]
    pub probe_cma: Option<String>,
}

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Half a round trip between the first and the last rank; any others wait in MPI_Barrier
    Pingpong(JobOptions),
    /// Small messages per second, in windows
    Rate(JobOptions),
    /// Bytes per second, in windows
    Bandwidth(JobOptions),
    /// MPI_Barrier of all ranks
    Barrier(JobOptions),
    /// MPI_Allreduce of all ranks, sum of doubles
    Allreduce(JobOptions),
    /// What the hardware takes: the cache line between two processors, the copy of memory
    Floor(FloorOptions),
    /// One rank of a benchmark (started by the launcher)
    #[command(hide = true)]
    Rank {
        /// The plan, as JSON
        plan: String,
    },
}

/// How many samples, of what length, in which form.
#[derive(Args, Debug)]
pub struct SampleOptions {
    /// Sizes in bytes, separated by commas; K and M are powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<usize>,
    /// Samples of each case
    #[arg(long, default_value_t = 1000, value_parser = parse_positive)]
    pub samples: usize,
    /// A sample is the mean over a batch that lasts at least this long
    #[arg(long, default_value = "20us", value_parser = parse_time)]
    pub batch: u64,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Options of the benchmarks that run a job.
#[derive(Args, Debug)]
pub struct JobOptions {
    /// Number of ranks
    #[arg(short = 'n', long, default_value_t = 2, value_parser = parse_positive)]
    pub ranks: usize,
    /// How many samples, of what length
    #[command(flatten)]
    pub sample: SampleOptions,
    /// Time for the samples of one case; there are fewer samples where it does not suffice
    #[arg(long, default_value = "300ms", value_parser = parse_time)]
    pub case_time: u64,
    /// Messages in flight at once (rate, bandwidth)
    #[arg(long, default_value_t = 64, value_parser = parse_positive)]
    pub window: usize,
    /// MPI library to measure, of the standard ABI [default: the one installed with this program]
    #[arg(long)]
    pub library: Option<PathBuf>,
    /// Launcher that belongs to the library [default: mpiexec beside this program]
    #[arg(long)]
    pub mpiexec: Option<PathBuf>,
    /// A further argument of the launcher; can be given several times
    #[arg(long, allow_hyphen_values = true)]
    pub mpiexec_arg: Vec<String>,
    /// No progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Options of the floor.
#[derive(Args, Debug)]
pub struct FloorOptions {
    /// How many samples, of what length
    #[command(flatten)]
    pub sample: SampleOptions,
    /// The two processors, as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub processors: Vec<usize>,
}

/// The largest message of a benchmark: counts are passed as a C int.
const SIZE_MAX: u64 = 1 << 30;

fn parse_bytes(text: &str) -> Result<usize, String> {
    match parse_size(text)? {
        bytes if bytes <= SIZE_MAX => Ok(bytes as usize),
        _ => Err("the largest size is 1G".to_owned()),
    }
}

fn parse_time(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text)? {
        0 => Err("must be above zero".to_owned()),
        ns => Ok(ns),
    }
}

fn parse_positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=1 << 20).contains(&n) => Ok(n),
        _ => Err("expected a whole number from 1 to 1048576".to_owned()),
    }
}

impl SampleOptions {
    fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text }
    }
}

/// Does what `fastpath bench` was asked for.
///
/// # Errors
/// See [`BenchError`].
pub fn run_bench(command: Bench) -> Result<(), BenchError> {
    let (test, options) = match command {
        Bench::Pingpong(o) => (Test::Pingpong, o),
        Bench::Rate(o) => (Test::Rate, o),
        Bench::Bandwidth(o) => (Test::Bandwidth, o),
        Bench::Barrier(o) => (Test::Barrier, o),
        Bench::Allreduce(o) => (Test::Allreduce, o),
        Bench::Floor(o) => return run_floor(&o),
        Bench::Rank { plan } => return run_rank(&plan),
    };
    let mut sizes = options.sample.sizes.clone();
    if sizes.is_empty() {
        sizes = test.default_sizes();
    }
    if test == Test::Allreduce {
        // Whole doubles.
        sizes.iter_mut().for_each(|s| *s = s.next_multiple_of(8));
    }
    let plan = Plan {
        test,
        sizes,
        window: options.window,
        samples: options.sample.samples,
        batch_ns: options.sample.batch,
        case_ns: options.case_time,
        library: bench::choose_library(options.library)?,
    };
    let launch = Launch {
        mpiexec: options.mpiexec,
        arguments: options.mpiexec_arg,
        ranks: options.ranks,
    };
    bench::run_job(&plan, &launch, options.sample.form(), !options.no_progress)
}

/// Does what `fastpath info` was asked for.
///
/// # Errors
/// The output cannot be written.
pub fn run_info(options: &InfoOptions) -> std::io::Result<()> {
    match &options.probe_cma {
        Some(argument) => info::probe_as_reader(argument),
        None => info::print(&info::collect(), options.json),
    }
}

fn run_floor(options: &FloorOptions) -> Result<(), BenchError> {
    let pair = match options.processors.as_slice() {
        [] => None,
        &[a, b] => Some([a, b]),
        _ => {
            let why = "--processors takes two numbers, as 0,1";
            return Err(BenchError::Floor(std::io::Error::other(why)));
        }
    };
    let mut sizes = options.sample.sizes.clone();
    if sizes.is_empty() {
        sizes = (6..=22).step_by(2).map(|shift| 1 << shift).collect();
    }
    let (samples, batch) = (options.sample.samples, options.sample.batch);
    bench::run_floor(pair, &sizes, samples, batch, options.sample.form())
}

fn run_rank(plan: &str) -> Result<(), BenchError> {
    let plan: Plan = serde_json::from_str(plan)
        .map_err(|e| BenchError::Launch("fastpath bench rank".into(), e.into()))?;
    Ok(bench::child::run_rank(&plan)?)
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
    fn sizes__take_units_and_have_a_limit() {
        let cli = Cli::try_parse_from(["fastpath", "bench", "pingpong", "--sizes", "0,8,4K,1M"]);
        let Command::Bench(Bench::Pingpong(o)) = cli.unwrap().command else {
            panic!("another command");
        };
        assert_eq!(o.sample.sizes, [0, 8, 4096, 1 << 20]);
        assert_eq!((o.ranks, o.sample.batch), (2, 20_000));
        for wrong in ["8Q", "2G", "-1"] {
            let sizes = format!("--sizes={wrong}");
            assert!(
                Cli::try_parse_from(["fastpath", "bench", "rate", &sizes]).is_err(),
                "{wrong}"
            );
        }
    }
}
