//! The library's own code over a real adapter (or a software one of the kernel), some ranks in one process. Built with
//! feature `adapter` alone: `tests/vm/cases/rc.toml` does.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::Fault;
use fastpath_transport::adapter::AdapterTransport;
use fastpath_transport::adapter::upgrade::Rule;
use std::time::{Duration, Instant};

/// Nothing here takes so long; a test that does has hung.
const WATCHDOG: Duration = Duration::from_secs(60);

fn device() -> String {
    std::env::var("FASTPATH_TEST_DEVICE").expect("FASTPATH_TEST_DEVICE names an adapter")
}

fn world() -> World {
    World::on_adapter(2, &device())
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
    pass_between(world, [0, 1], size, room)
}

fn pass_between(world: &mut World, [from, to]: [u32; 2], size: usize, room: usize) -> Received {
    let data: Vec<u8> = (0..size).map(|i| ((i * 7) >> 3) as u8).collect();
    let receiving = world.recv(to, from, 3, room);
    let sending = world.send(from, to, 3, &data);
    run_until(world, "a message", |w| w.is_received(&receiving) && w.is_sent(&sending));
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

/// What a part of the adapter of a rank has counted under that name.
fn count(world: &mut World, rank: u32, of: &str, name: &str) -> u64 {
    let counts = world.rank(rank).interfaces().adapter_counts();
    let part = counts.iter().find(|part| part.of == of).unwrap();
    let found = part.numbers.iter().copied().find(|(n, _)| *n == name);
    found.unwrap().1
}

#[test]
fn progress__asks_the_adapter_once_for_all() {
    let mut world = world();
    pass(&mut world, 8, 8);
    run_until(&mut world, "rest", |w| !w.rank(1).progress());
    let before = count(&mut world, 1, "rc", "receive_polls");
    for _ in 0..1000 {
        world.rank(1).progress();
    }
    // The last credits may have come only now.
    let made = count(&mut world, 1, "rc", "receive_polls") - before;
    assert!((1000..1010).contains(&made), "{made}");
}

/// UCX-21: datagrams, by which pairs find each other, are looked for no more once all pairs have a connection; a pair
/// that first talks later connects by them all the same, and then they are left alone again.
#[test]
fn late_pair__connects_by_datagrams_that_had_gone_to_rest() {
    let device = device();
    let at_once = Rule { connect_ns: 0, ..Rule::default() };
    let mut world = World::on_adapters(&[device.as_str(); 3], AdapterTransport::Upgrading, at_once);
    let mut rests = 0;
    for (late, upgraded) in [([0, 1], 1), ([2, 0], 2)] {
        run_until(&mut world, "a connection", |world| {
            pass_between(world, late, 100, 100);
            count(world, 0, "pairs", "upgraded") == upgraded
        });
        run_until(&mut world, "rest", |world| count(world, 0, "pairs", "rests") > rests);
        rests = count(&mut world, 0, "pairs", "rests");
        // A last acknowledgement may come, which rings once.
        let before = count(&mut world, 0, "ud", "receive_polls");
        for _ in 0..10_000 {
            world.rank(0).progress();
        }
        let polls = count(&mut world, 0, "ud", "receive_polls") - before;
        assert!(polls < 100, "{polls} looks for datagrams in 10000");
    }
    assert_eq!(count(&mut world, 1, "pairs", "pairs"), 1);
    pass_between(&mut world, [0, 2], 50_000, 50_000);
}
