//! Posted sends of one queue pair: their number, and which of them are signaled.
//!
//! One send in a quarter of the queue is signaled. Its completion frees all entries before it. `posted`, `done` and
//! `signaled` are send numbers modulo 2^32.

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    pub depth: u32,
    pub posted: u32,
    pub done: u32,
    signaled: u32,
    pub expected: u32,
}

impl SendQueue {
    pub fn new(depth: u32) -> Self {
        SendQueue { depth, ..SendQueue::default() }
    }

    #[inline]
    pub fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    #[inline]
    pub fn is_busy(&self) -> bool {
        self.posted != self.done
    }

    #[inline]
    pub fn room(&self) -> u32 {
        self.depth.saturating_sub(self.under_way())
    }

    /// Whether the next send must be signaled, because the last quarter of the queue is unsignaled.
    #[inline]
    pub fn owes_signal(&self) -> bool {
        self.posted.wrapping_sub(self.signaled) + 1 >= self.depth / 4
    }

    pub fn is_silent(&self) -> bool {
        self.is_busy() && self.signaled != self.posted
    }

    #[inline]
    pub fn add(&mut self, signaled: bool) {
        self.posted = self.posted.wrapping_add(1);
        if signaled {
            self.signaled = self.posted;
            self.expected += 1;
        }
    }

    #[inline]
    pub fn is_done(&self, number: u32) -> bool {
        is_before(number, self.done)
    }

    #[inline]
    pub fn finish(&mut self, number: u32) {
        self.done = number.wrapping_add(1);
    }

    pub fn finish_all(&mut self) -> u32 {
        self.done = self.posted;
        std::mem::take(&mut self.expected)
    }

    /// Counts all sends as completed, without their completions, and refuses posts until [`SendQueue::finish_all`].
    pub fn block(&mut self) {
        self.done = self.posted;
        self.posted = self.done.wrapping_add(self.depth);
        (self.signaled, self.expected) = (self.posted, 0);
    }

    #[cfg(test)]
    pub fn start_at(&mut self, sends: u32) {
        assert!(!self.is_busy());
        (self.posted, self.done, self.signaled) = (sends, sends, sends);
    }
}

/// Whether `number` is at or before `done` in the order of 32-bit numbers that wrap.
#[inline]
pub(super) fn is_before(number: u32, done: u32) -> bool {
    (number.wrapping_sub(done) as i32) < 0
}
