//! Whom a failure ends in a job on several hosts to which processes have been added. The agent of the rank that has
//! failed ends what it knows to be connected, and tells the first agent. That asks all agents which worlds are
//! connected and go on, and has the worlds ended that [`NodeWorlds`] names: by each agent, or all by the engine.

use crate::agent::peers::Peers;
use crate::ranks::Failure;
use crate::watch::{Ending, FINALIZED_GRACE, OTHERS_GO_ON, State, Watch, end_now};
use crate::worlds::{NodeWorlds, list_ranks};
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::control::{Answer, Request, WorldFailure};
use fastpath_bootstrap::engine::abort_job;
use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

/// What the first agent has said of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The worlds that end. None: the job.
    pub worlds: BTreeSet<u32>,
    /// Who has failed.
    pub failure: WorldFailure,
}

impl Watch<'_> {
    /// Tells the first agent of a failure, of which it has not heard.
    pub fn tell_failure(&mut self, failure: &Failure, ending: &Ending) {
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
            return self.decide(told);
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

    /// As the first agent, finds out whom a failure ends, and has them ended.
    pub fn decide(&mut self, failure: WorldFailure) {
        let own = self.read_worlds();
        let Some(agent) = &mut self.agent else {
            return;
        };
        let Some(peers) = agent.peers().cloned() else {
            return;
        };
        // What follows from another failure: the agent hears of that one.
        if agent.ended.0.contains(&failure.world) {
            return;
        }
        let code = *agent.ended.1.get_or_insert(failure.code);
        let failure = WorldFailure { code, ..failure };
        let failed_on = agent.node_of(failure.rank as usize);
        let worlds = gather(&peers, own).find_ended(failure.world);
        agent.ended.0.extend(worlds.iter().flatten());
        let is_whole = worlds.is_none();
        let worlds = worlds.unwrap_or_default();
        let request = Request::End { worlds: worlds.iter().copied().collect(), failure };
        for node in 1..peers.nodes() {
            if !is_whole || node == failed_on {
                // One whose ranks have all ended has none to end.
                let _ = peers.ask(node, &request);
            }
        }
        if !is_whole || failed_on == 0 {
            self.orders.push(Order { worlds, failure });
        }
    }

    /// The worlds of this node's ranks.
    pub fn read_worlds(&self) -> NodeWorlds {
        NodeWorlds::read(self.segment, |rank| self.ranks.goes_on(rank))
    }

    /// Ends what the first agent has said is to end.
    pub fn obey(&mut self, state: &mut State) {
        for Order { worlds, failure } in std::mem::take(&mut self.orders) {
            if state.ending.is_some() {
                return;
            }
            let own = |part: &Ending| part.asked_for == Some(failure.rank);
            if worlds.is_empty() {
                let Some(at) = state.parts.iter().position(own) else {
                    continue;
                };
                let all: Vec<usize> = self.segment.node_ranks().collect();
                self.ranks.mark_ended(&all, self.segment);
                state.ending = Some(state.parts.remove(at).of_job(failure.code as i32));
                return;
            }
            let here = list_ranks(self.segment, &worlds);
            for part in &mut state.parts {
                if own(part) {
                    part.text += OTHERS_GO_ON;
                } else if part.asked_for.is_some_and(|rank| here.contains(&(rank as usize))) {
                    // It follows from the other one, which is told.
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
            state.parts.push(Ending { ranks: Some(here), ..ending });
        }
    }
}

/// The worlds of all nodes; `own`: of the first one.
fn gather(peers: &Peers, own: NodeWorlds) -> NodeWorlds {
    let mut all = own;
    for node in 1..peers.nodes() {
        // One that does not answer has no ranks any more.
        if let Ok(Answer::Worlds { linked, going_on }) = peers.ask(node, &Request::Worlds) {
            let [linked, going_on] = [linked, going_on].map(|list| list.into_iter().collect());
            all.add(NodeWorlds { linked, going_on });
        }
    }
    all
}
