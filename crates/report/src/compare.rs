//! Comparisons of results: ratios with their intervals, verdicts, and how they are shown and stored.

pub mod changed;
pub mod comparison;
pub mod interval;
pub mod markdown;
pub mod show;
pub mod stored;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::record::{Histogram, Of};

/// Which figure of the samples of a run is compared; the same on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The smallest sample
    Min,
    /// The 50th percentile
    #[default]
    Median,
    /// The arithmetic mean
    Mean,
    /// The 90th percentile
    P90,
    /// The 99th percentile
    P99,
    /// The 99.9th percentile
    P999,
}

impl Statistic {
    /// How tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Min => "minimum",
            Statistic::Median => "median",
            Statistic::Mean => "mean",
            Statistic::P90 => "90th percentile",
            Statistic::P99 => "99th percentile",
            Statistic::P999 => "99.9th percentile",
        }
    }

    /// Its value; None without samples.
    pub fn take(self, samples: &Histogram) -> Option<f64> {
        let summary = samples.summarize()?;
        Some(match self {
            Statistic::Min => summary.min,
            Statistic::Median => summary.median,
            Statistic::Mean => summary.mean,
            Statistic::P90 => summary.p90,
            Statistic::P99 => summary.p99,
            Statistic::P999 => summary.p999,
        })
    }

    /// In which interval it lies with 95 %, as far as the samples of one run can say; None for a
    /// minimum, or with few samples.
    pub fn find_interval(self, samples: &Histogram) -> Option<[f64; 2]> {
        let share = match self {
            Statistic::Min => return None,
            Statistic::Mean => return interval::find_mean_interval(samples),
            Statistic::Median => 0.5,
            Statistic::P90 => 0.9,
            Statistic::P99 => 0.99,
            Statistic::P999 => 0.999,
        };
        interval::find_quantile_interval(samples, share)
    }
}

/// Whether more is better.
pub fn is_more_better(of: Of) -> bool {
    of == Of::Overlap
}

/// How a ratio below 1, and one above, is called.
pub fn name_directions(of: Of) -> [&'static str; 2] {
    match of {
        Of::Memory | Of::Instructions | Of::Overlap => ["less", "more"],
        _ => ["faster", "slower"],
    }
}
