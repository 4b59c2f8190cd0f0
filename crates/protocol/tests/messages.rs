//! Messages of every kind between workers, in virtual time.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::Fault;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::worker::Thresholds;
use fastpath_transport::sim::Conditions;

fn world(ranks: u32) -> World {
    World::new(ranks, Conditions { wake: 0.2, ..Conditions::default() })
}

/// Returns every size at which the protocol changes, with the sizes just below and above it.
fn borders(thresholds: &Thresholds) -> Vec<usize> {
    let Thresholds { eager, first, fragment, .. } = *thresholds;
    let early = [fragment, 2 * fragment, 3 * fragment, first];
    let late = [first + fragment, first + 2 * fragment, first + 7 * fragment];
    let at = [0, 8, 40, 48, eager].into_iter().chain(early).chain(late);
    let mut sizes: Vec<usize> =
        at.flat_map(|n| [n.saturating_sub(1), n, n + 1]).map(|n| n as usize).collect();
    sizes.sort();
    sizes.dedup();
    sizes
}

fn exchange(world: &mut World, len: usize, synchronous: bool, posted_first: bool) {
    let data = pattern(len as u32, len);
    let early = posted_first.then(|| world.recv(1, 0, 7, len));
    let sending = world.send_as(0, 1, 7, &data, synchronous);
    if !posted_first {
        world.settle();
        let Thresholds { eager, first, single_copy, .. } = world.rank(0).planner.thresholds;
        let copied = world.get && len as u64 >= single_copy;
        let by_itself = len as u64 <= eager || (len as u64 <= first && !copied);
        assert_eq!(world.is_sent(&sending), !synchronous && by_itself);
    }
    let receiving = early.unwrap_or_else(|| world.recv(1, 0, 7, len));
    let received = world.finish_recv(receiving);
    assert!(
        received.data == data,
        "{len} bytes, synchronous {synchronous}, posted first {posted_first}"
    );
    let outcome = RequestEnd {
        fault: Fault::None,
        source: 0,
        tag: 7,
        received: len as u64,
        sent: received.outcome.sent,
        cancelled: false,
    };
    assert_eq!(received.outcome, outcome);
    if let Some(sent) = world.finish_send(sending) {
        assert_eq!(sent.fault, Fault::None);
    }
}

#[test]
fn message__of_every_border_size_arrives_in_every_mode() {
    for thresholds in [SMALL, Thresholds::default()] {
        let mut world = world(2);
        world.workers.iter_mut().for_each(|worker| worker.planner.thresholds = thresholds);
        for len in borders(&thresholds) {
            for (synchronous, posted_first) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                exchange(&mut world, len, synchronous, posted_first);
            }
        }
        for worker in &world.workers {
            assert_eq!((worker.requests.alive(), worker.counters.violations), (0, 0));
        }
        assert!(world.rank(0).counters.announced_messages() > 0);
    }
}

#[test]
fn message__arrives_by_single_copy_where_the_transport_can() {
    for get in [true, false] {
        let mut world = World::new(2, Conditions { get, ..Conditions::default() });
        let thresholds = Thresholds { single_copy: 300, ..SMALL };
        world.workers.iter_mut().for_each(|worker| worker.planner.thresholds = thresholds);
        for len in [100, 101, 299, 300, 301, 5000] {
            for (synchronous, posted_first) in [(false, false), (false, true), (true, true)] {
                exchange(&mut world, len, synchronous, posted_first);
            }
        }
        assert_eq!(world.rank(1).counters.single_copies, if get { 9 } else { 0 });
    }
}

#[test]
fn message__to_oneself_of_every_border_size_arrives() {
    let mut world = small_world(1, Conditions::default());
    for len in borders(&SMALL) {
        let data = pattern(len as u32, len);
        let sending = world.send(0, 0, 3, &data);
        let receiving = world.recv(0, 0, 3, len);
        assert!(world.finish_recv(receiving).data == data, "{len} bytes");
        world.finish_send(sending);
    }
    assert_eq!(world.rank(0).requests.alive(), 0);
}

#[test]
fn rendezvous__several_at_once_do_not_mix() {
    let mut world = small_world(3, Conditions { slots: 16, ..Conditions::default() });
    let len = |i: u32| 150 + 300 * i as usize;
    let plan: Vec<(u32, u32, i32)> =
        (0..24).map(|i| (i % 2, 2 - (i / 2) % 2, i as i32)).filter(|p| p.0 != p.1).collect();
    let sends: Vec<_> = plan
        .iter()
        .map(|&(from, to, tag)| world.send(from, to, tag, &pattern(tag as u32, len(tag as u32))))
        .collect();
    // Receive in a different order than sent.
    let receives: Vec<_> = plan
        .iter()
        .rev()
        .map(|&(from, to, tag)| (tag, world.recv(to, from, tag, len(tag as u32))))
        .collect();
    for (tag, receiving) in receives {
        assert!(
            world.finish_recv(receiving).data == pattern(tag as u32, len(tag as u32)),
            "tag {tag}"
        );
    }
    finish_all(&mut world, sends);
    assert!(
        world
            .workers
            .iter()
            .all(|worker| worker.requests.alive() == 0 && worker.counters.violations == 0)
    );
}

#[test]
fn rings__full_in_both_directions_drain() {
    let mut world = small_world(2, Conditions { slots: 4, ..Conditions::default() });
    let sizes = [0, 8, 60, 100, 101, 500];
    let data = |i: usize| pattern(i as u32, sizes[i % sizes.len()]);
    let mut sends = Vec::new();
    for i in 0..100 {
        sends.push(world.send(0, 1, i as i32, &data(i)));
        sends.push(world.send(1, 0, i as i32, &data(i)));
    }
    assert!(has_unsent(world.rank(0)) && has_unsent(world.rank(1)));
    for i in 0..100 {
        for (from, to) in [(0, 1), (1, 0)] {
            let receiving = world.recv(to, from, ANY_TAG, 500);
            let received = world.finish_recv(receiving);
            assert_eq!(received.outcome.tag, i as i32);
            assert!(received.data == data(i));
        }
    }
    finish_all(&mut world, sends);
    assert!(!has_unsent(world.rank(0)) && !has_unsent(world.rank(1)));
}

/// A pair sends larger messages whole once it has a connection. A message begun in parts must continue in parts.
#[test]
fn message__half_sent_goes_on_in_parts_where_it_would_go_as_one_by_now() {
    let one_slot = Conditions { slots: 1, ..Conditions::default() };
    for synchronous in [false, true] {
        let mut world = small_world(2, one_slot.clone());
        let data = pattern(5, 180);
        let sending = world.send_as(0, 1, 7, &data, synchronous);
        assert!(!world.is_sent(&sending), "its RTS takes the slot");
        world.rank(0).planner.thresholds.eager = 1000;
        let receiving = world.recv(1, 0, 7, 180);
        let after = world.send(0, 1, 8, &[1]);
        assert!(world.finish_recv(receiving).data == data);
        assert_eq!(world.finish_send(sending).unwrap().fault, Fault::None);
        let next = world.recv(1, 0, 8, 1);
        assert_eq!(world.finish_recv(next).data, [1]);
        finish_all(&mut world, [after]);
        assert_eq!(world.rank(1).counters.unexpected, 0);
        assert_eq!(world.rank(1).counters.violations, 0);
    }
}

#[test]
fn receive__shorter_than_the_message_gets_what_fits_and_both_lengths() {
    for len in borders(&SMALL).into_iter().filter(|&len| len > 0) {
        for room in [0, len.min(2) - 1, len / 2, len - 1] {
            for posted_first in [false, true] {
                let mut world = small_world(2, Conditions::default());
                let data = pattern(1, len);
                let early = posted_first.then(|| world.recv(1, 0, 5, room));
                let sending = world.send(0, 1, 5, &data);
                if !posted_first {
                    world.settle();
                }
                let receiving = early.unwrap_or_else(|| world.recv(1, 0, 5, room));
                let received = world.finish_recv(receiving);
                assert!(received.data == data[..room], "{len} bytes into {room}");
                let RequestEnd { fault, received, sent, .. } = received.outcome;
                assert_eq!(
                    (fault, received, sent),
                    (Fault::Truncated, room as u64, len as u64),
                    "posted first {posted_first}"
                );
                if let Some(outcome) = world.finish_send(sending) {
                    assert_eq!(outcome.fault, Fault::None);
                }
                // The connection still works as before.
                exchange(&mut world, len, false, false);
            }
        }
    }
}

#[test]
fn wildcards__take_the_earliest_message_and_internal_tags_never() {
    let mut world = world(3);
    let sends = [
        world.send(1, 0, -16, b"internal"),
        world.send(1, 0, 5, b"first"),
        world.send(1, 0, 6, b"second"),
    ];
    world.settle();
    let late = world.send(2, 0, 5, b"third");
    world.settle();
    let mut take = |from, tag| {
        let receiving = world.recv(0, from, tag, 20);
        let received = world.finish_recv(receiving);
        (received.outcome.source, received.outcome.tag, String::from_utf8(received.data).unwrap())
    };
    assert_eq!(take(ANY_PEER, 6), (1, 6, "second".into()));
    assert_eq!(take(ANY_PEER, ANY_TAG), (1, 5, "first".into()));
    assert_eq!(take(ANY_PEER, ANY_TAG), (2, 5, "third".into()));
    assert_eq!(take(1, -16), (1, -16, "internal".into()));
    finish_all(&mut world, sends.into_iter().chain([late]));
}

#[test]
fn receives__are_matched_in_the_order_posted_whether_named_or_not() {
    let mut world = world(2);
    let any = world.recv(1, ANY_PEER, ANY_TAG, 8);
    let named = world.recv(1, 0, 4, 8);
    let any_tag = world.recv(1, 0, ANY_TAG, 8);
    for text in [b"a", b"b", b"c"] {
        drop(world.send(0, 1, 4, text));
    }
    assert_eq!(world.finish_recv(any_tag).data, b"c");
    assert_eq!(world.finish_recv(named).data, b"b");
    assert_eq!(world.finish_recv(any).data, b"a");
}

#[test]
fn probe__shows_without_taking_and_a_matched_message_is_out_of_reach() {
    let mut world = small_world(2, Conditions::default());
    let sending = world.send(0, 1, 9, &pattern(9, 1000));
    world.settle();
    for _ in 0..3 {
        let found = world.rank(1).probe(&want(ANY_PEER, ANY_TAG)).unwrap();
        assert_eq!((found.source, found.tag, found.bytes), (0, 9, 1000));
    }
    assert_eq!(world.rank(1).probe(&want(0, 8)), None);
    let (token, found) = world.rank(1).probe_matched(&want(0, 9)).unwrap();
    assert_eq!(found.bytes, 1000);
    assert_eq!(world.rank(1).probe(&want(ANY_PEER, ANY_TAG)), None);
    let mut data = vec![0_u8; 1000];
    let buffer = fastpath_protocol::buffer::Buffer::contiguous(data.as_mut_ptr(), 1000);
    // SAFETY: the buffer outlives the request.
    let id = unsafe { world.rank(1).recv_matched(token, buffer) }.unwrap();
    assert_eq!(world.wait(1, id).fault, Fault::None);
    assert!(data == pattern(9, 1000));
    world.finish_send(sending);
}

#[test]
fn synchronous__completes_only_when_matched() {
    let mut world = small_world(2, Conditions::default());
    for len in [0, 40, 41, 100, 101, 1000] {
        let sending = world.send_as(0, 1, 1, &pattern(1, len), true);
        world.settle();
        assert!(!world.is_sent(&sending), "{len} bytes");
        let receiving = world.recv(1, 0, 1, len);
        world.settle();
        assert!(world.is_sent(&sending) && world.is_received(&receiving), "{len} bytes");
        world.finish_recv(receiving);
        world.finish_send(sending);
    }
}

#[test]
fn message__whose_parts_would_fit_slots_arrives() {
    for (eager, fragment) in [(0, 100), (40, 16), (0, 48)] {
        for mut world in [World::shared(2), world(2)] {
            for worker in &mut world.workers {
                worker.planner.thresholds = Thresholds { eager, fragment, ..SMALL };
            }
            for len in [1, 41, 48, 49, 101, 200] {
                let data: Vec<u8> = (0..len).collect();
                let sending = world.send(0, 1, 1, &data);
                let receiving = world.recv(1, 0, 1, 300);
                assert_eq!(world.finish_recv(receiving).data, data, "{eager} {fragment}");
                world.finish_send(sending);
            }
        }
    }
}
