//! Detached requests, and peers that have left the job.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_job::Job;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::Fault;
use fastpath_protocol::{RequestState, StartOutcome, Worker};
use fastpath_segment::RankPhase;
use fastpath_transport::Interfaces;
use fastpath_transport::sim::Conditions;

#[test]
fn detached__send_is_freed_when_done_and_reported_once() {
    thread_local!(static SEEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let mut world = small_world(2, Conditions { slots: 2, ..Conditions::default() });
    world.rank(0).hooks.on_detached = Some(|_| SEEN.set(SEEN.get() + 1));
    let mut keep = Vec::new();
    for (tag, len) in [8, 100, 101, 1000, 90, 2000].into_iter().enumerate() {
        let sending = world.send(0, 1, tag as i32, &pattern(tag as u32, len));
        if let StartOutcome::Request(id) = sending.started {
            let request = world.rank(0).requests.get_mut(id);
            assert_eq!(request.state, RequestState::Active);
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
    let StartOutcome::Request(id) = sending.started else { panic!("a long send needs a request") };
    world.rank(0).requests.get_mut(id).detached = true;
    world.settle();
    // MPI_Finalize must still deliver this message.
    assert!(has_unsent(world.rank(0)));
    let receiving = world.recv(1, 0, 1, 1000);
    assert!(world.finish_recv(receiving).data == sending.data[..]);
    world.settle();
    assert!(!has_unsent(world.rank(0)));
}

#[test]
fn peer_gone__fails_what_is_sent_and_what_waits() {
    let mut world = small_world(2, Conditions { slots: 2, ..Conditions::default() });
    let sends: Vec<_> =
        [8, 8, 8, 1000].iter().map(|&len| world.send(0, 1, 1, &pattern(1, len))).collect();
    world.network.leave(1);
    let outcomes: Vec<_> =
        sends.into_iter().map(|sending| world.finish_send(sending).map(|o| o.fault)).collect();
    assert_eq!(outcomes, [None, None, Some(Fault::PeerGone), Some(Fault::PeerGone)]);
    assert_eq!((world.rank(0).requests.alive(), has_unsent(world.rank(0))), (0, false));
}

#[test]
fn peer_gone__a_send_without_room_fails_at_once() {
    let mut world = World::shared(2);
    let waits = loop {
        let sending = world.send(0, 1, 1, &pattern(1, 8));
        if let StartOutcome::Request(_) = sending.started {
            break sending;
        }
    };
    world.rank(1).job.set_phase(RankPhase::Finalized);
    let late = world.send(0, 1, 1, &pattern(1, 8));
    let StartOutcome::Request(id) = late.started else { panic!("there is no room") };
    // This call alone completes the request, without further progress.
    assert_eq!(world.rank(0).requests.get(id).state, RequestState::Complete);
    for sending in [waits, late] {
        assert_eq!(world.finish_send(sending).map(|o| o.fault), Some(Fault::PeerGone));
    }
    assert!(!has_unsent(world.rank(0)));
}

#[test]
fn source_gone__ends_a_receive_only_when_nothing_is_left_to_come() {
    let mut world = World::shared(3);
    // Rank 0 has no lane to rank 1, whose message is in a ring that has not been polled.
    let sending = world.send(1, 0, 2, &pattern(2, 100));
    assert!(world.is_sent(&sending));
    let (missing, there) = (world.recv(0, 1, 1, 100), world.recv(0, 1, 2, 100));
    assert!(!world.rank(0).give_up(missing.id, 1), "it could still send");
    world.rank(1).job.set_phase(RankPhase::Finalized);
    assert!(world.rank(0).give_up(missing.id, 1) && world.rank(0).give_up(there.id, 1));
    let outcome = world.finish_recv(missing).outcome;
    assert_eq!((outcome.fault, outcome.source, outcome.tag), (Fault::SourceGone, 1, 1));
    assert!(world.finish_recv(there).data == pattern(2, 100));

    let from_any = world.recv(0, ANY_PEER, 1, 8);
    assert!(!world.rank(0).have_left(&[0, 1, 2], true), "rank 2 is there");
    world.rank(2).job.set_phase(RankPhase::Finalized);
    assert!(!world.rank(0).have_left(&[0, 1, 2], false), "rank 0 itself");
    assert!(world.rank(0).have_left(&[0, 1, 2], true));
    assert!(world.rank(0).give_up_slow(from_any.id));
    assert_eq!(world.finish_recv(from_any).outcome.fault, Fault::SourceGone);
    assert_eq!(world.rank(0).requests.alive(), 0);
}

#[test]
fn detached__end_when_what_could_match_them_has_gone_by() {
    let mut world = World::shared(2);
    let (named, wild) = (world.recv(0, 1, 1, 8), world.recv(0, ANY_PEER, 1, 8));
    let there = world.recv(0, 1, 2, 100_000);
    let sending = world.send_as(0, 1, 3, &pattern(3, 8), true);
    let StartOutcome::Request(unmatched) = sending.started else {
        panic!("it waits for its receiver")
    };
    for id in [named.id, wild.id, there.id, unmatched] {
        world.rank(0).requests.get_mut(id).detached = true;
    }
    // Rank 1 may still send and receive, so no request ends, and `end_detached` returns that some remain.
    assert!(world.rank(0).end_detached(|_, _| false));
    assert_eq!(world.rank(0).requests.alive(), 4);
    let late = world.send(1, 0, 2, &pattern(2, 100_000));
    world.rank(1).tell_phase(RankPhase::Silent);
    // Rank 1 sends nothing new: receives without a message end, and all others complete.
    assert!(world.rank(0).end_detached(|worker, _| worker.is_silent(1)));
    world.settle();
    assert!(world.is_sent(&late) && there.data[..100_000] == pattern(2, 100_000));
    assert_eq!(world.rank(0).requests.alive(), 1);
    world.rank(1).tell_phase(RankPhase::Settled);
    assert!(!world.rank(0).end_detached(|_, _| false));
    assert_eq!(world.rank(0).requests.alive(), 0);
}

#[test]
fn place__of_a_spawned_rank_with_a_lane__is_held_until_the_lane_is_dropped() {
    for by_key in [false, true] {
        let jobs: &'static [Job] = Job::with_spawned(1, 1).unwrap().leak();
        let make = |job| Worker::with_interfaces(job, policy(), Interfaces::open(job)).unwrap();
        let [mut worker, mut spawned] = [make(&jobs[0]), make(&jobs[1])];
        // Let the kernel copy, instead of load and store: then only the lane refers to the rank's place.
        worker.planner.thresholds.direct = u64::MAX;
        let mut bytes = [0_u8; 8];
        // SAFETY: the memory outlives the workers.
        let exposed = unsafe { spawned.expose_memory(bytes.as_mut_ptr(), bytes.len()) };
        match by_key {
            true => assert!(worker.unpack_key(1, &exposed.key).is_ok()),
            false => assert!(worker.shares_memory(1)),
        }
        let segment = jobs[0].segment();
        let has_ended = |rank: usize| rank == 1;
        assert_eq!(segment.count_places(has_ended).held, 1);
        jobs[1].set_phase(RankPhase::Finalized);
        assert_eq!(worker.departed(), [1]);
        worker.release_departed(&[1]);
        assert_eq!(segment.reuse_places(1, has_ended), [1]);
        let added = segment.add_ranks_at(1, &[1], |_| None, |_, _| {});
        assert_eq!(added.unwrap(), 2);
        assert!(!worker.shares_memory(1) && worker.peer_has_left(1));
        assert!(worker.unpack_key(1, &exposed.key).is_err());
    }
}
