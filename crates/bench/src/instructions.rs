//! `fastpath bench instructions`: instruction counts of calls and where they are spent, by valgrind's callgrind. Counts
//! are exact, and equal on every run of one build.
//!
//! One of two ranks runs under callgrind, which collects only inside the named call (`instructions.c`). A call's count
//! covers the code outside of the counted program: the library and the code that it calls. For this library, debug
//! information attributes the instructions, with inlined functions listed separately. For a peer only totals are known.
//! The levels below MPI are counted in this program (`below.rs`).

mod below;
mod budget;
mod callgrind;
mod job;
mod symbols;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fastpath_report::output::print_line;
use fastpath_report::record::{Breakdown, Level, MissingTest, Report};
use fastpath_report::screen::find_columns;

use crate::levels::CALLS;
use crate::options::{LevelName, MpiOptions, PathOptions, parse_bytes};
use crate::peers::{ComparedMpi, PeerOptions};
use crate::result_files::{ResultFiles, ResultOptions};
use callgrind::Dump;
use job::{ScratchFolder, run_quietly, watch};
use symbols::Symbols;

/// Largest message, in bytes: with every MPI, a send of this size must complete before its receive begins.
const BYTES_MAX: u64 = 2048;

const SOURCE: &str = include_str!("instructions.c");

/// Variants of `MPI_THREAD_MULTIPLE` with one thread: the argument for the program, and the feature that is off.
/// Without the feature `bias`, calls take the ordinary lock, as they do if the kernel refuses membarrier.
const WAYS_MULTIPLE: [(&str, Option<&str>); 2] = [("multiple", None), ("unbiased", Some("bias"))];

/// Options of `fastpath bench instructions`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct InstructionOptions {
    /// MPI to break down
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Other MPIs, counted by total only
    #[command(flatten)]
    pub peers: PeerOptions,
    /// Levels at which operations are counted [default: all; for an MPI named by --mpicc, only mpi]
    #[arg(help_heading = "Measurement", long = "level", value_delimiter = ',')]
    pub levels: Vec<LevelName>,
    /// Transport of the messages
    #[command(flatten)]
    pub path: PathOptions,
    /// Payloads in bytes, separated by commas; at most 2K
    #[arg(help_heading = "Measurement", long, value_delimiter = ',', default_value = "8",
        value_parser = parse_payload)]
    pub sizes: Vec<u64>,
    /// Number of functions to list for each call; 0: none
    #[arg(help_heading = "Measurement", long, default_value_t = 8)]
    pub functions: usize,
    /// Fail if a call takes more instructions than its budget in this file
    #[arg(help_heading = "Measurement", long, value_name = "FILE")]
    pub budget: Option<PathBuf>,
    /// Output of the result
    #[command(flatten)]
    pub results: ResultOptions,
}

fn parse_payload(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes <= BYTES_MAX => Ok(bytes),
        _ => Err("the largest size is 2K, because a send must complete before its receive begins"
            .to_owned()),
    }
}

/// An MPI whose calls are counted.
pub struct CountedMpi<'a> {
    /// The MPI.
    pub mpi: &'a ComparedMpi,
    /// Payloads, in bytes.
    pub sizes: &'a [u64],
    /// Whether to attribute instructions to functions.
    pub whole: bool,
}

fn parse_name(name: &str) -> Result<(String, u64)> {
    let parts = name.rsplit_once(' ');
    let parsed = parts.and_then(|(name, bytes)| Some((name.to_owned(), bytes.parse().ok()?)));
    parsed.with_context(|| {
        format!(
            "callgrind counted `{name}`, which is not an operation of the program whose \
             instructions are counted"
        )
    })
}

/// Counts every call of one MPI.
///
/// # Errors
/// Valgrind is missing, a compiler or a job fails, or a dump cannot be read.
pub fn count(mpi: &CountedMpi) -> Result<Vec<Breakdown>> {
    job::find_valgrind()?;
    let folder = ScratchFolder::make()?;
    let source = folder.0.join("instructions.c");
    let program = folder.0.join("instructions");
    fs::write(&source, SOURCE).with_context(|| {
        format!("cannot write {}, the program whose instructions are counted", source.display())
    })?;
    let mut compile = Command::new(&mpi.mpi.mpicc);
    // A library path meant for the run can mislead the linker.
    compile.env_remove("LD_LIBRARY_PATH").args(["-O2", "-g", "-fno-plt"]);
    compile.arg(&source).arg("-o").arg(&program);
    run_quietly(&mut compile, &mpi.mpi.mpicc.display().to_string())?;
    let mut arguments = vec![folder.0.display().to_string()];
    arguments.extend(mpi.sizes.iter().map(u64::to_string));
    let mut dumps = watch(mpi.mpi, &folder.0, &program, &arguments, 1)?;
    let ways: &[_] = if mpi.whole { &WAYS_MULTIPLE } else { &[] };
    for (word, disabled) in ways {
        let part = folder.0.join(word);
        fs::create_dir(&part).with_context(|| {
            format!("cannot create {}, the folder for the counts of callgrind", part.display())
        })?;
        let mut arguments = arguments.clone();
        arguments[0] = part.display().to_string();
        arguments.insert(1, (*word).to_owned());
        let mut mpi = mpi.mpi.clone();
        let variable = disabled.map(|name| ("FASTPATH_DISABLE".to_owned(), name.to_owned()));
        mpi.environment.extend(variable);
        dumps.extend(watch(&mpi, &part, &program, &arguments, 1)?);
    }
    make_breakdowns(mpi, &dumps, &program)
}

fn make_breakdowns(mpi: &CountedMpi, dumps: &[Dump], program: &Path) -> Result<Vec<Breakdown>> {
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
        let (operation, bytes) = parse_name(&dump.name)?;
        Ok(Breakdown {
            mpi: mpi.mpi.name.clone(),
            operation,
            level: Level::Mpi,
            bytes,
            calls: CALLS,
            total: total as f64 / CALLS as f64,
            parts,
        })
    });
    breakdowns.collect()
}

const OF_WINDOWS: [&str; 13] = [
    "MPI_Put",
    "MPI_Get",
    "MPI_Fetch_and_op",
    "MPI_Fetch_and_op_char",
    "MPI_Fetch_and_op_read",
    "MPI_Compare_and_swap",
    "MPI_Compare_and_swap_char",
    "MPI_Win_flush",
    "MPI_Win_flush_local",
    "MPI_Win_lock_all",
    "MPI_Win_unlock_all",
    "MPI_Win_lock",
    "MPI_Win_unlock",
];

fn list_lacking(
    names: &[&str], counted: &[Breakdown], level: Level, reason: &str,
) -> Vec<MissingTest> {
    let lacks = |name: &&&str| !counted.iter().any(|b| b.operation == **name);
    let missing =
        |name: &&str| MissingTest { test: (*name).to_owned(), level, reason: reason.to_owned() };
    names.iter().filter(lacks).map(missing).collect()
}

fn list_missing(mpi: &str, counted: &[Breakdown]) -> Vec<MissingTest> {
    let reason = format!("{mpi} cannot create a window (MPI_Win_allocate, MPI_Win_lock_all)");
    list_lacking(&OF_WINDOWS, counted, Level::Mpi, &reason)
}

impl InstructionOptions {
    fn has_level(&self, level: Level) -> bool {
        match self.levels.is_empty() {
            true => level == Level::Mpi || level != Level::Verbs && self.mpi.mpicc.is_none(),
            false => self.levels.iter().any(|name| name.means(level)),
        }
    }
}

/// Runs `fastpath bench instructions`.
///
/// # Errors
/// See [`count`]; also a budget that is exceeded.
pub fn run(options: &InstructionOptions) -> Result<()> {
    let mut ours = ComparedMpi::ours(&options.mpi)?;
    options.path.check(&options.levels)?;
    let peers = options.peers.list()?;
    let limits = options.budget.as_deref().map(budget::read).transpose()?;
    ours.environment = options.path.environment();
    let mut report = ours.report();
    let ours = CountedMpi { mpi: &ours, sizes: &options.sizes, whole: true };
    let store = ResultFiles::open(&options.results, None)?;
    let mut failed = Vec::new();
    let counted = count_levels(&ours, &peers, options, &mut report, &mut failed);
    // Counts before a failure are kept.
    if counted.is_ok() || !report.breakdowns.is_empty() {
        if !options.results.take_standard() {
            let text = table::describe(&report, options.functions, find_columns()).to_screen();
            text.lines().for_each(print_line);
        }
        store.finish(&report)?;
    }
    counted?;
    if let Some(limits) = limits {
        budget::check(&limits, &report.breakdowns, options.results.json.is_none())?;
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Counts at every requested level. Peers that cannot be counted are listed in `failed`.
fn count_levels(
    ours: &CountedMpi, peers: &[ComparedMpi], options: &InstructionOptions, report: &mut Report,
    failed: &mut Vec<String>,
) -> Result<()> {
    if options.has_level(Level::Mpi) {
        add_mpi(ours, report)?;
        for peer in peers {
            let theirs = CountedMpi { mpi: peer, whole: false, ..*ours };
            if let Err(e) = add_mpi(&theirs, report) {
                failed.push(format!("{}: {e:#}", peer.name));
            }
        }
    }
    for level in [Level::Protocol, Level::Transport, Level::Verbs] {
        if options.has_level(level) {
            let (counted, missing) = below::count(ours, level, &options.path)?;
            report.breakdowns.extend(counted);
            report.missing.extend(missing);
        }
    }
    Ok(())
}

fn add_mpi(mpi: &CountedMpi, report: &mut Report) -> Result<()> {
    let counted = count(mpi)?;
    report.missing.extend(list_missing(&mpi.mpi.name, &counted));
    report.breakdowns.extend(counted);
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn count__is_what_is_executed_outside_of_the_program() {
        let text = "desc: Trigger: Client Request: MPI_Send 8\nob=(1) /t/program\nfn=(1) \
            make_call\n0x10 1 18000\n\
            ob=(2) /t/libmpi.so\nfn=(2) PMPI_Send\n0x20 1 40000\nob=(3) /t/libc.so\nfn=(3) \
            memcpy\n0x30 1 4000\ntotals: 62000\n";
        let dumps = [callgrind::parse_dump(text).unwrap()];
        let mpi = CountedMpi {
            mpi: &ComparedMpi::new("a peer", Path::new("mpicc"), None),
            sizes: &[8],
            whole: false,
        };
        let found = make_breakdowns(&mpi, &dumps, Path::new("/t/program")).unwrap();
        assert_eq!((found.len(), found[0].total), (1, 44.0));
        assert_eq!((found[0].operation.as_str(), found[0].bytes), ("MPI_Send", 8));
        let missing = list_missing("a peer", &found);
        let tests: Vec<&str> = missing.iter().map(|m| m.test.as_str()).collect();
        assert_eq!(tests, OF_WINDOWS);
    }

    #[test]
    fn name__of_a_dump_has_operation_and_payload() {
        let parsed = parse_name("put, load-store 1024").unwrap();
        assert_eq!(parsed, ("put, load-store".to_owned(), 1024));
        for wrong in ["", "put", "put x"] {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
        assert!(parse_payload("4K").is_err());
    }

    #[test]
    fn levels__are_all_but_for_another_mpi() {
        let mut options = InstructionOptions::default();
        assert!(options.has_level(Level::Transport) && options.has_level(Level::Mpi));
        options.mpi.mpicc = Some("mpicc".into());
        assert!(!options.has_level(Level::Transport) && options.has_level(Level::Mpi));
        options.levels = vec![LevelName::Transport];
        assert!(options.has_level(Level::Transport) && !options.has_level(Level::Mpi));
    }

    #[test]
    fn count__with_a_compiler_that_is_not_there_says_so() {
        let nowhere = Path::new("/proc/none/mpicc");
        let mpi = CountedMpi {
            mpi: &ComparedMpi::new("missing", nowhere, None),
            sizes: &[8],
            whole: false,
        };
        let error = count(&mpi).unwrap_err().to_string();
        assert!(error.contains("/proc/none/mpicc") || error.contains("valgrind"), "{error}");
    }
}
