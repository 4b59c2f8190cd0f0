//! Sends that were posted: how many are under way, and which of them report their success.
//!
//! Sends complete in silence but for a few, a quarter of the queue apart; one completion returns the room of all before
//! it. Numbers are counted from the same start and wrap.

/// The sends of one queue pair.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// Sends under way at most.
    pub depth: u32,
    /// Sends posted: the number of the next.
    pub posted: u32,
    /// Sends known to be done.
    pub done: u32,
    /// How many had been posted after the last one whose success is reported.
    signaled: u32,
    /// Reports to come.
    pub expected: u32,
}

impl SendQueue {
    /// An empty queue for so many.
    pub fn new(depth: u32) -> Self {
        SendQueue { depth, ..SendQueue::default() }
    }

    /// Sends under way.
    #[inline]
    pub fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Whether sends are under way.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.posted != self.done
    }

    /// Sends that could be posted now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.depth.saturating_sub(self.under_way())
    }

    /// Whether the success of what is posted next must be reported: so many have been silent.
    #[inline]
    pub fn owes_signal(&self) -> bool {
        self.posted.wrapping_sub(self.signaled) + 1 >= self.depth / 4
    }

    /// Whether the success of the last one will not be reported.
    pub fn is_silent(&self) -> bool {
        self.is_busy() && self.signaled != self.posted
    }

    /// One more has been posted.
    #[inline]
    pub fn add(&mut self, signaled: bool) {
        self.posted = self.posted.wrapping_add(1);
        if signaled {
            self.signaled = self.posted;
            self.expected += 1;
        }
    }

    /// Whether the send with a number is done.
    #[inline]
    pub fn is_done(&self, number: u32) -> bool {
        is_before(number, self.done)
    }

    /// The send with a number is done, and all before it.
    #[inline]
    pub fn finish(&mut self, number: u32) {
        self.done = number.wrapping_add(1);
    }

    /// All are done, whatever became of them; says how many reports will not be counted.
    pub fn finish_all(&mut self) -> u32 {
        self.done = self.posted;
        std::mem::take(&mut self.expected)
    }

    /// All are done, and no more can be posted until [`SendQueue::finish_all`]; nothing will be reported of either.
    pub fn block(&mut self) {
        self.done = self.posted;
        self.posted = self.done.wrapping_add(self.depth);
        (self.signaled, self.expected) = (self.posted, 0);
    }

    /// It goes on as after so many sends.
    #[cfg(test)]
    pub fn start_at(&mut self, sends: u32) {
        assert!(!self.is_busy());
        (self.posted, self.done, self.signaled) = (sends, sends, sends);
    }
}

/// Whether a number is among the first `done`.
#[inline]
pub(super) fn is_before(number: u32, done: u32) -> bool {
    (number.wrapping_sub(done) as i32) < 0
}
