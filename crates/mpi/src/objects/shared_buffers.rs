//! Buffers that the members of a communicator share for collective calls, as mapped into one process.
#![allow(unsafe_code)]

mod learnt;

use fastpath_protocol::Worker;
use fastpath_protocol::rma::{PackedKey, RegionId, RemoteKey};
pub(crate) use learnt::{CallSize, LearnedLoops};
use std::cell::Cell;

/// Size of a buffer in bytes. Each member has two. The size is large, because a synchronization of the members takes as
/// long as the copy of many KiB.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of memory for each member.
pub(crate) const BYTES: usize = 2 * BUFFER_BYTES;
const ALIGN: usize = 4096;

/// Buffers of all members of a communicator, two for each, mapped into this process.
pub struct SharedBuffers {
    /// First buffer of each member; the second follows it.
    firsts: Box<[*mut u8]>,
    pub(crate) bytes: usize,
    /// Whether the next call that messages synchronize uses the second buffers.
    second: Cell<bool>,
    /// Last call of shared lines in which other members read this member's buffer, for each buffer.
    readings: [Cell<Option<u64>>; 2],
    pub(crate) learnt: LearnedLoops,
}

impl SharedBuffers {
    /// Makes the buffers from each member's first buffer. The second buffer follows the first; each has `bytes` bytes.
    pub(crate) fn new(firsts: Box<[*mut u8]>, bytes: usize) -> SharedBuffers {
        SharedBuffers {
            firsts,
            bytes,
            second: Cell::new(false),
            readings: Default::default(),
            learnt: LearnedLoops::default(),
        }
    }

    pub(crate) fn report(&self) -> Vec<String> {
        self.learnt.report()
    }

    /// Returns the buffers of the next piece of a call that messages synchronize. All members must call this function
    /// the same number of times.
    pub(crate) fn turn(&self) -> BufferTurn<'_> {
        let second = self.second.replace(!self.second.get());
        self.turn_of(second.into())
    }

    /// Returns the buffers of a piece of a call that shared lines synchronize. `number` is equal on all members, and
    /// grows by 1 from piece to piece.
    pub(crate) fn turn_of(&self, number: u64) -> BufferTurn<'_> {
        let (second, firsts) = ((number % 2) as usize, &self.firsts);
        BufferTurn { firsts, skip: second * self.bytes, reading: &self.readings[second] }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct BufferTurn<'a> {
    firsts: &'a [*mut u8],
    skip: usize,
    reading: &'a Cell<Option<u64>>,
}

impl BufferTurn<'_> {
    pub(crate) fn of(&self, rank: u32) -> *mut u8 {
        self.firsts[rank as usize].wrapping_add(self.skip)
    }

    /// Records that other members read this member's buffer in a call of shared lines. Returns the call before in which
    /// they did so, which all must have ended before this member writes the buffer.
    pub(crate) fn note_reading(&self, call: u64) -> Option<u64> {
        self.reading.replace(Some(call))
    }
}

/// Buffers of a communicator, and the memory behind them.
pub struct MappedBuffers {
    pub(crate) buffers: SharedBuffers,
    pub(crate) own: LocalRegion,
    /// Keys that keep the memory of the other members mapped.
    pub(crate) _keys: Vec<RemoteKey>,
}

impl MappedBuffers {
    pub(crate) fn report(&self) -> Vec<String> {
        self.buffers.report()
    }
}

pub(crate) struct LocalRegion {
    address: usize,
    region: RegionId,
}

impl LocalRegion {
    /// Allocates `bytes` bytes, all zero, and exposes them to the other members.
    pub(crate) fn take(worker: &mut Worker, bytes: usize) -> Option<(LocalRegion, PackedKey)> {
        let memory = worker.reserve_memory(bytes, ALIGN).ok()?;
        // SAFETY: the memory stays allocated until `give_back`.
        let exposed = unsafe { worker.expose_memory(memory.as_ptr(), bytes) };
        let own = LocalRegion { address: memory.addr().get(), region: exposed.id };
        Some((own, exposed.key))
    }

    pub(crate) fn give_back(&self, worker: &mut Worker) {
        worker.withdraw_memory(self.region);
        worker.free_memory(self.address);
    }
}
