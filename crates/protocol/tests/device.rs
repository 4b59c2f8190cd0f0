//! The library's own code over a real adapter (or a software one of the kernel), two ranks in one process. Built with feature `adapter`
//! alone: `tests/vm/cases/rc.toml` does.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::Fault;
use std::time::{Duration, Instant};

/// Nothing here takes so long; a test that does has hung.
const WATCHDOG: Duration = Duration::from_secs(60);

fn world() -> World {
    let device =
        std::env::var("FASTPATH_TEST_DEVICE").expect("FASTPATH_TEST_DEVICE names an adapter");
    World::on_adapter(2, &device)
}

fn run_until(world: &mut World, what: &str, mut done: impl FnMut(&mut World) -> bool) {
    let start = Instant::now();
    while !done(world) {
        world.progress();
        assert!(start.elapsed() < WATCHDOG, "{what}");
    }
}

/// Sends a message from rank 0 to a receive of rank 1 with so much room.
fn pass(world: &mut World, size: usize, room: usize) -> Received {
    let data: Vec<u8> = (0..size).map(|i| ((i * 7) >> 3) as u8).collect();
    let receiving = world.recv(1, 0, 3, room);
    let sending = world.send(0, 1, 3, &data);
    run_until(world, "a message", |w| {
        w.is_received(&receiving) && w.is_sent(&sending)
    });
    world.finish_send(sending);
    let received = world.finish_recv(receiving);
    assert!(received.data == data[..size.min(room)], "{size} {room}");
    received
}

#[test]
fn large__messages_are_fetched_by_the_adapter() {
    let mut world = world();
    let fetched = |world: &mut World| world.rank(1).counters.single_copies;
    let from = world.rank(0).thresholds.fetch as usize;
    for size in [8, 5000, 40_000, from - 1] {
        pass(&mut world, size, size);
    }
    assert_eq!(fetched(&mut world), 0);
    for (count, size) in [from, from + 1, 1_000_000].into_iter().enumerate() {
        pass(&mut world, size, size + 10);
        assert_eq!(fetched(&mut world), count as u64 + 1);
    }
    let received = pass(&mut world, 1_000_000, 70_000);
    assert_eq!(received.outcome.fault, Fault::Truncated);
    assert_eq!(fetched(&mut world), 4);
}

#[test]
fn progress__asks_the_adapter_once_for_all() {
    let mut world = world();
    pass(&mut world, 8, 8);
    run_until(&mut world, "rest", |w| !w.rank(1).progress());
    let polls = |world: &mut World| {
        let counts = world.rank(1).interfaces().adapter_counts();
        let all = counts.iter().flat_map(|of| of.numbers.iter());
        let found = all.copied().find(|(name, _)| *name == "receive_polls");
        found.unwrap().1
    };
    let before = polls(&mut world);
    for _ in 0..1000 {
        world.rank(1).progress();
    }
    // The last credits may have come only now.
    let made = polls(&mut world) - before;
    assert!((1000..1010).contains(&made), "{made}");
}
