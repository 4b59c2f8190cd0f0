#![allow(non_snake_case)]

use super::*;
use crate::request::{RequestKind, RequestPool};
use crate::tag::{ANY_TAG, Context};
use crate::unexpected::{Body, UnexpectedKind};
use proptest::prelude::*;

const PEERS: u32 = 3;
/// Tag of collective traffic, which no wildcard matches.
const INTERNAL_TAG: i32 = -9;

#[derive(Debug, Clone)]
enum MatchStep {
    /// Posts a receive; `from` is a peer, or `PEERS` for any source; `tag` 3 is the wildcard.
    Receive {
        from: u32,
        context: u32,
        tag: i32,
    },
    /// Takes back a posted receive.
    Unpost(usize),
    /// Removes an unexpected message.
    Discard(usize),
    Arrive {
        peer: u32,
        context: u32,
        tag: i32,
    },
}

fn step() -> impl Strategy<Value = MatchStep> {
    let receive = (0..=PEERS, 0_u32..2, 0_i32..5);
    let arrive = (0..PEERS, 0_u32..2, 0_i32..4);
    prop_oneof![
        10 => receive.prop_map(|(from, context, tag)| MatchStep::Receive { from, context, tag }),
        2 => any::<usize>().prop_map(MatchStep::Unpost),
        1 => any::<usize>().prop_map(MatchStep::Discard),
        10 => arrive.prop_map(|(peer, context, tag)| MatchStep::Arrive { peer, context, tag }),
    ]
}

/// Maps the number of a step to a tag. Tags of receives and messages overlap only in part, so some stay unmatched.
fn tag_of(number: i32) -> i32 {
    match number {
        3 => ANY_TAG,
        4 => INTERNAL_TAG,
        tag => tag,
    }
}

fn key(context: u32, source: u32) -> u64 {
    Context::from_leader(0, 4 + context).key(source)
}

/// Matcher under test, and a model of its queues: two plain lists.
struct ModelledMatcher {
    matcher: Matcher,
    _peers: Peers,
    pool: RequestPool,
    receives: Vec<(RequestId, MatchCriteria)>,
    messages: Vec<(EntryId, u32, u64, i32)>,
}

impl ModelledMatcher {
    fn new(polls_max: u32) -> Self {
        let peers = Peers::reserve(PEERS).expect("address space");
        // SAFETY: `ModelledMatcher` keeps `peers` for as long as the matcher.
        let mut matcher = unsafe { Matcher::new(&peers) };
        matcher.polls_max = polls_max;
        matcher.store.polls_max = polls_max;
        ModelledMatcher {
            matcher,
            _peers: peers,
            pool: RequestPool::new().expect("address space"),
            receives: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn post(&mut self, want: MatchCriteria) {
        let id = self.pool.allocate(RequestKind::Recv).expect("a request");
        let request = self.pool.get_mut(id);
        (request.peer, request.tag, request.key) = (want.peer, want.tag, want.key);
        // SAFETY: the request is valid and never moves in its pool.
        unsafe { self.matcher.post(self.pool.address(id)) };
        self.receives.push((id, want));
    }

    pub(crate) fn store(&mut self, peer: u32, key: u64, tag: i32) {
        let data = vec![tag as u8];
        let body = Body::Long(UnexpectedKind::Eager, data);
        let id = match self.messages.len() % 2 {
            0 => self.matcher.add_unexpected(peer, key, tag, body),
            _ => {
                // SAFETY: `to` has space for a short message.
                let fill = |to: *mut u8| unsafe { to.write(tag as u8) };
                self.matcher.add_unexpected_short((peer, key, tag), 1, fill);
                let newest = self.matcher.unexpected_of(peer).last();
                newest.expect("just added")
            }
        };
        self.messages.push((id, peer, key, tag));
    }

    fn remove(&mut self, index: usize) {
        let (id, _, _, tag) = self.messages.remove(index);
        assert_eq!(self.matcher.unexpected(id).data(), [tag as u8]);
        self.matcher.remove_unexpected(id);
        self.matcher.store.free(id);
    }

    fn receive(&mut self, want: MatchCriteria) {
        let takes = |&(_, peer, key, tag): &(EntryId, u32, u64, i32)| {
            (want.peer == ANY_PEER || want.peer == peer) && want.accepts(key, tag)
        };
        let expected = self.messages.iter().position(takes);
        let id = expected.map(|index| self.messages[index].0);
        assert_eq!(self.matcher.find_unexpected(&want), id);
        match expected {
            Some(index) => self.remove(index),
            None => self.post(want),
        }
    }

    fn arrive(&mut self, peer: u32, key: u64, tag: i32) {
        let is_taken_by = |(_, want): &(RequestId, MatchCriteria)| {
            (want.peer == ANY_PEER || want.peer == peer) && want.accepts(key, tag)
        };
        let expected = self.receives.iter().position(is_taken_by);
        let expected = expected.map(|index| self.receives.remove(index).0);
        let any = self.receives.iter().any(|(_, want)| want.peer == ANY_PEER);
        let is_any = expected.is_some_and(|id| self.pool.get(id).peer == ANY_PEER);
        match self.matcher.find_named(peer, key, tag) {
            // The fast path of an arrival takes these steps.
            Some(request) => {
                // SAFETY: the request is posted to this peer, and so is valid.
                let found = unsafe { (*request).id() };
                assert_eq!(Some(found), expected);
                // SAFETY: the request is posted to this peer.
                unsafe { self.matcher.unpost_named(peer, request) };
            }
            None => {
                assert!(any || is_any || expected.is_none());
                assert_eq!(self.matcher.match_arrival(peer, key, tag), expected);
            }
        }
        match expected {
            Some(id) => {
                assert!(!self.pool.get(id).is_posted());
                self.pool.free(id);
            }
            None => self.store(peer, key, tag),
        }
    }

    fn take_step(&mut self, step: MatchStep) {
        match step {
            MatchStep::Receive { from, context, tag } => self.receive(MatchCriteria {
                peer: if from == PEERS { ANY_PEER } else { from },
                tag: tag_of(tag),
                key: key(context, if from == PEERS { 0 } else { from }),
            }),
            MatchStep::Unpost(index) if !self.receives.is_empty() => {
                let (id, _) = self.receives.remove(index % self.receives.len());
                // SAFETY: the request is posted in this matcher.
                unsafe { self.matcher.unpost(self.pool.address(id)) };
                self.pool.free(id);
            }
            MatchStep::Discard(index) if !self.messages.is_empty() => {
                self.remove(index % self.messages.len());
            }
            MatchStep::Unpost(_) | MatchStep::Discard(_) => {}
            MatchStep::Arrive { peer, context, tag } => {
                // Only wildcards match messages with tag 3.
                let tag = if tag == 2 { INTERNAL_TAG } else { tag };
                self.arrive(peer, key(context, peer), tag);
            }
        }
    }

    fn check(&mut self) {
        let asks = |peer: u32| move |(_, want): &(RequestId, MatchCriteria)| want.peer == peer;
        for peer in 0..PEERS {
            let any = self.receives.iter().any(asks(ANY_PEER));
            let asked = any || self.receives.iter().any(asks(peer));
            let waits = self.messages.iter().any(|message| message.1 == peer);
            assert_eq!(self.matcher.has_no_receive(peer), !asked);
            assert_eq!(self.matcher.has_unexpected(peer), waits);
            assert_eq!(self.matcher.is_quiet(peer), !asked && !waits);
        }
        let posted = self.receives.len() as u64;
        assert_eq!(self.pool.posted(), posted);
        self.matcher.posted_most = 0;
        self.matcher.count_posted();
        assert_eq!(self.matcher.posted_most, posted);
        let stored = self.messages.len() as u64;
        assert_eq!(self.matcher.store.usage().0, stored);
        let arrived = self.matcher.store.all().map(|entry| (entry.peer, entry.key, entry.tag));
        assert!(arrived.eq(self.messages.iter().map(|m| (m.1, m.2, m.3))));
    }
}

/// Numbers of random programs and of their steps. They are smaller under miri, which interprets every step.
const CASES: u32 = if cfg!(miri) { 2 } else { 300 };
const STEPS: usize = if cfg!(miri) { 20 } else { 200 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// The matcher finds the same entries as two plain lists that are searched from the start. Posted receives get an
    /// index after `polls_max` comparisons.
    #[test]
    fn matching__is_as_in_two_lists(
        polls_max in 0_u32..4,
        steps in prop::collection::vec(step(), 0..STEPS),
    ) {
        let mut both = ModelledMatcher::new(polls_max);
        for step in steps {
            both.take_step(step);
            both.check();
        }
    }
}

const MANY: i32 = if cfg!(miri) { 60 } else { 10_000 };

fn want(tag: i32) -> MatchCriteria {
    MatchCriteria { peer: 1, tag, key: key(0, 1) }
}

/// Returns the number of receives with which one arrival is compared.
fn steps_of_arrival(both: &mut ModelledMatcher, tag: i32) -> usize {
    let before = both.matcher.steps;
    both.arrive(1, key(0, 1), tag);
    both.matcher.steps - before
}

/// Returns the number of messages with which one receive is compared.
fn steps_of_receive(both: &mut ModelledMatcher, want: MatchCriteria) -> usize {
    let before = both.matcher.store.steps.get();
    both.receive(want);
    both.matcher.store.steps.get() - before
}

#[test]
fn posted__of_ten_thousand_other_tags_cost_a_few_steps() {
    let mut both = ModelledMatcher::new(POLLS_MAX);
    (0..MANY).for_each(|tag| both.post(want(tag)));
    // Search the last tag, then tags from the middle on, then a tag that is no longer posted.
    let mut worst = steps_of_arrival(&mut both, MANY - 1);
    for tag in (0..MANY - 1).map(|i| (i + MANY / 2) % (MANY - 1)).step_by(7) {
        worst = worst.max(steps_of_arrival(&mut both, tag));
    }
    worst = worst.max(steps_of_arrival(&mut both, MANY - 1));
    assert!(worst <= POLLS_MAX as usize + 4, "{worst}");
}

#[test]
fn posted__of_one_tag_leave_an_index_one_after_the_other() {
    let mut both = ModelledMatcher::new(0);
    both.post(want(6));
    (0..MANY).for_each(|_| both.post(want(5)));
    assert_eq!(steps_of_arrival(&mut both, 5), 1);
    let worst = (1..MANY).map(|_| steps_of_arrival(&mut both, 5)).max();
    assert_eq!(worst, Some(0), "each begins where the one before ended");
    steps_of_arrival(&mut both, 6);
    assert_eq!(both.pool.posted(), 0);
    // The index of an empty list is reused.
    both.post(MatchCriteria { peer: 2, ..want(6) });
    (0..3).for_each(|_| both.post(MatchCriteria { peer: 2, ..want(5) }));
    both.arrive(2, key(0, 1), 5);
    assert_eq!(both.matcher.indexes.len(), 1);
}

#[test]
fn unexpected__of_ten_thousand_other_tags_cost_a_few_steps() {
    let mut both = ModelledMatcher::new(POLLS_MAX);
    (0..MANY).for_each(|tag| both.arrive(1, key(0, 1), tag));
    let order = (0..MANY).map(|i| (i + MANY / 2) % MANY).step_by(7);
    let worst = order.map(|tag| steps_of_receive(&mut both, want(tag))).max();
    assert!(worst <= Some(POLLS_MAX as usize + 4), "{worst:?}");
    let (messages, bytes) = both.matcher.store.usage();
    assert_eq!(messages, both.messages.len() as u64);
    assert!(bytes <= messages * (crate::unexpected::ENTRY_BYTES + 1));
}

/// Messages of another communicator, of other tags and of another source are stored first.
#[test]
fn unexpected__wildcards_cost_a_few_steps() {
    let mut both = ModelledMatcher::new(POLLS_MAX);
    (0..MANY).for_each(|tag| both.arrive(1, key(1, 1), tag));
    (0..MANY).for_each(|tag| both.arrive(0, key(0, 0), tag));
    (0..MANY).for_each(|tag| both.arrive(1, key(0, 1), MANY + tag));
    let any_source = |tag| MatchCriteria { peer: ANY_PEER, tag, key: key(0, 0) };
    // Try each form of receive while it has messages, and once more when no message is left.
    let mut worst = 0;
    for i in (0..MANY).step_by(11) {
        for asked in [
            any_source((i + MANY / 2) % (2 * MANY)),
            any_source(ANY_TAG),
            want(ANY_TAG),
            any_source(3 * MANY + i),
        ] {
            worst = worst.max(steps_of_receive(&mut both, asked));
        }
    }
    assert!(worst <= POLLS_MAX as usize + 4, "{worst}");
}

#[test]
fn unexpected__of_one_name_leave_their_indexes_in_order() {
    let mut both = ModelledMatcher::new(0);
    let names = [(0, 5), (1, 5), (1, 6)];
    for i in 0..MANY {
        let (peer, tag) = names[i as usize % names.len()];
        both.arrive(peer, key(0, peer), tag);
    }
    let of_any = MatchCriteria { peer: ANY_PEER, tag: ANY_TAG, key: key(0, 0) };
    // Both receives find the earliest message by one comparison. Removing the last message removes the indexes.
    for _ in 0..MANY / 2 {
        assert_eq!(steps_of_receive(&mut both, of_any), 1);
        if let Some(&(_, 1, _, _)) = both.messages.first() {
            assert_eq!(steps_of_receive(&mut both, want(ANY_TAG)), 1);
        }
    }
    while !both.messages.is_empty() {
        both.receive(of_any);
    }
    both.arrive(1, key(0, 1), 5);
    assert_eq!(steps_of_receive(&mut both, want(5)), 1);
}
