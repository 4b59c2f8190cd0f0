//! Cancelled sends and receives.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::request::Fault;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_segment::RankPhase;
use fastpath_transport::sim::Conditions;

#[test]
fn cancel__takes_back_what_has_not_matched_and_only_that() {
    let mut world = World::new(2, Conditions::default());
    let first = world.recv(1, 0, 1, 8);
    let second = world.recv(1, 0, 1, 8);
    assert!(world.rank(1).cancel_recv(first.id));
    assert!(!world.rank(1).cancel_recv(first.id), "cancelled already");
    drop(world.send(0, 1, 1, b"data"));
    assert!(world.finish_recv(first).outcome.cancelled);
    let received = world.finish_recv(second);
    assert_eq!((received.outcome.cancelled, received.data), (false, b"data".to_vec()));
    // A long message that has matched can no longer be cancelled.
    let long = world.recv(1, 0, 2, 100_000);
    let sending = world.send(0, 1, 2, &pattern(2, 100_000));
    assert!(world.run_until(|w| w.rank(0).counters.announced_messages() == 1
        && !w.rank(1).requests.get(long.id).is_posted()));
    assert!(!world.rank(1).cancel_recv(long.id));
    assert!(world.finish_recv(long).data == pattern(2, 100_000));
    world.finish_send(sending);
}

#[test]
fn cancel__takes_back_without_the_receiver_what_lies_in_shared_memory() {
    for (single_copy, loopback) in [(true, true), (false, false)] {
        let mut world = World::shared_with(2, single_copy, loopback);
        for (round, len) in [0, 8, 1000, 40_000, 400_000].into_iter().cycle().take(700).enumerate()
        {
            let (sending, id) = waiting_send(&mut world, 1, len);
            world.rank(0).cancel_send(id);
            // A full ring holds the other messages back.
            assert!(world.is_sent(&sending), "round {round}");
            assert!(world.rank(0).requests.get(id).cancelled);
            world.rank(0).release_cancelled(id);
        }
        let after = world.send(0, 1, 2, &pattern(2, 100));
        world.settle();
        assert!(world.rank(1).probe(&want(0, 1)).is_none());
        let receiving = world.recv(1, 0, ANY_TAG, 100);
        assert!(world.finish_recv(receiving).data == pattern(2, 100));
        world.finish_send(after);
        let (sending, id) = waiting_send(&mut world, 3, 8);
        world.rank(0).cancel_send(id);
        world.rank(0).release_cancelled(id);
        drop(sending);
        world.settle();
        // All cancelled requests have been freed, except the last one, which is freed only by a later call.
        assert!(world.rank(0).requests.alive() <= 1);
        assert_eq!(world.rank(0).counters.violations + world.rank(1).counters.violations, 0);
    }
}

#[test]
fn cancel__of_a_message_that_was_matched_changes_nothing() {
    for mut world in [World::shared(2), small_world(2, Conditions::default())] {
        for len in [8, 1000, 40_000] {
            let (sending, id) = waiting_send(&mut world, 1, len);
            let receiving = world.recv(1, 0, 1, len);
            world.rank(1).take_arrivals();
            world.network.advance_to_next();
            world.rank(1).take_arrivals();
            world.rank(0).cancel_send(id);
            let received = world.finish_recv(receiving);
            assert!(received.data == pattern(1, len));
            let outcome = world.finish_send(sending).unwrap();
            assert_eq!((outcome.fault, outcome.cancelled), (Fault::None, false));
        }
    }
}

#[test]
fn cancel__asks_the_receiver_where_they_share_no_memory() {
    let mut world = small_world(2, Conditions::default());
    for len in [8, 90, 150, 1000] {
        let (sending, id) = waiting_send(&mut world, 1, len);
        world.settle();
        assert!(world.rank(1).probe(&want(0, 1)).is_some());
        world.rank(0).cancel_send(id);
        let outcome = world.finish_send(sending).unwrap();
        assert_eq!((outcome.fault, outcome.cancelled), (Fault::None, true));
        assert!(world.rank(1).probe(&want(0, 1)).is_none());
    }
    assert_eq!(world.rank(0).requests.alive() + world.rank(1).requests.alive(), 0);
    assert_eq!(world.rank(0).counters.violations + world.rank(1).counters.violations, 0);
}

#[test]
fn cancel__completes_once_what_goes_by_itself_has_left() {
    let conditions = Conditions { slots: 6, ..Conditions::default() };
    let mut world = small_world(2, conditions);
    let before: Vec<_> =
        (0..4).map(|tag| world.send(0, 1, tag, &pattern(tag as u32, 50))).collect();
    // The ring has no space for the last of the 200 eager bytes.
    let (sending, id) = waiting_send(&mut world, 7, 1000);
    // The receiver makes space. Then the cancel request overtakes the queued bytes.
    while world.network.advance_to_next() || world.rank(1).progress() {}
    world.rank(0).cancel_send(id);
    while world.network.advance_to_next() || world.rank(1).progress() {}
    world.network.set_faults(1.0, 0.0, 0.0);
    world.rank(0).progress();
    assert!(world.rank(0).requests.get(id).cancelled, "it was answered");
    // The queue still names this request, so no message may reuse it yet: that message would be sent twice.
    assert!(!world.is_sent(&sending), "it has not left");
    world.network.set_faults(0.0, 0.0, 0.0);
    let outcome = world.finish_send(sending).unwrap();
    assert_eq!((outcome.fault, outcome.cancelled), (Fault::None, true));
    let after: Vec<_> =
        (4..7).map(|tag| world.send_as(0, 1, tag, &pattern(tag as u32, 1000), true)).collect();
    for tag in 0..7 {
        let receiving = world.recv(1, 0, ANY_TAG, 1000);
        let received = world.finish_recv(receiving);
        let len = if tag < 4 { 50 } else { 1000 };
        assert!(received.data == pattern(tag, len));
    }
    finish_all(&mut world, before.into_iter().chain(after));
    world.settle();
    assert!(world.rank(1).probe(&want(0, ANY_TAG)).is_none());
    for rank in 0..2 {
        assert_eq!(world.rank(rank).requests.alive(), 0);
        assert_eq!(world.rank(rank).counters.violations, 0);
    }
}

#[test]
fn cancel__of_a_message_that_a_matched_probe_has_taken_changes_nothing() {
    let mut world = World::shared(2);
    let (sending, id) = waiting_send(&mut world, 1, 8);
    let (other, _) = waiting_send(&mut world, 2, 8);
    world.settle();
    let (token, _) = world.rank(1).probe_matched(&want(0, 1)).unwrap();
    // Rank 1 claims another message after the first.
    let receiving = world.recv(1, 0, 2, 8);
    world.finish_recv(receiving);
    world.finish_send(other);
    world.rank(0).cancel_send(id);
    world.settle();
    assert!(!world.is_sent(&sending));
    let mut data = [0; 8];
    let buffer = Buffer::contiguous(data.as_mut_ptr(), 8);
    // SAFETY: the receive completes here.
    let id = unsafe { world.rank(1).recv_matched(token, buffer) }.unwrap();
    world.wait(1, id);
    assert!(data[..] == pattern(1, 8) && !world.finish_send(sending).unwrap().cancelled);
}

/// The peer leaves after it has confirmed the cancellation. The rest of the eager bytes still waits for space then.
#[test]
fn cancel__completes_once_whatever_becomes_of_what_goes_by_itself() {
    let mut world = World::shared_with(2, false, true);
    let waits = |world: &mut World| loop {
        let (sending, id) = waiting_send(world, 1, 400_000);
        let request = world.rank(0).requests.get(id);
        if request.is_unmatched_send() && request.moved < u64::from(request.early) {
            return (sending, id);
        }
        world.rank(0).cancel_send(id);
        world.rank(0).release_cancelled(id);
    };
    let (sending, id) = waits(&mut world);
    world.rank(0).cancel_send(id);
    assert!(world.is_sent(&sending) && world.rank(0).requests.get(id).cancelled);
    world.rank(1).job.set_phase(RankPhase::Finalized);
    world.settle();
    assert_eq!(world.rank(0).requests.get(id).fault, Fault::None);
}
