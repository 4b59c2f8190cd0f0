//! A job of two ranks, one of them under callgrind, in a folder that is removed afterwards.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fastpath_base::sync::{AtomicU64, Ordering};

use super::callgrind::{self, Dump};
use crate::interrupt;
use crate::peers::{ComparedMpi, find_command};
use crate::program::await_end;

/// Largest number of folder names to try.
const NAMES: u32 = 1000;
const NO_FOLDER: &str = "cannot create a scratch folder in TMPDIR (/tmp by default)";

/// A folder that is removed when it is dropped. Signals that end this program are delayed until the drop.
pub struct ScratchFolder(pub PathBuf);

impl ScratchFolder {
    /// Creates a new folder that other users can neither write to nor have created.
    pub fn make() -> Result<ScratchFolder> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        interrupt::keep_results();
        for _ in 0..NAMES {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("fastpath-instructions-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| ScratchFolder(path)).context(NO_FOLDER),
            }
        }
        bail!("{NO_FOLDER}: all names are taken")
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn find_valgrind() -> Result<PathBuf> {
    let found = find_command(Path::new("valgrind"));
    ensure!(
        found.is_file(),
        "valgrind, which counts the instructions, is not installed; install it"
    );
    Ok(found)
}

/// Runs a command, and returns its output as the error if it failed.
pub fn run_quietly(command: &mut Command, what: &str) -> Result<()> {
    let output = finish_or_end(command).with_context(|| format!("cannot run {what}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n  ");
    bail!(
        "{what} failed ({}):
  {tail}",
        output.status
    )
}

/// Runs a command to its end, or until a signal requests the end of this program.
fn finish_or_end(command: &mut Command) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<&mut dyn Read>| {
        let mut text = Vec::new();
        // If reading fails, the text read so far is used.
        let _ = pipe.map(|pipe| pipe.read_to_end(&mut text));
        text
    };
    thread::scope(|scope| {
        let stdout = scope.spawn(move || read(out.as_mut().map(|pipe| pipe as &mut dyn Read)));
        let stderr = scope.spawn(move || read(err.as_mut().map(|pipe| pipe as &mut dyn Read)));
        let mut is_told = false;
        let status = loop {
            if let Some(status) = await_end(&mut child, LOOK)? {
                break status;
            }
            if !is_told && interrupt::find_request().is_some() {
                is_told = true;
                interrupt::end(&child);
            }
        };
        let text =
            |reader: thread::ScopedJoinHandle<'_, Vec<u8>>| reader.join().unwrap_or_default();
        Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
    })
}

/// Interval of checks for a signal that ends this program.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `program` as two ranks, with rank `watched` under callgrind. Returns the dumps in order.
pub fn watch(
    mpi: &ComparedMpi, folder: &Path, program: &Path, arguments: &[String], watched: usize,
) -> Result<Vec<Dump>> {
    let valgrind = find_valgrind()?;
    let out = folder.join("out");
    let mut job = Command::new("timeout");
    // `--foreground` keeps the job in this process's group, so that an interrupt ends the job too.
    job.args(["--foreground", "-k", "10", "540"]).arg(&mpi.mpiexec);
    job.args(mpi.list_arguments(2));
    for rank in 0..2 {
        if rank > 0 {
            job.arg(":");
        }
        job.args(["-n", "1"]);
        if rank == watched {
            job.arg(&valgrind).args([
                "--tool=callgrind",
                "--collect-atstart=no",
                "--dump-instr=yes",
            ]);
            job.arg(format!("--callgrind-out-file={}", out.display()));
        }
        job.arg(program).args(arguments);
    }
    job.envs(mpi.environment.iter().map(|(name, value)| (name, value)));
    run_quietly(&mut job, &format!("the job of {}", mpi.name))?;
    read_dumps(folder)
}

fn read_dumps(folder: &Path) -> Result<Vec<Dump>> {
    let mut dumps = Vec::new();
    for number in 1.. {
        let path = folder.join(format!("out.{number}"));
        let Ok(text) = fs::read(&path) else {
            break;
        };
        let text = String::from_utf8_lossy(&text);
        let dump = callgrind::parse_dump(&text)
            .map_err(|e| anyhow!("unexpected output of callgrind: {e}"))?;
        if !dump.name.is_empty() {
            dumps.push(dump);
        }
    }
    ensure!(!dumps.is_empty(), "callgrind wrote no counts");
    Ok(dumps)
}
