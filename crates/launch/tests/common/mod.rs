#![allow(unsafe_code, dead_code)]
//! Runs the launcher under a watchdog, and finds the processes and files it leaves behind.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);

pub const MARK: &str = "LAUNCH_TEST_MARK";

pub fn probe() -> String {
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_mpiexec"));
    let probe = exe.parent().unwrap().join("examples/probe");
    assert!(probe.exists(), "{} is built by cargo test", probe.display());
    probe.to_str().unwrap().to_owned()
}

#[derive(Debug)]
pub struct JobOutput {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl JobOutput {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> JobOutput {
        assert_eq!(self.code(), Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_stderr(self, part: &str) -> JobOutput {
        assert!(self.stderr.contains(part), "no {part:?} in {self:#?}");
        self
    }

    pub fn sorted_lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// A job to start. A mark in the environment identifies the job's processes.
pub struct TestJob {
    pub command: Command,
    pub mark: String,
}

/// Makes a job of `mpiexec` with these words, in which `PROBE` stands for the probe's path.
pub fn mpiexec(words: &[&str]) -> TestJob {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpiexec"));
    command.args(words.iter().map(|w| w.replace("PROBE", &probe())));
    command.env(MARK, &mark).env_remove("OMP_NUM_THREADS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: `reset_signals` only calls `signal`, which is allowed between fork and exec.
    unsafe { command.pre_exec(reset_signals) };
    TestJob { command, mark }
}

/// Restores default signal actions. Under `nohup` or in a script's background some signals are ignored, and children
/// inherit ignored signals.
fn reset_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action runs no code of this process.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

impl TestJob {
    pub fn env(mut self, name: &str, value: &str) -> TestJob {
        self.command.env(name, value);
        self
    }

    pub fn start(mut self) -> RunningJob {
        let child = self.command.spawn().expect("mpiexec starts");
        RunningJob { child, mark: self.mark, since: Instant::now() }
    }

    /// Runs the job to its end. Fails if it leaves processes behind.
    #[track_caller]
    pub fn run(self) -> JobOutput {
        self.start().finish()
    }

    #[track_caller]
    pub fn run_with_input(mut self, input: &str) -> JobOutput {
        self.command.stdin(Stdio::piped());
        let mut running = self.start();
        let mut stdin = running.child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        running.finish()
    }
}

pub struct RunningJob {
    pub child: Child,
    pub mark: String,
    since: Instant,
}

impl RunningJob {
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers. The child is not waited for yet, so the number is valid.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Reads standard output through the first line that contains `part`.
    #[track_caller]
    pub fn read_until(&mut self, part: &str) -> String {
        let watchdog = Watchdog::start(self.child.id(), &self.mark, self.since);
        let text = read_line_with(self.child.stdout.as_mut().unwrap(), part);
        watchdog.stop();
        text
    }

    /// Reads standard error through the first line that contains `part`.
    #[track_caller]
    pub fn await_error(&mut self, part: &str) {
        let watchdog = Watchdog::start(self.child.id(), &self.mark, self.since);
        read_line_with(self.child.stderr.as_mut().unwrap(), part);
        watchdog.stop();
    }

    #[track_caller]
    pub fn finish(mut self) -> JobOutput {
        let watchdog = Watchdog::start(self.child.id(), &self.mark, self.since);
        let mut stderr_pipe = self.child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr_pipe.read_to_end(&mut text).unwrap();
            text
        });
        let mut stdout = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        let stderr = reader.join().unwrap();
        watchdog.stop();
        let outcome = JobOutput {
            status,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        };
        assert_eq!(marked(&self.mark), Vec::<String>::new(), "left behind by {outcome:#?}");
        outcome
    }
}

#[track_caller]
fn read_line_with(out: &mut impl Read, part: &str) -> String {
    let mut text = Vec::new();
    let mut byte = [0u8];
    while out.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
        if byte[0] == b'\n' {
            let so_far = String::from_utf8_lossy(&text);
            if so_far.lines().last().unwrap().contains(part) {
                return so_far.into_owned();
            }
        }
    }
    panic!("output ended without {part:?}: {}", String::from_utf8_lossy(&text));
}

pub struct Watchdog {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watchdog {
    pub fn start(pid: u32, mark: &str, since: Instant) -> Watchdog {
        let (stop, stopped) = std::sync::mpsc::channel();
        let mark = mark.to_owned();
        let thread = std::thread::spawn(move || {
            let left = WATCHDOG.saturating_sub(since.elapsed());
            let late = stopped.recv_timeout(left).is_err();
            if late {
                eprintln!("watchdog: the job hangs; its processes: {:#?}", marked(&mark));
                // SAFETY: kill takes no pointers. The child is waited for only after the watchdog is stopped.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
            late
        });
        Watchdog { stop, thread }
    }

    #[track_caller]
    pub fn stop(self) {
        let _ = self.stop.send(());
        assert!(!self.thread.join().unwrap(), "the job hung");
    }
}

/// Lists the processes with this mark: number and command line.
pub fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        if environ.split(|&b| b == 0).any(|e| e == wanted.as_bytes()) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push(format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

#[track_caller]
pub fn wait_gone(mark: &str) {
    let since = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(since.elapsed() < WATCHDOG, "still there: {left:#?}");
        std::thread::yield_now();
    }
}

/// A temporary folder for jobs. The folder must be empty after the jobs, as must Fastpath's part of the folder of
/// shared memory.
pub struct CleanFolder(PathBuf);

impl CleanFolder {
    pub fn new(name: &str) -> CleanFolder {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        CleanFolder(path)
    }

    /// Makes the job use the folder for temporary files.
    pub fn serve(&self, mut job: TestJob) -> TestJob {
        for name in ["TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "HOME"] {
            job.command.env(name, &self.0);
        }
        job
    }

    #[track_caller]
    pub fn expect_empty(self) {
        let list = |dir: &std::path::Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|e| e.path().display().to_string()).collect()
        };
        assert_eq!(list(&self.0), Vec::<String>::new());
        // Other processes use this folder at the same time, so look for Fastpath's files only.
        let mut shared = list(std::path::Path::new("/dev/shm"));
        shared.retain(|p| p.contains("fastpath"));
        assert_eq!(shared, Vec::<String>::new());
        std::fs::remove_dir(&self.0).unwrap();
    }
}
