//! Command line of `fastpath compare`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fastpath_base::topology;
use fastpath_report::catalogue::{self, Participants, TestGroup};
use fastpath_report::compare::Statistic;
use fastpath_report::refuse_usage;

use super::loads;
use super::rounds::RunPlan;
use crate::options::{CaseOptions, MpiOptions, ViewOptions, parse_bytes, parse_ranks, parse_time};
use crate::peers::PeerOptions;
use crate::program::Settings;

/// Options of `fastpath compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// Two stored results, the earlier first; several runs of a side separated by commas. Or one stored comparison, to
    /// print it again
    #[arg(value_name = "RESULT")]
    pub results: Vec<String>,
    /// The other MPIs
    #[command(flatten)]
    pub peers: PeerOptions,
    /// This MPI
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Measurement options
    #[command(flatten)]
    pub measure: MeasureOptions,
    /// Statistic by which runs are compared
    #[arg(help_heading = "Comparison", long, value_enum, default_value_t)]
    pub statistic: Statistic,
    /// Stored results: report a change if it exceeds this percentage and the interval excludes 1
    #[arg(help_heading = "Comparison", long, value_name = "PERCENT", default_value_t = 5.0,
        value_parser = parse_percent)]
    pub threshold: f64,
    /// Stored results: ignore cases that only one side has
    #[arg(help_heading = "Comparison", long)]
    pub common: bool,
    /// Write the comparison to this file as JSON; `-`: to standard output, instead of the table
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the comparison to this file as Markdown; `-`: to standard output, instead of the table
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Update the table in this file between `<!-- comparison: ... -->` and `<!-- end of comparison -->`
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub readme: Option<PathBuf>,
    /// Insert this Markdown file, made by `bench/levels`, as a section of the page of --markdown
    #[arg(help_heading = "Output", long, value_name = "FILE", requires = "markdown")]
    pub levels: Option<PathBuf>,
    /// Store each turn in this file as soon as it is measured. An interrupted comparison continues when it is started
    /// again with the same options and build
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub keep: Option<PathBuf>,
    /// Stop after this time, between two turns, with exit code 3; the same command then continues
    #[arg(help_heading = "Output", long, value_name = "DURATION", requires = "keep",
        value_parser = parse_time)]
    pub stop_after: Option<f64>,
    /// Form of the tables
    #[command(flatten)]
    pub view: ViewOptions,
    /// Do not show a progress bar
    #[arg(help_heading = "Output", long)]
    pub no_progress: bool,
}

/// Measurement options, equal for every MPI.
#[derive(Args, Clone, Debug)]
pub struct MeasureOptions {
    /// Tests or groups of tests, separated by commas; listed by `fastpath bench --list`
    #[arg(
        help_heading = "Measurement",
        long,
        value_delimiter = ',',
        default_value = "latency,rate,bandwidth,barrier,allreduce"
    )]
    pub tests: Vec<String>,
    /// Measure application-like loads instead of tests. Buffers: written and read, at odd addresses, strided, or from
    /// MPI_Alloc_mem. Patterns: both directions at once, windows, first messages, large collectives; rings, halos and
    /// all-to-all of 2 to 8 ranks
    #[arg(
        help_heading = "Measurement",
        long,
        conflicts_with_all = [
            "tests", "ranks", "sizes", "window", "touch", "buffer", "offset", "layout",
                "crowded_sizes", "crowded_batch"
        ]
    )]
    pub loads: bool,
    /// Numbers of ranks, for tests of all ranks; tests of a pair use 2
    #[arg(help_heading = "Measurement", short = 'n', long, value_delimiter = ',',
        default_value = "2",
        value_parser = parse_ranks)]
    pub ranks: Vec<u32>,
    /// Number of rounds, each with a run of every MPI
    #[arg(help_heading = "Measurement", long, default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Parameters of a case
    #[command(flatten)]
    pub case: CaseOptions,
    /// Operations per sample, fewer if they would transfer more than 4 MiB; equal for all MPIs
    #[arg(help_heading = "Measurement", long, default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch: u32,
    /// Sizes for more ranks than processors, where some MPIs need milliseconds for a message [default: --sizes]
    #[arg(help_heading = "Measurement", long, value_name = "SIZES", value_delimiter = ',',
        value_parser = parse_bytes)]
    pub crowded_sizes: Vec<u64>,
    /// Operations per sample for more ranks than processors [default: --batch]
    #[arg(help_heading = "Measurement", long, value_name = "BATCH",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub crowded_batch: Option<u32>,
}

/// Default time for the samples of a case in a run, in milliseconds.
const DURATION_MS: f64 = 50.0;

/// Largest sample, in bytes. One window of large messages is already long enough.
const SAMPLE_BYTES: u64 = 4 << 20;

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("expected a percentage from 0 to 1000".to_owned()),
    }
}

impl MeasureOptions {
    /// Lists a plan for each test and number of ranks, so that the two runs of a pair are close in time.
    ///
    /// # Errors
    /// A word names no test.
    pub fn list_plans(&self) -> Result<Vec<RunPlan>> {
        self.list_plans_on(topology::usable_processors())
    }

    fn list_plans_on(&self, processors: usize) -> Result<Vec<RunPlan>> {
        if self.loads {
            return Ok(loads::list_plans(processors, |test, crowded| self.settings(test, crowded)));
        }
        let mut plans: Vec<RunPlan> = Vec::new();
        for word in &self.tests {
            let tests = catalogue::select(word);
            if tests.is_empty() {
                refuse_usage!("there is no test `{word}`; `fastpath bench --list` lists all tests");
            }
            for test in tests {
                // A test of a pair does not depend on the number of ranks, unless it measures scaling.
                let pair = test.class == Participants::Pair && test.group != TestGroup::Scaling;
                for &ranks in if pair { &[2][..] } else { self.ranks.as_slice() } {
                    let plan = RunPlan {
                        ranks,
                        settings: self.settings(test.name, ranks as usize > processors),
                    };
                    if !plans.contains(&plan) {
                        plans.push(plan);
                    }
                }
            }
        }
        Ok(plans)
    }

    fn settings(&self, test: &str, crowded: bool) -> Settings {
        let mut case = self.case.clone();
        if crowded && !self.crowded_sizes.is_empty() {
            case.sizes.clone_from(&self.crowded_sizes);
        }
        let batch = self.crowded_batch.filter(|_| crowded);
        let duration = case.duration.unwrap_or(DURATION_MS);
        case.duration = case.iterations.is_none().then_some(duration);
        Settings {
            tests: vec![test.to_owned()],
            case,
            timing: Some(format!("batch={}", batch.unwrap_or(self.batch))),
            sample_bytes: Some(SAMPLE_BYTES),
            ..Settings::default()
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::parse_options;

    fn parse(words: &[&str]) -> Result<CompareOptions, clap::Error> {
        parse_options(words)
    }

    #[test]
    fn tests_of_a_pair__run_on_two_ranks_and_the_others_on_those_named() {
        let options = parse(&["--tests", "latency,sendrecv,idle", "-n", "2,8"]).unwrap();
        let plans = options.measure.list_plans().unwrap();
        let said: Vec<(u32, &str)> =
            plans.iter().map(|p| (p.ranks, p.settings.tests[0].as_str())).collect();
        let wanted = [(2, "latency"), (2, "sendrecv"), (8, "sendrecv"), (2, "idle"), (8, "idle")];
        assert_eq!(said, wanted);
        assert_eq!(plans[0].settings.timing.as_deref(), Some("batch=16"));
        assert_eq!(plans[0].settings.case.duration, Some(50.0));
        let counted = parse(&["--iterations=5"]).unwrap().measure.list_plans();
        assert_eq!(counted.unwrap()[0].settings.case.duration, None);
    }

    #[test]
    fn more_ranks_than_processors__can_have_their_own_sizes_and_samples() {
        let options = parse(&[
            "--tests=barrier",
            "-n=2,8",
            "--sizes=1,2,3",
            "--crowded-sizes=4K",
            "--crowded-batch=1",
        ]);
        let plans = options.unwrap().measure.list_plans_on(2).unwrap();
        let timing = |p: &RunPlan| p.settings.timing.clone().unwrap();
        assert_eq!(plans[0].settings.case.sizes, [1, 2, 3]);
        assert_eq!(timing(&plans[0]), "batch=16");
        assert_eq!(plans[1].settings.case.sizes, [4096]);
        assert_eq!(timing(&plans[1]), "batch=1");
    }

    #[test]
    fn loads__stand_in_place_of_tests_and_take_their_time() {
        let options = parse(&["--loads", "--duration=5ms", "--check"]).unwrap();
        let plans = options.measure.list_plans().unwrap();
        let same = |p: &RunPlan| p.settings.case.duration == Some(5.0) && p.settings.case.check;
        assert!(plans.len() > 10 && plans.iter().all(same));
        for with in ["--tests=rate", "--sizes=8", "--touch", "-n=4", "--window=2"] {
            assert!(parse(&["--loads", with]).is_err(), "{with}");
        }
    }

    #[test]
    fn test__that_is_not_known_is_named() {
        let options = parse(&["--tests", "latncy"]).unwrap();
        assert!(options.measure.list_plans().unwrap_err().to_string().contains("latncy"));
    }

    #[test]
    fn launcher_arguments__may_begin_with_a_dash_behind_the_name() {
        let options = parse(&[
            "--peer=a=/x/mpicc",
            "--peer-arg",
            "a:--bind-to,core",
            "--peer-env",
            "a:X=1,2",
        ]);
        let peers = options.unwrap().peers.list().unwrap();
        assert_eq!(peers[0].arguments, ["--bind-to", "core"]);
        assert_eq!(peers[0].environment, [("X".to_owned(), "1,2".to_owned())]);
    }

    #[test]
    fn impossible_values__are_refused() {
        for wrong in ["--rounds=0", "--batch=0", "--threshold=-1", "--statistic=mode", "--sizes=x"]
        {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
        assert_eq!(parse(&["--threshold=10%"]).unwrap().threshold, 10.0);
    }
}
