#![allow(unsafe_code, non_snake_case)]

mod asking;
mod future_ranks;
mod many;

use super::greeting::{HELLO, Pass, WELCOME, draw_nonce};
use super::testing::{TcpPair, make_iface, make_jobs};
use super::*;
use crate::contract::{Connection, Endpoint, Header, Post};
use fastpath_base::config::Config;
use fastpath_base::sync::{AtomicBool, Ordering};
use fastpath_job::Job;
use fastpath_segment::{RankPhase, STATE_DEAD, STATE_FINALIZED};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const ATTEMPTS: u32 = 2_000_000;

fn until(ifaces: &mut [&mut TcpIface], what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..ATTEMPTS {
        if is_so() {
            return;
        }
        ifaces.iter_mut().for_each(|iface| {
            iface.progress();
        });
    }
    panic!("waited in vain for {what}");
}

fn send(end: &mut TcpEndpoint, key: u64, bytes: &[u8]) -> Post {
    let header = Header::new(1, 0, key);
    // SAFETY: `to` has room for all bytes.
    end.am_bcopy(header, bytes.len(), |to| unsafe {
        to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    })
}

fn receive(end: &mut TcpEndpoint) -> Option<(u64, Vec<u8>)> {
    let arrival = end.look()?;
    let key = arrival.header.key;
    // SAFETY: an arrival is valid until it is taken.
    let data = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) }.to_vec();
    end.take();
    Some((key, data))
}

#[test]
fn pair__carries_much_both_ways_with_room_that_comes_and_goes() {
    for (limit, messages) in [(None, 600), (Some(32 * 1024), 60)] {
        let mut pair = TcpPair::new(Settings::default());
        if let Some(bytes) = limit {
            pair.limit_buffers(bytes);
        }
        let lens = [0, 8, 100, 5000, 65_536, 30_000];
        let (mut sent, mut seen) = ([0_u64; 2], [0_u64; 2]);
        while seen != [messages; 2] {
            for me in 0..2 {
                let len = lens[sent[me] as usize % lens.len()];
                let bytes = vec![sent[me] as u8; len];
                if sent[me] < messages && send(&mut pair.ends[me], sent[me], &bytes) == Post::Done {
                    sent[me] += 1;
                }
                if let Some((key, data)) = receive(&mut pair.ends[1 - me]) {
                    assert_eq!(key, seen[me]);
                    assert_eq!(data.len(), lens[key as usize % lens.len()]);
                    assert!(data.iter().all(|&byte| byte == key as u8));
                    seen[me] += 1;
                }
            }
            pair.progress();
        }
        pair.until("the kernels to have it", |pair| {
            pair.ends.iter_mut().all(|end| end.is_drained())
        });
    }
}

/// Byte `at` of bulk message `number`.
fn byte_of(number: u64, at: usize) -> u8 {
    (at as u64).wrapping_mul(31).wrapping_add(number) as u8
}

/// Sends the next bytes of bulk message `key`; returns how many were sent.
fn send_bulk(end: &mut TcpEndpoint, key: u64, bytes: &[u8]) -> (Post, usize) {
    // SAFETY: the slice is readable for its length.
    unsafe { end.am_bulk(Header::new(2, 0, key), bytes.as_ptr(), bytes.len()) }.unwrap()
}

#[test]
fn bulk__comes_as_it_comes_between_other_messages_which_wait_for_its_end() {
    let lens = [65_536, 3, 40_000, 1, 300_000, 20_000];
    for room in [usize::MAX, 1000] {
        let mut pair = TcpPair::new(Settings::default());
        pair.limit_buffers(16 * 1024);
        let (mut sent, mut begun, mut seen, mut streamed) = (0, 0, 0, 0);
        let mut so_far: Vec<u8> = Vec::new();
        let all: Vec<Vec<u8>> = (0..36)
            .map(|number| {
                let len = lens[number as usize % lens.len()];
                (0..len).map(|at| byte_of(number, at)).collect()
            })
            .collect();
        while seen < 36 {
            let bytes = &all[sent.min(35) as usize];
            let len = bytes.len().min(65_536);
            if sent < 36 && sent % 3 == 2 {
                sent += u64::from(send(&mut pair.ends[0], sent, &bytes[..len]) == Post::Done);
            } else if sent < 36 {
                let (post, gone) = send_bulk(&mut pair.ends[0], sent, &bytes[begun..]);
                assert!(post == Post::Done || gone == 0);
                begun += gone;
                let open = pair.ends[0].link().open.is_some();
                if open {
                    assert_eq!(send(&mut pair.ends[0], 99, b"between"), Post::NoResource);
                    assert_eq!(send_bulk(&mut pair.ends[0], 99, b"between").1, 0);
                }
                if begun == bytes.len() {
                    assert!(!open);
                    (sent, begun) = (sent + 1, 0);
                }
            }
            let mut len = lens[seen as usize % lens.len()];
            if seen % 3 == 2 {
                len = len.min(65_536);
            }
            let end = &mut pair.ends[1];
            if let Some((header, left)) = end.find_bulk() {
                assert_eq!(header.key, seen);
                assert!(so_far.len() + left <= len);
                assert!(end.look().is_none() && !end.is_resting());
                let mut part = vec![0; left.min(room)];
                // SAFETY: `part` is writable for its length, which is passed.
                let taken = unsafe { end.stream(part.as_mut_ptr(), part.len()) };
                so_far.extend_from_slice(&part[..taken]);
                streamed += usize::from(taken > 0);
            } else if let Some((key, data)) = receive(end) {
                assert_eq!(key, seen);
                so_far.extend_from_slice(&data);
            }
            if so_far.len() == len {
                assert!((0..len).all(|at| so_far[at] == byte_of(seen, at)));
                so_far.clear();
                seen += 1;
            }
            pair.progress();
        }
        assert!(streamed > 0);
    }
}

#[test]
fn bulk__goes_with_the_message_that_was_held_for_it() {
    let mut pair = TcpPair::new(Settings::default());
    pair.ends[0].hold_next();
    assert_eq!(send(&mut pair.ends[0], 1, b"first"), Post::Done);
    assert!(!pair.ends[0].link().outbox.is_empty());
    assert_eq!(send_bulk(&mut pair.ends[0], 2, b"second"), (Post::Done, 6));
    assert!(pair.ends[0].link().outbox.is_empty());
    for wanted in [(1, b"first".to_vec()), (2, b"second".to_vec())] {
        pair.until("a message", |pair| pair.ends[1].look().is_some());
        assert_eq!(receive(&mut pair.ends[1]), Some(wanted));
    }
    assert_eq!(send(&mut pair.ends[0], 3, b"third"), Post::Done);
    assert!(pair.ends[0].link().outbox.is_empty());
}

#[test]
fn bulk__of_a_peer_that_dies_in_the_middle_is_an_end() {
    let mut pair = TcpPair::new(Settings::default());
    pair.limit_buffers(8 * 1024);
    let bytes = vec![1; 256 * 1024];
    let (post, gone) = send_bulk(&mut pair.ends[0], 1, &bytes);
    assert!(post == Post::Done && gone < bytes.len());
    let mut part = vec![0_u8; 5000];
    pair.until("its beginning", |pair| pair.ends[1].find_bulk().is_some());
    assert!(!pair.ends[1].peer_has_left());
    let TcpPair { ends, ifaces } = pair;
    let ([dead, mut end], [gone, mut iface]) = (ends, ifaces);
    drop((dead, gone));
    until(&mut [&mut iface], "the end", || {
        // SAFETY: `part` is writable for its length, which is passed.
        unsafe { end.stream(part.as_mut_ptr(), part.len()) };
        end.peer_has_left()
    });
    assert!(end.failure().is_some());
}

#[test]
fn both__that_call_at_once_end_with_one_connection() {
    for turns in 0..4 {
        let jobs = make_jobs(2);
        let mut ifaces = [0, 1].map(|rank| make_iface(jobs[rank], Settings::default()));
        let mut ends = [ifaces[0].endpoint(1), ifaces[1].endpoint(0)];
        ends[turns & 1].connect();
        (0..turns / 2).for_each(|_| _ = ifaces[turns & 1].progress());
        ends[1 - (turns & 1)].connect();
        let [low, high] = &mut ifaces;
        until(&mut [low, high], "both to be connected", || {
            ends.iter().all(|end| end.link().is_up())
        });
        for end in &mut ends {
            assert_eq!(send(end, 7, b"to you"), Post::Done);
        }
        for end in &mut ends {
            let mut seen = None;
            let [low, high] = &mut ifaces;
            until(&mut [low, high], "a message", || {
                seen = receive(end);
                seen.is_some()
            });
            assert_eq!(seen, Some((7, b"to you".to_vec())));
        }
        let connections = ifaces.iter().map(|iface| iface.counters().connections);
        assert_eq!(connections.sum::<u64>(), 2);
    }
}

#[test]
fn connect__waits_for_a_peer_that_has_not_said_where_it_is() {
    let jobs: Vec<&'static Job> =
        Job::in_process(2).unwrap().into_iter().map(|job| &*Box::leak(Box::new(job))).collect();
    let config = fastpath_base::config::Config::defaults();
    jobs[0].open_network(&config).unwrap();
    let mut first = make_iface(jobs[0], Settings::default());
    let mut end = first.endpoint(1);
    end.connect();
    (0..100).for_each(|_| _ = first.progress());
    assert_eq!(send(&mut end, 1, b"early"), Post::NoResource);
    assert!(!end.peer_has_left());
    jobs[1].open_network(&config).unwrap();
    let mut second = make_iface(jobs[1], Settings::default());
    until(&mut [&mut first, &mut second], "a connection", || end.link().is_up());
    assert_eq!(send(&mut end, 1, b"now"), Post::Done);
}

#[test]
fn peer__that_is_gone_before_it_was_called_has_left() {
    let jobs = make_jobs(2);
    let mut first = make_iface(jobs[0], Settings::default());
    let mut second = make_iface(jobs[1], Settings::default());
    second.tell_phase(RankPhase::Finalized);
    let mut end = first.endpoint(1);
    end.connect();
    until(&mut [&mut first], "it to be given up", || end.peer_has_left());
    let why = end.failure().unwrap();
    assert!(why.contains("rank 1 on") && why.contains("cannot be reached"), "{why}");
    assert_eq!(send(&mut end, 1, b"never"), Post::PeerGone);
}

#[test]
fn peer__that_dies_has_left_once_all_it_sent_is_taken() {
    let mut pair = TcpPair::new(Settings::default());
    assert_eq!(send(&mut pair.ends[1], 1, b"the last words"), Post::Done);
    let TcpPair { ends, ifaces } = pair;
    let ([mut end, dead], [mut iface, gone]) = (ends, ifaces);
    drop((dead, gone));
    // The peer has closed its connection, and its message has arrived.
    until(&mut [&mut iface], "the message", || end.look().is_some());
    assert!(!end.peer_has_left());
    assert_eq!(receive(&mut end).unwrap().1, b"the last words");
    until(&mut [&mut iface], "the end", || end.peer_has_left());
    assert!(end.failure().unwrap().contains("has ended without MPI_Finalize"));
    assert_eq!(send(&mut end, 2, b"never"), Post::PeerGone);
}

#[test]
fn peer__that_has_finalized_has_left_without_failure() {
    for state in [STATE_FINALIZED, STATE_DEAD] {
        let mut pair = TcpPair::new(Settings::default());
        assert_eq!(send(&mut pair.ends[1], 1, b"bye"), Post::Done);
        pair.until("it to arrive", |pair| pair.ends[1].is_drained());
        let job = pair.ifaces[1].core().borrow().domain.job;
        job.own_page().set_left(state);
        // Only the peer's page can show that the peer has ended, because the connection is still open.
        assert!(!pair.ends[0].peer_has_left());
        assert!(receive(&mut pair.ends[0]).is_some());
        assert!(pair.ends[0].peer_has_left());
        assert_eq!(send(&mut pair.ends[0], 2, b"never"), Post::PeerGone);
        assert_eq!(pair.ends[0].failure(), None);
    }
}

#[test]
fn spawned_peer__whose_place_is_another_ranks__has_left() {
    for is_dead in [false, true] {
        let jobs: &'static [Job] = Job::with_spawned(1, 1).unwrap().leak();
        jobs.iter().for_each(|job| _ = job.open_network(&Config::defaults()).unwrap());
        let make = |rank: usize| make_iface(&jobs[rank], Settings::default());
        let [mut first, mut second, other] = [make(0), make(1), make(0)];
        let mut ends = [first.endpoint(1), second.endpoint(0)];
        let unconnected = other.endpoint(1);
        ends[0].connect();
        until(&mut [&mut first, &mut second], "a connection", || {
            ends.iter().all(|end| end.link().is_up())
        });
        let segment = jobs[0].segment();
        match is_dead {
            true => segment.mark_dead(1),
            false => jobs[1].set_phase(RankPhase::Finalized),
        }
        let free = segment.reuse_places(1, |rank| rank == 1);
        let added = segment.add_ranks_at(1, &free, |_| None, |_, _| {});
        assert_eq!((&free[..], added.unwrap()), (&[1][..], 2));
        let [end, gone] = ends;
        drop((gone, second));
        until(&mut [&mut first], "the end of the connection", || !end.link().is_up());
        assert!(end.peer_has_left() && end.failure().is_none());
        assert!(other.has_left(1) && unconnected.peer_has_left());
        assert!(other.has_come(1, RankPhase::Finalized));
        assert!(!other.has_left(2));
    }
}

#[test]
fn phases__come_by_frames_where_memory_is_not_shared() {
    let jobs = make_jobs(2);
    for job in &jobs {
        let peer = job.rank_page(1 - job.rank()).unwrap();
        peer.elsewhere.store(1, Ordering::Relaxed);
    }
    let [mut first, mut second] = [0, 1].map(|rank| make_iface(jobs[rank], Settings::default()));
    second.tell_phase(RankPhase::Silent);
    // There is no connection, so the query makes this side dial.
    assert!(!first.has_come(1, RankPhase::Silent));
    let mut came = false;
    for _ in 0..ATTEMPTS {
        came = first.has_come(1, RankPhase::Silent);
        if came {
            break;
        }
        first.progress();
        second.progress();
    }
    assert!(came && !first.has_come(1, RankPhase::Settled));
}

#[test]
fn finalized__is_no_failure_where_memory_is_not_shared() {
    let jobs = make_jobs(2);
    for job in &jobs {
        let peer = job.rank_page(1 - job.rank()).unwrap();
        peer.elsewhere.store(1, Ordering::Relaxed);
    }
    let [mut first, mut second] = [0, 1].map(|rank| make_iface(jobs[rank], Settings::default()));
    let mut ends = [first.endpoint(1), second.endpoint(0)];
    ends[0].connect();
    until(&mut [&mut first, &mut second], "a connection", || {
        ends.iter().all(|end| end.link().is_up())
    });
    assert_eq!(send(&mut ends[1], 1, b"bye"), Post::Done);
    second.tell_phase(RankPhase::Finalized);
    until(&mut [&mut second], "it to be sent", || ends[1].is_drained());
    let [mut end, gone] = ends;
    drop((gone, second));
    until(&mut [&mut first], "the message", || end.look().is_some());
    assert!(!end.peer_has_left());
    assert!(receive(&mut end).is_some());
    until(&mut [&mut first], "the end", || end.peer_has_left());
    assert_eq!(end.failure(), None);
    assert!(first.has_come(1, RankPhase::Finalized));
}

#[test]
fn arm__wakes_for_what_comes_and_for_what_is_there() {
    let mut pair = TcpPair::new(Settings::default());
    let woken = Arc::new(AtomicBool::new(false));
    let wake = || {
        let woken = woken.clone();
        move || woken.store(true, Ordering::Relaxed)
    };
    let napping = pair.ifaces[0].arm(wake());
    assert!(napping.is_none_or(|nap| nap >= Duration::from_secs(1)));
    for _ in 0..2 {
        assert_eq!(send(&mut pair.ends[1], 1, b"up"), Post::Done);
        while !woken.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        woken.store(false, Ordering::Relaxed);
        pair.ifaces[0].arm(wake());
        while !woken.swap(false, Ordering::Relaxed) {
            std::thread::yield_now();
        }
        pair.until("the message", |pair| receive(&mut pair.ends[0]).is_some());
        pair.ifaces[0].arm(wake());
    }
}

#[test]
fn drained__is_what_a_peer_that_has_left_will_never_take() {
    let mut pair = TcpPair::new(Settings::default());
    pair.limit_buffers(16 * 1024);
    while send(&mut pair.ends[0], 1, &[7; 60_000]) == Post::Done {}
    assert!(!pair.ends[0].is_drained() && !pair.ifaces[0].may_leave());
    let job = pair.ifaces[1].core().borrow().domain.job;
    job.own_page().set_left(STATE_FINALIZED);
    assert!(pair.ends[0].is_drained() && pair.ifaces[0].may_leave());
    assert_eq!(send(&mut pair.ends[0], 1, b"never"), Post::PeerGone);
}

fn accept(iface: &mut TcpIface) -> Vec<u32> {
    let mut found = Vec::new();
    iface.accept(|peer| found.push(peer));
    found
}

#[test]
fn accept__tells_of_a_peer_once_until_it_is_retired_and_then_of_what_comes() {
    let mut pair = TcpPair::new(Settings::default());
    assert_eq!(accept(&mut pair.ifaces[0]), [1]);
    for retired in [false, true, true] {
        if retired {
            assert!(pair.ends[0].is_resting() && pair.ends[0].retire());
        }
        assert!(accept(&mut pair.ifaces[0]).is_empty());
        assert_eq!(send(&mut pair.ends[1], 1, b"something"), Post::Done);
        pair.until("a message", |pair| !pair.ends[0].is_resting());
        let wanted: &[u32] = if retired { &[1] } else { &[] };
        assert_eq!(accept(&mut pair.ifaces[0]), wanted);
        assert!(receive(&mut pair.ends[0]).is_some());
    }
    // `look` also reads from the socket, and may leave data behind.
    assert!(pair.ends[0].is_resting() && pair.ends[0].retire());
    for _ in 0..2 {
        assert_eq!(send(&mut pair.ends[1], 1, b"something"), Post::Done);
    }
    while !pair.ends[1].is_drained() {}
    while receive(&mut pair.ends[0]).is_none() {}
    assert_eq!(accept(&mut pair.ifaces[0]), [1]);
}

#[test]
fn owing__are_those_to_whom_something_is_under_way() {
    let mut pair = TcpPair::new(Settings::default());
    pair.until("the greeting", |pair| pair.ifaces[0].is_settled());
    let owing = |pair: &TcpPair| {
        let core = &mut *pair.ifaces[0].core().borrow_mut();
        core.check_silence();
        core.lists.borrow().owing.clone()
    };
    assert!(owing(&pair).is_empty());
    pair.limit_buffers(16 * 1024);
    while send(&mut pair.ends[0], 1, &[7; 60_000]) == Post::Done {}
    assert_eq!(owing(&pair), [1]);
    assert_eq!(owing(&pair), [1]);
    while !pair.ifaces[0].is_settled() {
        pair.progress();
        receive(&mut pair.ends[1]);
    }
    assert!(owing(&pair).is_empty());
}

fn dial(job: &Job) -> TcpStream {
    let card = job.network_card(job.rank()).unwrap();
    TcpStream::connect((card.addresses[0], card.port)).unwrap()
}

/// Whether the other side has closed the connection; discards received bytes.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 256];
    match stream.read(&mut bytes) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn strangers__are_closed_and_others_connect_all_the_same() {
    let jobs = make_jobs(2);
    let mut first = make_iface(jobs[0], Settings::default());
    let mut second = make_iface(jobs[1], Settings::default());
    let pass = |secret, job_id| Pass { job_id, secret };
    let right = pass(jobs[0].secret(), jobs[0].job_id());
    let wrong_secret = pass([7; 32], jobs[0].job_id());
    let wrong_job = pass(jobs[0].secret(), jobs[0].job_id() ^ 1);
    let hellos = [
        [0xff; HELLO].to_vec(),
        b"GET / HTTP/1.1\r\nHost: a-host-with-a-long-name.example.org\r\n\r\n\r\n\r\n".to_vec(),
        wrong_secret.hello(0, 1, draw_nonce().unwrap()).to_vec(),
        wrong_job.hello(0, 1, draw_nonce().unwrap()).to_vec(),
        // These hellos have the secret of the job, but are for another rank, or from an unknown rank.
        right.hello(1, 0, draw_nonce().unwrap()).to_vec(),
        right.hello(7, 1, draw_nonce().unwrap()).to_vec(),
    ];
    for hello in &hellos {
        let mut stranger = dial(jobs[1]);
        stranger.write_all(&hello[..hello.len().min(HELLO)]).unwrap();
        until(&mut [&mut second], "it to be closed", || is_closed(&mut stranger));
    }
    assert_eq!(second.counters().strangers, hellos.len() as u64);
    // Open many silent connections, and some that send garbage.
    let mut silent: Vec<TcpStream> = (0..200).map(|_| dial(jobs[1])).collect();
    silent[3].write_all(b"x").unwrap();
    let mut end = first.endpoint(1);
    end.connect();
    until(&mut [&mut first, &mut second], "a connection", || end.link().is_up());
    let closed = silent.iter_mut().filter_map(|s| is_closed(s).then_some(())).count();
    assert!(closed >= 200 - 64, "{closed} closed");
}

#[test]
fn stranger__that_says_nothing_is_closed_in_time() {
    let jobs = make_jobs(1);
    let settings = Settings { stranger_ns: 1_000_000, ..Settings::default() };
    let mut iface = make_iface(jobs[0], settings);
    let mut stranger = dial(jobs[0]);
    until(&mut [&mut iface], "it to be closed", || is_closed(&mut stranger));
}

#[test]
fn caller__that_replays_a_greeting_gets_no_further() {
    let jobs = make_jobs(2);
    let mut second = make_iface(jobs[1], Settings::default());
    let pass = Pass { job_id: jobs[0].job_id(), secret: jobs[0].secret() };
    let mut stranger = dial(jobs[1]);
    let hello = pass.hello(0, 1, draw_nonce().unwrap());
    stranger.write_all(&hello).unwrap();
    let mut welcome = [0; WELCOME];
    stranger.set_nonblocking(true).unwrap();
    let mut got = 0;
    until(&mut [&mut second], "the answer", || {
        got += stranger.read(&mut welcome[got..]).unwrap_or(0);
        got == WELCOME
    });
    // Without the secret, the stranger cannot send a valid confirmation.
    stranger.write_all(&[5; 100]).unwrap();
    until(&mut [&mut second], "it to be closed", || is_closed(&mut stranger));
    assert!(!second.endpoint(0).link().is_up());
    let mut first = make_iface(jobs[0], Settings::default());
    let mut end = first.endpoint(1);
    end.connect();
    until(&mut [&mut first, &mut second], "a connection", || end.link().is_up());
}

#[test]
fn garbage__after_the_greeting_is_a_failure_that_names_the_peer() {
    let mut pair = TcpPair::new(Settings::default());
    pair.ends[1].link().outbox.push_bytes(&[0xee; 100]);
    pair.ends[1].link().flush();
    pair.until("the failure", |pair| pair.ends[0].peer_has_left());
    let why = pair.ends[0].failure().unwrap();
    assert!(why.contains("rank 1") && why.contains("invalid message"), "{why}");
}

#[test]
fn address__of_somebody_else_is_passed_over() {
    let jobs = make_jobs(3);
    // Rank 1's published address is that of rank 2, which detects that the greeting is for rank 1.
    let card = jobs[0].network_card(2).unwrap();
    jobs[0].rank_page(1).unwrap().network.store(&card.encode());
    let mut first = make_iface(jobs[0], Settings::default());
    let mut third = make_iface(jobs[2], Settings::default());
    let mut end = first.endpoint(1);
    end.connect();
    until(&mut [&mut first, &mut third], "it to be given up", || end.peer_has_left());
    let why = end.failure().unwrap();
    assert!(why.contains("closed the connection"), "{why}");
}

#[test]
fn pair__meets_by_the_sixth_version_too() {
    let jobs = Job::in_process(2).unwrap();
    let jobs: Vec<&'static Job> = jobs.into_iter().map(|job| &*Box::leak(Box::new(job))).collect();
    let asked = ("FASTPATH_INTERFACES".into(), "::1".into());
    let config = fastpath_base::config::Config::from_pairs([asked]).unwrap();
    if let Err(why) = jobs[0].open_network(&config) {
        // This host does not have the requested address.
        assert!(why.contains("FASTPATH_INTERFACES=::1"), "{why}");
        return;
    }
    jobs[1].open_network(&config).unwrap();
    assert!(jobs[0].network_card(1).unwrap().addresses[0].is_ipv6());
    let [mut first, mut second] = [0, 1].map(|rank| make_iface(jobs[rank], Settings::default()));
    let mut end = first.endpoint(1);
    end.connect();
    until(&mut [&mut first, &mut second], "a connection", || end.link().is_up());
}
