//! Operations that end although their peer lives, and notices: what jobs that tolerate failures need.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::request::Fault;
use fastpath_protocol::{RequestState, StartOutcome};
use fastpath_transport::sim::Conditions;
use std::cell::RefCell;

thread_local!(static SEEN: RefCell<Vec<(u32, u32, u64, usize)>> = const { RefCell::new(Vec::new()) });

#[test]
fn notices__of_all_sizes_are_delivered_in_order_without_a_receive() {
    for conditions in [Conditions::default(), Conditions { slots: 2, ..Conditions::default() }] {
        let mut world = small_world(2, conditions);
        world.rank(1).hooks.on_notice = Some(|_, notice| {
            assert!(notice.bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
            let (sender, kind) = (notice.sender, notice.kind);
            SEEN.with_borrow_mut(|seen| {
                seen.push((sender, kind, notice.number, notice.bytes.len()))
            });
        });
        let lens = [0, 1, 48, 49, 100, 7, 0, 300];
        for (kind, len) in lens.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            world.rank(0).send_notice(1, kind as u32, 1 << 40 | kind as u64, &bytes).unwrap();
            // A message between notices is not disturbed.
            let sending = world.send(0, 1, 1, &pattern(1, 8));
            let receiving = world.recv(1, 0, 1, 8);
            assert!(world.finish_recv(receiving).data == sending.data[..]);
        }
        world.settle();
        let seen = SEEN.take();
        let expected = lens.into_iter().enumerate();
        let expected = expected.map(|(kind, len)| (0, kind as u32, 1 << 40 | kind as u64, len));
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }
}

#[test]
fn failed_operations__end_with_their_fault_and_later_ones_are_right() {
    let mut world = small_world(2, Conditions::default());
    let receiving = world.recv(1, 0, 3, 100);
    let sending = world.send(0, 1, 1, &pattern(1, 2000));
    let StartOutcome::Request(send) = sending.started else {
        panic!("a long send needs a request")
    };
    world.rank(1).fail_request(receiving.id, Fault::MemberDied);
    assert_eq!(world.finish_recv(receiving).outcome.fault, Fault::MemberDied);
    world.rank(0).fail_request(send, Fault::Revoked);
    // Between nodes the receiver answers; it has not matched the message.
    world.settle();
    let request = world.rank(0).requests.get(send);
    assert_eq!((request.state, request.fault), (RequestState::Complete, Fault::Revoked));
    world.rank(0).free_failed(send);
    for len in [8, 2000] {
        let sending = world.send(0, 1, 1, &pattern(5, len));
        let receiving = world.recv(1, 0, 1, len);
        let received = world.finish_recv(receiving);
        assert!(received.outcome.fault == Fault::None && received.data == sending.data[..]);
        world.finish_send(sending);
    }
    assert_eq!([0, 1].map(|rank| world.rank(rank).requests.alive()), [0, 0]);
}
