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
    /// Whether the next call uses the second buffers.
    second: Cell<bool>,
    /// Last call of shared lines in which members read buffers; `None` if messages synchronized them since.
    pub(crate) last_call: Cell<Option<u64>>,
    /// Whether members may read buffers of a broadcast, after which nothing has synchronized them.
    pub(crate) has_readers: Cell<bool>,
    pub(crate) learnt: LearnedLoops,
}

impl SharedBuffers {
    /// Makes the buffers from each member's first buffer. The second buffer follows the first; each has `bytes` bytes.
    pub(crate) fn new(firsts: Box<[*mut u8]>, bytes: usize) -> SharedBuffers {
        SharedBuffers {
            firsts,
            bytes,
            second: Cell::new(false),
            last_call: Cell::new(None),
            has_readers: Cell::new(false),
            learnt: LearnedLoops::default(),
        }
    }

    pub(crate) fn report(&self) -> Vec<String> {
        self.learnt.report()
    }

    /// Returns the buffers of the next call. All members must call this function the same number of times.
    pub(crate) fn turn(&self) -> BufferTurn<'_> {
        let second = self.second.replace(!self.second.get());
        BufferTurn { firsts: &self.firsts, skip: if second { self.bytes } else { 0 } }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct BufferTurn<'a> {
    firsts: &'a [*mut u8],
    skip: usize,
}

impl BufferTurn<'_> {
    pub(crate) fn of(&self, rank: u32) -> *mut u8 {
        self.firsts[rank as usize].wrapping_add(self.skip)
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
    /// Allocates `bytes` bytes, lets `prepare` write them, and exposes them to the other members.
    pub(crate) fn take(
        worker: &mut Worker, bytes: usize, prepare: impl FnOnce(*mut u8),
    ) -> Option<(LocalRegion, PackedKey)> {
        let memory = worker.reserve_memory(bytes, ALIGN).ok()?;
        prepare(memory.as_ptr());
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
