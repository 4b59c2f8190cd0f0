//! The shared buffers of a communicator: taken from memory that its members reach, exchanged once, and given back.
#![allow(unsafe_code)]

use super::super::words::{gather_all, synchronize};
use crate::common::error::Result;
use crate::objects::comm::Comm;
use crate::objects::shared_buffers::{BUFFER_BYTES, BYTES, Mapped, Own, SharedBuffers};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{KEY_WORDS, RemoteKey, key_of_words, words_of_key};

/// Most members: each maps the memory of all.
const MOST_RANKS: u32 = 64;

/// Whether the channel's communicator may have buffers: its members are not too many, they share a host, and none of
/// them has failed to make its own.
#[inline]
pub(in super::super) fn may_be_there(f: &Channel<'_>) -> bool {
    let has_failed = || matches!(f.comm.mapped.get(), Some(None));
    (3..=MOST_RANKS).contains(&f.comm.size()) && !has_failed() && f.comm.nodes(f.process).is_none()
}

/// The buffers of the channel's communicator, which its first call makes; none where a member could not.
///
/// # Errors
/// Those of communication.
pub(in super::super) fn buffers<'a>(f: &Channel<'a>) -> Result<Option<&'a SharedBuffers>> {
    let comm = f.comm;
    if comm.mapped.get().is_none() {
        let made = make(f)?;
        _ = comm.mapped.set(made);
    }
    let mapped = comm.mapped.get().and_then(Option::as_deref);
    Ok(mapped.map(|mapped| &mapped.buffers))
}

fn make(f: &Channel<'_>) -> Result<Option<Box<Mapped>>> {
    // What the call itself has put off stays with it.
    let f = &Channel::tagged(f.process, f.comm, f.tag);
    let worker: *mut Worker = f.process.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock; the reference ends before a message.
    let own = Own::take(unsafe { &mut *worker });
    let words = own.as_ref().map(|(_, key)| words_of_key(key));
    let all = gather_all(f, words.unwrap_or([0; KEY_WORDS]))?;
    // SAFETY: as for `own`: the worker lives, this call holds the lock, and no other reference is left.
    let mapped = own.as_ref().and_then(|_| map_all(unsafe { &mut *worker }, f.comm, &all));
    let fine = gather_all(f, [u64::from(mapped.is_some())])?;
    match (own, mapped) {
        (Some((own, _)), Some((firsts, keys))) if fine.iter().all(|word| *word == [1]) => {
            Ok(Some(Box::new(Mapped {
                buffers: SharedBuffers::new(firsts, BUFFER_BYTES),
                own,
                _keys: keys,
            })))
        }
        (own, _) => {
            if let Some((own, _)) = own {
                // SAFETY: as for `own`: the worker lives, this call holds the lock, and no other reference is left.
                own.give_back(unsafe { &mut *worker });
            }
            Ok(None)
        }
    }
}

/// Where the memory of each member is; nothing of what they say is trusted before a key of it is unpacked.
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

/// Gives the buffers of a communicator back that is about to be freed, when no member reads them any more.
///
/// # Errors
/// Those of communication.
pub(crate) fn give_back(p: &Process, comm: &Comm) -> Result {
    if let Some(Some(mapped)) = comm.mapped.get() {
        synchronize(&Channel::next(p, comm))?;
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        mapped.own.give_back(unsafe { &mut *p.worker()? });
    }
    Ok(())
}
