//! One node's agent in a job on several nodes. Before any rank runs, the agents exchange addresses through the engine
//! that started them.
//!
//! Each agent opens a listener for each of its ranks, puts one value for the node, and reads the other values after one
//! fence. Then it has the address of every rank. While the job runs, agents connect to each other directly ([`peers`]).

mod message;
pub mod peers;
mod pulse;

use crate::args::TIMEOUT_CODE;
use fastpath_base::config::Config;
use fastpath_base::entropy::draw_random;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::tell;
use fastpath_job::detect::{LaunchPlace, Launcher, Protocol, SingletonReason};
use fastpath_job::engine::{Aborter, Engine, abort_job};
use fastpath_job::network::proof::Pass;
use fastpath_job::network::{self, Listener, NetworkCard, Reach};
use fastpath_job::{find_place, random_job_id};
use fastpath_segment::{RemoteRank, Segment, SegmentError, SpareRanks};
use message::NodeMessage;
use peers::{AgentListener, Peers};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::process::parent_id;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time that agents wait for each other. ssh gives up an unresponsive host earlier.
const ALL_COME: Duration = Duration::from_secs(180);
/// Delay of the error message of agents other than the first. The engine usually ends them before.
const FIRST_SPEAKS: Duration = Duration::from_secs(5);

const KEY: &str = "node";

#[derive(Debug)]
pub struct Agent {
    engine: pulse::SharedEngine,
    aborter: Aborter,
    /// Process number of the engine's process that started this process.
    parent: u32,
    /// Whether `srun` has ended. None if `srun` is not watched; only the first agent watches it.
    is_lost: Option<Arc<StaticBool>>,
    /// Time at which all agents had connected. The job's time limit counts from it.
    met: Instant,
    node: usize,
    /// Initial number of ranks on each node.
    counts: Vec<usize>,
    added: Vec<u32>,
    peers: Option<Peers>,
    /// Channel that disconnects when the first agent knows that this node's ranks run. None in the first agent, or once
    /// taken.
    staying: Option<Receiver<()>>,
    /// Listener for other agents; None once [`Agent::take_door`] has taken it.
    door: Option<AgentListener>,
    processors: u32,
    /// Whether a rank of this node has published a name.
    pub has_published: bool,
    /// In the first agent: worlds ended by failures, and the exit code of the first such world, if any.
    pub ended: (BTreeSet<u32>, Option<u32>),
    /// Listening sockets of this node's ranks, until the ranks start.
    listeners: Vec<Listener>,
    job_id: u64,
    secret: [u8; 32],
    /// Network card of each rank of the job.
    cards: Vec<Vec<u8>>,
}

impl Agent {
    /// Finds the engine that started this process, and exchanges rank addresses with the other agents. `counts` holds
    /// the number of ranks of each node, `processors` is the number of processors of this node, and `limit` bounds the
    /// job's time.
    ///
    /// # Errors
    /// There is no engine, the number of agents differs, no port is free, or an agent has another version.
    pub fn join(
        counts: &[usize], processors: usize, config: &Config, limit: Option<Duration>,
    ) -> Result<Agent, String> {
        // Read the parent's process number before the engine is contacted: if the engine ends later, this process gets
        // another parent, so the number differs.
        let parent = parent_id();
        let describe = |e| format!("--agent: cannot connect to the launch engine: {e}");
        let (protocol, launcher) = find_engine().ok_or(
            "--agent is an internal option of launch engines, and none started this \
                    process; omit it",
        )?;
        let mut engine = Engine::connect(protocol).map_err(describe)?;
        let about = engine.about();
        if about.size != counts.len() {
            return Err(format!(
                "the launch engine has started {} mpiexec agents for {} hosts, not one for each \
                 host; check the engine's configuration and environment variables, or choose \
                 another engine with --engine",
                about.size,
                counts.len()
            ));
        }
        let mut agent = Agent {
            aborter: engine.aborter().map_err(describe)?,
            parent,
            is_lost: None,
            met: Instant::now(),
            node: about.rank,
            counts: counts.to_vec(),
            added: Vec::new(),
            peers: None,
            staying: None,
            door: None,
            processors: processors as u32,
            has_published: false,
            ended: (BTreeSet::new(), None),
            listeners: Vec::new(),
            job_id: 0,
            secret: [0; 32],
            cards: Vec::new(),
            engine: Arc::default(),
        };
        agent.exchange(&mut engine, config, limit)?;
        agent.engine = Arc::new(Mutex::new(Some(engine)));
        if (launcher, protocol, agent.node) == (Launcher::Slurm, Protocol::Pmi1, 0) {
            agent.is_lost = pulse::watch(&agent.engine);
        }
        Ok(agent)
    }

    pub fn met(&self) -> Instant {
        self.met
    }

    /// Returns which part of the engine has ended, if any: the parent process or `srun`.
    pub fn lost_engine(&self) -> Option<String> {
        // ORDERING: acquire; partner is the release store of the thread in `pulse::watch`. No other data is passed.
        let is_lost = |lost: &Arc<StaticBool>| lost.load(Ordering::Acquire);
        if self.is_lost.as_ref().is_some_and(is_lost) {
            return Some("srun".to_owned());
        }
        let is_gone = parent_id() != self.parent;
        is_gone.then(|| format!("the process of the launch engine ({})", self.parent))
    }

    pub fn local(&self) -> Range<usize> {
        self.ranks_of(self.node)
    }

    pub fn node(&self) -> usize {
        self.node
    }

    /// Returns the connections to the agents of all nodes; None if agents cannot connect.
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.as_ref()
    }

    pub fn take_staying(&mut self) -> Option<Receiver<()>> {
        self.staying.take()
    }

    pub fn take_door(&mut self) -> Option<AgentListener> {
        self.door.take()
    }

    pub fn add(&mut self, nodes: &[u32]) {
        self.added.extend_from_slice(nodes);
    }

    pub fn node_of(&self, rank: usize) -> usize {
        let began_with: usize = self.counts.iter().sum();
        if let Some(added) = rank.checked_sub(began_with) {
            return self.added.get(added).map_or(0, |&node| node as usize);
        }
        let mut end = 0;
        let ends = self.counts.iter().map(|count| {
            end += count;
            end
        });
        ends.take_while(|&end| end <= rank).count()
    }

    pub fn ranks_of(&self, node: usize) -> Range<usize> {
        let first: usize = self.counts[..node].iter().sum();
        first..first + self.counts[node]
    }

    fn exchange(
        &mut self, engine: &mut Engine, config: &Config, limit: Option<Duration>,
    ) -> Result<(), String> {
        let ranks = self.local().len();
        // One port more than ranks is needed, for the agent's own listener.
        let (own_listener, own_card) = network::open(config, Reach::Network, ranks + 1)?;
        let mut own = NodeMessage {
            job_id: random_job_id(),
            secret: draw_random().map_err(|e| e.to_string())?,
            processors: self.processors,
            agent: own_card.encode(),
            cards: Vec::new(),
        };
        for _ in 0..ranks {
            let (listener, card) = network::open(config, Reach::Network, ranks + 1)?;
            self.listeners.push(listener);
            own.cards.push(card.encode());
        }
        let describe =
            |e| format!("cannot exchange the addresses of the ranks with the other nodes: {e}");
        let put = engine.put(KEY, &own.encode());
        let aborter = put.and_then(|()| engine.aborter()).map_err(describe)?;
        let met = end_unless_met(aborter, self.node, limit);
        engine.fence().map_err(describe)?;
        drop(met);
        self.met = Instant::now();
        let mut agents = Vec::new();
        self.processors = 0;
        for node in 0..self.counts.len() {
            let said = engine.get(node, KEY).map_err(describe)?;
            let said = said.as_deref().and_then(NodeMessage::decode);
            let is_whole = |said: &NodeMessage| {
                let is_card = |card: &Vec<u8>| NetworkCard::decode(card).is_some();
                let mut all = said.cards.iter().chain([&said.agent]);
                said.cards.len() == self.counts[node] && all.all(is_card)
            };
            let said = said.filter(is_whole);
            let said = said.ok_or_else(|| {
                format!(
                    "the message of mpiexec on node {node} is invalid; install the same version \
                     of Fastpath on all nodes"
                )
            })?;
            if node == 0 {
                (self.job_id, self.secret) = (said.job_id, said.secret);
            }
            agents.extend(NetworkCard::decode(&said.agent));
            self.processors = self.processors.saturating_add(said.processors);
            self.cards.extend(said.cards);
        }
        let pass = Pass { job_id: self.job_id, secret: self.secret };
        self.door = Some(AgentListener::new(own_listener, pass, self.node as u32));
        let peers = Peers::new(pass, self.node, agents);
        if self.node != 0 {
            self.staying = Some(peers.stay());
        }
        self.peers = Some(peers);
        Ok(())
    }

    /// Creates this node's segment, with room for `spare` further ranks on any of the nodes.
    pub fn make_memory(&self, spare: usize) -> Result<Segment, SegmentError> {
        let here: Vec<usize> = self.local().collect();
        let spare = SpareRanks { ranks: spare, foreign: 0 };
        Segment::create_for_node(&here, self.counts.iter().sum(), spare, self.job_id)
    }

    /// Largest initial number of ranks on a node. All nodes derive their room for further ranks from it,
    /// so that the room is equal.
    pub fn most_ranks(&self) -> usize {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Writes the secret and the card of each rank of the job to this node's segment.
    pub fn fill(&self, segment: &Segment) -> Result<(), SegmentError> {
        let header = segment.header();
        header.set_secret(&self.secret);
        let nodes = self.counts.len() as u32;
        header.nodes.store(nodes, Ordering::Relaxed);
        header.universe.store(self.processors, Ordering::Relaxed);
        for node in 0..self.counts.len() {
            let host = node as u32;
            for rank in self.ranks_of(node) {
                let card = &self.cards[rank];
                match segment.page(rank).filter(|_| node == self.node) {
                    Some(page) => {
                        page.host.store(host, Ordering::Relaxed);
                        page.network.store(card);
                    }
                    None => segment.tell(rank, RemoteRank { host, card })?,
                }
            }
        }
        Ok(())
    }

    pub fn take_listener(&mut self) -> Option<Listener> {
        match self.listeners.is_empty() {
            true => None,
            false => Some(self.listeners.remove(0)),
        }
    }

    /// Leaves the engine after this node's ranks have ended with `code`. A code other than 0 ends the job on all nodes.
    pub fn leave(&mut self, code: i32) {
        if code != 0 {
            return self.aborter.abort(code);
        }
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = engine.take().map(|mut engine| engine.finalize());
    }
}

/// Finds the protocol and the kind of the engine that started this process.
fn find_engine() -> Option<(Protocol, Launcher)> {
    let claim = match find_place() {
        LaunchPlace::Several(claim) | LaunchPlace::Alone(SingletonReason::OfOne(claim)) => claim,
        _ => return None,
    };
    Some((claim.protocol?, claim.launcher))
}

/// Ends the job after this agent has failed, perhaps before it joined the other agents. An engine may ignore that an
/// agent has ended, and the other agents would then wait for it.
pub fn end_job(code: i32) {
    if !abort_job(code)
        && let Some((protocol, _)) = find_engine()
        && let Ok(_engine) = Engine::connect(protocol)
    {
        abort_job(code);
    }
}

/// Ends the job unless the returned sender is dropped in time. An engine may silently start no agent on a host, for
/// instance where Fastpath is missing.
fn end_unless_met(aborter: Aborter, node: usize, limit: Option<Duration>) -> Sender<()> {
    let (met, wait) = channel();
    let is_told = limit.is_some_and(|limit| limit < ALL_COME);
    let limit = limit.unwrap_or(ALL_COME).min(ALL_COME);
    let look = move || {
        let later = if node == 0 { Duration::ZERO } else { FIRST_SPEAKS };
        if wait.recv_timeout(limit + later) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let (code, told) = if is_told { (TIMEOUT_CODE, " (--timeout)") } else { (1, "") };
        let place = std::env::current_exe().unwrap_or_default();
        tell!(
            "mpiexec: on at least one host no rank has started within {} s{told}; check that {} \
             can be started on every host",
            limit.as_secs_f64(),
            place.display()
        );
        aborter.abort(code);
    };
    // If the thread cannot be started, nothing but the engine ends a job whose agents do not meet.
    let _ = thread::Builder::new().stack_size(1 << 17).spawn(look);
    met
}
