//! Messages of every kind between workers, in virtual time.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_bootstrap::segment::Phase;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::Fault;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::worker::Thresholds;
use fastpath_protocol::{Started, State};
use fastpath_transport::sim::Conditions;

const SMALL: Thresholds = Thresholds {
    eager: 100,
    whole: 0,
    first: 200,
    part: 60,
    fragment: 64,
    single_copy: u64::MAX,
    crowded_copy: u64::MAX,
    fetch: u64::MAX,
    direct: u64::MAX,
    single_joint: 0,
    direct_joint: 0,
    piece_min: 4096,
    piece_max: 4096,
    pipelined: true,
};

fn world(ranks: u32) -> World {
    World::new(
        ranks,
        Conditions {
            rouse: 0.2,
            ..Conditions::default()
        },
    )
}

fn small_world(ranks: u32, conditions: Conditions) -> World {
    let mut world = World::new(ranks, conditions);
    world
        .workers
        .iter_mut()
        .for_each(|worker| worker.thresholds = SMALL);
    world
}

/// Every size at which something changes, and its neighbours.
fn borders(thresholds: &Thresholds) -> Vec<usize> {
    let Thresholds {
        eager,
        first,
        part,
        fragment,
        ..
    } = *thresholds;
    let early = [part, 2 * part, 3 * part, first];
    let late = [first + fragment, first + 2 * fragment, first + 7 * fragment];
    let at = [0, 8, 40, 48, eager].into_iter().chain(early).chain(late);
    let mut sizes: Vec<usize> = at
        .flat_map(|n| [n.saturating_sub(1), n, n + 1])
        .map(|n| n as usize)
        .collect();
    sizes.sort();
    sizes.dedup();
    sizes
}

fn finish_all(world: &mut World, sends: impl IntoIterator<Item = Sending>) {
    for sending in sends {
        if let Some(outcome) = world.finish_send(sending) {
            assert_eq!(outcome.fault, Fault::None);
        }
    }
}

fn exchange(world: &mut World, len: usize, synchronous: bool, posted_first: bool) {
    let data = pattern(len as u32, len);
    let early = posted_first.then(|| world.recv(1, 0, 7, len));
    let sending = world.send_as(0, 1, 7, &data, synchronous);
    if !posted_first {
        world.settle();
        let Thresholds {
            eager,
            first,
            single_copy,
            ..
        } = world.rank(0).thresholds;
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
    let outcome = Outcome {
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
        world
            .workers
            .iter_mut()
            .for_each(|worker| worker.thresholds = thresholds);
        for len in borders(&thresholds) {
            for (synchronous, posted_first) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                exchange(&mut world, len, synchronous, posted_first);
            }
        }
        for worker in &world.workers {
            assert_eq!(
                (worker.requests.alive(), worker.counters.violations),
                (0, 0)
            );
        }
        assert!(world.rank(0).counters.rendezvous > 0);
    }
}

#[test]
fn message__arrives_by_single_copy_where_the_transport_can() {
    for get in [true, false] {
        let mut world = World::new(
            2,
            Conditions {
                get,
                ..Conditions::default()
            },
        );
        let thresholds = Thresholds {
            single_copy: 300,
            ..SMALL
        };
        world
            .workers
            .iter_mut()
            .for_each(|worker| worker.thresholds = thresholds);
        for len in [100, 101, 299, 300, 301, 5000] {
            for (synchronous, posted_first) in [(false, false), (false, true), (true, true)] {
                exchange(&mut world, len, synchronous, posted_first);
            }
        }
        assert_eq!(
            world.rank(1).counters.single_copies,
            if get { 9 } else { 0 }
        );
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
    let mut world = small_world(
        3,
        Conditions {
            slots: 16,
            ..Conditions::default()
        },
    );
    let len = |i: u32| 150 + 300 * i as usize;
    let plan: Vec<(u32, u32, i32)> = (0..24)
        .map(|i| (i % 2, 2 - (i / 2) % 2, i as i32))
        .filter(|p| p.0 != p.1)
        .collect();
    let sends: Vec<_> = plan
        .iter()
        .map(|&(from, to, tag)| world.send(from, to, tag, &pattern(tag as u32, len(tag as u32))))
        .collect();
    // Received in another order than sent.
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
    let mut world = small_world(
        2,
        Conditions {
            slots: 4,
            ..Conditions::default()
        },
    );
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

/// A pair that gets a connection sends more as one than before.
#[test]
fn message__half_sent_goes_on_in_parts_where_it_would_go_as_one_by_now() {
    let one_slot = Conditions {
        slots: 1,
        ..Conditions::default()
    };
    for synchronous in [false, true] {
        let mut world = small_world(2, one_slot.clone());
        let data = pattern(5, 180);
        let sending = world.send_as(0, 1, 7, &data, synchronous);
        assert!(!world.is_sent(&sending), "its announcement takes the slot");
        world.rank(0).thresholds.eager = 1000;
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
                let Outcome {
                    fault,
                    received,
                    sent,
                    ..
                } = received.outcome;
                assert_eq!(
                    (fault, received, sent),
                    (Fault::Truncated, room as u64, len as u64),
                    "posted first {posted_first}"
                );
                if let Some(outcome) = world.finish_send(sending) {
                    assert_eq!(outcome.fault, Fault::None);
                }
                // The connection is as good as before.
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
        (
            received.outcome.source,
            received.outcome.tag,
            String::from_utf8(received.data).unwrap(),
        )
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
fn cancel__takes_back_what_has_not_matched_and_only_that() {
    let mut world = world(2);
    let first = world.recv(1, 0, 1, 8);
    let second = world.recv(1, 0, 1, 8);
    assert!(world.rank(1).cancel_recv(first.id));
    assert!(!world.rank(1).cancel_recv(first.id), "cancelled already");
    drop(world.send(0, 1, 1, b"data"));
    assert!(world.finish_recv(first).outcome.cancelled);
    let received = world.finish_recv(second);
    assert_eq!(
        (received.outcome.cancelled, received.data),
        (false, b"data".to_vec())
    );
    // A long message that has matched can no longer be cancelled.
    let long = world.recv(1, 0, 2, 100_000);
    let sending = world.send(0, 1, 2, &pattern(2, 100_000));
    assert!(world.run_until(
        |w| w.rank(0).counters.rendezvous == 1 && !w.rank(1).requests.get(long.id).is_posted()
    ));
    assert!(!world.rank(1).cancel_recv(long.id));
    assert!(world.finish_recv(long).data == pattern(2, 100_000));
    world.finish_send(sending);
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
        assert!(
            world.is_sent(&sending) && world.is_received(&receiving),
            "{len} bytes"
        );
        world.finish_recv(receiving);
        world.finish_send(sending);
    }
}

#[test]
fn detached__send_is_freed_when_done_and_reported_once() {
    thread_local!(static SEEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let mut world = small_world(
        2,
        Conditions {
            slots: 2,
            ..Conditions::default()
        },
    );
    world.rank(0).on_detached = Some(|_| SEEN.set(SEEN.get() + 1));
    let mut keep = Vec::new();
    for (tag, len) in [8, 100, 101, 1000, 90, 2000].into_iter().enumerate() {
        let sending = world.send(0, 1, tag as i32, &pattern(tag as u32, len));
        if let Started::Request(id) = sending.started {
            let request = world.rank(0).requests.get(id);
            assert_eq!(request.state, State::Active);
            request.detached = true;
            keep.push(sending.data);
        }
    }
    let detached = keep.len() as u32;
    assert!(detached >= 3);
    for (tag, len) in [8, 100, 101, 1000, 90, 2000].into_iter().enumerate() {
        let receiving = world.recv(1, 0, tag as i32, len);
        assert!(world.finish_recv(receiving).data == pattern(tag as u32, len));
    }
    world.settle();
    assert_eq!((world.rank(0).requests.alive(), SEEN.get()), (0, detached));
    assert!(!has_unsent(world.rank(0)));
}

#[test]
fn detached__long_send_counts_as_unsent_until_its_receiver_has_it() {
    let mut world = small_world(2, Conditions::default());
    let sending = world.send(0, 1, 1, &pattern(1, 1000));
    let Started::Request(id) = sending.started else {
        panic!("a long send needs a request")
    };
    world.rank(0).requests.get(id).detached = true;
    world.settle();
    // MPI_Finalize must still deliver it.
    assert!(has_unsent(world.rank(0)));
    let receiving = world.recv(1, 0, 1, 1000);
    assert!(world.finish_recv(receiving).data == sending.data[..]);
    world.settle();
    assert!(!has_unsent(world.rank(0)));
}

#[test]
fn peer_gone__fails_what_is_sent_and_what_waits() {
    let mut world = small_world(
        2,
        Conditions {
            slots: 2,
            ..Conditions::default()
        },
    );
    let sends: Vec<_> = [8, 8, 8, 1000]
        .iter()
        .map(|&len| world.send(0, 1, 1, &pattern(1, len)))
        .collect();
    world.network.leave(1);
    let outcomes: Vec<_> = sends
        .into_iter()
        .map(|sending| world.finish_send(sending).map(|o| o.fault))
        .collect();
    assert_eq!(
        outcomes,
        [None, None, Some(Fault::PeerGone), Some(Fault::PeerGone)]
    );
    assert_eq!(
        (world.rank(0).requests.alive(), has_unsent(world.rank(0))),
        (0, false)
    );
}

#[test]
fn source_gone__ends_a_receive_only_when_nothing_is_left_to_come() {
    let mut world = World::shared(3);
    // Rank 0 has never heard of rank 1, whose message lies in a ring not yet looked at.
    let sending = world.send(1, 0, 2, &pattern(2, 100));
    assert!(world.is_sent(&sending));
    let (missing, there) = (world.recv(0, 1, 1, 100), world.recv(0, 1, 2, 100));
    assert!(!world.rank(0).give_up(missing.id, 1), "it could still send");
    world.rank(1).job.set_phase(Phase::Finalized);
    assert!(world.rank(0).give_up(missing.id, 1) && world.rank(0).give_up(there.id, 1));
    let outcome = world.finish_recv(missing).outcome;
    assert_eq!(
        (outcome.fault, outcome.source, outcome.tag),
        (Fault::SourceGone, 1, 1)
    );
    assert!(world.finish_recv(there).data == pattern(2, 100));

    let from_any = world.recv(0, ANY_PEER, 1, 8);
    assert!(
        !world.rank(0).have_left(&[0, 1, 2], true),
        "rank 2 is there"
    );
    world.rank(2).job.set_phase(Phase::Finalized);
    assert!(!world.rank(0).have_left(&[0, 1, 2], false), "rank 0 itself");
    assert!(world.rank(0).have_left(&[0, 1, 2], true));
    assert!(world.rank(0).give_up_slow(from_any.id));
    assert_eq!(world.finish_recv(from_any).outcome.fault, Fault::SourceGone);
    assert_eq!(world.rank(0).requests.alive(), 0);
}

#[test]
fn message__whose_parts_would_fit_slots_arrives() {
    for (eager, part) in [(0, 100), (40, 16), (0, 48)] {
        for mut world in [World::shared(2), world(2)] {
            for worker in &mut world.workers {
                worker.thresholds = Thresholds {
                    eager,
                    part,
                    ..SMALL
                };
            }
            for len in [1, 41, 48, 49, 101, 200] {
                let data: Vec<u8> = (0..len).collect();
                let sending = world.send(0, 1, 1, &data);
                let receiving = world.recv(1, 0, 1, 300);
                assert_eq!(world.finish_recv(receiving).data, data, "{eager} {part}");
                world.finish_send(sending);
            }
        }
    }
}

#[test]
fn detached__end_when_what_could_match_them_has_gone_by() {
    let mut world = World::shared(2);
    let (named, wild) = (world.recv(0, 1, 1, 8), world.recv(0, ANY_PEER, 1, 8));
    let there = world.recv(0, 1, 2, 100_000);
    let sending = world.send_as(0, 1, 3, &pattern(3, 8), true);
    let Started::Request(unmatched) = sending.started else {
        panic!("it waits for its receiver")
    };
    for id in [named.id, wild.id, there.id, unmatched] {
        world.rank(0).requests.get(id).detached = true;
    }
    // Rank 1 could still send and receive.
    assert!(world.rank(0).end_detached(|_, _| false));
    assert_eq!(world.rank(0).requests.alive(), 4);
    let late = world.send(1, 0, 2, &pattern(2, 100_000));
    world.rank(1).tell_phase(Phase::Silent);
    // It sends nothing new: what has no message ends, what has one is received.
    assert!(world.rank(0).end_detached(|worker, _| worker.is_silent(1)));
    world.settle();
    assert!(world.is_sent(&late) && there.data[..100_000] == pattern(2, 100_000));
    assert_eq!(world.rank(0).requests.alive(), 1);
    world.rank(1).tell_phase(Phase::Settled);
    assert!(!world.rank(0).end_detached(|_, _| false));
    assert_eq!(world.rank(0).requests.alive(), 0);
}

/// Starts a synchronous or long send that must wait for its receiver; its request.
fn waiting_send(world: &mut World, tag: i32, len: usize) -> (Sending, u32) {
    let sending = world.send_as(0, 1, tag, &pattern(tag as u32, len), true);
    let Started::Request(id) = sending.started else {
        panic!("it waits for its receiver")
    };
    (sending, id)
}

#[test]
fn cancel__takes_back_without_the_receiver_what_lies_in_shared_memory() {
    for (single_copy, loopback) in [(true, true), (false, false)] {
        let mut world = World::shared_with(2, single_copy, loopback);
        for (round, len) in [0, 8, 1000, 40_000, 400_000]
            .into_iter()
            .cycle()
            .take(700)
            .enumerate()
        {
            let (sending, id) = waiting_send(&mut world, 1, len);
            world.rank(0).cancel_send(id);
            // A ring that is full holds the others back here.
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
        // All that were taken back have been forgotten, but for the last: nobody has asked since.
        assert!(world.rank(0).requests.alive() <= 1);
        assert_eq!(
            world.rank(0).counters.violations + world.rank(1).counters.violations,
            0
        );
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
    assert_eq!(
        world.rank(0).requests.alive() + world.rank(1).requests.alive(),
        0
    );
    assert_eq!(
        world.rank(0).counters.violations + world.rank(1).counters.violations,
        0
    );
}

#[test]
fn cancel__completes_once_what_goes_by_itself_has_left() {
    let conditions = Conditions {
        slots: 6,
        ..Conditions::default()
    };
    let mut world = small_world(2, conditions);
    let before: Vec<_> = (0..4)
        .map(|tag| world.send(0, 1, tag, &pattern(tag as u32, 50)))
        .collect();
    // Of the 200 bytes that go by themselves the last find no room.
    let (sending, id) = waiting_send(&mut world, 7, 1000);
    // The receiver makes room, and the question overtakes what waits.
    while world.network.advance_to_next() || world.rank(1).progress() {}
    world.rank(0).cancel_send(id);
    while world.network.advance_to_next() || world.rank(1).progress() {}
    world.network.set_weather(1.0, 0.0, 0.0);
    world.rank(0).progress();
    assert!(world.rank(0).requests.get(id).cancelled, "it was answered");
    // The queue names the request: as that of another message, it would be sent twice.
    assert!(!world.is_sent(&sending), "it has not left");
    world.network.set_weather(0.0, 0.0, 0.0);
    let outcome = world.finish_send(sending).unwrap();
    assert_eq!((outcome.fault, outcome.cancelled), (Fault::None, true));
    let after: Vec<_> = (4..7)
        .map(|tag| world.send_as(0, 1, tag, &pattern(tag as u32, 1000), true))
        .collect();
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
    // Another one is claimed after it.
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
