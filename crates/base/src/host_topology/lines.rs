//! L3 caches by measured times of cache lines, for hosts whose kernel does not report them, such as virtual machines.

use crate::stored::Machine;
use crate::topology::CpuSet;
use std::fmt::Write as _;

/// Smallest ratio of two consecutive heights in the tree of clusters that separates two levels of hardware. Within one
/// level published heights grow by at most 1.2 at a time. Between levels they grow by at least 1.7.
const LEVEL_RATIO: f64 = 1.4;

/// Shortest time, in nanoseconds, between cores that share an L3 cache. Pairs with shorter times are the hardware
/// threads of a core. Published means within an L3 cache begin at 19.8 ns, and times of threads end at 11 ns.
const THREADS_NS: f64 = 15.0;

/// First line of a file.
const TITLE: &str = "Fastpath line times 1";

/// Transfer times of a cache line between each pair of processors of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct LineTimes {
    processors: Vec<usize>,
    /// Half a round trip in nanoseconds, for each processor to the processors before it.
    rows: Vec<Vec<f64>>,
}

impl LineTimes {
    /// Collects times of processors, in ascending order. `measure` returns half a round trip, in nanoseconds, between
    /// two processors.
    ///
    /// # Errors
    /// The error of `measure`.
    pub fn collect<E>(
        processors: Vec<usize>, mut measure: impl FnMut([usize; 2]) -> Result<f64, E>,
    ) -> Result<LineTimes, E> {
        let mut rows = Vec::new();
        for (at, &cpu) in processors.iter().enumerate() {
            let row = processors[..at].iter().map(|&other| measure([other, cpu]));
            rows.push(row.collect::<Result<Vec<f64>, E>>()?);
        }
        Ok(LineTimes { processors, rows })
    }

    /// Returns the processors, in ascending order.
    pub fn processors(&self) -> &[usize] {
        &self.processors
    }

    /// Returns all pairs of processors with their times.
    pub fn pairs(&self) -> impl Iterator<Item = ([usize; 2], f64)> + '_ {
        self.rows.iter().enumerate().flat_map(move |(at, row)| {
            let pair = move |(other, &ns): (usize, &f64)| {
                ([self.processors[other], self.processors[at]], ns)
            };
            row.iter().enumerate().map(pair)
        })
    }

    /// Returns the shortest and the longest time, in nanoseconds, of the pairs for which `counts` is true. `None` if
    /// there is no such pair.
    pub fn find_range(&self, counts: impl Fn([usize; 2]) -> bool) -> Option<[f64; 2]> {
        let chosen = self.pairs().filter(|&(pair, _)| counts(pair)).map(|(_, ns)| ns);
        chosen.fold(None, |range, ns| {
            let [low, high] = range.unwrap_or([ns, ns]);
            Some([ns.min(low), ns.max(high)])
        })
    }

    /// Returns the range of times within L3 caches, and that between them.
    pub fn find_ranges(&self) -> [Option<[f64; 2]>; 2] {
        let caches = self.find_caches();
        let is_within = |[one, two]: [usize; 2]| {
            caches.iter().any(|set| set.contains(one) && set.contains(two))
        };
        [self.find_range(is_within), self.find_range(|pair| !is_within(pair))]
    }

    /// Returns the sets of processors that share an L3 cache, in the order of their first processors. All processors
    /// share one if the times show no two levels of hardware above the core.
    ///
    /// Clusters are joined by average linkage (Sokal and Michener 1958), whose averages absorb the noise of single
    /// times. A gap between consecutive heights of the tree is a change of level.
    pub fn find_caches(&self) -> Vec<CpuSet> {
        let merges = self.link();
        let mut parts = Clusters::new(self.processors.len());
        for (at, merge) in merges.iter().enumerate() {
            parts.join(merge.clusters);
            let has_gap =
                merges.get(at + 1).is_some_and(|next| next.height > LEVEL_RATIO * merge.height);
            if has_gap && parts.covers_most() && !(merge.height < THREADS_NS && parts.are_pairs()) {
                break;
            }
        }
        let set = |members: Vec<usize>| members.into_iter().map(|at| self.processors[at]).collect();
        parts.list().into_iter().map(set).collect()
    }

    /// Builds the tree of clusters from the closest two clusters on. Heights do not decrease.
    fn link(&self) -> Vec<Merge> {
        let mut times = self.rows.clone();
        let mut sizes = vec![1.0; times.len()];
        let mut merges = Vec::new();
        let time = |times: &[Vec<f64>], a: usize, b: usize| times[a.max(b)][a.min(b)];
        let mut left: Vec<usize> = (0..times.len()).collect();
        while left.len() > 1 {
            let pairs = left
                .iter()
                .enumerate()
                .flat_map(|(at, &b)| left[..at].iter().map(move |&a| [a, b]));
            let closest =
                pairs.min_by(|x, y| time(&times, x[0], x[1]).total_cmp(&time(&times, y[0], y[1])));
            let Some([a, b]) = closest else { break };
            merges.push(Merge { clusters: [a, b], height: time(&times, a, b) });
            left.retain(|&other| other != b);
            let all = sizes[a] + sizes[b];
            for &other in left.iter().filter(|&&other| other != a) {
                let sum = sizes[a] * time(&times, a, other) + sizes[b] * time(&times, b, other);
                times[a.max(other)][a.min(other)] = sum / all;
            }
            sizes[a] = all;
        }
        merges
    }

    /// Returns the text of a file with these times, measured on `machine`.
    pub fn to_text(&self, machine: &Machine) -> String {
        let mut text =
            format!("{TITLE}\nprocessor: {}\nkernel: {}\n", machine.processor, machine.kernel);
        for cache in self.find_caches() {
            let _ = writeln!(text, "cache: {cache}");
        }
        for (cpu, row) in self.processors.iter().zip(&self.rows) {
            let _ = write!(text, "times: {cpu}");
            row.iter().for_each(|ns| {
                let _ = write!(text, " {ns:.1}");
            });
            text.push('\n');
        }
        text
    }

    /// Parses the text of a file; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<LineTimes> {
        let mut times = LineTimes { processors: Vec::new(), rows: Vec::new() };
        let mut lines = text.lines();
        lines.next().filter(|&line| line == TITLE)?;
        for line in lines.filter_map(|line| line.strip_prefix("times: ")) {
            let mut words = line.split_whitespace();
            let cpu: usize = words.next()?.parse().ok()?;
            let is_time = |ns: &f64| ns.is_finite() && *ns > 0.0;
            let row = words.map(|word| word.parse().ok().filter(is_time));
            let row = row.collect::<Option<Vec<f64>>>()?;
            let is_next = times.processors.last().is_none_or(|&last| last < cpu);
            if !is_next || row.len() != times.processors.len() {
                return None;
            }
            times.processors.push(cpu);
            times.rows.push(row);
        }
        (!times.processors.is_empty()).then_some(times)
    }
}

/// Reads the sets of processors that share an L3 cache from the text of a file, without its times. `None` if it is
/// malformed.
pub(super) fn parse_caches(text: &str) -> Option<Vec<CpuSet>> {
    let mut lines = text.lines();
    lines.next().filter(|&line| line == TITLE)?;
    let lists = lines.take_while(|line| !line.starts_with("times:"));
    lists.filter_map(|line| line.strip_prefix("cache: ")).map(CpuSet::parse).collect()
}

/// Union of two clusters.
struct Merge {
    clusters: [usize; 2],
    /// Average time between their processors.
    height: f64,
}

/// Clusters of processors, each named by its lowest one.
struct Clusters(Vec<usize>);

impl Clusters {
    fn new(count: usize) -> Clusters {
        Clusters((0..count).collect())
    }

    fn join(&mut self, [into, from]: [usize; 2]) {
        self.0.iter_mut().filter(|name| **name == from).for_each(|name| *name = into);
    }

    fn list(&self) -> Vec<Vec<usize>> {
        let names = (0..self.0.len()).filter(|&at| self.0[at] == at);
        let members = |name| (0..self.0.len()).filter(|&at| self.0[at] == name).collect();
        names.map(members).collect()
    }

    /// Returns whether at least half of the processors share a cluster with another one. A single short time is no
    /// level.
    fn covers_most(&self) -> bool {
        let lists = self.list();
        let shared: usize = lists.iter().map(Vec::len).filter(|&len| len > 1).sum();
        2 * shared >= self.0.len()
    }

    /// Returns whether no cluster has more than two processors.
    fn are_pairs(&self) -> bool {
        self.list().iter().all(|list| list.len() <= 2)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parts of published measurements, with the caches that the makers of the processors name.
    const PUBLISHED: [(&str, &[&str]); 3] = [
        (
            include_str!("lines/epyc-9454-2s-smt.txt"),
            &["0-5,96-101", "6-11,102-107", "12-17,108-113", "48-53,144-149"],
        ),
        (include_str!("lines/kunpeng-920-1s.txt"), &["0-7", "32-39"]),
        (include_str!("lines/xeon-w9-3475x-1s.txt"), &["0-15"]),
    ];

    fn caches(times: &LineTimes) -> Vec<String> {
        times.find_caches().iter().map(CpuSet::to_string).collect()
    }

    fn machine() -> Machine {
        Machine { processor: "P".to_owned(), kernel: "K".to_owned() }
    }

    #[test]
    fn caches__of_published_hosts_are_found() {
        for (text, expected) in PUBLISHED {
            assert_eq!(caches(&LineTimes::parse(text).unwrap()), expected);
        }
    }

    #[test]
    fn ranges__within_and_between_caches() {
        let [within, between] = LineTimes::parse(PUBLISHED[1].0).unwrap().find_ranges();
        assert_eq!((within, between), (Some([33.3, 38.0]), Some([72.8, 84.4])));
        let [_, between] = LineTimes::parse(PUBLISHED[2].0).unwrap().find_ranges();
        assert_eq!(between, None);
    }

    #[test]
    fn caches__of_few_processors() {
        let alone = LineTimes::collect(vec![3], |_| Ok::<f64, ()>(1.0)).unwrap();
        assert_eq!(caches(&alone), ["3"]);
        let two = LineTimes::collect(vec![0, 9], |_| Ok::<f64, ()>(300.0)).unwrap();
        assert_eq!(caches(&two), ["0,9"]);
        // One processor of a third cache.
        let odd = |[a, b]: [usize; 2]| Ok::<f64, ()>(if a / 2 == b / 2 { 25.0 } else { 100.0 });
        let odd = LineTimes::collect((0..5).collect(), odd).unwrap();
        assert_eq!(caches(&odd), ["0-1", "2-3", "4"]);
    }

    #[test]
    fn caches__one_odd_time_is_no_level() {
        let odd = |pair: [usize; 2]| Ok::<f64, ()>(if pair == [1, 2] { 20.0 } else { 50.0 });
        let times = LineTimes::collect((0..8).collect(), odd).unwrap();
        assert_eq!(caches(&times), ["0-7"]);
    }

    #[test]
    fn file__round_trips() {
        for (text, expected) in PUBLISHED {
            let times = LineTimes::parse(text).unwrap();
            let written = times.to_text(&machine());
            assert_eq!(LineTimes::parse(&written).unwrap(), times);
            let found = parse_caches(&written).unwrap();
            assert!(found.iter().map(CpuSet::to_string).eq(expected.iter().copied()));
        }
    }

    #[test]
    fn malformed_files__are_refused() {
        let with = |rest: &str| LineTimes::parse(&format!("{TITLE}\n{rest}"));
        assert!(with("times: 0\ntimes: 1 5\n").is_some());
        for rest in [
            "",
            "times: 0\ntimes: 1\n",
            "times: 0\ntimes: 1 5 6\n",
            "times: 1\ntimes: 0 5\n",
            "times: 0\ntimes: 1 x\n",
            "times: 0\ntimes: 1 -5\n",
            "times: 0\ntimes: 1 inf\n",
            "times: 0\ntimes: 1 nan\n",
        ] {
            assert_eq!(with(rest), None, "{rest}");
        }
        assert_eq!(LineTimes::parse("times: 0\n"), None, "no title");
        assert_eq!(parse_caches(&format!("{TITLE}\ncache: 1-x\n")), None);
    }

    proptest! {
        #[test]
        fn caches__are_found_with_noise_of_10_percent(
            which in 0usize..3, noise in prop::collection::vec(0.9f64..1.1, 1128),
        ) {
            let (text, expected) = PUBLISHED[which];
            let mut times = LineTimes::parse(text).unwrap();
            let values = times.rows.iter_mut().flatten();
            values.zip(noise).for_each(|(ns, factor)| *ns *= factor);
            prop_assert_eq!(caches(&times), expected);
        }
    }

    #[test]
    fn fuzz__files_of_line_times() {
        let corpus: &[&[u8]] = &[
            PUBLISHED[2].0.as_bytes(),
            b"Fastpath line times 1\ncache: 0-1\ncache: 2\ntimes: 0\ntimes: 1 9.5\ntimes: 2 90 91\n",
        ];
        crate::mutate::run(corpus, |input| {
            let text = String::from_utf8_lossy(input);
            let _ = parse_caches(&text);
            if let Some(times) = LineTimes::parse(&text) {
                let all: usize = times.find_caches().iter().map(CpuSet::len).sum();
                assert!(all <= times.processors().len());
            }
        });
    }
}
