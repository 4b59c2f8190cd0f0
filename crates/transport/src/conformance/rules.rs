//! Rules of the contract.

use super::*;
use crate::verbs::is_long;
use proptest::prelude::*;
use std::collections::VecDeque;

const STARTS: [Start; 5] = [
    Start { messages: 0, bytes: 0 },
    Start { messages: u32::MAX - 300, bytes: u32::MAX - 40_000 },
    Start { messages: u32::MAX, bytes: 0u32.wrapping_sub(64) },
    Start { messages: (1 << 24) - 100, bytes: (1 << 31) - 4096 },
    Start { messages: 255, bytes: (1 << 16) - 128 },
];

/// Whether a device is under test instead of the fake adapter. If so, rules run fewer cases, because a device is
/// slower.
fn is_real() -> bool {
    std::env::var_os("FASTPATH_TEST_DEVICE").is_some()
}

fn starts() -> &'static [Start] {
    match (is_real(), is_long()) {
        (true, false) => &STARTS[1..2],
        (true, true) => &STARTS[..2],
        (false, _) => &STARTS,
    }
}

fn sizes(max: usize) -> Vec<usize> {
    let near = |n: usize| [n.saturating_sub(1), n, n + 1];
    let mut sizes: Vec<usize> = (0..=160).collect();
    sizes.extend((8..=20).flat_map(|bits| near(1 << bits)));
    sizes.extend(near(max));
    sizes.retain(|&size| size <= max);
    sizes.sort();
    sizes.dedup();
    sizes
}

fn ways<R: Rig>(rig: &mut R) -> [(SendForm, usize); 2] {
    let capabilities = rig.tx().capabilities();
    [(SendForm::Short, capabilities.short), (SendForm::Bcopy, capabilities.bcopy)]
}

fn post_surely<R: Rig>(rig: &mut R, way: SendForm, sent: &SentMessage) {
    for _ in 0..1000 {
        if post(rig, way, sent) {
            return;
        }
        rig.return_credits();
    }
    panic!("never room for {} bytes", sent.data.len());
}

fn take_next<R: Rig>(rig: &mut R, expected: &SentMessage) {
    rig.settle();
    let seen = look(rig);
    assert!(
        seen.as_ref() == Some(expected),
        "expected {:?}, saw {:?}",
        expected.header,
        seen.map(|s| s.header)
    );
    rig.rx().take();
}

pub(crate) fn capabilities_are_consistent<R: Rig>() {
    let mut rig = R::new(Start::default());
    let capabilities = rig.tx().capabilities();
    assert_eq!(rig.rx().capabilities(), capabilities);
    assert!(!capabilities.name.is_empty());
    assert!(capabilities.short >= 32, "control messages must fit");
    assert!(capabilities.bcopy >= capabilities.short);
    assert!(capabilities.reliable && capabilities.directed);
}

pub(crate) fn all_sizes_arrive<R: Rig>() {
    for &start in starts() {
        let mut rig = R::new(start);
        let mut number = 0;
        for (way, max) in ways(&mut rig) {
            for len in sizes(max) {
                number += 1;
                let sent = SentMessage::numbered(number, len);
                post_surely(&mut rig, way, &sent);
                take_next(&mut rig, &sent);
            }
        }
        assert_eq!(look(&mut rig), None);
        let extreme = Header::new(u8::MAX, u32::MAX, u64::MAX);
        for header in [extreme, Header::default()] {
            let sent = SentMessage { header, data: vec![0xff; 48] };
            post_surely(&mut rig, SendForm::Bcopy, &sent);
            take_next(&mut rig, &sent);
        }
    }
}

pub(crate) fn look_changes_nothing<R: Rig>() {
    for &start in starts() {
        let mut rig = R::new(start);
        assert_eq!(look(&mut rig), None);
        let sent: Vec<SentMessage> = [0, 8, 48, 49, 5000]
            .iter()
            .enumerate()
            .map(|(i, &len)| SentMessage::numbered(i as u32, len))
            .collect();
        sent.iter().for_each(|sent| post_surely(&mut rig, SendForm::Bcopy, sent));
        for expected in &sent {
            rig.settle();
            let before = rig.observe();
            let first = rig.rx().look().map(|arrival| (arrival.data() as usize, arrival.len()));
            for _ in 0..100 {
                assert_eq!(look(&mut rig).as_ref(), Some(expected));
                let again = rig.rx().look().map(|arrival| (arrival.data() as usize, arrival.len()));
                assert_eq!(again, first, "the payload moved");
            }
            assert!(rig.observe() == before, "looking left a trace");
            rig.rx().take();
        }
        assert_eq!(look(&mut rig), None);
    }
}

pub(crate) fn refusal_leaves_no_trace<R: Rig>() {
    if !R::LIMITED {
        return; // posts are never refused; `random_programs` would detect a refusal
    }
    for &start in starts() {
        for (way, len) in [
            (SendForm::Short, 8),
            (SendForm::Bcopy, 48),
            (SendForm::Bcopy, 49),
            (SendForm::Bcopy, 3000),
            (SendForm::Bcopy, 32_768),
        ] {
            let mut rig = R::new(start);
            let len = len.min(rig.tx().capabilities().bcopy);
            let mut number = 0;
            while post(&mut rig, way, &SentMessage::numbered(number, len)) {
                number += 1;
                assert!(number < 100_000, "room without end");
            }
            // Repeat the same posts on a new rig: the post after them must be refused.
            let mut rig = R::new(start);
            let mut sent: VecDeque<SentMessage> =
                (0..number).map(|number| SentMessage::numbered(number, len)).collect();
            sent.iter().for_each(|message| assert!(post(&mut rig, way, message)));
            let before = rig.observe();
            assert!(!post(&mut rig, way, &SentMessage::numbered(number, len)));
            assert!(rig.observe() == before, "refusing {len} bytes left a trace");
            // Posts are refused again, both of this form and of the longest bcopy message.
            for _ in 0..10 {
                for (way, len) in
                    [(way, len), (SendForm::Bcopy, 32_768.min(rig.tx().capabilities().bcopy))]
                {
                    if post(&mut rig, way, &SentMessage::numbered(u32::MAX, len)) {
                        panic!("there was no room a moment ago");
                    }
                }
            }
            assert!(rig.observe() == before, "refusing again left a trace");
            // Earlier messages are unaffected. Room returns after some messages, at the latest after all messages, have
            // been taken.
            let last = SentMessage::numbered(number, len);
            loop {
                take_next(&mut rig, &sent.pop_front().expect("no room after all was taken"));
                rig.return_credits();
                if post(&mut rig, way, &last) {
                    break;
                }
            }
            sent.push_back(last);
            sent.iter().for_each(|message| take_next(&mut rig, message));
            assert_eq!(look(&mut rig), None);
        }
    }
}

pub(crate) fn credits_come_back<R: Rig>() {
    if !R::LIMITED {
        return;
    }
    for &start in starts() {
        for len in [8, 1000, 20_000] {
            let mut rig = R::new(start);
            let mut fill = || {
                let mut count = 0;
                while post(&mut rig, SendForm::Bcopy, &SentMessage::numbered(count, len)) {
                    count += 1;
                }
                // The receiver takes all messages, and may thereby return credits. Then the rig returns all other
                // credits.
                for number in 0..count {
                    take_next(&mut rig, &SentMessage::numbered(number, len));
                }
                assert_eq!(look(&mut rig), None);
                rig.return_credits();
                rig.settle();
                count
            };
            let first = fill();
            assert!(first >= 1, "room for nothing of {len} bytes");
            let later: Vec<u32> = (0..8).map(|_| fill()).collect();
            // Room may grow. It shrinks by at most one message: the end of a data area may be too short for a payload.
            assert!(
                later.iter().all(|&count| count + 1 >= first),
                "{len} bytes: {first}, then {later:?}"
            );
        }
    }
}

#[derive(Debug, Clone)]
enum ProgramStep {
    Post(SendForm, usize),
    Take,
    Look,
    Return,
}

fn program() -> impl Strategy<Value = (usize, Vec<ProgramStep>)> {
    let len = prop_oneof![0_usize..60, Just(48), Just(49), 60_usize..3000, Just(32 * 1024)];
    let step = prop_oneof![
        6 => (prop::bool::ANY, len)
            .prop_map(|(short, len)| {
                ProgramStep::Post(if short { SendForm::Short } else { SendForm::Bcopy }, len)
            }),
        4 => Just(ProgramStep::Take),
        1 => Just(ProgramStep::Look),
        1 => Just(ProgramStep::Return),
    ];
    (0..STARTS.len(), prop::collection::vec(step, 0..400))
}

pub(crate) fn random_programs<R: Rig>() {
    let config = ProptestConfig {
        cases: match (is_real(), is_long()) {
            (true, false) => 3,
            (true, true) => 16,
            (false, _) => 64,
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |((start, steps) in program())| {
        let mut rig = R::new(STARTS[start]);
        let mut model: VecDeque<SentMessage> = VecDeque::new();
        let mut number = 0;
        for step in steps {
            match step {
                ProgramStep::Post(way, len) => {
                    let capabilities = rig.tx().capabilities();
                    let max = if way == SendForm::Short { capabilities.short } else {
                        capabilities.bcopy };
                    let message = SentMessage::numbered(number, len.min(max));
                    let before = rig.observe();
                    if post(&mut rig, way, &message) {
                        model.push_back(message);
                        number += 1;
                    } else {
                        prop_assert!(R::LIMITED, "refused without a limit");
                        prop_assert!(number > 0, "an empty pair refused the first message");
                        prop_assert!(rig.observe() == before, "refusal left a trace");
                    }
                }
                ProgramStep::Look => {
                    rig.settle();
                    prop_assert_eq!(look(&mut rig), model.front().cloned());
                }
                ProgramStep::Take => {
                    if let Some(expected) = model.pop_front() {
                        take_next(&mut rig, &expected);
                    }
                }
                ProgramStep::Return => rig.return_credits(),
            }
        }
        while let Some(expected) = model.pop_front() {
            take_next(&mut rig, &expected);
        }
        prop_assert_eq!(look(&mut rig), None);
    });
}
