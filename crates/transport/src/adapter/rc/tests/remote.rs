//! Puts and gets through a lane's calls: all sizes, in windows, completed by flushes.
#![allow(unsafe_code)]

use super::*;
use crate::contract::{Method, PostOutcome};

/// Makes progress until everything posted by the first end has completed.
fn flush(pair: &mut RcPair) -> Post {
    let mut last = Post::InProgress;
    pair.until("a flush", |pair| {
        last = pair.ends[0].progress_flush();
        last != Post::InProgress
    });
    last
}

/// Posts all bytes, in as many operations as needed.
fn post_all(
    pair: &mut RcPair, len: usize, mut post: impl FnMut(&mut RcEndpoint, usize) -> PostOutcome,
) {
    let mut done = 0;
    while done < len {
        match post(&mut pair.ends[0], done) {
            PostOutcome::Done(bytes) | PostOutcome::InProgress(bytes) => {
                assert!(bytes > 0 && bytes <= len - done);
                done += bytes;
            }
            PostOutcome::NoResource => pair.progress(),
            PostOutcome::PeerGone => panic!("{:?}", pair.ifaces[0].last_error()),
        }
    }
}

fn put(pair: &mut RcPair, from: &[u8], exposed: &ExposedMemory, offset: usize) {
    post_all(pair, from.len(), |end, done| {
        let (to, rest) = (exposed.remote(offset + done), &from[done..]);
        // SAFETY: every caller flushes before the bytes are dropped.
        unsafe { end.post_put(rest.as_ptr(), rest.len(), to) }
    });
}

fn get(pair: &mut RcPair, to: &mut [u8], exposed: &ExposedMemory, offset: usize) {
    post_all(pair, to.len(), |end, done| {
        let (from, rest) = (exposed.remote(offset + done), &mut to[done..]);
        // SAFETY: every caller flushes before it reads the bytes.
        unsafe { end.post_get(rest.as_mut_ptr(), rest.len(), from) }
    });
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + seed) >> 3) as u8).collect()
}

#[test]
fn remote__bytes_of_every_size_go_there_and_come_back() {
    let mut pair = RcPair::new(Settings::default());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 40_000);
    let inline = pair.ends[0].granted_inline();
    let sizes = [1, 8, inline - 1, inline, inline + 1, 1000, 8192, 40_000, 65_535, 65_536];
    let mut seen = Vec::new();
    for (seed, len) in sizes.into_iter().enumerate() {
        let sent = bytes(100 * seed, len);
        put(&mut pair, &sent, &exposed, 24);
        assert_eq!(flush(&mut pair), Post::Done);
        assert!(exposed.read(24, len) == sent, "put of {len}");
        let mut got = vec![0; len];
        get(&mut pair, &mut got, &exposed, 24);
        assert_eq!(flush(&mut pair), Post::Done);
        assert!(got == sent, "get of {len}");
        seen.push((pair.ends[0].put_method(len), pair.ends[0].get_method(len)));
    }
    let (short, bcopy, zcopy) = (Method::Short, Method::Bcopy, Method::Zcopy);
    assert_eq!((seen[3], seen[4], seen[6]), ((short, bcopy), (bcopy, bcopy), (bcopy, bcopy)));
    assert_eq!((seen[8], seen[9]), ((bcopy, bcopy), (zcopy, zcopy)));
    // No operation requested a completion.
    assert_eq!(pair.ifaces[0].take_completion(), None);
}

#[test]
fn remote__middle_sizes_are_copied_but_for_memory_that_lasts() {
    let mut pair = RcPair::new(Settings::default());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 20_000);
    let registered = |pair: &RcPair| pair.ifaces[0].with_registrations(|all| all.counts().made);
    let (before, mut memory) = (registered(&pair), bytes(3, 20_000));
    for lasts in [false, true] {
        if lasts {
            let start = memory.as_ptr().addr();
            pair.ifaces[0].with_registrations(|all| all.declare_lasting(start..start + 20_000));
        }
        put(&mut pair, &memory, &exposed, 0);
        get(&mut pair, &mut memory, &exposed, 0);
        assert_eq!(flush(&mut pair), Post::Done);
        assert!(memory == bytes(3, 20_000) && exposed.read(0, 20_000) == memory);
        assert_eq!(registered(&pair) - before, u64::from(lasts));
    }
}

#[test]
fn remote__windows_find_room_as_they_go() {
    let mut pair = RcPair::new(Settings::default());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 256 * 128);
    for len in [8, 1000] {
        let sent = bytes(5, 256 * len);
        for (part, offset) in sent.chunks(len).zip((0..).step_by(len)) {
            put(&mut pair, part, &exposed, offset);
        }
        assert_eq!(flush(&mut pair), Post::Done);
        assert!(exposed.read(0, sent.len()) == sent);
        let mut got = vec![0; sent.len()];
        for (part, offset) in got.chunks_mut(len).zip((0..).step_by(len)) {
            get(&mut pair, part, &exposed, offset);
        }
        assert_eq!(flush(&mut pair), Post::Done);
        assert!(got == sent);
    }
}

#[test]
fn flush__polls_the_send_queue_only_while_something_is_outstanding() {
    let mut pair = RcPair::new(Settings::default());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 1);
    let polls = |pair: &RcPair| pair.ifaces[0].counters().send_polls;
    let before = polls(&pair);
    for _ in 0..100 {
        assert_eq!(pair.ends[0].progress_flush(), Post::Done);
        pair.ifaces[0].progress();
    }
    assert_eq!(polls(&pair), before);
    put(&mut pair, &[1; 8], &exposed, 0);
    assert_eq!((flush(&mut pair), exposed.read(0, 8)), (Post::Done, vec![1; 8]));
    let once = polls(&pair);
    assert!(once > before);
    assert_eq!((pair.ends[0].progress_flush(), polls(&pair)), (Post::Done, once));
    // Without the gate, send queues are polled even if no completion is outstanding.
    pair.ifaces[0].set_tx_gate(false);
    assert_eq!(pair.ends[0].progress_flush(), Post::Done);
    pair.ifaces[0].progress();
    assert_eq!(polls(&pair), once + 2);
}

#[test]
fn flush__of_a_lone_operation_posts_nothing_behind_it() {
    let mut pair = RcPair::new(Settings::default());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 8);
    let posted = |pair: &RcPair| pair.ends[0].with(|connection| connection.sends.posted);
    let mut into = [0; 8];
    for (operations, wanted) in [(1, 1), (2, 3), (1, 1)] {
        let before = posted(&pair);
        for _ in 0..operations {
            get(&mut pair, &mut into, &exposed, 0);
        }
        assert_eq!(flush(&mut pair), Post::Done);
        assert_eq!(posted(&pair) - before, wanted, "{operations}");
    }
}

#[test]
fn remote__memory_that_cannot_be_locked_is_copied() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, Settings::default()).unwrap();
    let exposed = ExposedMemory::new(&pair.ifaces[1], 20_000);
    // Make the transport allocate its buffers before the limit on locked memory falls.
    let sent = bytes(1, 100_000);
    put(&mut pair, &sent[..8192], &exposed, 0);
    put(&mut pair, &sent[..1000], &exposed, 0);
    assert_eq!(flush(&mut pair), Post::Done);
    fake::set_conditions(fake::Conditions { lockable: 0, ..fake::Conditions::default() });
    put(&mut pair, &sent, &exposed, 0);
    assert_eq!(flush(&mut pair), Post::Done);
    assert!(exposed.read(0, 100_000) == sent);
    let mut got = vec![0; 100_000];
    get(&mut pair, &mut got, &exposed, 0);
    assert_eq!(flush(&mut pair), Post::Done);
    assert!(got == sent);
}

#[test]
fn flush__after_a_wrong_key_says_that_the_peer_is_lost() {
    let mut pair = RcPair::new(quick());
    let exposed = ExposedMemory::new(&pair.ifaces[1], 16);
    let mut wrong = exposed.remote(0);
    wrong.rkey ^= 0x55;
    let mut into = [7_u8; 128];
    // SAFETY: the buffer outlives the pair.
    let posted = unsafe { pair.ends[0].post_get(into.as_mut_ptr(), 128, wrong) };
    assert_eq!(posted, PostOutcome::InProgress(128));
    assert_eq!(flush(&mut pair), Post::PeerGone);
    // SAFETY: the buffer outlives the pair.
    let posted = unsafe { pair.ends[0].post_put(into.as_ptr(), 8, exposed.remote(0)) };
    assert_eq!(posted, PostOutcome::PeerGone);
    assert_eq!((flush(&mut pair), into), (Post::PeerGone, [7; 128]));
}

/// Posts puts in windows of 256, each with a reported completion. If one poll takes fewer completions, more polls are
/// needed.
#[test]
fn completions__are_taken_in_batches() {
    let mut taken = Vec::new();
    for batch in [1, 2, 4, 8, 16] {
        let settings = Settings { depth: 512, batch, ..Settings::default() };
        let mut pair = RcPair::new(settings);
        let exposed = ExposedMemory::new(&pair.ifaces[1], 256);
        let data = [3; 8];
        for cookie in 1..=256 {
            let to = exposed.remote(8 * (cookie as usize - 1));
            // SAFETY: the bytes outlive the operations, which are awaited.
            let posted = unsafe { pair.ends[0].put_zcopy(data.as_ptr(), 8, to, cookie) };
            assert_eq!(posted, Post::InProgress);
        }
        let before = pair.ifaces[0].counters();
        assert_eq!(flush(&mut pair), Post::Done);
        let after = pair.ifaces[0].counters();
        let polls = after.send_polls - before.send_polls;
        let completions = after.send_completions - before.send_completions;
        assert!(completions >= 256 && exposed.read(0, 2048) == [3; 2048]);
        assert!(polls * batch as u64 >= completions, "{polls} polls of {batch}");
        taken.push(polls);
    }
    eprintln!("polls for 256 completions, in batches of 1, 2, 4, 8, 16: {taken:?}");
    // A real adapter works in parallel and may have few completions at each poll, so its number of polls varies.
    if std::env::var_os("FASTPATH_TEST_DEVICE").is_none() {
        assert_eq!(taken, [256, 128, 64, 32, 16]);
    }
}
