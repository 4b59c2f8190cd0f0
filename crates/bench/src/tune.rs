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
use fastpath_machine::measure::pipeline::{Pipeline, Plan};
use fastpath_protocol::selection::constants::{Constants, FIELDS, Field};
use fastpath_protocol::selection::tuning;
use fastpath_report::output;
use fastpath_transport::single_copy::Calibration;

use crate::bench::floor::choose_processors;

/// Options of `fastpath tune`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TuneOptions {
    /// What else can be measured
    #[command(subcommand)]
    pub other: Option<OtherTune>,
    /// Print the measured values and store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The two processors, as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub processors: Vec<usize>,
}

/// What else can be measured.
#[derive(Subcommand, Debug)]
pub enum OtherTune {
    /// Up to which size an RDMA adapter should be given payloads inside the descriptor
    Inline(inline::InlineOptions),
}

/// A line that takes longer than this one way, in nanoseconds, was not passed between two processors: the
/// two sides shared one, by time slices.
const SHARED_PROCESSOR_NS: f64 = 5000.0;
/// Samples of each measurement; the smallest counts, since any interference makes one larger.
const SAMPLES: usize = 31;
const FAILED: &str = "cannot measure";
const ODD: &str = "what was measured cannot be believed";
const NOT_STORED: &str = "nothing is stored";
/// Least time of a sample.
const BATCH_NS: u64 = 20_000;
/// A stream as that of a long message: chunk and ring, and two sizes whose difference is only the stream.
const CHUNK: usize = 8 << 10;
const RING: usize = 64 << 10;
const STREAM_SIZES: [usize; 2] = [64 << 10, 256 << 10];

/// Measures, prints and stores.
///
/// # Errors
/// The settings are wrong, the host or its processors cannot be used, or nothing can be written.
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

/// Why a place has no files.
fn no_place(place: &TuningSource) -> &'static str {
    match place {
        TuningSource::Off => "FASTPATH_TUNING is none: name a file, or auto",
        _ => {
            "there is no cache directory (HOME and XDG_CACHE_HOME are not set): name a file in \
             FASTPATH_TUNING"
        }
    }
}

/// The constants of this machine; those that only a whole job would show keep their defaults.
fn measure(processors: [usize; 2]) -> Result<Constants> {
    let lines = measure_lines(processors, SAMPLES, BATCH_NS).context(FAILED)?;
    let mut constants = Constants { line_ns: least(lines), ..Constants::default() };
    if constants.line_ns > SHARED_PROCESSOR_NS {
        bail!("{ODD}: the two sides shared a processor: something else runs there; try again");
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
        // A job finds that out by itself.
        Some(why) => output::print(&format!("single copy is not measured: {why}\n"))?,
    }
    constants.check().map_err(Error::msg).context(ODD)?;
    Ok(constants)
}

/// Half a round trip through a ring, by the faster of the two loops between which a copy of the C library chooses.
fn measure_stream(processors: [usize; 2], bytes: usize) -> io::Result<f64> {
    let mut pipeline = Pipeline::new(processors, bytes)?;
    let mut shortest = f64::INFINITY;
    let loops = [Loop::usual(), Loop::String];
    for which in loops.into_iter().filter(|which| which.is_available()) {
        let plan = Plan { into_ring: which, out_of_ring: which, chunk: CHUNK, ring: RING };
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
