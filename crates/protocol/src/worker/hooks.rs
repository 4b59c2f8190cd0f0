//! Callbacks into the layer above.

use super::Worker;
use crate::request::Request;
use crate::wait_policy::Title;
use fastpath_segment::AwaitedRanks;

/// Callbacks into the layer above.
pub struct Hooks {
    /// Returns the title of a wait, from [`crate::waiting::Note::comm`] and the awaited rank if there is exactly one.
    pub name_wait: fn(usize, Option<u32>) -> Title,
    /// Advances operations of the layer above after rounds of progress. Returns whether any advanced.
    pub on_progress: Option<fn(&mut Worker) -> bool>,
    /// Returns the ranks on which the operations of `on_progress` depend.
    pub moved_by: fn(&Worker) -> AwaitedRanks,
    /// Called with every completed detached request (buffered send) before it is freed.
    pub on_detached: Option<fn(&Request)>,
    /// Called by progress after ranks that had a ring to this process have ended.
    pub on_ends: Option<fn(&mut Worker)>,
    /// Whether progress looks for ended ranks even if no signal has come.
    pub seeks_ends: bool,
    /// Called with each notice that arrives ([`crate::notices`]).
    pub on_notice: Option<fn(&mut Worker, &ReceivedNotice)>,
    /// Called before each pause of a waiting thread, and sometimes by calls that poll. It ends operations that can no
    /// longer complete.
    pub on_pause: Option<fn(&mut Worker)>,
    /// Called with a peer that cannot be answered for lack of memory, and whose operation therefore would never end.
    pub on_no_answer: Option<fn(u32)>,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks {
            name_wait: |_, _| Title::default(),
            on_progress: None,
            moved_by: |_| AwaitedRanks::UNKNOWN,
            on_detached: None,
            on_ends: None,
            seeks_ends: false,
            on_notice: None,
            on_pause: None,
            on_no_answer: None,
        }
    }
}

/// A notice that has arrived.
#[derive(Debug, Clone)]
pub struct ReceivedNotice {
    /// World rank of the sender.
    pub sender: u32,
    /// Kind of the notice, which the layer above defines.
    pub kind: u32,
    /// Number that the notice is about, such as a context.
    pub number: u64,
    /// Contents. The sender is not trusted.
    pub bytes: Box<[u8]>,
}
