//! Shared file pointers: eight bytes in rank 0's memory, which all ranks change by atomic operations.
#![allow(unsafe_code)]

use super::File;
use crate::coll::words::gather_all;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{
    KEY_WORDS, PackedKey, RegionId, RemoteKey, RmaError, key_of_words, words_of_key,
};
use std::cell::Cell;

/// Location of the shared file pointer. The pointer counts etypes of the view.
pub(super) enum SharedPointer {
    /// In this process, for a file of one rank.
    Own(Cell<i64>),
    /// In the memory of rank 0 of the file.
    Remote {
        owner: u32,
        /// Packed key of the memory, from rank 0. The first access unpacks it into `key`.
        told: [u64; KEY_WORDS],
        key: Option<Box<RemoteKey>>,
        /// Address and region of the memory at rank 0; `None` at other ranks.
        kept: Option<(usize, RegionId)>,
    },
}

fn fail(error: RmaError) -> Error {
    Error::new(MPI_ERR_OTHER, format!("the shared file pointer cannot be reached: {error}"))
}

impl SharedPointer {
    /// Makes the pointer of a file that is being opened, with value 0. All ranks must then pass rank 0's words to
    /// [`SharedPointer::learn`]. Errors: `MPI_ERR_NO_MEM`.
    pub(super) fn make(p: &Process, comm: &Comm) -> Result<SharedPointer> {
        if comm.size() == 1 {
            return Ok(SharedPointer::Own(Cell::new(0)));
        }
        let mut told = [0; KEY_WORDS];
        let kept = match comm.rank {
            0 => {
                let (at, id, key) = expose(p)?;
                told = words_of_key(&key);
                Some((at, id))
            }
            _ => None,
        };
        Ok(SharedPointer::Remote {
            owner: comm.group.world_ranks().first().copied().unwrap_or(0),
            told,
            key: None,
            kept,
        })
    }

    pub(super) fn words(&self) -> [u64; KEY_WORDS] {
        match self {
            SharedPointer::Own(_) => [0; KEY_WORDS],
            SharedPointer::Remote { told, .. } => *told,
        }
    }

    pub(super) fn learn(&mut self, words: &[u64]) {
        if let SharedPointer::Remote { told, .. } = self {
            told.iter_mut().zip(words).for_each(|(to, word)| *to = *word);
        }
    }

    /// Frees the pointer's memory at rank 0, after its last use by any rank.
    pub(super) fn release(&mut self, p: &Process) {
        if let SharedPointer::Remote { kept, .. } = self
            && let Some((at, id)) = kept.take()
            && let Ok(worker) = p.worker()
        {
            // SAFETY: the worker lives while MPI runs, and this call holds the lock.
            unsafe {
                (*worker).withdraw_memory(id);
                (*worker).free_memory(at);
            }
        }
    }

    /// Adds `units` etypes to the pointer, and returns its previous value.
    fn add(&mut self, p: &Process, units: i64) -> Result<i64> {
        match self {
            SharedPointer::Own(at) => Ok(at.replace(at.get() + units)),
            SharedPointer::Remote { owner, told, key, .. } => {
                let worker = p.worker()?;
                let key = match key {
                    Some(key) => key,
                    None => {
                        let bytes = key_of_words(told);
                        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
                        let made = unsafe { (*worker).unpack_key(*owner, &bytes) };
                        key.insert(Box::new(made.map_err(fail)?))
                    }
                };
                // SAFETY: the worker lives while MPI runs, and no reference to it is held.
                let before = unsafe { Worker::fetch_add(worker, key, 0, units as u64) };
                before.map(|at| at as i64).map_err(fail)
            }
        }
    }
}

/// Allocates memory for a pointer, and exposes it to other ranks. Returns address, region and key.
fn expose(p: &Process) -> Result<(usize, RegionId, PackedKey)> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs. The memory is an aligned allocation that stays until it is withdrawn.
    unsafe {
        let made = (*worker).allocate_memory(8, 64);
        let at = made.map_err(|e| Error::new(MPI_ERR_NO_MEM, e.to_string()))?;
        (*at.as_ptr().cast::<AtomicU64>()).store(0, Ordering::Relaxed);
        let exposed = (*worker).expose_memory(at.as_ptr(), 8);
        Ok((at.as_ptr() as usize, exposed.id, exposed.key))
    }
}

impl File {
    /// Advances the shared file pointer by `units` etypes. Returns its previous position.
    pub(super) fn take_shared(&self, p: &Process, units: i64) -> Result<i64> {
        self.pointer.borrow_mut().add(p, units)
    }

    /// Returns the shared file pointer (`MPI_File_get_position_shared`).
    pub fn shared_position(&self, p: &Process) -> Result<i64> {
        self.take_shared(p, 0)
    }

    /// Sets the shared file pointer; collective. The pointer changes after all ranks have called, and no rank returns
    /// before the change.
    pub(super) fn move_shared(&self, p: &Process, to: i64) -> Result {
        self.agree(p, Ok(()))?;
        let moved = match self.comm.rank {
            0 => self
                .take_shared(p, 0)
                .and_then(|now| self.take_shared(p, to.wrapping_sub(now)))
                .map(drop),
            _ => Ok(()),
        };
        self.agree(p, moved.map_err(Into::into))
    }

    /// Advances the shared file pointer by `units` etypes for each rank, in rank order; collective. Returns this rank's
    /// position.
    pub(super) fn take_ordered(&self, p: &Process, units: i64) -> Result<i64> {
        if self.comm.size() == 1 {
            return self.take_shared(p, units);
        }
        let all = gather_all(&Channel::next(p, &self.comm), [units as u64])?;
        let sum =
            |ranks: &[[u64; 1]]| ranks.iter().fold(0i64, |sum, [n]| sum.wrapping_add(*n as i64));
        let taken = match self.comm.rank {
            0 => self.take_shared(p, sum(&all)),
            _ => Ok(0),
        };
        let told = [taken.as_ref().map_or(u64::MAX, |at| *at as u64)];
        let first = gather_all(&Channel::next(p, &self.comm), told)?[0][0];
        taken?;
        if first > i64::MAX as u64 {
            let text = "rank 0 cannot move the shared file pointer";
            return Err(Error::new(MPI_ERR_OTHER, text));
        }
        Ok(first as i64 + sum(&all[..self.comm.rank as usize]))
    }
}
