#![allow(unsafe_code, dead_code)]
//! Running the launcher under a watchdog, and finding what it leaves behind.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No test takes so long; whoever does hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

pub const MARK: &str = "LAUNCH_TEST_MARK";

pub fn probe() -> String {
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_mpiexec"));
    let probe = exe.parent().unwrap().join("examples/probe");
    assert!(probe.exists(), "{} is built by cargo test", probe.display());
    probe.to_str().unwrap().to_owned()
}

/// What a job printed and how it ended.
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

/// A job to be: its processes carry a mark in their environment.
pub struct Job {
    pub command: Command,
    pub mark: String,
}

/// `mpiexec` with these words; `PROBE` stands for the probe's path.
pub fn mpiexec(words: &[&str]) -> Job {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpiexec"));
    command.args(words.iter().map(|w| w.replace("PROBE", &probe())));
    command.env(MARK, &mark).env_remove("OMP_NUM_THREADS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec nothing but `signal` is called, which may be.
    unsafe { command.pre_exec(reset_signals) };
    Job { command, mark }
}

/// Signals mean what they mean in a shell of one's own, also where the tests run under `nohup` or in the background of
/// a script, which ignore some of them, and children inherit that.
fn reset_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action is no code of ours.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

impl Job {
    pub fn env(mut self, name: &str, value: &str) -> Job {
        self.command.env(name, value);
        self
    }

    pub fn start(mut self) -> Running {
        let child = self.command.spawn().expect("mpiexec starts");
        Running { child, mark: self.mark, since: Instant::now() }
    }

    /// Runs it to its end; nothing of it may be left.
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

/// A job that runs.
pub struct Running {
    pub child: Child,
    pub mark: String,
    since: Instant,
}

impl Running {
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Reads standard output up to and with a line that contains `part`.
    #[track_caller]
    pub fn read_until(&mut self, part: &str) -> String {
        read_line_with(self.child.stdout.as_mut().unwrap(), part)
    }

    /// Reads standard error up to and with a line that contains `part`.
    #[track_caller]
    pub fn await_error(&mut self, part: &str) {
        let out = self.child.stderr.as_mut().unwrap();
        read_line_with(out, part);
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

/// Ends a job that hangs, so that the test fails instead of hanging too.
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
                // SAFETY: not waited for before the watchdog was stopped.
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

/// Processes that carry this mark: number and command line.
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

/// Waits until nobody carries this mark any more.
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

/// A temporary folder for some jobs, which must be empty when they are over, as must what
/// they could have left in the folder of shared memory.
pub struct CleanFolder(PathBuf);

impl CleanFolder {
    pub fn new(name: &str) -> CleanFolder {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        CleanFolder(path)
    }

    /// The job uses the folder for whatever it thinks is temporary.
    pub fn serve(&self, mut job: Job) -> Job {
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
        // Others use this folder at the same time, so look for our own name.
        let mut shared = list(std::path::Path::new("/dev/shm"));
        shared.retain(|p| p.contains("fastpath"));
        assert_eq!(shared, Vec::<String>::new());
        std::fs::remove_dir(&self.0).unwrap();
    }
}
