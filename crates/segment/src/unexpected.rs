//! Unexpected messages of a rank, published on its page for users. The rank writes them together with the note of a
//! wait. While the rank does not wait, they are out of date.

use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Largest number of messages on a page.
pub const SHOWN_MOST: usize = 3;

/// Bit of `count` that marks a partial count: there may be more messages than were examined.
const PARTIAL: u64 = 1 << 63;

/// An unexpected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedMessage {
    /// Rank of the job that sent the message.
    pub source: u32,
    /// Tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: u64,
}

/// Unexpected messages of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnexpectedSnapshot {
    /// Number of messages examined.
    pub count: u64,
    /// Whether there may be more messages than were examined.
    pub is_partial: bool,
    /// First messages.
    pub first: Vec<UnexpectedMessage>,
}

/// Unexpected messages on the page, for users. A reader may see a part of a change, which is harmless.
#[repr(C)]
#[derive(Debug, Default)]
pub struct UnexpectedMessages {
    count: AtomicU64,
    messages: [ShownMessage; SHOWN_MOST],
}

#[repr(C)]
#[derive(Debug, Default)]
struct ShownMessage {
    bytes: AtomicU64,
    source: AtomicU32,
    tag: AtomicI32,
}

impl UnexpectedMessages {
    /// Stores the number of messages, whether there may be more, and the first ones. Only the rank calls it.
    pub fn note(&self, count: u64, is_partial: bool, first: &[UnexpectedMessage]) {
        let partial = if is_partial { PARTIAL } else { 0 };
        self.count.store(count | partial, Ordering::Relaxed);
        for (shown, message) in self.messages.iter().zip(first) {
            shown.bytes.store(message.bytes, Ordering::Relaxed);
            shown.source.store(message.source, Ordering::Relaxed);
            shown.tag.store(message.tag, Ordering::Relaxed);
        }
    }

    /// Returns the messages of the last note.
    pub fn read(&self) -> UnexpectedSnapshot {
        let count = self.count.load(Ordering::Relaxed);
        let (count, is_partial) = (count & !PARTIAL, count & PARTIAL != 0);
        let read = |shown: &ShownMessage| UnexpectedMessage {
            source: shown.source.load(Ordering::Relaxed),
            tag: shown.tag.load(Ordering::Relaxed),
            bytes: shown.bytes.load(Ordering::Relaxed),
        };
        let first = self.messages.iter().take(count as usize).map(read).collect();
        UnexpectedSnapshot { count, is_partial, first }
    }
}
