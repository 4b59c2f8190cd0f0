//! Messages over connections of the kernel's network, several ranks in one process, on one node or several.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::Fault;
use fastpath_segment::RankPhase;

const SIZES: [usize; 9] = [0, 8, 48, 49, 5000, 32_768, 40_000, 70_000, 1_000_000];

#[test]
fn messages__of_all_sizes_pass_within_a_memory_and_between_two() {
    for (nodes, all) in [(&[0, 0][..], true), (&[0, 1], false), (&[3, 3, 5, 5], false)] {
        let mut world = World::over_network(nodes, all);
        let ranks = nodes.len() as u32;
        for size in SIZES {
            for (from, to) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                if from != to {
                    world.pass([from, to], size, size + 10);
                }
            }
        }
        let cut = world.pass([ranks - 1, 0], 100_000, 50_000);
        assert_eq!(cut.outcome.fault, Fault::Truncated);
    }
}

#[test]
fn unexpected_messages__wait_and_keep_their_order() {
    let mut world = World::over_network(&[0, 1], false);
    let sizes = [8, 40_000, 0, 300_000, 48];
    let mut sends = Vec::new();
    for (number, &size) in sizes.iter().enumerate() {
        sends.push(world.send(0, 1, 3, &vec![number as u8; size]));
    }
    world.await_until("the first", |w| w.is_sent(&sends[0]));
    (0..100).for_each(|_| _ = world.progress());
    for (number, &size) in sizes.iter().enumerate() {
        let receiving = world.recv(1, 0, 3, size);
        world.await_until("a message", |w| w.is_received(&receiving));
        let received = world.finish_recv(receiving);
        assert!(received.data == vec![number as u8; size], "{number}");
    }
    for send in sends {
        world.await_until("its end", |w| w.is_sent(&send));
        world.finish_send(send);
    }
}

#[test]
fn phases__are_known_between_memories_without_a_message_before() {
    let mut world = World::over_network(&[0, 1, 1], false);
    assert!(!world.rank(0).is_silent(1));
    world.rank(1).tell_phase(RankPhase::Silent);
    world.rank(2).tell_phase(RankPhase::Silent);
    // A rank of the same node reads the phase from the peer's page. A rank of another node first connects.
    assert!(world.rank(2).is_silent(1));
    world.await_until("both to be known", |w| w.rank(0).is_silent(1) & w.rank(0).is_silent(2));
    assert!(!world.rank(1).is_silent(0));
}

#[test]
fn peer__of_another_memory_that_dies_ends_what_waits_for_it() {
    let mut world = World::over_network(&[0, 1], false);
    world.pass([0, 1], 8, 8);
    let receiving = world.recv(0, 1, 3, 8);
    drop(world.workers.pop());
    world.await_until("its end to be known", |w| {
        w.rank(0).progress();
        w.rank(0).peer_has_left(1)
    });
    let why = world.rank(0).lost_peer().unwrap();
    assert!(why.contains("rank 1 on") && why.contains("without MPI_Finalize"), "{why}");
    assert!(!world.is_received(&receiving));
}
