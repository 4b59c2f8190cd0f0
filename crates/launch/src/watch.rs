//! Main loop, from the start of the last rank to the end of the job.

mod dynamic;
mod hosts;

pub use hosts::rounds::Rounds;

use crate::agent::Agent;
use crate::args::{JobSpec, TIMEOUT_CODE};
use crate::control::ControlServer;
use crate::deadlock::{DEADLOCK_CODE, DeadlockWatch};
use crate::guard::GuardProcess;
use crate::input::Forward;
use crate::limits::describe_limits;
use crate::metrics::MetricsFile;
use crate::mpir;
use crate::output::Outputs;
use crate::poll::{CLIENTS, CONTROL, INPUT, Poller, ROUND, STREAMS};
use crate::ranks::{Failure, FailureScope, Ranks, kill_adopted};
use crate::report::{describe_failure, describe_ranks};
use crate::show::describe_ends;
use crate::signals::{Signals, stop_self};
use crate::singletons::SingletonWatch;
use crate::start::RankStarter;
use fastpath_base::clock::now_ns;
use fastpath_base::host_topology::HostTopology;
use fastpath_base::topology::CpuSet;
use fastpath_job::engine::output::await_taken;
use fastpath_job::inspect::ProcessEnd;
use fastpath_job::inspect::describe::describe_signal;
use fastpath_job::trace;
use fastpath_job::{ForeignNumbers, exit_code};
use fastpath_segment::{FailureKind, RankPhase, Segment};
use hosts::PendingSpawn;
use hosts::failures::FailureDecision;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Delay before an agent ends after a time-out. Agents of other nodes have the same limit, and can report during the
/// delay. The last output of agents that have ended arrives too.
const OTHERS_SPEAK: Duration = Duration::from_millis(300);
/// Interval, in milliseconds, of an agent's checks of its engine: Linux before 5.3 has no descriptor that signals the
/// end of a process.
const LOOK_MS: u64 = 500;
/// Time from SIGTERM to SIGKILL. Together with FINALIZED_GRACE it is well under 2 s.
const KILL_AFTER: Duration = Duration::from_millis(900);
/// Default of `--kill-after`: grace period of the ranks after SIGTERM or SIGHUP.
const KILL_GRACE: Duration = Duration::from_secs(10);
/// Time from Ctrl-C to the hint that a second Ctrl-C kills, if ranks still run.
const HINT_AFTER: Duration = Duration::from_millis(500);
/// Time for which other ranks may continue after a rank has finalized MPI and then failed. The other ranks are probably
/// about to end.
pub const FINALIZED_GRACE: Duration = Duration::from_millis(700);

/// Line about a failure that does not end the job.
pub const OTHERS_GO_ON: &str =
    "mpiexec:   ranks that are not connected with the failed rank continue\n";

/// Line about the death of a rank in a job that tolerates failures.
const SURVIVORS_GO_ON: &str = "mpiexec:   the other ranks continue (FASTPATH_FT=1)\n";

/// Termination of the job, or of some of its ranks.
#[derive(Debug)]
pub struct Termination {
    pub ranks: Option<Vec<usize>>,
    pub code: i32,
    pub text: String,
    pub terminate_at: Option<Instant>,
    pub kill_at: Option<Instant>,
    /// The failed rank, while the first agent has yet to decide which other ranks end; otherwise None.
    pub asked_for: Option<u32>,
}

impl Termination {
    /// Whether the other ranks still have time to end by themselves.
    pub fn is_late(&self) -> bool {
        self.terminate_at.is_some_and(|at| at > Instant::now())
    }

    pub fn of_job(self, code: i32) -> Termination {
        let terminate_at = self.terminate_at.or_else(|| Some(Instant::now()));
        Termination { ranks: None, code, terminate_at, asked_for: None, ..self }
    }
}

/// State of the main loop that lasts for the job.
pub struct JobWatch<'a> {
    pub spec: &'a JobSpec,
    pub host: &'a str,
    pub segment: &'a Segment,
    pub ranks: Ranks,
    pub outputs: Outputs<'a>,
    pub input: Option<Forward>,
    /// Standard input of ranks without input.
    pub no_input: OwnedFd,
    pub control: ControlServer,
    pub starter: RankStarter,
    pub began_with: usize,
    pub poller: Poller,
    pub signals: Signals,
    pub guard: GuardProcess,
    /// Children of the launcher that are no part of the job: a shell that became the launcher by exec had started them.
    /// The guard is not among them.
    pub spared: Vec<libc::pid_t>,
    pub trace: Option<PathBuf>,
    pub metrics: Option<MetricsFile>,
    pub agent: Option<Agent>,
    /// Spawn that this agent has prepared for the first agent; None if there is none.
    pub pending: Option<PendingSpawn>,
    pub foreign: ForeignNumbers,
    pub orders: Vec<FailureDecision>,
    pub rounds: Rounds,
    pub singletons: SingletonWatch,
    /// Topology of this host, by which spawned ranks are placed.
    pub topology: HostTopology,
}

#[derive(Debug, Default)]
pub struct WatchState {
    pub ending: Option<Termination>,
    /// Terminations of some worlds, while others continued.
    pub parts: Vec<Termination>,
    timeout_at: Option<Instant>,
    /// Signal that requests the end of the job, with its description; None if no such signal has arrived.
    interrupted: Option<(i32, String)>,
    interrupts: u32,
    grace_ends_at: Option<Instant>,
    hint_at: Option<Instant>,
    /// Check for collective calls that never complete; None if ranks also run on other hosts.
    deadlock: Option<DeadlockWatch>,
}

/// Whether a rank has called `MPI_Init` of this library. Ranks of other hosts count as joined.
fn has_joined(segment: &Segment, rank: usize) -> bool {
    segment.page(rank).is_none_or(|page| page.phase() > RankPhase::Launched)
}

impl JobWatch<'_> {
    pub fn run(mut self, started: Instant) -> i32 {
        let started = self.agent.as_ref().map_or(started, Agent::met);
        let look = self.agent.as_ref().map(|_| LOOK_MS);
        let mut state = WatchState {
            timeout_at: self.spec.timeout.and_then(|t| started.checked_add(t)),
            deadlock: self.agent.is_none().then(DeadlockWatch::new),
            ..WatchState::default()
        };
        let mut prompt = None;
        while self.ranks.running() > 0 || self.is_needed(&state) {
            let limit = earliest_ms(&state, self.singletons.check_at)
                .into_iter()
                .chain(prompt)
                .chain(look)
                .min();
            for token in self.poller.wait(limit) {
                // A rank that is spawned after SIGTERM would not get the signal, and would only end by SIGKILL.
                self.handle(token, state.ending.is_some() || state.grace_ends_at.is_some());
            }
            self.obey(&mut state);
            while let Some(signal) = self.signals.next() {
                self.take_signal(signal, &mut state);
            }
            self.obey(&mut state);
            self.outputs.settle(&self.poller, STREAMS);
            prompt = self.outputs.show_prompts(&self.poller);
            self.meet_deadlines(&mut state);
        }
        self.finish(state)
    }

    /// Whether the loop must continue without local ranks: ranks of other nodes may send requests, or the end of local
    /// ranks awaits a decision.
    fn is_needed(&self, state: &WatchState) -> bool {
        if state.ending.is_none() && state.parts.iter().any(|part| part.asked_for.is_some()) {
            return true;
        }
        let is_first = self.agent.as_ref().is_some_and(|agent| agent.node() == 0);
        let owes_input = self.input.as_ref().is_some_and(Forward::owes);
        let is_asked = self.control.staying() > 0 || owes_input;
        is_first && state.ending.is_none() && state.interrupts == 0 && is_asked
    }

    /// Ends the started ranks after another could not be started.
    pub fn abandon(mut self, code: i32, text: &str) -> i32 {
        self.ranks.kill_groups(self.segment);
        self.kill_adopted();
        self.outputs.drain(&self.poller);
        self.outputs.say(text);
        let signals = &self.signals;
        self.outputs.flush(|| !wants_end(signals));
        self.guard.dismiss();
        code
    }

    fn kill_adopted(&self) {
        let mut spared = self.spared.clone();
        spared.push(self.guard.pid());
        kill_adopted(&spared);
    }

    fn handle(&mut self, token: u64, is_ending: bool) {
        match token {
            INPUT => {
                if let Some(input) = &mut self.input {
                    input.forward(&self.poller);
                }
            }
            CONTROL => self.control.accept(&self.poller),
            CLIENTS => self.serve(is_ending),
            ROUND => self.end_round(is_ending),
            t if t >= STREAMS => self.outputs.read_stream(&self.poller, (t - STREAMS) as usize),
            // An output can be written, which `settle` does.
            _ => {}
        }
    }

    fn take_signal(&mut self, signal: i32, state: &mut WatchState) {
        match signal {
            libc::SIGCHLD => self.take_ends(state),
            libc::SIGTSTP => {
                self.ranks.stop_all();
                stop_self();
            }
            libc::SIGCONT => {
                self.ranks.signal_all(libc::SIGCONT);
                if let Some(input) = &mut self.input {
                    input.resume(&self.poller);
                }
            }
            libc::SIGUSR1 | libc::SIGUSR2 => self.ranks.signal_all(signal),
            _ => {
                state.interrupts += 1;
                if state.interrupts == 1 {
                    // Describe the ranks before they get the signal, while they still wait.
                    state.interrupted = Some((signal, self.describe_interrupt(signal)));
                    self.ranks.signal_all(signal);
                    self.ranks.signal_all(libc::SIGCONT);
                    let now = Instant::now();
                    if has_grace(signal) {
                        let grace = self.kill_after();
                        state.grace_ends_at = grace.and_then(|grace| now.checked_add(grace));
                    } else if self.agent.is_none() {
                        state.hint_at = Some(now + HINT_AFTER);
                    }
                } else {
                    let text = interrupted_text(signal);
                    state.ending.get_or_insert_with(|| end_now(128 + signal, text));
                    self.ranks.signal_all(libc::SIGKILL);
                }
            }
        }
    }

    fn take_ends(&mut self, state: &mut WatchState) {
        let scope = match self.agent {
            _ if state.interrupted.is_some() || state.ending.is_some() => FailureScope::Job,
            None => FailureScope::Worlds,
            Some(_) if self.segment.present() > self.began_with => FailureScope::NodeWorlds,
            Some(_) => FailureScope::Job,
        };
        let (guard, segment) = (&mut self.guard, self.segment);
        let mut notices = Vec::new();
        let (ended, failures) = self.ranks.reap(segment, scope, |pid, end| {
            notices.extend(guard.replace(pid, end, segment));
        });
        notices.iter().for_each(|notice| self.outputs.say(notice));
        for rank in ended {
            self.control.names.forget(rank as u32);
            self.forget_elsewhere(rank as u32);
        }
        for failure in failures {
            if state.ending.is_some() {
                return;
            }
            if let Some((signal, text)) = state.interrupted.take() {
                let mut ending = end_now(128 + signal, text);
                if has_grace(signal) {
                    // All ranks got the signal. Each has the whole grace period.
                    ending.terminate_at = None;
                }
                state.ending = Some(ending);
                return;
            }
            let mut ending = self.end_for(&failure);
            if self.ranks.tolerates_failures() && failure.kind != FailureKind::Abort {
                ending.text += SURVIVORS_GO_ON;
                self.report_death(failure.rank);
            } else if scope == FailureScope::NodeWorlds {
                ending.asked_for = Some(failure.rank as u32);
                self.tell_failure(&failure, &ending);
            } else if failure.ended.is_some() {
                ending.text += OTHERS_GO_ON;
            }
            match ending.ranks {
                Some(_) => state.parts.push(ending),
                None => {
                    mpir::report_abort(&ending.text);
                    ending.code = state.parts.first().map_or(ending.code, |first| first.code);
                    state.ending = Some(ending);
                }
            }
        }
    }

    /// Describes an interrupt. For SIGTERM, which a program usually sends, adds the state of each rank. A user who
    /// interrupts a job at a terminal knows the cause.
    fn describe_interrupt(&mut self, signal: i32) -> String {
        let text = interrupted_text(signal);
        if signal != libc::SIGTERM || self.agent.is_some() {
            return text;
        }
        let ranks = self.describe_doing();
        format!("{text}{ranks}")
    }

    fn describe_doing(&mut self) -> String {
        let ranks = describe_ranks(&self.ranks, self.segment);
        ranks + &self.describe_singletons().unwrap_or_default()
    }

    fn describe_singletons(&mut self) -> Option<String> {
        self.singletons.describe(self.ranks.list(), |rank| has_joined(self.segment, rank))
    }

    fn end_for(&self, failure: &Failure) -> Termination {
        let code = match failure.kind {
            FailureKind::Signal => 128 + failure.code,
            FailureKind::Exit => failure.code,
            FailureKind::NoFinalize | FailureKind::Gone => 1,
            FailureKind::Abort => exit_code(failure.code),
        };
        let now = now_ns();
        let mut text = describe_failure(failure, &self.ranks, self.segment, self.host, now);
        let phase = self.segment.page(failure.rank).map_or(RankPhase::Launched, |p| p.phase());
        let end = self.ranks.list().get(failure.rank).and_then(|r| r.end);
        text += &describe_limits(end, phase == RankPhase::Launched);
        let late = failure.kind == FailureKind::Exit && phase == RankPhase::Finalized;
        let mut ending = Termination { ranks: failure.ended.clone(), ..end_now(code, text) };
        if late {
            ending.terminate_at = Some(Instant::now() + FINALIZED_GRACE);
        }
        ending
    }

    /// Returns the grace period set by `--kill-after`; None if it is unlimited.
    fn kill_after(&self) -> Option<Duration> {
        Some(self.spec.kill_after.unwrap_or(KILL_GRACE)).filter(|grace| !grace.is_zero())
    }

    fn kill_late(&mut self, state: &mut WatchState) {
        state.grace_ends_at = None;
        let list = self.ranks.list().iter().enumerate();
        let late: CpuSet =
            list.filter(|(_, r)| r.pid != 0 && r.end.is_none()).map(|(n, _)| n).collect();
        if late.is_empty() {
            return;
        }
        let grace = self.kill_after().unwrap_or_default().as_secs_f64();
        let noun = if late.len() == 1 { "rank" } else { "ranks" };
        if let Some((signal, text)) = state.interrupted.take() {
            let ending = end_now(128 + signal, text);
            state.ending.get_or_insert(Termination { terminate_at: None, ..ending });
        }
        if let Some(ending) = &mut state.ending {
            ending.text += &format!(
                "mpiexec: killed {noun} {late}, which still ran {grace} s after the job began to \
                 end (--kill-after)\n"
            );
        }
        self.ranks.signal_all(libc::SIGKILL);
    }

    fn meet_deadlines(&mut self, state: &mut WatchState) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(state.grace_ends_at) {
            self.kill_late(state);
        }
        if due(state.hint_at) {
            state.hint_at = None;
            let running = self.ranks.running();
            if state.ending.is_none() && running > 0 {
                self.outputs.say("mpiexec: ranks still run; a second Ctrl-C kills them\n");
            }
        }
        if due(state.timeout_at) && state.ending.is_none() && self.ranks.running() > 0 {
            let limit = self.spec.timeout.unwrap_or_default().as_secs_f64();
            let text = format!(
                "mpiexec: the job did not end within {limit} s (--timeout)\n{}",
                self.describe_doing()
            );
            let mut ending = end_now(TIMEOUT_CODE, text);
            if self.agent.is_some() {
                ending.terminate_at = Some(now + OTHERS_SPEAK);
            }
            state.ending = Some(ending);
        }
        if due(self.singletons.check_at) {
            let segment = self.segment;
            let text = self.singletons.check(&self.ranks, |rank| has_joined(segment, rank));
            text.iter().for_each(|text| self.outputs.say(text));
        }
        if let Some(watch) = &mut state.deadlock
            && watch.check_at <= now
            && watch.check(&self.ranks, self.segment)
            && state.ending.is_none()
        {
            let text = format!(
                "mpiexec: collective calls can never complete, because count, datatype, root or \
                 order of the calls differ between ranks\n{}",
                self.describe_doing()
            );
            state.ending = Some(end_now(DEADLOCK_CODE, text));
        }
        if state.ending.is_none()
            && let Some(lost) = self.agent.as_ref().and_then(Agent::lost_engine)
        {
            let text =
                format!("mpiexec: {lost} has ended, so mpiexec ends the ranks on {}\n", self.host);
            state.ending = Some(end_now(1, text));
        }
        if state.ending.is_some() {
            state.timeout_at = None;
        }
        for ending in state.parts.iter_mut().chain(&mut state.ending) {
            let ranks = ending.ranks.as_deref();
            if due(ending.terminate_at) {
                ending.terminate_at = None;
                ending.kill_at = Some(now + KILL_AFTER);
                self.ranks.signal(ranks, libc::SIGTERM);
                self.ranks.signal(ranks, libc::SIGCONT);
            }
            if due(ending.kill_at) {
                ending.kill_at = None;
                self.ranks.signal(ranks, libc::SIGKILL);
            }
        }
        for part in &mut state.parts {
            let has_ended = |&rank: &usize| self.ranks.list()[rank].end.is_some();
            let is_said = part.text.is_empty() || part.asked_for.is_some();
            if !is_said && part.ranks.iter().flatten().all(has_ended) {
                self.outputs.catch_up(&self.poller);
                self.outputs.say(&std::mem::take(&mut part.text));
            }
        }
    }

    fn finish(mut self, state: WatchState) -> i32 {
        self.ranks.kill_groups(self.segment);
        let first = state.ending.as_ref().or(state.parts.first());
        let mut code = match state.ending {
            None if self.ranks.tolerates_failures() => self.survivors_code(&state.parts),
            _ => first.map_or(0, |ending| ending.code),
        };
        // The first agent has the exit code. If this agent ended with a code other than 0, the engine would end the
        // other agents.
        let is_part = state.ending.is_none() && !state.parts.is_empty();
        if is_part && self.agent.as_ref().is_some_and(|agent| agent.node() != 0) {
            code = 0;
        }
        if first.is_some() {
            self.kill_adopted();
        }
        self.outputs.drain(&self.poller);
        for ending in state.parts.iter().chain(&state.ending) {
            self.outputs.say(&ending.text);
        }
        if self.spec.exit_codes {
            self.outputs.say(&describe_ends(self.ranks.list()));
        }
        if code == 0
            && let Some(text) = self.describe_singletons()
        {
            self.outputs.say(&text);
        }
        let signals = &self.signals;
        self.outputs.flush(|| !wants_end(signals));
        if let Some(text) = self.outputs.describe_loss() {
            self.outputs.say(&text);
            self.outputs.flush(|| !wants_end(signals));
            code = if code == 0 { 1 } else { code };
        }
        if let Some(path) = &self.trace {
            let outcome = trace::write_file(self.segment, path);
            code = if outcome.is_err() && code == 0 { 1 } else { code };
            self.outputs.say(&format!("mpiexec: {}\n", trace::describe(path, outcome)));
            self.outputs.flush(|| !wants_end(signals));
        }
        if let Some(file) = &self.metrics {
            let ranks = self.ranks.list().iter().enumerate();
            let here = ranks.filter(|(_, process)| process.pid != 0).map(|(rank, _)| rank);
            let refusal = file.write(self.segment, self.host, here, code);
            refusal.iter().for_each(|line| self.outputs.say(line));
            self.outputs.flush(|| !wants_end(signals));
        }
        // Leave the engine last, because it then ends the other nodes and this process.
        if let Some(agent) = &mut self.agent {
            // An engine that ends the job drops output that it has not read.
            if is_part {
                await_taken();
            }
            if code == TIMEOUT_CODE || is_part && code != 0 {
                std::thread::park_timeout(OTHERS_SPEAK);
            }
            agent.leave(code);
        }
        self.guard.dismiss();
        code
    }
}

impl JobWatch<'_> {
    /// Returns the exit code of a job that tolerates failures: the code of the first rank that failed after it had
    /// finalized MPI, otherwise 0 if a rank ended without failure, otherwise the code of the first failure.
    fn survivors_code(&self, failed: &[Termination]) -> i32 {
        let rank_of = |part: &Termination| part.ranks.as_ref().and_then(|r| r.first().copied());
        let has_finalized = |part: &&Termination| {
            let page = rank_of(part).and_then(|rank| self.segment.page(rank));
            page.is_some_and(|page| page.phase() == RankPhase::Finalized)
        };
        if let Some(late) = failed.iter().find(has_finalized) {
            return late.code;
        }
        let is_failed = |rank| failed.iter().any(|part| rank_of(part) == Some(rank));
        let mut ended = self.ranks.list().iter().enumerate();
        match ended.any(|(rank, r)| r.end == Some(ProcessEnd::Exit(0)) && !is_failed(rank)) {
            true => 0,
            false => failed.first().map_or(0, |part| part.code),
        }
    }
}

pub fn end_now(code: i32, text: String) -> Termination {
    let terminate_at = Some(Instant::now());
    Termination { ranks: None, code, text, terminate_at, kill_at: None, asked_for: None }
}

/// Whether a grace period begins with this signal. Ctrl-C begins none: debuggers and interpreters handle it, and a user
/// can press it a second time.
fn has_grace(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGHUP)
}

fn interrupted_text(signal: i32) -> String {
    format!("mpiexec: the job was ended by {}\n", describe_signal(signal))
}

/// Whether a signal requested the end while the last output is written.
fn wants_end(signals: &Signals) -> bool {
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    std::iter::from_fn(|| signals.next()).any(|s| ends.contains(&s))
}

fn earliest_ms(state: &WatchState, other: Option<Instant>) -> Option<u64> {
    let endings = state.parts.iter().chain(&state.ending);
    let ends = endings.flat_map(|ending| [ending.terminate_at, ending.kill_at]);
    let check_at = state.deadlock.as_ref().map(|watch| watch.check_at);
    let others = [state.timeout_at, state.grace_ends_at, state.hint_at, check_at, other];
    let next = ends.chain(others).flatten().min()?;
    let left = next.saturating_duration_since(Instant::now());
    // Rounded up, so that the loop does not spin through the last millisecond.
    Some(left.as_micros().div_ceil(1000) as u64)
}
