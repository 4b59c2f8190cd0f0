//! Memory of a communicator's members that all of them map: allocation, exchange of addresses, and release.
#![allow(unsafe_code)]

use super::lines::mapped::wait_until_idle;
use super::words::{gather_all, synchronize};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::objects::shared_buffers::LocalRegion;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{KEY_WORDS, RemoteKey, key_of_words, words_of_key};

/// Memory of all members.
pub(super) struct MemberRegions {
    /// Memory of each member, by rank.
    pub(super) firsts: Box<[*mut u8]>,
    pub(super) own: LocalRegion,
    /// Keys that keep the memory of the other members mapped.
    pub(super) keys: Vec<RemoteKey>,
}

/// Allocates `bytes` bytes at each member, all zero, and maps those of all. Returns `None` at all members if one of
/// them fails, or passes a false `is_ready`. Errors: those of communication.
pub(super) fn map_members(
    f: &Channel<'_>, bytes: usize, is_ready: bool,
) -> Result<Option<MemberRegions>> {
    // A separate channel, so that the caller's channel keeps its deferred error.
    let f = &Channel::tagged(f.process, f.comm, f.tag);
    let worker: *mut Worker = f.process.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock. The reference ends before any message.
    let own = LocalRegion::take(unsafe { &mut *worker }, bytes);
    let words = own.as_ref().map(|(_, key)| words_of_key(key));
    let all = gather_all(f, words.unwrap_or([0; KEY_WORDS]))?;
    // SAFETY: the worker lives while MPI runs, this call holds the lock, and no other reference is left.
    let mapped = own.as_ref().and_then(|_| map_all(unsafe { &mut *worker }, f.comm, bytes, &all));
    let fine = gather_all(f, [u64::from(mapped.is_some() && is_ready)])?;
    match (own, mapped) {
        (Some((own, _)), Some((firsts, keys))) if fine.iter().all(|word| *word == [1]) => {
            Ok(Some(MemberRegions { firsts, own, keys }))
        }
        (own, _) => {
            if let Some((own, _)) = own {
                // SAFETY: the worker lives while MPI runs, this call holds the lock, and no other reference is left.
                own.give_back(unsafe { &mut *worker });
            }
            Ok(None)
        }
    }
}

/// Maps the memory of each member. A member's words are not trusted until its key is unpacked.
fn map_all(
    worker: &mut Worker, comm: &Comm, bytes: usize, all: &[[u64; KEY_WORDS]],
) -> Option<(Box<[*mut u8]>, Vec<RemoteKey>)> {
    let (mut firsts, mut keys) = (Vec::new(), Vec::new());
    for (words, &world) in all.iter().zip(comm.group.world_ranks()) {
        let mut key = worker.unpack_key(world, &key_of_words(words)).ok()?;
        if key.len() < bytes as u64 {
            return None;
        }
        firsts.push(worker.map_region(&mut key).ok()??);
        keys.push(key);
    }
    Some((firsts.into(), keys))
}

/// Waits until all members have stopped reading the memory of a communicator. Returns whether one of them has a
/// persistent request that may use it again. Equal on all members. Errors: those of communication.
fn is_held_by_any(f: &Channel<'_>) -> Result<bool> {
    match f.comm.lines.get().and_then(Option::as_deref) {
        Some(mapped) if mapped.persistent_since < f.comm.persistent_sequence.get() => {
            Ok(gather_all(f, [u64::from(mapped.is_held())])?.contains(&[1]))
        }
        _ => synchronize(f).map(|()| false),
    }
}

/// Frees the memory of a communicator after all members have stopped reading it. Errors: those of communication.
pub(crate) fn give_back(p: &Process, comm: &Comm) -> Result {
    let buffers = comm.mapped.get().and_then(|mapped| mapped.as_ref()).map(|mapped| &mapped.own);
    let lines = comm.lines.get().and_then(|mapped| mapped.as_ref()).map(|mapped| &mapped.own);
    if comm.faults.is_broken() {
        // Another member may still read this memory in a call that has failed here, so it stays until the exit.
        return Ok(());
    }
    if buffers.is_some() || lines.is_some() {
        let f = Channel::next(p, comm);
        wait_until_idle(&f)?;
        if is_held_by_any(&f)? {
            // A persistent request may start its call again, so the memory stays until the exit.
            return Ok(());
        }
    }
    for own in [buffers, lines].into_iter().flatten() {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        own.give_back(unsafe { &mut *p.worker()? });
    }
    Ok(())
}
