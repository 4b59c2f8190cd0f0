//! Crossover of inline and DMA with its confidence. Pure functions of times.
//!
//! The limit is the size with the least total time if sizes up to it are sent inline, and larger ones by DMA. All
//! measured sizes have equal weights. If inline equals DMA over several sizes, any of them may be the limit, and the
//! interval shows that.

use fastpath_base::random::Random;
use serde::Serialize;

use fastpath_report::record::interval::{Ratio, of_pairs};

/// Number of bootstrap resamples for the interval.
const RESAMPLES: usize = 2000;

/// Times of a size in each round, in nanoseconds: inline and by DMA.
pub(super) type Times = Vec<(f64, f64)>;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    /// Whether the limit is significant: with 95 % confidence, it is faster than sending nothing inline or everything.
    pub known: bool,
    /// Largest size to send inline; None: inline is never faster, or the limit is unknown.
    pub limit: Option<u32>,
    pub all: bool,
    /// Interval of the limit with 95 % confidence; an end of None: inline is never faster.
    pub interval: [Option<u32>; 2],
    /// Share of the resamples that gave the same limit.
    pub confidence: f64,
}

/// Finds the crossover from the sizes, in order, and the times of each. All sizes must have equally many rounds.
pub(super) fn find(sizes: &[u32], times: &[Times]) -> Finding {
    let rounds = times.first().map_or(0, Vec::len);
    // logs[round][size]: below 0 if inline is faster.
    let log = |round: usize| {
        let of = |t: &Times| (t[round].0 / t[round].1).ln();
        times.iter().map(of).collect::<Vec<f64>>()
    };
    let logs: Vec<Vec<f64>> = (0..rounds).map(log).collect();
    let all: Vec<usize> = (0..rounds).collect();
    let best = find_limit(&logs, &all);
    let mut random = Random::new(1);
    let mut drawn: Vec<usize> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_: &usize| random.below(rounds as u64) as usize;
            find_limit(&logs, &all.iter().map(draw).collect::<Vec<usize>>())
        })
        .collect();
    drawn.sort_unstable();
    let same = drawn.iter().filter(|&&count| count == best).count();
    let limit = |count: usize| count.checked_sub(1).map(|last| sizes[last]);
    let quantile = |share: f64| drawn[(share * (RESAMPLES - 1) as f64).round() as usize];
    let known = is_known(&logs);
    Finding {
        known,
        limit: limit(best).filter(|_| known),
        all: known && best == sizes.len(),
        interval: [limit(quantile(0.025)), limit(quantile(0.975))],
        confidence: same as f64 / RESAMPLES as f64,
    }
}

/// Returns how many of the smallest sizes should be sent inline: the number for which the given rounds take the least
/// time. If several are equally good, returns the largest.
fn find_limit(logs: &[Vec<f64>], rounds: &[usize]) -> usize {
    let mut sums = vec![0.0; logs.first().map_or(0, Vec::len)];
    for &round in rounds {
        sums.iter_mut().zip(&logs[round]).for_each(|(sum, log)| *sum += log);
    }
    let (mut sum, mut least, mut best) = (0.0, 0.0, 0);
    for (size, log) in sums.iter().enumerate() {
        sum += log;
        // Equal times count as an advantage of inline.
        if sum <= least {
            (least, best) = (sum, size + 1);
        }
    }
    best
}

/// Whether a limit found in one half of the rounds is faster, in the other half, than sending nothing inline or
/// everything. The rounds that chose the limit would always confirm it.
fn is_known(logs: &[Vec<f64>]) -> bool {
    let half = |odd: usize| (0..logs.len()).filter(move |round| round % 2 == odd);
    let limits = [0, 1].map(|odd| find_limit(logs, &half(1 - odd).collect::<Vec<usize>>()));
    let sums = logs.iter().enumerate().map(|(round, logs)| {
        let (inline, dma) = logs.split_at(limits[round % 2]);
        (inline.iter().sum::<f64>().exp(), (-dma.iter().sum::<f64>()).exp())
    });
    let (gains, losses): (Vec<f64>, Vec<f64>) = sums.unzip();
    let is_below = |ratios: Vec<f64>| {
        let pairs: Vec<(f64, f64)> = ratios.into_iter().map(|ratio| (ratio, 1.0)).collect();
        let found: Option<Ratio> = of_pairs(&pairs);
        found.and_then(|r| r.interval).is_some_and(|[_, high]| high < 1.0)
    };
    is_below(gains) || is_below(losses)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const SIZES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

    /// Times in which inline takes `ratios` of DMA, each with up to `noise` more or less, on a drifting machine.
    fn times(ratios: [f64; 8], noise: f64, rounds: usize, seed: u64) -> Vec<Times> {
        let mut random = Random::new(seed);
        let mut vary = || 1.0 + noise * (random.below(2_000_001) as f64 / 1e6 - 1.0);
        ratios
            .iter()
            .map(|ratio| {
                let drift = |round: usize| 100.0 * (1.0 + 0.1 * round as f64);
                (0..rounds)
                    .map(|round| (drift(round) * ratio * vary(), drift(round) * vary()))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn crossover__is_found_with_certainty_where_it_is_plain() {
        let ratios = [0.8, 0.8, 0.8, 0.85, 0.9, 1.2, 1.3, 1.5];
        let found = find(&SIZES, &times(ratios, 0.02, 21, 7));
        assert_eq!(found.limit, Some(16));
        assert_eq!(found.interval, [Some(16), Some(16)]);
        assert!(found.known && !found.all && found.confidence > 0.99, "{found:?}");
    }

    #[test]
    fn crossover__is_never_or_beyond_all_sizes() {
        let never = find(&SIZES, &times([1.1; 8], 0.02, 21, 7));
        assert_eq!((never.limit, never.known, never.all), (None, true, false));
        assert_eq!(never.interval, [None, None]);
        let always = find(&SIZES, &times([0.9; 8], 0.02, 21, 7));
        assert_eq!((always.limit, always.known, always.all), (Some(128), true, true));
    }

    #[test]
    fn crossover__where_both_are_as_fast_lies_in_a_wide_interval() {
        let ratios = [0.7, 0.7, 1.0, 1.0, 1.0, 1.0, 1.4, 1.4];
        let found = find(&SIZES, &times(ratios, 0.05, 21, 3));
        let [Some(low), Some(high)] = found.interval else {
            panic!("{found:?}");
        };
        assert!(found.known && low >= 2 && high <= 32 && low < high, "{found:?}");
        assert!(found.confidence < 0.95, "{found:?}");
    }

    #[test]
    fn noise__alone_tells_nothing() {
        let find_in_noise = |seed| find(&SIZES, &times([1.0; 8], 0.1, 21, seed));
        let unknown = |found: &Finding| !found.known;
        let vain: Vec<Finding> = (0..100).map(find_in_noise).filter(unknown).collect();
        let told = 100 - vain.len();
        assert!(vain.iter().all(|f| f.limit.is_none() && !f.all));
        // A limit found in noise has two one-sided chances of 2.5 %, so about 5 of 100 are expected.
        assert!(told <= 12, "{told} of 100");
        let much = find(&SIZES, &times([0.9; 8], 0.02, 2, 5));
        assert!(find(&[], &[]).limit.is_none() && much.limit == Some(128));
    }

    #[test]
    fn drift__of_the_machine_does_not_count() {
        let ratios = [0.98, 0.98, 0.98, 0.98, 1.02, 1.02, 1.02, 1.02];
        let found = find(&SIZES, &times(ratios, 0.01, 31, 11));
        assert_eq!((found.limit, found.known), (Some(8), true), "{found:?}");
    }
}
