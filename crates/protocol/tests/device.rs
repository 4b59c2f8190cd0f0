//! Runs the library's code over a real adapter or a software adapter of the kernel, several ranks in one process.
//! `tests/vm/cases/rc.toml` names this test; `cargo test` alone skips it.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::Fault;
use fastpath_transport::adapter::AdapterTransport;
use fastpath_transport::adapter::upgrade::Rule;

fn device() -> String {
    std::env::var("FASTPATH_TEST_DEVICE").expect("FASTPATH_TEST_DEVICE names an adapter")
}

fn world() -> World {
    World::on_adapter(2, &device())
}

#[test]
fn large__messages_are_fetched_by_the_adapter() {
    let mut world = world();
    let fetched = |world: &mut World| world.rank(1).counters.single_copies;
    let from = world.rank(0).planner.thresholds.fetch as usize;
    for size in [8, 5000, 40_000, from - 1] {
        world.pass([0, 1], size, size);
    }
    assert_eq!(fetched(&mut world), 0);
    for (count, size) in [from, from + 1, 1_000_000].into_iter().enumerate() {
        world.pass([0, 1], size, size + 10);
        assert_eq!(fetched(&mut world), count as u64 + 1);
    }
    let received = world.pass([0, 1], 1_000_000, 70_000);
    assert_eq!(received.outcome.fault, Fault::Truncated);
    assert_eq!(fetched(&mut world), 4);
}

/// Returns the counter `name` of the part `of` of a rank's adapter.
fn count(world: &mut World, rank: u32, of: &str, name: &str) -> u64 {
    let counts = world.rank(rank).interfaces().adapter_counts();
    let part = counts.iter().find(|part| part.of == of).unwrap();
    let found = part.numbers.iter().copied().find(|(n, _)| *n == name);
    found.unwrap().1
}

#[test]
fn progress__asks_the_adapter_once_for_all() {
    let mut world = world();
    world.pass([0, 1], 8, 8);
    world.await_until("rest", |w| !w.rank(1).progress());
    let before = count(&mut world, 1, "rc", "receive_polls");
    for _ in 0..1000 {
        world.rank(1).progress();
    }
    // The last credits may have arrived only now.
    let made = count(&mut world, 1, "rc", "receive_polls") - before;
    assert!((1000..1010).contains(&made), "{made}");
}

/// The datagram interface is not polled once all pairs have a connection (UCX-21). A later pair can still connect by
/// datagrams; afterwards the interface is again not polled.
#[test]
fn late_pair__connects_by_datagrams_that_had_gone_to_rest() {
    let device = device();
    let at_once = Rule { connect_ns: 0, ..Rule::default() };
    let mut world = World::on_adapters(&[device.as_str(); 3], AdapterTransport::Upgrading, at_once);
    let mut rests = 0;
    for (late, upgraded) in [([0, 1], 1), ([2, 0], 2)] {
        world.await_until("a connection", |world| {
            world.pass(late, 100, 100);
            count(world, 0, "pairs", "upgraded") == upgraded
        });
        world.await_until("rest", |world| count(world, 0, "pairs", "rests") > rests);
        rests = count(&mut world, 0, "pairs", "rests");
        // A last acknowledgement may arrive, which causes one signal.
        let before = count(&mut world, 0, "ud", "receive_polls");
        for _ in 0..10_000 {
            world.rank(0).progress();
        }
        let polls = count(&mut world, 0, "ud", "receive_polls") - before;
        assert!(polls < 100, "{polls} looks for datagrams in 10000");
    }
    assert_eq!(count(&mut world, 1, "pairs", "pairs"), 1);
    world.pass([0, 2], 50_000, 50_000);
}
