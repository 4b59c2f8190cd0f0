//! The transport's own tests, on the fake adapter or on the one that `FASTPATH_TEST_DEVICE` names. What only the fake
//! one can do is tested on it alone.
#![allow(unsafe_code, non_snake_case)]

mod on_fake;

use super::testing::{UdPair, connect};
use super::wire::{DatagramKind, Head};
use super::*;
use crate::contract::*;
use crate::reliable::Ack;
use crate::verbs::{Failure, VerbsCall, VerbsError, fake, fault, test_device};
use fastpath_base::random::Random;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::{RankPage, STATE_AWAKE, STATE_DEAD, STATE_SLEEPING};

const SIZES: [usize; 8] = [0, 8, 100, 900, 1000, 3000, 8193, 32_768];

fn size(number: u32) -> usize {
    SIZES[number as usize % SIZES.len()]
}

fn send(end: &mut UdEndpoint, number: u32, len: usize) -> Post {
    end.am_bcopy(Header::new(7, number, 0), len, |to| {
        // SAFETY: room for `len` bytes.
        unsafe { std::ptr::write_bytes(to, number as u8, len) }
    })
}

/// Takes what arrives: number and length; its bytes must be right.
fn take(end: &mut UdEndpoint) -> Option<(u32, usize)> {
    let arrival = end.look()?;
    let seen = (arrival.header.imm, arrival.len());
    // SAFETY: valid until it is taken.
    let bytes = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
    assert!(bytes.iter().all(|&byte| byte == seen.0 as u8), "{seen:?}");
    end.take();
    Some(seen)
}

/// Sends `count` messages each way, and takes them.
fn exchange(pair: &mut UdPair, count: u32) {
    let (mut sent, mut seen) = ([0_u32; 2], [0_u32; 2]);
    pair.until("all messages", |pair| {
        for me in 0..2 {
            if sent[me] < count && send(&mut pair.ends[me], sent[me], size(sent[me])) == Post::Done
            {
                sent[me] += 1;
            }
            if let Some((number, len)) = take(&mut pair.ends[me]) {
                assert_eq!((number, len), (seen[me], size(number)));
                seen[me] += 1;
            }
            pair.ends[me].return_credits();
        }
        seen == [count; 2]
    });
}

#[test]
fn messages__go_both_ways_in_order() {
    let mut pair = UdPair::new(Settings::default());
    exchange(&mut pair, 300);
    let counters = pair.ifaces[0].counters();
    println!("{counters:?}"); // what the wire did to it is for others to judge
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
        // An answer carries the acknowledgement.
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
    // Each is a connection of its own, of one queue pair.
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
    // Nobody looks at the second interface meanwhile.
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
    // Somebody who knows the queue pair and its key, and not the token.
    let (context, _) = test_device();
    let stranger = UdIface::new(&context, None, Settings::default()).unwrap();
    let mut strange = stranger.endpoint(None).unwrap();
    assert!(strange.open(&pair.ends[1].local_address()));
    let token = pair.ends[1].with(|link| link.token);
    let right = Head {
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
        // Whole packets, but for one thing; or nothing of it is right.
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
        // The source is not the peer's, or the number is far beyond the window.
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
        // Some are under way, some have come, none is taken.
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
