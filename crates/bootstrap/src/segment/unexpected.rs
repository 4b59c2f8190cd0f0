//! Messages that a rank has taken and nobody has asked for, as its page shows some of them to people. They are written
//! with the note of a wait, and tell nothing while the rank waits for nothing.

use super::page::RankPage;
use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Messages of a rank that are shown.
pub const SHOWN_MOST: usize = 3;

/// Beside the count on the page: there may be more.
const PARTIAL: u64 = 1 << 63;

/// A message that nobody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedMessage {
    /// The rank of the job that has sent it.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Its length.
    pub bytes: u64,
}

/// Such messages of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unexpected {
    /// How many there are, of those that were looked at.
    pub count: u64,
    /// Whether there may be more than were looked at.
    pub is_partial: bool,
    /// The first of them.
    pub first: Vec<UnexpectedMessage>,
}

/// What the page says of them. Nobody keeps a reader from seeing half of a change: people look at it.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Shown {
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

impl RankPage {
    /// Notes how many messages the rank's first worker has that nobody has asked for, whether there may be more, and
    /// the first of them; the rank alone calls it.
    pub fn note_unexpected(&self, count: u64, is_partial: bool, first: &[UnexpectedMessage]) {
        let partial = if is_partial { PARTIAL } else { 0 };
        self.unexpected.count.store(count | partial, Ordering::Relaxed);
        for (shown, message) in self.unexpected.messages.iter().zip(first) {
            shown.bytes.store(message.bytes, Ordering::Relaxed);
            shown.source.store(message.source, Ordering::Relaxed);
            shown.tag.store(message.tag, Ordering::Relaxed);
        }
    }

    /// The messages that nobody had asked for when the rank wrote its last note.
    pub fn unexpected(&self) -> Unexpected {
        let count = self.unexpected.count.load(Ordering::Relaxed);
        let (count, is_partial) = (count & !PARTIAL, count & PARTIAL != 0);
        let read = |shown: &ShownMessage| UnexpectedMessage {
            source: shown.source.load(Ordering::Relaxed),
            tag: shown.tag.load(Ordering::Relaxed),
            bytes: shown.bytes.load(Ordering::Relaxed),
        };
        let first = self.unexpected.messages.iter().take(count as usize).map(read).collect();
        Unexpected { count, is_partial, first }
    }
}
