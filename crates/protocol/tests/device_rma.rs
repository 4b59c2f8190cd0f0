//! One-sided operations over a real adapter (or a software one of the kernel), two ranks in one process. Built with feature
//! `adapter` alone: `tests/vm/cases/rc.toml` does.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::rma::{Exposed, Moved, RemoteKey, RmaError, Way};
use fastpath_transport::adapter::By;
use fastpath_transport::sim::Random;
use std::time::{Duration, Instant};

/// Nothing here takes so long; a test that does has hung.
const WATCHDOG: Duration = Duration::from_secs(60);

const BOTH: [(By, Way); 2] = [(By::Rc, Way::Adapter), (By::Ud, Way::Messages)];

fn world(by: By) -> World {
    let device =
        std::env::var("FASTPATH_TEST_DEVICE").expect("FASTPATH_TEST_DEVICE names an adapter");
    World::on_adapter_by(2, by, &device)
}

/// Memory of rank 1 that rank 0 reaches.
fn region(world: &mut World, memory: &mut [u8]) -> (RemoteKey, Exposed) {
    // SAFETY: every caller keeps the memory until its world has gone.
    let exposed = unsafe {
        world
            .rank(1)
            .expose_memory(memory.as_mut_ptr(), memory.len())
    };
    (world.rank(0).unpack_key(1, &exposed.key).unwrap(), exposed)
}

fn flush(world: &mut World) -> Result<(), RmaError> {
    let start = Instant::now();
    loop {
        match world.rank(0).progress_flush(1) {
            Ok(false) => world.progress(),
            ended => return ended.map(|_| ()),
        };
        assert!(start.elapsed() < WATCHDOG, "a flush never ends");
    }
}

fn put(
    world: &mut World,
    key: &mut RemoteKey,
    offset: usize,
    from: &[u8],
) -> Result<Moved, RmaError> {
    // SAFETY: every caller keeps the bytes until it has flushed.
    unsafe {
        world
            .rank(0)
            .put_nbi(key, offset as u64, from.as_ptr(), from.len())
    }
}

fn get(
    world: &mut World,
    key: &mut RemoteKey,
    offset: usize,
    to: &mut [u8],
) -> Result<Moved, RmaError> {
    // SAFETY: as in `put`.
    unsafe {
        world
            .rank(0)
            .get_nbi(key, offset as u64, to.as_mut_ptr(), to.len())
    }
}

#[test]
fn bytes__of_every_size_go_there_and_come_back() {
    for (by, way) in BOTH {
        let mut world = world(by);
        for len in [0, 1, 8, 219, 220, 221, 1000, 8192, 8193, 100_000, 1_500_000] {
            let mut memory = pattern(1, len + 16);
            let (mut key, exposed) = region(&mut world, &mut memory);
            assert_eq!(key.way(), way);
            let sent = pattern(2, len);
            let _ = put(&mut world, &mut key, 5, &sent).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            let mut wanted = pattern(1, len + 16);
            wanted[5..5 + len].copy_from_slice(&sent);
            assert!(memory == wanted, "put of {len} by {by}");
            let mut got = vec![FILL; len + 10];
            let _ = get(&mut world, &mut key, 2, &mut got[..len + 5]).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            assert!(got[..len + 5] == wanted[2..len + 7], "get of {len} by {by}");
            assert!(got[len + 5..].iter().all(|&byte| byte == FILL));
            assert!(put(&mut world, &mut key, len + 16, &[1]).is_err());
            assert!(world.rank(1).withdraw_memory(exposed.id));
        }
    }
}

#[test]
fn windows__of_256_are_there_after_a_flush() {
    for (by, _) in BOTH {
        let mut world = world(by);
        let mut memory = vec![0; 256 * 700];
        let (mut key, _) = region(&mut world, &mut memory);
        for len in [8, 700] {
            let sent = pattern(3, 256 * len);
            for (at, part) in sent.chunks(len).enumerate() {
                let _ = put(&mut world, &mut key, at * len, part).unwrap();
            }
            assert_eq!(flush(&mut world), Ok(()));
            assert!(memory[..sent.len()] == sent, "{len} by {by}");
            let mut got = vec![0; sent.len()];
            for (at, part) in got.chunks_mut(len).enumerate() {
                let _ = get(&mut world, &mut key, at * len, part).unwrap();
            }
            assert_eq!(flush(&mut world), Ok(()));
            assert!(got == sent, "{len} by {by}");
        }
    }
}

#[test]
fn operations__in_any_order_do_what_they_do_to_an_array() {
    const BYTES: usize = 30_000;
    for (by, _) in BOTH {
        let (mut world, mut random) = (world(by), Random::new(7));
        let mut words = vec![0_u64; BYTES / 8];
        let memory: *mut u8 = words.as_mut_ptr().cast();
        // SAFETY: nobody else looks at it while the adapter does.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory, BYTES) };
        let (mut key, _) = region(&mut world, memory);
        let mut model = vec![0; BYTES];
        for turn in 0..150 {
            let most = if random.chance(0.2) { BYTES / 2 } else { 300 };
            let len = random.below(most as u64) as usize;
            let at = random.below((BYTES - len) as u64) as usize;
            if random.chance(0.2) {
                let (at, add) = (at / 8 * 8 % (BYTES - 8), random.below(u64::MAX));
                let mut found = 0;
                // SAFETY: the result is there until the flush.
                let _ = unsafe {
                    let key = &mut key;
                    world
                        .rank(0)
                        .fetch_add_nbi(key, at as u64, add, &raw mut found)
                        .unwrap()
                };
                assert_eq!(flush(&mut world), Ok(()));
                let was = u64::from_ne_bytes(model[at..at + 8].try_into().unwrap());
                assert_eq!(found, was, "{turn} by {by}");
                model[at..at + 8].copy_from_slice(&was.wrapping_add(add).to_ne_bytes());
            } else if random.chance(0.5) {
                let sent = pattern(turn, len);
                let _ = put(&mut world, &mut key, at, &sent).unwrap();
                // Another one over it: writes of one rank keep their order.
                let last = pattern(turn + 1000, len / 2);
                let _ = put(&mut world, &mut key, at, &last).unwrap();
                model[at..at + len].copy_from_slice(&sent);
                model[at..at + len / 2].copy_from_slice(&last);
                assert_eq!(flush(&mut world), Ok(()));
            } else {
                let mut got = vec![FILL; len];
                let _ = get(&mut world, &mut key, at, &mut got).unwrap();
                assert_eq!(flush(&mut world), Ok(()));
                assert!(got == model[at..at + len], "{turn} by {by}");
            }
        }
        assert!(memory == model, "by {by}");
    }
}

#[test]
fn region__that_is_withdrawn_is_not_reached_any_more() {
    for (by, error) in [(By::Rc, RmaError::PeerGone), (By::Ud, RmaError::Withdrawn)] {
        let mut world = world(by);
        let mut memory = vec![0; 64];
        let (mut key, exposed) = region(&mut world, &mut memory);
        let _ = put(&mut world, &mut key, 0, &[1; 64]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        assert!(world.rank(1).withdraw_memory(exposed.id));
        let _ = put(&mut world, &mut key, 0, &[2; 64]).unwrap();
        assert_eq!(flush(&mut world), Err(error), "by {by}");
        assert!(memory == [1; 64]);
    }
}

#[test]
fn peer__that_leaves_without_a_word_is_an_error_and_nothing_hangs() {
    for (by, _) in BOTH {
        let mut world = world(by);
        let mut memory = vec![0; 100_000];
        let (mut key, _) = region(&mut world, &mut memory);
        let _ = put(&mut world, &mut key, 0, &[1; 64]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        use fastpath_bootstrap::segment::Phase;
        world.rank(1).job.set_phase(Phase::Initialized);
        world.rank(1).job.set_phase(Phase::Finalized);
        drop(world.workers.pop());
        let bytes = vec![2; 100_000];
        let start = Instant::now();
        let ended = put(&mut world, &mut key, 0, &bytes).and_then(|_| {
            loop {
                match world.rank(0).progress_flush(1) {
                    Ok(false) => world.rank(0).progress(),
                    ended => break ended,
                };
                assert!(start.elapsed() < WATCHDOG, "by {by}");
            }
        });
        assert_eq!(ended, Err(RmaError::PeerGone), "by {by}");
    }
}
