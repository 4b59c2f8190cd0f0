//! Connecting over a network that loses, duplicates and delays the messages of the wire-up.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::request::Fault;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::wireup::{RetryPolicy, Wireup};
use fastpath_transport::sim::Conditions;
use proptest::prelude::*;

fn conditions() -> Conditions {
    Conditions { wireup: true, delay_ns: 100..=5000, ..Conditions::default() }
}

/// Returns the polls of the wire-up interface by all ranks.
fn polls(world: &World) -> u64 {
    (0..world.workers.len() as u32).map(|rank| world.network.wireup_polls(rank)).sum()
}

#[test]
fn wireup__is_polled_only_while_something_connects_and_again_for_a_new_peer() {
    let mut world = World::new(3, conditions());
    assert_eq!(polls(&world), 0);
    world.settle();
    assert_eq!(polls(&world), 0, "nothing connects");
    let exchange = |world: &mut World, from, to| {
        let sending = world.send(from, to, 1, b"hello");
        let receiving = world.recv(to, from, 1, 5);
        assert_eq!(world.finish_recv(receiving).data, b"hello");
        world.finish_send(sending);
        world.settle();
        polls(world)
    };
    let first = exchange(&mut world, 0, 1);
    assert!(first > 0);
    for _ in 0..100 {
        assert_eq!(exchange(&mut world, 0, 1), first, "polled for a peer that is connected");
        assert_eq!(exchange(&mut world, 1, 0), first, "the connection serves both ways");
    }
    assert!(exchange(&mut world, 0, 2) > first, "a new peer");
    let second = polls(&world);
    assert_eq!(exchange(&mut world, 2, 0), second);
    let connections: Vec<u64> =
        world.workers.iter().map(|worker| worker.counters.connections).collect();
    assert_eq!(connections, [2, 1, 1], "only those who talk connect");
}

#[test]
fn wireup__what_is_sent_meanwhile_waits_and_goes_out_in_order() {
    let mut world = World::new(2, conditions());
    let sizes = [8, 0, 5000, 40_000, 100, 3, 200_000, 48];
    let sends: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &len)| world.send(0, 1, i as i32, &pattern(i as u32, len)))
        .collect();
    assert!(sends.iter().all(|sending| !world.is_sent(sending)), "nothing can have left yet");
    assert_eq!(world.network.counts().posted, 0);
    for (i, &len) in sizes.iter().enumerate() {
        let receiving = world.recv(1, 0, ANY_TAG, len);
        let received = world.finish_recv(receiving);
        assert_eq!(received.outcome.tag, i as i32);
        assert!(received.data == pattern(i as u32, len));
    }
    for sending in sends {
        let outcome = world.finish_send(sending);
        assert_eq!(outcome.map(|o| o.fault), Some(Fault::None));
    }
    assert_eq!(world.network.counts().astray, 0);
}

fn check_failure(world: &mut World, sends: [Sending; 2]) {
    for sending in sends {
        let outcome = world.finish_send(sending).expect("it cannot have left");
        assert_eq!(outcome.fault, Fault::PeerGone);
    }
    assert_eq!((world.rank(0).requests.alive(), has_unsent(world.rank(0))), (0, false));
    let settled = polls(world);
    world.settle();
    assert_eq!(polls(world), settled, "polled for a peer that was given up");
}

#[test]
fn wireup__a_peer_that_never_answers_fails_what_waits_for_it() {
    let mut world = World::new(2, Conditions { drop: 1.0, ..conditions() });
    world.rank(0).wireup = Wireup::new(RetryPolicy { timeout_ns: 1_000_000, sends: 20 });
    let sends = [world.send(0, 1, 1, b"one"), world.send(0, 1, 2, &pattern(2, 100_000))];
    check_failure(&mut world, sends);
}

#[test]
fn wireup__asking_again_is_nothing_that_has_happened() {
    let mut world = World::new(2, Conditions { drop: 1.0, ..conditions() });
    let _asks = world.send(0, 1, 1, b"one");
    while world.progress() {}
    let asked = world.network.counts().dropped;
    for _ in 0..10 {
        world.network.advance(1_000_000_000);
        assert!(!world.progress(), "a repeated request counts as progress");
    }
    assert_eq!(world.network.counts().dropped, asked + 10);
}

#[test]
fn wireup__a_peer_that_leaves_before_it_answers_fails_what_waits_for_it() {
    let mut world = World::new(2, Conditions { drop: 1.0, ..conditions() });
    let sends = [world.send(0, 1, 1, b"one"), world.send(0, 1, 2, &pattern(2, 100_000))];
    assert!(!world.run_until(|world| world.is_sent(&sends[0])), "it may compute for hours");
    world.network.leave(1);
    check_failure(&mut world, sends);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wireup__order_holds_across_the_switch_whatever_is_lost(
        seed: u64,
        drop in 0.0..0.8,
        double in 0.0..0.5,
        reliable: bool,
        before in prop::collection::vec((0_u32..3, 0_u32..3, 0_usize..3000, 0_u64..20_000), 1..40),
    ) {
        let mut world = World::new(3, Conditions { seed, drop, double, reliable, slots: 8, ..conditions() });
        let mut sent = Vec::new();
        for (number, &(from, to, len, pause)) in before.iter().enumerate() {
            let data = pattern(number as u32, len);
            sent.push((from, to, data.clone(), world.send(from, to, number as i32, &data)));
            world.network.advance(pause);
            world.progress();
        }
        let mut outcomes = Vec::new();
        for (number, (from, to, data, _)) in sent.iter().enumerate() {
            let receiving = world.recv(*to, *from, ANY_TAG, data.len());
            let received = world.finish_recv(receiving);
            prop_assert_eq!(received.outcome.tag, number as i32);
            prop_assert!(&received.data == data);
            outcomes.push(received.outcome.fault);
        }
        prop_assert!(outcomes.iter().all(|&fault| fault == Fault::None));
        for (_, _, _, sending) in sent {
            world.finish_send(sending);
        }
        world.settle();
        let quiet = polls(&world);
        world.settle();
        prop_assert_eq!(polls(&world), quiet);
        if reliable {
            prop_assert_eq!(world.network.counts().astray, 0);
        }
    }
}
