use super::*;
use proptest::prelude::*;

const BYTES: u64 = 64 << 10;
const TIMED: u8 = 16;

/// Sender and receiver of one octave with a simulated clock. The times of the arms are given.
struct LearningModel {
    entry: OctaveState,
    learner: Learner,
    /// Nanoseconds that all messages so far have taken.
    spent: u64,
    /// Nanoseconds that the best arm would have taken for the same messages.
    best: u64,
}

impl LearningModel {
    fn new(first: Arm) -> LearningModel {
        LearningModel {
            entry: OctaveState::new(first, TIMED),
            learner: Learner::new(first, TIMED, |_| true),
            spent: 0,
            best: 0,
        }
    }

    fn send(&mut self, times: &[u64; 5]) {
        let (arm, timed) = (self.entry.arm(), self.entry.is_due());
        self.entry.count(timed);
        let ns = times[arm as usize];
        self.spent += ns;
        self.best += times.iter().min().unwrap();
        if timed && let Some(advice) = self.learner.note(arm, BYTES, ns) {
            self.entry.follow(advice);
        }
    }

    fn send_many(&mut self, count: u32, times: &[u64; 5]) {
        for _ in 0..count {
            self.send(times);
        }
    }
}

#[test]
fn learner__finds_the_best_of_five_within_2000_messages() {
    for first in Arm::ALL {
        for best in Arm::ALL {
            let mut times = [9000, 8000, 10_000, 12_000, 7000];
            times[best as usize] = 4000;
            let mut world = LearningModel::new(first);
            world.send_many(2000, &times);
            assert_eq!(world.learner.learnt().0, best, "from {first:?}");
            assert_eq!(world.entry.arm(), best, "from {first:?}");
        }
    }
}

#[test]
fn learner__leaves_the_ring_only_for_a_copy_that_is_clearly_faster() {
    for (get, from_ring) in [(8000, Arm::Vector), (7000, Arm::Get)] {
        for (first, found) in [(Arm::Vector, from_ring), (Arm::Get, Arm::Get)] {
            let mut world = LearningModel::new(first);
            world.send_many(4000, &[10_000, 20_000, 20_000, get, 20_000]);
            assert_eq!(world.learner.learnt().0, found, "{get} from {first:?}");
        }
    }
}

#[test]
fn learner__tries_nothing_among_the_first_messages() {
    let mut world = LearningModel::new(Arm::Vector);
    world.send_many(80, &[4000, 40_000, 40_000, 40_000, 40_000]);
    assert_eq!(world.spent, world.best);
}

#[test]
fn learner__follows_a_change() {
    let mut world = LearningModel::new(Arm::Vector);
    let (shared, apart) = ([4000, 5000, 9000, 6000, 5000], [16_000, 5000, 7000, 9000, 8000]);
    for _ in 0..5 {
        world.send_many(4000, &shared);
        assert_eq!(world.learner.learnt().0, Arm::Vector);
        world.send_many(4000, &apart);
        assert_eq!(world.learner.learnt().0, Arm::String);
    }
}

#[test]
fn learner__of_a_machine_that_changes_often_goes_over_to_what_was_good_before() {
    let mut world = LearningModel::new(Arm::Vector);
    world.entry = OctaveState::new(Arm::Vector, 2);
    world.learner = Learner::new(Arm::Vector, 2, |_| true);
    let (shared, apart) = ([4000, 6000, 5000, 7000, 7000], [20_000, 18_000, 5000, 15_000, 15_000]);
    world.send_many(1000, &shared);
    for _ in 0..20 {
        world.send_many(200, &apart);
        world.send_many(200, &shared);
    }
    let (spent, best) = (world.spent, world.best);
    assert!(spent * 100 < best * 115, "{spent} and {best}");
}

#[test]
fn learner__does_not_forget_what_failed_where_two_ways_are_nearly_alike() {
    let mut world = LearningModel::new(Arm::Vector);
    world.entry = OctaveState::new(Arm::Vector, 2);
    world.learner = Learner::new(Arm::Vector, 2, |_| true);
    let mut slow = 0;
    for round in 0..60 {
        let mut times = [4000, 4000, 16_000, 16_000, 16_000];
        times[round % 2] = 3200;
        for _ in 0..200 {
            slow += u32::from(world.entry.arm() > Arm::String);
            world.send(&times);
        }
    }
    assert!(slow <= 16, "{slow} messages went ways that take four times as long");
}

#[test]
fn learner__loses_no_more_than_its_bound() {
    // All other arms are slower than the first, by up to a hundred times.
    for slow in [5000, 12_000, 40_000, 400_000] {
        let mut world = LearningModel::new(Arm::Vector);
        world.send_many(100_000, &[4000, slow, slow, slow, slow]);
        let lost = world.spent - world.best;
        // The bound is the share of the time, the initial allowance, and the last trial.
        let bound = world.best / SHARE as u64 + (START_MESSAGES as u64 + 4) * 4000 + 2 * slow;
        assert!(lost <= bound, "{slow}: {lost} of {}", world.spent);
    }
}

/// Simulates two ranks that send to each other at the same time. Each rank copies its own message into a ring, then the
/// other rank's message out of the other ring. A rank's clock shows the slower of the two copies in, plus its own copy
/// out.
fn exchange(
    ranks: &mut [LearningModel; 2], mirrors: &mut [Mirror; 2], copies: &[(u64, u64); 5],
) -> u64 {
    let ways = [0, 1].map(|rank| {
        let sender = &ranks[1 - rank].entry; // kept by the receiver's world
        match mirrors[rank].arm() {
            Some(arm) if !sender.is_trial() => (arm, false),
            _ => (sender.arm(), sender.is_due()),
        }
    });
    let copy_in = ways.map(|(arm, _)| copies[arm as usize].0);
    let slower = copy_in[0].max(copy_in[1]);
    let mut longest = 0;
    for rank in [0, 1] {
        let (arm, timed) = ways[1 - rank];
        let ns = slower + copies[arm as usize].1;
        longest = longest.max(ns);
        ranks[rank].entry.count(timed);
        mirrors[1 - rank].count();
        if timed && let Some(advice) = ranks[rank].learner.note(arm, BYTES, ns) {
            ranks[rank].entry.follow(advice);
            mirrors[rank].follow(advice);
        }
    }
    longest
}

#[test]
fn learners__of_messages_both_ways_find_the_loop_that_both_need() {
    // Without a shared cache, the best loop is fast on one side only if the other side uses it as well.
    let copies = [(18_000, 4000), (18_000, 4000), (3000, 3000), (1 << 20, 0), (1 << 20, 0)];
    let mut ranks = [LearningModel::new(Arm::Vector), LearningModel::new(Arm::Vector)];
    let mut mirrors = [Mirror::default(); 2];
    // Rank 0 sends first, so that the ranks are at different points of their cycles.
    ranks[0].send_many(70, &copies.map(|(into, out)| into + out));
    assert_eq!(ranks[0].entry.arm(), Arm::Vector);
    for _ in 0..4000 {
        exchange(&mut ranks, &mut mirrors, &copies);
    }
    let last: u64 = (0..100).map(|_| exchange(&mut ranks, &mut mirrors, &copies)).sum();
    assert_eq!(ranks.map(|rank| rank.entry.arm()), [Arm::Streaming; 2]);
    assert!(last < 100 * 7000, "{last}");
}

#[test]
fn mirror__ends_with_the_trial_or_after_some_messages() {
    let advice = |timed| Advice { arm: Arm::Streaming, timed };
    let mut mirror = Mirror::default();
    mirror.follow(advice(1));
    assert_eq!(mirror.arm(), Some(Arm::Streaming));
    mirror.follow(advice(TIMED));
    assert_eq!(mirror.arm(), None);
    mirror.follow(advice(1));
    (0..MIRRORED).for_each(|_| mirror.count());
    assert_eq!(mirror.arm(), None);
    mirror.count();
    assert_eq!(mirror.arm(), None);
}

#[test]
fn learner__that_is_ignored_comes_to_rest() {
    let mut learner = Learner::new(Arm::Vector, TIMED, |_| true);
    let mut trials = 0;
    for _ in 0..10_000 {
        trials +=
            learner.note(Arm::Vector, BYTES, 4000).is_some_and(|advice| advice.timed == 1) as u32;
    }
    assert_eq!(learner.learnt().0, Arm::Vector);
    assert_eq!(trials, 4);
}

#[test]
fn learner__opens_no_closed_arm() {
    let times = [9000, 1, 1, 1, 1];
    let mut world = LearningModel::new(Arm::Vector);
    world.learner = Learner::new(Arm::Vector, TIMED, |arm| arm == Arm::Vector);
    world.send_many(10_000, &times);
    assert_eq!(world.spent, 10_000 * 9000);
}

#[test]
fn octaves__are_apart_and_end() {
    let sizes = [0, 4096, 8191, 8192, 65_536, 4 << 20, u64::MAX];
    assert_eq!(sizes.map(octave), [0, 0, 0, 1, 4, 10, 10]);
}

#[test]
fn learner__of_the_slowest_rate_and_a_message_of_a_tebibyte__does_not_overflow() {
    let mut learner = Learner::new(Arm::Vector, TIMED, |_| true);
    for _ in 0..100 {
        learner.note(learner.learnt().0, 1, u64::MAX);
        learner.note(Arm::Get, 1 << 40, u64::MAX);
    }
    assert!(learner.learnt().1 > 0);
}

proptest! {
    #[test]
    fn learner__of_any_times_names_an_arm_that_is_there(
        times in prop::collection::vec((0_u8..5, 0_u64..1 << 40, 1_u64..1 << 40), 1..300),
        open in 0_u8..32,
        first in 0_u8..5,
    ) {
        let first = Arm::of(first).unwrap();
        let mut learner = Learner::new(first, TIMED, |arm| open >> arm as u8 & 1 != 0);
        for (arm, ns, bytes) in times {
            let arm = Arm::of(arm).unwrap();
            let known = learner.learnt().0;
            if let Some(advice) = learner.note(arm, bytes, ns) {
                let is_open = open >> advice.arm as u8 & 1 != 0;
                prop_assert!(is_open || [known, first, arm].contains(&advice.arm));
                prop_assert!(advice.timed > 0);
            }
        }
    }
}
