//! Receiving end: orders arrivals and acknowledges taken messages.

use super::Ack;
use std::collections::VecDeque;

/// Outcome of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalOutcome {
    /// Stored until all earlier messages have been taken.
    Kept,
    /// The message had arrived before.
    Duplicate,
    /// Outside the window: invalid.
    OutOfWindow,
}

/// Receiving end of one direction.
pub struct Receiver<M> {
    next: u32,
    window: u32,
    kept: VecDeque<Option<M>>,
    ack_due: bool,
}

impl<M> Receiver<M> {
    /// Creates a receiver for sequence numbers from `first`, with at most `window` unacknowledged messages.
    pub fn new(window: u32, first: u32) -> Self {
        Receiver { next: first, window, kept: VecDeque::new(), ack_due: false }
    }

    /// Stores an arrival. Any arrival within the window, and any duplicate, requires an acknowledgement.
    pub fn accept(&mut self, seq: u32, message: M) -> ArrivalOutcome {
        let ahead = seq.wrapping_sub(self.next);
        if ahead >= self.window {
            // A number at most half the number range behind was taken before.
            let old = ahead > u32::MAX / 2;
            self.ack_due |= old;
            return if old { ArrivalOutcome::Duplicate } else { ArrivalOutcome::OutOfWindow };
        }
        self.ack_due = true;
        let index = ahead as usize;
        if self.kept.len() <= index {
            self.kept.resize_with(index + 1, || None);
        }
        if self.kept[index].is_some() {
            return ArrivalOutcome::Duplicate;
        }
        self.kept[index] = Some(message);
        ArrivalOutcome::Kept
    }

    /// Next message in order, not taken; `None` if it has not arrived.
    #[inline]
    pub fn look(&self) -> Option<&M> {
        self.kept.front()?.as_ref()
    }

    /// Takes the next message in order; `None` if it has not arrived.
    pub fn take(&mut self) -> Option<M> {
        self.look()?;
        self.next = self.next.wrapping_add(1);
        self.ack_due = true;
        self.kept.pop_front()?
    }

    /// Sequence number of the next message to take.
    pub fn next_seq(&self) -> u32 {
        self.next
    }

    /// Whether a message has arrived before a missing one.
    #[inline]
    pub fn has_hole(&self) -> bool {
        self.kept.front().is_some_and(Option::is_none)
    }

    /// Arrived messages that have not been taken, in order.
    pub fn kept(&self) -> impl Iterator<Item = &M> {
        self.kept.iter().flatten()
    }

    /// Removes all arrived messages that have not been taken.
    pub fn abandon(&mut self) -> impl Iterator<Item = M> {
        std::mem::take(&mut self.kept).into_iter().flatten()
    }

    /// Whether an acknowledgement is owed.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.ack_due
    }

    /// Acknowledgement to send; it then counts as sent.
    pub fn ack(&mut self) -> Ack {
        self.ack_due = false;
        let bits = self.kept.iter().take(64).enumerate();
        let held = bits.fold(0, |held, (index, kept)| held | (kept.is_some() as u64) << index);
        Ack { next: self.next, held }
    }
}
