//! The loop from the start of the last rank to the end of the job.

use crate::agent::Agent;
use crate::args::JobSpec;
use crate::control::Control;
use crate::guard::Guard;
use crate::hosts::Pending;
use crate::hosts::failures::Order;
use crate::hosts::rounds::Rounds;
use crate::input::Forward;
use crate::limits::describe_limits;
use crate::output::Outputs;
use crate::poll::Poller;
use crate::ranks::{Failure, FailureScope, Ranks, kill_adopted};
use crate::report::{describe_failure, describe_ranks};
use crate::show::describe_ends;
use crate::signals::{Signals, stop_self};
use crate::singletons;
use crate::start::Starter;
use fastpath_base::clock::now_ns;
use fastpath_base::topology::CpuSet;
use fastpath_bootstrap::engine::output::await_taken;
use fastpath_bootstrap::inspect::describe::describe_signal;
use fastpath_bootstrap::job::{ForeignNumbers, exit_code};
use fastpath_bootstrap::segment::{FailureKind, Phase, Segment};
use fastpath_bootstrap::trace;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Token of the input that is passed on.
pub const INPUT: u64 = 1;
/// Tokens of the launcher's outputs.
pub const SINKS: [u64; 2] = [2, 3];
/// Token of the socket on which ranks ask.
pub const CONTROL: u64 = 5;
/// Token of those that have connected to it.
pub const CLIENTS: u64 = 6;
/// Token of the round of questions that the first agent asks.
pub const ROUND: u64 = 7;
/// Token of the first stream of the ranks.
pub const STREAMS: u64 = 16;

/// Exit code after `--timeout`, that of timeout(1).
pub const TIMEOUT_CODE: i32 = 124;
/// After a time-out the agents of other nodes, which have the same limit, see what their ranks are doing before the end
/// of ours wakes those; and after that end they say it. Likewise the last words of those that have ended before arrive.
const OTHERS_SPEAK: Duration = Duration::from_millis(300);
/// How often an agent looks whether its engine lives: Linux before 5.3 has no descriptor for that.
const LOOK_MS: u64 = 500;
/// Between the polite signal and the other one; together with the time below well under 2 s.
const KILL_AFTER: Duration = Duration::from_millis(900);
/// Default of `--kill-after`: grace period of the ranks after SIGTERM or SIGHUP.
const KILL_GRACE: Duration = Duration::from_secs(10);
/// Time from Ctrl-C to the hint that a second one kills, if ranks still run.
const HINT_AFTER: Duration = Duration::from_millis(500);
/// How long the others may go on when a rank has finalized MPI and then returned a failure:
/// they are most likely about to end by themselves.
pub const FINALIZED_GRACE: Duration = Duration::from_millis(700);

/// What is said of a failure that does not end the job.
pub const OTHERS_GO_ON: &str = "mpiexec:   ranks that are not connected with it continue\n";

/// The job is being ended, or a part of it.
#[derive(Debug)]
pub struct Ending {
    /// The ranks that are ended; None: all.
    pub ranks: Option<Vec<usize>>,
    /// Exit code.
    pub code: i32,
    /// Said when all output of the ranks is out.
    pub text: String,
    /// When they are asked to end.
    pub terminate_at: Option<Instant>,
    /// When they are ended, if they have not heard.
    pub kill_at: Option<Instant>,
    /// The rank that has failed, as long as the first agent has yet to say whom else that ends.
    pub asked_for: Option<u32>,
}

impl Ending {
    /// Whether the others are about to end by themselves.
    pub fn is_late(&self) -> bool {
        self.terminate_at.is_some_and(|at| at > Instant::now())
    }

    /// It is that of the job after all.
    pub fn of_job(self, code: i32) -> Ending {
        let terminate_at = self.terminate_at.or_else(|| Some(Instant::now()));
        Ending { ranks: None, code, terminate_at, asked_for: None, ..self }
    }
}

/// All that the loop looks after.
pub struct Watch<'a> {
    /// The command line.
    pub spec: &'a JobSpec,
    /// The node's name.
    pub host: &'a str,
    /// The job's memory.
    pub segment: &'a Segment,
    /// The processes.
    pub ranks: Ranks,
    /// Their output.
    pub outputs: Outputs<'a>,
    /// Their input, if the launcher passes it on.
    pub input: Option<Forward>,
    /// What ranks read that get no input.
    pub no_input: OwnedFd,
    /// Where ranks ask for something.
    pub control: Control,
    /// What ranks are started with.
    pub starter: Starter,
    /// Number of ranks of the command line.
    pub began_with: usize,
    /// Events.
    pub poller: Poller,
    /// Signals.
    pub signals: Signals,
    /// The guard.
    pub guard: Guard,
    /// Children of the launcher that are no part of the job: what a shell that became the launcher by exec had
    /// started before. The guard is none of them.
    pub spared: Vec<libc::pid_t>,
    /// The file for a trace.
    pub trace: Option<PathBuf>,
    /// The agents of the other nodes, where there are any.
    pub agent: Option<Agent>,
    /// What the first of them has had this one prepare.
    pub pending: Option<Pending>,
    /// The numbers of ranks of other jobs.
    pub foreign: ForeignNumbers,
    /// What the first agent has said of failures.
    pub orders: Vec<Order>,
    /// What the first agent does with all others.
    pub rounds: Rounds,
}

/// What changes while it runs.
#[derive(Debug, Default)]
pub struct State {
    /// The end of the job.
    pub ending: Option<Ending>,
    /// Worlds that were ended before, while others went on.
    pub parts: Vec<Ending>,
    timeout_at: Option<Instant>,
    /// The signal that asks for the end of the job, its description, and how often it came.
    interrupted: Option<(i32, String)>,
    interrupts: u32,
    /// Time at which ranks that are still running are killed.
    grace_ends_at: Option<Instant>,
    /// Time at which the hint about a second signal is printed.
    hint_at: Option<Instant>,
}

impl Watch<'_> {
    /// Runs until no rank is left; returns the launcher's exit code.
    pub fn run(mut self, started: Instant) -> i32 {
        let started = self.agent.as_ref().map_or(started, Agent::met);
        let look = self.agent.as_ref().map(|_| LOOK_MS);
        let mut state = State {
            timeout_at: self.spec.timeout.and_then(|t| started.checked_add(t)),
            ..State::default()
        };
        let mut prompt = None;
        while self.ranks.running() > 0 || self.is_needed(&state) {
            let limit = earliest_ms(&state).into_iter().chain(prompt).chain(look).min();
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

    /// Whether ranks of other nodes may still ask, though none is left here, or the end of those here has an open
    /// question.
    fn is_needed(&self, state: &State) -> bool {
        if state.ending.is_none() && state.parts.iter().any(|part| part.asked_for.is_some()) {
            return true;
        }
        let is_first = self.agent.as_ref().is_some_and(|agent| agent.node() == 0);
        let owes_input = self.input.as_ref().is_some_and(Forward::owes);
        let is_asked = self.control.staying() > 0 || owes_input;
        is_first && state.ending.is_none() && state.interrupts == 0 && is_asked
    }

    /// The ranks could not all be started: ends those that were.
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
            // Room in an output: `settle` writes.
            _ => {}
        }
    }

    fn take_signal(&mut self, signal: i32, state: &mut State) {
        match signal {
            libc::SIGCHLD => self.take_ends(state),
            libc::SIGTSTP => {
                self.ranks.signal_all(libc::SIGTSTP);
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
                    // Before the ranks hear of it, or they would do nothing any more.
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
                    // Asked twice: no more waiting.
                    let text = interrupted_text(signal);
                    state.ending.get_or_insert_with(|| end_now(128 + signal, text));
                    self.ranks.signal_all(libc::SIGKILL);
                }
            }
        }
    }

    fn take_ends(&mut self, state: &mut State) {
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
            if scope == FailureScope::NodeWorlds {
                ending.asked_for = Some(failure.rank as u32);
                self.tell_failure(&failure, &ending);
            } else if failure.ended.is_some() {
                ending.text += OTHERS_GO_ON;
            }
            match ending.ranks {
                Some(_) => state.parts.push(ending),
                None => {
                    ending.code = state.parts.first().map_or(ending.code, |first| first.code);
                    state.ending = Some(ending);
                }
            }
        }
    }

    /// A person at the terminal knows why; if a program has ended the job, its user wants to see where it was.
    fn describe_interrupt(&self, signal: i32) -> String {
        let text = interrupted_text(signal);
        if signal != libc::SIGTERM || self.agent.is_some() {
            return text;
        }
        let ranks = self.describe_doing();
        format!("{}. What each rank was doing:\n{ranks}", text.trim_end())
    }

    /// What each rank does, and whether none is of this MPI.
    fn describe_doing(&self) -> String {
        let ranks = describe_ranks(&self.ranks, self.segment);
        ranks + &self.describe_singletons().unwrap_or_default()
    }

    fn describe_singletons(&self) -> Option<String> {
        let has_joined = |rank: usize| {
            let page = self.segment.page(rank);
            page.is_none_or(|page| page.phase() > Phase::Launched)
        };
        singletons::describe(self.ranks.list(), has_joined)
    }

    fn end_for(&self, failure: &Failure) -> Ending {
        let code = match failure.kind {
            FailureKind::Signal => 128 + failure.code,
            FailureKind::Exit => failure.code,
            FailureKind::NoFinalize | FailureKind::Gone => 1,
            FailureKind::Abort => exit_code(failure.code),
        };
        let now = now_ns();
        let mut text = describe_failure(failure, &self.ranks, self.segment, self.host, now);
        let phase = self.segment.page(failure.rank).map_or(Phase::Launched, |p| p.phase());
        let end = self.ranks.list().get(failure.rank).and_then(|r| r.end);
        text += &describe_limits(end, phase == Phase::Launched);
        let late = failure.kind == FailureKind::Exit && phase == Phase::Finalized;
        let mut ending = Ending { ranks: failure.ended.clone(), ..end_now(code, text) };
        if late {
            ending.terminate_at = Some(Instant::now() + FINALIZED_GRACE);
        }
        ending
    }

    /// `--kill-after`; None: never.
    fn kill_after(&self) -> Option<Duration> {
        Some(self.spec.kill_after.unwrap_or(KILL_GRACE)).filter(|grace| !grace.is_zero())
    }

    /// Kills the ranks that are still running after the grace period.
    fn kill_late(&mut self, state: &mut State) {
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
            state.ending.get_or_insert(Ending { terminate_at: None, ..ending });
        }
        if let Some(ending) = &mut state.ending {
            ending.text += &format!(
                "mpiexec: {noun} {late} still ran {grace} s after that (--kill-after): killed\n"
            );
        }
        self.ranks.signal_all(libc::SIGKILL);
    }

    fn meet_deadlines(&mut self, state: &mut State) {
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
                "mpiexec: the job did not end within {limit} s (--timeout). What each rank was \
                 doing:\n{}",
                self.describe_doing()
            );
            let mut ending = end_now(TIMEOUT_CODE, text);
            if self.agent.is_some() {
                ending.terminate_at = Some(now + OTHERS_SPEAK);
            }
            state.ending = Some(ending);
        }
        if state.ending.is_none()
            && let Some(lost) = self.agent.as_ref().and_then(Agent::lost_engine)
        {
            let text = format!(
                "mpiexec: on {}, {lost} has ended: the ranks that it had started there are ended \
                 too\n",
                self.host
            );
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

    fn finish(mut self, state: State) -> i32 {
        self.ranks.kill_groups(self.segment);
        let first = state.ending.as_ref().or(state.parts.first());
        let mut code = first.map_or(0, |ending| ending.code);
        // The first agent has the code: with one of this agent's own the engine would end the others.
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
        // When all is said: the engine ends the other nodes, and this process too.
        if let Some(agent) = &mut self.agent {
            // An engine that ends the job drops what it has yet to read.
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

/// What is ended at once.
pub fn end_now(code: i32, text: String) -> Ending {
    let terminate_at = Some(Instant::now());
    Ending { ranks: None, code, text, terminate_at, kill_at: None, asked_for: None }
}

/// Whether a grace period begins with this signal. None begins with Ctrl-C: debuggers and interpreters handle it, and a
/// user can send a second one.
fn has_grace(signal: i32) -> bool {
    matches!(signal, libc::SIGTERM | libc::SIGHUP)
}

fn interrupted_text(signal: i32) -> String {
    format!("mpiexec: the job was ended by {}\n", describe_signal(signal))
}

/// Was the end requested while the last output is being written?
fn wants_end(signals: &Signals) -> bool {
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    std::iter::from_fn(|| signals.next()).any(|s| ends.contains(&s))
}

fn earliest_ms(state: &State) -> Option<u64> {
    let endings = state.parts.iter().chain(&state.ending);
    let ends = endings.flat_map(|ending| [ending.terminate_at, ending.kill_at]);
    let others = [state.timeout_at, state.grace_ends_at, state.hint_at];
    let next = ends.chain(others).flatten().min()?;
    let left = next.saturating_duration_since(Instant::now());
    // Rounded up, or the loop would turn idly through the last millisecond.
    Some(left.as_micros().div_ceil(1000) as u64)
}
