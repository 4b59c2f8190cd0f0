//! Report of a job: why its ranks wait, then what each rank or group of ranks does.

use super::Member;
use super::cause::explain;
use super::describe::{describe_rank, find_verdict};
use super::facts::look_at_ranks;
use super::groups::{SINGLE_MAX, group_ranks, limit_groups};
use fastpath_base::clock::now_ns;
use fastpath_segment::Segment;
use std::fmt::Write as _;

/// Describes why ranks wait, in the first line, then the activity of each rank or group of ranks, in lines that begin
/// with two blanks. See [`explain`] for `find_place`.
pub fn describe_ranks(
    members: &[Member], segment: &Segment, find_place: impl FnOnce(i32) -> String,
) -> String {
    let before = look_at_ranks(members, segment);
    let now_ns = now_ns();
    let verdict = find_verdict(members, segment, &before, now_ns);
    let mut text = explain(members, &before, verdict.as_ref(), now_ns, find_place) + "\n";
    let absence = |rank: usize| {
        if segment.has_lost_place(rank) {
            return Some("no longer running: spawned during the job, and already ended".to_owned());
        }
        let host = segment.other_host(rank)?;
        Some(match segment.is_foreign(rank) {
            true => format!("in another job, on {host}"),
            false => format!("on another node, {host}"),
        })
    };
    let mut first = 0;
    let mut described = Vec::new();
    for (number, (member, facts)) in members.iter().zip(&before).enumerate() {
        if let Some(why) = absence(number) {
            // A sequence of ranks with equal text gets one line.
            if number == 0 || absence(number - 1).as_ref() != Some(&why) {
                first = number;
            }
            if absence(number + 1).as_ref() != Some(&why) {
                let _ = match number - first {
                    0 => writeln!(text, "  rank {number} is {why}"),
                    _ => writeln!(text, "  ranks {first} to {number} are {why}"),
                };
            }
            continue;
        }
        described.push((number, describe_rank(member, facts, now_ns)));
    }
    if described.len() <= SINGLE_MAX {
        for (number, doing) in described {
            let _ = writeln!(text, "  rank {number} (process {}) {doing}", members[number].pid);
        }
        return text;
    }
    let described: Vec<_> = described.iter().map(|(rank, doing)| (*rank, &doing[..])).collect();
    let (groups, others) = limit_groups(group_ranks(members.len(), &described));
    for group in groups {
        let _ = writeln!(text, "  {} {}", group.name(), group.text);
    }
    others.iter().for_each(|line| _ = writeln!(text, "  {line}"));
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_segment::{AwaitedRanks, WaitNoteRef};

    /// Report of `size` ranks, each of which has just begun to wait for the next one.
    fn report(size: usize) -> String {
        let segment = Segment::create(size, 1).unwrap();
        for rank in 0..size {
            let peer = ((rank + 1) % size) as u32;
            segment.page(rank).unwrap().note_waiting(
                0,
                WaitNoteRef {
                    call: "MPI_Recv",
                    peer: peer as i32,
                    tag: 7,
                    comm: "halo",
                    bytes: 8,
                    since_ns: now_ns(),
                    awaited: AwaitedRanks::of(&[peer]),
                    multiple: false,
                    thread: 0,
                },
            );
        }
        let members = vec![Member { pid: 0, end: None }; size];
        describe_ranks(&members, &segment, |_| unreachable!("every rank waits"))
    }

    #[test]
    fn report__of_few_ranks_lists_each_below_the_cause() {
        let text = report(2);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].ends_with(": no deadlock is proved, and no single rank delays the others")
        );
        let waits = "waits in MPI_Recv, peer 1, tag 7, communicator halo, 8 bytes, for ";
        assert!(lines[1].starts_with(&format!("  rank 0 (process 0) {waits}")), "{text}");
        assert_eq!(lines.len(), 3, "{text}");
    }

    #[test]
    fn report__of_200_ranks_has_few_lines() {
        let text = report(200);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("; and 192 more: no deadlock is proved"), "{text}");
        let group =
            "  200 ranks (0-199), each waits in MPI_Recv, peer own rank + 1, modulo 200, tag 7";
        assert!(lines[1].starts_with(group), "{text}");
        assert_eq!(lines.len(), 2, "{text}");
    }
}
