//! Statistics over samples, each named explicitly.

use serde::{Deserialize, Serialize};

/// Statistics over all samples, in the unit of the samples. A sample is the mean over one batch of operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Smallest sample.
    pub min: f64,
    /// Middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest sample that at least 99 % of the samples do not exceed (nearest rank).
    pub p99: f64,
    /// Number of samples.
    pub samples: usize,
}

/// Computes the statistics; None without samples, or if one is not a number.
pub fn summarize(samples: &[f64]) -> Option<Summary> {
    if samples.is_empty() || samples.iter().any(|s| s.is_nan()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
    let rank = (n * 99).div_ceil(100);
    Some(Summary { min: sorted[0], median, p99: sorted[rank - 1], samples: n })
}

/// Computes the median; None without values.
pub fn find_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    summarize(&values).map(|s| s.median)
}

/// Largest ratio of two cache-line times in one state of the machine. Times in different states (two threads of a core,
/// two cores of a cache, separate caches) differ by a factor of 2 or more.
const SAME_LINE: f64 = 1.5;

/// Whether two cache-line times belong to one state of the machine.
pub fn is_same_line(one: f64, two: f64) -> bool {
    one < two * SAME_LINE && two < one * SAME_LINE
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn summary__of_none_is_none() {
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn summary__of_one_is_that_one() {
        let s = summarize(&[7.5]).unwrap();
        assert_eq!((s.min, s.median, s.p99, s.samples), (7.5, 7.5, 7.5, 1));
    }

    #[test]
    fn median__of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(summarize(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(summarize(&[9.0, 1.0, 5.0]).unwrap().median, 5.0);
    }

    #[test]
    fn p99__is_the_nearest_rank_and_drops_nothing() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(summarize(&hundred).unwrap().p99, 99.0);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(summarize(&ten).unwrap().p99, 10.0);
        let many: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(summarize(&many).unwrap().p99, 990.0);
    }

    #[test]
    fn lines__are_of_one_state_where_they_differ_by_little() {
        assert!(is_same_line(60.0, 70.0) && is_same_line(70.0, 60.0));
        assert!(!is_same_line(60.0, 110.0) && !is_same_line(110.0, 60.0));
    }
}
