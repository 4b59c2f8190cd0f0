//! `fastpath bench`: measurements at the level of MPI calls, with the floor beside them.
//!
//! The command starts itself as the ranks of a job under the launcher; each rank opens the
//! installed library as a C program would and calls it. What rank 0 prints is read here.

pub mod child;
mod pair_lines;
pub mod plan;
mod report;

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::library::{self, OpenError};
use crate::measure::floor::{self, CopyFloor};
use crate::measure::stream::measure_stream;
use crate::measure::transfer::{Way, measure_transfer};
use crate::measure::{observe_clock_step_ns, placement, statistics};
use plan::{Event, Plan};
pub use report::Form;

/// Why a benchmark gave no result.
#[derive(Debug)]
pub enum BenchError {
    /// The library or the launcher is not there.
    Open(OpenError),
    /// The launcher could not be started, or its output not be read.
    Launch(PathBuf, io::Error),
    /// The job ended with this status.
    Job(std::process::ExitStatus),
    /// The job ended well but measured nothing.
    Empty,
    /// The machine refused what the floor needs.
    Floor(io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Open(e) => e.fmt(f),
            BenchError::Launch(path, e) => write!(f, "cannot run {}: {e}", path.display()),
            BenchError::Job(status) => write!(f, "the job failed: {status}"),
            BenchError::Empty => f.write_str("the job ended without a result"),
            BenchError::Floor(e) => write!(f, "cannot measure the floor: {e}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<OpenError> for BenchError {
    fn from(e: OpenError) -> Self {
        BenchError::Open(e)
    }
}

/// How the job is started.
pub struct Launch {
    /// The launcher; None: the `mpiexec` beside this program.
    pub mpiexec: Option<PathBuf>,
    /// Further arguments of the launcher, before `-n`.
    pub arguments: Vec<String>,
    /// Number of ranks.
    pub ranks: usize,
}

/// The `mpiexec` installed in the same folder as this program.
fn find_mpiexec() -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe().map_err(|e| BenchError::Launch("fastpath".into(), e))?;
    let path = own.with_file_name("mpiexec");
    if path.exists() {
        return Ok(path);
    }
    let missing = io::Error::from(io::ErrorKind::NotFound);
    Err(BenchError::Launch(path, missing))
}

/// The library to measure: the one named, or the installed one.
///
/// # Errors
/// None named and none installed.
pub fn choose_library(named: Option<PathBuf>) -> Result<PathBuf, BenchError> {
    Ok(match named {
        Some(path) => path,
        None => library::find_library()?,
    })
}

/// Runs the plan as a job and prints its cases as they come.
///
/// # Errors
/// See [`BenchError`].
pub fn run_job(plan: &Plan, launch: &Launch, form: Form, progress: bool) -> Result<(), BenchError> {
    let mpiexec = match &launch.mpiexec {
        Some(path) => path.clone(),
        None => find_mpiexec()?,
    };
    let mut child = start_job(plan, launch, &mpiexec)?;
    let read = read_job(&mut child, plan, form, progress);
    let status = child.wait();
    let cases = read.map_err(|e| BenchError::Launch(mpiexec.clone(), e))?;
    let status = status.map_err(|e| BenchError::Launch(mpiexec, e))?;
    if !status.success() {
        return Err(BenchError::Job(status));
    }
    if cases == 0 {
        return Err(BenchError::Empty);
    }
    Ok(())
}

fn start_job(plan: &Plan, launch: &Launch, mpiexec: &Path) -> Result<Child, BenchError> {
    let failed = |e: io::Error| BenchError::Launch(mpiexec.to_owned(), e);
    let own = std::env::current_exe().map_err(failed)?;
    let plan = serde_json::to_string(plan).map_err(|e| failed(e.into()))?;
    Command::new(mpiexec)
        .args(&launch.arguments)
        .args(["-n", &launch.ranks.to_string()])
        .arg(own)
        .args(["bench", "rank", &plan])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)
}

/// Reads events until the job closes its output; returns the number of cases.
fn read_job(child: &mut Child, plan: &Plan, form: Form, progress: bool) -> io::Result<usize> {
    let Some(output) = child.stdout.take() else {
        return Ok(0);
    };
    let bar = make_bar(plan, progress);
    let mut cases = 0;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match serde_json::from_str(&line) {
            Ok(Event::Start {
                library,
                ranks,
                processors,
            }) => {
                bar.suspend(|| report::print_head(plan, &library, ranks, processors, form));
            }
            Ok(Event::Progress { bytes, done, total }) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(format!("{bytes} B"));
            }
            Ok(Event::Case(case)) => {
                cases += 1;
                bar.suspend(|| report::print_case(&case, form));
            }
            // Not ours: what a library or a launcher prints.
            Err(_) => bar.suspend(|| eprintln!("{line}")),
        }
    }
    bar.finish_and_clear();
    Ok(cases)
}

fn make_bar(plan: &Plan, wanted: bool) -> ProgressBar {
    let bar = ProgressBar::new(plan.sizes.len() as u64);
    if !wanted {
        // On a terminal the bar goes to the standard error; elsewhere it hides by itself.
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Smallest message for which the ways to carry many bytes are compared.
const TRANSFER_MIN: usize = 4096;

/// The ways that are compared.
const TRANSFER_WAYS: [Way; 8] = [
    Way::Chunks {
        bytes: 4 << 10,
        count: 8,
    },
    Way::Chunks {
        bytes: 8 << 10,
        count: 8,
    },
    Way::Chunks {
        bytes: 16 << 10,
        count: 8,
    },
    Way::Chunks {
        bytes: 32 << 10,
        count: 4,
    },
    Way::Kernel,
    Way::KernelBoth { piece: 16 << 10 },
    Way::KernelBoth { piece: 64 << 10 },
    Way::Direct,
];

/// `fastpath bench floor`: the cache line between two processors and the copy of memory by size.
///
/// # Errors
/// A processor that cannot be used.
pub fn run_floor(
    processors: Option<[usize; 2]>,
    sizes: &[usize],
    samples: usize,
    batch_ns: u64,
    form: Form,
) -> Result<(), BenchError> {
    let allowed = placement::allowed_processors();
    let pair = match (processors, allowed.as_slice()) {
        (Some(pair), _) => pair,
        (None, [first, second, ..]) => [*first, *second],
        (None, _) => {
            let why = "this process may use one processor only; a line needs two";
            return Err(BenchError::Floor(io::Error::other(why)));
        }
    };
    let line = floor::measure_lines(pair, samples, batch_ns).map_err(BenchError::Floor)?;
    let line = statistics::summarize(&line).ok_or(BenchError::Empty)?;
    report::print_floor_line(pair, &line, batch_ns, observe_clock_step_ns(), form);
    let stream = measure_stream(pair, samples, batch_ns).map_err(BenchError::Floor)?;
    let stream = statistics::summarize(&stream).ok_or(BenchError::Empty)?;
    report::print_floor_stream(&stream, form);
    let mut copier = CopyFloor::new(sizes.iter().copied().max().unwrap_or(0));
    let samples = samples.min(100);
    for &bytes in sizes {
        let taken = copier.sample(bytes, samples, batch_ns);
        let copy = statistics::summarize(&taken).ok_or(BenchError::Empty)?;
        report::print_floor_copy(bytes, &copy, form);
    }
    let large: Vec<usize> = sizes
        .iter()
        .copied()
        .filter(|&b| b >= TRANSFER_MIN)
        .collect();
    if !large.is_empty() {
        report::print_transfer_head(pair, form);
    }
    for bytes in large {
        for way in TRANSFER_WAYS {
            let taken = measure_transfer(pair, way, bytes, samples, batch_ns);
            let time = taken.map(|t| statistics::summarize(&t));
            report::print_transfer(bytes, way, &time, form);
        }
    }
    Ok(())
}
