//! The ranks of a node under an engine: the connections by which they meet and detect deaths. A rank that ends without
//! a message has died, and the engine is requested to end the job.
//!
//! | module | contents |
//! |---|---|
//! | [`channel`] | socket by which the ranks of a node meet: frames, and the passing of a file |
//! | [`card`] | messages between ranks and between nodes, as bytes (pure) |
//! | [`gather`] | leader's side of the meeting |
//! | [`ring`] | connections between the leaders of nodes |
//! | [`starter`] | engine's process that started this one |
//! | [`exit`] | exit of this process without `MPI_Finalize`, which ends the job |
//! | [`death`] | report of a dead rank, and the end of the job |
//! | [`survivors`] | watch over the ranks of a node whose leader has died, in a job that tolerates failures |
//!
//! The leader keeps a connection to each rank of its node, and each rank one to the leader. A rank sends a message when
//! it has finalized MPI; an end of the connection without this message is a death. The leader stays in `MPI_Finalize`
//! until all ranks have sent it, because no other process would see them die.
//!
//! Each rank also sees the end of the engine's process that started it. After the end of that process nothing could end
//! the ranks, so they end themselves.

pub mod card;
pub mod channel;
mod death;
mod exit;
pub mod gather;
pub mod ring;
mod starter;
mod survivors;

pub use death::exit_code;

use crate::engine::{Aborter, Engine, EngineError};
use crate::poll::{poll_entry, poll_for};
use fastpath_base::fd::CheckedHandle;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::thread::without_signals;
use fastpath_segment::Segment;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;

use channel::{FrameKind, receive, send};
use death::{OwnRank, note_lost, tell_death};
use gather::{MEMBERS, Member, PAUSE, is_for_now, refuse};
use ring::{Neighbour, NodeRing};
use starter::StarterProcess;

/// Connection of a rank to its engine and its node.
#[derive(Debug)]
pub struct NodeLink {
    engine: Mutex<Engine>,
    aborter: Arc<Aborter>,
    side: NodeSide,
    /// Peers to watch, until the watching thread takes them.
    watched: Mutex<Option<WatchedPeers>>,
}

#[derive(Debug)]
enum NodeSide {
    /// The only rank of the job.
    Alone,
    /// The leader. The first value is the number of members that have not sent their last message, with a condition for
    /// changes. The second has the connections to other nodes.
    Leader(Arc<(Mutex<usize>, Condvar)>, Arc<NodeRing>),
    /// A member: the connection to the leader, and whether this rank has sent its last message.
    Member(CheckedHandle<UnixStream>, Arc<StaticBool>),
}

#[derive(Debug)]
enum WatchedPeers {
    Members(CheckedHandle<UnixListener>, Vec<Member>, Vec<Neighbour>),
    Leader(CheckedHandle<UnixStream>),
    None,
}

impl NodeLink {
    fn new(engine: Engine, side: NodeSide, watched: WatchedPeers) -> Result<NodeLink, EngineError> {
        Ok(NodeLink {
            aborter: Arc::new(engine.aborter()?),
            engine: Mutex::new(engine),
            side,
            watched: Mutex::new(Some(watched)),
        })
    }

    pub fn alone(engine: Engine) -> Result<NodeLink, EngineError> {
        NodeLink::new(engine, NodeSide::Alone, WatchedPeers::None)
    }

    pub fn leader(
        engine: Engine, listener: UnixListener, members: Vec<Member>, neighbours: Vec<Neighbour>,
    ) -> Result<NodeLink, EngineError> {
        let left = Arc::new((Mutex::new(members.len()), Condvar::new()));
        let listener = CheckedHandle::keep(listener, "refusing strangers");
        let watched = WatchedPeers::Members(listener, members, neighbours);
        NodeLink::new(engine, NodeSide::Leader(left, Arc::default()), watched)
    }

    pub fn member(engine: Engine, stream: UnixStream) -> Result<NodeLink, EngineError> {
        let copy = stream.try_clone();
        let copy = copy.map_err(|cause| EngineError::System { step: "dup", cause })?;
        let side = NodeSide::Member(CheckedHandle::keep(copy, MEMBERS), Arc::default());
        NodeLink::new(engine, side, WatchedPeers::Leader(CheckedHandle::keep(stream, MEMBERS)))
    }

    /// Starts the thread that detects the end of ranks and of the engine's process. Called once. Errors: the thread
    /// cannot be started, and there are other ranks to watch.
    pub fn watch(&self, segment: &'static Segment, rank: usize) -> io::Result<()> {
        let own = OwnRank { segment, rank };
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(watched) = watched else {
            return Ok(());
        };
        let aborter = self.aborter.clone();
        let starter = StarterProcess::find();
        let is_alone = matches!(watched, WatchedPeers::None);
        let mut runs: Vec<ring::Watch> = Vec::new();
        match (watched, &self.side) {
            (
                WatchedPeers::Members(listener, members, neighbours),
                NodeSide::Leader(left, ring),
            ) => {
                runs.extend(ring::list_watches(own, &aborter, ring, neighbours));
                let left = left.clone();
                runs.push(Box::new(move || {
                    watch_members(own, &aborter, (listener, members), &left, starter);
                }));
            }
            (WatchedPeers::Leader(stream), NodeSide::Member(_, done)) => {
                let done = done.clone();
                runs.push(Box::new(move || {
                    watch_leader(own, &aborter, &stream, &done, starter);
                }));
            }
            (WatchedPeers::None, _) => {
                let watch = |starter: StarterProcess| -> ring::Watch {
                    Box::new(move || {
                        let mut entries = [starter.entry()];
                        while entries[0].revents == 0 {
                            poll_for(&mut entries, None);
                        }
                        starter.end_with_it(own);
                    })
                };
                runs.extend(starter.map(watch));
            }
            _ => {}
        }
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let mut helpers = engine.threads();
        drop(engine);
        for run in runs {
            let started = without_signals(|| {
                let builder = Builder::new().name("fastpath-node".to_owned()).stack_size(1 << 17);
                builder.spawn(run)
            });
            match started {
                Ok(_) => helpers += 1,
                // The only rank needs no watching: at worst it continues after the engine's process has ended.
                Err(_) if is_alone => {}
                Err(e) => return Err(e),
            }
        }
        own.page().helpers.fetch_add(helpers as u32, Ordering::Relaxed);
        if !is_alone {
            exit::note(own, self.aborter.clone());
        }
        Ok(())
    }

    /// Calls the engine; one thread at a time.
    pub fn ask<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> T {
        ask(&mut self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that this rank has finalized MPI, and may end. The leader waits until all ranks of its node have done
    /// so.
    pub fn leave(&self) {
        match &self.side {
            NodeSide::Alone => {}
            NodeSide::Leader(left, ring) => {
                let (count, changed) = &**left;
                let count = count.lock().unwrap_or_else(PoisonError::into_inner);
                drop(changed.wait_while(count, |count| *count != 0));
                ring.leave();
            }
            NodeSide::Member(stream, done) => {
                // ORDERING: release; partner is the load of the thread that sees the connection's end.
                done.store(true, Ordering::Release);
                // If the leader does not receive this message, it sees the end of the process.
                let _ = stream.get().map(|stream| send(stream, FrameKind::Bye, &[], None));
            }
        }
        // An engine that has ended needs no message.
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = engine.finalize();
    }
}

/// Watches the engine's process, and the members until all have finished or died.
fn watch_members(
    own: OwnRank, aborter: &Aborter,
    (listener, mut members): (CheckedHandle<UnixListener>, Vec<Member>),
    left: &(Mutex<usize>, Condvar), mut starter: Option<StarterProcess>,
) {
    let mut listener = Some(listener);
    let mut pause = None;
    while !members.is_empty() || starter.is_some() {
        let streams = members.iter().map(|member| member.stream.number_unchecked());
        // Close the listener once all other ranks have left: a process that connects later need not get a reason.
        listener = listener.filter(|_| !members.is_empty());
        let door = match (pause, &listener) {
            (None, Some(listener)) => listener.number_or_none(),
            // poll(2) ignores -1.
            _ => -1,
        };
        let engine = starter.as_ref().map_or(-1, |starter| starter.entry().fd);
        let fds = [door, engine].into_iter().chain(streams);
        let mut entries: Vec<libc::pollfd> = fds.map(|fd| poll_entry(fd, libc::POLLIN)).collect();
        poll_for(&mut entries, pause.take());
        if entries[0].revents != 0
            && let Some(listener) = &listener
        {
            match listener.get().map_err(io::Error::from).and_then(UnixListener::accept) {
                Ok((stream, _)) => refuse(&stream, "all ranks of the job have joined already"),
                Err(e) if is_for_now(&e) => {}
                // No descriptor is free, so the waiting caller is refused later.
                Err(_) => pause = Some(PAUSE),
            }
        }
        if entries[1].revents != 0
            && let Some(starter) = starter.take()
        {
            starter.end_with_it(own);
        }
        let ready: Vec<bool> = entries[2..].iter().map(|e| e.revents != 0).collect();
        let mut at = 0;
        members.retain(|member| {
            at += 1;
            !ready[at - 1] || stays(own, aborter, member)
        });
        let (count, changed) = left;
        *count.lock().unwrap_or_else(PoisonError::into_inner) = members.len();
        changed.notify_all();
    }
}

/// Returns whether a member with data on its connection is still in the job.
fn stays(own: OwnRank, aborter: &Aborter, member: &Member) -> bool {
    match member.stream.get() {
        Ok(stream) if receive(stream).is_ok_and(|frame| frame.kind == FrameKind::Bye) => {
            return false;
        }
        Ok(_) => {}
        // The program closed the connection's descriptor, so the rank's state is unknown.
        Err(lost) => {
            note_lost(own, lost);
            return false;
        }
    }
    tell_death(own, aborter, member.rank);
    false
}

/// Watches the leader.
fn watch_leader(
    own: OwnRank, aborter: &Aborter, stream: &CheckedHandle<UnixStream>, done: &StaticBool,
    starter: Option<StarterProcess>,
) {
    let engine = starter.as_ref().map_or(poll_entry(-1, 0), StarterProcess::entry);
    let mut entries = [poll_entry(stream.number_unchecked(), libc::POLLIN), engine];
    while entries[0].revents == 0 {
        poll_for(&mut entries, None);
        if entries[1].revents != 0
            && let Some(starter) = &starter
        {
            starter.end_with_it(own);
            entries[1].fd = -1;
        }
    }
    // The leader sends nothing more, so any event is its end.
    let _ = stream.get().map(receive);
    // ORDERING: acquire; partner is the store in `leave`.
    if done.load(Ordering::Acquire) {
        return;
    }
    if let Err(lost) = stream.get() {
        return note_lost(own, lost);
    }
    let leader = own.segment.node_ranks().find(|&rank| {
        let page = own.segment.page(rank);
        page.is_some_and(|page| page.leads.load(Ordering::Relaxed) == 1)
    });
    tell_death(own, aborter, leader.unwrap_or(0));
    // The job continues, and no rank watches the others any more.
    survivors::watch(own, aborter);
}

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod tests;
