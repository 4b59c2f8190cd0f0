//! Whether ranks that wait can still go on. Pure; docs/decisions/0019-when-a-deadlock-is-proved.md has the proof.

use super::facts::{Activity, Facts};
use crate::segment::Awaited;

/// With more ranks than these that wait for several each, they are all named rather than the fewest that explain it.
const SEARCHED_MOST: usize = 256;

/// Why ranks wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Each waits only for the next one, and the last for the first.
    Cycle(Vec<usize>),
    /// All that this rank waits for have left MPI, itself not counted.
    Left(usize),
    /// Each waits for one of these, or for any of several, which are all among these or have left.
    Knot(Vec<usize>),
}

/// Judges by two looks at all ranks, the second begun after the first was complete at `now_ns`. `None`: some rank can
/// continue, or nothing is proved.
pub fn judge(before: &[Facts], after: &[Facts], now_ns: u64) -> Option<Verdict> {
    let stands: Vec<Stand> =
        before.iter().zip(after).map(|(before, after)| Stand::of(before, after, now_ns)).collect();
    let stuck = find_stuck(&stands);
    find_cycle(&stands, &stuck)
        .map(Verdict::Cycle)
        .or_else(|| find_forsaken(&stands, &stuck).map(Verdict::Left))
        .or_else(|| find_knot(&stands, &stuck).map(Verdict::Knot))
}

/// What one rank can do by itself.
#[derive(Clone, Copy, Debug)]
enum Stand {
    /// It may go on: it runs, was stopped, waits since a moment, or nothing is known.
    Free,
    /// It sends nothing any more.
    Left,
    /// It has slept from one look to the other, with nothing to take, and goes on, or one of its threads, when one of
    /// these sends to it.
    Asleep(Awaited),
}

impl Stand {
    fn of(before: &Facts, after: &Facts, now_ns: u64) -> Stand {
        if before.has_left {
            return Stand::Left;
        }
        let sequences = |facts: &Facts| facts.notes.iter().map(|n| n.sequence).collect::<Vec<_>>();
        let naps = has_looked(before, after);
        let slept = naps || before.is_settled && after.is_settled;
        let slept = slept && sequences(before) == sequences(after);
        let mut awaited = Awaited::UNKNOWN;
        for note in &before.notes {
            if !note.awaited.is_known() {
                return Stand::Free;
            }
            awaited.add(note.awaited);
        }
        let slept = slept && before.has_waited_long(now_ns);
        // Who looks from time to time runs now and then.
        let is_quiet = match naps {
            true => before.only_waits() && after.only_waits(),
            false => are_threads_asleep(before, after),
        };
        match slept && awaited.is_known() && is_quiet {
            true => Stand::Asleep(awaited),
            false => Stand::Free,
        }
    }
}

/// Whether a rank that sleeps with a limit has polled and found nothing since the first look at all ranks: between the
/// ends of two of its sleeps it has looked once from beginning to end.
fn has_looked(before: &Facts, after: &Facts) -> bool {
    let since = |naps: u32| naps.wrapping_sub(before.naps_then);
    before.naps.is_some() && after.naps.is_some_and(|naps| (2..1 << 31).contains(&since(naps)))
}

/// Whether no thread of a rank has run from one look to the other, and none can make an MPI call beside those that
/// wait.
fn are_threads_asleep(before: &Facts, after: &Facts) -> bool {
    let asleep = matches!(before.activity, Activity::Asleep { .. });
    asleep && before.activity == after.activity && before.only_waits()
}

/// The ranks that no rank can help: what is left when those that may go on are taken away, and again those that wait
/// for one of these (the reduction of Chandy, Misra and Haas 1983 for waits for any of several).
fn find_stuck(stands: &[Stand]) -> Vec<bool> {
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); stands.len()];
    let mut stuck = vec![false; stands.len()];
    let mut freed: Vec<usize> = Vec::new();
    for (rank, stand) in stands.iter().enumerate() {
        match stand {
            Stand::Left => {}
            Stand::Free => freed.push(rank),
            Stand::Asleep(awaited) => {
                stuck[rank] = true;
                for &peer in awaited.named() {
                    match waiters.get_mut(peer as usize) {
                        Some(list) => list.push(rank),
                        // No rank has such a number: nothing is known.
                        None => freed.push(rank),
                    }
                }
            }
        }
    }
    if !freed.is_empty() {
        let waits_for_any = |stand: &Stand| matches!(stand, Stand::Asleep(a) if a.is_any());
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

/// The shortest cycle of stuck ranks that wait for one rank each, from its lowest rank on.
fn find_cycle(stands: &[Stand], stuck: &[bool]) -> Option<Vec<usize>> {
    let next = |rank: usize| match &stands[rank] {
        Stand::Asleep(awaited) if stuck[rank] => match *awaited.named() {
            [peer] if stuck[peer as usize] => Some(peer as usize),
            _ => None,
        },
        _ => None,
    };
    // From which rank each was first reached.
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

/// The first stuck rank that waits for no rank that is still there, except perhaps itself.
fn find_forsaken(stands: &[Stand], stuck: &[bool]) -> Option<usize> {
    let is_silent = |own: usize, rank: usize| rank == own || matches!(stands[rank], Stand::Left);
    (0..stands.len()).find(|&rank| match &stands[rank] {
        Stand::Asleep(awaited) if stuck[rank] => match awaited.is_any() {
            true => (0..stands.len()).all(|peer| is_silent(rank, peer)),
            false => awaited.named().iter().all(|&peer| is_silent(rank, peer as usize)),
        },
        _ => false,
    })
}

/// The fewest stuck ranks that wait for none but themselves and those that have left.
fn find_knot(stands: &[Stand], stuck: &[bool]) -> Option<Vec<usize>> {
    let all: Vec<usize> = (0..stands.len()).filter(|&rank| stuck[rank]).collect();
    if all.len() > SEARCHED_MOST {
        return Some(all);
    }
    let smallest = all.iter().map(|&rank| close(rank, stands, stuck, &all)).min_by_key(Vec::len);
    smallest.filter(|knot| !knot.is_empty())
}

/// A stuck rank and all that it waits for, and what these wait for, in rising order.
fn close(rank: usize, stands: &[Stand], stuck: &[bool], all: &[usize]) -> Vec<usize> {
    let mut found = vec![false; stands.len()];
    let mut open = vec![rank];
    while let Some(rank) = open.pop() {
        if !stuck[rank] || std::mem::replace(&mut found[rank], true) {
            continue;
        }
        if let Stand::Asleep(awaited) = &stands[rank] {
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
    use crate::segment::{Phase, Unexpected, WaitNote};

    const NOW_NS: u64 = 100 * LEAST_NS;

    /// One rank as it is at both looks.
    #[derive(Clone)]
    struct Seen(Facts, Facts);

    fn sleeps(awaited: Awaited) -> Seen {
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
            phase: Phase::Initialized,
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
            unexpected: Unexpected::default(),
        };
        Seen(facts.clone(), facts)
    }

    /// Waits for one rank, or for any of several.
    fn waits(ranks: &[u32]) -> Seen {
        sleeps(Awaited::of(ranks))
    }

    fn waits_for_any() -> Seen {
        sleeps(Awaited::ANY)
    }

    fn computes() -> Seen {
        let mut seen = waits(&[0]);
        for facts in [&mut seen.0, &mut seen.1] {
            (facts.notes, facts.is_settled) = (Vec::new(), false);
            facts.activity = Activity::Running;
        }
        seen
    }

    fn left() -> Seen {
        let mut seen = computes();
        (seen.0.has_left, seen.1.has_left) = (true, true);
        seen
    }

    impl Seen {
        /// The same at both looks but for this.
        fn with(mut self, change: impl Fn(&mut Facts)) -> Seen {
            change(&mut self.0);
            change(&mut self.1);
            self
        }

        /// Another note at both looks.
        fn noted(self, change: impl Fn(&mut WaitNote)) -> Seen {
            self.with(|facts| facts.notes.iter_mut().for_each(&change))
        }

        /// Something else at the second look.
        fn then(mut self, change: impl Fn(&mut Facts)) -> Seen {
            change(&mut self.1);
            self
        }
    }

    fn verdict(ranks: Vec<Seen>) -> Option<Verdict> {
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
                "three among four, of which one waits for them",
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
            ("any of two of which one works", vec![waits(&[1, 2]), waits(&[0]), computes()], None),
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
                "a cycle in a way into which nobody else falls",
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
            ("nobody waits", vec![left(), left()], None),
            ("it leaves only now", vec![waits(&[1]), computes().then(|f| f.has_left = true)], None),
        ];
        for (name, ranks, expected) in graphs {
            assert_eq!(verdict(ranks), expected, "{name}");
        }
    }

    /// Waits for rank 0 and looks so often between the looks at all.
    fn naps(looks: u32) -> Seen {
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

    /// Each change of one rank of a cycle takes the proof away.
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
            ("says not for whom", sleeps(Awaited::UNKNOWN)),
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

    /// A rank of which each thread waits: for any of what one of them waits for.
    fn threads_wait(all: &[&[u32]]) -> Seen {
        let threads = all.len();
        let one = waits(&[0]).noted(|n| n.multiple = true);
        one.with(|facts| {
            facts.activity = Activity::Asleep { threads, ticks: 5 };
            let note = facts.notes.remove(0);
            for (at, ranks) in all.iter().enumerate() {
                let mut note = note.clone();
                note.awaited = Awaited::of(ranks);
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
            ("one says not for whom", both().with(|f| f.notes[1].awaited = Awaited::UNKNOWN)),
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
        // A dissemination barrier of 8: each waits for the one before it, and rank 7 computes.
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

    /// Against the definition: a set of ranks each of which waits only for members or for such as have left.
    #[test]
    fn stuck_ranks__are_the_largest_set_that_waits_for_itself() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..3000 {
            let size = 1 + random(6) as usize;
            let stands: Vec<Stand> = (0..size)
                .map(|_| match random(8) {
                    0 => Stand::Free,
                    1 => Stand::Left,
                    2 => Stand::Asleep(Awaited::ANY),
                    _ => {
                        let peers = 1 + random(3);
                        let peers: Vec<u32> =
                            (0..peers).map(|_| random(size as u64) as u32).collect();
                        Stand::Asleep(Awaited::of(&peers))
                    }
                })
                .collect();
            let is_closed = |set: usize| {
                (0..size).filter(|rank| set >> rank & 1 == 1).all(|rank| match &stands[rank] {
                    Stand::Asleep(awaited) => (0..size)
                        .filter(|&peer| {
                            awaited.is_any() || awaited.named().contains(&(peer as u32))
                        })
                        .all(|peer| set >> peer & 1 == 1 || matches!(stands[peer], Stand::Left)),
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
