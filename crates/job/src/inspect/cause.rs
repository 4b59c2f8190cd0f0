//! Cause of a hang: a proved deadlock, or else the rank for which the largest number of ranks wait.

use super::describe::describe_verdict;
use super::facts::Facts;
use super::groups::name_ranges;
use super::verdict::Verdict;
use super::{Member, ProcessEnd};
use std::collections::BTreeMap;

/// Ranks that a rank waits for: a node of the wait graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankWaits {
    /// Ranks that the rank's threads wait for, in order; None if no thread waits.
    pub named: Option<Vec<u32>>,
    /// Whether the rank only waits, as far as visible, and has waited for a second.
    pub is_idle: bool,
    /// Whether the rank only waits, as far as visible, and a wait has lasted for less than the second that a verdict
    /// needs.
    pub is_new: bool,
    /// Whether the rank sends no more messages: its process has ended, or it has finalized MPI.
    pub has_left: bool,
}

impl RankWaits {
    /// The waits of a rank that was observed at `now_ns`.
    fn of(facts: &Facts, now_ns: u64) -> RankWaits {
        let named = facts.notes.iter().flat_map(|note| note.awaited.named().to_vec());
        RankWaits {
            named: (!facts.notes.is_empty()).then(|| named.collect()),
            is_idle: facts.only_waits() && facts.has_waited_long(now_ns),
            is_new: facts.only_waits() && !facts.has_waited_long(now_ns),
            has_left: facts.has_left,
        }
    }

    /// The waits of a rank that was not observed.
    pub fn unknown() -> RankWaits {
        RankWaits { named: None, is_idle: false, is_new: false, has_left: false }
    }

    /// The rank that this rank waits for, if there is exactly one.
    fn next(&self, ranks: usize) -> Option<usize> {
        let mut named = self.named.iter().flatten();
        let first = *named.next()? as usize;
        let is_one = named.all(|&other| other as usize == first);
        (is_one && first < ranks).then_some(first)
    }
}

/// Describes in one line why the ranks of a job wait: by a proved deadlock, if there is a `verdict`. `find_place`
/// describes where a process that does not wait is in its program, as the end of a sentence.
pub fn explain(
    members: &[Member], facts: &[Facts], verdict: Option<&Verdict>, now_ns: u64,
    find_place: impl FnOnce(i32) -> String,
) -> String {
    if let Some(verdict) = verdict {
        return describe_verdict(verdict, members, facts, now_ns);
    }
    let waits: Vec<RankWaits> = facts.iter().map(|facts| RankWaits::of(facts, now_ns)).collect();
    let (awaited, waiters) = match find_cause(&waits) {
        Ok(found) => found,
        Err(why) => return why,
    };
    let (waiters, pid) = (name_ranks(&waiters), facts[awaited].pid);
    match members[awaited].end {
        Some(ProcessEnd::Elsewhere) => format!(
            "{waiters} for rank {awaited}, which is on another host; run `fastpath ps --why --host \
             HOSTS` with the hosts of the job"
        ),
        _ => format!("{waiters} for rank {awaited} (process {pid}), which {}", find_place(pid)),
    }
}

/// Finds the rank for which the largest number of ranks wait, and these ranks. If there is no such rank, describes the
/// waits.
pub fn find_cause(ranks: &[RankWaits]) -> Result<(usize, Vec<usize>), String> {
    if let Some(circle) = find_circle(ranks, |rank| rank.is_idle) {
        let chain = name_chain(&circle);
        return Err(format!("{chain}: a deadlock, unless a message is in flight"));
    }
    find_awaited(ranks).ok_or_else(|| describe_waits(ranks))
}

/// Describes which rank waits for which, if neither a cycle nor one rank is the cause.
fn describe_waits(ranks: &[RankWaits]) -> String {
    const TOLD_MOST: usize = 8;
    let waiting = |rank: usize| {
        let named = ranks[rank].named.as_deref()?;
        let peers: Vec<String> = named.iter().map(u32::to_string).collect();
        Some(match peers.len() {
            0 => format!("rank {rank} waits, and it is not known which rank will end the wait"),
            1 => format!("rank {rank} waits for rank {}", peers[0]),
            _ => format!("rank {rank} waits for ranks {}", peers.join(", ")),
        })
    };
    let waits: Vec<String> = (0..ranks.len()).filter_map(waiting).collect();
    if waits.is_empty() {
        return "no rank waits for another rank".to_owned();
    }
    let others = match waits.len().saturating_sub(TOLD_MOST) {
        0 => String::new(),
        others => format!("; and {others} more"),
    };
    let told = waits[..waits.len().min(TOLD_MOST)].join("; ");
    let reason = match find_circle(ranks, |rank| rank.is_idle || rank.is_new) {
        Some(_) => {
            "because a rank has waited for less than 1 s, too short for a verdict: use a longer \
             timeout, or look again"
        }
        None => "and no single rank delays the others",
    };
    format!("{told}{others}: no deadlock is proved, {reason}")
}

/// Among the ranks that wait for no other, finds the one for which the largest number of ranks wait, directly or
/// through others. Returns it and the ranks that wait for it.
fn find_awaited(ranks: &[RankWaits]) -> Option<(usize, Vec<usize>)> {
    let mut waiters: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for start in (0..ranks.len()).filter(|&rank| ranks[rank].named.is_some()) {
        let mut rank = start;
        // Bounded, because a cycle has no end.
        for _ in 0..ranks.len() {
            match ranks[rank].next(ranks.len()) {
                Some(peer) => rank = peer,
                None => break,
            }
        }
        let found = &ranks[rank];
        if rank != start && found.named.is_none() && !found.has_left {
            waiters.entry(rank).or_default().push(start);
        }
    }
    waiters.into_iter().max_by_key(|(_, waiters)| waiters.len())
}

/// Finds a cycle of ranks, each waiting only for the next rank of the cycle. `may_be_member` selects the ranks that a
/// cycle may have.
fn find_circle(ranks: &[RankWaits], may_be_member: fn(&RankWaits) -> bool) -> Option<Vec<usize>> {
    let next = |rank: usize| match may_be_member(&ranks[rank]) {
        true => ranks[rank].next(ranks.len()),
        false => None,
    };
    (0..ranks.len()).find_map(|start| {
        let mut circle = vec![start];
        loop {
            let next = next(*circle.last()?)?;
            if next == start {
                return (circle.len() > 1).then_some(circle);
            }
            if circle.contains(&next) {
                return None;
            }
            circle.push(next);
        }
    })
}

/// Formats "rank 0 waits for rank 1, which waits for rank 0".
fn name_chain(circle: &[usize]) -> String {
    let first = circle.first().copied().unwrap_or(0);
    let rest = circle.iter().skip(1).chain([&first]);
    let links: Vec<String> = rest.map(|rank| format!("waits for rank {rank}")).collect();
    format!("rank {first} {}", links.join(", which "))
}

/// Lists the waiting ranks, as the beginning of a sentence.
pub fn name_ranks(ranks: &[usize]) -> String {
    const NAMED_MOST: usize = 8;
    let named = || ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    match ranks.len() {
        1 => format!("rank {} waits", named()),
        n if n > NAMED_MOST => format!("{n} ranks wait ({})", name_ranges(ranks)),
        _ => format!("ranks {} wait", named()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn waits(named: &[u32]) -> RankWaits {
        RankWaits {
            named: (!named.is_empty()).then(|| named.to_vec()),
            is_idle: !named.is_empty(),
            is_new: false,
            has_left: false,
        }
    }

    #[test]
    fn awaited__is_the_rank_at_the_end_of_most_chains() {
        let ranks = [&[1][..], &[3], &[4], &[], &[]].map(waits);
        assert_eq!(find_awaited(&ranks), Some((3, vec![0, 1])));
        assert_eq!(find_awaited(&[waits(&[1]), waits(&[0])]), None);
        assert_eq!(find_awaited(&[waits(&[]), waits(&[])]), None);
        assert_eq!(find_awaited(&[waits(&[9])]), None, "no such rank");
    }

    #[test]
    fn circle__is_found_behind_ranks_that_wait_for_it() {
        let ranks = [&[1][..], &[2], &[3], &[1], &[]].map(waits);
        let circle = find_circle(&ranks, |rank| rank.is_idle).unwrap();
        assert_eq!(circle, [1, 2, 3]);
        let said = "rank 1 waits for rank 2, which waits for rank 3, which waits for rank 1";
        assert_eq!(name_chain(&circle), said);
        let find_circle = |ranks: &[RankWaits]| find_circle(ranks, |rank| rank.is_idle);
        assert_eq!(find_circle(&[waits(&[1]), waits(&[])]), None);
        // A rank that waits for one of two ranks is in no cycle.
        assert_eq!(find_circle(&[waits(&[1, 2]), waits(&[0]), waits(&[])]), None);
    }

    #[test]
    fn cause__is_a_circle_of_ranks_that_only_wait_or_the_rank_awaited() {
        let mut ranks = [&[1][..], &[0], &[3], &[]].map(waits);
        let circle = find_cause(&ranks).unwrap_err();
        assert!(
            circle.starts_with("rank 0 waits for rank 1, which waits for rank 0: a deadlock"),
            "{circle}"
        );
        // Rank 1 counts as active: another of its threads may send.
        ranks[1].is_idle = false;
        assert_eq!(find_cause(&ranks), Ok((3, vec![2])));
        let none = find_cause(&ranks[..2]).unwrap_err();
        let said = "rank 0 waits for rank 1; rank 1 waits for rank 0: no deadlock is proved, and \
                    no single rank delays the others";
        assert_eq!(none, said);
        // The wait of rank 1 has just begun.
        ranks[1].is_new = true;
        let new = find_cause(&ranks[..2]).unwrap_err();
        let said = "no deadlock is proved, because a rank has waited for less than 1 s, too short \
                    for a verdict: use a longer timeout, or look again";
        assert!(new.ends_with(said), "{new}");
        ranks[1].is_new = false;
        assert_eq!(find_cause(&ranks[3..]).unwrap_err(), "no rank waits for another rank");
    }

    #[test]
    fn ranks__are_named_up_to_a_number() {
        assert_eq!(name_ranks(&[3]), "rank 3 waits");
        assert_eq!(name_ranks(&[0, 2]), "ranks 0, 2 wait");
        let many: Vec<usize> = (0..3).chain(4..21).collect();
        assert_eq!(name_ranks(&many), "20 ranks wait (0-2, 4-20)");
    }
}
