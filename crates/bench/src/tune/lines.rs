//! `fastpath tune lines`: measures the time of a cache line between each two cores, and finds the cores that share an
//! L3 cache. A virtual machine may hide its caches; the launcher then groups ranks by the stored result.

use anyhow::{Context, Result, bail};
use clap::Args;
use fastpath_base::config::Config;
use fastpath_base::host_topology::LineTimes;
use fastpath_base::stored::{self, Machine, TuningSource};
use fastpath_base::topology::{self, CpuSet};
use fastpath_machine::measure::floor::measure_lines;
use fastpath_report::output;

use super::{BATCH_NS, NOT_STORED, SHARED_PROCESSOR_NS, least};

/// Options of `fastpath tune lines`.
#[derive(Args, Debug)]
pub struct LinesOptions {
    /// Print the times between all cores, in nanoseconds
    #[arg(long)]
    pub matrix: bool,
    /// Print the result and store nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Samples of each pair. The smallest counts, because interference only makes samples larger.
const SAMPLES: usize = 5;

/// Measurements of a pair until another program no longer shares one of its processors.
const ATTEMPTS: usize = 20;

/// Runs `fastpath tune lines`: measures, prints and stores.
///
/// # Errors
/// The settings are invalid, a processor cannot be used or is shared with another program, or nothing can be written.
pub fn run(options: &LinesOptions) -> Result<()> {
    let config = Config::from_env()?;
    let machine = Machine::current();
    let path = TuningSource::of(&config).lines_path(&machine);
    let path =
        path.context("no file is stored: there is no cache directory, or FASTPATH_TUNING is set")?;
    // The hardware threads of a core share its caches, so one of them stands for the core.
    let cores = topology::list_cores(&topology::affinity());
    let mut processors: Vec<usize> =
        cores.iter().filter_map(|core| core.threads.first().copied()).collect();
    processors.sort_unstable();
    let times = LineTimes::collect(processors, measure_pair)?;
    if options.matrix {
        output::print(&describe_matrix(&times))?;
    }
    output::print(&describe_caches(&times))?;
    if options.dry_run {
        return Ok(());
    }
    let written = stored::write_file(&path, &times.to_text(&machine));
    written.with_context(|| format!("{NOT_STORED}: {}", path.display()))?;
    output::print(&format!("stored in {}\n", path.display()))
}

/// Measures the one-way time of a line between two processors, in nanoseconds.
fn measure_pair(pair: [usize; 2]) -> Result<f64> {
    for _ in 0..ATTEMPTS {
        let ns = least(&measure_lines(pair, SAMPLES, BATCH_NS)?);
        if ns <= SHARED_PROCESSOR_NS {
            return Ok(ns);
        }
    }
    let [one, two] = pair;
    bail!(
        "another program runs on processor {one} or {two}: run the command again on an idle machine"
    )
}

fn describe_range(range: Option<[f64; 2]>) -> String {
    range.map_or_else(String::new, |[low, high]| format!(": {low:.1} to {high:.1} ns"))
}

/// Describes each L3 cache with the times between its cores, and then the times between caches.
fn describe_caches(times: &LineTimes) -> String {
    let caches = times.find_caches();
    let has_both = |set: &CpuSet, [one, two]: [usize; 2]| set.contains(one) && set.contains(two);
    let mut text = String::new();
    for (number, cache) in caches.iter().enumerate() {
        let range = describe_range(times.find_range(|pair| has_both(cache, pair)));
        text += &format!("L3 cache {number}, processors {cache}{range}\n");
    }
    let [_, between] = times.find_ranges();
    if between.is_some() {
        text += &format!("between L3 caches{}\n", describe_range(between));
    }
    text
}

fn describe_matrix(times: &LineTimes) -> String {
    let mut text = String::new();
    let mut pairs = times.pairs().peekable();
    for &cpu in times.processors() {
        text += &format!("{cpu:>5}");
        while let Some((_, ns)) = pairs.next_if(|(pair, _)| pair[1] == cpu) {
            text += &format!(" {ns:>6.1}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn two_caches() -> LineTimes {
        let ns =
            |[a, b]: [usize; 2]| Ok::<f64, ()>(if a / 2 == b / 2 { 25.0 } else { 90.0 + b as f64 });
        LineTimes::collect((0..4).collect(), ns).unwrap()
    }

    #[test]
    fn caches__are_shown_with_their_times() {
        let expected = "L3 cache 0, processors 0-1: 25.0 to 25.0 ns\n\
            L3 cache 1, processors 2-3: 25.0 to 25.0 ns\n\
            between L3 caches: 92.0 to 93.0 ns\n";
        assert_eq!(describe_caches(&two_caches()), expected);
        let alone = LineTimes::collect(vec![5], |_| Ok::<f64, ()>(0.0)).unwrap();
        assert_eq!(describe_caches(&alone), "L3 cache 0, processors 5\n");
    }

    #[test]
    fn matrix__has_a_row_for_each_processor() {
        let text = describe_matrix(&two_caches());
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["0"]);
        assert_eq!(lines[3], ["3", "93.0", "93.0", "25.0"]);
    }
}
