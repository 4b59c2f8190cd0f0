//! Random one-sided operations, compared with a plain array of bytes; invalid keys and messages.
#![allow(unsafe_code, non_snake_case)]

mod common;
#[path = "common/rma.rs"]
mod remote;

use common::*;
use fastpath_protocol::rma::{AccessPath, PACKED_BYTES, RmaError};
use fastpath_transport::sim::Conditions;
use proptest::prelude::*;
use remote::{Region, bad_network, flush, get, put, region, with_fragments};

#[derive(Debug, Clone)]
enum RmaAction {
    Put(usize, Vec<u8>),
    Get(usize, usize),
    Add(usize, u64),
    Swap(usize, u64, u64, bool),
    Flush,
    Progress,
}

const BYTES: usize = 600;

fn deed() -> impl Strategy<Value = RmaAction> {
    let at = || 0..BYTES + 20;
    let bytes = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..70),
        1 => prop::collection::vec(any::<u8>(), 0..BYTES)
    ];
    prop_oneof![
        4 => (at(), bytes).prop_map(|(at, bytes)| RmaAction::Put(at, bytes)),
        4 => (at(), 0..BYTES).prop_map(|(at, len)| RmaAction::Get(at, len)),
        2 => (0..BYTES / 8 + 2, any::<u64>()).prop_map(|(word, add)| RmaAction::Add(8 * word, add)),
        2 => (0..BYTES / 8 + 2, any::<u64>(), any::<u64>(), any::<bool>())
            .prop_map(|(word, compare, swap, hit)| RmaAction::Swap(8 * word, compare, swap, hit)),
        2 => Just(RmaAction::Flush),
        2 => Just(RmaAction::Progress),
    ]
}

/// Performs the operations on the region and an array. Only puts have an order, so all others are followed by a flush.
fn run_deeds(
    world: &mut World, region: &mut Region, deeds: &[RmaAction],
) -> Result<(), TestCaseError> {
    let mut model = pattern(6, BYTES);
    region.fill(&model);
    let word = |model: &[u8], at: usize| u64::from_ne_bytes(model[at..at + 8].try_into().unwrap());
    // Buffers of operations that are under way, with their expected contents after the flush.
    let mut kept: Vec<(Box<[u8]>, Vec<u8>)> = Vec::new();
    for deed in deeds.iter().chain([&RmaAction::Flush]) {
        let (at, len) = match deed {
            RmaAction::Put(at, bytes) => (*at, bytes.len()),
            RmaAction::Get(at, len) => (*at, *len),
            RmaAction::Add(at, _) | RmaAction::Swap(at, ..) => (*at, 8),
            RmaAction::Flush | RmaAction::Progress => (0, 0),
        };
        let (inside, key) = (at + len <= BYTES, &mut region.key);
        let mut buffer: Box<[u8]> = vec![FILL; len].into();
        let before = if inside { model[at..at + len].to_vec() } else { buffer.to_vec() };
        let found: *mut u64 = buffer.as_mut_ptr().cast();
        let posted = match deed {
            RmaAction::Put(_, bytes) => {
                buffer.copy_from_slice(bytes);
                put(world, key, at as u64, &buffer)
            }
            RmaAction::Get(..) => get(world, key, at as u64, &mut buffer),
            // SAFETY: the buffers live until the flush, and have space for a word.
            RmaAction::Add(_, add) => unsafe {
                world.rank(0).fetch_add_nbi(key, at as u64, *add, found)
            },
            // SAFETY: the buffers live until the flush, and have space for a word.
            RmaAction::Swap(_, compare, swap, hit) => unsafe {
                let compare = if *hit && inside { word(&model, at) } else { *compare };
                world.rank(0).compare_swap_nbi(key, at as u64, compare, *swap, found)
            },
            RmaAction::Flush => {
                prop_assert_eq!(flush(world), Ok(()));
                for (buffer, wanted) in kept.drain(..) {
                    prop_assert_eq!(&buffer[..], &wanted[..]);
                }
                prop_assert_eq!(region.bytes(), model.clone());
                continue;
            }
            RmaAction::Progress => {
                world.progress();
                continue;
            }
        };
        prop_assert_eq!(posted.is_ok(), inside);
        let wanted = match deed {
            RmaAction::Put(_, bytes) => bytes.clone(),
            _ => before.clone(),
        };
        if inside {
            match deed {
                RmaAction::Put(_, bytes) => model[at..at + len].copy_from_slice(bytes),
                RmaAction::Add(_, add) => {
                    let sum = word(&model, at).wrapping_add(*add);
                    model[at..at + 8].copy_from_slice(&sum.to_ne_bytes());
                }
                RmaAction::Swap(_, compare, swap, hit) if *hit || word(&model, at) == *compare => {
                    model[at..at + 8].copy_from_slice(&swap.to_ne_bytes());
                }
                _ => {}
            }
        }
        kept.push((buffer, wanted));
        // Only puts have an order, and only those to one peer over one access path.
        if !matches!(deed, RmaAction::Put(..)) {
            prop_assert_eq!(flush(world), Ok(()));
        }
    }
    Ok(())
}

/// A [`ChangeFunction`] that sets all bytes that it may write to 0.
unsafe fn clear_all(_: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool {
    // SAFETY: both have `len` bytes.
    unsafe {
        data.write_bytes(0, len);
        memory.write_bytes(0, len);
    }
    true
}

/// Generates a message of a peer, valid or not.
fn forgery() -> impl Strategy<Value = (u8, u32, u64, Vec<u64>, usize)> {
    let word = prop_oneof![0_u64..100, Just(1 << 32), any::<u64>(), Just(u64::MAX)];
    let words = prop::collection::vec(word, 0..20);
    let key = prop_oneof![
        0_u64..4,
        (1_u64..3, 0_u64..4).prop_map(|(used, at)| used << 32 | at),
        any::<u64>()
    ];
    let imm = prop_oneof![0_u32..200, any::<u32>()];
    // In a `REMOTE_CHANGE` message (id 22), the upper 16 bits of `imm` are the length of the answer.
    let imm = prop_oneof![imm, (0_u32..80, 0_u32..80).prop_map(|(len, answer)| len | answer << 16)];
    let id = prop_oneof![12_u8..18, 21_u8..25];
    (id, imm, key, words, 0_usize..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages__that_lie_change_nothing_but_what_is_exposed(forged in prop::collection::vec(forgery(), 1..40)) {
        let mut world = World::new(2, Conditions { delay_ns: 0..=0, slots: 64, ..Conditions::default() });
        world.rank(0).rma.change = clear_all;
        let mut theirs = region(&mut world, 64, 0, false);
        // Rank 0 exposes the middle of this array.
        let own: &'static mut [u64] = Box::leak(vec![u64::MAX; 48].into_boxed_slice());
        let at: *mut u8 = own.as_mut_ptr().cast();
        // SAFETY: the memory is leaked.
        unsafe { world.rank(0).expose_memory(at.wrapping_add(128), 128) };
        let mut buffer = [u64::MAX; 16];
        let middle: *mut u8 = buffer[4..].as_mut_ptr().cast();
        for (id, imm, key, words, cut) in forged {
            // SAFETY: `middle` and the 64 bytes behind it lie in `buffer`, which lives until the end.
            let _ = unsafe { world.rank(0).get_nbi(&mut theirs.key, 0, middle, 64).unwrap() };
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let header = fastpath_transport::Header::new(id, imm, key);
            world.network.forge(1, 0, header, &bytes[..bytes.len() - cut.min(bytes.len())]);
            world.rank(0).progress();
        }
        world.network.leave(1);
        let _ = flush(&mut world);
        prop_assert!(world.rank(0).is_idle());
        for index in (0..16).chain(32..48) {
            // SAFETY: the memory is leaked.
            prop_assert_eq!(unsafe { at.cast::<u64>().add(index).read_volatile() }, u64::MAX);
        }
        prop_assert!(buffer[..4] == [u64::MAX; 4] && buffer[12..] == [u64::MAX; 4]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn deeds__by_messages_over_a_bad_network_do_what_they_do_to_an_array(
        seed: u64, fragment in 20_u64..200, slots in 2_usize..20,
        deeds in prop::collection::vec(deed(), 0..60),
    ) {
        let conditions = Conditions { slots, ..bad_network(seed) };
        let mut world = with_fragments(World::new(2, conditions), fragment);
        let mut region = region(&mut world, BYTES, 0, false);
        prop_assert_eq!(region.key.way(), AccessPath::Messages);
        run_deeds(&mut world, &mut region, &deeds)?;
        prop_assert_eq!(world.rank(1).counters.violations, 0);
        prop_assert_eq!(world.rank(0).counters.violations, 0);
    }

    #[test]
    fn deeds__in_shared_memory_do_what_they_do_to_an_array(
        arena: bool, copies: bool, deeds in prop::collection::vec(deed(), 0..60),
    ) {
        let mut world = with_fragments(World::shared_with(2, copies, true), 100);
        let mut region = region(&mut world, BYTES, 0, arena);
        run_deeds(&mut world, &mut region, &deeds)?;
    }

    #[test]
    fn key__of_any_bytes_reaches_nothing_that_is_not_exposed(
        bytes in prop::collection::vec(any::<u8>(), PACKED_BYTES), fields in 0_u8..8, at in 0_usize..PACKED_BYTES,
    ) {
        let mut world = World::new(2, Conditions::default());
        let mut theirs = region(&mut world, 64, 0, false);
        // Try a key with a valid head and arbitrary words, and a key with one changed byte.
        let mut wild = theirs.exposed.key;
        for word in 0..6_usize {
            if fields >> (word % 3) & 1 == 1 {
                wild[8 + 8 * word..16 + 8 * word].copy_from_slice(&bytes[8 + 8 * word..16 + 8 * word]);
            }
        }
        wild[1] = theirs.exposed.key[1];
        let mut changed = theirs.exposed.key;
        changed[at] ^= bytes[at] | 1;
        let right = theirs.exposed.key;
        for key in [wild, changed] {
            let Ok(mut key) = world.rank(0).unpack_key(1, &key) else { continue };
            let named = key.len().min(16) as usize;
            let data = [9_u8; 16];
            if put(&mut world, &mut key, 0, &data[..named]).is_ok() {
                let ended = flush(&mut world);
                let is_same = theirs.bytes()[..named].iter().all(|&byte| byte == 9);
                prop_assert!(ended == Err(RmaError::Withdrawn) || is_same || named == 0);
            }
        }
        prop_assert!(theirs.bytes()[16..].iter().all(|&byte| byte == 0));
        theirs.key = world.rank(0).unpack_key(1, &right).unwrap();
        let _ = put(&mut world, &mut theirs.key, 0, &[1; 64]).unwrap();
        prop_assert_eq!(flush(&mut world), Ok(()));
    }
}
