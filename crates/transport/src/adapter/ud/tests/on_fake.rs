//! Tests that need the fake adapter: lost, duplicated and delayed datagrams, and a stopped clock.

mod restarts;

use super::*;
use std::time::Duration;

#[test]
fn bad_wire__all_arrives_once_and_in_order() {
    let mut pair = UdPair::fake(Settings::default());
    fake::set_bad_network();
    exchange(&mut pair, 300);
    for iface in &pair.ifaces {
        let counters = iface.counters();
        let right = [counters.resent, counters.duplicates, counters.early];
        assert!(right.iter().all(|&count| count > 0), "{counters:?}");
        let wrong = [counters.garbage, counters.violations, counters.failures];
        assert_eq!(wrong, [0; 3], "{counters:?}");
    }
    let [one, two] = [0, 1].map(|me: usize| pair.ifaces[me].counters());
    assert_eq!((one.received, two.received), (two.sent, one.sent));
}

#[test]
fn bad_wire__that_gets_well_brings_all_news_and_gives_all_room_back() {
    let mut pair = UdPair::fake(Settings::default());
    fake::set_bad_network();
    exchange(&mut pair, 20);
    fake::set_conditions(fake::Conditions::default());
    pair.until("the last news", |pair| pair.ends[0].is_drained() && pair.ends[1].is_drained());
    for end in &mut pair.ends {
        assert!(end.has_arrived() && end.has_room(1, 32_768));
    }
}

#[test]
fn memory__that_cannot_be_locked_makes_it_slower_and_nothing_else() {
    for more in [0, 20_000, 100_000] {
        let mut pair =
            UdPair::fake(Settings { receives: 64, receives_each: 64, ..Settings::default() });
        fake::lock_no_more_than(more);
        exchange(&mut pair, 100);
        let mut rooms = 0;
        for messages in [1, 2, 3, 40] {
            if !pair.ends[0].has_room(messages, 8193) {
                continue;
            }
            rooms += 1;
            for number in 0..messages {
                assert_eq!(send(&mut pair.ends[0], number, 8193), Post::Done);
            }
            for number in 0..messages {
                pair.until("a message", |pair| take(&mut pair.ends[1]) == Some((number, 8193)));
            }
            pair.until("the last news", |pair| {
                pair.ends[0].is_drained() && pair.ends[1].is_drained()
            });
        }
        assert!(rooms > 0, "{more}");
        // Memory for more receive buffers is refused, so further peers share the existing ones.
        let before = pair.ifaces[1].counters().refused;
        let mut others = many(&pair);
        assert!(pair.ifaces[1].counters().refused > before, "{more}");
        for [tx, rx] in &mut others {
            assert_eq!(send(tx, 5, 900), Post::Done);
            pair.until("a message", |_| take(rx) == Some((5, 900)));
        }
        assert_eq!(pair.ifaces[0].counters().failures, 0);
    }
}

#[test]
fn memory__that_cannot_be_locked_stops_no_stream_one_way() {
    for (len, count) in [(8193, 20), (8, 100)] {
        let mut pair = UdPair::fake(Settings::default());
        fake::lock_no_more_than(0);
        let (mut sent, mut seen) = (0, 0);
        pair.until("all messages", |pair| {
            if sent < count && send(&mut pair.ends[0], sent, len) == Post::Done {
                sent += 1;
            }
            if let Some((number, _)) = take(&mut pair.ends[1]) {
                assert_eq!(number, seen);
                seen += 1;
            }
            pair.ends[1].return_credits();
            seen == count
        });
    }
}

#[test]
fn receive_buffers__that_run_out_are_counted_and_nothing_is_lost() {
    let mut pair = UdPair::fake(Settings { receives: 64, receives_each: 0, ..Settings::default() });
    let mut more = many(&pair);
    let mut sent = 0;
    for (link, ends) in more.iter_mut().enumerate() {
        while send(&mut ends[0], link as u32, 900) == Post::Done {
            sent += 1;
        }
    }
    assert_eq!(sent, 8 * 64);
    // The adapter delivers everything before the receiver's first poll.
    for _ in 0..100 {
        pair.ifaces[0].progress();
    }
    assert!(fake::losses().1 > 0, "the adapter had a buffer for each");
    // Take from the last connection first: packets of other connections must not block it.
    for (link, ends) in more.iter_mut().enumerate().rev() {
        for _ in 0..64 {
            pair.until("a message", |_| take(&mut ends[1]) == Some((link as u32, 900)));
        }
    }
    assert!(pair.ifaces[1].counters().out_of_buffer > 0);
    assert_eq!(pair.ifaces[1].counters().received, 8 * 64);
}

#[test]
fn peer__that_computes_is_asked_ever_less_and_answers_when_it_is_back() {
    let mut pair = UdPair::fake(Settings::default());
    assert_eq!(send(&mut pair.ends[0], 7, 8), Post::Done);
    // The second interface is not polled for 20 s.
    while fake::now_ns() < 20_000_000_000 {
        pair.ifaces[0].progress();
        let due = pair.ifaces[0].core().borrow().next_due_ns;
        fake::advance_to(due);
    }
    let resent = pair.ifaces[0].counters().resent;
    assert!((20..30).contains(&resent), "{resent} times");
    let mut seen = Vec::new();
    pair.until("the acknowledgement", |pair| {
        seen.extend(take(&mut pair.ends[1]));
        pair.ends[0].with(|link| link.sender.in_flight()) == 0
    });
    assert_eq!(seen, [(7, 8)]);
    assert_eq!(pair.ifaces[0].counters().resent, resent);
}

#[test]
fn loss__under_a_full_window_is_mended_without_waiting() {
    let mut pair = UdPair::fake(Settings { window: 4, ..Settings::default() });
    for number in 0..4 {
        let drop = if number == 0 { 1.0 } else { 0.0 };
        fake::set_conditions(fake::Conditions {
            faults: fake::Faults { drop, ..fake::Faults::default() },
            ..fake::Conditions::default()
        });
        assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done);
        for _ in 0..4 {
            pair.progress();
        }
    }
    // No time has passed, so only the acknowledgement shows which packets are missing.
    let counters = pair.ifaces[0].counters();
    assert_eq!((counters.sent, counters.resent), (4, 1));
    for number in 0..4 {
        assert_eq!(take(&mut pair.ends[1]), Some((number, 8)));
    }
}

#[test]
fn fuzz__peer_that_sends_anything_does_no_harm() {
    for seed in 0..20 {
        let mut pair = UdPair::fake(Settings::default());
        let mut random = Random::new(seed);
        let (to, qkey, token, buffers) = {
            let core = pair.ifaces[1].core().borrow();
            let token = core.links.get(0).unwrap().token;
            (core.pair.qpn(), core.qkey, token, core.receives.count())
        };
        let from = pair.ifaces[0].core().borrow().pair.qpn();
        let mut seq = token;
        for _ in 0..300 {
            let kinds = [
                DatagramKind::Whole,
                DatagramKind::First,
                DatagramKind::More,
                DatagramKind::More,
                DatagramKind::Ack,
            ];
            let head = DatagramHead {
                kind: kinds[random.below(5) as usize],
                link: 0,
                token,
                // Most packets have the next number, because only such packets are processed.
                seq: seq.wrapping_add(if random.chance(0.2) { random.below(70) as u32 } else { 0 }),
                ack: Ack { next: random.next_u64() as u32, held: random.next_u64() },
                total: [0, 100, 5000, 32_784, u32::MAX][random.below(5) as usize],
            };
            seq = seq.wrapping_add(random.chance(0.9) as u32);
            let mut bytes = head.encode().to_vec();
            bytes.extend((0..random.below(900)).map(|_| random.next_u64() as u8));
            fake::inject(from, to, qkey, &bytes);
            pair.ifaces[1].progress();
            if let Some(arrival) = pair.ends[1].look() {
                assert!(arrival.len() <= 32_768);
                pair.ends[1].take();
            }
        }
        // No receive buffer is lost.
        let core = pair.ifaces[1].core().borrow();
        let link = core.links.get(0).unwrap();
        let held = |kept: &link::ReorderedPacket| matches!(kept.body, link::Body::Slot(..)) as u32;
        let held: u32 = link.receiver.kept().map(held).sum();
        assert_eq!(core.receives.available() + held, buffers);
        assert!(held <= link.window);
    }
}

/// Cuts the wire beyond both ports.
fn lose_all() {
    fake::set_conditions(fake::Conditions {
        faults: fake::Faults { drop: 1.0, ..fake::Faults::default() },
        ..fake::Conditions::default()
    });
}

#[test]
fn peer__that_is_silent_for_too_long_is_given_up() {
    let mut pair = UdPair::fake(Settings::default());
    lose_all();
    assert_eq!(send(&mut pair.ends[0], 0, 20_000), Post::Done);
    let before = fake::now_ns();
    pair.until("the end", |pair| pair.ends[0].failure().is_some());
    assert_eq!(pair.ends[0].failure(), Some(Failure::NoAnswer));
    assert!(fake::now_ns() - before >= Settings::default().give_up_ns);
    let counters = pair.ifaces[0].counters();
    // Retransmissions come at growing intervals, but are many in total.
    assert!((100..100_000).contains(&counters.resent), "{counters:?}");
    assert_eq!(send(&mut pair.ends[0], 1, 8), Post::PeerGone);
    assert!(pair.ends[0].peer_has_left());
    assert!(pair.ends[0].has_arrived(), "nothing keeps the process");
    assert!(pair.ifaces[0].last_error().unwrap().contains("has not answered"));
}

/// Runs a connection to a peer that waits in the library, and that no packet reaches. `waits` makes the peer wait
/// (true) or compute (false) for a quarter of a second.
fn give_up_one_that_waits(mut waits: impl FnMut(&'static RankPage, bool)) {
    lose_all();
    let jobs: &'static [Job] = Job::in_process(1).unwrap().leak();
    let page = jobs[0].own_page();
    let pair = UdPair::on(&fake::open(), Settings::default()).unwrap();
    let mut near = UdIface::new(&fake::open(), None, Settings::default()).unwrap();
    near.use_clock(fake::now_ns);
    let mut end = near.endpoint(Some(&page.state)).unwrap();
    end.watch_polls(&page.polls);
    let mut far = pair.ifaces[1].endpoint(None).unwrap();
    assert!(connect(&mut end, &mut far));
    assert_eq!(send(&mut end, 0, 8), Post::Done);
    let mut pass = |seconds: u64, waiting: bool| {
        for _ in 0..4 * seconds {
            waits(page, waiting);
            (0..80).for_each(|_| _ = near.progress());
            fake::advance(250_000_000);
        }
    };
    // The peer alternately computes and waits. Then a day passes without a check, as if this process were stopped.
    pass(1000, false);
    pass(200, true);
    pass(3, false);
    pass(100, true);
    fake::advance(86_400_000_000_000);
    pass(100, true);
    assert_eq!(end.failure(), None);
    pass(110, true);
    assert_eq!(end.failure(), Some(Failure::NoAnswer));
}

#[test]
fn peer__that_sleeps_in_the_library_and_never_answers_is_given_up() {
    give_up_one_that_waits(|page, asleep| {
        let state = if asleep { STATE_SLEEPING } else { STATE_AWAKE };
        page.state.store(state, Ordering::Relaxed);
    });
}

#[test]
fn peer__that_looks_for_what_comes_and_never_answers_is_given_up() {
    let mut far = None;
    give_up_one_that_waits(move |page, spins| {
        let far = far.get_or_insert_with(|| {
            let far = UdIface::new(&fake::open(), None, Settings::default()).unwrap();
            far.tell_polls(&page.polls);
            far
        });
        let polls = if spins { 100 } else { 0 };
        (0..polls).for_each(|_| _ = far.progress());
    });
}

#[test]
fn peer__that_is_known_to_live_is_never_given_up_and_one_that_left_at_once() {
    fake::set_conditions(fake::Conditions::default());
    let context = fake::open();
    let state: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(STATE_AWAKE)));
    let pair = UdPair::on(&context, Settings::default()).unwrap();
    let mut near = UdIface::new(&context, None, Settings::default()).unwrap();
    near.core().borrow_mut().port.clock = fake::now_ns;
    let mut end = near.endpoint(Some(state)).unwrap();
    let mut far = pair.ifaces[1].endpoint(None).unwrap();
    assert!(connect(&mut end, &mut far));
    assert_eq!(send(&mut end, 0, 8), Post::Done);
    for _ in 0..5000 {
        near.progress();
        fake::advance(Settings::default().give_up_ns / 1000);
    }
    assert_eq!((end.failure(), end.peer_has_left()), (None, false));
    state.store(STATE_DEAD, Ordering::Relaxed);
    for _ in 0..2 {
        near.progress();
        fake::advance(1_000_000_000);
    }
    assert_eq!(end.failure(), Some(Failure::NoAnswer));
    assert_eq!(send(&mut end, 1, 8), Post::PeerGone);
    assert!(end.peer_has_left() && end.has_arrived());
}

#[test]
fn device__that_is_taken_out_makes_errors() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = UdPair::on(&context, Settings::default()).unwrap();
    assert_eq!(send(&mut pair.ends[0], 0, 8), Post::Done);
    fake::remove_device();
    assert_eq!(send(&mut pair.ends[0], 1, 8), Post::PeerGone);
    assert_eq!(send(&mut pair.ends[1], 1, 8), Post::PeerGone);
    assert!(pair.ends[0].peer_has_left() && pair.ends[1].has_arrived());
}

#[test]
fn receive_buffers__are_posted_again_in_batches() {
    let mut pair = UdPair::fake(Settings::default());
    fake::take_receive_posts();
    for number in 0..320 {
        pair.until("room", |pair| send(&mut pair.ends[0], number, 8) == Post::Done);
        pair.until("it", |pair| take(&mut pair.ends[1]) == Some((number, 8)));
    }
    // Buffers are posted in batches of 16. Acknowledgements, one for each quarter of the window, also take buffers.
    let (calls, acks) = (fake::take_receive_posts(), pair.ifaces[1].counters().acks);
    assert!((1..=(320 + acks) / 16 + 2).contains(&calls), "{calls}");
}

fn set_port(active: bool) {
    fake::set_conditions(fake::Conditions { active, ..fake::Conditions::default() });
}

#[test]
fn port__that_goes_down_and_up_again_loses_nothing() {
    let mut pair = UdPair::fake(Settings::default());
    let mut next = [0_u32; 2];
    for round in 0..40 {
        // The port is down for up to 4 s, with sends of both sides in flight.
        for number in round * 8..(round + 1) * 8 {
            for end in &mut pair.ends {
                assert_eq!(send(end, number, 100), Post::Done);
            }
            if number % 8 == 4 {
                set_port(false);
            }
        }
        for _ in 0..(round % 5) * 20 {
            pair.progress();
            fake::advance(50_000_000);
        }
        set_port(true);
        pair.until("all messages", |pair| {
            for (end, next) in pair.ends.iter_mut().zip(&mut next) {
                while let Some(seen) = take(end) {
                    assert_eq!(seen, (*next, 100));
                    *next += 1;
                }
            }
            next == [(round + 1) * 8; 2]
        });
    }
    pair.until("the last news", |pair| pair.ends.iter_mut().all(|end| end.is_drained()));
    for (iface, end) in pair.ifaces.iter().zip(&mut pair.ends) {
        let counters = iface.counters();
        assert!(counters.outages > 10, "{counters:?}");
        assert_eq!((counters.failures, counters.receive_errors), (0, 0));
        assert_eq!(counters.out_of_buffer, 0);
        assert!(end.has_room(1, 32_768));
        // No receive buffer is lost.
        let core = iface.core().borrow();
        assert_eq!(core.receives.available(), core.receives.count());
    }
}

#[test]
fn port__that_carries_nothing_between_two_outages_has_had_one() {
    let mut pair = UdPair::fake(Settings::default());
    assert_eq!(send(&mut pair.ends[0], 0, 8), Post::Done);
    // The port is up at each check, but down during every send.
    for _ in 0..2000 {
        set_port(false);
        (0..200).for_each(|_| _ = pair.ifaces[0].progress());
        set_port(true);
        fake::advance(20_000_000);
        (0..200).for_each(|_| _ = pair.ifaces[0].progress());
    }
    assert!(pair.ends[0].failure().is_some());
    // Outages between which messages arrive are several short outages, not one permanent outage.
    let mut pair = UdPair::fake(Settings::default());
    for number in 0..20 {
        assert_eq!(send(&mut pair.ends[0], number, 8), Post::Done);
        set_port(false);
        pair.progress();
        set_port(true);
        fake::advance(20_000_000_000);
        pair.until("it", |pair| take(&mut pair.ends[1]) == Some((number, 8)));
    }
    assert_eq!(pair.ends[0].failure(), None);
}

#[test]
fn port__that_stays_down_ends_in_errors_for_senders_and_for_those_that_wait() {
    let mut pair = UdPair::fake(Settings::default());
    set_port(false);
    assert_eq!(send(&mut pair.ends[0], 0, 8), Post::Done);
    let before = fake::now_ns();
    // The second end only sleeps.
    while pair.ends.iter().any(|end| end.failure().is_none()) {
        for iface in &mut pair.ifaces {
            assert!(iface.arm(|| ()) <= Duration::from_millis(20));
            (0..200).for_each(|_| _ = iface.progress());
        }
        fake::advance(20_000_000);
    }
    let lasted = fake::now_ns() - before;
    assert!((10_000_000_000..11_000_000_000).contains(&lasted), "{lasted}");
    for (iface, end) in pair.ifaces.iter_mut().zip(&mut pair.ends) {
        assert_eq!(send(end, 1, 8), Post::PeerGone);
        assert!(end.peer_has_left() && end.has_arrived());
        let said = iface.last_error().unwrap();
        assert!(said.contains("fake0 port 1 has been down and unusable for 10 s"), "{said}");
        // After a permanent outage there is no restart attempt for which the rank would have to wake.
        assert!(iface.arm(|| ()) > Duration::from_millis(20));
    }
}

#[test]
fn event__that_says_little_costs_no_question() {
    let mut pair = UdPair::fake(Settings::default());
    let mut asks = |event: i32| {
        fault::take_seen();
        fake::report(event);
        pair.ifaces[0].arm(|| ());
        fault::take_seen().contains(&VerbsCall::QueryPort)
    };
    assert!(!fake::QUIET_EVENTS.into_iter().any(&mut asks));
    // Event 10 reports that the port is down.
    assert!(asks(10));
}
