//! Judgement whether waiting ranks can continue. docs/decisions/0019-when-a-deadlock-is-proved.md has the proof.

use super::facts::{Activity, Facts};
use fastpath_segment::AwaitedRanks;

/// Maximum number of stuck ranks for which the smallest set that explains the deadlock is searched. If more ranks are
/// stuck, the verdict names all of them.
const SEARCHED_MOST: usize = 256;

/// Proved cause of an endless wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Each rank waits only for the next rank, and the last rank for the first.
    Cycle(Vec<usize>),
    /// All other ranks for which this rank waits have left MPI.
    Left(usize),
    /// Each rank waits for one or any of several ranks, all of which are in this set or have left.
    Knot(Vec<usize>),
}

impl Verdict {
    /// Returns the ranks that the verdict names.
    pub fn ranks(&self) -> &[usize] {
        match self {
            Verdict::Cycle(ranks) | Verdict::Knot(ranks) => ranks,
            Verdict::Left(rank) => std::slice::from_ref(rank),
        }
    }
}

/// Judges two observations of all ranks. The second one must begin after the first was complete, at `now_ns`. `None`
/// means that a rank can continue, or that nothing is proved.
pub fn judge(before: &[Facts], after: &[Facts], now_ns: u64) -> Option<Verdict> {
    let stands: Vec<RankState> = before
        .iter()
        .zip(after)
        .map(|(before, after)| RankState::of(before, after, now_ns))
        .collect();
    let stuck = find_stuck(&stands);
    find_cycle(&stands, &stuck)
        .map(Verdict::Cycle)
        .or_else(|| find_forsaken(&stands, &stuck).map(Verdict::Left))
        .or_else(|| find_knot(&stands, &stuck).map(Verdict::Knot))
}

/// State of one rank.
#[derive(Clone, Copy, Debug)]
enum RankState {
    /// The rank may continue: it runs, was stopped, has waited briefly, or is unknown.
    Free,
    /// The rank sends no more messages.
    Left,
    /// The rank slept through both observations, with nothing to take. If any of these ranks sends a message to the
    /// sleeping rank, that rank or one of its threads continues.
    Asleep(AwaitedRanks),
}

impl RankState {
    fn of(before: &Facts, after: &Facts, now_ns: u64) -> RankState {
        if before.has_left {
            return RankState::Left;
        }
        let sequences = |facts: &Facts| facts.notes.iter().map(|n| n.sequence).collect::<Vec<_>>();
        let naps = has_looked(before, after);
        let slept = naps || before.is_settled && after.is_settled;
        let slept = slept && sequences(before) == sequences(after);
        let mut awaited = AwaitedRanks::UNKNOWN;
        for note in &before.notes {
            if !note.awaited.is_known() {
                return RankState::Free;
            }
            awaited.add(note.awaited);
        }
        let slept = slept && before.has_waited_long(now_ns);
        // A rank that naps runs between its sleeps, so its activity proves nothing.
        let is_quiet = match naps {
            true => before.only_waits() && after.only_waits(),
            false => are_threads_asleep(before, after),
        };
        match slept && awaited.is_known() && is_quiet {
            true => RankState::Asleep(awaited),
            false => RankState::Free,
        }
    }
}

/// Returns whether a rank that sleeps with a time limit has polled without success since the first observation of all
/// ranks. Two of its sleeps must have ended since then, because a whole poll lies between the ends of two sleeps.
fn has_looked(before: &Facts, after: &Facts) -> bool {
    let since = |naps: u32| naps.wrapping_sub(before.naps_then);
    before.naps.is_some() && after.naps.is_some_and(|naps| (2..1 << 31).contains(&since(naps)))
}

/// Returns whether no thread of a rank ran between both observations, and only the waiting threads can make an MPI
/// call.
fn are_threads_asleep(before: &Facts, after: &Facts) -> bool {
    let asleep = matches!(before.activity, Activity::Asleep { .. });
    asleep && before.activity == after.activity && before.only_waits()
}

/// Returns the ranks that no rank can release. The function removes the ranks that may continue, then repeatedly the
/// ranks that wait for a removed rank. This is the reduction of Chandy, Misra and Haas (1983) for waits for any of
/// several.
fn find_stuck(stands: &[RankState]) -> Vec<bool> {
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); stands.len()];
    let mut stuck = vec![false; stands.len()];
    let mut freed: Vec<usize> = Vec::new();
    for (rank, stand) in stands.iter().enumerate() {
        match stand {
            RankState::Left => {}
            RankState::Free => freed.push(rank),
            RankState::Asleep(awaited) => {
                stuck[rank] = true;
                for &peer in awaited.named() {
                    match waiters.get_mut(peer as usize) {
                        Some(list) => list.push(rank),
                        // The awaited rank does not exist, so nothing is proved.
                        None => freed.push(rank),
                    }
                }
            }
        }
    }
    if !freed.is_empty() {
        let waits_for_any = |stand: &RankState| matches!(stand, RankState::Asleep(a) if a.is_any());
        freed.extend((0..stands.len()).filter(|&rank| waits_for_any(&stands[rank])));
    }
    freed.iter().for_each(|&rank| stuck[rank] = false);
    while let Some(rank) = freed.pop() {
        for waiter in std::mem::take(&mut waiters[rank]) {
            if stuck[waiter] {
                stuck[waiter] = false;
                freed.push(waiter);
            }
        }
    }
    stuck
}

/// Returns the shortest cycle of stuck ranks that wait for one rank each. The lowest rank comes first.
fn find_cycle(stands: &[RankState], stuck: &[bool]) -> Option<Vec<usize>> {
    let next = |rank: usize| match &stands[rank] {
        RankState::Asleep(awaited) if stuck[rank] => match *awaited.named() {
            [peer] if stuck[peer as usize] => Some(peer as usize),
            _ => None,
        },
        _ => None,
    };
    // Start rank of the walk that first reached each rank.
    let mut reached = vec![usize::MAX; stands.len()];
    let mut shortest: Option<Vec<usize>> = None;
    for start in 0..stands.len() {
        let mut rank = start;
        while reached[rank] == usize::MAX {
            reached[rank] = start;
            match next(rank) {
                Some(peer) => rank = peer,
                None => break,
            }
        }
        if reached[rank] != start || next(rank).is_none() {
            continue;
        }
        let steps = std::iter::successors(next(rank), |&at| next(at).filter(|_| at != rank));
        let mut cycle: Vec<usize> = steps.collect();
        if shortest.as_ref().is_none_or(|s| cycle.len() < s.len()) {
            let lowest = (0..cycle.len()).min_by_key(|&i| cycle[i])?;
            cycle.rotate_left(lowest);
            shortest = Some(cycle);
        }
    }
    shortest
}

/// Returns the first stuck rank that waits only for ranks that have left, and perhaps for itself.
fn find_forsaken(stands: &[RankState], stuck: &[bool]) -> Option<usize> {
    let is_silent =
        |own: usize, rank: usize| rank == own || matches!(stands[rank], RankState::Left);
    (0..stands.len()).find(|&rank| match &stands[rank] {
        RankState::Asleep(awaited) if stuck[rank] => match awaited.is_any() {
            true => (0..stands.len()).all(|peer| is_silent(rank, peer)),
            false => awaited.named().iter().all(|&peer| is_silent(rank, peer as usize)),
        },
        _ => false,
    })
}

/// Returns the smallest set of stuck ranks that wait only for members and for ranks that have left.
fn find_knot(stands: &[RankState], stuck: &[bool]) -> Option<Vec<usize>> {
    let all: Vec<usize> = (0..stands.len()).filter(|&rank| stuck[rank]).collect();
    if all.len() > SEARCHED_MOST {
        return Some(all);
    }
    let smallest = all.iter().map(|&rank| close(rank, stands, stuck, &all)).min_by_key(Vec::len);
    smallest.filter(|knot| !knot.is_empty())
}

/// Returns a stuck rank together with all ranks for which it waits, directly or indirectly, in ascending order.
fn close(rank: usize, stands: &[RankState], stuck: &[bool], all: &[usize]) -> Vec<usize> {
    let mut found = vec![false; stands.len()];
    let mut open = vec![rank];
    while let Some(rank) = open.pop() {
        if !stuck[rank] || std::mem::replace(&mut found[rank], true) {
            continue;
        }
        if let RankState::Asleep(awaited) = &stands[rank] {
            match awaited.is_any() {
                true => open.extend(all),
                false => open.extend(awaited.named().iter().map(|&peer| peer as usize)),
            }
        }
    }
    (0..stands.len()).filter(|&rank| found[rank]).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::inspect::facts::LEAST_NS;
    use fastpath_segment::{RankPhase, UnexpectedSnapshot, WaitNote};

    const NOW_NS: u64 = 100 * LEAST_NS;

    /// A rank at both observations.
    #[derive(Clone)]
    struct ObservedRank(Facts, Facts);

    fn sleeps(awaited: AwaitedRanks) -> ObservedRank {
        let note = WaitNote {
            call: "MPI_Recv".to_owned(),
            peer: -1,
            tag: 7,
            comm: String::new(),
            bytes: 8,
            since_ns: NOW_NS - 2 * LEAST_NS,
            awaited,
            multiple: false,
            thread: 1,
            sequence: 4,
        };
        let facts = Facts {
            pid: 1,
            phase: RankPhase::Initialized,
            has_left: false,
            activity: Activity::Asleep { threads: 1, ticks: 5 },
            is_settled: true,
            naps: None,
            naps_then: 0,
            notes: vec![note],
            names: vec!["thread \"main\"".to_owned()],
            beside: Vec::new(),
            unnoted: 0,
            locks: None,
            unexpected: UnexpectedSnapshot::default(),
        };
        ObservedRank(facts.clone(), facts)
    }

    /// A rank that waits for one rank, or for any of several.
    fn waits(ranks: &[u32]) -> ObservedRank {
        sleeps(AwaitedRanks::of(ranks))
    }

    fn waits_for_any() -> ObservedRank {
        sleeps(AwaitedRanks::ANY)
    }

    fn computes() -> ObservedRank {
        let mut seen = waits(&[0]);
        for facts in [&mut seen.0, &mut seen.1] {
            (facts.notes, facts.is_settled) = (Vec::new(), false);
            facts.activity = Activity::Running;
        }
        seen
    }

    fn left() -> ObservedRank {
        let mut seen = computes();
        (seen.0.has_left, seen.1.has_left) = (true, true);
        seen
    }

    impl ObservedRank {
        fn with(mut self, change: impl Fn(&mut Facts)) -> ObservedRank {
            change(&mut self.0);
            change(&mut self.1);
            self
        }

        fn noted(self, change: impl Fn(&mut WaitNote)) -> ObservedRank {
            self.with(|facts| facts.notes.iter_mut().for_each(&change))
        }

        fn then(mut self, change: impl Fn(&mut Facts)) -> ObservedRank {
            change(&mut self.1);
            self
        }
    }

    fn verdict(ranks: Vec<ObservedRank>) -> Option<Verdict> {
        let (before, after): (Vec<_>, Vec<_>) = ranks.into_iter().map(|s| (s.0, s.1)).unzip();
        judge(&before, &after, NOW_NS)
    }

    fn cycle(ranks: &[usize]) -> Option<Verdict> {
        Some(Verdict::Cycle(ranks.to_vec()))
    }

    fn knot(ranks: &[usize]) -> Option<Verdict> {
        Some(Verdict::Knot(ranks.to_vec()))
    }

    #[test]
    fn graph__with_a_cycle_of_waits_for_one_rank_names_it() {
        let graphs = [
            ("itself", vec![waits(&[0])], cycle(&[0])),
            ("two", vec![waits(&[1]), waits(&[0])], cycle(&[0, 1])),
            ("two, and one that works", vec![computes(), waits(&[2]), waits(&[1])], cycle(&[1, 2])),
            (
                "three among four, and the fourth waits for them",
                vec![waits(&[2]), waits(&[3]), waits(&[3]), waits(&[0])],
                cycle(&[0, 2, 3]),
            ),
            (
                "the shorter of two",
                vec![waits(&[1]), waits(&[2]), waits(&[0]), waits(&[4]), waits(&[3])],
                cycle(&[3, 4]),
            ),
            (
                "a barrier whose first rank waits elsewhere",
                vec![waits(&[3]), waits(&[0]), waits(&[0]), waits(&[2])],
                cycle(&[0, 3, 2]),
            ),
            (
                "a cycle rather than one who has been left",
                vec![waits(&[4]), waits(&[2]), waits(&[1]), computes(), left()],
                cycle(&[1, 2]),
            ),
            (
                "threads that sleep and cannot call MPI",
                vec![
                    waits(&[1]),
                    waits(&[0]).with(|f| f.activity = Activity::Asleep { threads: 9, ticks: 3 }),
                ],
                cycle(&[0, 1]),
            ),
            (
                "MPI_THREAD_MULTIPLE with one thread",
                vec![waits(&[1]).noted(|n| n.multiple = true), waits(&[0])],
                cycle(&[0, 1]),
            ),
        ];
        for (name, ranks, expected) in graphs {
            assert_eq!(verdict(ranks), expected, "{name}");
        }
    }

    #[test]
    fn graph__with_waits_for_any_of_several_needs_all_of_them_stuck() {
        let graphs = [
            (
                "any of two that wait back",
                vec![waits(&[1, 2]), waits(&[0]), waits(&[0])],
                knot(&[0, 1, 2]),
            ),
            ("any of two, and one works", vec![waits(&[1, 2]), waits(&[0]), computes()], None),
            (
                "a way out over two others",
                vec![waits(&[1, 2]), waits(&[0]), waits(&[3]), computes()],
                None,
            ),
            (
                "all wait for any",
                vec![waits_for_any(), waits_for_any(), waits_for_any()],
                knot(&[0, 1, 2]),
            ),
            ("any, and one works", vec![waits_for_any(), waits_for_any(), computes()], None),
            (
                "a cycle, and a rank that waits for any",
                vec![waits_for_any(), waits(&[2]), waits(&[1]), computes()],
                cycle(&[1, 2]),
            ),
            (
                "the smallest knot, with one behind it",
                vec![waits(&[1]), waits(&[2, 3]), waits(&[1]), waits(&[1, 2])],
                knot(&[1, 2, 3]),
            ),
            (
                "one of two has left, the other waits back",
                vec![waits(&[1, 2]), left(), waits(&[0, 1])],
                knot(&[0, 2]),
            ),
        ];
        for (name, ranks, expected) in graphs {
            assert_eq!(verdict(ranks), expected, "{name}");
        }
    }

    #[test]
    fn rank__that_waits_for_those_who_have_left_is_named() {
        let left_alone = |rank| Some(Verdict::Left(rank));
        let graphs = [
            ("one", vec![computes(), waits(&[2]), left()], left_alone(1)),
            ("the last of a chain", vec![waits(&[1]), waits(&[2]), left()], left_alone(1)),
            ("any", vec![left(), waits_for_any(), left()], left_alone(1)),
            ("any of two", vec![left(), waits(&[0, 2]), left()], left_alone(1)),
            ("any, and one works", vec![left(), waits_for_any(), computes()], None),
            ("no rank waits", vec![left(), left()], None),
            ("it leaves only now", vec![waits(&[1]), computes().then(|f| f.has_left = true)], None),
        ];
        for (name, ranks, expected) in graphs {
            assert_eq!(verdict(ranks), expected, "{name}");
        }
    }

    /// A rank that waits for rank 0, and polls `looks` times between the observations.
    fn naps(looks: u32) -> ObservedRank {
        let napping = waits(&[0]).with(|facts| {
            (facts.is_settled, facts.activity) = (false, Activity::Running);
            (facts.naps, facts.naps_then) = (Some(u32::MAX - 1), u32::MAX);
        });
        napping.then(|facts| facts.naps = Some(u32::MAX.wrapping_add(looks)))
    }

    #[test]
    fn rank__that_looks_in_vain_from_time_to_time_is_stuck_too() {
        assert_eq!(verdict(vec![waits(&[1]), naps(2)]), cycle(&[0, 1]));
    }

    /// Each change of one rank of a cycle invalidates the proof.
    #[test]
    fn rank__that_may_go_on_makes_a_cycle_none() {
        let asleep = |threads, ticks| Activity::Asleep { threads, ticks };
        let changed = [
            ("waits since a moment", waits(&[0]).noted(|n| n.since_ns = NOW_NS - LEAST_NS + 1)),
            ("began later than this look", waits(&[0]).noted(|n| n.since_ns = NOW_NS + 1)),
            ("was woken, or has more to take", waits(&[0]).with(|f| f.is_settled = false)),
            ("is woken between the looks", waits(&[0]).then(|f| f.is_settled = false)),
            (
                "was woken and sleeps again",
                waits(&[0]).noted(|n| n.sequence += 2).then(|f| {
                    f.notes.iter_mut().for_each(|n| n.sequence += 2);
                }),
            ),
            ("waits no more", waits(&[0]).then(|f| f.notes.clear())),
            ("says nothing", waits(&[0]).with(|f| f.notes.clear())),
            ("says not for whom", sleeps(AwaitedRanks::UNKNOWN)),
            ("waits for no rank", waits(&[99])),
            ("naps, and has not looked since", naps(1)),
            ("naps, and another thread may call MPI", {
                let running = |facts: &mut Facts| facts.activity = Activity::Running;
                naps(2).noted(|n| n.multiple = true).with(running)
            }),
            (
                "naps, and has found something",
                naps(2).then(|f| f.notes.iter_mut().for_each(|n| n.sequence += 2)),
            ),
            ("is stopped", waits(&[0]).with(|f| f.activity = Activity::Stopped)),
            ("is debugged", waits(&[0]).with(|f| f.activity = Activity::Traced)),
            ("cannot be looked at", waits(&[0]).with(|f| f.activity = Activity::Unknown)),
            ("has a thread that runs", waits(&[0]).with(|f| f.activity = Activity::Running)),
            (
                "has a thread that begins to run",
                waits(&[0]).then(|f| f.activity = Activity::Running),
            ),
            ("has a thread that ran in between", waits(&[0]).then(|f| f.activity = asleep(1, 6))),
            ("has a new thread", waits(&[0]).then(|f| f.activity = asleep(2, 5))),
            (
                "has another thread that may call MPI",
                waits(&[0]).noted(|n| n.multiple = true).with(|f| f.activity = asleep(2, 5)),
            ),
        ];
        assert_eq!(verdict(vec![waits(&[1]), waits(&[0])]), cycle(&[0, 1]));
        for (name, rank) in changed {
            assert_eq!(verdict(vec![waits(&[1]), rank.clone()]), None, "{name}");
            assert_eq!(verdict(vec![rank, waits(&[0])]), None, "{name}, as rank 0");
        }
    }

    /// A rank all of whose threads wait. The rank waits for any rank that one of its threads awaits.
    fn threads_wait(all: &[&[u32]]) -> ObservedRank {
        let threads = all.len();
        let one = waits(&[0]).noted(|n| n.multiple = true);
        one.with(|facts| {
            facts.activity = Activity::Asleep { threads, ticks: 5 };
            let note = facts.notes.remove(0);
            for (at, ranks) in all.iter().enumerate() {
                let mut note = note.clone();
                note.awaited = AwaitedRanks::of(ranks);
                note.sequence = (at as u64) << 32 | 4;
                facts.notes.push(note);
            }
        })
    }

    #[test]
    fn threads__are_stuck_where_all_of_them_wait() {
        let both = || threads_wait(&[&[0], &[0]]);
        assert_eq!(verdict(vec![waits(&[1]), both()]), cycle(&[0, 1]));
        let apart = vec![waits(&[1]), threads_wait(&[&[0], &[2]]), waits(&[1])];
        assert_eq!(verdict(apart), knot(&[0, 1, 2]));
        let one_is_helped = vec![waits(&[1]), threads_wait(&[&[0], &[2]]), computes()];
        assert_eq!(verdict(one_is_helped), None);
        let own = vec![threads_wait(&[&[0], &[0]])];
        assert_eq!(verdict(own), cycle(&[0]));
        let asleep = |threads| Activity::Asleep { threads, ticks: 5 };
        let free = [
            ("a third thread", both().with(|f| f.activity = asleep(3))),
            (
                "one has waited since a moment",
                both().with(|f| f.notes[1].since_ns = NOW_NS - LEAST_NS + 1),
            ),
            ("one says not for whom", both().with(|f| f.notes[1].awaited = AwaitedRanks::UNKNOWN)),
            ("one was woken in between", both().then(|f| f.notes[1].sequence += 2)),
            ("one waits no more", both().then(|f| f.notes.truncate(1))),
            (
                "one has taken the place of the other",
                both().with(|f| f.notes.truncate(1)).then(|f| f.notes[0].sequence |= 1 << 32),
            ),
        ];
        for (name, rank) in free {
            assert_eq!(verdict(vec![waits(&[1]), rank]), None, "{name}");
        }
    }

    #[test]
    fn collective__with_one_rank_missing_is_none() {
        // A dissemination barrier of 8: each rank waits for its predecessor, and rank 7 computes.
        let ranks = (0..7).map(|rank| waits(&[(rank + 7) % 8]));
        assert_eq!(verdict(ranks.chain([computes()]).collect()), None);
    }

    #[test]
    fn job__of_any_size_is_judged() {
        let ring = |n: u32| (0..n).map(|rank| waits(&[(rank + 1) % n])).collect::<Vec<_>>();
        let all: Vec<usize> = (0..3000).collect();
        assert_eq!(verdict(ring(3000)), cycle(&all));
        let anybody = vec![waits_for_any(); SEARCHED_MOST + 1];
        let all: Vec<usize> = (0..=SEARCHED_MOST).collect();
        assert_eq!(verdict(anybody), knot(&all));
        assert_eq!(verdict(Vec::new()), None);
        let mut chain = ring(3000);
        chain[2999] = computes();
        assert_eq!(verdict(chain), None);
    }

    /// Compares the result with the definition of a stuck set: its ranks wait only for its members or for ranks that
    /// have left.
    #[test]
    fn stuck_ranks__are_the_largest_set_that_waits_for_itself() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..3000 {
            let size = 1 + random(6) as usize;
            let stands: Vec<RankState> = (0..size)
                .map(|_| match random(8) {
                    0 => RankState::Free,
                    1 => RankState::Left,
                    2 => RankState::Asleep(AwaitedRanks::ANY),
                    _ => {
                        let peers = 1 + random(3);
                        let peers: Vec<u32> =
                            (0..peers).map(|_| random(size as u64) as u32).collect();
                        RankState::Asleep(AwaitedRanks::of(&peers))
                    }
                })
                .collect();
            let is_closed = |set: usize| {
                (0..size).filter(|rank| set >> rank & 1 == 1).all(|rank| match &stands[rank] {
                    RankState::Asleep(awaited) => (0..size)
                        .filter(|&peer| {
                            awaited.is_any() || awaited.named().contains(&(peer as u32))
                        })
                        .all(|peer| {
                            set >> peer & 1 == 1 || matches!(stands[peer], RankState::Left)
                        }),
                    _ => false,
                })
            };
            let largest =
                (0..1_usize << size).filter(|&set| is_closed(set)).max_by_key(|s| s.count_ones());
            let found = find_stuck(&stands);
            let found = (0..size).filter(|&rank| found[rank]).fold(0, |set, rank| set | 1 << rank);
            assert_eq!(Some(found), largest, "{stands:?}");
            if let Some(knot) = find_knot(&stands, &find_stuck(&stands)) {
                assert!(is_closed(knot.iter().fold(0, |set, rank| set | 1 << rank)), "{stands:?}");
            }
        }
    }
}
