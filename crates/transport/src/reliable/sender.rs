//! Sending end: unacknowledged messages and their retransmission.

use super::round_trip::{RoundTrip, back_off};
use super::{Ack, Settings};
use std::collections::VecDeque;

/// After this many acknowledgements report one missing message, it is retransmitted before its timeout.
const HOLES_BEFORE_RESEND: u32 = 3;

struct Flight<M> {
    message: M,
    sends: u32,
    sent_ns: u64,
    due_ns: u64,
    held: bool,
}

/// Sending end of one direction.
pub struct Sender<M> {
    settings: Settings,
    next: u32,
    flights: VecDeque<Flight<M>>,
    round_trip: RoundTrip,
    holes: u32,
    /// Whether a timer may exceed `max_timeout_ns`, the longest timer while acknowledgements arrive.
    rests: bool,
    resends: u64,
}

impl<M> Sender<M> {
    /// Creates a sender whose first message has sequence number `first`, which the receiver must know.
    pub fn new(settings: Settings, first: u32) -> Self {
        Sender {
            settings,
            next: first,
            flights: VecDeque::new(),
            round_trip: RoundTrip::default(),
            holes: 0,
            rests: false,
            resends: 0,
        }
    }

    /// Whether another message may be sent now.
    #[inline]
    pub fn has_room(&self) -> bool {
        (self.flights.len() as u32) < self.settings.window
    }

    /// Adds a message that the caller sends now; returns its number, or the message itself if the window is full.
    pub fn push(&mut self, now_ns: u64, message: M) -> Result<u32, M> {
        if !self.has_room() {
            return Err(message);
        }
        let due_ns = now_ns.saturating_add(self.round_trip.timeout_ns(&self.settings, 1));
        self.flights.push_back(Flight { message, sends: 1, sent_ns: now_ns, due_ns, held: false });
        let seq = self.next;
        self.next = self.next.wrapping_add(1);
        Ok(seq)
    }

    /// Further messages that may be sent now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.settings.window.saturating_sub(self.flights.len() as u32)
    }

    /// Processes an acknowledgement; an invalid one is ignored. Returns whether a timer is now earlier than before.
    pub fn acknowledge(&mut self, now_ns: u64, ack: Ack) -> bool {
        self.acknowledge_with(now_ns, ack, drop)
    }

    /// Processes an acknowledgement like [`Sender::acknowledge`]. `taken_one` gets each message taken by the receiver.
    pub fn acknowledge_with(
        &mut self, now_ns: u64, ack: Ack, mut taken_one: impl FnMut(M),
    ) -> bool {
        let taken = ack.next.wrapping_sub(self.oldest());
        if taken as usize > self.flights.len() {
            return false; // outdated, or ahead of what was sent
        }
        for flight in self.flights.drain(..taken as usize) {
            if flight.sends == 1 && !flight.held {
                self.round_trip.sample(now_ns.saturating_sub(flight.sent_ns));
            }
            taken_one(flight.message);
        }
        if taken > 0 {
            self.holes = 0;
        }
        let settings = &self.settings;
        for (index, flight) in self.flights.iter_mut().take(64).enumerate() {
            if ack.held >> index & 1 == 0 || flight.held {
                continue;
            }
            if flight.sends == 1 {
                self.round_trip.sample(now_ns.saturating_sub(flight.sent_ns));
            }
            flight.held = true;
            // The receiver holds this packet; a retransmission only requests an acknowledgement.
            flight.due_ns = now_ns.saturating_add(settings.max_timeout_ns);
        }
        let rested = self.rests;
        if rested {
            self.end_rest(now_ns);
        }
        self.mend_hole(now_ns, ack) || rested
    }

    /// Makes the oldest message due now if several acknowledgements report it missing. Returns whether they do.
    fn mend_hole(&mut self, now_ns: u64, ack: Ack) -> bool {
        let Some(oldest) = self.flights.front_mut() else {
            return false;
        };
        if ack.held & 1 != 0 || ack.held == 0 {
            return false;
        }
        self.holes += 1;
        let lost = self.holes == HOLES_BEFORE_RESEND;
        if lost {
            oldest.due_ns = oldest.due_ns.min(now_ns);
        }
        lost
    }

    /// Shortens all timers, because the receiver acknowledges again.
    #[cold]
    fn end_rest(&mut self, now_ns: u64) {
        self.rests = false;
        let latest = now_ns.saturating_add(self.settings.max_timeout_ns);
        for flight in &mut self.flights {
            flight.due_ns = flight.due_ns.min(latest);
        }
    }

    /// Next message whose timer has expired, counted as sent now; `None` if no timer has expired.
    pub fn resend(&mut self, now_ns: u64) -> Option<(u32, &M)> {
        let index = self.waiting().find(|(_, flight)| flight.due_ns <= now_ns)?.0;
        let flight = &mut self.flights[index];
        flight.sends = flight.sends.saturating_add(1);
        let wait = match flight.held {
            true => back_off(&self.settings, self.settings.max_timeout_ns, flight.sends),
            false => self.round_trip.timeout_ns(&self.settings, flight.sends),
        };
        self.rests |= wait > self.settings.max_timeout_ns;
        flight.due_ns = now_ns.saturating_add(wait);
        flight.sent_ns = now_ns;
        self.resends += 1;
        Some((
            self.next.wrapping_sub((self.flights.len() - index) as u32),
            &self.flights[index].message,
        ))
    }

    /// Time of the next retransmission; `None` if everything is acknowledged.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.waiting().map(|(_, flight)| flight.due_ns).min()
    }

    /// Messages that may need a retransmission: all that have not arrived, and the oldest (its ack may be lost).
    fn waiting(&self) -> impl Iterator<Item = (usize, &Flight<M>)> {
        self.flights.iter().enumerate().filter(|(index, flight)| *index == 0 || !flight.held)
    }

    /// Whether everything sent has arrived, taken or not.
    pub fn is_held(&self) -> bool {
        self.flights.iter().all(|flight| flight.held)
    }

    /// Removes all unacknowledged messages.
    pub fn abandon(&mut self) -> impl Iterator<Item = M> {
        std::mem::take(&mut self.flights).into_iter().map(|flight| flight.message)
    }

    /// Unacknowledged messages.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Sequence number that the next new message will have.
    pub fn next_seq(&self) -> u32 {
        self.next
    }

    /// Retransmissions so far.
    pub fn resends(&self) -> u64 {
        self.resends
    }

    fn oldest(&self) -> u32 {
        self.next.wrapping_sub(self.flights.len() as u32)
    }
}
