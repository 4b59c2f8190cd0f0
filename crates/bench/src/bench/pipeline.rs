//! The floor of large messages beside a ping-pong: the bare pipeline, before the run and after it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fastpath_machine::measure::floor::measure_lines;
use fastpath_machine::measure::pipeline::beside::{Beside, Best, SIZES, When, is_floor_of};
use fastpath_machine::measure::placement::allowed_processors;
use fastpath_machine::measure::steps_of_four;
use fastpath_report::catalogue::Test;
use fastpath_report::document::{Document, Table};
use fastpath_report::output::table::describe_pair;
use fastpath_report::record::{Case, Level, Of};
use fastpath_report::statistics::is_same_line;
use fastpath_report::statistics::summarize;

use super::options::BenchOptions;
use crate::program::Settings;

/// Default sizes of the ping-pong whose floor is the pipeline.
const OWN_SIZES: [u64; 6] = steps_of_four(4 << 10);

/// Large sizes of the ping-pongs among these tests; none where the pipeline is no floor of them.
pub fn list_sizes(tests: &[&'static Test], options: &BenchOptions, ranks: u32) -> Vec<u64> {
    let transport = options.path.transport.map(|t| t.connection());
    let over_adapter = matches!(transport, Some(Some(_))) || options.has_level(Level::Verbs);
    let on_one_host = options.mpi.hosts.is_empty();
    match ranks == 2 && !options.measure.no_floor && !over_adapter && on_one_host {
        true => list_large(tests, &options.measure.case.sizes),
        false => Vec::new(),
    }
}

/// The same for the settings of the program in C.
pub fn list_sizes_of(settings: &Settings, ranks: u32) -> Vec<u64> {
    let names = settings.tests.iter();
    let tests: Vec<_> = names.filter_map(|t| fastpath_report::catalogue::find(t)).collect();
    match ranks == 2 && !settings.no_floor {
        true => list_large(&tests, &settings.case.sizes),
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

/// The pipelines of a session, by pair of processors and by the time of a line between them: where
/// the ranks ran is known when they have, and a plan that is best in one state of a virtual machine
/// may not be in another.
#[derive(Default)]
pub struct Pipelines {
    known: Vec<Beside>,
    /// All sizes that it has to have plans for.
    all: BTreeSet<u64>,
    /// Where the ranks of the last run were.
    pair: Option<[usize; 2]>,
    /// Sizes of the run that is under way.
    sizes: Vec<u64>,
}

/// Searches of a session at most: a fifth of a second for each size.
const SEARCHES: usize = 6;

impl Pipelines {
    /// Says which sizes will come, so that there is one search for all of them.
    pub fn expect(&mut self, sizes: &[u64]) {
        self.all.extend(sizes);
    }

    /// Measures the pipeline for messages of these sizes between the processors of the last run, or
    /// the first two; the first time its best plans are searched for.
    pub fn begin_run(&mut self, sizes: &[u64]) {
        self.sizes = sizes.to_vec();
        self.expect(sizes);
        self.known.iter_mut().for_each(Beside::begin_run);
        let first = match allowed_processors()[..] {
            [first, second, ..] => Some([first, second]),
            _ => None,
        };
        if let Some(pair) = self.pair.or(first) {
            self.measure(pair, When::Before);
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
            self.measure(pair, When::After);
        }
        cases.iter_mut().for_each(|case| self.attach(case));
    }

    /// A pair that cannot be measured has no such floor: the cases keep that of the program.
    fn measure(&mut self, pair: [usize; 2], when: When) {
        if self.sizes.is_empty() {
            return;
        }
        if let Some(at) = self.find(pair) {
            let _ = self.known[at].measure(&self.sizes, when);
        }
    }

    /// The pipeline between two processors in the state in which they are.
    fn find(&mut self, pair: [usize; 2]) -> Option<usize> {
        let lines = measure_lines(pair, LINES, LINE_BATCH_NS).ok()?;
        let line = summarize(&lines)?.min;
        let has_all = |b: &Beside| self.all.iter().all(|&bytes| b.has(bytes));
        let fits = |b: &Beside| b.is_between(pair) && has_all(b);
        let alike = |b: &Beside| fits(b) && is_same_line(b.line, line);
        let (known, other) = (self.known.iter().position(alike), self.known.iter().position(fits));
        if known.is_some() || other.is_some() && self.known.len() >= SEARCHES {
            return known.or(other);
        }
        let sizes: Vec<u64> = self.all.iter().copied().collect();
        let beside = Beside::search(pair, &sizes).ok().flatten()?;
        self.known.push(beside);
        Some(self.known.len() - 1)
    }

    /// Makes it the floor of a case: as measured in the state of the case, else as measured last.
    fn attach(&self, case: &mut Case) {
        for alike in [true, false] {
            if self.known.iter().rev().any(|b| b.attach(case, alike)) {
                return;
            }
        }
    }

    /// The case with the floor as it is known so far.
    pub fn attached<'a>(&self, case: &'a Case) -> Cow<'a, Case> {
        if !is_floor_of(case) {
            return Cow::Borrowed(case);
        }
        let mut case = case.clone();
        self.attach(&mut case);
        Cow::Owned(case)
    }

    /// What stands below the tables of a run: each size with its plan and what it took.
    pub fn describe(&self, cases: &[Case]) -> Document {
        let mut said = Document::default();
        let columns = "bytes>9|variant<14|when<6|median, ns>11|line>6|GB/s>6|ratio>7";
        let plan = " loops into and out of the ring, chunk, ring";
        let mut table = Table::of(&format!("{columns}|{plan}"));
        for case in cases.iter().filter(|c| c.floor_line.is_some()) {
            let best = self.known.iter().flat_map(|beside| &beside.sizes);
            let of_size = best.filter(|b| b.bytes() as u64 == case.bytes);
            of_size.for_each(|best| add_best(best, case, &mut table));
        }
        if let (false, Some(pair)) = (table.rows.is_empty(), self.pair) {
            let pair = describe_pair(pair[0] as i32, pair[1] as i32);
            said.heading(format!(
                "bare pipeline between {pair}, half a round trip, beside the run"
            ));
            said.table(table);
            said.text(LEGEND);
        }
        said
    }
}

/// Batches of the cache-line measurement that shows the state.
const LINES: usize = 5;
const LINE_BATCH_NS: u64 = 20_000;

const LEGEND: &str = "line: ns of a cache line one way beside it; ratio: the median of the \
    ping-pong to pipeline and \
                      line, where a line took as long";

/// A row for each time at which it was measured beside the case.
fn add_best(best: &Best, case: &Case, table: &mut Table) {
    let median = case.samples.quantile(0.5);
    for (when, taken) in &best.taken {
        let time = summarize(&taken.times).map_or(f64::NAN, |t| t.median);
        let alike = case.line().is_some_and(|line| taken.is_at(line));
        let ratio = median.filter(|_| alike).map(|m| m / (time + taken.line()));
        table.row([
            case.bytes.to_string(),
            case.variant.clone(),
            match when {
                When::Before => "before".to_owned(),
                When::After => "after".to_owned(),
            },
            format!("{time:.1}"),
            format!("{:.0}", taken.line()),
            format!("{:.1}", case.bytes as f64 / time),
            ratio.map_or("-".to_owned(), |r| format!("{r:.2}")),
            format!(" {}", best.found.plan),
        ]);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::catalogue::find;
    use fastpath_report::testing::parse_options;

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
        let settings = Settings { tests: vec!["latency".into()], ..Settings::default() };
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
        assert!(pipelines.describe(&[]).0.is_empty());
    }
}
