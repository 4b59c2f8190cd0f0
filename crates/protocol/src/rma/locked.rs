//! Changes under a lock word of the owner; see `one_sided::locked`.

use super::message::RegionOffset;
use super::resolve::RemoteKey;
use crate::wire::CONTROL_MAX;

/// Bytes of an answer before the previous contents: a word in this host's byte order, 0 if nothing was changed.
pub const ANSWER_HEAD: usize = 8;
/// Most bytes of an answer.
pub const ANSWER_MOST: usize = CONTROL_MAX;

/// Lock word at its owner: 0 if free, 1 if taken.
pub struct HeldWord<'a> {
    /// Region of the word.
    pub key: &'a RemoteKey,
    /// Offset of the word in the region, a multiple of 8.
    pub offset: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LockedOperation {
    pub lock: RegionOffset,
    pub change: u64,
    /// Number of bytes that are changed.
    pub len: usize,
    /// Bytes that are sent with the change.
    pub given: (*const u8, usize),
}

impl LockedOperation {
    /// Returns the sizes for the header, for an answer of `answer` bytes.
    pub fn sizes(&self, answer: usize) -> u32 {
        self.len as u32 | (answer as u32) << 16
    }
}
