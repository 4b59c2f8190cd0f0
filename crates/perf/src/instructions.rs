//! `fastpath bench instructions`: how many instructions a call takes and where they go, counted by
//! valgrind's callgrind: exact, and the same on every run of one build.
//!
//! Rank 1 of two runs under callgrind, which collects inside the named call alone
//! (`instructions.c`). A call's count is what was executed outside of that program: the library
//! and what it calls. For our library the instructions are attributed by the debug information, inlined
//! functions to themselves; of a peer only the totals are known.

mod budget;
mod callgrind;
mod symbols;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastpath_base::sync::{AtomicU64, Ordering};

use crate::bench::options::MpiOptions;
use crate::bench::{BenchError, choose_mpi, find_command, surroundings};
use crate::html;
use crate::record::{Breakdown, Report};
use callgrind::Dump;
use symbols::Symbols;

/// Calls over which a count is the mean; as in `instructions.c`.
const CALLS: u64 = 1000;

/// Payload of the counted calls.
const BYTES: u64 = 8;

const SOURCE: &str = include_str!("instructions.c");

/// Options of `fastpath bench instructions`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct InstructionOptions {
    /// The MPI to break down
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Another MPI, of which the totals are counted; can be given several times
    #[arg(long, value_name = "NAME=MPICC[,MPIEXEC]", value_parser = parse_peer)]
    pub peer: Vec<Peer>,
    /// Functions to list for each call; 0: none
    #[arg(long, default_value_t = 8)]
    pub functions: usize,
    /// Fail where a call takes more than this file allows
    #[arg(long, value_name = "FILE")]
    pub budget: Option<PathBuf>,
    /// Write the result to this file as JSON; `-`: to the standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page to this file, to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// An MPI beside ours.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    mpicc: PathBuf,
    mpiexec: PathBuf,
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    let wanted = || "expected NAME=MPICC or NAME=MPICC,MPIEXEC".to_owned();
    let (name, paths) = text.split_once('=').ok_or_else(wanted)?;
    let (mpicc, mpiexec) = match paths.split_once(',') {
        Some((mpicc, mpiexec)) => (PathBuf::from(mpicc), PathBuf::from(mpiexec)),
        None => {
            let mpicc = PathBuf::from(paths);
            let beside = mpicc.with_file_name("mpiexec");
            (mpicc, beside)
        }
    };
    if name.is_empty() || mpicc.as_os_str().is_empty() {
        return Err(wanted());
    }
    Ok(Peer {
        name: name.to_owned(),
        mpicc,
        mpiexec,
    })
}

/// One MPI to count.
pub struct Counted<'a> {
    /// Its name in tables.
    pub name: &'a str,
    /// Compiler wrapper.
    pub mpicc: &'a Path,
    /// Launcher.
    pub mpiexec: &'a Path,
    /// Further arguments of the launcher.
    pub arguments: &'a [String],
    /// Variables of the job.
    pub environment: &'a [(String, String)],
    /// Whether to look for functions.
    pub whole: bool,
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> io::Result<Scratch> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("fastpath-instructions-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn usage(why: impl Into<String>) -> BenchError {
    BenchError::Usage(why.into())
}

/// What a command said, if it failed.
fn run_quietly(command: &mut Command, what: &str) -> Result<(), BenchError> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| usage(format!("cannot run {what}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n  ");
    Err(usage(format!(
        "{what} failed ({}):\n  {tail}",
        output.status
    )))
}

/// Counts every call of one MPI.
///
/// # Errors
/// No valgrind, a compiler or a job that fails, dumps that cannot be read.
pub fn count(mpi: &Counted) -> Result<Vec<Breakdown>, BenchError> {
    let valgrind = find_command(Path::new("valgrind"));
    if !valgrind.is_file() {
        return Err(usage(
            "valgrind is not installed; it counts the instructions",
        ));
    }
    let folder = Scratch::make().map_err(|e| usage(format!("no scratch folder: {e}")))?;
    let source = folder.0.join("instructions.c");
    let program = folder.0.join("instructions");
    fs::write(&source, SOURCE).map_err(|e| BenchError::Write(source.clone(), e))?;
    let mut compile = Command::new(mpi.mpicc);
    // A library path meant for the run can mislead the linker.
    compile
        .env_remove("LD_LIBRARY_PATH")
        .args(["-O2", "-g", "-fno-plt"]);
    compile.arg(&source).arg("-o").arg(&program);
    run_quietly(&mut compile, &mpi.mpicc.display().to_string())?;
    let out = folder.0.join("out");
    let mut job = Command::new("timeout");
    job.args(["-k", "10", "300"])
        .arg(mpi.mpiexec)
        .args(mpi.arguments);
    job.args(["-n", "1"])
        .arg(&program)
        .arg(&folder.0)
        .args([":", "-n", "1"]);
    job.arg(&valgrind).args([
        "--tool=callgrind",
        "--collect-atstart=no",
        "--dump-instr=yes",
    ]);
    job.arg(format!("--callgrind-out-file={}", out.display()));
    job.arg(&program).arg(&folder.0);
    job.envs(mpi.environment.iter().map(|(name, value)| (name, value)));
    run_quietly(&mut job, &format!("the job of {}", mpi.name))?;
    let dumps = read_dumps(&folder.0)?;
    make_breakdowns(mpi, &dumps, &program)
}

/// The dumps in the order in which they were made.
fn read_dumps(folder: &Path) -> Result<Vec<Dump>, BenchError> {
    let mut dumps = Vec::new();
    for number in 1.. {
        let path = folder.join(format!("out.{number}"));
        let Ok(text) = fs::read(&path) else {
            return Ok(dumps);
        };
        let text = String::from_utf8_lossy(&text);
        let dump = callgrind::parse_dump(&text)
            .map_err(|e| usage(format!("callgrind wrote what it should not: {e}")))?;
        if !dump.name.is_empty() {
            dumps.push(dump);
        }
    }
    Ok(dumps)
}

fn make_breakdowns(
    mpi: &Counted,
    dumps: &[Dump],
    program: &Path,
) -> Result<Vec<Breakdown>, BenchError> {
    if dumps.is_empty() {
        return Err(usage("no counts came back from callgrind"));
    }
    let program = program.to_string_lossy();
    let mut symbols = Symbols::default();
    let inside = |object: &str| object != program;
    let breakdowns = dumps.iter().map(|dump| {
        let of_library = dump.costs.iter().filter(|((object, _), _)| inside(object));
        let total: u64 = of_library.map(|(_, cost)| cost).sum();
        let parts = match mpi.whole {
            true => symbols.break_down(dump, CALLS as f64, inside),
            false => Vec::new(),
        };
        Breakdown {
            mpi: mpi.name.to_owned(),
            operation: dump.name.clone(),
            bytes: BYTES,
            calls: CALLS,
            total: total as f64 / CALLS as f64,
            parts,
        }
    });
    Ok(breakdowns.collect())
}

/// Does what `fastpath bench instructions` was asked for.
///
/// # Errors
/// As [`count`]; a budget that is exceeded.
pub fn run(options: &InstructionOptions) -> Result<(), BenchError> {
    let (mpicc, mpiexec) = choose_mpi(&options.mpi)?;
    let limits = options.budget.as_deref().map(budget::read).transpose()?;
    let mut report = Report::new(surroundings::describe_run());
    report.run.mpi.name = "fastpath".to_owned();
    report.run.mpi.path = format!("{}, {}", mpicc.display(), mpiexec.display());
    report.breakdowns = count(&Counted {
        name: "fastpath",
        mpicc: &mpicc,
        mpiexec: &mpiexec,
        arguments: &options.mpi.mpiexec_arg,
        environment: &[],
        whole: true,
    })?;
    for peer in &options.peer {
        let counted = count(&Counted {
            name: &peer.name,
            mpicc: &peer.mpicc,
            mpiexec: &peer.mpiexec,
            arguments: &options.mpi.mpiexec_arg,
            environment: &[],
            whole: false,
        })?;
        report.breakdowns.extend(counted);
    }
    write(options, &report)?;
    match limits {
        Some(limits) => budget::check(&limits, &report.breakdowns, options.json.is_none()),
        None => Ok(()),
    }
}

fn write(options: &InstructionOptions, report: &Report) -> Result<(), BenchError> {
    let text = crate::output::json::format_report(report);
    match options.json.as_deref() {
        Some(path) if path == Path::new("-") => print!("{text}"),
        Some(path) => {
            fs::write(path, text).map_err(|e| BenchError::Write(path.to_owned(), e))?;
        }
        None => print_table(&report.breakdowns, options.functions),
    }
    if let Some(path) = &options.html {
        let page = html::write_page(std::slice::from_ref(report), None);
        fs::write(path, page).map_err(|e| BenchError::Write(path.clone(), e))?;
    }
    Ok(())
}

/// Levels from the program down.
pub const LEVELS: [&str; 6] = ["abi", "mpi", "protocol", "transport", "base", "other"];

fn print_table(all: &[Breakdown], functions: usize) {
    use crate::output::print_line;
    print_line(&format!(
        "instructions per call, {BYTES} B, mean of {CALLS} calls (callgrind, from the first instruction of the call to its return)"
    ));
    let mut mpi = None;
    for b in all {
        if mpi != Some(&b.mpi) {
            mpi = Some(&b.mpi);
            let levels = match b.parts.is_empty() {
                true => String::new(),
                false => LEVELS.map(|l| format!(" {l:>9}")).concat(),
            };
            print_line(&format!("\n{:<24} {:>9}{levels}", b.mpi, "total"));
        }
        let sum = |level: &str| -> f64 {
            let of_level = b.parts.iter().filter(|p| p.level == level);
            of_level.fold(0.0, |all, p| all + p.instructions)
        };
        let levels = match b.parts.is_empty() {
            true => String::new(),
            false => LEVELS.map(|l| format!(" {:>9.1}", sum(l))).concat(),
        };
        print_line(&format!("{:<24} {:>9.2}{levels}", b.operation, b.total));
    }
    for b in all.iter().filter(|b| functions > 0 && !b.parts.is_empty()) {
        print_line(&format!("\n{}, by function:", b.operation));
        for part in b.parts.iter().take(functions) {
            let (count, level, name) = (part.instructions, &part.level, &part.function);
            print_line(&format!("  {count:>9.2}  {level:<9} {name}"));
        }
        let rest: f64 = b.parts.iter().skip(functions).map(|p| p.instructions).sum();
        if rest > 0.0 {
            print_line(&format!("  {rest:>9.2}  others"));
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn peer__is_a_name_and_paths() {
        let peer = parse_peer("Open MPI 5=/o/bin/mpicc").unwrap();
        assert_eq!(peer.name, "Open MPI 5");
        assert_eq!(peer.mpiexec, Path::new("/o/bin/mpiexec"));
        let peer = parse_peer("m=/a/mpicc,/b/mpirun").unwrap();
        assert_eq!(peer.mpiexec, Path::new("/b/mpirun"));
        for wrong in ["", "name", "=/o/mpicc", "name="] {
            assert!(parse_peer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn count__is_what_is_executed_outside_of_the_program() {
        let text = "desc: Trigger: Client Request: MPI_Send\nob=(1) /t/program\nfn=(1) make_call\n0x10 1 18000\n\
            ob=(2) /t/libmpi.so\nfn=(2) PMPI_Send\n0x20 1 40000\nob=(3) /t/libc.so\nfn=(3) memcpy\n0x30 1 4000\ntotals: 62000\n";
        let dumps = [callgrind::parse_dump(text).unwrap()];
        let mpi = Counted {
            name: "a peer",
            mpicc: Path::new(""),
            mpiexec: Path::new(""),
            arguments: &[],
            environment: &[],
            whole: false,
        };
        let found = make_breakdowns(&mpi, &dumps, Path::new("/t/program")).unwrap();
        assert_eq!((found.len(), found[0].total), (1, 44.0));
        assert!(make_breakdowns(&mpi, &[], Path::new("")).is_err());
    }

    #[test]
    fn count__with_a_compiler_that_is_not_there_says_so() {
        let nowhere = Path::new("/nowhere/mpicc");
        let mpi = Counted {
            name: "nobody",
            mpicc: nowhere,
            mpiexec: nowhere,
            arguments: &[],
            environment: &[],
            whole: false,
        };
        let error = count(&mpi).unwrap_err().to_string();
        assert!(
            error.contains("/nowhere/mpicc") || error.contains("valgrind"),
            "{error}"
        );
    }
}
