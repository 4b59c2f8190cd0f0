#![allow(non_snake_case)]

use super::*;
use fastpath_base::random::Random;
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    window: 8,
    first_timeout_ns: 1000,
    min_timeout_ns: 100,
    max_timeout_ns: 50_000,
    rest_timeout_ns: 500_000,
};

struct PacketWire<P> {
    packets: Vec<(u64, P)>,
}

impl<P: Clone> PacketWire<P> {
    fn send(&mut self, now: u64, packet: P, random: &mut Random, drop: f64, double: f64) {
        let copies = if random.chance(drop) { 0 } else { 1 + random.chance(double) as u32 };
        for _ in 0..copies {
            self.packets.push((now + random.below(500), packet.clone()));
        }
    }

    fn arrived(&mut self, now: u64, random: &mut Random) -> Vec<P> {
        let mut out = Vec::new();
        while let Some(index) = self.packets.iter().position(|(at, _)| *at <= now) {
            let packet = self.packets.swap_remove(index).1;
            let at = random.below(out.len() as u64 + 1) as usize;
            out.insert(at, packet);
        }
        out
    }
}

struct RunResult {
    taken: Vec<u32>,
    ended_ns: u64,
    resends: u64,
}

/// Sends `count` numbered messages through a lossy wire, and takes them with probability `take` at each step.
fn run(
    seed: u64, settings: Settings, count: u32, first: u32, [drop, double, take]: [f64; 3],
) -> RunResult {
    let mut random = Random::new(seed);
    let mut sender = Sender::new(settings, first);
    let mut receiver = Receiver::new(settings.window, first);
    let (mut data, mut acks) =
        (PacketWire { packets: Vec::new() }, PacketWire { packets: Vec::new() });
    let (mut sent, mut taken, mut now) = (0, Vec::new(), 0);
    while (taken.len() as u32) < count || sender.in_flight() > 0 {
        now += 1 + random.below(200);
        assert!(now < 20_000_000_000, "{} of {count} taken after 20 s", taken.len());
        if sent < count
            && let Ok(seq) = sender.push(now, sent)
        {
            data.send(now, (seq, sent), &mut random, drop, double);
            sent += 1;
        }
        while let Some((seq, &message)) = sender.resend(now) {
            data.send(now, (seq, message), &mut random, drop, double);
        }
        for (seq, message) in data.arrived(now, &mut random) {
            assert_ne!(receiver.accept(seq, message), ArrivalOutcome::OutOfWindow);
        }
        if random.chance(take)
            && let Some(message) = receiver.take()
        {
            taken.push(message);
        }
        if receiver.owes_ack() {
            acks.send(now, receiver.ack(), &mut random, drop, double);
        }
        for ack in acks.arrived(now, &mut random) {
            sender.acknowledge(now, ack);
        }
        assert!(sender.in_flight() as u32 <= settings.window);
        assert_eq!(sender.deadline_ns().is_some(), sender.in_flight() > 0);
    }
    RunResult { taken, ended_ns: now, resends: sender.resends() }
}

/// Messages over a random wire. Fewer under miri, which interprets every step.
const MESSAGES: u32 = if cfg!(miri) { 4 } else { 100 };
const RANDOM_SETTINGS: Settings = match cfg!(miri) {
    true => Settings { max_timeout_ns: 2_000, rest_timeout_ns: 5_000, ..SETTINGS },
    false => SETTINGS,
};

proptest! {
    #[test]
    fn pair__all_arrives_once_and_in_order(
        seed: u64,
        first in prop_oneof![Just(0), Just(u32::MAX - 5), any::<u32>()],
        window in 1_u32..100,
        drop in 0.0..0.6,
        double in 0.0..0.5,
        take in 0.05..1.0,
    ) {
        let settings = Settings { window, ..RANDOM_SETTINGS };
        let outcome = run(seed, settings, MESSAGES, first, [drop, double, take]);
        prop_assert_eq!(outcome.taken, (0..MESSAGES).collect::<Vec<_>>());
    }

    #[test]
    fn sender__survives_any_ack(first: u32, acks in prop::collection::vec((any::<u32>(), any::<u64>()), 0..40)) {
        let mut sender = Sender::new(SETTINGS, first);
        for (index, (next, held)) in acks.into_iter().enumerate() {
            let _ = sender.push(index as u64, ());
            let before = (sender.in_flight(), sender.next_seq());
            // Half of the acknowledgements are plausible.
            let next = if index % 2 == 0 { first.wrapping_add(next % 20) } else { next };
            sender.acknowledge(index as u64, Ack { next, held });
            prop_assert!(sender.in_flight() <= before.0);
            prop_assert_eq!(sender.next_seq(), before.1);
            sender.resend(index as u64);
        }
    }

    #[test]
    fn receiver__keeps_no_more_than_its_window(first: u32, seqs in prop::collection::vec(any::<u32>(), 0..200)) {
        let mut receiver = Receiver::new(8, first);
        for (index, seq) in seqs.into_iter().enumerate() {
            let seq = if index % 2 == 0 { first.wrapping_add(seq % 16) } else { seq };
            receiver.accept(seq, seq);
            prop_assert!(receiver.ack().held < 1 << 8);
        }
        let mut want = first;
        while let Some(seq) = receiver.take() {
            prop_assert_eq!(seq, want);
            want = want.wrapping_add(1);
        }
    }
}

#[test]
fn pair__a_good_wire_needs_no_resend() {
    let outcome = run(
        7,
        Settings { first_timeout_ns: 10_000, min_timeout_ns: 5000, ..SETTINGS },
        200,
        0,
        [0.0, 0.0, 1.0],
    );
    assert_eq!(outcome.resends, 0);
}

#[test]
fn pair__a_lost_message_is_mended_before_its_timeout() {
    let settings = Settings {
        first_timeout_ns: 1_000_000,
        min_timeout_ns: 1_000_000,
        max_timeout_ns: 1_000_000,
        rest_timeout_ns: 1_000_000,
        ..SETTINGS
    };
    let (mut sender, mut receiver) = (Sender::new(settings, 0), Receiver::new(8, 0));
    for message in 0..5 {
        let seq = sender.push(message, message).unwrap();
        if seq != 0 {
            receiver.accept(seq, message);
            sender.acknowledge(message, receiver.ack());
        }
    }
    assert_eq!(sender.resend(10), Some((0, &0)));
    assert_eq!(sender.resend(10), None);
    receiver.accept(0, 0);
    assert_eq!(std::iter::from_fn(|| receiver.take()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    sender.acknowledge(11, receiver.ack());
    assert_eq!((sender.in_flight(), sender.deadline_ns()), (0, None));
}

#[test]
fn push__full_window_gives_the_message_back_and_changes_nothing() {
    let mut sender = Sender::new(Settings { window: 2, ..SETTINGS }, 0);
    assert_eq!((sender.push(0, 'a'), sender.push(0, 'b')), (Ok(0), Ok(1)));
    let before = (sender.in_flight(), sender.next_seq(), sender.deadline_ns());
    assert_eq!(sender.push(5, 'c'), Err('c'));
    assert_eq!((sender.in_flight(), sender.next_seq(), sender.deadline_ns()), before);
}

#[test]
fn sender__asks_again_when_the_news_of_a_taken_window_was_lost() {
    let mut sender = Sender::new(Settings { window: 1, ..SETTINGS }, 0);
    let mut receiver = Receiver::new(1, 0);
    let seq = sender.push(0, 'a').unwrap();
    receiver.accept(seq, 'a');
    sender.acknowledge(1, receiver.ack()); // arrived, not taken
    assert!(!sender.has_room());
    receiver.take();
    let _lost = receiver.ack();
    let due = sender.deadline_ns().unwrap();
    assert_eq!(sender.resend(due - 1), None);
    let (seq, _) = sender.resend(due).unwrap();
    assert_eq!(receiver.accept(seq, 'a'), ArrivalOutcome::Duplicate);
    assert!(receiver.owes_ack());
    sender.acknowledge(due, receiver.ack());
    assert!(sender.has_room());
}

#[test]
fn pair__slow_receiver_gets_few_resends() {
    // Each of the 200 messages is taken after about fifty steps. Mostly the sender waits, without resends.
    let outcome = run(3, SETTINGS, 200, 0, [0.0, 0.0, 0.02]);
    assert!(outcome.ended_ns > 500_000);
    assert!(outcome.resends < 100, "{}", outcome.resends);
}

/// Retransmits `times` times, each when due. Returns the intervals, and the time of the last retransmission.
fn resend_alone(sender: &mut Sender<char>, times: u32) -> (Vec<u64>, u64) {
    let mut now = 0;
    let distances = (0..times).map(|_| {
        let due = sender.deadline_ns().unwrap();
        assert!(sender.resend(due).is_some());
        due - std::mem::replace(&mut now, due)
    });
    (distances.collect(), now)
}

#[test]
fn sender__rests_while_nothing_is_heard_and_hurries_when_the_receiver_is_back() {
    let mut sender = Sender::new(SETTINGS, 0);
    sender.push(0, 'a').unwrap();
    let (distances, now) = resend_alone(&mut sender, 12);
    assert_eq!(distances[..3], [1000, 2000, 4000]);
    assert_eq!(distances[9..], [500_000; 3]);
    // The receiver acknowledges that the message is missing.
    assert!(sender.acknowledge(now + 5, Receiver::<char>::new(8, 0).ack()));
    assert_eq!(sender.deadline_ns(), Some(now + 5 + 50_000));
    assert!(!sender.acknowledge(now + 6, Receiver::<char>::new(8, 0).ack()));
}

#[test]
fn sender__asks_less_and_less_after_what_the_receiver_holds_and_does_not_take() {
    let mut sender = Sender::new(SETTINGS, 0);
    sender.push(0, 'a').unwrap();
    sender.acknowledge(0, Ack { next: 0, held: 1 });
    let (distances, _) = resend_alone(&mut sender, 6);
    assert_eq!(distances, [50_000, 100_000, 200_000, 400_000, 500_000, 500_000]);
}
