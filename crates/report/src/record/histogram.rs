//! Histogram of all samples of a case, in bounded memory. Buckets are at most 1/2048 of their value wide, which keeps
//! three significant digits.
//!
//! Values are non-negative numbers in the case's unit, stored in thousandths of it (picoseconds for a time). Smallest,
//! largest, sum and count are exact. Percentiles are nearest rank, taken at the middle of a bucket, and within smallest
//! and largest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of bits after the leading bit of a value that its bucket keeps.
const KEPT_BITS: u32 = 11;

/// Number of stored steps in one unit: values are stored in thousandths.
const SCALE: f64 = 1000.0;

/// Histogram of values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Read", into = "HistogramJson")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "HistogramJson"))]
pub struct Histogram {
    /// Lower bound of each bucket, in thousandths, and its number of samples.
    buckets: BTreeMap<u64, u64>,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

/// JSON form: statistics for human readers, buckets for programs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Histogram"))]
struct HistogramJson {
    #[serde(flatten)]
    summary: Summary,
    /// Pairs of a bucket's lower bound, in thousandths of the unit, and its number of samples, ascending.
    buckets: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Read {
    count: u64,
    min: f64,
    mean: f64,
    max: f64,
    buckets: Vec<(u64, u64)>,
}

/// Largest width of a bucket, relative to its value.
const BUCKET_WIDTH: f64 = 1.0 / 2048.0;

/// Statistics in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Smallest sample.
    pub min: f64,
    /// 50th percentile.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest sample.
    pub max: f64,
}

/// Lower bound of the bucket that holds a value, both in thousandths.
fn bucket_of(value: u64) -> u64 {
    let width = 64 - value.leading_zeros();
    let dropped = width.saturating_sub(KEPT_BITS + 1);
    value >> dropped << dropped
}

/// The middle of a bucket given by its lower bound, in units.
fn middle_of(bound: u64) -> f64 {
    let width = 64 - bound.leading_zeros();
    let dropped = width.saturating_sub(KEPT_BITS + 1);
    (bound as f64 + ((1u64 << dropped) - 1) as f64 / 2.0) / SCALE
}

impl Histogram {
    /// Adds a sample. NaN and negative values count as zero, so a clock that ran backwards shows as a minimum of zero,
    /// which no operation can take.
    pub fn record(&mut self, value: f64) {
        let value = if value > 0.0 { value } else { 0.0 };
        self.record_bucket((value * SCALE).round() as u64, 1);
        self.sum += value;
        self.min = if self.count == 1 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
    }

    fn record_bucket(&mut self, thousandths: u64, count: u64) {
        *self.buckets.entry(bucket_of(thousandths)).or_default() += count;
        self.count += count;
    }

    /// Creates a histogram from counted buckets and exact statistics of a measuring program; None if inconsistent.
    pub fn from_parts(
        buckets: impl IntoIterator<Item = (u64, u64)>, sum: f64, min: f64, max: f64,
    ) -> Option<Histogram> {
        let mut histogram = Histogram { sum, min, max, ..Histogram::default() };
        for (bound, count) in buckets {
            let total = histogram.count.checked_add(count)?;
            if total > 1 << 53 {
                return None;
            }
            histogram.record_bucket(bound, count);
        }
        histogram.buckets.retain(|_, count| *count > 0);
        let finite = [sum, min, max].iter().all(|v| v.is_finite() && *v >= 0.0);
        let ordered = histogram.count == 0 || min <= max;
        (finite && ordered).then_some(histogram)
    }

    /// Adds all samples of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        for (&bound, &count) in &other.buckets {
            self.record_bucket(bound, count);
        }
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Iterates over buckets in ascending order: their middle in units, and their number of samples.
    pub fn iter(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let clamp = |v: f64| v.max(self.min).min(self.max);
        self.buckets.iter().map(move |(&bound, &count)| (clamp(middle_of(bound)), count))
    }

    /// Returns the value that a `share` of the samples (0 to 1) does not exceed, nearest rank; None without samples.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (value, count) in self.iter() {
            seen += count;
            if seen >= rank {
                return Some(if seen == count && rank == 1 { self.min } else { value });
            }
        }
        None
    }

    /// Computes the statistics of tables; None without samples.
    pub fn summarize(&self) -> Option<Summary> {
        Some(Summary {
            count: self.count,
            min: self.min,
            median: self.quantile(0.5)?,
            mean: self.sum / self.count as f64,
            p90: self.quantile(0.9)?,
            p99: self.quantile(0.99)?,
            p999: self.quantile(0.999)?,
            max: self.max,
        })
    }
}

impl FromIterator<f64> for Histogram {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|v| histogram.record(v));
        histogram
    }
}

impl From<Histogram> for HistogramJson {
    fn from(histogram: Histogram) -> HistogramJson {
        HistogramJson {
            summary: histogram.summarize().unwrap_or_default(),
            buckets: histogram.buckets.into_iter().collect(),
        }
    }
}

impl TryFrom<Read> for Histogram {
    type Error = &'static str;

    fn try_from(read: Read) -> Result<Histogram, &'static str> {
        let Read { count, min, mean, max, buckets } = read;
        let is_ascending = buckets.windows(2).all(|w| w[0].0 < w[1].0);
        // Tolerates a rounding of half a thousandth.
        let holds = |bound: u64, value: f64| {
            let thousandths = value * SCALE;
            thousandths + 1.0 >= bound as f64
                && thousandths <= (bound as f64 + 1.0) * (1.0 + BUCKET_WIDTH)
        };
        if let (Some(&(lowest, _)), Some(&(highest, _))) = (buckets.first(), buckets.last())
            && !(is_ascending && holds(lowest, min) && holds(highest, max))
        {
            return Err("the buckets of a histogram are unsorted, or do not contain its extremes");
        }
        if count > 0 && !(min * 0.999_999 <= mean && mean <= max * 1.000_001) {
            return Err("the mean of a histogram is outside its samples");
        }
        let found = Histogram::from_parts(buckets, mean * count as f64, min, max);
        let whole = found.filter(|histogram| histogram.count == count);
        whole.ok_or("the statistics of a histogram contradict its buckets")
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn summary__of_none_is_none() {
        assert_eq!(Histogram::default().summarize(), None);
    }

    #[test]
    fn summary__of_one_is_that_one() {
        let s = [7.5].into_iter().collect::<Histogram>().summarize().unwrap();
        assert_eq!((s.min, s.median, s.p999, s.max), (7.5, 7.5, 7.5, 7.5));
        assert_eq!((s.count, s.mean), (1, 7.5));
    }

    #[test]
    fn quantiles__keep_three_digits_and_drop_nothing() {
        let values: Vec<f64> = (1..=10_000).map(|i| f64::from(i) * 37.0).collect();
        let h: Histogram = values.iter().copied().collect();
        for share in [0.5, 0.9, 0.99, 0.999] {
            let exact = values[(share * 10_000.0) as usize - 1];
            let got = h.quantile(share).unwrap();
            assert!((got / exact - 1.0).abs() < 1.0 / 2048.0, "{share}: {got} for {exact}");
        }
        let s = h.summarize().unwrap();
        assert_eq!((s.count, s.min, s.max), (10_000, 37.0, 370_000.0));
    }

    #[test]
    fn bucket__holds_its_bound_and_is_narrow() {
        for value in [0, 1, 4095, 4096, 4097, 1 << 20, (1 << 40) + 12345, u64::MAX] {
            let bound = bucket_of(value);
            assert_eq!(bucket_of(bound), bound);
            assert!(value - bound <= value >> KEPT_BITS, "{value}");
        }
    }

    #[test]
    fn merge__is_the_same_as_recording_all() {
        let (a, b) = ([1.0, 50.0, 3.0], [0.5, 1e6]);
        let mut merged: Histogram = a.into_iter().collect();
        merged.merge(&b.into_iter().collect());
        merged.merge(&Histogram::default());
        assert_eq!(merged, a.into_iter().chain(b).collect());
    }

    #[test]
    fn json__of_a_histogram_that_contradicts_itself_is_refused() {
        let h: Histogram = [1.0, 2.0].into_iter().collect();
        let text = serde_json::to_string(&h).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
        let wrong = text.replacen("\"count\":2", "\"count\":3", 1);
        assert!(serde_json::from_str::<Histogram>(&wrong).is_err());
    }
}
