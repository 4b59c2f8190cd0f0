//! A peer that writes arbitrary data to the shared region.
#![allow(unsafe_code, non_snake_case)]

use super::Iface;
use super::testing::ShmPair;
use super::wire::*;
use crate::conformance::{Rig, SendForm, SentMessage, Start, look, post};
use crate::contract::{Connection, Endpoint};
use fastpath_base::sync::Ordering;
use fastpath_segment::PAIR_BYTES;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum HostileAction {
    Scribble(usize, u64),
    Forge {
        id: u8,
        len: u8,
        imm: u32,
        place: (u32, u32),
    },
    /// Sets the head to the tail plus this offset.
    LieOfHead(i64),
    Post(SendForm, usize),
    Look,
    Take,
    PublishHead,
}

fn word() -> impl Strategy<Value = u32> {
    let border = [0, 1, 48, 49, DATA_MESSAGE_MAX as u32, DATA_BYTES_FIRST, DATA_BYTES, u32::MAX];
    prop_oneof![any::<u32>(), prop::sample::select(border.to_vec()), 0..DATA_BYTES]
        .prop_flat_map(|at| prop::sample::select(vec![at, at.wrapping_sub(1), at.wrapping_add(1)]))
}

fn deed() -> impl Strategy<Value = HostileAction> {
    let size = size_of::<PairRegion>() / 8;
    let near = prop_oneof![-3_i64..3, -300_i64..300, any::<i64>()];
    let len = prop_oneof![0_usize..64, Just(DATA_MESSAGE_MAX), 0..DATA_MESSAGE_MAX];
    prop_oneof![
        2 => (prop_oneof![0..size, 0..HEAD_BYTES / 8], any::<u64>())
            .prop_map(|(at, value)| HostileAction::Scribble(at, value)),
        4 => (any::<u8>(), prop_oneof![any::<u8>(), Just(LEN_IN_DATA)], any::<u32>(),
            (word(), word()))
            .prop_map(|(id, len, imm, place)| HostileAction::Forge { id, len, imm, place }),
        2 => near.prop_map(HostileAction::LieOfHead),
        4 => (any::<bool>(), len)
            .prop_map(|(short, len)| {
                HostileAction::Post(if short { SendForm::Short } else { SendForm::Bcopy }, len)
            }),
        3 => Just(HostileAction::Look),
        3 => Just(HostileAction::Take),
        1 => Just(HostileAction::PublishHead),
    ]
}

fn neighbours(pair: &ShmPair) -> [&'static mut [u8]; 2] {
    let region = pair.domains[0].pair(0, 1) as *mut u8;
    // SAFETY: the regions of pairs 0 to 0 and 1 to 0, which no test uses, are mapped before and behind this region.
    unsafe {
        [
            std::slice::from_raw_parts_mut(region.sub(4096), 4096),
            std::slice::from_raw_parts_mut(
                region.add(size_of::<PairRegion>()),
                PAIR_BYTES - size_of::<PairRegion>() + 4096,
            ),
        ]
    }
}

/// Checks that the whole arrival, if there is one, is inside the region and readable.
fn check_view(pair: &mut ShmPair) -> usize {
    let region = pair.rx.rx.pair as usize;
    let mut sum = 0;
    let next = pair.rx.rx.head & SLOT_MASK;
    // SAFETY: the region is mapped while the pair lives.
    let word0 = unsafe { &(*pair.rx.rx.pair).slots[next as usize].word0 };
    let id = (word0.load(Ordering::Relaxed) >> 16) as u8;
    for short in [true, false] {
        let arrival = if short { pair.rx.rx.look_short(id) } else { pair.rx.look() };
        let Some(arrival) = arrival else { continue };
        let (at, len) = (arrival.data() as usize, arrival.len());
        assert!(
            len == 0 || at >= region && at + len <= region + size_of::<PairRegion>(),
            "{len} bytes at {at:#x}"
        );
        assert!(len <= if short { SLOT_PAYLOAD } else { DATA_MESSAGE_MAX });
        if len > 0 {
            // SAFETY: the arrival was checked to be inside the region.
            sum += unsafe { std::slice::from_raw_parts(arrival.data(), len) }
                .iter()
                .map(|&b| b as usize)
                .sum::<usize>();
        }
    }
    sum
}

fn check_sender(pair: &ShmPair) {
    let tx = &pair.tx.tx;
    assert!(tx.limit.wrapping_sub(tx.tail) <= SLOTS);
    // SAFETY: `connect` allocated the queue, and no other reference to it lives now.
    let queue = unsafe { &*tx.in_data };
    assert!(queue.next.wrapping_sub(queue.first) <= SLOTS);
    assert!(tx.data_tail.wrapping_sub(tx.data_head) <= tx.data_size && tx.data_size <= DATA_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn region__whatever_the_peer_writes_is_survived(
        messages in prop_oneof![Just(0), any::<u32>()],
        bytes: u32,
        deeds in prop::collection::vec(deed(), 0..300),
    ) {
        let mut pair = ShmPair::new(Start { messages, bytes });
        for side in neighbours(&pair) {
            side.fill(0x5a);
        }
        let region = pair.region();
        for deed in deeds {
            match deed {
                HostileAction::Scribble(at, value) => {
                    // SAFETY: word `at` is inside the region, and aligned to eight bytes.
                    unsafe { region.cast::<u64>().add(at).write(value) };
                }
                HostileAction::Forge { id, len, imm, place } => {
                    let head = pair.rx.rx.head;
                    // SAFETY: the field is inside the region, which is mapped while the pair lives.
                    let slot = unsafe { &(*region).slots[(head & SLOT_MASK) as usize] };
                    let place = DataRef::new(place.0, place.1 as u16, (place.1 >> 16) as u16, imm);
                    // SAFETY: the payload has room for a `DataRef`.
                    unsafe { slot.payload.get().cast::<DataRef>().write(place) };
                    slot.word0.store(encode_word0(head, id, len, imm), Ordering::Relaxed);
                }
                HostileAction::LieOfHead(off) => {
                    let head = pair.tx.tx.tail.wrapping_add(off as u32);
                    // SAFETY: the field is inside the region, which is mapped while the pair lives.
                    unsafe { (*region).control.head.store(head, Ordering::Relaxed) };
                }
                HostileAction::Post(way, len) => {
                    let max = if way == SendForm::Short { SLOT_PAYLOAD } else { DATA_MESSAGE_MAX };
                    post(&mut pair, way, &SentMessage::numbered(1, len.min(max)));
                    pair.tx.tx.has_room_for(8, 4096);
                    pair.tx.tx.is_drained();
                }
                HostileAction::Look => {
                    check_view(&mut pair);
                }
                HostileAction::Take => {
                    check_view(&mut pair);
                    if look(&mut pair).is_some() {
                        pair.rx().take();
                    }
                }
                HostileAction::PublishHead => {
                    pair.rx.publish_head();
                },
            }
            check_sender(&pair);
        }
        for side in neighbours(&pair) {
            prop_assert!(side.iter().all(|&byte| byte == 0x5a), "written outside of the region");
        }
    }

    #[test]
    fn incoming__bits_beyond_the_ranks__call_no_rank(bits: u64, generations in 1_u32..5) {
        let pair = ShmPair::new(Start::default());
        let mut iface = Iface::new(pair.domains[1]);
        pair.domains[1].incoming_word(1, 0).store(bits, Ordering::Relaxed);
        for _ in 0..generations {
            pair.domains[1].incoming_generation(1).fetch_add(1, Ordering::Relaxed);
            iface.accept(|rank| assert!(rank < 2 && bits >> rank & 1 == 1, "rank {rank} called"));
        }
        prop_assert!(!iface.has_news());
    }
}

#[test]
fn head__that_is_taken_back_takes_no_room_away() {
    let mut pair = ShmPair::new(Start { messages: 0, bytes: 64 });
    let longest = SentMessage::numbered(1, DATA_MESSAGE_MAX);
    post(&mut pair, SendForm::Bcopy, &longest);
    for behind in [SLOTS, SLOTS - 1, SLOTS + 1, 2] {
        let head = pair.tx.tx.tail.wrapping_sub(behind);
        // SAFETY: the field is inside the region, which is mapped while the pair lives.
        unsafe { (*pair.region()).control.head.store(head, Ordering::Relaxed) };
        // The post finds a slot, and reads the head for room in the data area.
        post(&mut pair, SendForm::Bcopy, &longest);
        check_sender(&pair);
    }
}

#[test]
fn cooperative__any_number_of_a_copy_names_a_counter_of_the_region() {
    let mut pair = ShmPair::new(Start::default());
    for index in [0, 31, 32, 33, u16::MAX as u32, u32::MAX] {
        pair.rx.claim_cooperative(index, false);
        pair.tx.claim_cooperative(index, true);
        pair.tx.close_cooperative(index);
    }
    // SAFETY: the region is backed.
    let region = unsafe { &*pair.region() };
    let claimed: Vec<u32> = region
        .cooperative
        .iter()
        .map(|cooperative| cooperative.claimed.load(Ordering::Relaxed))
        .collect();
    assert_eq!(claimed.iter().sum::<u32>(), 12);
    assert_eq!((claimed[0], claimed[1], claimed[31]), (4, 2, 6));
}
