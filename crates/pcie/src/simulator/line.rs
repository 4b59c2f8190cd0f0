//! One direction of a link: packets one behind the other.

use super::node::Tally;
use crate::link::Link;

/// Symbol times from one skip to the next, and what a skip takes.
const SKIP_EVERY: u64 = 1538;
const SKIP: u64 = 4;

/// A line. Times in femtoseconds.
#[derive(Debug, Clone)]
pub(super) struct Line {
    per_byte: f64,
    free_at: u64,
    skip_every: u64,
    skip: u64,
    next_skip: u64,
    /// Time in which at most one acknowledgement and one update is sent on this line.
    timeout: u64,
    answered: [u64; 2],
    due: [bool; 2],
    pub tally: Tally,
}

impl Line {
    /// A line on which a byte takes `per_byte`, and that is never interrupted.
    pub fn new(per_byte: f64) -> Line {
        Line {
            per_byte,
            free_at: 0,
            skip_every: 0,
            skip: 0,
            next_skip: u64::MAX,
            timeout: 0,
            answered: [0; 2],
            due: [false; 2],
            tally: Tally::default(),
        }
    }

    /// One direction of a bus.
    pub fn of_bus(link: &Link, data_link: bool) -> Line {
        let generation = link.generation();
        let bits_per_ns = generation.gt_per_s() * generation.encoding();
        let symbol = 8e6 / bits_per_ns;
        let mut line = Line::new(symbol / f64::from(link.lanes().count()));
        if data_link {
            line.skip_every = (symbol * SKIP_EVERY as f64).round() as u64;
            line.skip = (symbol * SKIP as f64).round() as u64;
            line.next_skip = line.skip_every;
            if generation.is_flit() {
                // 6 of the 242 bytes that a flit has for packets and their answers.
                line.per_byte *= 242.0 / 236.0;
            } else {
                line.timeout = (symbol * f64::from(link.answer_limit())).round() as u64;
            }
        }
        line
    }

    /// Puts so many bytes behind what is there; when the last of them has left.
    pub fn send(&mut self, now: u64, bytes: u64) -> u64 {
        let start = now.max(self.free_at);
        let mut end = start + (bytes as f64 * self.per_byte).round() as u64;
        if self.next_skip < start && self.skip_every > 0 {
            // Skips that fell into idle time cost nothing; one may be under way.
            let passed = (start - self.next_skip) / self.skip_every;
            self.next_skip += passed * self.skip_every;
            end += (self.next_skip + self.skip).saturating_sub(start);
            self.next_skip += self.skip_every;
        }
        while self.next_skip < end {
            end += self.skip;
            self.next_skip += self.skip_every;
        }
        self.free_at = end;
        end
    }

    /// When the line has sent all it was given.
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Something arrived on the other line that is answered on this one; when, if that is not
    /// planned already.
    pub fn owe(&mut self, now: u64, update: bool) -> Option<u64> {
        let which = usize::from(update);
        if self.timeout == 0 || self.due[which] {
            return None;
        }
        self.due[which] = true;
        Some(now.max(self.answered[which] + self.timeout))
    }

    /// Sends the answer.
    pub fn answer(&mut self, now: u64, update: bool) {
        let which = usize::from(update);
        self.due[which] = false;
        self.answered[which] = now;
        self.tally.answers += 1;
        self.send(now, 8);
    }
}
