//! Groups of ranks that do the same: their descriptions differ only in numbers, which become one number, a distance
//! from the rank, or a range.

use std::collections::HashMap;
use std::ops::Range;

/// Largest number of ranks that are listed one by one.
pub const SINGLE_MAX: usize = 8;
/// Largest number of groups that are listed.
const GROUPS_MAX: usize = 12;
/// Largest number of ranges in a list of ranks.
const RANGES_MAX: usize = 6;

/// A rank and the description of its activity.
pub type DescribedRank<'a> = (usize, &'a str);

/// Ranks with one description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankGroup {
    /// Ranks in ascending order.
    pub ranks: Vec<usize>,
    /// Description, with ranges in place of numbers that differ.
    pub text: String,
}

impl RankGroup {
    /// The ranks as the beginning of a sentence: "rank 3" or "198 ranks (0-2, 5-199), each".
    pub fn name(&self) -> String {
        match self.ranks[..] {
            [rank] => format!("rank {rank}"),
            _ => format!("{} ranks ({}), each", self.ranks.len(), name_ranges(&self.ranks)),
        }
    }
}

/// Groups the ranks of a job of `size` ranks, the largest group first.
pub fn group_ranks(size: usize, described: &[DescribedRank<'_>]) -> Vec<RankGroup> {
    let mut order: Vec<Vec<DescribedRank<'_>>> = Vec::new();
    let mut known: HashMap<Vec<&str>, usize> = HashMap::new();
    for &(rank, text) in described {
        let at = *known.entry(split_numbers(text).words).or_insert(order.len());
        match order.get_mut(at) {
            Some(group) => group.push((rank, text)),
            None => order.push(vec![(rank, text)]),
        }
    }
    order.sort_by_key(|group| std::cmp::Reverse(group.len()));
    order.iter().map(|group| merge(size, group)).collect()
}

/// Keeps the largest groups, and describes the others in one line.
pub fn limit_groups(mut groups: Vec<RankGroup>) -> (Vec<RankGroup>, Option<String>) {
    if groups.len() <= GROUPS_MAX {
        return (groups, None);
    }
    let others = groups.split_off(GROUPS_MAX);
    let mut ranks: Vec<usize> = others.iter().flat_map(|group| group.ranks.clone()).collect();
    ranks.sort_unstable();
    let noun = if ranks.len() == 1 { "rank does" } else { "ranks do" };
    let said = format!("{} more {noun} other things ({})", ranks.len(), name_ranges(&ranks));
    (groups, Some(said))
}

/// A text as its words between numbers, and the places of the numbers.
struct SplitText<'a> {
    words: Vec<&'a str>,
    numbers: Vec<Range<usize>>,
}

/// Splits a text at its decimal numbers. Digits within a name, as in `x86_64`, belong to the name.
fn split_numbers(text: &str) -> SplitText<'_> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_name = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    let mut split = SplitText { words: Vec::new(), numbers: Vec::new() };
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        if !is_digit(at) || at > 0 && is_name(at - 1) {
            at += 1;
            continue;
        }
        let first = at;
        while is_digit(at) || bytes.get(at) == Some(&b'.') && is_digit(at + 1) {
            at += 1;
        }
        split.words.push(&text[start..first]);
        split.numbers.push(first..at);
        start = at;
    }
    split.words.push(&text[start..]);
    split
}

fn merge(size: usize, group: &[DescribedRank<'_>]) -> RankGroup {
    let ranks: Vec<usize> = group.iter().map(|(rank, _)| *rank).collect();
    let split: Vec<SplitText<'_>> = group.iter().map(|(_, text)| split_numbers(text)).collect();
    let words = &split[0].words;
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        text += word;
        if at + 1 < words.len() {
            let numbers =
                group.iter().zip(&split).map(|((_, text), s)| &text[s.numbers[at].clone()]);
            let numbers: Vec<&str> = numbers.collect();
            let is_rank = word.ends_with("peer ") || word.ends_with("rank ");
            let distance = is_rank.then(|| find_distance(size, &ranks, &numbers)).flatten();
            text += &distance.unwrap_or_else(|| name_range(&numbers));
        }
    }
    RankGroup { ranks, text }
}

/// Formats the constant distance between each rank and its number, or the distance modulo `size` if all numbers are
/// ranks of the job; `None` if the numbers are equal or at different distances.
fn find_distance(size: usize, ranks: &[usize], numbers: &[&str]) -> Option<String> {
    let peers: Option<Vec<i64>> =
        numbers.iter().map(|number| number.parse::<u32>().ok().map(i64::from)).collect();
    let (peers, size) = (peers?, size as i64);
    if peers.iter().all(|peer| *peer == peers[0]) {
        return None;
    }
    let distances: Vec<i64> =
        peers.iter().zip(ranks).map(|(peer, rank)| peer - *rank as i64).collect();
    let first = distances[0];
    if distances.iter().all(|distance| *distance == first) {
        return Some(match first {
            0 => "own rank".to_owned(),
            1.. => format!("own rank + {first}"),
            _ => format!("own rank - {}", -first),
        });
    }
    let up = first.rem_euclid(size);
    let is_modular = |distance: &i64| distance.rem_euclid(size) == up;
    if !peers.iter().all(|peer| *peer < size) || !distances.iter().all(is_modular) {
        return None;
    }
    Some(match size - up {
        down if up <= down => format!("own rank + {up}, modulo {size}"),
        down => format!("own rank - {down}, modulo {size}"),
    })
}

/// Formats equal numbers as one, and others as smallest and largest.
fn name_range(numbers: &[&str]) -> String {
    let value = |number: &&&str| number.parse().unwrap_or(0.0);
    let by_value = |a: &&&str, b: &&&str| f64::total_cmp(&value(a), &value(b));
    match (numbers.iter().min_by(by_value), numbers.iter().max_by(by_value)) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (least, _) => least.map_or(String::new(), |number| (*number).to_owned()),
    }
}

/// Formats ascending numbers as ranges: "0-2, 5, 7-9".
pub fn name_ranges(ranks: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let range = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let mut named: Vec<String> = ranges.iter().take(RANGES_MAX).map(range).collect();
    if ranges.len() > RANGES_MAX {
        let rest = &ranges[RANGES_MAX..];
        let more: usize = rest.iter().map(|(first, last)| last - first + 1).sum();
        named.push(format!("and {more} more"));
    }
    named.join(", ")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn group(size: usize, texts: &[String]) -> Vec<RankGroup> {
        let described: Vec<_> = texts.iter().map(String::as_str).enumerate().collect();
        group_ranks(size, &described)
    }

    #[test]
    fn group__of_a_ring_gives_the_distance_of_the_peer_and_the_range_of_times() {
        let ring = |step: usize| -> Vec<String> {
            let text = |rank: usize| {
                let peer = (rank + step) % 200;
                format!("waits in MPI_Recv, peer {peer}, tag 7, for {}.5 s", 2 + rank % 2)
            };
            (0..200).map(text).collect()
        };
        let groups = group(200, &ring(1));
        assert_eq!(groups.len(), 1, "{groups:?}");
        let text = "waits in MPI_Recv, peer own rank + 1, modulo 200, tag 7, for 2.5 to 3.5 s";
        assert_eq!(groups[0].text, text);
        assert_eq!(groups[0].name(), "200 ranks (0-199), each");
        assert!(group(200, &ring(199))[0].text.contains("peer own rank - 1, modulo 200, tag 7"));
        assert!(group(200, &ring(1)[..9])[0].text.contains("peer own rank + 1, tag 7"));
        let text = "waits in MPI_Recv, peer own rank - 1, tag 7";
        let described =
            [(3, "waits in MPI_Recv, peer 2, tag 7"), (8, "waits in MPI_Recv, peer 7, tag 7")];
        assert_eq!(group_ranks(9, &described)[0].text, text);
    }

    #[test]
    fn distance__is_modular_only_between_ranks_of_the_job() {
        let find = |numbers: &[&str]| find_distance(4, &[0, 1, 2, 3], numbers);
        assert_eq!(find(&["3", "0", "1", "2"]).unwrap(), "own rank - 1, modulo 4");
        assert_eq!(find(&["1", "2", "3", "4"]).unwrap(), "own rank + 1");
        // Rank 7 is on another host, so the job has more than the 4 ranks of this host.
        assert_eq!(find(&["7", "0", "1", "2"]), None);
        assert_eq!(find(&["18446744073709551615", "0", "1", "2"]), None);
    }

    #[test]
    fn groups__differ_in_words_and_the_largest_comes_first() {
        let text = |rank: usize| match rank {
            3 => "runs, or polls for a message".to_owned(),
            _ => "waits in MPI_Bcast for x86_64, peer 3".to_owned(),
        };
        let groups = group(6, &(0..6).map(text).collect::<Vec<_>>());
        let named: Vec<(String, &str)> =
            groups.iter().map(|g| (g.name(), g.text.as_str())).collect();
        let waits =
            ("5 ranks (0-2, 4-5), each".to_owned(), "waits in MPI_Bcast for x86_64, peer 3");
        assert_eq!(named, [waits, ("rank 3".to_owned(), "runs, or polls for a message")]);
    }

    #[test]
    fn groups__above_the_limit_are_counted_in_one_line() {
        let words = |number: usize| "x".repeat(number + 1);
        let groups = group(50, &(0..50).map(words).collect::<Vec<_>>());
        let (kept, others) = limit_groups(groups);
        assert_eq!(kept.len(), GROUPS_MAX);
        assert_eq!(others.unwrap(), "38 more ranks do other things (12-49)");
        assert_eq!(limit_groups(kept.clone()), (kept, None));
    }

    #[test]
    fn ranges__are_limited() {
        assert_eq!(name_ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        let odd: Vec<usize> = (0..20).map(|n| 2 * n + 1).collect();
        assert_eq!(name_ranges(&odd), "1, 3, 5, 7, 9, 11, and 14 more");
    }
}
