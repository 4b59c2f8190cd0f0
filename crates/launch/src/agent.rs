//! One node's part of a job on several: what the agents tell each other, through the engine that has started them,
//! before any rank runs.
//!
//! Each agent opens a listener for each of its ranks, puts one value for the node, and reads the others' after one
//! fence: then it knows how every rank of the job is reached. What ranks ask while the job runs they tell each other
//! directly ([`peers`]).

mod message;
pub mod peers;
mod pulse;

use crate::watch::TIMEOUT_CODE;
use fastpath_base::config::Config;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::tell;
use fastpath_bootstrap::engine::{Aborter, Engine, abort_job};
use fastpath_bootstrap::job::detect::{Alone, LaunchPlace, Launcher, Protocol};
use fastpath_bootstrap::job::{find_place, random_job_id};
use fastpath_bootstrap::network::proof::Pass;
use fastpath_bootstrap::network::random::draw_random;
use fastpath_bootstrap::network::{self, Listener, NetworkCard, Reach};
use fastpath_bootstrap::segment::{Elsewhere, Segment, SegmentError, Spare};
use message::NodeMessage;
use peers::{Door, Peers};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::process::parent_id;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the agents wait for each other, at most. Before that ssh gives up a host that does not answer.
const ALL_COME: Duration = Duration::from_secs(180);
/// The first one says that they have not met; others say it so much later, unless the engine has ended them by then.
const FIRST_SPEAKS: Duration = Duration::from_secs(5);

/// What the value of a node is called.
const KEY: &str = "node";

/// This node's agent, and what it knows of the others.
#[derive(Debug)]
pub struct Agent {
    engine: pulse::Shared,
    aborter: Aborter,
    /// The process of the engine that has started this one.
    parent: u32,
    /// Whether `srun`, where it is the engine, has ended, as the first agent finds.
    is_lost: Option<Arc<StaticBool>>,
    /// When all agents had come: they count the job's time from there.
    met: Instant,
    node: usize,
    /// How many ranks each node began with.
    counts: Vec<usize>,
    /// The node of each rank that was spawned.
    added: Vec<u32>,
    /// The agents, as this one calls the others.
    peers: Option<Peers>,
    /// Ends when the first agent knows that this one's ranks run.
    staying: Option<Receiver<()>>,
    /// Where they come in, until that is watched.
    door: Option<Door>,
    /// Processors of all nodes.
    processors: u32,
    /// Whether a rank of this node has published a name.
    pub has_published: bool,
    /// Of the first agent: the worlds that failures have ended, and the exit code of the first of those.
    pub ended: (BTreeSet<u32>, Option<u32>),
    /// What the ranks of this node listen on, until they run.
    listeners: Vec<Listener>,
    job_id: u64,
    secret: [u8; 32],
    /// How each rank of the job is reached.
    cards: Vec<Vec<u8>>,
}

impl Agent {
    /// Finds the engine that has started this process, and exchanges with the other agents how ranks are reached.
    /// `counts`: how many ranks each node has; `processors`: how many this one has; `limit`: the time that the job has.
    ///
    /// # Errors
    /// There is no engine, or it has started another number of agents; no port; an agent of another version.
    pub fn join(
        counts: &[usize], processors: usize, config: &Config, limit: Option<Duration>,
    ) -> Result<Agent, String> {
        // Before the engine is spoken to: one that ends from here on is found out.
        let parent = parent_id();
        let describe = |e| format!("--agent: the engine that should have started it: {e}");
        let (protocol, launcher) =
            find_engine().ok_or("--agent is for engines: no engine started this process")?;
        let mut engine = Engine::connect(protocol).map_err(describe)?;
        let about = engine.about();
        if about.size != counts.len() {
            return Err(format!(
                "the engine has started {} agents for {} nodes: it must start one on each",
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

    /// When all agents had come, which is at the same moment for all of them.
    pub fn met(&self) -> Instant {
        self.met
    }

    /// What of the engine has ended, if it has: the process that had started this one, or `srun`.
    pub fn lost_engine(&self) -> Option<String> {
        // ORDERING: acquire; partner is the store of the thread that looks: nothing else is passed on.
        let is_lost = |lost: &Arc<StaticBool>| lost.load(Ordering::Acquire);
        if self.is_lost.as_ref().is_some_and(is_lost) {
            return Some("srun".to_owned());
        }
        let is_gone = parent_id() != self.parent;
        is_gone.then(|| format!("the engine's process ({})", self.parent))
    }

    /// The ranks of this node.
    pub fn local(&self) -> Range<usize> {
        self.ranks_of(self.node)
    }

    /// This node's number.
    pub fn node(&self) -> usize {
        self.node
    }

    /// The agents of all nodes; None where they cannot be called.
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.as_ref()
    }

    /// A channel that ends when the first agent knows that this one's ranks run.
    pub fn take_staying(&mut self) -> Option<Receiver<()>> {
        self.staying.take()
    }

    /// Where agents of other nodes connect, to be watched by the caller.
    pub fn take_door(&mut self) -> Option<Door> {
        self.door.take()
    }

    /// Ranks were spawned, on these nodes.
    pub fn add(&mut self, nodes: &[u32]) {
        self.added.extend_from_slice(nodes);
    }

    /// Number of the node that a rank runs on.
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

    /// The ranks that a node began with.
    pub fn ranks_of(&self, node: usize) -> Range<usize> {
        let first: usize = self.counts[..node].iter().sum();
        first..first + self.counts[node]
    }

    fn exchange(
        &mut self, engine: &mut Engine, config: &Config, limit: Option<Duration>,
    ) -> Result<(), String> {
        let ranks = self.local().len();
        // One for itself.
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
        let describe = |e| format!("telling the other nodes how ranks are reached: {e}");
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
                    "cannot understand the agent of node {node}: is another version of Fastpath \
                     there?"
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
        self.door = Some(Door::new(own_listener, pass, self.node as u32));
        let peers = Peers::new(pass, self.node, agents);
        if self.node != 0 {
            self.staying = Some(peers.stay());
        }
        self.peers = Some(peers);
        Ok(())
    }

    /// Makes this node's memory, with room for `spare` further ranks on any of the nodes.
    ///
    /// # Errors
    /// As [`Segment::create_for_node`].
    pub fn make_memory(&self, spare: usize) -> Result<Segment, SegmentError> {
        let here: Vec<usize> = self.local().collect();
        let spare = Spare { ranks: spare, foreign: 0 };
        Segment::create_for_node(&here, self.counts.iter().sum(), spare, self.job_id)
    }

    /// The ranks of the node that began with most: room for further ones is the same everywhere.
    pub fn most_ranks(&self) -> usize {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Writes what the ranks of this node find in its memory: the secret, and how each rank of the job is reached.
    ///
    /// # Errors
    /// No memory for the table of other nodes.
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
                    None => segment.tell(rank, Elsewhere { host, card })?,
                }
            }
        }
        Ok(())
    }

    /// The listening socket of one rank of this node; the first one belongs to the first rank.
    pub fn take_listener(&mut self) -> Option<Listener> {
        match self.listeners.is_empty() {
            true => None,
            false => Some(self.listeners.remove(0)),
        }
    }

    /// The ranks of this node have ended, with this code: ends the others unless it is 0.
    pub fn leave(&mut self, code: i32) {
        if code != 0 {
            return self.aborter.abort(code);
        }
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = engine.take().map(|mut engine| engine.finalize());
    }
}

/// The protocol of the engine that has started this process, and which one it is.
fn find_engine() -> Option<(Protocol, Launcher)> {
    let claim = match find_place() {
        LaunchPlace::Several(claim) | LaunchPlace::Alone(Alone::OfOne(claim)) => claim,
        _ => return None,
    };
    Some((claim.protocol?, claim.launcher))
}

/// Ends the job of an agent that fails, also before it has joined the others: an engine may take no notice of its end,
/// and they would wait for it.
pub fn end_job(code: i32) {
    if !abort_job(code)
        && let Some((protocol, _)) = find_engine()
        && let Ok(_engine) = Engine::connect(protocol)
    {
        abort_job(code);
    }
}

/// Ends the job unless what this gives is dropped in time: an engine may start no agent on a host, where Fastpath is
/// missing for one, and not say so.
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
            "mpiexec: the ranks of some host have not started within {} s{told}: can the launcher \
             start {} there?",
            limit.as_secs_f64(),
            place.display()
        );
        aborter.abort(code);
    };
    // Without a thread the engine alone ends such a job.
    let _ = thread::Builder::new().stack_size(1 << 17).spawn(look);
    met
}
