//! Tests of the transport, on the fake adapter or on the device of `FASTPATH_TEST_DEVICE`. Tests that need faults
//! always use the fake adapter.
#![allow(unsafe_code, non_snake_case)]

mod on_fake;

use super::testing::UdPair;
use super::wire::{DatagramHead, DatagramKind};
use super::*;
use crate::adapter::testing::{connect, send, take};
use crate::contract::*;
use crate::reliable::Ack;
use crate::verbs::{Failure, VerbsCall, VerbsError, fake, fault, test_device};
use fastpath_base::random::Random;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_job::Job;
use fastpath_segment::{RankPage, STATE_AWAKE, STATE_DEAD, STATE_SLEEPING};

const SIZES: [usize; 8] = [0, 8, 100, 900, 1000, 3000, 8193, 32_768];

fn size(number: u32) -> usize {
    SIZES[number as usize % SIZES.len()]
}

/// Exchanges `count` messages each way.
fn exchange(pair: &mut UdPair, count: u32) {
    pair.exchange(count, size);
}

#[test]
fn messages__go_both_ways_in_order() {
    let mut pair = UdPair::new(Settings::default());
    exchange(&mut pair, 300);
    let counters = pair.ifaces[0].counters();
    println!("{counters:?}"); // visible with `--nocapture`
    assert_eq!((counters.violations, counters.failures, counters.garbage), (0, 0, 0));
    assert!(counters.inline > 0 && counters.sent > 300, "{counters:?}");
}

#[test]
fn progress__polls_no_send_queue_and_sends_nothing_when_nothing_was_sent() {
    let mut pair = UdPair::new(Settings::default());
    for _ in 0..10_000 {
        pair.progress();
    }
    let counters = pair.ifaces[0].counters();
    assert_eq!((counters.send_polls, counters.acks, counters.sent), (0, 0, 0));
}

#[test]
fn sends__are_silent_but_for_a_few() {
    let mut pair = UdPair::new(Settings::default());
    let rounds = if test_device().1 { 200 } else { 2000 };
    for round in 0..rounds {
        assert_eq!(send(&mut pair.ends[0], round, 8), Post::Done);
        let mut seen = None;
        pair.until("a message", |pair| {
            seen = take(&mut pair.ends[1]);
            seen.is_some()
        });
        // The message back carries the acknowledgement.
        assert_eq!(send(&mut pair.ends[1], round, 8), Post::Done);
        pair.until("an answer", |pair| take(&mut pair.ends[0]).is_some());
    }
    let counters = pair.ifaces[0].counters();
    let posted = counters.sent + counters.resent + counters.acks;
    assert!(
        counters.send_completions <= posted / (Settings::default().depth as u64 / 4) + 1,
        "{counters:?}"
    );
    if !test_device().1 {
        assert_eq!(counters.acks, 0, "no time has passed: {counters:?}");
    }
}

#[test]
fn peers__of_one_port_share_an_address_handle() {
    let mut pair = UdPair::new(Settings::default());
    let mut more = Vec::new();
    for _ in 0..10 {
        let mut ends = [0, 1].map(|me: usize| pair.ifaces[me].endpoint(None).unwrap());
        let [one, two] = &mut ends;
        assert!(connect(one, two));
        more.push(ends);
    }
    let counters = pair.ifaces[0].counters();
    assert_eq!((counters.connections, counters.handles), (11, 1));
    // Each link has its own connection over the common queue pair.
    for (number, ends) in more.iter_mut().enumerate() {
        assert_eq!(send(&mut ends[0], number as u32, 5000), Post::Done);
    }
    for (number, ends) in more.iter_mut().enumerate().rev() {
        pair.until("its message", |_| take(&mut ends[1]) == Some((number as u32, 5000)));
    }
}

/// Eight connections from the first interface to the second.
fn many(pair: &UdPair) -> Vec<[UdEndpoint; 2]> {
    let make = |_| {
        let mut ends = [0, 1].map(|me: usize| pair.ifaces[me].endpoint(None).unwrap());
        let [one, two] = &mut ends;
        assert!(connect(one, two));
        ends
    };
    (0..8).map(make).collect()
}

#[test]
fn receive_buffers__grow_slowly_with_peers() {
    let (context, _) = test_device();
    let iface = UdIface::new(&context, None, Settings::default()).unwrap();
    let buffers = || iface.core().borrow().receives.count();
    let mut ends = Vec::new();
    let mut grown = Vec::new();
    for peers in [1, 128, 129, 160, 161, 1000] {
        ends.resize_with(peers, || iface.endpoint(None).unwrap());
        grown.push(buffers());
    }
    assert_eq!(grown, [256, 256, 320, 320, 384, 2048]);
}

#[test]
fn peers__that_do_not_answer_leave_send_buffers_to_others() {
    let mut pair = UdPair::new(Settings { buffers: [32, 2], ..Settings::default() });
    let mut more = many(&pair);
    // Send without polls of the second interface.
    for ends in &mut more {
        for number in 0..30 {
            assert_eq!(send(&mut ends[0], number, 8), Post::Done);
        }
    }
    exchange(&mut pair, 20);
    for ends in &mut more {
        for number in 0..30 {
            pair.until("a message", |_| take(&mut ends[1]) == Some((number, 8)));
        }
    }
}

#[test]
fn garbage__is_counted_and_dropped() {
    let mut pair = UdPair::new(Settings::default());
    exchange(&mut pair, 5);
    // Send as a stranger who has the queue pair's number and key, but not the token.
    let (context, _) = test_device();
    let stranger = UdIface::new(&context, None, Settings::default()).unwrap();
    let mut strange = stranger.endpoint(None).unwrap();
    assert!(strange.open(&pair.ends[1].local_address()));
    let token = pair.ends[1].with(|link| link.token);
    let right = DatagramHead {
        kind: DatagramKind::Whole,
        link: 0,
        token,
        seq: token.wrapping_add(1000),
        ack: Ack { next: 0, held: 0 },
        total: 0,
    };
    let mut random = Random::new(7);
    for round in 0..1000_u64 {
        let mut bytes: Vec<u8> = (0..random.below(160)).map(|_| random.next_u64() as u8).collect();
        // The datagram is a valid packet except for one field, or random bytes.
        let mut head = right;
        match round % 5 {
            0 => {}
            1 => head.token = !token,
            2 => head.link = 1 + random.below(100_000) as u32,
            _ => {}
        }
        if round % 5 != 0 {
            bytes.resize(16, 0);
            bytes.splice(0..0, head.encode());
        }
        // In the other rounds, the source is not the peer, or the sequence number is far outside the window.
        match round % 5 {
            3 => strange.throw(&bytes),
            _ => pair.ends[0].throw(&bytes),
        }
        pair.until("it to be seen", |pair| pair.ifaces[1].counters().garbage == round + 1);
    }
    exchange(&mut pair, 20);
    assert_eq!(pair.ifaces[1].counters().violations, 0);
}

#[test]
fn endpoint__that_goes_gives_its_buffers_back() {
    let mut pair = UdPair::new(Settings { buffers: [64, 4], groups: 1, ..Settings::default() });
    let rounds = 20;
    for _ in 0..rounds {
        let mut ends = [0, 1].map(|me: usize| pair.ifaces[me].endpoint(None).unwrap());
        let [one, two] = &mut ends;
        assert!(connect(one, two));
        // Send packets, of which some arrive and some stay in flight. None is taken.
        for number in 0..20 {
            assert_eq!(send(&mut ends[0], number, 8), Post::Done);
        }
        assert_eq!(send(&mut ends[0], 20, 20_000), Post::Done);
        pair.progress();
        drop(ends);
        pair.progress();
    }
    exchange(&mut pair, 20);
    assert_eq!(pair.ifaces[0].core().borrow().links.places(), 2, "places are used again");
}

#[test]
fn failure__at_each_step_leaves_nothing_behind() {
    let (context, real) = test_device();
    let wanted = [
        VerbsCall::AllocPd,
        VerbsCall::RegMr,
        VerbsCall::CreateCq,
        VerbsCall::CreateQp,
        VerbsCall::QueryQp,
        VerbsCall::ModifyInit,
        VerbsCall::ModifyRtr,
        VerbsCall::ModifyRts,
        VerbsCall::CreateAh,
    ];
    let make = || UdPair::on(&context, Settings::default());
    fault::fail_each_step(&wanted, make, |step, error| match error {
        VerbsError::Value(_) => assert_eq!(step, VerbsCall::CreateAh),
        error => assert_eq!(error.errno(), libc::EBUSY),
    });
    drop(context);
    assert_eq!(fault::alive(), 0, "real device: {real}");
}
