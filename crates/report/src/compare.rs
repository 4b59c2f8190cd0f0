//! Comparisons of results: ratios with their intervals, verdicts, and their output and storage.

pub mod changed;
pub mod comparison;
pub mod markdown;
pub mod show;
pub mod stored;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::record::{Histogram, Quantity, interval};

/// Statistic of a run's samples that is compared, equal on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Smallest sample
    Min,
    /// 50th percentile
    #[default]
    Median,
    /// Arithmetic mean
    Mean,
    /// 90th percentile
    P90,
    /// 99th percentile
    P99,
    /// 99.9th percentile
    P999,
}

impl Statistic {
    /// Name in tables.
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

    /// Computes the statistic; None without samples.
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

    /// Computes the statistic's 95 % interval from the samples of one run; None for a minimum, or for too few samples.
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

/// Whether larger values are better.
pub fn is_more_better(of: Quantity) -> bool {
    of == Quantity::Overlap
}

/// Words for a ratio below 1 and for one above.
pub fn name_directions(of: Quantity) -> [&'static str; 2] {
    match of {
        Quantity::Memory | Quantity::Instructions | Quantity::Overlap => ["less", "more"],
        _ => ["faster", "slower"],
    }
}
