//! Measurement of every size inline and by DMA, round after round.

use std::time::Duration;

use fastpath_base::clock;
use fastpath_base::random::Random;
use fastpath_machine::measure::find_batch;
use fastpath_report::record::interval::{Ratio, of_pairs};
use fastpath_report::statistics::find_median;
use fastpath_transport::verbs::echo::Verb;
use fastpath_transport::verbs::{Echo, EchoError, EchoPort, InlineChoice, VerbsError};
use serde::Serialize;

use super::crossover::Times;

/// Minimum duration of a batch, in nanoseconds.
const BATCH_NS: u64 = 1_000_000;
/// Minimum number of exchanges in a batch.
const LEAST: u64 = 4;
/// Time without an answer after which the device counts as unable to send packets to itself.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct SweepPlan {
    pub sizes: Vec<u32>,
    pub verb: Verb,
    pub rounds: u32,
}

/// Result of a size: half round trips in nanoseconds (median over rounds of the mean of a batch), and their ratio.
#[derive(Debug, Serialize)]
pub(super) struct SweepPoint {
    pub bytes: u32,
    pub inline_ns: f64,
    pub dma_ns: f64,
    /// Inline to DMA: the geometric mean over rounds with its 95 % interval; below 1 inline is faster.
    pub ratio: Option<Ratio>,
}

/// Lists the powers of two up to `largest`, with 0 and `largest` itself.
pub(super) fn list_powers(largest: u32) -> Vec<u32> {
    let powers = (0..32).map(|n| 1 << n).take_while(|&size| size < largest);
    let mut sizes: Vec<u32> = [0].into_iter().chain(powers).collect();
    if largest > 0 {
        sizes.push(largest);
    }
    sizes
}

/// Finds the largest request for inline data, up to `most` bytes, that the device grants.
///
/// # Errors
/// The device refuses to create queue pairs at all.
pub(super) fn find_largest(port: &EchoPort, most: u32) -> Result<u32, VerbsError> {
    let grants = |asked: u32| port.make_pair(asked, 64).map(|pair| pair.granted_inline());
    if grants(most)? >= most {
        return Ok(most);
    }
    // `low` is granted, `high` is not.
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match grants(middle)? >= middle {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

/// Measures the one-way times of each size, round by round.
pub(super) fn run(port: &EchoPort, inline: u32, plan: &SweepPlan) -> Result<Vec<Times>, EchoError> {
    let most = plan.sizes.last().copied().unwrap_or(0);
    let mut echo = port.connect(inline, most, TIMEOUT)?;
    let counts = plan
        .sizes
        .iter()
        .map(|&bytes| calibrate(&mut echo, plan.verb, bytes))
        .collect::<Result<Vec<u64>, EchoError>>()?;
    let mut times = vec![Times::new(); plan.sizes.len()];
    let mut orders = Orders::new(plan.sizes.len());
    for _ in 0..plan.rounds {
        for (index, inline_first) in orders.next_round() {
            let (bytes, count) = (plan.sizes[index], counts[index]);
            let mut time = |choice| time_batch(&mut echo, plan.verb, bytes, choice, count);
            let pair = match inline_first {
                true => {
                    let inline = time(InlineChoice::Force)?;
                    (inline, time(InlineChoice::Forbid)?)
                }
                false => {
                    let dma = time(InlineChoice::Forbid)?;
                    (time(InlineChoice::Force)?, dma)
                }
            };
            times[index].push(pair);
        }
    }
    Ok(times)
}

/// Order of the sizes in a round, and the first method of each. Both are random, so that periodic disturbances of the
/// machine affect both methods of all sizes equally. The same holds for the two halves of the rounds that are compared.
pub(super) struct Orders {
    random: Random,
    sizes: Vec<usize>,
    /// Set for the second of two rounds: which sizes began inline in the first round. In the second round the other
    /// method begins.
    before: Option<Vec<bool>>,
}

impl Orders {
    pub fn new(sizes: usize) -> Self {
        Orders { random: Random::new(1), sizes: (0..sizes).collect(), before: None }
    }

    /// Index of each size, and whether inline begins.
    pub fn next_round(&mut self) -> Vec<(usize, bool)> {
        for at in (1..self.sizes.len()).rev() {
            let other = self.random.below(at as u64 + 1) as usize;
            self.sizes.swap(at, other);
        }
        let firsts: Vec<bool> = match self.before.take() {
            Some(before) => before.iter().map(|first| !first).collect(),
            None => {
                let lots: Vec<bool> = self.sizes.iter().map(|_| self.random.chance(0.5)).collect();
                self.before = Some(lots.clone());
                lots
            }
        };
        self.sizes.iter().map(|&size| (size, firsts[size])).collect()
    }
}

/// Finds the number of exchanges that fill a batch. The exchanges of the search are the warm-up.
fn calibrate(echo: &mut Echo, verb: Verb, bytes: u32) -> Result<u64, EchoError> {
    let mut trouble = None;
    let (count, _) = find_batch(BATCH_NS, |count| {
        let timed = match trouble {
            None => time_batch(echo, verb, bytes, InlineChoice::Forbid, count),
            Some(_) => Ok(BATCH_NS as f64),
        };
        timed.unwrap_or_else(|error| {
            trouble = Some(error);
            BATCH_NS as f64 // ends the search
        }) * (2 * count) as f64
    });
    match trouble {
        Some(error) => Err(error),
        None => Ok(count.max(LEAST)),
    }
}

/// Mean one-way time of a message, in nanoseconds.
fn time_batch(
    echo: &mut Echo, verb: Verb, bytes: u32, choice: InlineChoice, count: u64,
) -> Result<f64, EchoError> {
    let start = clock::now_ns();
    echo.exchange(verb, bytes, choice, count)?;
    Ok((clock::now_ns() - start) as f64 / (2 * count) as f64)
}

pub(super) fn summarize(sizes: &[u32], times: &[Times]) -> Vec<SweepPoint> {
    let case = |(&bytes, times): (&u32, &Times)| SweepPoint {
        bytes,
        inline_ns: find_median(times.iter().map(|t| t.0)).unwrap_or(f64::NAN),
        dma_ns: find_median(times.iter().map(|t| t.1)).unwrap_or(f64::NAN),
        ratio: of_pairs(times),
    };
    sizes.iter().zip(times).map(case).collect()
}
