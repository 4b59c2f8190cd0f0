//! `fastpath tune`: measures the constants behind the choice of protocols in some milliseconds, and stores them.

pub mod inline;

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Error, Result, bail};
use clap::{Args, Subcommand};
use fastpath_base::config::Config;
use fastpath_base::copy::engine::Loop;
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_machine::measure::floor::measure_lines;
use fastpath_machine::measure::pipeline::{Pipeline, PipelinePlan};
use fastpath_protocol::selection::constants::{Constants, FIELDS, Field};
use fastpath_protocol::selection::tuning;
use fastpath_report::output;
use fastpath_transport::single_copy::Calibration;

use crate::bench::floor::choose_processors;

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
    /// Two processors to use, such as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub processors: Vec<usize>,
}

/// Other measurements.
#[derive(Subcommand, Debug)]
pub enum OtherTune {
    /// Largest payload that an RDMA adapter should get inline, inside the descriptor
    Inline(inline::InlineOptions),
}

/// Longest plausible one-way time of a cache line between two processors, in nanoseconds. A longer time means that the
/// two sides shared one processor by time slices.
const SHARED_PROCESSOR_NS: f64 = 5000.0;
/// Samples of each measurement. The smallest sample counts, because interference only makes samples larger.
const SAMPLES: usize = 31;
const FAILED: &str = "cannot measure the constants of this machine";
const ODD: &str = "the measured values are implausible";
const NOT_STORED: &str = "no value is stored";
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
    if let Some(OtherTune::Inline(options)) = &options.other {
        return inline::run(options);
    }
    let config = Config::from_env()?;
    let path = find_path(&config)?;
    let processors = choose_processors(&options.processors)?;
    let constants = measure(processors)?;
    for field in FIELDS {
        let value = (field.get)(&constants);
        let Field { name, unit, meaning, .. } = field;
        output::print(&format!("{name:<20} {value:>10.3} {unit:<6} {meaning}\n"))?;
    }
    if options.dry_run {
        return Ok(());
    }
    let stored = tuning::store(&path, &constants, &Machine::current());
    stored.with_context(|| format!("{NOT_STORED}: {}", path.display()))?;
    output::print(&format!("stored in {}\n", path.display()))
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

/// Measures the constants of this machine. Constants that only a whole job would show keep their defaults.
fn measure(processors: [usize; 2]) -> Result<Constants> {
    let lines = measure_lines(processors, SAMPLES, BATCH_NS).context(FAILED)?;
    let mut constants = Constants { line_ns: least(lines), ..Constants::default() };
    if constants.line_ns > SHARED_PROCESSOR_NS {
        bail!(
            "{ODD}, because another program ran on one of the two processors; run the command again"
        );
    }
    let [short, long] = STREAM_SIZES.map(|b| measure_stream(processors, b).context(FAILED));
    let bytes = (STREAM_SIZES[1] - STREAM_SIZES[0]) as f64;
    constants.transfer_byte_ns = (long? - short?) / bytes;
    let mut calibration = Calibration::default();
    let mut refused = None;
    while !calibration.is_over() && refused.is_none() {
        refused = calibration.go_on().err();
    }
    match refused {
        None => constants = constants.with_single_copy(calibration.cost()),
        // The cost of a single copy is then not stored: a job detects the refusal itself.
        Some(why) => output::print(&format!("single copy by the kernel is not measured: {why}\n"))?,
    }
    constants.check().map_err(Error::msg).context(ODD)?;
    Ok(constants)
}

/// Measures half a round trip through a ring, by the faster of the two loops from which C libraries choose.
fn measure_stream(processors: [usize; 2], bytes: usize) -> io::Result<f64> {
    let mut pipeline = Pipeline::new(processors, bytes)?;
    let mut shortest = f64::INFINITY;
    let loops = [Loop::usual(), Loop::String];
    for which in loops.into_iter().filter(|which| which.is_available()) {
        let plan = PipelinePlan { into_ring: which, out_of_ring: which, chunk: CHUNK, ring: RING };
        let taken = pipeline.sample(plan, SAMPLES, BATCH_NS)?;
        shortest = shortest.min(least(taken.times));
    }
    Ok(shortest)
}

fn least(samples: Vec<f64>) -> f64 {
    samples.into_iter().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn processors__are_two_different_ones() {
        assert_eq!(choose_processors(&[3, 5]).unwrap(), [3, 5]);
        for wrong in [&[1, 1][..], &[0], &[0, 1, 2]] {
            assert!(choose_processors(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn measure__on_a_processor_that_is_not_there_says_so() {
        let error = measure([0, 1 << 20]).unwrap_err();
        assert!(format!("{error:#}").contains("1048576"), "{error:#}");
    }
}
