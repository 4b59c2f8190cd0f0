//! One direction of a link: a sequence of packets.

use crate::link::Link;

/// Symbol times from one skip to the next, and duration of a skip in symbol times.
const SKIP_EVERY: u64 = 1538;
const SKIP: u64 = 4;

/// Traffic of one direction of a bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Number of packets with data or requests.
    pub packets: u64,
    /// Data in the packets, in bytes.
    pub data: u64,
    /// Total size of the packets, in bytes.
    pub bytes: u64,
    /// Number of acknowledgements and credit updates, 8 bytes each.
    pub answers: u64,
}

impl Tally {
    pub(super) fn count(&mut self, data: u64, bytes: u64) {
        self.packets += 1;
        self.data += data;
        self.bytes += bytes;
    }
}

#[derive(Debug, Clone)]
pub(super) struct SerialLine {
    per_byte: f64,
    free_at: u64,
    skip_every: u64,
    skip: u64,
    next_skip: u64,
    /// Period in which at most one acknowledgement and one update are sent on this line.
    timeout: u64,
    answered: [u64; 2],
    due: [bool; 2],
    pub tally: Tally,
}

impl SerialLine {
    /// Creates a line on which a byte takes `per_byte` femtoseconds, without interruptions.
    pub fn new(per_byte: f64) -> SerialLine {
        SerialLine {
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

    pub fn of_bus(link: &Link, data_link: bool) -> SerialLine {
        let generation = link.generation();
        let bits_per_ns = generation.gt_per_s() * generation.encoding();
        let symbol = 8e6 / bits_per_ns;
        let mut line = SerialLine::new(symbol / f64::from(link.lanes().count()));
        if data_link {
            line.skip_every = (symbol * SKIP_EVERY as f64).round() as u64;
            line.skip = (symbol * SKIP as f64).round() as u64;
            line.next_skip = line.skip_every;
            if generation.is_flit() {
                // The data-link layer uses 6 of a flit's 242 bytes.
                line.per_byte *= 242.0 / 236.0;
            } else {
                line.timeout = (symbol * f64::from(link.answer_limit())).round() as u64;
            }
        }
        line
    }

    /// Appends `bytes` bytes; returns the time at which the last of them has left.
    pub fn send(&mut self, now: u64, bytes: u64) -> u64 {
        let start = now.max(self.free_at);
        let mut end = start + (bytes as f64 * self.per_byte).round() as u64;
        if self.next_skip < start && self.skip_every > 0 {
            // Skips in idle time cost nothing. A skip that is in progress delays the packet.
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

    /// Time at which the line becomes idle.
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Registers an arrival on the other line that needs an answer on this line. Returns the time of the answer; None
    /// if this line sends no answers, or if one is planned already.
    pub fn owe(&mut self, now: u64, update: bool) -> Option<u64> {
        let which = usize::from(update);
        if self.timeout == 0 || self.due[which] {
            return None;
        }
        self.due[which] = true;
        Some(now.max(self.answered[which] + self.timeout))
    }

    pub fn answer(&mut self, now: u64, update: bool) {
        let which = usize::from(update);
        self.due[which] = false;
        self.answered[which] = now;
        self.tally.answers += 1;
        self.send(now, 8);
    }
}
