//! Tests of the transport, on the fake adapter or on the device of `FASTPATH_TEST_DEVICE`. Tests that need faults
//! always use the fake adapter.
#![allow(unsafe_code, non_snake_case)]

mod exposed;
mod failures;
mod remote;
mod sleeper;

use super::core::SMALL;
use super::testing::RcPair;
use super::wire::{LARGEST, PACKET};
use super::*;
use crate::adapter::testing::{WATCHDOG, send, take};
use crate::contract::*;
use crate::verbs::{Access, Failure, Sge, VerbsCall, VerbsError, fake, fault, test_device};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::wait::{futex_wait, futex_wake};
use std::time::{Duration, Instant};

/// Memory registered for peers.
struct ExposedMemory {
    memory: Box<[u64]>,
    region: std::sync::Arc<crate::verbs::MemoryRegion>,
}

impl ExposedMemory {
    fn new(iface: &RcIface, words: usize) -> Self {
        let mut memory = vec![0_u64; words].into_boxed_slice();
        let at = memory.as_mut_ptr().cast();
        // SAFETY: the memory lives as long as the region.
        let region =
            iface.with_registrations(|all| unsafe { all.register(at, words * 8, Access::Remote) });
        let region = region.unwrap();
        ExposedMemory { memory, region }
    }

    fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.region.address() as u64 + offset as u64,
            rkey: self.region.rkey() as u64,
        }
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let at = self.memory.as_ptr().cast::<u8>();
        // SAFETY: the bytes are within the memory. The reads are volatile, because the adapter writes there.
        (offset..offset + len).map(|i| unsafe { at.add(i).read_volatile() }).collect()
    }
}

fn quick() -> Settings {
    Settings {
        retry_config: crate::verbs::RetryConfig {
            timeout: 12,
            retries: 3,
            rnr_retries: 1,
            rnr_timer: 1,
            ..Default::default()
        },
        ..Settings::default()
    }
}

/// Exchanges `count` messages each way.
fn exchange(pair: &mut RcPair, count: u32) {
    pair.exchange(count, |n| [0, 8, 100, 3000, PACKET, PACKET + 1, LARGEST][n as usize % 7]);
}

#[test]
fn messages__go_both_ways_in_order() {
    let mut pair = RcPair::new(Settings::default());
    exchange(&mut pair, 500);
    let counters = pair.ifaces[0].counters();
    assert_eq!((counters.violations, counters.failures), (0, 0));
    assert!(counters.inline > 0 && counters.copied > 0, "{counters:?}");
}

#[test]
fn header__of_a_message_that_has_the_last_ones_does_not_travel() {
    let mut pair = RcPair::new(Settings::default());
    let mut exchange = |number: u32, len: usize, without: bool| {
        let before = pair.ifaces[0].counters().again;
        assert_eq!(send(&mut pair.ends[0], number, len), Post::Done);
        assert_eq!(pair.ifaces[0].counters().again - before, u64::from(without));
        let mut seen = None;
        pair.until("a message", |pair| {
            seen = pair.ends[1].look().map(|arrival| {
                // SAFETY: an arrival is valid until it is taken.
                let bytes = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
                (arrival.header, bytes.to_vec())
            });
            seen.is_some()
        });
        pair.ends[1].take();
        assert_eq!(seen, Some((Header::new(7, number, 0), vec![number as u8; len])));
    };
    // In order: the first message; an equal header; another header; an inline message; a message of several packets,
    // which has its header.
    exchange(1, 4096, false);
    exchange(1, 4096, true);
    exchange(1, PACKET, true);
    exchange(2, 4096, false);
    exchange(3, 8, false);
    exchange(3, 900, true);
    exchange(3, LARGEST, false);
    exchange(3, 900, true);
    exchange(2, 900, false);
}

#[test]
fn sends__are_silent_but_for_a_few_and_all_room_comes_back() {
    let mut pair = RcPair::new(Settings::default());
    for round in 0..40 {
        for number in 0..32 {
            assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done, "round {round}");
        }
        for _ in 0..32 {
            let mut seen = None;
            pair.until("a message", |pair| {
                seen = take(&mut pair.ends[1]);
                seen.is_some()
            });
        }
        pair.ends[1].return_all_credits();
        pair.until("all drained", |pair| {
            pair.ends[0].is_drained() && pair.ends[1].is_drained() && pair.has_all_arrived()
        });
    }
    let counters = pair.ifaces[0].counters();
    let messages = 40 * 32;
    // At most one completion for every 32 sends, and one for each drain, are expected.
    assert!(counters.send_completions <= messages / 32 + 40 + 1, "{counters:?}");
}

#[test]
fn progress__polls_no_send_queue_when_nothing_was_sent() {
    let mut pair = RcPair::new(Settings::default());
    for _ in 0..10_000 {
        pair.progress();
    }
    assert_eq!(pair.ifaces[0].counters().send_polls, 0);
}

#[test]
fn receive_buffers__are_posted_again_in_batches() {
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&fake::open(), Settings::default()).unwrap();
    fake::take_receive_posts();
    for number in 0..320 {
        pair.until("room", |pair| send(&mut pair.ends[0], number, 8) == Post::Done);
        pair.until("it", |pair| take(&mut pair.ends[1]) == Some((number, 8)));
    }
    let (calls, told) = (fake::take_receive_posts(), pair.ifaces[1].counters().credit_packets);
    assert!((1..=(320 + told) / 16 + 2).contains(&calls), "{calls}");
}

#[test]
fn connection__rests_while_nothing_waits_and_nothing_is_to_be_told() {
    let settings = Settings { window: 8, ..Settings::default() };
    let mut pair = RcPair::new(settings);
    assert!(pair.ends[1].is_resting());
    for number in 0..2 {
        assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done);
    }
    pair.until("both", |pair| pair.has_all_arrived());
    let polls = pair.ifaces[1].counters().recv_polls;
    assert!(!pair.ends[1].is_resting());
    assert_eq!(take(&mut pair.ends[1]), Some((0, 8)));
    assert_eq!(take(&mut pair.ends[1]), Some((1, 8)));
    // No message waits, but a packet must return the owed credits.
    assert!(!pair.ends[1].is_resting());
    pair.ends[1].return_credits();
    assert!(pair.ends[1].is_resting());
    assert_eq!(pair.ifaces[1].counters().recv_polls, polls);
}

#[test]
fn memory__is_written_read_and_changed() {
    let mut pair = RcPair::new(Settings::default());
    let far = ExposedMemory::new(&pair.ifaces[1], 1 << 15);
    let data: Vec<u8> = (0..200_000).map(|i| (i * 7) as u8).collect();
    let inline = pair.ends[0].granted_inline();
    for len in [0, 1, 8, inline] {
        // SAFETY: `data` is readable for `len` bytes.
        let post = unsafe { pair.ends[0].put_short(data.as_ptr(), len, far.remote(64)) };
        assert_eq!(post, Post::Done);
        flush(&mut pair);
        assert_eq!(far.read(64, len), data[..len], "{len}");
    }
    for len in [1, SMALL, SMALL + 1, 32_768] {
        let post = pair.ends[0].put_bcopy(
            len,
            // SAFETY: `to` has room for `len` bytes.
            |to| unsafe { std::ptr::copy_nonoverlapping(data[5..].as_ptr(), to, len) },
            far.remote(1),
        );
        assert_eq!(post, Post::Done);
        flush(&mut pair);
        assert_eq!(far.read(1, len), data[5..5 + len], "{len}");
    }
    // SAFETY: data and copy outlive the operations.
    unsafe {
        let post = pair.ends[0].put_zcopy(data.as_ptr(), data.len(), far.remote(8), 11);
        assert_eq!(post, Post::InProgress);
        assert_eq!(pair.complete(11), Ok(()));
        assert_eq!(far.read(8, data.len()), data);
        let mut copy = vec![0; data.len()];
        let post = pair.ends[0].get_zcopy(copy.as_mut_ptr(), copy.len(), far.remote(8), 12);
        assert_eq!(post, Post::InProgress);
        assert_eq!(pair.complete(12), Ok(()));
        assert_eq!(copy, data);
        // The calls of the transport contract wait for completion.
        copy.fill(0);
        pair.ends[0].get(copy.as_mut_ptr(), copy.len(), far.remote(8)).unwrap();
        assert_eq!(copy, data);
        pair.ends[0].put(data.as_ptr(), 5, far.remote(0)).unwrap();
    }
    assert_eq!(far.read(0, 5), data[..5]);
}

fn flush(pair: &mut RcPair) {
    match pair.ends[0].flush(1) {
        Post::Done => {}
        Post::InProgress => assert_eq!(pair.complete(1), Ok(())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flush__completes_after_all_that_was_posted() {
    let mut pair = RcPair::new(Settings::default());
    let far = ExposedMemory::new(&pair.ifaces[1], 4096);
    assert_eq!(pair.ends[0].flush(1), Post::Done);
    let mut posted = 0_u64;
    for _ in 0..20 {
        while posted < 4096 {
            // SAFETY: `put_short` copies the 8 bytes of `posted`, which are readable now.
            let post = unsafe {
                pair.ends[0].put_short(
                    (&raw const posted).cast(),
                    8,
                    far.remote(posted as usize * 8),
                )
            };
            match post {
                Post::Done => posted += 1,
                Post::NoResource => break,
                other => panic!("{other:?}"),
            }
        }
        flush_with_timeout(&mut pair);
        assert_eq!(far.read((posted as usize - 1) * 8, 8), (posted - 1).to_ne_bytes());
    }
    assert!(posted > 1000, "{posted}");
}

fn flush_with_timeout(pair: &mut RcPair) {
    pair.until("room for a flush", |pair| match pair.ends[0].flush(1) {
        Post::NoResource => false,
        Post::Done => true,
        Post::InProgress => pair.complete(1) == Ok(()),
        other => panic!("{other:?}"),
    });
}

#[test]
fn room__that_is_gone_comes_back_though_all_sends_were_silent() {
    let settings = Settings { buffers: [3, 2], inline: 0, ..Settings::default() };
    let mut pair = RcPair::new(settings);
    let mut sent = 0;
    let mut seen = 0;
    pair.until("300 messages through 3 buffers", |pair| {
        if sent < 300 && send(&mut pair.ends[0], sent, 900) == Post::Done {
            sent += 1;
        }
        seen += take(&mut pair.ends[1]).is_some() as u32;
        pair.ends[1].return_credits();
        seen == 300
    });
}

#[test]
fn inline__whatever_is_granted_messages_arrive() {
    let grants = [(0, 512, 300, 0), (64, 512, 300, 320), (1, 100, 400, 100), (64, 512, 0, 0)];
    for (inline_step, inline_most, inline, expected) in grants {
        let context = fake::open();
        fake::set_conditions(fake::Conditions {
            inline_step,
            inline_most,
            ..fake::Conditions::default()
        });
        let settings = Settings { inline, ..Settings::default() };
        let mut pair = RcPair::on(&context, settings).unwrap();
        assert_eq!(pair.ends[0].granted_inline(), expected);
        fake::take_posted();
        let short = pair.ends[0].capabilities().short;
        for len in [0, 47, 48, short - 1, short, short + 1] {
            let before = pair.ifaces[0].counters();
            assert_eq!(send(&mut pair.ends[0], len as u32, len), Post::Done);
            let mut seen = None;
            pair.until("a message", |pair| {
                seen = take(&mut pair.ends[1]);
                seen.is_some()
            });
            assert_eq!(seen, Some((len as u32, len)));
            let inline = pair.ifaces[0].counters().inline - before.inline;
            assert_eq!(inline == 1, 16 + len <= expected, "{len} of {expected}");
            let posted = fake::take_posted();
            let flag = posted[0].1 & crate::verbs::abi::SEND_INLINE != 0;
            assert_eq!(flag, 16 + len <= expected);
        }
    }
}

#[test]
fn connections__many_share_buffers_and_give_them_back() {
    let (context, _) = test_device();
    let settings = Settings {
        window: 16,
        receives: 32,
        receives_windows: 0,
        receives_each: 4,
        ..Settings::default()
    };
    let ifaces = [(); 2].map(|()| RcIface::new(&context, None, settings).unwrap());
    let mut links: Vec<[RcEndpoint; 2]> = Vec::new();
    for _ in 0..40 {
        let mut ends = [&ifaces[0], &ifaces[1]].map(|iface| iface.endpoint(None).unwrap());
        let addresses = [ends[0].local_address(), ends[1].local_address()];
        assert!(ends[0].open(&addresses[1]) && ends[1].open(&addresses[0]));
        ends.iter_mut().for_each(RcEndpoint::set_ready);
        links.push(ends);
    }
    let [mut near, mut far] = ifaces;
    let start = Instant::now();
    let mut seen = vec![0; links.len()];
    let mut sent = vec![0; links.len()];
    while seen.iter().any(|&count| count < 50) {
        assert!(start.elapsed() < WATCHDOG, "{seen:?}");
        for (at, [tx, rx]) in links.iter_mut().enumerate() {
            if sent[at] < 50 && send(tx, sent[at], 5000) == Post::Done {
                sent[at] += 1;
            }
            if let Some((number, len)) = take(rx) {
                assert_eq!((number, len), (seen[at], 5000));
                seen[at] += 1;
            }
            rx.return_credits();
        }
        near.progress();
        far.progress();
    }
    let base = fault::alive();
    links.truncate(1);
    assert_eq!(base - fault::alive(), 78);
    assert_eq!(far.counters().violations + near.counters().failures, 0);
}

#[test]
fn memory__that_cannot_be_locked_makes_it_slower_and_nothing_else() {
    for more in [0, 50_000, 200_000] {
        fake::set_conditions(fake::Conditions::default());
        let mut pair = RcPair::on(&fake::open(), Settings::default()).unwrap();
        fake::lock_no_more_than(more);
        exchange(&mut pair, 100);
        // If `has_room` returns true, the messages can be sent.
        let mut rooms = 0;
        for messages in [1, 2, 3, 16] {
            if !pair.ends[0].has_room(messages, 3000) {
                continue;
            }
            rooms += 1;
            for number in 0..messages {
                assert_eq!(send(&mut pair.ends[0], number, 3000), Post::Done);
            }
            for number in 0..messages {
                pair.until("a message", |pair| take(&mut pair.ends[1]) == Some((number, 3000)));
            }
            pair.ends[1].return_all_credits();
            pair.until("all drained", |pair| {
                pair.ends[0].is_drained() && pair.ends[1].is_drained() && pair.has_all_arrived()
            });
        }
        assert!(rooms > 0, "{more}");
        // Memory for more receive buffers is refused, so further peers share the existing ones.
        let before = pair.ifaces[1].counters().refused;
        let mut others = [(); 3].map(|()| {
            let mut ends = [0, 1].map(|me: usize| pair.ifaces[me].endpoint(None).unwrap());
            let addresses = [ends[0].local_address(), ends[1].local_address()];
            assert!(ends[0].open(&addresses[1]) && ends[1].open(&addresses[0]));
            ends.iter_mut().for_each(RcEndpoint::set_ready);
            ends
        });
        assert!(pair.ifaces[1].counters().refused > before, "{more}");
        for [tx, rx] in &mut others {
            let mut sent = false;
            pair.until("a message", |_| {
                sent = sent || send(tx, 5, 5000) == Post::Done;
                take(rx) == Some((5, 5000))
            });
        }
        assert_eq!(pair.ifaces[0].counters().failures, 0);
    }
}

#[test]
fn receive_buffers__grow_slowly_with_connections() {
    let (context, _) = test_device();
    let settings = Settings {
        window: 16,
        receives: 32,
        receives_windows: 64,
        receives_each: 2,
        ..Settings::default()
    };
    let iface = RcIface::new(&context, None, settings).unwrap();
    let posted = |iface: &RcIface| {
        let mut posted = 0;
        iface.with_core(|core| posted = core.receives.posted());
        posted
    };
    let mut ends = Vec::new();
    // The first buffers hold two windows. The next two connections add one window each, later ones an eighth each.
    for (connections, buffers) in [(0, 32), (2, 32), (3, 48), (4, 64), (5, 66), (20, 96)] {
        ends.resize_with(connections, || iface.endpoint(None).unwrap());
        assert_eq!(posted(&iface), buffers, "{connections} connections");
    }
}
