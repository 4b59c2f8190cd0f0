//! Floor of message rates: lines that stream through a ring from one processor to another.
//!
//! Each message is one 64-byte slot whose first word marks its arrival; the receiver returns slots in batches. This is
//! the cost of a message without matching, checks or further copies.

use std::io;

use fastpath_base::clock;
use fastpath_base::sync::{AtomicU64, Ordering};

use super::calibrate_calls;
use super::pair::{Word, run_pair};

const SLOTS: u64 = 256;

/// Number of messages after which the receiver reports its position.
const GIVE_BACK: u64 = 64;

/// Slot of one message: the message's number + 1, and 56 bytes of payload.
#[repr(C, align(64))]
#[derive(Default)]
struct StreamSlot {
    number: AtomicU64,
    payload: [AtomicU64; 7],
}

struct MessageRing {
    slots: Vec<StreamSlot>,
    /// Number of messages read. The sender reads it only when the ring seems full.
    read: Word,
    /// Total number of messages to read; `u64::MAX` ends the receiver.
    wanted: Word,
}

impl MessageRing {
    fn new() -> MessageRing {
        MessageRing {
            slots: (0..SLOTS).map(|_| StreamSlot::default()).collect(),
            read: Word::default(),
            wanted: Word::default(),
        }
    }

    fn slot(&self, n: u64) -> &StreamSlot {
        &self.slots[(n % SLOTS) as usize]
    }

    /// Sends messages `first..end`; returns when all of them were read.
    fn send(&self, first: u64, end: u64) {
        let mut read = first;
        for n in first..end {
            while n >= read + SLOTS {
                // ORDERING: acquire; pairs with the release store in `receive`, after which the slot has been read.
                read = self.read.0.load(Ordering::Acquire);
            }
            let slot = self.slot(n);
            slot.payload[0].store(n, Ordering::Relaxed);
            // ORDERING: release; publishes the payload to the acquire load in `receive`.
            slot.number.store(n + 1, Ordering::Release);
        }
        // ORDERING: acquire; pairs with the release store in `receive`.
        while self.read.0.load(Ordering::Acquire) < end {}
    }

    /// Reads messages until the end mark. Returns the sum of the payloads, so that the compiler keeps the reads.
    fn receive(&self) -> u64 {
        let (mut n, mut sum) = (0u64, 0u64);
        loop {
            let wanted = self.wanted.0.load(Ordering::Relaxed);
            if wanted == u64::MAX {
                return sum;
            }
            while n < wanted {
                let slot = self.slot(n);
                // ORDERING: acquire; pairs with the release store in `send`.
                while slot.number.load(Ordering::Acquire) != n + 1 {}
                sum = sum.wrapping_add(slot.payload[0].load(Ordering::Relaxed));
                n += 1;
                if n % GIVE_BACK == 0 || n == wanted {
                    // ORDERING: release; returns the slots to the acquire load in `send`.
                    self.read.0.store(n, Ordering::Release);
                }
            }
        }
    }
}

/// Samples the time per message in nanoseconds, each the mean over a batch of at least `batch_ns`.
///
/// # Errors
/// This process may not use a processor.
pub fn measure_stream(
    processors: [usize; 2], samples: usize, batch_ns: u64,
) -> io::Result<Vec<f64>> {
    let ring = MessageRing::new();
    let lead = || {
        let mut sent = 0;
        let mut send = |count: u64| {
            ring.wanted.0.store(sent + count, Ordering::Relaxed);
            ring.send(sent, sent + count);
            sent += count;
        };
        let count = calibrate_calls(batch_ns, &mut send);
        let sample = |_| {
            let start = clock::now_ns();
            send(count);
            (clock::now_ns() - start) as f64 / count as f64
        };
        let taken: Vec<f64> = (0..samples).map(sample).collect();
        ring.wanted.0.store(u64::MAX, Ordering::Relaxed);
        taken
    };
    run_pair(processors, lead, || _ = std::hint::black_box(ring.receive()))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn slot__is_one_line() {
        assert_eq!(size_of::<StreamSlot>(), 64);
    }

    #[test]
    fn ring__carries_every_message_once_around_and_again() {
        let ring = MessageRing::new();
        let total = 3 * SLOTS + 17;
        let sum = thread::scope(|scope| {
            let receiver = scope.spawn(|| ring.receive());
            for (first, end) in [(0, 10), (10, SLOTS), (SLOTS, total)] {
                ring.wanted.0.store(end, Ordering::Relaxed);
                ring.send(first, end);
            }
            ring.wanted.0.store(u64::MAX, Ordering::Relaxed);
            receiver.join().unwrap()
        });
        assert_eq!(sum, (0..total).sum::<u64>());
    }

    #[test]
    fn measure__on_a_processor_that_is_not_there_is_an_error() {
        assert!(measure_stream([0, 1 << 20], 1, 100).is_err());
    }
}
