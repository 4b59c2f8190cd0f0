//! The buffers that the members of a communicator share for collective calls, as one process keeps them.
#![allow(unsafe_code)]

mod learnt;

use fastpath_protocol::Worker;
use fastpath_protocol::rma::{PackedKey, RegionId, RemoteKey};
pub(crate) use learnt::{Learnt, Which};
use std::cell::Cell;

/// Bytes of one of a member's two buffers: large, since a meeting takes as long as the copy of many KiB.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that a member takes.
pub(crate) const BYTES: usize = 2 * BUFFER_BYTES;
/// Alignment of the memory: a page.
const ALIGN: usize = 4096;

/// The buffers of all members of a communicator, two of each, as this process reaches them.
pub struct SharedBuffers {
    /// The first buffer of each member; the second lies behind it.
    firsts: Box<[*mut u8]>,
    /// Bytes of a buffer.
    pub(crate) bytes: usize,
    /// Whether the second ones are next.
    second: Cell<bool>,
    /// By which loop members copy.
    pub(crate) learnt: Learnt,
}

impl SharedBuffers {
    /// Of members whose two buffers of `bytes` bytes each lie one behind the other.
    pub(crate) fn new(firsts: Box<[*mut u8]>, bytes: usize) -> SharedBuffers {
        SharedBuffers { firsts, bytes, second: Cell::new(false), learnt: Learnt::default() }
    }

    /// What the report says of copy loops.
    pub(crate) fn report(&self) -> Vec<String> {
        self.learnt.report()
    }

    /// The buffers that are next: all members ask as often.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let second = self.second.replace(!self.second.get());
        Turn { firsts: &self.firsts, skip: if second { self.bytes } else { 0 } }
    }
}

/// One buffer of each member.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    firsts: &'a [*mut u8],
    skip: usize,
}

impl Turn<'_> {
    /// That of a member.
    pub(crate) fn of(&self, rank: u32) -> *mut u8 {
        self.firsts[rank as usize].wrapping_add(self.skip)
    }
}

/// The buffers of a communicator, and what they are made of.
pub struct Mapped {
    pub(crate) buffers: SharedBuffers,
    pub(crate) own: Own,
    /// Keep the memory of the others mapped.
    pub(crate) _keys: Vec<RemoteKey>,
}

impl Mapped {
    /// What the report says.
    pub(crate) fn report(&self) -> Vec<String> {
        self.buffers.report()
    }
}

/// What this process has given to it.
pub(crate) struct Own {
    address: usize,
    region: RegionId,
}

impl Own {
    /// Takes it, and lets others reach it.
    pub(crate) fn take(worker: &mut Worker) -> Option<(Own, PackedKey)> {
        let memory = worker.reserve_memory(BYTES, ALIGN).ok()?;
        // SAFETY: it stays until `give_back`.
        let exposed = unsafe { worker.expose_memory(memory.as_ptr(), BYTES) };
        let own = Own { address: memory.addr().get(), region: exposed.id };
        Some((own, exposed.key))
    }

    /// Gives it back.
    pub(crate) fn give_back(&self, worker: &mut Worker) {
        worker.withdraw_memory(self.region);
        worker.free_memory(self.address);
    }
}
