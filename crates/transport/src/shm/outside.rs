//! State of a ring, for tools that inspect a job from outside.

use super::wire::{PairRegion, RingControl, SLOT_MASK, SLOTS, Slot, stamp};
use std::mem::offset_of;

/// Bytes at the start of a pair's region that [`see_ring`] reads.
pub const SEEN_BYTES: usize = offset_of!(PairRegion, slots) + SLOTS as usize * size_of::<Slot>();

/// State of a ring at the time when its bytes were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingSnapshot {
    /// Slots filled so far. Each is a short message or one step of a longer message.
    pub sent: u64,
    /// Filled slots that the receiver has not published as taken.
    pub waiting: u64,
}

/// State of a ring from the first [`SEEN_BYTES`] of a pair's region; `None` if `bytes` is shorter.
pub fn see_ring(bytes: &[u8]) -> Option<RingSnapshot> {
    let bytes = bytes.first_chunk::<SEEN_BYTES>()?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let of_control = |field: usize| word(offset_of!(PairRegion, control) + field);
    let taken = of_control(offset_of!(RingControl, taken));
    let is_there = |position: u32| {
        let slot = (position & SLOT_MASK) as usize * size_of::<Slot>();
        word(offset_of!(PairRegion, slots) + slot + offset_of!(Slot, word0)) as u16
            == stamp(position)
    };
    let positions = (0..SLOTS).map(|ahead| taken.wrapping_add(ahead));
    let waiting = positions.take_while(|&at| is_there(at)).count() as u64;
    let laps = of_control(offset_of!(RingControl, laps));
    let sent = (u64::from(laps) << 32 | u64::from(taken)).saturating_add(waiting);
    Some(RingSnapshot { sent, waiting })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::ShmPair;
    use super::super::wire::encode_word0;
    use super::*;
    use crate::conformance::{Rig, SendForm, SentMessage, Start, look, post};
    use crate::contract::Endpoint;

    fn region(taken: u32, laps: u32, waiting: u32) -> Vec<u8> {
        let mut bytes = vec![0; SEEN_BYTES];
        let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        put(offset_of!(RingControl, taken), taken);
        put(offset_of!(RingControl, laps), laps);
        for back in 1..=SLOTS.min(taken) {
            let at = taken - back;
            let slot =
                offset_of!(PairRegion, slots) + (at & SLOT_MASK) as usize * size_of::<Slot>();
            put(slot, encode_word0(at, 1, 0, 0) as u32);
        }
        for ahead in 0..waiting {
            let at = taken.wrapping_add(ahead);
            let slot =
                offset_of!(PairRegion, slots) + (at & SLOT_MASK) as usize * size_of::<Slot>();
            put(slot, encode_word0(at, 1, 0, 0) as u32);
        }
        bytes
    }

    #[test]
    fn ring__tells_what_was_sent_and_what_waits() {
        let see = |taken, laps, waiting| see_ring(&region(taken, laps, waiting)).unwrap();
        let seen = |sent, waiting| RingSnapshot { sent, waiting };
        assert_eq!(see(0, 0, 0), seen(0, 0));
        assert_eq!(see(0, 0, 3), seen(3, 3));
        assert_eq!(see(1000, 0, 256), seen(1256, 256));
        assert_eq!(see(u32::MAX, 2, 3), seen((3 << 32) + 2, 3));
        assert_eq!(see_ring(&[0; 100]), None);
    }

    #[test]
    fn ring__that_has_come_round_tells_all_that_was_sent() {
        let start = Start { messages: u32::MAX - 10, bytes: 0 };
        let mut pair = ShmPair::new(start);
        for number in 0..600_u64 {
            post(&mut pair, SendForm::Short, &SentMessage::numbered(1, 8));
            if number < 597 {
                assert!(look(&mut pair).is_some());
                pair.rx().take();
                pair.rx.publish_head();
            }
        }
        let sent = u64::from(u32::MAX) - 10 + 600;
        assert_eq!(see_ring(&pair.bytes()), Some(RingSnapshot { sent, waiting: 3 }));
    }
}
