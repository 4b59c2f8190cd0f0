//! Decides which ranks a failure ends, in a job on several hosts with spawned processes. The failed rank's agent ends
//! the local ranks that it knows to be connected, and informs the first agent. The first agent collects, from all
//! agents, the connected worlds that continue. Then each agent ends the worlds that [`NodeWorlds`] names, or the engine
//! ends the job.

use super::super::{FINALIZED_GRACE, JobWatch, OTHERS_GO_ON, Termination, WatchState, end_now};
use super::rounds::Task;
use crate::agent::peers::Peers;
use crate::ranks::Failure;
use crate::worlds::{NodeWorlds, list_ranks};
use fastpath_base::sync::Ordering;
use fastpath_job::control::{Answer, Request, WorldFailure};
use fastpath_job::engine::abort_job;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

/// Time within which a refused call shows that the agent has ended: its host refuses at once if no process listens
/// there. A later refusal may come from another address of the host, after the first address has not answered.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Entry among the ended worlds that stands for the whole job.
const ALL: u32 = u32::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDecision {
    /// Worlds that end; empty for the whole job.
    pub worlds: BTreeSet<u32>,
    pub failure: WorldFailure,
}

impl JobWatch<'_> {
    /// Queues a failure in the first agent, or reports it to that agent. Ends the job if the report fails.
    pub fn tell_failure(&mut self, failure: &Failure, ending: &Termination) {
        let page = self.segment.page(failure.rank);
        let told = WorldFailure {
            world: page.map_or(0, |page| page.world_first.load(Ordering::Relaxed)),
            rank: failure.rank as u32,
            code: ending.code as u32,
            is_late: ending.is_late(),
        };
        let Some(agent) = &self.agent else {
            return;
        };
        if agent.node() == 0 {
            return self.take_turn(Task::Failure(told));
        }
        let peers = agent.peers().cloned();
        let tell = move || {
            let answer = peers.map(|peers| peers.ask(0, &Request::Failed(told)));
            if !matches!(answer, Some(Ok(Answer::Done))) {
                abort_job(told.code as i32);
            }
        };
        if thread::Builder::new().stack_size(1 << 18).spawn(tell).is_err() {
            abort_job(told.code as i32);
        }
    }

    /// In the first agent, decides which ranks a failure ends, and orders the agents to end them.
    pub fn decide(&mut self, failure: WorldFailure) {
        let own = self.read_worlds();
        let Some(agent) = &mut self.agent else {
            return;
        };
        let Some(peers) = agent.peers().cloned() else {
            return;
        };
        // The failure is a consequence of another failure, and its agent gets the decision about that one.
        if [failure.world, ALL].iter().any(|world| agent.ended.0.contains(world)) {
            return;
        }
        let code = *agent.ended.1.get_or_insert(failure.code);
        let failure = WorldFailure { code, ..failure };
        let staying = self.control.staying();
        let asked = peers.clone();
        let ask = move || gather(&asked, own, staying);
        self.ask_beside(ask, move |watch, gathered| watch.order_end(peers, failure, gathered));
    }

    /// Orders the agents to end the ranks that the failure ends. `gathered` has the worlds of all nodes, and the nodes
    /// that have answered, or the text of an error.
    fn order_end(
        &mut self, peers: Peers, failure: WorldFailure,
        gathered: Result<(NodeWorlds, Vec<usize>), String>,
    ) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let failed_on = agent.node_of(failure.rank as usize);
        let (worlds, nodes, fault) = match gathered {
            Ok((all, nodes)) => (all.find_ended(failure.world), nodes, None),
            // The affected worlds are unknown, so the whole job ends.
            Err(text) => (None, Vec::new(), Some(text)),
        };
        agent.ended.0.extend(worlds.iter().flatten());
        let is_whole = worlds.is_none();
        let worlds = worlds.unwrap_or_default();
        let request = Request::End { worlds: worlds.iter().copied().collect(), failure };
        let nodes = if is_whole { vec![failed_on] } else { nodes };
        let tell = move || {
            let mut fault = fault;
            let mut is_deaf = false;
            for node in nodes.into_iter().filter(|&node| node != 0) {
                let text = match ask(&peers, node, &request) {
                    Ok(Some(Answer::Done)) => continue,
                    // The agent has ended meanwhile, so no rank is left there.
                    Ok(None) if !is_whole => continue,
                    Ok(_) => {
                        let host = peers.host(node);
                        format!("mpiexec on host {host} cannot end the ranks on that host")
                    }
                    Err(text) => text,
                };
                is_deaf = true;
                fault.get_or_insert(text);
            }
            (is_deaf, fault)
        };
        self.ask_beside(tell, move |watch, (is_deaf, fault)| {
            // If an agent cannot be reached, its ranks and their peers would keep running. In that case, this agent
            // ends the job.
            let worlds = if is_deaf { BTreeSet::new() } else { worlds };
            if let Some(text) = fault {
                watch.say_that_all_end(failure.rank, &text);
            }
            if !is_whole || failed_on == 0 || is_deaf {
                watch.orders.push(FailureDecision { worlds, failure });
            }
        });
    }

    fn say_that_all_end(&mut self, rank: u32, why: &str) {
        if let Some(agent) = &mut self.agent {
            agent.ended.0.insert(ALL);
        }
        self.outputs.say(&format!(
            "mpiexec: rank {rank} has failed, and not every host replies, so the whole job ends:\n\
             mpiexec:   {why}\n"
        ));
    }

    pub fn read_worlds(&self) -> NodeWorlds {
        NodeWorlds::read(self.segment, |rank| self.ranks.goes_on(rank))
    }

    /// Ends the ranks that the first agent has ordered to end.
    pub fn obey(&mut self, state: &mut WatchState) {
        for FailureDecision { worlds, failure } in std::mem::take(&mut self.orders) {
            if state.ending.is_some() {
                return;
            }
            let own = |part: &Termination| part.asked_for == Some(failure.rank);
            if worlds.is_empty() {
                // `parts` has no entry for the failure if the failed rank is on another node whose agent could not be
                // reached.
                let part = state.parts.iter().position(own).map(|at| state.parts.remove(at));
                let code = failure.code as i32;
                let ending = part.unwrap_or_else(|| end_now(code, String::new()));
                let all: Vec<usize> = self.segment.node_ranks().collect();
                self.ranks.mark_ended(&all, self.segment);
                state.ending = Some(ending.of_job(code));
                return;
            }
            let here = list_ranks(self.segment, &worlds);
            for part in &mut state.parts {
                if own(part) {
                    part.text += OTHERS_GO_ON;
                } else if part.asked_for.is_some_and(|rank| here.contains(&(rank as usize))) {
                    // This failure is a consequence of the other failure, which is reported.
                    part.text.clear();
                } else {
                    continue;
                }
                part.asked_for = None;
            }
            self.ranks.mark_ended(&here, self.segment);
            let mut ending = end_now(failure.code as i32, String::new());
            if failure.is_late {
                ending.terminate_at = Some(Instant::now() + FINALIZED_GRACE);
            }
            state.parts.push(Termination { ranks: Some(here), ..ending });
        }
    }
}

/// Collects the worlds of all nodes, and the other nodes that answered. `own` holds the worlds of the first node.
/// `staying` is the number of other nodes with a live agent, as far as this agent knows.
///
/// # Errors
/// An agent that may have ranks does not answer. The text is for users.
fn gather(
    peers: &Peers, own: NodeWorlds, staying: usize,
) -> Result<(NodeWorlds, Vec<usize>), String> {
    let (mut all, mut nodes, mut fault) = (own, Vec::new(), None);
    for node in 1..peers.nodes() {
        match ask(peers, node, &Request::Worlds) {
            Ok(Some(Answer::Worlds { linked, going_on })) => {
                let [linked, going_on] = [linked, going_on].map(|list| list.into_iter().collect());
                all.add(NodeWorlds { linked, going_on });
                nodes.push(node);
            }
            // The node has no ranks any more.
            Ok(None) => {}
            Ok(Some(_)) => {
                let host = peers.host(node);
                fault =
                    Some(format!("mpiexec on host {host} does not report the state of its ranks"));
            }
            Err(text) => fault = Some(text),
        }
    }
    // If all staying agents have answered, the other agents have ended: a failed call to one of them does not matter.
    match fault {
        Some(text) if nodes.len() < staying => Err(text),
        _ => Ok((all, nodes)),
    }
}

/// Returns an agent's answer; None if it has ended, with all of its ranks.
///
/// # Errors
/// The agent does not answer, and may still have ranks. The text is for users.
fn ask(peers: &Peers, node: usize, request: &Request) -> Result<Option<Answer>, String> {
    let since = Instant::now();
    let is_at_once = || since.elapsed() < AT_ONCE;
    // The agent may have ended after it accepted the call. Call once more: the second call is then refused.
    let again = |error| if is_at_once() { peers.try_ask(node, request) } else { Err(error) };
    match peers.try_ask(node, request).or_else(again) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_at_once() && is_closed(&error) => Ok(None),
        Err(error) => Err(peers.describe_silence(node, &error)),
    }
}

/// Whether a call failed because no process listens any more, and not, for instance, by a time limit.
fn is_closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn agent__has_ended_where_it_refuses_but_not_where_time_runs_out() {
        let is_closed = |code| is_closed(&io::Error::from_raw_os_error(code));
        assert!([libc::ECONNREFUSED, libc::ECONNRESET, libc::EPIPE].map(is_closed) == [true; 3]);
        assert!([libc::EAGAIN, libc::ETIMEDOUT, libc::EHOSTUNREACH].map(is_closed) == [false; 3]);
    }
}
