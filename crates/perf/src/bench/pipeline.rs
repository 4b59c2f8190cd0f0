//! The floor of large messages beside a ping-pong: the bare pipeline, before the run and after it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::options::BenchOptions;
use super::table::describe_pair;
use crate::catalogue::Test;
use crate::measure::pipeline::beside::{Beside, SIZES, is_floor_of};
use crate::measure::placement::allowed_processors;
use crate::measure::steps_of_four;
use crate::program::Settings;
use crate::record::{Case, Level, Of};

/// Sizes of the ping-pong of which the pipeline is the floor, where none are asked for.
const OWN_SIZES: [u64; 6] = steps_of_four(4 << 10);

/// Large sizes of the ping-pongs among these tests; none where the pipeline is no floor of them.
pub fn list_sizes(tests: &[&'static Test], options: &BenchOptions, ranks: u32) -> Vec<u64> {
    let transport = options.path.transport.map(|t| t.connection());
    let over_adapter = matches!(transport, Some(Some(_))) || options.has_level(Level::Verbs);
    match ranks == 2 && !options.measure.no_floor && !over_adapter {
        true => list_large(tests, &options.measure.case.sizes),
        false => Vec::new(),
    }
}

/// The same for what the program in C is told.
pub fn list_sizes_of(settings: &Settings, ranks: u32) -> Vec<u64> {
    let names = settings.tests.iter();
    let tests: Vec<_> = names.filter_map(|t| crate::catalogue::find(t)).collect();
    match ranks == 2 && !settings.no_floor {
        true => list_large(&tests, &settings.sizes),
        false => Vec::new(),
    }
}

fn list_large(tests: &[&'static Test], asked: &[u64]) -> Vec<u64> {
    let is_ping_pong = |t: &&&Test| t.of == Of::HalfRoundTrip;
    let sizes = match tests.iter().find(is_ping_pong) {
        None => &[],
        Some(_) if !asked.is_empty() => asked,
        Some(_) if tests.iter().any(|t| t.name == "latency") => &OWN_SIZES[..],
        // The others are of small messages, if nobody asks for more.
        Some(_) => &[],
    };
    let large = sizes.iter().copied();
    large.filter(|bytes| SIZES.contains(bytes)).collect()
}

/// The pipelines of a session, by pair of processors: where the ranks ran is known when they have.
#[derive(Default)]
pub struct Pipelines {
    known: Vec<Beside>,
    /// All sizes that it has to have plans for.
    all: BTreeSet<u64>,
    /// Where the ranks of the last run were.
    pair: Option<[usize; 2]>,
    /// That of the run that is under way, and the sizes of its messages.
    current: Option<usize>,
    sizes: Vec<u64>,
}

impl Pipelines {
    /// Says which sizes will come, so that there is one search for all of them.
    pub fn expect(&mut self, sizes: &[u64]) {
        self.all.extend(sizes);
    }

    /// Measures the pipeline for messages of these sizes between the processors of the last run, or
    /// the first two; the first time its best plans are searched for, which takes a second.
    pub fn begin_run(&mut self, sizes: &[u64]) {
        self.sizes = sizes.to_vec();
        self.expect(sizes);
        self.known.iter_mut().for_each(Beside::begin_run);
        self.current = None;
        let first = match allowed_processors()[..] {
            [first, second, ..] => Some([first, second]),
            _ => None,
        };
        if let Some(pair) = self.pair.or(first) {
            self.measure(pair);
        }
    }

    /// Measures it again, between the processors that the ranks had, and makes it the floor of the
    /// cases that it is the floor of.
    pub fn end_run(&mut self, cases: &mut [Case]) {
        let seen = cases.iter().find(|c| is_floor_of(c));
        let seen = seen.and_then(|c| match c.processors[..] {
            [one, two] => Some([usize::try_from(one).ok()?, usize::try_from(two).ok()?]),
            _ => None,
        });
        if let Some(pair) = seen {
            self.pair = Some(pair);
            self.measure(pair);
        }
        if let Some(current) = self.current {
            let pipeline = &self.known[current];
            cases.iter_mut().for_each(|c| pipeline.attach(c));
        }
    }

    /// A pair that cannot be measured has no such floor: the cases keep that of the program.
    fn measure(&mut self, pair: [usize; 2]) {
        self.current = None;
        if self.sizes.is_empty() {
            return;
        }
        let Some(at) = self.find(pair) else {
            return;
        };
        if self.known[at].measure(&self.sizes).is_ok() {
            self.current = Some(at);
        }
    }

    /// The pipeline between two processors, with plans for all sizes.
    fn find(&mut self, pair: [usize; 2]) -> Option<usize> {
        let turned = [pair[1], pair[0]];
        let is_it = |b: &Beside| b.processors == pair || b.processors == turned;
        let lacks = |b: &Beside| !self.all.iter().all(|&bytes| b.has(bytes));
        let known = self.known.iter().position(is_it);
        if let Some(at) = known
            && !lacks(&self.known[at])
        {
            return known;
        }
        let sizes: Vec<u64> = self.all.iter().copied().collect();
        let beside = Beside::search(pair, &sizes).ok().flatten()?;
        if let Some(at) = known {
            self.known[at] = beside;
            return known;
        }
        self.known.push(beside);
        Some(self.known.len() - 1)
    }

    /// The case with the floor as it is known so far.
    pub fn attached<'a>(&self, case: &'a Case) -> Cow<'a, Case> {
        match self.current {
            Some(current) if is_floor_of(case) => {
                let mut case = case.clone();
                self.known[current].attach(&mut case);
                Cow::Owned(case)
            }
            _ => Cow::Borrowed(case),
        }
    }

    /// What stands below the tables of a run: each size with its plan and what it took.
    pub fn describe(&self, cases: &[Case]) -> Vec<String> {
        let Some(beside) = self.current.map(|at| &self.known[at]) else {
            return Vec::new();
        };
        let is_of = |bytes: usize| {
            let of_size = move |c: &&Case| c.bytes == bytes as u64 && c.floor_line.is_some();
            cases.iter().any(|c| of_size(&c))
        };
        let [one, two] = beside.processors.map(|p| p as i32);
        let mut lines = Vec::new();
        for best in beside.sizes.iter().filter(|b| is_of(b.bytes())) {
            if lines.is_empty() {
                lines.push(format!(
                    "\nbare pipeline between {}, half a round trip in ns, before the run and after it; line: a cache line one way\n\
                     {:>9} {:>11} {:>6} {:>11} {:>6} {:>6}  loops into and out of the ring, chunk, ring",
                    describe_pair(one, two), "bytes", "before", "line", "after", "line", "GB/s"
                ));
            }
            lines.push(format_best(best));
        }
        lines
    }
}

fn format_best(best: &crate::measure::pipeline::beside::Best) -> String {
    use crate::measure::statistics::summarize;
    let cells = |taken: Option<&crate::measure::pipeline::Taken>| match taken {
        Some(taken) => {
            let time = summarize(&taken.times).map_or(f64::NAN, |t| t.median);
            let line = (taken.lines[0] + taken.lines[1]) / 2.0;
            (time, format!("{time:>11.1} {line:>6.0}"))
        }
        None => (f64::NAN, format!("{:>11} {:>6}", "-", "-")),
    };
    let (before, first) = cells(best.taken.first());
    let (after, second) = cells(best.taken.get(1));
    let rate = best.bytes() as f64 / before.min(after);
    format!(
        "{:>9} {first} {second} {rate:>6.1}  {}",
        best.bytes(),
        best.found.plan
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use crate::cli::parse_options;

    const NONE: [u64; 0] = [];

    fn list(words: &[&str], ranks: u32) -> Vec<u64> {
        let options: BenchOptions = parse_options(words).unwrap();
        list_sizes(&options.choose_tests().unwrap(), &options, ranks)
    }

    #[test]
    fn sizes__are_large_ones_of_a_ping_pong_in_shared_memory() {
        assert_eq!(list(&["latency"], 2), OWN_SIZES);
        assert_eq!(list(&["latency", "--sizes=8,4K,64M"], 2), [4096]);
        assert_eq!(list(&["idle", "rate"], 2), NONE);
        assert_eq!(list(&["wildcard", "--sizes=64K"], 2), [65536]);
        for words in [
            &["rate", "--sizes=64K"][..],
            &["latency", "--no-floor"],
            &["latency", "--transport=rc"],
            &["latency", "--level=verbs"],
        ] {
            assert_eq!(list(words, 2), NONE, "{words:?}");
        }
        assert_eq!(list(&["latency"], 4), NONE);
        let settings = Settings {
            tests: vec!["latency".into()],
            ..Settings::default()
        };
        assert_eq!(list_sizes_of(&settings, 2), OWN_SIZES);
        assert_eq!(list_sizes_of(&settings, 8), NONE);
    }

    #[test]
    fn own_sizes__are_the_large_ones_of_the_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/program/pairwise.c");
        let text = std::fs::read_to_string(path).unwrap();
        let sizes = text.split("#define SIZES \"").nth(1).unwrap();
        let sizes = sizes.split('"').next().unwrap();
        let all: Vec<String> = OWN_SIZES.map(|s| s.to_string()).to_vec();
        let large = list(&["latency", &format!("--sizes={sizes}")], 2);
        assert_eq!(large.iter().map(u64::to_string).collect::<Vec<_>>(), all);
        assert_eq!(find("latency").unwrap().of, Of::HalfRoundTrip);
    }

    #[test]
    fn pipelines__without_large_sizes_measure_nothing() {
        let mut pipelines = Pipelines::default();
        pipelines.begin_run(&[]);
        pipelines.end_run(&mut []);
        assert!(pipelines.describe(&[]).is_empty());
    }
}
