#![allow(unsafe_code)]
//! After the ranks of a node have met: a rank that ends without a message has died, and the engine is asked to end the
//! job.
//!
//! The leader keeps a connection to each rank of its node, and each rank its own to the leader. A rank says when it has
//! finalized MPI; an end of the connection without that is a death. The leader stays in `MPI_Finalize` until all have
//! said so, or no process would see them die.
//!
//! Each rank also sees the end of the engine's process that has started it: nothing is left then that could end the
//! ranks, and they end themselves.

use super::channel::{FrameKind, receive, send};
use super::exit;
use super::gather::{Member, PAUSE, is_for_now, refuse};
use super::ring::{self, Neighbour, Ring};
use super::starter::Starter;
use crate::engine::{Aborter, Engine, EngineError};
use crate::job::{Job, exit_code};
use crate::segment::{FailureKind, Phase};
use fastpath_base::fd::{CheckedHandle, LostFd};
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::thread::without_signals;
use fastpath_base::{tell, topology};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Uses of descriptors, for messages.
pub(super) const MEMBERS: &str = "watching the other ranks of this host";

/// What connects a rank to its engine and to its node while it is in the job.
#[derive(Debug)]
pub struct Link {
    engine: Mutex<Engine>,
    aborter: Arc<Aborter>,
    side: Side,
    /// What the thread takes with it when it starts.
    watched: Mutex<Option<Watched>>,
}

#[derive(Debug)]
enum Side {
    /// The only rank.
    Alone,
    /// Members that have not said that they are done, and when that changes; the connections to other nodes.
    Leader(Arc<(Mutex<usize>, Condvar)>, Arc<Ring>),
    /// The connection to the leader, and whether this rank has said that it is done.
    Member(CheckedHandle<UnixStream>, Arc<StaticBool>),
}

#[derive(Debug)]
enum Watched {
    Members(CheckedHandle<UnixListener>, Vec<Member>, Vec<Neighbour>),
    Leader(CheckedHandle<UnixStream>),
    Nobody,
}

impl Link {
    fn new(engine: Engine, side: Side, watched: Watched) -> Result<Link, EngineError> {
        Ok(Link {
            aborter: Arc::new(engine.aborter()?),
            engine: Mutex::new(engine),
            side,
            watched: Mutex::new(Some(watched)),
        })
    }

    /// Of a job with one rank.
    pub(super) fn alone(engine: Engine) -> Result<Link, EngineError> {
        Link::new(engine, Side::Alone, Watched::Nobody)
    }

    /// Of a node's leader.
    pub(super) fn leader(
        engine: Engine, listener: UnixListener, members: Vec<Member>, neighbours: Vec<Neighbour>,
    ) -> Result<Link, EngineError> {
        let left = Arc::new((Mutex::new(members.len()), Condvar::new()));
        let listener = CheckedHandle::keep(listener, "refusing strangers");
        let watched = Watched::Members(listener, members, neighbours);
        Link::new(engine, Side::Leader(left, Arc::default()), watched)
    }

    /// Of one that has reached the leader.
    pub(super) fn member(engine: Engine, stream: UnixStream) -> Result<Link, EngineError> {
        let copy = stream.try_clone();
        let copy = copy.map_err(|cause| EngineError::System { step: "dup", cause })?;
        let side = Side::Member(CheckedHandle::keep(copy, MEMBERS), Arc::default());
        Link::new(engine, side, Watched::Leader(CheckedHandle::keep(stream, MEMBERS)))
    }

    /// Starts the thread that sees ranks and the engine's process die. Once.
    ///
    /// # Errors
    /// No thread is left, and other ranks are to be watched.
    pub fn watch(&self, job: &'static Job) -> io::Result<()> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(watched) = watched else {
            return Ok(());
        };
        let aborter = self.aborter.clone();
        let starter = Starter::find();
        let is_alone = matches!(watched, Watched::Nobody);
        let mut runs: Vec<ring::Watch> = Vec::new();
        match (watched, &self.side) {
            (Watched::Members(listener, members, neighbours), Side::Leader(left, ring)) => {
                runs.extend(ring::list_watches(job, &aborter, ring, neighbours));
                let left = left.clone();
                runs.push(Box::new(move || {
                    watch_members(job, &aborter, (listener, members), &left, starter);
                }));
            }
            (Watched::Leader(stream), Side::Member(_, done)) => {
                let done = done.clone();
                runs.push(Box::new(move || {
                    watch_leader(job, &aborter, &stream, &done, starter);
                }));
            }
            (Watched::Nobody, _) => {
                let watch = |starter: Starter| -> ring::Watch {
                    Box::new(move || {
                        let mut entries = [starter.entry()];
                        while entries[0].revents == 0 {
                            poll_for(&mut entries, None);
                        }
                        starter.end_with_it(job);
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
                // The only rank does without: it alone would go on when the engine's process has ended.
                Err(_) if is_alone => {}
                Err(e) => return Err(e),
            }
        }
        let page = job.own_page();
        page.helpers.fetch_add(helpers as u32, Ordering::Relaxed);
        if !is_alone {
            exit::note(job);
        }
        Ok(())
    }

    /// Asks the engine something. For one thread at a time.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> T {
        ask(&mut self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This rank ends without having finalized MPI.
    pub(super) fn tell_own_death(&self, job: &Job) {
        tell_death(job, &self.aborter, job.rank());
    }

    /// This rank has finalized MPI: it may end from here on. The leader waits until all of its node have come so far.
    pub fn leave(&self) {
        match &self.side {
            Side::Alone => {}
            Side::Leader(left, ring) => {
                let (count, changed) = &**left;
                let count = count.lock().unwrap_or_else(PoisonError::into_inner);
                drop(changed.wait_while(count, |count| *count != 0));
                ring.leave();
            }
            Side::Member(stream, done) => {
                // ORDERING: release; partner is the load of the thread that sees the connection's end.
                done.store(true, Ordering::Release);
                // A leader that hears nothing sees the end of this process.
                let _ = stream.get().map(|stream| send(stream, FrameKind::Bye, &[], None));
            }
        }
        // An engine that is gone needs no word.
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = engine.finalize();
    }
}

/// Waits until something has happened to one of the descriptors, or so much time has passed.
pub fn poll_for(entries: &mut [libc::pollfd], limit: Option<Duration>) {
    // A part of a millisecond is a whole one: there would be no wait.
    let limit = limit.map_or(-1, |limit| limit.as_millis().saturating_add(1).min(1 << 30) as i32);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: an array of so many entries.
    if unsafe { libc::poll(entries.as_mut_ptr(), count, limit) } < 0 {
        // Interrupted: nothing is known of them.
        entries.iter_mut().for_each(|entry| entry.revents = 0);
    }
}

/// What [`poll_for`] waits for.
pub fn poll_entry(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Sees members finish or die, until none is left, and the engine's process end.
fn watch_members(
    job: &'static Job, aborter: &Aborter,
    (listener, mut members): (CheckedHandle<UnixListener>, Vec<Member>),
    left: &(Mutex<usize>, Condvar), mut starter: Option<Starter>,
) {
    let mut listener = Some(listener);
    let mut pause = None;
    while !members.is_empty() || starter.is_some() {
        let streams = members.iter().map(|member| member.stream.number_unchecked());
        // Once all others have left the job, nobody is to be refused.
        listener = listener.filter(|_| !members.is_empty());
        let door = match (pause, &listener) {
            (None, Some(listener)) => listener.number_or_none(),
            // poll(2) passes over it.
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
                Ok((stream, _)) => refuse(&stream, "the job has begun: all its ranks are taken"),
                Err(e) if is_for_now(&e) => {}
                // No descriptor is left: who waits there is told later.
                Err(_) => pause = Some(PAUSE),
            }
        }
        if entries[1].revents != 0
            && let Some(starter) = starter.take()
        {
            starter.end_with_it(job);
        }
        let ready: Vec<bool> = entries[2..].iter().map(|e| e.revents != 0).collect();
        let mut at = 0;
        members.retain(|member| {
            at += 1;
            !ready[at - 1] || stays(job, aborter, member)
        });
        let (count, changed) = left;
        *count.lock().unwrap_or_else(PoisonError::into_inner) = members.len();
        changed.notify_all();
    }
}

/// Whether a member with something on its connection is still in the job.
fn stays(job: &Job, aborter: &Aborter, member: &Member) -> bool {
    match member.stream.get() {
        Ok(stream) if receive(stream).is_ok_and(|frame| frame.kind == FrameKind::Bye) => {
            return false;
        }
        Ok(_) => {}
        // Nothing is known of the rank.
        Err(lost) => {
            note_lost(job, lost);
            return false;
        }
    }
    tell_death(job, aborter, member.rank);
    false
}

/// From now on the end of a rank is not noticed by the connection that was lost.
#[cold]
pub fn note_lost(job: &Job, lost: LostFd) {
    let rank = job.rank();
    tell!("fastpath: rank {rank}: {lost}: what ends there is not noticed any more");
}

/// Sees the leader die.
fn watch_leader(
    job: &'static Job, aborter: &Aborter, stream: &CheckedHandle<UnixStream>, done: &StaticBool,
    starter: Option<Starter>,
) {
    let engine = starter.as_ref().map_or(poll_entry(-1, 0), Starter::entry);
    let mut entries = [poll_entry(stream.number_unchecked(), libc::POLLIN), engine];
    while entries[0].revents == 0 {
        poll_for(&mut entries, None);
        if entries[1].revents != 0
            && let Some(starter) = &starter
        {
            starter.end_with_it(job);
            entries[1].fd = -1;
        }
    }
    // It says nothing more: whatever comes is its end.
    let _ = stream.get().map(receive);
    // ORDERING: acquire; partner is the store in `leave`.
    if done.load(Ordering::Acquire) {
        return;
    }
    if let Err(lost) = stream.get() {
        return note_lost(job, lost);
    }
    let leader = job.segment().node_ranks().find(|&rank| {
        let page = job.rank_page(rank);
        page.is_some_and(|page| page.leads.load(Ordering::Relaxed) == 1)
    });
    tell_death(job, aborter, leader.unwrap_or(0));
}

/// A rank of this node has ended without having finalized MPI: says so, once on the node, and has the job ended.
fn tell_death(job: &Job, aborter: &Aborter, rank: usize) {
    let Some(page) = job.rank_page(rank) else {
        return;
    };
    // It was about to say so.
    if page.phase() == Phase::Finalized {
        return;
    }
    let header = job.header();
    let aborted = header.abort.load();
    let status = page.exit_status.load(Ordering::Relaxed);
    let code = match (&aborted, status.checked_sub(1)) {
        (Some((_, code, _)), _) => exit_code(*code),
        (None, Some(status)) => exit_code(status as i32),
        (None, None) => 1,
    };
    // Before anybody can see who is dead: what happens to others because of it is no failure of theirs.
    let kind = match status {
        0 => FailureKind::Gone,
        1 => FailureKind::NoFinalize,
        _ => FailureKind::Exit,
    };
    let is_first = header.failure.record(kind, rank, code);
    if is_first && aborted.is_none() {
        tell::lines(&describe_death(job, rank, status.checked_sub(1)));
    }
    job.segment().mark_dead(rank);
    if !is_first || aborted.is_some() {
        // Somebody has asked the engine already: PRRTE sometimes hung where several did.
        job.segment().wake_all();
        wait_a_second();
    }
    end_job(job, aborter, code);
}

/// Wakes all ranks of this node, so that they check which rank has died, and has the engine end the job.
pub fn end_job(job: &Job, aborter: &Aborter, code: i32) {
    job.segment().wake_all();
    aborter.abort(code);
}

/// Time for what comes from elsewhere.
pub fn wait_a_second() {
    // SAFETY: an empty set of descriptors.
    unsafe { libc::poll(std::ptr::null_mut(), 0, 1000) };
}

fn describe_death(job: &Job, rank: usize, status: Option<u32>) -> String {
    let page = job.rank_page(rank);
    let process = page.map_or(0, |page| page.owner_pid.load(Ordering::Relaxed));
    let said = page.map(|page| page.message.load_lines()).unwrap_or_default();
    let how = match status {
        // What it says of its end follows.
        Some(0) if !said.is_empty() => {
            "left with exit code 0 but without finalizing MPI".to_owned()
        }
        Some(0) => "left with exit code 0 but without calling MPI_Finalize".to_owned(),
        Some(code) => format!("left with exit code {code}"),
        None => "has ended without calling MPI_Finalize".to_owned(),
    };
    let host = topology::host_name();
    let mut text = format!("fastpath: rank {rank} on {host} (process {process}) {how}\n");
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        text += &format!("fastpath:   {line}\n");
    }
    text
}
