//! The shared file pointer: eight bytes of rank 0's memory, which all ranks change by atomic operations.
#![allow(unsafe_code)]

use super::File;
use crate::channel::Channel;
use crate::comm::Comm;
use crate::comm::agree::gather_all;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{PACKED_BYTES, RegionId, RemoteKey, RmaError};
use std::cell::Cell;

const WORDS: usize = PACKED_BYTES / 8;

/// Where the shared pointer is, in etypes of the view.
pub(super) enum SharedPointer {
    /// A file of one rank.
    Own(Cell<i64>),
    /// In rank 0's memory.
    Remote {
        key: Box<RemoteKey>,
        /// At rank 0: the memory, and its name.
        kept: Option<(usize, RegionId)>,
    },
}

fn fail(error: RmaError) -> Error {
    Error::new(
        MPI_ERR_OTHER,
        format!("the shared file pointer cannot be reached: {error}"),
    )
}

impl SharedPointer {
    /// The pointer of a file that is being opened, at 0. Collective.
    ///
    /// # Errors
    /// `MPI_ERR_NO_MEM`; those of communication.
    pub(super) fn make(p: &Process, comm: &Comm) -> Result<SharedPointer> {
        if comm.size() == 1 {
            return Ok(SharedPointer::Own(Cell::new(0)));
        }
        let made = match comm.rank {
            0 => Some(expose(p)),
            _ => None,
        };
        let mut words = [0; WORDS];
        if let Some(Ok((_, _, key))) = &made {
            for (word, bytes) in words.iter_mut().zip(key.chunks_exact(8)) {
                *word = bytes
                    .iter()
                    .rev()
                    .fold(0, |n, byte| n << 8 | u64::from(*byte));
            }
        }
        let all = gather_all(&Channel::next(p, comm), words)?;
        let kept = match made {
            Some(made) => made.map(|(at, id, _)| Some((at, id)))?,
            None => None,
        };
        let key: Vec<u8> = all[0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let owner = comm.group.world_ranks().first().copied().unwrap_or(0);
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        let key = unsafe { (*p.worker()?).unpack_key(owner, &key) }.map_err(fail)?;
        Ok(SharedPointer::Remote {
            key: Box::new(key),
            kept,
        })
    }

    /// Gives rank 0's memory back, when nobody uses it any more.
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

    /// Adds to the pointer; where it was before.
    fn add(&mut self, p: &Process, units: i64) -> Result<i64> {
        match self {
            SharedPointer::Own(at) => Ok(at.replace(at.get() + units)),
            SharedPointer::Remote { key, .. } => {
                let worker = p.worker()?;
                // SAFETY: the worker lives while MPI runs; no reference to it is held.
                let before = unsafe { Worker::fetch_add(worker, key, 0, units as u64) };
                before.map(|at| at as i64).map_err(fail)
            }
        }
    }
}

/// Memory for a pointer, its name and its key.
fn expose(p: &Process) -> Result<(usize, RegionId, [u8; PACKED_BYTES])> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs; the memory is fresh, and stays until it is withdrawn.
    unsafe {
        let made = (*worker).allocate_memory(8, 64);
        let at = made.map_err(|e| Error::new(MPI_ERR_NO_MEM, e.to_string()))?;
        (*at.as_ptr().cast::<AtomicU64>()).store(0, Ordering::Relaxed);
        let exposed = (*worker).expose_memory(at.as_ptr(), 8);
        Ok((at.as_ptr() as usize, exposed.id, exposed.key))
    }
}

impl File {
    /// Takes `units` etypes from the shared pointer; where they begin.
    ///
    /// # Errors
    /// Those of communication.
    pub(super) fn take_shared(&self, p: &Process, units: i64) -> Result<i64> {
        self.pointer.borrow_mut().add(p, units)
    }

    /// Where the shared pointer is (`MPI_File_get_position_shared`).
    ///
    /// # Errors
    /// Those of communication.
    pub fn shared_position(&self, p: &Process) -> Result<i64> {
        self.take_shared(p, 0)
    }

    /// Moves the shared pointer. Collective: nobody uses it before all have come, or leaves before it has moved.
    ///
    /// # Errors
    /// Those of communication.
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

    /// Takes `units` etypes for each rank, one after the other in the order of ranks; where this rank's begin.
    /// Collective.
    ///
    /// # Errors
    /// Those of communication.
    pub(super) fn take_ordered(&self, p: &Process, units: i64) -> Result<i64> {
        if self.comm.size() == 1 {
            return self.take_shared(p, units);
        }
        let all = gather_all(&Channel::next(p, &self.comm), [units as u64])?;
        let sum = |ranks: &[[u64; 1]]| {
            ranks
                .iter()
                .fold(0i64, |sum, [n]| sum.wrapping_add(*n as i64))
        };
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
