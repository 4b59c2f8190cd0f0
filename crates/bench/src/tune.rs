//! `fastpath tune`: measures the constants behind the choice of protocols in some milliseconds, and stores them with
//! the conditions of the measurement. On a busy machine it stores nothing, unless the user allows it.

pub mod inline;
pub mod lines;
mod show;

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Error, Result, bail};
use clap::{Args, Subcommand};
use fastpath_base::config::Config;
use fastpath_base::copy::engine::Loop;
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_machine::measure::floor::measure_least_line;
use fastpath_machine::measure::pipeline::{Pipeline, PipelinePlan};
use fastpath_machine::measure::share::{UNDISTURBED, measure_share};
use fastpath_protocol::selection::constants::{Constants, FIELDS, Field};
use fastpath_protocol::selection::tuning::{self, Conditions, Tuning};
use fastpath_report::document;
use fastpath_report::files::read_text;
use fastpath_transport::single_copy::Calibration;

use crate::bench::floor::choose_processors;
use show::TuneResult;

/// Options of `fastpath tune`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TuneOptions {
    /// Other measurements
    #[command(subcommand)]
    pub other: Option<OtherTune>,
    /// Print the measured values and store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Store the values even if other programs use the processors; the file records that they do
    #[arg(long)]
    pub allow_busy: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Two processors to use, such as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub processors: Vec<usize>,
}

/// Other measurements.
#[derive(Subcommand, Debug)]
pub enum OtherTune {
    /// Largest payload that an RDMA adapter should get inline, inside the descriptor
    Inline(inline::InlineOptions),
    /// Cores that share an L3 cache, by the time of a cache line between each two cores
    Lines(lines::LinesOptions),
}

/// Longest plausible one-way time of a cache line between two processors, in nanoseconds. A longer time means that the
/// two sides shared one processor by time slices.
const SHARED_PROCESSOR_NS: f64 = 5000.0;
/// Samples of each measurement. The smallest sample counts, because interference only makes samples larger.
const SAMPLES: usize = 31;
const FAILED: &str = "cannot measure the constants of this machine";
const ODD: &str = "the measured values are implausible";
const NOT_STORED: &str = "no value is stored";
/// Number of repetitions of all measurements. Their smallest values give an interval for each constant.
const ROUNDS: usize = 5;
/// Minimum duration of a sample, in nanoseconds.
const BATCH_NS: u64 = 20_000;
/// Sizes, in bytes: chunk and ring of the measured pipeline, and two messages. The difference of the messages' times is
/// the time of streaming the further bytes.
const CHUNK: usize = 8 << 10;
const RING: usize = 64 << 10;
const STREAM_SIZES: [usize; 2] = [64 << 10, 256 << 10];

/// Runs `fastpath tune`: measures, prints and stores.
///
/// # Errors
/// The settings are invalid, the host or its processors cannot be used, or nothing can be written.
pub fn run(options: &TuneOptions) -> Result<()> {
    match &options.other {
        Some(OtherTune::Inline(options)) => return inline::run(options),
        Some(OtherTune::Lines(options)) => return lines::run(options),
        None => {}
    }
    let config = Config::from_env()?;
    let path = find_path(&config)?;
    let processors = choose_processors(&options.processors)?;
    let stores = !options.dry_run;
    let load = read_load();
    let before = measure_share(processors).context(FAILED)?;
    let check_busy = |share| match describe_busy(share, processors) {
        Some(why) if stores && !options.allow_busy => bail!(
            "{why}; {NOT_STORED}. End other programs, name other processors with --processors, or \
             store the values with --allow-busy"
        ),
        busy => Ok(busy),
    };
    check_busy(before)?;
    let (mut tuning, notes) = measure(processors)?;
    let share = measure_share(processors).context(FAILED)?.min(before);
    let measured_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    tuning.conditions = Some(Conditions { measured_s, processors, load, share });
    let busy = check_busy(share)?;
    let stored = match stores {
        true => tuning::store(&path, &tuning, &Machine::current()),
        false => Ok(()),
    };
    stored.with_context(|| format!("{NOT_STORED}: {}", path.display()))?;
    let result = TuneResult::new(&tuning, notes, busy, stores.then_some(path.as_path()));
    Ok(document::write(options.json, &result, || result.describe())?)
}

/// Describes a machine that other programs use, by the share of the processors that this one got; `None` for an idle
/// machine.
fn describe_busy(share: f64, [first, second]: [usize; 2]) -> Option<String> {
    (share < UNDISTURBED).then(|| {
        format!(
            "the machine is busy: other programs use processor {first} or {second}, and this \
             program got {:.0} % of the processor's time",
            share * 100.0
        )
    })
}

fn find_path(config: &Config) -> Result<PathBuf> {
    let place = TuningSource::of(config);
    let path = place.path(&Machine::current());
    path.with_context(|| format!("{NOT_STORED}: {}", no_place(&place)))
}

fn no_place(place: &TuningSource) -> &'static str {
    match place {
        TuningSource::Off => "FASTPATH_TUNING is none; set FASTPATH_TUNING to auto or to a file",
        _ => {
            "neither HOME nor XDG_CACHE_HOME is set, so there is no cache directory; set \
             FASTPATH_TUNING to a file"
        }
    }
}

/// Measures the constants of this machine. Also returns notes for the user. Constants that only a whole job would show
/// keep their defaults.
fn measure(processors: [usize; 2]) -> Result<(Tuning, Vec<String>)> {
    let mut rounds = Vec::new();
    let mut notes = Vec::new();
    for _ in 0..ROUNDS {
        let (round, note) = measure_round(processors)?;
        rounds.push(round);
        notes = Vec::from_iter(note);
    }
    let (mut constants, mut intervals) = (Constants::default(), Vec::new());
    for (index, field) in FIELDS.iter().enumerate() {
        let values: Vec<f64> = rounds.iter().filter_map(|round| round[index]).collect();
        let interval = (values.len() == ROUNDS).then(|| [least(&values), most(&values)]);
        interval.iter().for_each(|[low, _]| (field.set)(&mut constants, *low));
        intervals.push(interval);
    }
    constants.check().map_err(Error::msg).context(ODD)?;
    Ok((Tuning { constants, intervals, conditions: None }, notes))
}

/// Values of one round, one for each of [`FIELDS`]; `None` for a constant that is not measured.
type RoundValues = Vec<Option<f64>>;

/// Measures each constant once. Also returns a note if one cannot be measured.
fn measure_round(processors: [usize; 2]) -> Result<(RoundValues, Option<String>)> {
    let line_ns = measure_least_line(processors).context(FAILED)?;
    let mut constants = Constants { line_ns, ..Constants::default() };
    if constants.line_ns > SHARED_PROCESSOR_NS {
        bail!(
            "{ODD}, because another program ran on one of the two processors; run the command again"
        );
    }
    let [short, long] = STREAM_SIZES.map(|b| measure_stream(processors, b).context(FAILED));
    let bytes = (STREAM_SIZES[1] - STREAM_SIZES[0]) as f64;
    constants.transfer_byte_ns = (long? - short?) / bytes;
    let mut measured = vec!["line_ns", "transfer_byte_ns"];
    let mut calibration = Calibration::default();
    let mut refused = None;
    while !calibration.is_over() && refused.is_none() {
        refused = calibration.go_on().err();
    }
    let note = match refused {
        None => {
            constants = constants.with_single_copy(calibration.cost());
            measured.extend(["kernel_call_ns", "kernel_byte_ns"]);
            None
        }
        // The cost of a single copy is then not stored: a job detects the refusal itself.
        Some(why) => Some(format!("single copy by the kernel is not measured: {why}")),
    };
    let take = |field: &Field| measured.contains(&field.name).then(|| (field.get)(&constants));
    Ok((FIELDS.iter().map(take).collect(), note))
}

/// Number of runnable processes, a mean over the last minute; 0 if the kernel does not report it.
fn read_load() -> f64 {
    let text = read_text("/proc/loadavg");
    let first = text.as_deref().and_then(|text| text.split_whitespace().next());
    first.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Measures half a round trip through a ring, by the faster of the two loops from which C libraries choose.
fn measure_stream(processors: [usize; 2], bytes: usize) -> io::Result<f64> {
    let mut pipeline = Pipeline::new(processors, bytes)?;
    let mut shortest = f64::INFINITY;
    let loops = [Loop::usual(), Loop::String];
    for which in loops.into_iter().filter(|which| which.is_available()) {
        let plan = PipelinePlan { into_ring: which, out_of_ring: which, chunk: CHUNK, ring: RING };
        let taken = pipeline.sample(plan, SAMPLES, BATCH_NS)?;
        shortest = shortest.min(least(&taken.times));
    }
    Ok(shortest)
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::bench::floor::choose_from;
    use fastpath_report::usage::UsageError;

    #[test]
    fn processors__are_two_different_ones_that_may_be_used() {
        let allowed = [0, 1, 2, 3, 5];
        assert_eq!(choose_from(&allowed, &[3, 5]).unwrap(), [3, 5]);
        assert_eq!(choose_from(&allowed, &[]).unwrap(), [0, 1]);
        for wrong in [&[1, 1][..], &[0], &[0, 1, 2]] {
            assert!(choose_from(&allowed, wrong).is_err(), "{wrong:?}");
        }
        let other = choose_from(&allowed, &[0, 4]).unwrap_err();
        assert!(UsageError::is_cause_of(&other));
        let text = other.to_string();
        assert!(text.contains("processor 4") && text.contains("two of 0-3,5"), "{text}");
    }

    #[test]
    fn busy_machine__is_one_that_gives_less_than_nine_tenths() {
        assert_eq!(describe_busy(0.97, [2, 5]), None);
        let text = describe_busy(0.52, [2, 5]).unwrap();
        assert!(text.contains("processor 2 or 5") && text.contains("52 %"), "{text}");
    }

    #[test]
    fn measure__on_a_processor_that_is_not_there_says_so() {
        let error = measure([0, 1 << 20]).unwrap_err();
        assert!(format!("{error:#}").contains("1048576"), "{error:#}");
    }
}
