//! Counters of a worker, for reports and tests.

use fastpath_segment::FINAL_COUNTERS;

/// Messages sent, and their bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

/// Counters for reports and tests; the immediate path counts nothing. Each counter is one word, because other processes
/// read it (`snapshot`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent whole. Index 0: through memory, without short messages; 1: through an adapter or the network.
    pub eager: [Traffic; 2],
    /// Messages announced first (rendezvous). Index 0: through memory; 1: through an adapter or the network.
    pub announced: [Traffic; 2],
    /// Requests made.
    pub requests: u64,
    /// Unexpected messages stored.
    pub unexpected: u64,
    /// Long messages received by a single copy of the kernel.
    pub single_copies: u64,
    /// Long messages read directly from the sender's shared memory.
    pub direct_reads: u64,
    /// Long messages written directly into the receiver's shared memory.
    pub direct_writes: u64,
    /// Waits that did not end at their first poll.
    pub waits: u64,
    /// Yields in waits.
    pub yields: u64,
    /// Sleeps of this process.
    pub sleeps: u64,
    /// Lanes opened to peers.
    pub connections: u64,
    /// Invalid messages that were dropped.
    pub violations: u64,
}

impl Counters {
    /// Returns all counters: messages and bytes of each kind, then the others in the order of the fields.
    pub fn words(&self) -> [u64; FINAL_COUNTERS] {
        let [eager, far_eager] = self.eager;
        let [announced, far_announced] = self.announced;
        [
            eager.messages,
            eager.bytes,
            far_eager.messages,
            far_eager.bytes,
            announced.messages,
            announced.bytes,
            far_announced.messages,
            far_announced.bytes,
            self.requests,
            self.unexpected,
            self.single_copies,
            self.direct_reads,
            self.direct_writes,
            self.waits,
            self.yields,
            self.sleeps,
            self.connections,
            self.violations,
        ]
    }

    /// Returns the number of announced messages.
    pub fn announced_messages(&self) -> u64 {
        self.announced[0].messages + self.announced[1].messages
    }
}
