//! Shared buffers of a communicator: allocation, exchange of addresses, and release.
#![allow(unsafe_code)]

use super::super::words::{gather_all, synchronize};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::objects::shared_buffers::{
    BUFFER_BYTES, BYTES, LocalRegion, MappedBuffers, SharedBuffers,
};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{KEY_WORDS, RemoteKey, key_of_words, words_of_key};

/// Maximum number of members. Each maps the memory of all.
const MOST_RANKS: u32 = 64;

/// Returns whether the channel's communicator may have buffers: few ranks, on one host, and no earlier failure to map.
#[inline]
pub(in super::super) fn may_be_there(f: &Channel<'_>) -> bool {
    let has_failed = || matches!(f.comm.mapped.get(), Some(None));
    (3..=MOST_RANKS).contains(&f.comm.size()) && !has_failed() && f.comm.nodes(f.process).is_none()
}

/// Returns the buffers of the channel's communicator. The first call makes them; `None` if a member cannot make its
/// own. Errors: those of communication.
pub(in super::super) fn buffers<'a>(f: &Channel<'a>) -> Result<Option<&'a SharedBuffers>> {
    let comm = f.comm;
    if comm.mapped.get().is_none() {
        let made = make(f)?;
        _ = comm.mapped.set(made);
    }
    let mapped = comm.mapped.get().and_then(Option::as_deref);
    Ok(mapped.map(|mapped| &mapped.buffers))
}

fn make(f: &Channel<'_>) -> Result<Option<Box<MappedBuffers>>> {
    // A separate channel, so that the caller's channel keeps its deferred error.
    let f = &Channel::tagged(f.process, f.comm, f.tag);
    let worker: *mut Worker = f.process.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock. The reference ends before any message.
    let own = LocalRegion::take(unsafe { &mut *worker });
    let words = own.as_ref().map(|(_, key)| words_of_key(key));
    let all = gather_all(f, words.unwrap_or([0; KEY_WORDS]))?;
    // SAFETY: the worker lives while MPI runs, this call holds the lock, and no other reference is left.
    let mapped = own.as_ref().and_then(|_| map_all(unsafe { &mut *worker }, f.comm, &all));
    let fine = gather_all(f, [u64::from(mapped.is_some())])?;
    match (own, mapped) {
        (Some((own, _)), Some((firsts, keys))) if fine.iter().all(|word| *word == [1]) => {
            Ok(Some(Box::new(MappedBuffers {
                buffers: SharedBuffers::new(firsts, BUFFER_BYTES),
                own,
                _keys: keys,
            })))
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
    worker: &mut Worker, comm: &Comm, all: &[[u64; KEY_WORDS]],
) -> Option<(Box<[*mut u8]>, Vec<RemoteKey>)> {
    let (mut firsts, mut keys) = (Vec::new(), Vec::new());
    for (words, &world) in all.iter().zip(comm.group.world_ranks()) {
        let mut key = worker.unpack_key(world, &key_of_words(words)).ok()?;
        if key.len() < BYTES as u64 {
            return None;
        }
        firsts.push(worker.map_region(&mut key).ok()??);
        keys.push(key);
    }
    Some((firsts.into(), keys))
}

/// Frees the buffers of a communicator after all members have stopped reading them. Errors: those of communication.
pub(crate) fn give_back(p: &Process, comm: &Comm) -> Result {
    if let Some(Some(mapped)) = comm.mapped.get() {
        synchronize(&Channel::next(p, comm))?;
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        mapped.own.give_back(unsafe { &mut *p.worker()? });
    }
    Ok(())
}
