//! Shared lines of a communicator, and the waits of its members.
#![allow(unsafe_code)]

use super::super::mapping::map_members;
use super::member::{LineCall, LineWait, give_up};
use crate::coll_choice::line_plan::{CachePlace, LineCosts, LinePlan};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::{Error, Result, SAME_ON_ALL_RANKS};
use crate::common::lock;
use crate::objects::shared_lines::{
    MEMBER_BYTES, MappedLines, OutstandingLines, PersistentLines, first_call_of,
};
use crate::p2p::channel::Channel;
use crate::p2p::channel::deadlock;
use crate::p2p::fault;
use crate::process::failures;
use fastpath_base::host_topology::DomainLevel;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::waiting::{Note, SPIN_POLLS, spin};
use fastpath_protocol::{Fault, Worker};
use fastpath_segment::AwaitedRanks;
use std::cell::Cell;

/// Maximum number of members. Each maps the memory of all.
const MOST_RANKS: u32 = 1024;
/// Number of collective calls on a communicator before its first call through lines. Programs make many communicators
/// that they use for a few calls.
const FIRST_CALLS: u64 = 4;

/// Returns whether the channel's communicator may have lines: at least 3 ranks, on one host, of one world, and no
/// earlier failure to map. Equal on all members. Ranks of different worlds may know different places of each other.
#[inline]
pub(in super::super) fn may_be_there(f: &Channel<'_>) -> bool {
    match f.comm.lines.get() {
        Some(mapped) => mapped.is_some(),
        None => {
            (3..=MOST_RANKS).contains(&f.comm.size())
                && f.comm.collective_sequence.get() > FIRST_CALLS
                && f.comm.nodes(f.process).is_none()
                && *f.comm.is_one_world.get_or_init(|| has_one_world(f))
        }
    }
}

#[cold]
fn has_one_world(f: &Channel<'_>) -> bool {
    let job = f.process.engine().map(|engine| engine.job);
    job.is_some_and(|job| job.outside(f.comm.group.world_ranks()).next().is_none())
}

/// Begins a call through the lines of the channel's communicator. The first call makes them; `None` if a member cannot
/// make its own. Errors: those of communication.
#[inline]
pub(in super::super) fn begin<'c>(
    f: &'c Channel<'c>,
) -> Result<Option<LineCall<'c, &'c Channel<'c>>>> {
    if f.comm.lines.get().is_none() {
        make(f)?;
    }
    let mapped = f.comm.lines.get().and_then(Option::as_deref);
    Ok(mapped.map(|mapped| LineCall::new(&mapped.lines, f, mapped.lines.begin(f.sequence()))))
}

/// Returns whether the communicator has lines. Equal on all members.
#[inline]
pub(in super::super) fn are_there(f: &Channel<'_>) -> bool {
    matches!(f.comm.lines.get(), Some(Some(_)))
}

/// Returns the lines that a nonblocking call may use: those that an earlier call has made. Equal on all members. With
/// checks there are none, because calls then compare their arguments first, and continue in any order.
pub(in super::super) fn outstanding<'c>(f: &Channel<'c>) -> Option<&'c OutstandingLines> {
    let mapped = f.comm.lines.get()?.as_deref()?;
    let may = f.process.checks().is_none() && mapped.since < f.sequence();
    may.then_some(&mapped.outstanding)
}

/// Returns the lines of the persistent call `number` of the channel's communicator. The first calls after the blocking
/// call that made the lines have some. The result is equal on all members. With `FASTPATH_CHECK` there are none,
/// because a start first compares the arguments.
pub(in super::super) fn hold_persistent<'c>(
    f: &Channel<'c>, number: u64,
) -> Option<&'c PersistentLines> {
    let mapped = f.comm.lines.get()?.as_deref()?;
    f.process.checks().is_none().then(|| mapped.hold_persistent(number))?
}

/// Waits until the nonblocking calls of a communicator that is about to be freed use no lines.
pub(in super::super) fn wait_until_idle(f: &Channel<'_>) -> Result {
    let Some(Some(mapped)) = f.comm.lines.get() else { return Ok(()) };
    let queue = &mapped.outstanding;
    if queue.is_idle() {
        return Ok(());
    }
    let note = Note {
        call: f.process.call.get(),
        peer: -1,
        tag: -1,
        comm: f.comm.handle.get(),
        bytes: 0,
        awaited: AwaitedRanks::UNKNOWN,
        naps: false,
    };
    let worker = f.process.worker()?;
    // SAFETY: the worker lives while MPI runs, and no reference to it is held across the wait.
    unsafe { deadlock::wait_until(f.process, worker, None, &note, |_| queue.is_idle()) };
    Ok(())
}

/// Ends a blocking call that has failed, or whose arguments this member has refused. Members that wait for its lines
/// fail, and members that would use memory again do not wait for it.
#[cold]
#[inline(never)]
pub(in super::super) fn end_failed(f: &Channel<'_>) {
    if let Some(Some(mapped)) = f.comm.lines.get() {
        give_up(&mapped.lines, &f, first_call_of(f.sequence()));
    }
}

#[cold]
#[inline(never)]
fn make(f: &Channel<'_>) -> Result {
    let places = places_of(f);
    let plan = LinePlan::new(f.comm.rank, &places, &LineCosts::USUAL);
    let regions = map_members(f, MEMBER_BYTES, plan.is_some())?;
    let mapped = regions.zip(plan).map(|(regions, plan)| {
        let since = (f.sequence(), f.comm.persistent_sequence.get());
        Box::new(MappedLines::new(regions.firsts, (regions.own, regions.keys), plan, since))
    });
    _ = f.comm.lines.set(mapped);
    Ok(())
}

/// Returns the L3 domain and the socket of each member. Equal on all members.
fn places_of(f: &Channel<'_>) -> Vec<CachePlace> {
    let groups = f.comm.host_groups(f.process);
    let mut places = vec![CachePlace::default(); f.comm.size() as usize];
    let sockets = groups.at(DomainLevel::Socket).groups();
    for (socket, members) in (0..).zip(sockets) {
        members.iter().for_each(|&member| places[member as usize].socket = socket);
    }
    // An unknown L3 may have members in several sockets.
    for (l3, members) in (0..).zip(groups.at(DomainLevel::L3).groups()) {
        for place in members.iter().map(|&member| member as usize) {
            places[place].l3 = l3 * sockets.len() as u32 + places[place].socket;
        }
    }
    places
}

impl LineWait for &Channel<'_> {
    fn wait(
        &self, from: &[u32], pending: &Cell<u64>, poll: &mut dyn FnMut() -> bool,
        has_ended: &dyn Fn(u32) -> bool,
    ) -> Result {
        let worker = self.process.worker()?;
        let first = self.world_rank(from[0]);
        // SAFETY: the worker lives while MPI runs, and the lock is held. No reference outlives a statement.
        let (may_spin, is_needed) = unsafe {
            let may_spin = (*worker).is_idle() && !(*worker).is_crowded();
            (may_spin, || lock::get().is_wanted() || (*worker).wants_attention(first))
        };
        if may_spin && spin(SPIN_POLLS, |_| poll().then_some(()), is_needed).is_some() {
            return Ok(());
        }
        self.wait_long(worker, from, (pending, false), poll, has_ended)
    }

    fn wait_for_end(&self, rank: u32, poll: &mut dyn FnMut() -> bool) -> Result {
        // A member that ends a call wakes no other, so that the end costs one store.
        let pending = &Cell::new(1);
        self.wait_long(self.process.worker()?, &[rank], (pending, true), poll, &|_| false)
    }

    #[inline]
    fn wake(&self, rank: u32) {
        let Ok(worker) = self.process.worker() else { return };
        // SAFETY: the worker lives while MPI runs, and the lock is held.
        unsafe { (*worker).wake_rank(self.world_rank(rank)) };
    }

    #[cold]
    #[inline(never)]
    fn defer_length(&self, from: u32, expected: usize, found: usize) {
        // `put_off` keeps an error of this class.
        _ = self.put_off(Err(self.refuse_length(from, expected as u64, found as u64)));
    }
}

impl Channel<'_> {
    #[cold]
    #[inline(never)]
    fn wait_long(
        &self, worker: *mut Worker, from: &[u32], (pending, naps): (&Cell<u64>, bool),
        poll: &mut dyn FnMut() -> bool, has_ended: &dyn Fn(u32) -> bool,
    ) -> Result {
        let awaited = || {
            let is_pending = |index: &usize| pending.get() >> index & 1 == 1;
            (0..from.len()).filter(is_pending).map(|index| from[index])
        };
        let worlds: Vec<u32> = awaited().map(|rank| self.world_rank(rank)).collect();
        let peer = match worlds.len() {
            1 => awaited().next().map_or(-1, |rank| rank as i32),
            _ => -1,
        };
        let note = Note {
            call: self.process.call.get(),
            peer,
            tag: -1,
            comm: self.comm.handle.get(),
            bytes: 0,
            awaited: AwaitedRanks::of(&worlds),
            naps,
        };
        let (mut missing, mut is_broken) = (None, false);
        let done = |w: &mut Worker| {
            if poll() {
                return true;
            }
            is_broken = self.comm.faults.is_broken();
            if is_broken {
                return true;
            }
            let gone = awaited().find_map(|rank| match w.peer_has_left(self.world_rank(rank)) {
                true => Some((rank, true)),
                false => has_ended(rank).then_some((rank, false)),
            });
            if gone.is_none() {
                return false;
            }
            // A member may have published its line before it left or ended the call.
            let is_there = poll();
            missing = gone.filter(|gone| !is_there && awaited().any(|rank| rank == gone.0));
            is_there || missing.is_some()
        };
        // SAFETY: the worker lives while MPI runs, and no reference to it is held across the wait.
        unsafe { deadlock::wait_until(self.process, worker, None, &note, done) };
        match missing {
            None if is_broken => Err(failures::describe_broken(self.comm)),
            None => Ok(()),
            Some((rank, false)) => Err(refuse_absent(rank)),
            Some((rank, true)) => {
                let args = self.args(rank, &Buffer::empty());
                Err(fault::explain(Fault::PeerGone, &args, 0, 0))
            }
        }
    }
}

/// Returns the error of a call in which a member takes no part.
#[cold]
fn refuse_absent(rank: u32) -> Error {
    let text = format!(
        "rank {rank} takes no part in this collective call: it has refused its own arguments, or \
         it passes another root or count than this rank"
    );
    Error::new(MPI_ERR_OTHER, text).with_advice(Some(SAME_ON_ALL_RANKS))
}
