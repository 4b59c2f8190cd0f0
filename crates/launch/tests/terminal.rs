#![allow(unsafe_code, non_snake_case)]
//! A job at a terminal: typing, prompts, and the interrupt key.

mod common;
use common::{Watchdog, marked, mpiexec};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A job at a terminal, under a watchdog.
struct AtTerminal {
    child: Child,
    mark: String,
    watchdog: Watchdog,
}

impl AtTerminal {
    /// Waits for the end of the job, and checks that no process is left. Returns the exit code.
    #[track_caller]
    fn finish(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        self.watchdog.stop();
        assert_eq!(marked(&self.mark), Vec::<String>::new());
        status.code()
    }
}

struct Terminal {
    master: File,
    seen: String,
}

impl Terminal {
    /// Starts a job whose input, output and error are a new terminal.
    fn start(words: &[&str]) -> (Terminal, AtTerminal) {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut();
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers are writable; the descriptors are new, so these are their only owners.
        let (master, slave) = unsafe {
            assert_eq!(libc::openpty(&mut master, &mut slave, null, null.cast(), &size), 0);
            // If the job inherited the master end, the terminal would stay open when the test closes its own copy.
            libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
            (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let mut job = mpiexec(words);
        job.command
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave));
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            job.command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                // The signal may be ignored in the test's parent (nohup), which children inherit.
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        let child = job.command.spawn().unwrap();
        drop(job.command);
        let watchdog = Watchdog::start(child.id(), &job.mark, Instant::now());
        let job = AtTerminal { child, mark: job.mark, watchdog };
        let terminal = Terminal { master: File::from(master), seen: String::new() };
        (terminal, job)
    }

    fn expect(&mut self, part: &str) {
        let mut buffer = [0u8; 256];
        while !self.seen.contains(part) {
            let n = self.master.read(&mut buffer).unwrap_or(0);
            assert!(n > 0, "no {part:?} in {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    }

    fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }
}

/// Lock that allows one terminal at a time. Otherwise, a job of another test could inherit the descriptor before it is
/// marked close-on-exec.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn typing__reaches_rank_0_and_prompts_are_shown() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = r#"printf "name? "; read x; echo "hi $x from $FASTPATH_RANK""#;
    let (mut terminal, job) = Terminal::start(&["sh", "-c", script]);
    terminal.expect("name? ");
    terminal.type_keys("bob\n");
    terminal.expect("hi bob from 0");
    assert_eq!(job.finish(), Some(0));
}

#[test]
fn typing__reaches_all_ranks_where_asked() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = r#"read x; echo "hi $x from $FASTPATH_RANK""#;
    let (mut terminal, job) = Terminal::start(&["-n", "2", "--stdin", "all", "sh", "-c", script]);
    terminal.type_keys("bob\n");
    terminal.expect("hi bob from 0");
    terminal.expect("hi bob from 1");
    assert_eq!(job.finish(), Some(0));
}

#[test]
fn end_of_input__is_passed_on() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut terminal, job) = Terminal::start(&["-n", "2", "-l", "cat"]);
    terminal.type_keys("line\n");
    terminal.expect("[0] line");
    terminal.type_keys("\x04");
    assert_eq!(job.finish(), Some(0));
}

#[test]
fn message__is_wrapped_at_the_width_of_the_terminal() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let value = "a ".repeat(100) + "end";
    let (mut terminal, job) = Terminal::start(&["--map-by", &value, "true"]);
    terminal.expect("end");
    assert!(terminal.seen.lines().count() > 2, "{}", terminal.seen);
    for line in terminal.seen.lines() {
        assert!(line.starts_with("mpiexec: ") && line.trim_end().len() <= 80, "{line}");
    }
    assert_eq!(job.finish(), Some(2));
    let words = ["-n", "2", "--timeout", "1", "PROBE", "attach", "init", "wait", "MPI_Recv"];
    let (mut terminal, job) = Terminal::start(&words);
    terminal.expect("8 bytes, for");
    assert_eq!(job.finish(), Some(124));
    let report = terminal.seen.lines().skip_while(|line| !line.contains("did not end within"));
    let lines: Vec<&str> = report.collect();
    assert!(lines.iter().all(|line| line.trim_end().len() <= 80), "{lines:?}");
}

#[test]
fn interrupt_key__ends_the_job() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let words = ["-n", "2", "PROBE", "attach", "init", "wait", "MPI_Recv"];
    let (mut terminal, job) = Terminal::start(&words);
    terminal.expect("waiting");
    terminal.type_keys("\x03");
    assert_eq!(job.finish(), Some(130));
}

#[test]
fn rank_0_that_does_not_read__does_not_matter() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut terminal, job) = Terminal::start(&["-n", "2", "sh", "-c", "echo on; exit 0"]);
    terminal.type_keys("never read\n");
    terminal.expect("on");
    assert_eq!(job.finish(), Some(0));
}

#[test]
fn closed_terminal__ends_the_job() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let words = ["-n", "2", "PROBE", "attach", "init", "wait", "MPI_Recv"];
    let (mut terminal, job) = Terminal::start(&words);
    terminal.expect("waiting");
    drop(terminal);
    assert_eq!(job.finish(), Some(128 + libc::SIGHUP));
}

#[test]
fn rank_that_opens_the_terminal__is_not_stopped() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = r#"{ read x < /dev/tty; } 2>&- || read x; echo "hi $x""#;
    let (mut terminal, job) = Terminal::start(&["--bind-to", "core", "sh", "-c", script]);
    terminal.type_keys("bob\n");
    terminal.expect("hi bob");
    assert_eq!(job.finish(), Some(0));
}
