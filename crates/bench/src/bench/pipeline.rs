//! Floor of the large messages of a ping-pong: the bare pipeline, before and after the run.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fastpath_machine::measure::floor::measure_lines;
use fastpath_machine::measure::pipeline::beside::{
    BestPipeline, PipelineRun, SIZES, SampleTime, is_floor_of,
};
use fastpath_machine::measure::placement::allowed_processors;
use fastpath_machine::measure::steps_of_four;
use fastpath_report::catalogue::Test;
use fastpath_report::document::{Document, Table};
use fastpath_report::output::table::describe_pair;
use fastpath_report::record::{Case, Level, Quantity};
use fastpath_report::statistics::is_same_line;
use fastpath_report::statistics::summarize;

use super::options::BenchOptions;
use crate::program::Settings;

/// Default sizes of the ping-pong whose floor is the pipeline, in bytes.
const OWN_SIZES: [u64; 6] = steps_of_four(4 << 10);

/// Large sizes of the ping-pongs among `tests`; empty if the pipeline is not their floor.
pub fn list_sizes(tests: &[&'static Test], options: &BenchOptions, ranks: u32) -> Vec<u64> {
    let transport = options.path.transport.map(|t| t.connection());
    let over_adapter = matches!(transport, Some(Some(_))) || options.has_level(Level::Verbs);
    let on_one_host = options.mpi.hosts.is_empty();
    match ranks == 2 && !options.measure.no_floor && !over_adapter && on_one_host {
        true => list_large(tests, &options.measure.case.sizes),
        false => Vec::new(),
    }
}

/// Large sizes of the ping-pongs in the settings of the C program; empty if the pipeline is not their floor.
pub fn list_sizes_of(settings: &Settings, ranks: u32) -> Vec<u64> {
    let names = settings.tests.iter();
    let tests: Vec<_> = names.filter_map(|t| fastpath_report::catalogue::find(t)).collect();
    match ranks == 2 && !settings.no_floor {
        true => list_large(&tests, &settings.case.sizes),
        false => Vec::new(),
    }
}

fn list_large(tests: &[&'static Test], asked: &[u64]) -> Vec<u64> {
    let is_ping_pong = |t: &&&Test| t.of == Quantity::HalfRoundTrip;
    let sizes = match tests.iter().find(is_ping_pong) {
        None => &[],
        Some(_) if !asked.is_empty() => asked,
        Some(_) if tests.iter().any(|t| t.name == "latency") => &OWN_SIZES[..],
        Some(_) => &[],
    };
    let large = sizes.iter().copied();
    large.filter(|bytes| SIZES.contains(bytes)).collect()
}

/// Pipelines of a session, by processor pair and cache-line time. The ranks' processors are known only after a run. The
/// cache-line time identifies the state of a virtual machine; each state may have another best plan.
#[derive(Default)]
pub struct Pipelines {
    known: Vec<PipelineRun>,
    all: BTreeSet<u64>,
    pair: Option<[usize; 2]>,
    sizes: Vec<u64>,
}

/// Largest number of searches in a session: each takes a fifth of a second for each size.
const SEARCHES: usize = 6;

impl Pipelines {
    /// Announces sizes, so that one search covers all of them.
    pub fn expect(&mut self, sizes: &[u64]) {
        self.all.extend(sizes);
    }

    /// Measures the pipeline for messages of these sizes, between the processors of the last run or, before the first
    /// run, the first two usable processors. Searches for the best plans the first time.
    pub fn begin_run(&mut self, sizes: &[u64]) {
        self.sizes = sizes.to_vec();
        self.expect(sizes);
        self.known.iter_mut().for_each(PipelineRun::begin_run);
        let first = match allowed_processors()[..] {
            [first, second, ..] => Some([first, second]),
            _ => None,
        };
        if let Some(pair) = self.pair.or(first) {
            self.measure(pair, SampleTime::Before);
        }
    }

    /// Measures the pipeline again, between the ranks' processors, and attaches it to the cases as their floor.
    pub fn end_run(&mut self, cases: &mut [Case]) {
        let seen = cases.iter().find(|c| is_floor_of(c));
        let seen = seen.and_then(|c| match c.processors[..] {
            [one, two] => Some([usize::try_from(one).ok()?, usize::try_from(two).ok()?]),
            _ => None,
        });
        if let Some(pair) = seen {
            self.pair = Some(pair);
            self.measure(pair, SampleTime::After);
        }
        cases.iter_mut().for_each(|case| self.attach(case));
    }

    /// Measures the pipeline of one processor pair. If that fails, the pair's cases keep the floor that the program
    /// measured.
    fn measure(&mut self, pair: [usize; 2], when: SampleTime) {
        if self.sizes.is_empty() {
            return;
        }
        if let Some(at) = self.find(pair) {
            let _ = self.known[at].measure(&self.sizes, when);
        }
    }

    /// Returns the pipeline that was measured between two processors at about their present cache-line time. If there
    /// is none, searches for a pipeline and adds it. Once `SEARCHES` pipelines are known, takes any known pipeline
    /// between the two processors instead, if there is one.
    fn find(&mut self, pair: [usize; 2]) -> Option<usize> {
        let lines = measure_lines(pair, LINES, LINE_BATCH_NS).ok()?;
        let line = summarize(&lines)?.min;
        let has_all = |b: &PipelineRun| self.all.iter().all(|&bytes| b.has(bytes));
        let fits = |b: &PipelineRun| b.is_between(pair) && has_all(b);
        let alike = |b: &PipelineRun| fits(b) && is_same_line(b.line, line);
        let (known, other) = (self.known.iter().position(alike), self.known.iter().position(fits));
        if known.is_some() || other.is_some() && self.known.len() >= SEARCHES {
            return known.or(other);
        }
        let sizes: Vec<u64> = self.all.iter().copied().collect();
        let beside = PipelineRun::search(pair, &sizes).ok().flatten()?;
        self.known.push(beside);
        Some(self.known.len() - 1)
    }

    /// Attaches the floor to a case: the floor measured at the case's cache-line time, or else the last floor.
    fn attach(&self, case: &mut Case) {
        for alike in [true, false] {
            if self.known.iter().rev().any(|b| b.attach(case, alike)) {
                return;
            }
        }
    }

    /// Returns the case with the floor that was measured so far.
    pub fn attached<'a>(&self, case: &'a Case) -> Cow<'a, Case> {
        if !is_floor_of(case) {
            return Cow::Borrowed(case);
        }
        let mut case = case.clone();
        self.attach(&mut case);
        Cow::Owned(case)
    }

    /// Text below the tables of a run: each size with its plan and its time.
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
                "bare pipeline between {pair}, half a round trip, measured before and after the run"
            ));
            said.table(table);
            said.text(LEGEND);
        }
        said
    }
}

/// Number of batches of the cache-line measurement that detects the state of the machine.
const LINES: usize = 5;
const LINE_BATCH_NS: u64 = 20_000;

const LEGEND: &str = "line: ns of a cache line one way, measured with the pipeline; ratio: median \
    of the ping-pong divided by the sum of pipeline and line, omitted if the time of the line \
    changed during the ping-pong";

/// Adds a row for each measurement of the pipeline beside the case.
fn add_best(best: &BestPipeline, case: &Case, table: &mut Table) {
    let median = case.samples.quantile(0.5);
    for (when, taken) in &best.taken {
        let time = summarize(&taken.times).map_or(f64::NAN, |t| t.median);
        let alike = case.line().is_some_and(|line| taken.is_at(line));
        let ratio = median.filter(|_| alike).map(|m| m / (time + taken.line()));
        table.row([
            case.bytes.to_string(),
            case.variant.clone(),
            match when {
                SampleTime::Before => "before".to_owned(),
                SampleTime::After => "after".to_owned(),
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
        assert_eq!(find("latency").unwrap().of, Quantity::HalfRoundTrip);
    }

    #[test]
    fn pipelines__without_large_sizes_measure_nothing() {
        let mut pipelines = Pipelines::default();
        pipelines.begin_run(&[]);
        pipelines.end_run(&mut []);
        assert!(pipelines.describe(&[]).0.is_empty());
    }
}
