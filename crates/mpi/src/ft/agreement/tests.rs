//! Agreements in virtual time: members that fail at any step, messages and failure reports that take any time.

#![allow(non_snake_case)]

use super::*;
use crate::ft::history::{AgreementEnvelope, AgreementHistory};
use fastpath_base::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of members whose contribution can be read from the flag: each clears a bit of its own.
const TRACKED: usize = 64;

/// How members fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Adversary {
    /// At random times.
    Clock,
    /// While sending, with a random number of the messages sent.
    Sending,
    /// While sending a decision.
    Deciding,
    /// Right after returning.
    Returning,
    /// The current root, while it sends a decision or a request.
    Roots,
}

/// RunConditions of one run.
#[derive(Debug, Clone)]
struct RunConditions {
    members: usize,
    guarantee: Guarantee,
    /// Number of agreements that each member starts.
    agreements: u64,
    /// Number of agreements that a member starts before it returns from the first of them.
    overlap: u64,
    adversary: Adversary,
    /// Largest number of members that fail.
    failures: usize,
    /// Probability that a member fails when its adversary may let it fail.
    probability: f64,
    /// Members that have failed before the start, which all others know.
    initially_failed: FailedSet,
    message_delay: u64,
    detection_delay: u64,
    start_delay: u64,
    /// Whether messages of a failed member that are on their way may be lost.
    loses_messages: bool,
    /// Whether each member has acknowledged all failures that it knows.
    acknowledges: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Occurrence {
    Start(usize),
    Fail(usize),
    Detect { failed: usize, observer: usize },
    Arrive { from: usize, to: usize, number: u64, sequence: u64, bytes: Vec<u8> },
}

struct Member {
    history: AgreementHistory,
    is_alive: bool,
    detected: FailedSet,
    /// What the member brought into each agreement that it started: flag and acknowledged failures.
    contributions: Vec<(i64, FailedSet)>,
    /// Decisions that it returned, by agreement.
    decisions: BTreeMap<u64, Decision>,
}

/// State of the messages from one member to another.
#[derive(Default, Clone)]
struct Channel {
    sent: u64,
    arrived: u64,
    last_arrival: u64,
    /// Messages from this number on are lost.
    lost_from: Option<u64>,
}

struct Simulation {
    conditions: RunConditions,
    random: Random,
    now: u64,
    /// Occurrences by time. The number keeps the order of insertion.
    queue: BinaryHeap<Reverse<(u64, u64, Occurrence)>>,
    inserted: u64,
    members: Vec<Member>,
    channels: Vec<Channel>,
    /// Members that clear a bit of the flag, by bit.
    tracked: Vec<usize>,
    messages: usize,
    most_kept: usize,
}

impl Simulation {
    fn new(conditions: RunConditions, seed: u64) -> Self {
        let count = conditions.members;
        let mut random = Random::new(seed);
        let mut tracked: Vec<_> = (0..count).collect();
        for i in 0..count {
            tracked.swap(i, i + random.below((count - i) as u64) as usize);
        }
        tracked.truncate(TRACKED);
        let members = (0..count)
            .map(|me| Member {
                history: AgreementHistory::new(count, me, conditions.guarantee),
                is_alive: true,
                detected: FailedSet::new(),
                contributions: Vec::new(),
                decisions: BTreeMap::new(),
            })
            .collect();
        let mut simulation = Simulation {
            conditions,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            inserted: 0,
            members,
            channels: vec![Channel::default(); count * count],
            tracked,
            messages: 0,
            most_kept: 0,
        };
        simulation.prepare();
        simulation
    }

    fn prepare(&mut self) {
        let RunConditions { members, adversary, failures, start_delay, message_delay, .. } =
            self.conditions;
        let victims = self.conditions.initially_failed.clone();
        for me in 0..members {
            if victims.contains(me) {
                self.members[me].is_alive = false;
                continue;
            }
            for victim in victims.iter() {
                self.members[me].detected.insert(victim);
                self.members[me].history.report_failed(victim, &mut Vec::new());
            }
            for _ in 0..self.conditions.overlap.min(self.conditions.agreements) {
                let delay = self.draw_delay(start_delay);
                self.insert(delay, Occurrence::Start(me));
            }
        }
        if adversary == Adversary::Clock {
            for _ in 0..failures {
                let victim = self.random.below(members as u64) as usize;
                let time = self.random.below(40 * start_delay.max(message_delay));
                self.insert(time, Occurrence::Fail(victim));
            }
        }
    }

    fn insert(&mut self, delay: u64, occurrence: Occurrence) {
        self.insert_at(self.now + delay, occurrence);
    }

    fn insert_at(&mut self, time: u64, occurrence: Occurrence) {
        self.inserted += 1;
        self.queue.push(Reverse((time, self.inserted, occurrence)));
    }

    /// Draws a delay: mostly short, sometimes as long as many others together.
    fn draw_delay(&mut self, scale: u64) -> u64 {
        let factor = if self.random.chance(0.1) { 20 } else { 1 };
        self.random.below(scale * factor + 1)
    }

    fn living(&self) -> usize {
        self.members.iter().filter(|member| member.is_alive).count()
    }

    fn may_fail(&self, member: usize) -> bool {
        let living = self.living();
        let failed = self.conditions.members - living - self.conditions.initially_failed.len();
        living > 1 && failed < self.conditions.failures && self.members[member].is_alive
    }

    fn fail(&mut self, victim: usize) {
        self.members[victim].is_alive = false;
        for observer in 0..self.conditions.members {
            if self.members[observer].is_alive {
                let delay = self.draw_delay(self.conditions.detection_delay);
                self.insert(delay, Occurrence::Detect { failed: victim, observer });
            }
            if self.conditions.loses_messages && self.random.chance(0.5) {
                let channel = &mut self.channels[victim * self.conditions.members + observer];
                let lost = self.random.below(channel.sent - channel.arrived + 1);
                channel.lost_from = Some(channel.sent - lost);
            }
        }
    }

    fn run(&mut self) {
        while let Some(Reverse((time, _, occurrence))) = self.queue.pop() {
            self.now = time;
            let mut out = Vec::new();
            let member = match occurrence {
                Occurrence::Fail(victim) => {
                    if self.may_fail(victim) {
                        self.fail(victim);
                    }
                    continue;
                }
                Occurrence::Start(me) => {
                    if !self.members[me].is_alive {
                        continue;
                    }
                    self.start(me, &mut out);
                    me
                }
                Occurrence::Detect { failed, observer } => {
                    let member = &mut self.members[observer];
                    if !member.is_alive {
                        continue;
                    }
                    member.detected.insert(failed);
                    member.history.report_failed(failed, &mut out);
                    observer
                }
                Occurrence::Arrive { from, to, number, sequence, bytes } => {
                    let channel = &mut self.channels[from * self.conditions.members + to];
                    if !self.members[to].is_alive
                        || channel.lost_from.is_some_and(|end| number >= end)
                    {
                        continue;
                    }
                    channel.arrived += 1;
                    let message = AgreementMessage::decode(&bytes, self.conditions.members);
                    let message = message.expect("each message can be decoded");
                    self.members[to].history.receive(sequence, from, message, &mut out);
                    to
                }
            };
            self.finish_step(member, out);
        }
    }

    fn start(&mut self, me: usize, out: &mut Vec<AgreementEnvelope>) {
        if self.members[me].contributions.len() as u64 == self.conditions.agreements {
            return;
        }
        let bit = self.tracked.iter().position(|tracked| *tracked == me);
        let flag = bit.map_or(-1, |bit| !(1 << bit));
        let known: Vec<_> = self.members[me].detected.iter().collect();
        let all = self.conditions.acknowledges;
        let acknowledged: FailedSet =
            known.into_iter().filter(|_| all || self.random.chance(0.7)).collect();
        self.members[me].contributions.push((flag, acknowledged.clone()));
        self.members[me].history.start(flag, me as u64, acknowledged, out);
    }

    /// Returns from agreements that have a decision, and sends the messages, unless the member fails meanwhile.
    fn finish_step(&mut self, me: usize, mut out: Vec<AgreementEnvelope>) {
        let member = &mut self.members[me];
        let mut returned = 0;
        for sequence in 0..member.contributions.len() as u64 {
            if let Some(decision) = member.history.take_decision(sequence) {
                member.decisions.insert(sequence, decision);
                returned += 1;
            }
        }
        let has_returned = returned > 0;
        self.check_dropped(me);
        self.most_kept = self.most_kept.max(self.members[me].history.kept());
        let sends =
            |kind: fn(&AgreementMessage) -> bool| out.iter().any(|sent| kind(&sent.message));
        let is_down = |message: &AgreementMessage| matches!(message, AgreementMessage::Down { .. });
        let is_request =
            |message: &AgreementMessage| matches!(message, AgreementMessage::Request { .. });
        let is_root = (0..me).all(|lower| !self.members[lower].is_alive);
        let is_tempted = match self.conditions.adversary {
            Adversary::Clock => false,
            Adversary::Sending => !out.is_empty(),
            Adversary::Deciding => sends(is_down),
            Adversary::Returning => has_returned,
            Adversary::Roots => is_root && (sends(is_down) || sends(is_request)),
        };
        let fails =
            is_tempted && self.may_fail(me) && self.random.chance(self.conditions.probability);
        if fails && self.conditions.adversary != Adversary::Returning {
            out.truncate(self.random.below(out.len() as u64 + 1) as usize);
        }
        for envelope in out {
            self.send(me, envelope);
        }
        if fails {
            self.fail(me);
            return;
        }
        for _ in 0..returned {
            let delay = self.draw_delay(self.conditions.start_delay);
            self.insert(delay, Occurrence::Start(me));
        }
    }

    /// Checks that all living members have returned from the agreements that a member has dropped.
    fn check_dropped(&self, me: usize) {
        let end = self.members[me].history.dropped_below();
        for (other, member) in self.members.iter().enumerate().filter(|(_, member)| member.is_alive)
        {
            for sequence in 0..end {
                let has_returned = member.decisions.contains_key(&sequence);
                assert!(
                    has_returned,
                    "{me} dropped {sequence}, from which {other} has not returned"
                );
            }
        }
    }

    fn send(&mut self, from: usize, envelope: AgreementEnvelope) {
        let AgreementEnvelope { sequence, to, message } = envelope;
        let delay = self.draw_delay(self.conditions.message_delay);
        let channel = &mut self.channels[from * self.conditions.members + to];
        let arrival = (self.now + delay).max(channel.last_arrival);
        channel.last_arrival = arrival;
        let number = channel.sent;
        channel.sent += 1;
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.messages += 1;
        self.insert_at(arrival, Occurrence::Arrive { from, to, number, sequence, bytes });
    }

    /// Checks the outcome of the run. Returns what is wrong.
    fn check(&self) -> Result<(), String> {
        for (me, member) in self.members.iter().enumerate().filter(|(_, member)| member.is_alive) {
            if member.decisions.len() as u64 != self.conditions.agreements {
                return Err(format!("member {me} returned only from {}", member.decisions.len()));
            }
        }
        (0..self.conditions.agreements).try_for_each(|sequence| self.check_agreement(sequence))
    }

    fn check_agreement(&self, sequence: u64) -> Result<(), String> {
        let all_count = self.conditions.guarantee == Guarantee::Uniform;
        let mut agreed: Option<&Decision> = None;
        for (me, member) in self.members.iter().enumerate() {
            let Some(decision) = member.decisions.get(&sequence) else { continue };
            self.check_decision(sequence, decision)
                .map_err(|e| format!("agreement {sequence}, member {me}: {e}: {decision:?}"))?;
            if all_count || member.is_alive {
                let first = *agreed.get_or_insert(decision);
                if decision != first {
                    return Err(format!("member {me} returned {decision:?}, another {first:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_decision(&self, sequence: u64, decision: &Decision) -> Result<(), String> {
        let contribution = |me: usize| self.members[me].contributions.get(sequence as usize);
        let fail = |what: &str, me: usize| Err(format!("{what} {me}"));
        let mut missing = FailedSet::new();
        for (bit, &me) in self.tracked.iter().enumerate() {
            let has_contributed = decision.flag >> bit & 1 == 0;
            if has_contributed && contribution(me).is_none() {
                return fail("flag of a member that did not start", me);
            }
            if !has_contributed && self.members[me].is_alive {
                return fail("flag lacks that of the living", me);
            }
            if !has_contributed {
                missing.insert(me);
            }
        }
        if self.tracked.len() < TRACKED && decision.flag >> self.tracked.len() != -1 {
            return Err("a bit that no member cleared".into());
        }
        if let Some(me) = decision.failed.iter().find(|me| self.members[*me].is_alive) {
            return fail("counts as failed the living", me);
        }
        if !missing.is_subset(&decision.failed) {
            return Err(format!("does not count as failed all of {missing:?}"));
        }
        if decision.offer != decision.failed.lowest_absent() as u64 {
            return Err("offer is not that of the lowest member".into());
        }
        let lacks =
            |me: usize| contribution(me).is_some_and(|(_, acked)| !missing.is_subset(acked));
        if self.tracked.len() == self.conditions.members {
            let expected = self.tracked.iter().any(|me| !missing.contains(*me) && lacks(*me));
            if decision.unacknowledged != expected {
                return Err(format!("unacknowledged is not {expected}"));
            }
        } else if !decision.unacknowledged
            && let Some(me) =
                (0..self.members.len()).find(|me| self.members[*me].is_alive && lacks(*me))
        {
            return fail("acknowledgement lacks at", me);
        }
        Ok(())
    }
}

/// Draws the conditions of a run with at most `most` members.
fn draw_conditions(random: &mut Random, guarantee: Guarantee, most: u64) -> RunConditions {
    let members = 2 + random.below(most - 1) as usize;
    let adversaries = [
        Adversary::Clock,
        Adversary::Sending,
        Adversary::Deciding,
        Adversary::Returning,
        Adversary::Roots,
    ];
    let initially_failed = match random.below(10) {
        0 => (0..random.below(members as u64) as usize).collect(),
        1 => (1..members).filter(|_| random.chance(0.5)).collect(),
        _ => FailedSet::new(),
    };
    let scales = [0, 1, 10, 100];
    let mut scale = || scales[random.below(4) as usize];
    let (message_delay, detection_delay, start_delay) = (scale(), scale(), scale());
    let few = 1 + random.below(3) as usize;
    RunConditions {
        members,
        guarantee,
        agreements: [1, 1, 1, 4][random.below(4) as usize],
        overlap: 1 + random.below(3),
        adversary: adversaries[random.below(5) as usize],
        failures: [few, members / 2, members - 1][random.below(3) as usize],
        probability: [0.1, 0.5, 1.0][random.below(3) as usize],
        initially_failed,
        message_delay,
        detection_delay,
        start_delay,
        loses_messages: random.chance(0.5),
        acknowledges: random.chance(0.5),
    }
}

/// Runs `count` simulations with at most `most` members and fails at the first that is wrong.
fn run_all(guarantee: Guarantee, first: u64, count: u64, most: u64) {
    for seed in first..first + count {
        let conditions = draw_conditions(&mut Random::new(seed), guarantee, most);
        let mut simulation = Simulation::new(conditions, seed);
        simulation.run();
        if let Err(problem) = simulation.check() {
            panic!("seed {seed}: {problem}\n{:?}", simulation.conditions);
        }
    }
}

#[test]
fn survivors__return_the_same_decision__for_few_members() {
    run_all(Guarantee::Survivors, 0, 4000, 8);
}

#[test]
fn survivors__return_the_same_decision__for_many_members() {
    run_all(Guarantee::Survivors, 1_000_000, 100, 200);
}

#[test]
fn uniform__returns_the_same_decision_everywhere__for_few_members() {
    run_all(Guarantee::Uniform, 0, 4000, 8);
}

#[test]
fn uniform__returns_the_same_decision_everywhere__for_many_members() {
    run_all(Guarantee::Uniform, 1_000_000, 100, 200);
}

/// RunConditions without failures during the run.
fn calm(members: usize, guarantee: Guarantee) -> RunConditions {
    RunConditions {
        members,
        guarantee,
        agreements: 1,
        overlap: 1,
        adversary: Adversary::Clock,
        failures: 0,
        probability: 0.0,
        initially_failed: FailedSet::new(),
        message_delay: 10,
        detection_delay: 10,
        start_delay: 10,
        loses_messages: false,
        acknowledges: true,
    }
}

/// Runs one simulation, whose outcome must be right.
fn run_one(conditions: RunConditions) -> Simulation {
    let mut simulation = Simulation::new(conditions, 1);
    simulation.run();
    simulation.check().unwrap();
    simulation
}

#[test]
fn messages__without_failures__are_twice_or_four_times_the_edges() {
    for members in [1, 2, 3, 10, 64, 200] {
        for count in [0, 1, members / 2, members - 1] {
            for (guarantee, each) in [(Guarantee::Survivors, 2), (Guarantee::Uniform, 4)] {
                let initially_failed = (0..count).collect();
                let simulation =
                    run_one(RunConditions { initially_failed, ..calm(members, guarantee) });
                let edges = (members - count).saturating_sub(1);
                assert_eq!(simulation.messages, each * edges, "{members} members, {count} failed");
            }
        }
    }
}

#[test]
fn messages__when_the_root_fails__are_a_few_for_each_member() {
    for guarantee in [Guarantee::Survivors, Guarantee::Uniform] {
        for members in [2, 20, 200] {
            let adversary = Adversary::Roots;
            let conditions = RunConditions {
                adversary,
                failures: 1,
                probability: 1.0,
                ..calm(members, guarantee)
            };
            let simulation = run_one(conditions);
            assert!(simulation.living() < members);
            assert!(simulation.messages <= 8 * members, "{} messages", simulation.messages);
        }
    }
}

#[test]
fn decisions__are_dropped__once_all_living_members_have_returned() {
    for guarantee in [Guarantee::Survivors, Guarantee::Uniform] {
        for overlap in [1, 4] {
            let simulation =
                run_one(RunConditions { agreements: 50, overlap, ..calm(9, guarantee) });
            // Two rounds of overlapping agreements, and one that has begun at another member.
            let most = 2 * overlap as usize + 1;
            assert!(simulation.most_kept <= most, "{} kept", simulation.most_kept);
        }
    }
}

/// Members whose messages the test delivers by hand.
struct Group {
    members: Vec<Agreement>,
    /// Messages that have not been delivered: sender, receiver, message.
    sent: Vec<(usize, usize, AgreementMessage)>,
}

impl Group {
    fn new(count: usize, guarantee: Guarantee) -> Self {
        let none = FailedSet::new();
        let members = (0..count).map(|me| Agreement::new(count, me, guarantee, &none)).collect();
        Group { members, sent: Vec::new() }
    }

    fn handle(&mut self, me: usize, event: AgreementEvent) {
        let mut out = Vec::new();
        self.members[me].handle(event, &mut out);
        self.sent.extend(out.into_iter().map(|(to, message)| (me, to, message)));
    }

    /// Starts all members. Each clears the bit of its number.
    fn start(&mut self) {
        for me in 0..self.members.len() {
            let contribution = Contribution {
                flag: !(1 << (me % 64)),
                offer: me as u64,
                failed: FailedSet::new(),
                acknowledged: FailedSet::new(),
                returned_below: 0,
            };
            self.handle(me, AgreementEvent::Start(contribution));
        }
    }

    /// Delivers the messages for which `is_delivered` returns true until there is none, and loses the others.
    fn deliver(&mut self, is_delivered: impl Fn(usize, usize, &AgreementMessage) -> bool) {
        while !self.sent.is_empty() {
            let (from, to, message) = self.sent.remove(0);
            if is_delivered(from, to, &message) {
                self.handle(to, AgreementEvent::Message { from, message });
            }
        }
    }

    /// Reports the failures of `victims` to all others.
    fn fail(&mut self, victims: &[usize]) {
        for me in (0..self.members.len()).filter(|me| !victims.contains(me)) {
            for &victim in victims {
                self.handle(me, AgreementEvent::Failed(victim));
            }
        }
    }

    fn flag(&self, me: usize) -> Option<i64> {
        self.members[me].decision().map(|decision| decision.flag)
    }
}

fn is_up(message: &AgreementMessage) -> bool {
    matches!(message, AgreementMessage::Up { .. })
}

/// Root 0 and member 1 fail when only member 1 has received the decision.
fn lose_decision(guarantee: Guarantee) -> Group {
    let mut group = Group::new(3, guarantee);
    group.start();
    group.deliver(|from, to, message| is_up(message) || (from, to) == (0, 1));
    group.fail(&[0, 1]);
    group.deliver(|_, to, _| to == 2);
    group
}

#[test]
fn decision_of_failed_members__is_lost__without_uniformity() {
    let group = lose_decision(Guarantee::Survivors);
    assert_eq!(group.flag(1), Some(!7));
    assert_eq!(group.flag(2), Some(!4));
}

#[test]
fn decision_of_failed_members__was_not_returned__with_uniformity() {
    let group = lose_decision(Guarantee::Uniform);
    assert_eq!(group.flag(1), None);
    assert_eq!(group.flag(2), Some(!4));
}

#[test]
fn new_root__requests_the_decision_that_another_member_has() {
    let mut group = Group::new(3, Guarantee::Survivors);
    group.start();
    group.deliver(|_, to, message| is_up(message) || to == 2);
    assert_eq!((group.flag(1), group.flag(2)), (None, Some(!7)));
    group.handle(1, AgreementEvent::Failed(0));
    assert_eq!(group.sent, [(1, 2, AgreementMessage::Request { root: 1 })]);
    group.deliver(|_, _, _| true);
    assert_eq!(group.flag(1), Some(!7));
}

#[test]
fn late_decision_of_a_former_root__is_refused() {
    let mut group = Group::new(3, Guarantee::Survivors);
    group.start();
    group.deliver(|_, _, message| is_up(message));
    let decision = group.members[0].decision().unwrap().clone();
    group.fail(&[0]);
    group.deliver(|from, _, _| from == 2);
    assert_eq!(group.flag(1), Some(!6));
    let message = AgreementMessage::Down { root: 0, decision, stable: false };
    group.handle(2, AgreementEvent::Message { from: 0, message });
    assert_eq!(group.flag(2), None);
}

#[test]
fn fuzz__agreement_handles_any_message() {
    // Number of members in the samples.
    const MEMBERS: usize = 200;
    let mut group = Group::new(MEMBERS, Guarantee::Uniform);
    let corpus: Vec<_> = crate::ft::message::tests::samples()
        .iter()
        .map(|message| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            bytes
        })
        .collect();
    let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
    let mut random = Random::new(crate::mutate::seed());
    crate::mutate::run(&corpus, |input| {
        if random.chance(0.01) {
            group = Group::new(
                MEMBERS,
                [Guarantee::Survivors, Guarantee::Uniform][random.below(2) as usize],
            );
            group.start();
        }
        let (from, to) =
            (random.below(MEMBERS as u64) as usize, random.below(MEMBERS as u64) as usize);
        if let Some(message) = AgreementMessage::decode(input, MEMBERS) {
            group.handle(to, AgreementEvent::Message { from, message });
        }
        group.sent.clear();
    });
}
