#![allow(unsafe_code)]
//! Start and supervision of one job, and the parsing of its output.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::event::{ProgramEvent, parse_event};
use super::selection::LearnedCosts;
use super::{ProgramJob, Selection};
use crate::interrupt;

/// Reason for which a job failed.
#[derive(Debug)]
pub enum RunError {
    Start(PathBuf, io::Error),
    /// The job ended with this status; with the last lines of its output.
    Ended(ExitStatus, Vec<String>),
    /// The job was silent for too long and was ended.
    Stalled(Duration, Vec<String>),
    /// This signal requested the end of this program, so the job was ended.
    Interrupted(i32),
    Event(anyhow::Error),
    /// The job ended normally without a result.
    Empty,
}

/// Exit code of the program if it received wrong contents.
const WRONG_CONTENTS: i32 = 3;

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = |f: &mut fmt::Formatter<'_>, said: &[String]| {
            said.iter().try_for_each(|line| write!(f, "\n  {line}"))
        };
        match self {
            RunError::Start(path, e) => write!(f, "cannot run {}: {e}", path.display()),
            RunError::Ended(status, said) => {
                match status.code() {
                    Some(WRONG_CONTENTS) => write!(f, "messages arrived with wrong contents")?,
                    _ => write!(f, "the job failed: {}", describe_end(*status, said))?,
                }
                tail(f, said)
            }
            RunError::Stalled(limit, said) => {
                let s = limit.as_secs_f64();
                write!(f, "the job printed no result for {s} s, so fastpath ended it")?;
                tail(f, said)
            }
            RunError::Interrupted(signal) => write!(f, "interrupted by signal {signal}"),
            RunError::Event(e) => e.fmt(f),
            RunError::Empty => f.write_str("the job ended without a result"),
        }
    }
}

impl std::error::Error for RunError {}

/// Describes how a launcher ended. A launcher reports a signal of a rank as 128 plus the signal's number, as shells do,
/// or only as text.
fn describe_end(status: ExitStatus, said: &[String]) -> String {
    let named = |line: &String| {
        let at = line.to_ascii_lowercase().find("signal")?;
        let digits = line[at..].trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let number: i32 = digits[..end.unwrap_or(digits.len())].parse().ok()?;
        (1..=64).contains(&number).then_some(number)
    };
    match (status.code(), status.signal()) {
        (Some(code @ 129..=192), _) => format!("ended by signal {}", code - 128),
        (Some(code), _) => match said.iter().find_map(named) {
            Some(signal) => format!("ended by signal {signal} (exit code {code})"),
            None => format!("exit code {code}"),
        },
        (None, Some(signal)) => format!("its launcher was ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Largest number of output lines that an error repeats.
const TAIL: usize = 20;

/// Time to wait, after the launcher has ended, for a process that holds the launcher's output open.
const LINGER: Duration = Duration::from_secs(2);

/// Interval of checks whether the launcher has ended.
const POLL: Duration = Duration::from_millis(200);

enum OutputLine {
    Out(String),
    Err(String),
}

fn read_lines(
    input: impl Read + Send + 'static, to: Sender<OutputLine>, make: fn(String) -> OutputLine,
) {
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            if to.send(make(text.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

fn start(program: &Path, job: &ProgramJob) -> Result<(Child, Receiver<OutputLine>), RunError> {
    let failed = |e| RunError::Start(job.mpiexec.clone(), e);
    let mut child = Command::new(&job.mpiexec)
        .args(&job.mpiexec_arguments)
        .args(["-n", &job.ranks.to_string()])
        .arg(program)
        .args(&job.arguments)
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (to, from) = channel();
    if let Some(out) = child.stdout.take() {
        read_lines(out, to.clone(), OutputLine::Out);
    }
    if let Some(err) = child.stderr.take() {
        read_lines(err, to, OutputLine::Err);
    }
    Ok((child, from))
}

struct Reading<F> {
    on_event: F,
    tail: VecDeque<String>,
    damaged: Option<anyhow::Error>,
}

impl<F: FnMut(ProgramEvent)> Reading<F> {
    fn take(&mut self, said: OutputLine) {
        let event = match said {
            OutputLine::Out(line) => parse_event(&line),
            OutputLine::Err(line) => {
                let selection = Selection::parse(&line).map(ProgramEvent::Selection);
                let learnt = || LearnedCosts::parse(&line).map(ProgramEvent::Learnt);
                Ok(selection.or_else(learnt).unwrap_or(ProgramEvent::Text(line)))
            }
        };
        match event {
            Ok(event) => {
                if let ProgramEvent::Text(line) = &event {
                    self.tail.push_back(line.clone());
                    if self.tail.len() > TAIL {
                        self.tail.pop_front();
                    }
                }
                (self.on_event)(event);
            }
            Err(e) => {
                self.damaged.get_or_insert(e);
            }
        }
    }
}

pub(super) fn run(
    program: &Path, job: &ProgramJob, on_event: impl FnMut(ProgramEvent),
) -> Result<(), RunError> {
    let (mut child, said) = start(program, job)?;
    let mut reading = Reading { on_event, tail: VecDeque::new(), damaged: None };
    let status = watch(&mut child, &said, job.stall, &mut reading);
    let tail = reading.tail.into();
    if let Some(signal) = interrupt::find_request() {
        return Err(RunError::Interrupted(signal));
    }
    match status {
        Ok(None) => Err(RunError::Stalled(job.stall, tail)),
        Ok(Some(status)) if !status.success() => Err(RunError::Ended(status, tail)),
        Ok(Some(_)) => reading.damaged.map_or(Ok(()), |e| Err(RunError::Event(e))),
        Err(e) => Err(RunError::Start(job.mpiexec.clone(), e)),
    }
}

/// Reads until the job has ended and all its output is read. Returns None if the job stalled, or a signal requested the
/// end of this program; the job was then ended.
fn watch(
    child: &mut Child, said: &Receiver<OutputLine>, stall: Duration,
    reading: &mut Reading<impl FnMut(ProgramEvent)>,
) -> io::Result<Option<ExitStatus>> {
    let mut heard = Instant::now();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match said.recv_timeout(POLL) {
            Ok(line) => {
                heard = Instant::now();
                reading.take(line);
                if interrupt::find_request().is_none() {
                    continue;
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let left = stall.saturating_sub(heard.elapsed());
                let status = await_end(child, left)?;
                return match status {
                    Some(_) => Ok(status),
                    None => end(child).map(|()| None),
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match ended {
            Some((status, since)) if since.elapsed() > LINGER => return Ok(Some(status)),
            Some(_) => {}
            None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
        }
        if ended.is_none() && (heard.elapsed() > stall || interrupt::find_request().is_some()) {
            end(child)?;
            while let Ok(line) = said.recv_timeout(POLL) {
                reading.take(line);
            }
            return Ok(None);
        }
    }
}

/// Ends the launcher: first by SIGTERM, so that it can end its ranks, then by SIGKILL.
fn end(child: &mut Child) -> io::Result<()> {
    interrupt::end(child);
    if await_end(child, Duration::from_secs(5))?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Waits up to `limit` for the launcher to end.
pub(crate) fn await_end(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let since = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || since.elapsed() >= limit {
            return Ok(status);
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::STALL;
    use super::*;

    /// A job whose launcher is a shell with this script.
    fn run_script(script: &str, stall: Duration) -> (Result<(), RunError>, Vec<ProgramEvent>) {
        let job = ProgramJob {
            mpiexec: "/bin/sh".into(),
            mpiexec_arguments: vec!["-c".into(), script.into()],
            environment: vec![("WORD".into(), "from outside".into())],
            ranks: 2,
            arguments: Vec::new(),
            stall,
        };
        let mut events = Vec::new();
        let result = run(Path::new("/bin/true"), &job, |event| events.push(event));
        (result, events)
    }

    #[test]
    fn job__that_falls_silent_is_ended_and_what_it_said_is_kept() {
        let script = "echo before; exec sleep 1000";
        let (result, events) = run_script(script, Duration::from_millis(300));
        let Err(RunError::Stalled(_, said)) = result else {
            panic!("{result:?}");
        };
        assert_eq!(said, ["before"]);
        assert_eq!(events, [ProgramEvent::Text("before".into())]);
    }

    #[test]
    fn job__that_falls_silent_has_the_last_word() {
        // The script behaves like this library's launcher, which reports what each rank was doing when it is
        // terminated.
        let script = "trap 'echo rank 0 waits in MPI_Recv >&2; kill $!; exit 143' TERM; sleep \
            1000 & echo ready; wait";
        let (result, _) = run_script(script, Duration::from_millis(300));
        let text = result.unwrap_err().to_string();
        assert!(text.contains("printed no result for"), "{text}");
        assert!(text.contains("rank 0 waits in MPI_Recv"), "{text}");
    }

    #[test]
    fn job__that_closes_its_output_and_stays_is_ended_too() {
        let script = "echo before; exec >&- 2>&-; exec sleep 1000";
        let (result, events) = run_script(script, Duration::from_millis(300));
        assert!(matches!(result, Err(RunError::Stalled(..))), "{result:?}");
        assert_eq!(events, [ProgramEvent::Text("before".into())]);
        let (result, _) = run_script("exec >&- 2>&-; exit 7", STALL);
        assert!(matches!(result, Err(RunError::Ended(..))), "{result:?}");
    }

    #[test]
    fn job__that_ignores_the_polite_signal_is_ended_all_the_same() {
        let script = "trap '' TERM; exec sleep 1000";
        let (result, _) = run_script(script, Duration::from_millis(300));
        assert!(matches!(result, Err(RunError::Stalled(..))), "{result:?}");
    }

    #[test]
    fn job__that_fails_says_its_status_and_last_words() {
        let (result, _) = run_script("echo $WORD >&2; exit 7", STALL);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("7") && text.contains("from outside"), "{text}");
    }

    #[test]
    fn job__whose_rank_a_signal_ended_says_which() {
        for (script, words) in [
            ("exit 139", "ended by signal 11"),
            ("kill -9 $$", "launcher was ended by signal 9"),
            (
                "echo 'rank 1 exited on signal 11 (Segmentation fault).' >&2; exit 1",
                "ended by signal 11 (exit code 1)",
            ),
            ("exit 7", "exit code 7"),
        ] {
            let (result, _) = run_script(script, STALL);
            let text = result.unwrap_err().to_string();
            let first = text.lines().next().unwrap();
            assert!(first.ends_with(words), "{first}");
        }
    }

    #[test]
    fn output__that_is_not_text_does_no_harm() {
        let (result, events) = run_script("printf 'a\\377\\nb'", STALL);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn process__that_keeps_the_output_open_does_not_keep_the_reader() {
        let (result, events) = run_script("sleep 1000 & echo $!", STALL);
        assert!(result.is_ok(), "{result:?}");
        let ProgramEvent::Text(pid) = &events[0] else {
            panic!("{events:?}");
        };
        let ended = Command::new("kill").arg(pid).status().unwrap();
        assert!(ended.success());
    }
}
