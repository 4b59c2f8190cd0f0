//! Operations and replies that wait for space.

use super::error::RmaError;
use super::key::UnpackedKey;
use super::locked::LockedOperation;
use super::message::RegionOffset;
use super::resolve::{AccessPath, RemoteKey};
use fastpath_transport::{Remote, RemoteBlock};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
pub(crate) enum OperationKind {
    Put,
    Get,
    Atomic {
        operation: u32,
        operand: u64,
        compare: u64,
    },
    /// Change made by the owner under a lock word ([`super::locked`]).
    Change(LockedOperation),
}

#[derive(Debug)]
pub(crate) struct RmaOperation {
    pub kind: OperationKind,
    pub way: AccessPath,
    pub generation: u32,
    pub described: UnpackedKey,
    pub offset: u64,
    pub local: *mut u8,
    pub len: usize,
    pub done: usize,
    /// Whether the buffer is in use until a flush.
    pub pending: bool,
    /// Blocks of the region, if there are several; `len` is then their sum.
    pub blocks: Vec<RemoteBlock>,
    /// Number of blocks that were posted.
    pub next: usize,
}

impl RmaOperation {
    pub fn new(
        key: &RemoteKey, kind: OperationKind, offset: u64, local: *mut u8, len: usize,
        generation: u32,
    ) -> Self {
        RmaOperation {
            kind,
            way: key.way,
            generation,
            described: key.described,
            offset,
            local,
            len,
            done: 0,
            pending: false,
            blocks: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn place(&self) -> RegionOffset {
        RegionOffset { region: self.described.region, offset: self.offset + self.done as u64 }
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.described.address + self.offset + self.done as u64,
            rkey: self.described.adapter.unwrap_or(0),
        }
    }

    /// Splits the next block if it has more than `most` bytes.
    pub(crate) fn split_next(&mut self, most: u64) {
        let RemoteBlock { offset, len } = self.blocks[self.next];
        if len > most {
            self.blocks[self.next] = RemoteBlock { offset: offset + most, len: len - most };
            self.blocks.insert(self.next, RemoteBlock { offset, len: most });
        }
    }

    pub(crate) fn rest(&self) -> (*mut u8, usize) {
        (self.local.wrapping_add(self.done), self.len - self.done)
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub token: u64,
    pub place: RegionOffset,
    pub len: u32,
    /// Blocks of the region, if there are several; `len` is then their sum.
    pub blocks: Vec<RemoteBlock>,
}

impl Reply {
    pub fn of_blocks(token: u64, region: u64, blocks: Vec<RemoteBlock>) -> Reply {
        let len = RemoteBlock::total(&blocks) as u32;
        Reply { token, place: RegionOffset { region, offset: 0 }, len, blocks }
    }
}

/// State of operations with a peer that the peer's lane does not track.
#[derive(Default)]
pub(crate) struct RmaPeer {
    /// Puts posted as messages.
    pub posted: u64,
    /// Puts covered by a `REMOTE_FLUSH`.
    pub asked: u64,
    /// Puts that the peer has acknowledged.
    pub acked: u64,
    /// Number of outstanding answers.
    pub answers: u32,
    /// The peer's puts that this rank has refused and not yet reported.
    pub refused: u32,
    pub queue: VecDeque<RmaOperation>,
    pub replies: VecDeque<Reply>,
    /// Error that the next flush returns.
    pub failed: Option<RmaError>,
    /// Whether the peer counts in `Rma::busy`.
    pub busy: bool,
    /// Whether the peer counts in `Rma::queues`.
    pub queued: bool,
}

impl RmaPeer {
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether the buffers of all operations may be reused. With `remote`, whether all operations are complete.
    pub(crate) fn is_settled(&self, remote: bool) -> bool {
        let local = self.queue.is_empty() && self.answers == 0;
        local && (!remote || self.acked == self.posted)
    }
}
