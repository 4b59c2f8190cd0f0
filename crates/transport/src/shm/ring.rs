//! One ring in plain memory between two threads, for the model checker (`loom.rs`) and miri.
#![allow(unsafe_code, non_snake_case)]

use super::data_area::LocalDataArea;
use super::datapath::{DataQueue, Rx, Tx};
use super::iface::wake;
use super::wire::*;
use crate::contract::{Header, Post};
use fastpath_base::sync::{AtomicU32, AtomicU64, RaceCheck};
use fastpath_segment::{STATE_AWAKE, Wakes};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::UnsafeCell;
use std::ptr;

pub(super) struct SharedRing {
    pub pair: *mut PairRegion,
    pub sender: Wakes,
    pub receiver_state: AtomicU32,
}

// SAFETY: the pair is made for sharing; producer and consumer are one thread each.
unsafe impl Send for SharedRing {}
// SAFETY: shared fields are atomic, or belong to one side by the protocol of the ring.
unsafe impl Sync for SharedRing {}

impl SharedRing {
    pub fn new(start: u32) -> SharedRing {
        // SAFETY: all bytes zero are a valid region, and fields that the checker tracks are written before any read.
        // `drop` frees the memory.
        let pair = unsafe {
            let pair = alloc_zeroed(Layout::new::<PairRegion>()).cast::<PairRegion>();
            let control = &raw mut (*pair).control;
            (&raw mut (*control).head).write(AtomicU32::new(start));
            (&raw mut (*control).producer_waits).write(AtomicU32::new(0));
            (&raw mut (*control).data_size).write(AtomicU32::new(0));
            (&raw mut (*control).taken).write(AtomicU32::new(start));
            for position in (0..SLOTS).map(|index| start.wrapping_sub(SLOTS).wrapping_add(index)) {
                // Word that the previous lap has left in each slot.
                let old = match start {
                    0 => 0,
                    _ => encode_word0(position, 0, 0, 0),
                };
                let slots = (&raw mut (*pair).slots).cast::<Slot>();
                slots.add((position & SLOT_MASK) as usize).write(Slot {
                    word0: AtomicU64::new(old),
                    word1: AtomicU64::new(0),
                    payload: UnsafeCell::new([0; SLOT_PAYLOAD]),
                    watch: RaceCheck::default(),
                });
            }
            pair
        };
        SharedRing { pair, sender: Wakes::default(), receiver_state: AtomicU32::new(STATE_AWAKE) }
    }

    pub fn tx(&self, start: u32) -> Tx {
        Tx {
            pair: self.pair,
            tail: start,
            limit: start.wrapping_add(SLOTS),
            peer_state: &self.receiver_state,
            data_tail: 0,
            data_head: 0,
            data_size: DATA_BYTES,
            peer: 1,
            in_data: Box::into_raw(Box::new(DataQueue::whole(start))),
            domain: ptr::null(),
            recent: 0,
            warmed: 0,
        }
    }

    pub fn rx(&self, start: u32) -> Rx {
        Rx {
            pair: self.pair,
            head: start,
            published: start,
            data_taken: 0,
            owed_max: super::datapath::DATA_OWED_MIN,
            shown: Default::default(),
            taken: 0,
            producer: &self.sender,
        }
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: `new` made the pair, and both threads have ended.
        unsafe {
            for slot in &mut (*self.pair).slots {
                ptr::drop_in_place(slot);
            }
            ptr::drop_in_place(&raw mut (*self.pair).control);
            std::alloc::dealloc(self.pair.cast(), Layout::new::<PairRegion>());
        }
    }
}

fn header(number: u32) -> Header {
    Header::new(1, number, u64::from(number) | 0xabcd << 32)
}

pub(super) fn post(tx: &mut Tx, number: u32) -> bool {
    let data = number.to_le_bytes();
    // SAFETY: the data has four bytes.
    match unsafe { tx.am_short(header(number), data.as_ptr(), data.len()) } {
        Post::Done => true,
        Post::Wake => {
            // SAFETY: the state word lives as long as the ring.
            wake(unsafe { &*tx.peer_state });
            true
        }
        Post::NoResource => false,
        other => panic!("{other:?}"),
    }
}

pub(super) fn take_one(rx: &mut Rx) {
    rx.data_taken += rx.shown.len;
    if rx.advance() || rx.data_taken >= rx.owed_max {
        rx.publish_to(rx.head);
    }
}

pub(super) fn take(rx: &mut Rx, number: u32) -> bool {
    let Some(arrival) = rx.look(LocalDataArea::NOTHING) else {
        return false;
    };
    assert_eq!((arrival.header, arrival.len()), (header(number), 4));
    // SAFETY: an arrival is valid until it is taken, and this one has four bytes.
    let data = unsafe { ptr::read_unaligned(arrival.data().cast::<[u8; 4]>()) };
    assert_eq!(data, number.to_le_bytes());
    take_one(rx);
    true
}

pub(super) fn close(tx: Tx) {
    // SAFETY: `SharedRing::tx` made it by `Box::into_raw`, and `tx` is its last user.
    unsafe { DataQueue::free(tx.in_data) };
}

#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Payload of message `number`, for the slot or the data area, so that the positions in both wrap.
    fn data_of(number: u32) -> Vec<u8> {
        let len = if number.is_multiple_of(3) { number % 900 } else { number % 49 };
        (0..len).map(|i| (number.wrapping_mul(31) + i) as u8).collect()
    }

    fn exchange(start: u32, messages: u32) {
        let shared = Arc::new(SharedRing::new(start));
        let other = shared.clone();
        let producer = std::thread::spawn(move || {
            let mut tx = other.tx(start);
            for number in 0..messages {
                let data = data_of(number);
                let header = Header::new(7, number, !u64::from(number));
                loop {
                    // SAFETY: `to` has room for the data.
                    let posted = tx.am_bcopy(header, data.len(), &0, |to| unsafe {
                        ptr::copy_nonoverlapping(data.as_ptr(), to, data.len())
                    });
                    match posted {
                        Post::Done => break,
                        Post::NoResource => std::thread::yield_now(),
                        other => panic!("{other:?}"),
                    }
                }
            }
            close(tx);
        });
        let mut rx = shared.rx(start);
        for number in 0..messages {
            let arrival = loop {
                if rx.has_arrival()
                    && let Some(arrival) = rx.look(LocalDataArea::NOTHING)
                {
                    break arrival;
                }
                std::thread::yield_now();
            };
            let expected = data_of(number);
            assert_eq!((arrival.header.imm, arrival.len()), (number, expected.len()));
            // SAFETY: an arrival is valid until it is taken.
            let seen = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
            assert!(seen == expected, "message {number}");
            take_one(&mut rx);
        }
        producer.join().unwrap();
        assert!(rx.look(LocalDataArea::NOTHING).is_none());
    }

    #[test]
    fn threads__hand_over_every_message_whole() {
        let messages = if cfg!(miri) { 700 } else { 20_000 };
        exchange(0, messages);
        exchange(u32::MAX - 100, messages);
    }

    #[test]
    fn short_messages__are_read_before_they_are_written_again() {
        let shared = SharedRing::new(0);
        let (mut tx, mut rx) = (shared.tx(0), shared.rx(0));
        for number in 0..3 * SLOTS {
            assert!(post(&mut tx, number));
            assert!(take(&mut rx, number));
        }
        (0..SLOTS).for_each(|number| assert!(post(&mut tx, number)));
        assert!(!post(&mut tx, 0), "the ring is full");
        (0..SLOTS).for_each(|number| assert!(take(&mut rx, number)));
        close(tx);
    }
}
