//! Requests of ranks in a job on several hosts. Each agent answers for the ports of its ranks. The first agent keeps
//! the names of services and places spawned processes.
//!
//! A spawn has two steps. The agents of the new ranks' hosts resolve the programs and open listeners. Then all agents
//! make room for these ranks, with node and card of each, and the prepared agents start theirs. The spawning rank is
//! answered after that: a rank that learns of the new ranks finds them in the segment of its host.

pub mod failures;
pub mod rounds;

use super::JobWatch;
use super::dynamic::{
    NewRanks, SpawnRefusal, answer_for, is_this_host, list_programs, name_program,
};
use crate::agent::Agent;
use crate::agent::peers::Peers;
use crate::control::Client;
use crate::start::PreparedProgram;
use crate::worlds::NodeWorlds;
use failures::FailureDecision;
use fastpath_base::config::Config;
use fastpath_base::sync::Ordering;
use fastpath_job::control::{Answer, Cause, PortRequest, Program, Request};
use fastpath_job::network::{self, Listener, Reach};
use fastpath_segment::has_left;
use rounds::Task;
use std::thread;

pub struct PendingSpawn {
    prepared: Vec<PreparedProgram>,
    names: Vec<String>,
    /// Listeners of this node's new ranks, each with the index of its rank among all new ranks.
    listeners: Vec<(usize, Listener)>,
    /// Places of ended ranks for this node's new ranks.
    places: Vec<usize>,
}

struct SpawnPlan {
    root: usize,
    programs: Vec<Program>,
    counts: Vec<u32>,
    nodes: Vec<u32>,
    cards: Vec<Vec<u8>>,
}

impl SpawnPlan {
    fn counts_on(&self, node: usize) -> usize {
        self.nodes.iter().filter(|&&of| of as usize == node).count()
    }

    fn take_cards(
        &mut self, peers: &Peers, node: usize, answer: Answer,
    ) -> Result<(), SpawnRefusal> {
        let count = self.counts_on(node);
        let Answer::Ready { cards } = answer else {
            return Err(unexpected());
        };
        if cards.len() != count {
            let host = peers.host(node);
            return Err(SpawnRefusal::all(format!(
                "host {host} has prepared {} ranks to spawn instead of {count}",
                cards.len()
            )));
        }
        let here = self.nodes.iter().map(|&of| of as usize == node);
        let places = self.cards.iter_mut().zip(here).filter(|(_, is_here)| *is_here);
        places.zip(cards).for_each(|((place, _), card)| *place = card);
        Ok(())
    }
}

/// Reason for giving up a spawn whose answer would be lost.
const UNHEARD: &str = "the rank that requested the spawn no longer waits for the reply";

type Answers = Vec<(usize, Result<Answer, String>)>;

/// Sends a request to agents one after the other. Stops after the first that refuses or does not answer.
fn ask_until_refused(peers: &Peers, nodes: &[usize], request: &Request) -> Answers {
    let mut answers = Answers::new();
    for &node in nodes {
        let answer = peers.ask(node, request);
        let is_last = !matches!(answer, Ok(Answer::Ready { .. }));
        answers.push((node, answer));
        if is_last {
            break;
        }
    }
    answers
}

/// Forwards a request to the agent of another node, and its answer to the client, without blocking this agent.
fn forward(peers: &Peers, node: usize, client: Client, request: Request) {
    let peers = peers.clone();
    let answer = move || {
        let answer = peers.ask(node, &request);
        client.reply(&answer.unwrap_or_else(|text| Answer::refuse(Cause::Malformed, text)));
    };
    // If no thread can be started, the client's connection closes.
    let _ = thread::Builder::new().stack_size(1 << 18).spawn(answer);
}

/// Returns the node of each new rank. `wanted` is the requested node of each program. Ranks of a program without a
/// requested node are spread evenly in blocks, from the root's node on.
fn place_ranks(counts: &[u32], wanted: &[Option<usize>], root: usize, nodes: usize) -> Vec<u32> {
    let app_of = list_programs(counts);
    let is_free = |&&app: &&usize| wanted.get(app).is_none_or(Option::is_none);
    let free = app_of.iter().filter(is_free).count();
    let mut number = 0;
    let mut spread = || {
        number += 1;
        (root + (number - 1) * nodes.min(free) / free) % nodes
    };
    let place = |&app: &usize| wanted.get(app).copied().flatten().unwrap_or_else(&mut spread);
    app_of.iter().map(place).map(|node| node as u32).collect()
}

impl JobWatch<'_> {
    /// Answers a request, or forwards it to another agent.
    pub fn serve_on_hosts(&mut self, client: Client, request: Request) {
        let Some((agent, peers)) = self.agent.as_mut().and_then(|agent| {
            let peers = agent.peers()?.clone();
            Some((agent, peers))
        }) else {
            return;
        };
        let own = agent.node();
        if let (Request::Input, true, 0) = (&request, client.is_agent(), own) {
            if let Some(input) = &mut self.input {
                input.add(client.into_socket(), &self.poller);
            }
            return;
        }
        if let (Request::Failed(failure), true, 0) = (&request, client.is_agent(), own) {
            // Reply at once, because the decision below sends requests to all agents, also to the sender.
            client.reply(&Answer::Done);
            return self.take_turn(Task::Failure(*failure));
        }
        let at = match &request {
            Request::Knock { rank, .. } => agent.node_of(*rank as usize),
            Request::Publish { .. } => {
                agent.has_published = true;
                0
            }
            Request::Spawn { .. }
            | Request::Unpublish { .. }
            | Request::Lookup { .. }
            | Request::Number { .. } => 0,
            _ => own,
        };
        if at != own && client.is_agent() {
            let text = "the request must go to mpiexec on another host";
            return client.reply(&Answer::refuse(Cause::Malformed, text));
        }
        if at != own {
            return forward(&peers, at, client, request);
        }
        let from_first = client.is_agent() && own != 0;
        let answer = match request {
            Request::Spawn { root, programs } => {
                let root = root as usize;
                return self.take_turn(Task::Spawn { client, root, programs });
            }
            Request::Number { foreign } => {
                return self.take_turn(Task::Number { client, foreign });
            }
            Request::Knock { rank, number, caller, visit } => {
                self.knock(rank as usize, number, caller, visit)
            }
            // Too late: the first agent has stopped waiting, and will not revoke the request.
            Request::Prepare { .. } | Request::Add { .. } if client.has_left() => return,
            Request::Prepare { nodes, programs } if from_first => {
                answer_for(self.prepare_here(&nodes, &programs))
            }
            Request::Add { root, first, counts, nodes, cards } if from_first => {
                answer_for(self.add_here(root as usize, first as usize, &counts, &nodes, &cards))
            }
            Request::AddForeign { first, foreign } if from_first => {
                match self.add_foreign(first, &foreign) {
                    Ok(()) => Answer::Done,
                    Err(text) => Answer::refuse(Cause::Spawn, text),
                }
            }
            Request::GiveUp { first } if from_first => {
                self.ranks.give_up(first as usize, self.segment);
                Answer::Done
            }
            Request::Worlds if from_first => {
                let NodeWorlds { linked, going_on } = self.read_worlds();
                let [linked, going_on] = [linked, going_on].map(|set| set.into_iter().collect());
                Answer::Worlds { linked, going_on }
            }
            Request::End { worlds, failure } if from_first => {
                self.orders.push(FailureDecision { worlds: worlds.into_iter().collect(), failure });
                Answer::Done
            }
            Request::Died { rank } if client.is_agent() => {
                self.mark_dead_elsewhere(rank as usize);
                Answer::Done
            }
            Request::Forget { .. } if !client.is_agent() => Answer::refuse(
                Cause::Malformed,
                "only mpiexec of another host may send this request",
            ),
            request => self.control.answer(&request),
        };
        client.reply(&answer);
    }

    /// Records the death of a rank of another node, and signals the ranks of this node.
    fn mark_dead_elsewhere(&self, rank: usize) {
        if self.ranks.tolerates_failures() && self.segment.place(rank).is_none() {
            self.segment.mark_dead(rank);
            self.segment.signal_ends_to_all();
            self.segment.wake_all();
        }
    }

    /// Reports the death of a rank of this node to the agents of the other nodes. An agent that does not answer has no
    /// ranks left, or its host is lost.
    pub fn report_death(&self, rank: usize) {
        let Some((agent, peers)) =
            self.agent.as_ref().and_then(|agent| Some((agent, agent.peers()?.clone())))
        else {
            return;
        };
        let own = agent.node();
        let tell = move || {
            let others = (0..peers.nodes()).filter(|&node| node != own);
            others.for_each(|node| drop(peers.ask(node, &Request::Died { rank: rank as u32 })));
        };
        let _ = thread::Builder::new().stack_size(1 << 18).spawn(tell);
    }

    /// Withdraws the service names that an ended rank of this node has published.
    pub fn forget_elsewhere(&self, owner: u32) {
        if let Some(agent) = self.agent.as_ref().filter(|agent| agent.has_published)
            && agent.node() != 0
            && let Some(peers) = agent.peers().cloned()
        {
            let tell = move || drop(peers.ask(0, &Request::Forget { owner }));
            let _ = thread::Builder::new().stack_size(1 << 18).spawn(tell);
        }
    }

    /// Sends a port request of a rank of another node to a rank of this node.
    fn knock(&self, rank: usize, number: u32, caller: u32, visit: PortRequest) -> Answer {
        let page = self.segment.page(rank);
        let Some(page) = page.filter(|_| rank < self.segment.present()) else {
            return Answer::refuse(Cause::Name, "is not a port of a rank of this job");
        };
        // ORDERING: acquire; pairs with the release of a rank that leaves the job.
        if has_left(page.state.load(Ordering::Acquire)) {
            return Answer::refuse(Cause::Name, "belongs to a rank that has finalized MPI");
        }
        match page.knock(number, caller, visit) {
            Some(what) => Answer::Knocked(what),
            None => Answer::refuse(Cause::Name, "is closed"),
        }
    }

    /// Begins a spawn on the hosts of the job. Answers when all hosts have started their ranks.
    pub fn begin_spawn(&mut self, client: Client, root: usize, programs: Vec<Program>) {
        match self.plan_spawn(root, programs) {
            Err(refused) => client.reply(&answer_for(Err(refused))),
            Ok((peers, plan)) => {
                let request =
                    Request::Prepare { nodes: plan.nodes.clone(), programs: plan.programs.clone() };
                let nodes = (1..peers.nodes()).filter(|&node| plan.counts_on(node) > 0);
                let nodes: Vec<usize> = nodes.collect();
                let asked = peers.clone();
                let ask = move || ask_until_refused(&asked, &nodes, &request);
                self.ask_beside(ask, move |watch, prepared| {
                    watch.add_everywhere(client, peers, plan, prepared);
                });
            }
        }
    }

    fn plan_spawn(
        &mut self, root: usize, mut programs: Vec<Program>,
    ) -> Result<(Peers, SpawnPlan), SpawnRefusal> {
        if root >= self.segment.present() {
            return Err(SpawnRefusal::all(format!("the job has no rank {root}")));
        }
        let agent = self.agent.as_ref();
        let root_node = agent.map_or(0, |agent| agent.node_of(root));
        let Some(peers) = agent.and_then(Agent::peers).cloned() else {
            return Err(SpawnRefusal::all("mpiexec cannot reach the other hosts of the job"));
        };
        let mut wanted = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let node = find_host(&peers, program, root_node);
            wanted.push(node.map_err(|text| SpawnRefusal::one(number, text))?);
        }
        let counts = self.choose_counts(&programs)?;
        for (program, &count) in programs.iter_mut().zip(&counts) {
            program.counts = vec![count];
        }
        let nodes = place_ranks(&counts, &wanted, root_node, peers.nodes());
        let mut plan =
            SpawnPlan { root, cards: vec![Vec::new(); nodes.len()], counts, nodes, programs };
        if plan.counts_on(0) > 0 {
            let answer = self.prepare_here(&plan.nodes, &plan.programs)?;
            plan.take_cards(&peers, 0, answer)?;
        }
        Ok((peers, plan))
    }

    /// Adds the new ranks on each host, and has each host start its own, after all hosts have resolved the programs.
    fn add_everywhere(
        &mut self, client: Client, peers: Peers, mut plan: SpawnPlan, prepared: Answers,
    ) {
        let on_host = |node, refused: SpawnRefusal| refused.on_host(peers.host(node));
        let first = self.segment.present();
        let taken = prepared.into_iter().try_for_each(|(node, answer)| {
            let is_ready = |answer: &Answer| matches!(answer, Answer::Ready { .. });
            let answer = expect(answer, is_ready).map_err(|refused| on_host(node, refused))?;
            plan.take_cards(&peers, node, answer)
        });
        let unheard = client.has_left().then_some(UNHEARD);
        let taken = taken.and_then(|()| match unheard.or_else(|| self.refuse_start(plan.root)) {
            Some(text) => Err(SpawnRefusal::all(text)),
            None => {
                let done = self.add_here(plan.root, first, &plan.counts, &plan.nodes, &plan.cards);
                done.map(|_| ())
            }
        });
        if let Err(refused) = taken {
            return self.take_back(client, peers, first, refused);
        }
        let request = Request::Add {
            root: plan.root as u32,
            first: first as u32,
            counts: plan.counts.clone(),
            nodes: plan.nodes.clone(),
            cards: std::mem::take(&mut plan.cards),
        };
        let asked = peers.clone();
        // Ignore a fault of a node without new ranks: its agent may have ended, and then needs no request.
        let all: Vec<usize> = (1..peers.nodes()).collect();
        let ask = move || {
            let mut fault = None;
            for node in all {
                let done = expect(asked.ask(node, &request), |answer| *answer == Answer::Done);
                if let Err(refused) = done
                    && plan.counts_on(node) > 0
                {
                    fault = Some(refused);
                    break;
                }
            }
            (plan.counts, fault)
        };
        self.ask_beside(ask, move |watch, (counts, fault)| match fault {
            Some(refused) => watch.take_back(client, peers, first, refused),
            None if client.has_left() => {
                watch.take_back(client, peers, first, SpawnRefusal::all(UNHEARD));
            }
            None => client.reply(&Answer::Spawned { first: first as u32, counts }),
        });
    }

    /// Ends the new ranks from `first` on, if some cannot be started or the spawning rank no longer waits.
    fn take_back(&mut self, client: Client, peers: Peers, first: usize, refused: SpawnRefusal) {
        self.pending = None;
        if self.segment.present() == first {
            return client.reply(&answer_for(Err(refused)));
        }
        self.ranks.give_up(first, self.segment);
        let first = first as u32;
        let tell = move || {
            for node in 1..peers.nodes() {
                let _ = peers.ask(node, &Request::GiveUp { first });
            }
        };
        self.ask_beside(tell, move |_, ()| client.reply(&answer_for(Err(refused))));
    }

    fn prepare_here(
        &mut self, nodes: &[u32], programs: &[Program],
    ) -> Result<Answer, SpawnRefusal> {
        // A refused request also discards the state that an earlier request prepared.
        self.pending = None;
        let own = self.agent.as_ref().map_or(0, |agent| agent.node() as u32);
        let prepared = programs.iter().enumerate();
        let prepared = prepared.map(|(number, program)| self.prepare(program, number));
        let prepared = prepared.collect::<Result<Vec<PreparedProgram>, _>>()?;
        let here: Vec<usize> = (0..nodes.len()).filter(|&new| nodes[new] == own).collect();
        let taken = self.take_places(here.len())?;
        let config = Config::from_env().unwrap_or_else(|_| Config::defaults());
        let (mut listeners, mut cards) = (Vec::new(), Vec::new());
        for new in here {
            let opened = network::open(&config, Reach::Network, nodes.len());
            let (listener, card) = opened.map_err(SpawnRefusal::all)?;
            listeners.push((new, listener));
            cards.push(card.encode());
        }
        self.pending = Some(PendingSpawn {
            prepared,
            names: programs.iter().map(name_program).collect(),
            listeners,
            places: taken,
        });
        Ok(Answer::Ready { cards })
    }

    fn add_here(
        &mut self, root: usize, first: usize, counts: &[u32], nodes: &[u32], cards: &[Vec<u8>],
    ) -> Result<Answer, SpawnRefusal> {
        let own = self.agent.as_ref().map_or(0, |agent| agent.node() as u32);
        // If this spawn has no ranks on this host, the prepared state is that of an earlier spawn, which was given up.
        let pending = self.pending.take().filter(|_| nodes.contains(&own));
        let refuse = |text: &str| Err(SpawnRefusal::all(text));
        let ranks = counts.iter().fold(0_usize, |sum, &count| sum.saturating_add(count as usize));
        let room = self.segment.capacity() - self.segment.present();
        if first != self.segment.present() || nodes.len() != ranks || cards.len() != ranks {
            return refuse("the hosts of the job disagree about the number of ranks of the job");
        }
        if ranks > room || root >= first {
            return refuse("at least one host has no room for the ranks to spawn");
        }
        if nodes.contains(&own) && pending.is_none() {
            return refuse("this host has not prepared the ranks to spawn");
        }
        let cards = cards.iter().map(Vec::as_slice);
        let new = NewRanks { root, counts, places: nodes.iter().copied().zip(cards).collect() };
        let names = pending.as_ref().map_or(&[][..], |pending| &pending.names);
        let taken = pending.as_ref().map_or(&[][..], |pending| &pending.places);
        let first = self.add_ranks(&new, names, taken)?;
        if let Some(agent) = &mut self.agent {
            agent.add(nodes);
        }
        if let Some(PendingSpawn { prepared, listeners, .. }) = pending {
            if prepared.len() != counts.len() {
                return refuse(
                    "the ranks that this host has prepared are not the ranks that the spawn \
                     request names",
                );
            }
            let starting = listeners.into_iter().map(|(own, listener)| (own, Some(listener)));
            self.start_added(first, &new, &prepared, starting.collect())?;
        }
        Ok(Answer::Done)
    }
}

fn find_host(peers: &Peers, program: &Program, root: usize) -> Result<Option<usize>, String> {
    let Some(host) = &program.host else {
        return Ok(None);
    };
    let host = String::from_utf8_lossy(host);
    if is_this_host(&host, peers.host(root)) {
        return Ok(Some(root));
    }
    let mut nodes = 0..peers.nodes();
    let found = nodes.find(|&node| peers.host(node) == host);
    found.map(Some).ok_or_else(|| {
        let hosts: Vec<&str> = (0..peers.nodes()).map(|node| peers.host(node)).collect();
        format!("host {host:?} is not a host of this job; use one of {}", hosts.join(", "))
    })
}

fn unexpected() -> SpawnRefusal {
    SpawnRefusal::all(
        "mpiexec on another host sent an unexpected reply; install the same version of Fastpath \
         on all hosts",
    )
}

fn expect(
    answer: Result<Answer, String>, is_it: impl FnOnce(&Answer) -> bool,
) -> Result<Answer, SpawnRefusal> {
    match answer {
        Ok(answer) if is_it(&answer) => Ok(answer),
        Ok(answer) => Err(SpawnRefusal::of_answer(answer).unwrap_or_else(unexpected)),
        Err(text) => Err(SpawnRefusal::all(text)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn places__are_spread_from_the_node_that_asks_or_as_wanted() {
        assert_eq!(place_ranks(&[1], &[None], 1, 3), [1]);
        assert_eq!(place_ranks(&[4], &[None], 1, 2), [1, 1, 0, 0]);
        assert_eq!(place_ranks(&[2], &[None], 0, 3), [0, 1]);
        assert_eq!(place_ranks(&[2, 3], &[Some(2), None], 0, 3), [2, 2, 0, 1, 2]);
        assert_eq!(place_ranks(&[2], &[Some(1)], 0, 2), [1, 1]);
    }
}
