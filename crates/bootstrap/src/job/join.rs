//! How the ranks of a node find each other under a launcher that is not ours, and what nodes tell each other.
//!
//! Before the first fence each rank takes a name that its host alone knows, or reaches the one who has it: the node's
//! leader. So after the fence the leader has all ranks that can reach it, and nobody waits for one that cannot: a rank
//! in a network namespace of its own has taken the name there, and is a node of its own. The leader makes the job's
//! memory and hands it over. Where that were not all ranks of the job, each rank opens a socket, the node's lowest rank
//! puts one card for all of them, and after a second fence the leader notes where the ranks of other nodes are.
//! docs/decisions/0040-engines-and-nodes.md has the reasons.

mod card;
mod channel;
mod exit;
mod gather;
mod ring;
mod starter;
mod watch;

use super::foreign::{self, ForeignRanks};
use super::{BootstrapError, Job, network::NetworkPlace, random_job_id};
use crate::engine::{About, Engine, EngineError};
use crate::network::NetworkCard;
use crate::network::proof::Pass;
use crate::segment::{Elsewhere, Segment};
use card::{Hello, NodeCard, Rank, SECRET_BYTES, Welcome};
use channel::{Frame, FrameKind, Role, receive, send};
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use fastpath_base::topology::{self, CpuSet};
use gather::{Gathering, Member};
use ring::Neighbour;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

pub(crate) use channel::{pause, send_all};
pub(super) use watch::Link;

/// Under which key a node's card is put.
const NODE_KEY: &str = "node";

impl Job {
    /// Finds the other ranks of a job that an engine has started.
    ///
    /// # Errors
    /// The engine cannot be talked to, a rank ends meanwhile, or the memory is refused.
    pub(super) fn join(engine: Engine) -> Result<Job, BootstrapError> {
        let About { job, size, .. } = engine.about();
        let name = name_meeting(job, *size);
        Job::join_at(engine, &name)
    }

    /// The same, with the name under which the ranks of a node meet.
    fn join_at(engine: Engine, name: &str) -> Result<Job, BootstrapError> {
        let about = engine.about().clone();
        if about.size == 1 {
            let job = Job::singleton()?;
            return Ok(job.with_link(Link::alone(engine)?, &about));
        }
        let role = channel::meet(name).map_err(|e| failed("meeting on this host", e))?;
        match role {
            Role::Leader(listener) => {
                let gathering = Gathering::begin(listener);
                let gathering = gathering.map_err(|e| failed("starting a thread", e))?;
                lead(engine, &about, gathering)
            }
            Role::Member(stream) => follow(engine, &about, stream),
        }
    }

    /// A rank of a node's memory.
    fn of_node(segment: Segment, about: &About, job_id: u64) -> Result<Job, BootstrapError> {
        let header = segment.header();
        let job = Job {
            rank: about.rank,
            app: about.appnum,
            app_ranks: about.size,
            universe: about.universe,
            world: 0..about.size,
            began_with: about.size,
            processors: (header.processors.load(Ordering::Relaxed) as usize).max(1),
            bound: header.bound.load(Ordering::Relaxed) == 1,
            launcher: None,
            job_id,
            segment,
            place: NetworkPlace::default(),
            link: None,
            foreign: ForeignRanks::default(),
            late_engine: Mutex::default(),
            started: String::new(),
        };
        if job.rank_page(about.rank).is_none() {
            let why = format!("the memory has no rank {}", about.rank);
            return Err(BootstrapError::Join(why));
        }
        let page = job.own_page();
        page.launched_pid.store(std::process::id(), Ordering::Relaxed);
        page.app.store(about.appnum.unwrap_or(0) as u32, Ordering::Relaxed);
        page.app_ranks.store(about.size as u32, Ordering::Relaxed);
        page.bound.store(u32::from(job.bound), Ordering::Relaxed);
        job.begin();
        Ok(job)
    }

    fn with_link(mut self, link: Link, about: &About) -> Job {
        (self.app, self.universe) = (about.appnum, about.universe);
        self.link = Some(link);
        self
    }

    /// Asks the engine that has started this job; None without an engine. For one thread at a time.
    pub fn ask_engine<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.link.as_ref().map(|link| link.ask(ask))
    }

    /// Has this rank listen on the network, and says so on its page.
    fn open_to_other_nodes(&self) -> Result<Config, BootstrapError> {
        let config = Config::from_env().map_err(|e| BootstrapError::Join(e.to_string()))?;
        let opened = self.open_network(&config).map(|_| ());
        opened.map(|()| config).map_err(BootstrapError::Join)
    }
}

/// Makes the node's memory for all who have come.
fn lead(mut engine: Engine, about: &About, gathering: Gathering) -> Result<Job, BootstrapError> {
    let fenced = engine.fence();
    let gathered = gathering.end();
    fenced?;
    let (listener, streams) =
        gathered.map_err(|e| failed("a rank on this host is not taken", e))?;
    let members = gather::greet(streams, about);
    let segment = make_memory(about, &members)?;
    let job_id = segment.header().job_id.load(Ordering::Relaxed);
    let ranks = members.iter().map(|member| member.rank);
    let welcome = Welcome {
        job_id,
        lowest: ranks.min().unwrap_or(about.rank).min(about.rank),
        members: members.len() + 1,
    };
    for member in &members {
        let sent = segment
            .file()
            .map_err(io::Error::from)
            .and_then(|file| member.send(FrameKind::Welcome, &welcome.encode(), Some(file)));
        sent.map_err(|e| lost(member.rank, e))?;
    }
    let mut job = Job::of_node(segment, about, job_id)?;
    job.own_page().leads.store(1, Ordering::Relaxed);
    let mut neighbours = Vec::new();
    if welcome.members != about.size {
        (job.job_id, neighbours) = meet_nodes(&mut engine, &job, &members, welcome.lowest)?;
        for member in &members {
            let sent = member.send(FrameKind::Go, &job.job_id.to_le_bytes(), None);
            sent.map_err(|e| lost(member.rank, e))?;
        }
    }
    let link = Link::leader(engine, listener, members, neighbours)?;
    Ok(job.with_link(link, about))
}

/// The memory, with a place for each rank of this node.
fn make_memory(about: &About, members: &[Member]) -> Result<Segment, BootstrapError> {
    let here = members.iter().map(|member| member.rank);
    let mut here: Vec<usize> = here.chain([about.rank]).collect();
    here.sort();
    let segment = Segment::create_for_node(&here, about.size, foreign::SPARE, random_job_id())?;
    let own = topology::affinity();
    let masks: Vec<&CpuSet> = members.iter().map(|m| &m.processors).chain([&own]).collect();
    let together: CpuSet = masks.iter().flat_map(|mask| mask.iter()).collect();
    let apart = masks.iter().map(|mask| mask.len()).sum::<usize>() == together.len();
    let processors = topology::limit_by_quota(together.len(), topology::cpu_quota());
    let header = segment.header();
    header.processors.store(processors as u32, Ordering::Relaxed);
    header.bound.store(u32::from(apart), Ordering::Relaxed);
    // More than one: how many is known once all have told of themselves.
    let nodes = if members.len() + 1 == about.size { 1 } else { 2 };
    header.nodes.store(nodes, Ordering::Relaxed);
    segment.back_pairs_ahead();
    Ok(segment)
}

/// Tells the other nodes how the ranks of this one are reached, and learns the same of theirs; returns the number of
/// the job, and the nodes that this one watches.
fn meet_nodes(
    engine: &mut Engine, job: &Job, members: &[Member], lowest: usize,
) -> Result<(u64, Vec<Neighbour>), BootstrapError> {
    let config = job.open_to_other_nodes()?;
    let watched = ring::open(&config, members.len() + 1);
    for member in members {
        let stream = member.stream.get().map_err(|e| lost(member.rank, e.into()))?;
        expect(stream, FrameKind::Card).map_err(|e| lost(member.rank, e))?;
    }
    let leader = watched.as_ref().map(|(_, card)| card.encode());
    let own = describe_node(job, leader.unwrap_or_default(), number_choices(&config));
    let card = own.encode();
    match members.iter().find(|member| member.rank == lowest) {
        Some(member) => {
            let sent = member.send(FrameKind::Node, &card, None);
            sent.map_err(|e| lost(lowest, e))?;
        }
        None => engine.put(NODE_KEY, &card)?,
    }
    engine.fence()?;
    let nodes = learn_nodes(job, own, |lowest| engine.get(lowest, NODE_KEY))?;
    let (here, count) = (job.host(job.rank()), nodes.leaders.len() as u32);
    let pass = Pass { job_id: nodes.job_id, secret: job.secret() };
    let next = NetworkCard::decode(&nodes.leaders[((here + 1) % count) as usize]);
    let neighbours = watched.map(|(listeners, _)| {
        // Before any of the ranks goes on: none can end unseen.
        ring::close_ring(&pass, &listeners, next.as_ref(), here, count)
    });
    Ok((nodes.job_id, neighbours.unwrap_or_default()))
}

/// What the cards of all nodes say together.
struct Nodes {
    /// The number of the job.
    job_id: u64,
    /// Where the leader of each node is reached.
    leaders: Vec<Vec<u8>>,
}

/// The card of this node.
fn describe_node(job: &Job, leader: Vec<u8>, choices: u32) -> NodeCard {
    let segment = job.segment();
    let ranks = segment
        .node_ranks()
        .map(|rank| Rank { rank, network: segment.network(rank).unwrap_or_default() });
    let is_first = job.is_node_peer(0);
    NodeCard {
        job_id: job.job_id,
        secret: if is_first { job.secret() } else { [0; SECRET_BYTES] },
        leader,
        choices,
        ranks: ranks.collect(),
    }
}

/// A number for the settings that all ranks must have alike: ranks with different algorithms would wait for each other
/// for ever. (FNV-1a.)
fn number_choices(config: &Config) -> u32 {
    let text = config.text(Key::Coll).bytes();
    text.filter(|byte| !byte.is_ascii_whitespace())
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Reads the cards of all nodes and notes where the ranks of other nodes are. The number of the job is that of the
/// first node.
fn learn_nodes(
    job: &Job, own: NodeCard, get: impl FnMut(usize) -> Result<Option<Vec<u8>>, EngineError>,
) -> Result<Nodes, BootstrapError> {
    let mut nodes = Nodes { job_id: job.job_id, leaders: Vec::new() };
    read_cards(job.present(), own, get, |card| {
        let lowest = card.ranks[0].rank;
        if lowest == 0 {
            nodes.job_id = card.job_id;
            job.header().job_id.store(card.job_id, Ordering::Relaxed);
            job.header().set_secret(&card.secret);
        }
        let is_here = job.is_node_peer(lowest);
        for Rank { rank, network } in &card.ranks {
            let host = nodes.leaders.len() as u32;
            let fits = is_here == job.is_node_peer(*rank);
            let page = job.rank_page(*rank).filter(|_| fits);
            let page = page.ok_or_else(|| unclear(*rank, NO_SUCH))?;
            match is_here {
                true => page.host.store(host, Ordering::Relaxed),
                false => job.segment().tell(*rank, Elsewhere { host, card: network })?,
            }
        }
        nodes.leaders.push(card.leader);
        Ok(())
    })?;
    let count = nodes.leaders.len() as u32;
    job.header().nodes.store(count, Ordering::Relaxed);
    Ok(nodes)
}

/// What is wrong with a card.
const NO_SUCH: &str = "is described inconsistently";

/// Reads the cards of all nodes, each under its lowest rank: that of rank 0, and then that of the lowest rank which no
/// card has named so far. So there are as many gets as other nodes.
fn read_cards(
    ranks: usize, own: NodeCard,
    mut get: impl FnMut(usize) -> Result<Option<Vec<u8>>, EngineError>,
    mut take: impl FnMut(NodeCard) -> Result<(), BootstrapError>,
) -> Result<(), BootstrapError> {
    let mut known = vec![false; ranks];
    let mut first = 0;
    while let Some(next) = known[first..].iter().position(|&known| !known) {
        let lowest = first + next;
        first = lowest;
        let card = match lowest == own.ranks[0].rank {
            true => Some(own.clone()),
            false => get(lowest)?
                .and_then(|value| NodeCard::decode(&value))
                .filter(|card| card.ranks[0].rank == lowest),
        };
        let card = card.ok_or_else(|| unclear(lowest, "sent no description of its node"))?;
        if card.choices != own.choices {
            let here = own.ranks[0].rank;
            return Err(BootstrapError::Join(format!(
                "rank {here} and rank {lowest} have different values of FASTPATH_COLL: they would \
                 wait for each other for ever; give all ranks of a job the same"
            )));
        }
        for Rank { rank, network } in &card.ranks {
            let fits = NetworkCard::decode(network).is_some();
            let known = known.get_mut(*rank).filter(|known| fits && !**known);
            *known.ok_or_else(|| unclear(*rank, NO_SUCH))? = true;
        }
        take(card)?;
    }
    Ok(())
}

/// Takes part in the memory of the one who has made it.
fn follow(mut engine: Engine, about: &About, stream: UnixStream) -> Result<Job, BootstrapError> {
    let hello = Hello {
        rank: about.rank,
        size: about.size,
        process: std::process::id(),
        processors: topology::affinity(),
    };
    let gone = |e| failed("the first process of the job on this host", e);
    send(&stream, FrameKind::Hello, &hello.encode(), None).map_err(gone)?;
    engine.fence()?;
    let frame = expect(&stream, FrameKind::Welcome).map_err(gone)?;
    let (Some(welcome), Some(file)) = (Welcome::decode(&frame.body), frame.file) else {
        return Err(BootstrapError::Join("the job's memory was not received".into()));
    };
    let segment = Segment::attach(file, welcome.job_id)?;
    let mut job = Job::of_node(segment, about, welcome.job_id)?;
    if welcome.members != about.size {
        job.open_to_other_nodes()?;
        send(&stream, FrameKind::Card, &[], None).map_err(gone)?;
        if welcome.lowest == about.rank {
            let card = expect(&stream, FrameKind::Node).map_err(gone)?;
            engine.put(NODE_KEY, &card.body)?;
        }
        engine.fence()?;
        let go = expect(&stream, FrameKind::Go).map_err(gone)?;
        let job_id = go.body.try_into().map(u64::from_le_bytes);
        job.job_id = job_id.map_err(|_| BootstrapError::Join("the job has no number".into()))?;
    }
    Ok(job.with_link(Link::member(engine, stream)?, about))
}

/// The next frame, which must be of this kind.
fn expect(stream: &UnixStream, kind: FrameKind) -> io::Result<Frame> {
    let frame = receive(stream)?;
    if frame.kind == kind {
        return Ok(frame);
    }
    let why = match frame.kind {
        FrameKind::Refusal => String::from_utf8_lossy(&frame.body).into_owned(),
        other => format!("received {other:?} instead of {kind:?}"),
    };
    Err(io::Error::other(why))
}

/// The name under which the ranks of a job meet on a host: of the user, of the job's name and its size.
fn name_meeting(job: &str, size: usize) -> String {
    let user = channel::own_user();
    // FNV-1a, 64 bits (Fowler, Noll, Vo): the same in all releases of the compiler.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("fastpath-{user}-{hash:016x}-{size}")
}

fn failed(step: &str, cause: impl fmt::Display) -> BootstrapError {
    BootstrapError::Join(format!("{step}: {cause}"))
}

/// A rank of this node ended or failed while it joined.
fn lost(rank: usize, cause: io::Error) -> BootstrapError {
    let why = match cause.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            "its process has ended in MPI_Init".to_owned()
        }
        _ => cause.to_string(),
    };
    BootstrapError::Join(format!("rank {rank} on this host: {why}"))
}

fn unclear(rank: usize, what: &str) -> BootstrapError {
    BootstrapError::Join(format!(
        "rank {rank}, on another host, {what}: is Fastpath there of another release?"
    ))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
