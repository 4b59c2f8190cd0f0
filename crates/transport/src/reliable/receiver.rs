//! The receiving end: puts in order what arrives, and says what has been taken.

use super::Ack;
use std::collections::VecDeque;

/// What became of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Kept; it can be looked at once everything before it has been taken.
    Kept,
    /// It was here already.
    Duplicate,
    /// Beyond the window: no healthy sender sends it.
    OutOfWindow,
}

/// The receiving end of one direction.
pub struct Receiver<M> {
    /// Sequence number of the next message to take.
    next: u32,
    window: u32,
    /// From `next` on: what has arrived.
    kept: VecDeque<Option<M>>,
    ack_due: bool,
}

impl<M> Receiver<M> {
    /// A receiver whose sender starts with the sequence number `first` and has `window` messages
    /// under way at most.
    pub fn new(window: u32, first: u32) -> Self {
        Receiver { next: first, window, kept: VecDeque::new(), ack_due: false }
    }

    /// Takes in an arrival. Whatever it is, the sender is due an answer.
    pub fn accept(&mut self, seq: u32, message: M) -> Accepted {
        let ahead = seq.wrapping_sub(self.next);
        if ahead >= self.window {
            // Behind by less than half of all numbers: taken before.
            let old = ahead > u32::MAX / 2;
            self.ack_due |= old;
            return if old { Accepted::Duplicate } else { Accepted::OutOfWindow };
        }
        self.ack_due = true;
        let index = ahead as usize;
        if self.kept.len() <= index {
            self.kept.resize_with(index + 1, || None);
        }
        if self.kept[index].is_some() {
            return Accepted::Duplicate;
        }
        self.kept[index] = Some(message);
        Accepted::Kept
    }

    /// The next message in order, left where it is.
    #[inline]
    pub fn look(&self) -> Option<&M> {
        self.kept.front()?.as_ref()
    }

    /// Takes the next message in order.
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

    /// Whether something has arrived that something before it is missing for.
    #[inline]
    pub fn has_hole(&self) -> bool {
        self.kept.front().is_some_and(Option::is_none)
    }

    /// What has arrived and not been taken, in order.
    pub fn kept(&self) -> impl Iterator<Item = &M> {
        self.kept.iter().flatten()
    }

    /// Gives up: gives back what has arrived and not been taken.
    pub fn abandon(&mut self) -> impl Iterator<Item = M> {
        std::mem::take(&mut self.kept).into_iter().flatten()
    }

    /// Whether the sender should hear from this receiver.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.ack_due
    }

    /// What to tell the sender; taken as told.
    pub fn ack(&mut self) -> Ack {
        self.ack_due = false;
        let bits = self.kept.iter().take(64).enumerate();
        let held = bits.fold(0, |held, (index, kept)| held | (kept.is_some() as u64) << index);
        Ack { next: self.next, held }
    }
}
