//! Meeting of the ranks of a node under an engine, and exchange between nodes.
//!
//! Before the first fence, each rank tries to bind a socket name that only its host knows. The rank that succeeds is
//! the node's leader, and the other ranks connect to it. So after the fence the leader has a connection from every rank
//! that can reach it, and no rank waits for a rank that cannot. A rank in its own network namespace binds the name
//! there, and forms a node of one rank.
//!
//! The leader makes the job's memory and passes it on. If the job has ranks on other nodes, each rank opens a socket,
//! and the node's lowest rank publishes one card for all of them. After a second fence the leader records the addresses
//! of ranks of other nodes. docs/decisions/0040-engines-and-nodes.md has the reasons.

use super::Job;
use super::error::BootstrapError;
use super::places;
use crate::engine::{Engine, EngineError, ProcessInfo};
use crate::foreign;
use crate::identity::random_job_id;
use crate::network::NetworkCard;
use crate::network::proof::Pass;
use crate::node::NodeLink;
use crate::node::card::{Hello, NodeCard, RankCard, SECRET_BYTES, Welcome};
use crate::node::channel::{self, FrameKind, NodeFrame, NodeRole, receive, send};
use crate::node::gather::{self, Gathering, Member};
use crate::node::ring::{self, Neighbour};
use crate::socket::own_user;
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use fastpath_base::topology::{self, CpuSet};
use fastpath_segment::{RemoteRank, Segment};
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

const NODE_KEY: &str = "node";

impl Job {
    /// Finds the other ranks of a job that an engine has started. Errors: the engine fails, a rank ends meanwhile, or
    /// the memory is refused.
    pub(super) fn join(engine: Engine) -> Result<Job, BootstrapError> {
        let ProcessInfo { job, size, .. } = engine.about();
        let name = name_meeting(job, *size);
        Job::join_at(engine, &name)
    }

    /// Joins the job under `name`, by which the ranks of a node meet.
    fn join_at(engine: Engine, name: &str) -> Result<Job, BootstrapError> {
        let about = engine.about().clone();
        if about.size == 1 {
            let job = Job::singleton()?;
            return Ok(job.with_link(NodeLink::alone(engine)?, &about));
        }
        let role = channel::meet(name)
            .map_err(|e| failed("cannot find the other ranks on this host", e))?;
        match role {
            NodeRole::Leader(listener) => {
                let gathering = Gathering::begin(listener);
                let gathering = gathering.map_err(|e| failed("cannot start a thread", e))?;
                lead(engine, &about, gathering)
            }
            NodeRole::Member(stream) => follow(engine, &about, stream),
        }
    }

    /// Makes the job of a rank in a node's memory.
    fn of_node(segment: Segment, about: &ProcessInfo, job_id: u64) -> Result<Job, BootstrapError> {
        let bound = segment.header().bound.load(Ordering::Relaxed) == 1;
        let job = Job {
            app: about.appnum,
            app_ranks: about.size,
            universe: about.universe,
            world: 0..about.size,
            began_with: about.size,
            bound,
            job_id,
            ..Job::of_memory(segment, about.rank)
        };
        if job.rank_page(about.rank).is_none() {
            let why = format!("the job's memory has no rank {}", about.rank);
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

    fn with_link(mut self, link: NodeLink, about: &ProcessInfo) -> Job {
        (self.app, self.universe) = (about.appnum, about.universe);
        self.link = Some(link);
        self
    }

    /// Calls the engine that has started this job; `None` without an engine. Only one thread at a time may call it.
    pub fn ask_engine<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.link.as_ref().map(|link| link.ask(ask))
    }

    /// Opens this rank's network socket, and publishes its address on its page.
    fn open_to_other_nodes(&self) -> Result<Config, BootstrapError> {
        let config = Config::from_env().map_err(|e| BootstrapError::Join(e.to_string()))?;
        let opened = self.open_network(&config).map(|_| ());
        opened.map(|()| config).map_err(BootstrapError::Join)
    }
}

/// Makes the node's memory for all ranks that have connected.
fn lead(
    mut engine: Engine, about: &ProcessInfo, gathering: Gathering,
) -> Result<Job, BootstrapError> {
    let fenced = engine.fence();
    let gathered = gathering.end();
    fenced?;
    let (listener, streams) = gathered.map_err(|e| failed("a rank on this host is refused", e))?;
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
    let link = NodeLink::leader(engine, listener, members, neighbours)?;
    Ok(job.with_link(link, about))
}

/// Makes the memory, with a place for each rank of this node.
fn make_memory(about: &ProcessInfo, members: &[Member]) -> Result<Segment, BootstrapError> {
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
    // 2 means more than one. The exact number is known once all nodes have published their cards.
    let nodes = if members.len() + 1 == about.size { 1 } else { 2 };
    header.nodes.store(nodes, Ordering::Relaxed);
    let ranks = members.iter().map(|member| member.rank).chain([about.rank]);
    places::place_ranks(&segment, &together, ranks.zip(masks))?;
    segment.back_pairs_ahead();
    Ok(segment)
}

/// Publishes the addresses of this node's ranks, and reads those of the other nodes. Returns the job's number, and the
/// nodes that this one watches.
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
        // The ring is closed before any rank continues, so that no rank can end unnoticed.
        ring::close_ring(&pass, &listeners, next.as_ref(), here, count)
    });
    Ok((nodes.job_id, neighbours.unwrap_or_default()))
}

/// Job number and leaders' addresses, from the cards of all nodes.
struct NodeCards {
    job_id: u64,
    /// Network address of the leader of each node.
    leaders: Vec<Vec<u8>>,
}

fn describe_node(job: &Job, leader: Vec<u8>, choices: u32) -> NodeCard {
    let segment = job.segment();
    let ranks = segment
        .node_ranks()
        .map(|rank| RankCard { rank, network: segment.network(rank).unwrap_or_default() });
    let is_first = job.is_node_peer(0);
    NodeCard {
        job_id: job.job_id,
        secret: if is_first { job.secret() } else { [0; SECRET_BYTES] },
        leader,
        choices,
        ranks: ranks.collect(),
    }
}

/// Returns a hash (FNV-1a) of the settings that must be equal in all ranks. Ranks with different algorithms would hang.
fn number_choices(config: &Config) -> u32 {
    let text = config.text(Key::Coll).bytes();
    text.filter(|byte| !byte.is_ascii_whitespace())
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Reads the cards of all nodes and records the locations of their ranks. All nodes use the first node's job number.
fn learn_nodes(
    job: &Job, own: NodeCard, get: impl FnMut(usize) -> Result<Option<Vec<u8>>, EngineError>,
) -> Result<NodeCards, BootstrapError> {
    let mut nodes = NodeCards { job_id: job.job_id, leaders: Vec::new() };
    read_cards(job.present(), own, get, |card| {
        let lowest = card.ranks[0].rank;
        if lowest == 0 {
            nodes.job_id = card.job_id;
            job.header().job_id.store(card.job_id, Ordering::Relaxed);
            job.header().set_secret(&card.secret);
        }
        let is_here = job.is_node_peer(lowest);
        for RankCard { rank, network } in &card.ranks {
            let host = nodes.leaders.len() as u32;
            let fits = is_here == job.is_node_peer(*rank);
            let page = job.rank_page(*rank).filter(|_| fits);
            let page = page.ok_or_else(|| unclear(*rank, NO_SUCH))?;
            match is_here {
                true => page.host.store(host, Ordering::Relaxed),
                false => job.segment().tell(*rank, RemoteRank { host, card: network })?,
            }
        }
        nodes.leaders.push(card.leader);
        Ok(())
    })?;
    let count = nodes.leaders.len() as u32;
    job.header().nodes.store(count, Ordering::Relaxed);
    Ok(nodes)
}

/// Text for an invalid card.
const NO_SUCH: &str = "has an inconsistent description";

/// Reads the cards of all nodes. Each card is stored under its node's lowest rank. The first is under rank 0, each
/// further one under the lowest rank that no card read so far contains. One get is needed for each other node.
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
                "rank {here} and rank {lowest} have different values of FASTPATH_COLL: the ranks \
                 would wait for each other for ever; set FASTPATH_COLL to the same value on all \
                 ranks of a job"
            )));
        }
        for RankCard { rank, network } in &card.ranks {
            let fits = NetworkCard::decode(network).is_some();
            let known = known.get_mut(*rank).filter(|known| fits && !**known);
            *known.ok_or_else(|| unclear(*rank, NO_SUCH))? = true;
        }
        take(card)?;
    }
    Ok(())
}

/// Attaches to the memory made by the leader.
fn follow(
    mut engine: Engine, about: &ProcessInfo, stream: UnixStream,
) -> Result<Job, BootstrapError> {
    let hello = Hello {
        rank: about.rank,
        size: about.size,
        process: std::process::id(),
        processors: topology::affinity(),
    };
    let gone = |e| failed("the connection to the first process of the job on this host failed", e);
    send(&stream, FrameKind::Hello, &hello.encode(), None).map_err(gone)?;
    engine.fence()?;
    let frame = expect(&stream, FrameKind::Welcome).map_err(gone)?;
    let (Some(welcome), Some(file)) = (Welcome::decode(&frame.body), frame.file) else {
        return Err(BootstrapError::Join(
            "the first process of the job on this host did not send the descriptor of the job's \
             shared memory"
                .into(),
        ));
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
        job.job_id = job_id.map_err(|_| {
            BootstrapError::Join(
                "the first process of the job on this host did not send a valid job number".into(),
            )
        })?;
    }
    Ok(job.with_link(NodeLink::member(engine, stream)?, about))
}

/// Receives a frame, and fails if its kind is not `kind`.
fn expect(stream: &UnixStream, kind: FrameKind) -> io::Result<NodeFrame> {
    let frame = receive(stream)?;
    if frame.kind == kind {
        return Ok(frame);
    }
    let why = match frame.kind {
        FrameKind::Refusal => String::from_utf8_lossy(&frame.body).into_owned(),
        other => format!("expected the message {kind:?}, but received {other:?}"),
    };
    Err(io::Error::other(why))
}

/// Name by which the ranks of a job meet on a host, derived from user, job name and size.
fn name_meeting(job: &str, size: usize) -> String {
    let user = own_user();
    // FNV-1a, 64 bits (Fowler, Noll, Vo), which is equal in all releases of the compiler.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("fastpath-{user}-{hash:016x}-{size}")
}

fn failed(step: &str, cause: impl fmt::Display) -> BootstrapError {
    BootstrapError::Join(format!("{step}: {cause}"))
}

/// Error of a rank of this node that ended or failed while it joined.
fn lost(rank: usize, cause: io::Error) -> BootstrapError {
    let why = match cause.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            "the rank's process has ended in MPI_Init".to_owned()
        }
        _ => cause.to_string(),
    };
    BootstrapError::Join(format!("rank {rank} on this host failed: {why}"))
}

fn unclear(rank: usize, what: &str) -> BootstrapError {
    BootstrapError::Join(format!(
        "rank {rank}, on another host, {what}: install the same release of Fastpath on all hosts"
    ))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
