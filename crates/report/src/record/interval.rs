//! Ratios with their 95 % intervals. Ratios are averaged as logarithms (geometric mean), so that twice as fast and half
//! as fast have equal weight.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Histogram;

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ratio {
    /// Ratio ours/theirs, or now/before.
    pub ratio: f64,
    /// The 95 % interval; None without enough data.
    pub interval: Option<[f64; 2]>,
}

/// Position of an interval relative to 1, regardless of which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is below 1.
    Below,
    /// The whole interval is above 1.
    Above,
    /// The interval contains 1, or there is no interval.
    CannotTell,
}

impl fmt::Display for Ratio {
    /// Formats the ratio with its interval, if there is one. The precision defaults to two decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$}", self.ratio)?;
        match self.interval {
            Some([low, high]) => write!(f, " [{low:.digits$}, {high:.digits$}]"),
            None => Ok(()),
        }
    }
}

impl Ratio {
    /// Returns the verdict of the interval.
    pub fn judge(&self) -> Verdict {
        match self.interval {
            Some([_, high]) if high < 1.0 => Verdict::Below,
            Some([low, _]) if low > 1.0 => Verdict::Above,
            _ => Verdict::CannotTell,
        }
    }
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.959_964;

/// Quantile for a number of degrees of freedom, which may be fractional.
fn find_t95(degrees: f64) -> f64 {
    if degrees < 31.0 {
        // Round the degrees down, which gives the wider interval.
        return T95[(degrees.max(1.0) as usize).min(30) - 1];
    }
    // Two terms of the expansion around the normal distribution: accurate to 0.001 from here on.
    Z95 + (Z95.powi(3) + Z95) / (4.0 * degrees)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

fn spread(log_ratio: f64, half: f64) -> Ratio {
    Ratio {
        ratio: log_ratio.exp(),
        interval: Some([(log_ratio - half).exp(), (log_ratio + half).exp()]),
    }
}

/// Mean ratio of paired measurements. None without pairs, or if a value is not positive.
pub fn of_pairs(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let positive = |&(a, b): &(f64, f64)| a > 0.0 && b > 0.0;
    if pairs.is_empty() || !pairs.iter().all(positive) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let middle = mean(&logs);
    if logs.len() < 2 {
        return Some(Ratio { ratio: middle.exp(), interval: None });
    }
    let n = logs.len() as f64;
    let half = find_t95(n - 1.0) * (variance(&logs) / n).sqrt();
    Some(spread(middle, half))
}

/// Ratio of two unpaired groups of runs (Welch). None if a group is empty or a value not positive. Without an interval
/// if a group has one run.
pub fn of_groups(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    if ours.is_empty() || theirs.is_empty() || ours.iter().chain(theirs).any(|v| *v <= 0.0) {
        return None;
    }
    let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<f64>>();
    let (a, b) = (logs(ours), logs(theirs));
    let middle = mean(&a) - mean(&b);
    if a.len() < 2 || b.len() < 2 {
        return Some(Ratio { ratio: middle.exp(), interval: None });
    }
    let share = |v: &[f64]| variance(v) / v.len() as f64;
    let (va, vb) = (share(&a), share(&b));
    let degrees = if va + vb > 0.0 {
        let part = |v: f64, n: usize| v * v / (n - 1) as f64;
        (va + vb).powi(2) / (part(va, a.len()) + part(vb, b.len()))
    } else {
        f64::INFINITY
    };
    Some(spread(middle, find_t95(degrees) * (va + vb).sqrt()))
}

/// 95 % interval of a quantile, by the samples' ranks (binomial, for any distribution); None for less than 20 samples.
pub fn find_quantile_interval(samples: &Histogram, share: f64) -> Option<[f64; 2]> {
    let n = samples.count() as f64;
    if n < 20.0 {
        return None;
    }
    let reach = Z95 * (share * (1.0 - share) / n).sqrt();
    // Extend the interval by one rank on either side, because ranks are rounded.
    let low = samples.quantile(share - reach - 1.0 / n)?;
    let high = samples.quantile(share + reach + 1.0 / n)?;
    Some([low, high])
}

/// Standard deviation over samples (n - 1), from the buckets: accurate to three digits.
pub fn standard_deviation(samples: &Histogram) -> Option<f64> {
    let mean = samples.summarize()?.mean;
    let squares: f64 =
        samples.iter().map(|(value, count)| count as f64 * (value - mean) * (value - mean)).sum();
    (samples.count() > 1).then(|| (squares / (samples.count() - 1) as f64).sqrt())
}

/// 95 % interval of the mean, from the samples' standard deviation. None for less than 20 samples.
pub fn find_mean_interval(samples: &Histogram) -> Option<[f64; 2]> {
    let summary = samples.summarize()?;
    let deviation = standard_deviation(samples)?;
    if summary.count < 20 {
        return None;
    }
    let half = Z95 * deviation / (summary.count as f64).sqrt();
    Some([(summary.mean - half).max(summary.min), summary.mean + half])
}

/// Ratio of two values with intervals. The logarithmic distances of the values to the ends of their intervals add as
/// squares.
pub fn of_intervals(ours: (f64, [f64; 2]), theirs: (f64, [f64; 2])) -> Option<Ratio> {
    let ((a, [a_low, a_high]), (b, [b_low, b_high])) = (ours, theirs);
    if [a, a_low, b, b_low].iter().any(|v| *v <= 0.0) {
        return None;
    }
    // `hypot` needs glibc 2.35, everything else in the tools 2.34.
    let root = |x: f64, y: f64| (x * x + y * y).sqrt();
    let up = root((a_high / a).ln(), (b / b_low).ln());
    let down = root((a / a_low).ln(), (b_high / b).ln());
    let middle = (a / b).ln();
    Some(Ratio { ratio: a / b, interval: Some([(middle - down).exp(), (middle + up).exp()]) })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn assert_close(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-3, "{a} for {b}");
    }

    #[test]
    fn pairs__give_the_geometric_mean_and_students_interval() {
        // Logarithms -ln 2 and +ln 2: mean 0, standard deviation ln 2 * sqrt 2, standard error of the mean ln 2.
        let r = of_pairs(&[(1.0, 2.0), (2.0, 1.0)]).unwrap();
        assert_close(r.ratio, 1.0);
        let [low, high] = r.interval.unwrap();
        assert_close(high, (12.706 * 2f64.ln()).exp());
        assert_close(low, 1.0 / high);
        assert_eq!(r.judge(), Verdict::CannotTell);
    }

    #[test]
    fn pairs__that_agree_give_a_verdict() {
        let faster = of_pairs(&[(50.0, 100.0), (51.0, 100.0), (49.0, 100.0)]).unwrap();
        assert_eq!(faster.judge(), Verdict::Below);
        let slower = of_pairs(&[(100.0, 50.0), (100.0, 51.0), (100.0, 49.0)]).unwrap();
        assert_eq!(slower.judge(), Verdict::Above);
        assert_close(faster.ratio, 1.0 / slower.ratio);
    }

    #[test]
    fn pairs__too_few_or_not_positive() {
        assert_eq!(of_pairs(&[]), None);
        assert_eq!(of_pairs(&[(0.0, 1.0)]), None);
        let one = of_pairs(&[(1.0, 2.0)]).unwrap();
        assert_eq!((one.ratio, one.interval), (0.5, None));
        assert_eq!(one.judge(), Verdict::CannotTell);
    }

    #[test]
    fn drift__of_the_machine_cancels_in_pairs_and_not_in_groups() {
        // The machine slows down fourfold; this MPI always takes 10 % less time than the peer.
        let pairs: Vec<(f64, f64)> =
            [1.0, 1.5, 2.2, 3.1, 4.0].iter().map(|s| (90.0 * s, 100.0 * s)).collect();
        assert_eq!(of_pairs(&pairs).unwrap().judge(), Verdict::Below);
        let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let groups = of_groups(&ours, &theirs).unwrap();
        assert_eq!(groups.judge(), Verdict::CannotTell);
        assert_close(groups.ratio, 0.9);
    }

    #[test]
    fn groups__of_one_run_have_no_interval() {
        assert_eq!(of_groups(&[1.0], &[2.0, 2.1]).unwrap().interval, None);
        assert_eq!(of_groups(&[], &[2.0]), None);
    }

    #[test]
    fn deviation__of_two_and_of_one() {
        let two: Histogram = [10.0, 14.0].into_iter().collect();
        assert!((standard_deviation(&two).unwrap() - 8f64.sqrt()).abs() < 0.01);
        let one: Histogram = [10.0].into_iter().collect();
        assert_eq!(standard_deviation(&one), None);
    }

    #[test]
    fn quantile__lies_in_its_interval_which_narrows_with_samples() {
        let make = |n: u32| -> Histogram { (1..=n).map(|i| 100.0 + f64::from(i % 100)).collect() };
        let [low, high] = find_quantile_interval(&make(100), 0.5).unwrap();
        assert!(low < 149.0 && 150.0 < high, "{low} {high}");
        // The interval spans ranks 50 - 10.8 to 50 + 10.8 (9.8 for 95 %, 1 for rounding), and samples are 1 apart.
        assert!((high - low - 21.6).abs() < 2.0, "{low} {high}");
        let [low2, high2] = find_quantile_interval(&make(10_000), 0.5).unwrap();
        assert!(high2 - low2 < (high - low) / 5.0);
        assert_eq!(find_quantile_interval(&make(10), 0.5), None);
    }

    #[test]
    fn intervals__of_both_sides_widen_the_ratio() {
        let r = of_intervals((100.0, [99.0, 101.0]), (100.0, [99.0, 101.0])).unwrap();
        let [low, high] = r.interval.unwrap();
        assert_close(high, (2f64.sqrt() * 1.01f64.ln()).exp());
        assert!(low < 1.0);
        let r = of_intervals((110.0, [109.0, 111.0]), (100.0, [99.0, 101.0])).unwrap();
        assert_eq!(r.judge(), Verdict::Above);
    }

    #[test]
    fn t__falls_to_the_normal_distribution() {
        assert_eq!(find_t95(1.0), 12.706);
        assert_eq!(find_t95(2.9), 4.303);
        assert!((find_t95(60.0) - 2.000).abs() < 0.001);
        assert!((find_t95(f64::INFINITY) - Z95).abs() < 1e-9);
    }
}
