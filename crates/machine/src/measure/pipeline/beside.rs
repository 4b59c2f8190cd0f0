//! The bare pipeline beside the runs of a benchmark: the floor of a ping-pong of large messages.
//!
//! The best plan for each size is searched once. Then the pipeline is measured with this plan before and after a run,
//! because a run occupies both processors. On a virtual machine the shared cache of two processors can change within
//! seconds, so the cache-line time is recorded with each measurement.

use std::io;

use fastpath_report::record::{Case, Histogram, Quantity};
use fastpath_report::statistics::summarize;

use super::search::{BestPlan, find_best};
use super::{Pipeline, PipelineTimes};

/// Message sizes in bytes for which the pipeline is the floor; the largest is limited by memory.
pub const SIZES: std::ops::RangeInclusive<u64> = 4096..=16 << 20;

/// Name in results.
pub const NAME: &str = "bare pipeline and a cache line one way";

const SEARCH_NS: u64 = 200_000_000;

/// Number of samples before a run, and after it; each is the mean over a batch.
const SAMPLES: usize = 4;
const BATCH_NS: u64 = 200_000;

/// The best pipeline for one size, and its times beside the current run.
pub struct BestPipeline {
    pipeline: Pipeline,
    /// The plan, and its time in the search.
    pub found: BestPlan,
    /// Times beside the run.
    pub taken: Vec<(SampleTime, PipelineTimes)>,
}

/// Time of a measurement relative to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTime {
    /// Before the run.
    Before,
    /// After the run.
    After,
}

/// The pipeline between two processors, for some sizes.
pub struct PipelineRun {
    /// The two processors.
    pub processors: [usize; 2],
    /// One-way time of a cache line between the two processors during the search.
    pub line: f64,
    /// The best pipeline of each size, in ascending order of size.
    pub sizes: Vec<BestPipeline>,
}

impl BestPipeline {
    /// Size of a message, in bytes.
    pub fn bytes(&self) -> usize {
        self.pipeline.bytes()
    }
}

/// Whether the pipeline is the floor of a case: half a round trip of one large message between two ranks that share
/// memory. The ranks share memory if the floor that they measured themselves is not a socket.
pub fn is_floor_of(case: &Case) -> bool {
    let over_adapter = case.transport.as_deref().is_some_and(|t| t == "rc" || t == "ud");
    let by_socket = case.floor_of.as_deref().is_some_and(|f| f.contains("socket"));
    let large = case.of == Quantity::HalfRoundTrip && SIZES.contains(&case.bytes);
    large && case.ranks == 2 && case.floor.is_some() && !over_adapter && !by_socket
}

impl PipelineRun {
    /// Searches for the best plans, a fifth of a second for each size. None if no size is large.
    ///
    /// # Errors
    /// This process may not use a processor; no memory.
    pub fn search(processors: [usize; 2], sizes: &[u64]) -> io::Result<Option<PipelineRun>> {
        let large = sizes.iter().filter(|b| SIZES.contains(b));
        let large: Vec<usize> = large.map(|&b| b as usize).collect();
        if large.is_empty() {
            return Ok(None);
        }
        let limit_ns = SEARCH_NS * large.len() as u64;
        let found = find_best(processors, &large, limit_ns)?;
        Ok(Some(PipelineRun::new(processors, found)))
    }

    fn new(processors: [usize; 2], found: Vec<(Pipeline, BestPlan)>) -> PipelineRun {
        let lines: Vec<f64> = found.iter().map(|(_, found)| found.line).collect();
        let make = |(pipeline, found)| BestPipeline { pipeline, found, taken: Vec::new() };
        PipelineRun {
            processors,
            line: summarize(&lines).map_or(0.0, |l| l.median),
            sizes: found.into_iter().map(make).collect(),
        }
    }

    /// Whether `pair` is the pipeline's processors, in either order.
    pub fn is_between(&self, pair: [usize; 2]) -> bool {
        self.processors == pair || self.processors == [pair[1], pair[0]]
    }

    /// Whether there is a plan for messages of `bytes` bytes.
    pub fn has(&self, bytes: u64) -> bool {
        self.sizes.iter().any(|best| best.bytes() as u64 == bytes)
    }

    /// Clears the measurements beside an earlier run.
    pub fn begin_run(&mut self) {
        self.sizes.iter_mut().for_each(|best| best.taken.clear());
    }

    /// Measures the pipelines of these sizes.
    ///
    /// # Errors
    /// The processors cannot be used any more.
    pub fn measure(&mut self, sizes: &[u64], when: SampleTime) -> io::Result<()> {
        for best in &mut self.sizes {
            if sizes.contains(&(best.bytes() as u64)) {
                let plan = best.found.plan;
                // Warm-up, because earlier code has left other data in the caches.
                best.pipeline.sample(plan, 1, BATCH_NS)?;
                let taken = best.pipeline.sample(plan, SAMPLES, BATCH_NS)?;
                best.taken.push((when, taken));
            }
        }
        Ok(())
    }

    /// Replaces a case's floor by the pipeline, if the pipeline is the case's floor and was measured between the case's
    /// processors. With `alike`, only times measured at the case's cache-line time are used. Returns whether the floor
    /// was replaced.
    pub fn attach(&self, case: &mut Case, alike: bool) -> bool {
        let size = |best: &&BestPipeline| best.bytes() as u64 == case.bytes;
        let best = self.sizes.iter().find(size).filter(|_| is_floor_of(case));
        let seen = case.processors.iter().map(|&p| usize::try_from(p));
        let seen: Vec<usize> = seen.flatten().collect();
        let &[one, two] = seen.as_slice() else {
            return false;
        };
        let Some(best) = best.filter(|_| self.is_between([one, two])) else {
            return false;
        };
        let line = case.line();
        let fits = |taken: &&PipelineTimes| !alike || line.is_some_and(|line| taken.is_at(line));
        let taken: Vec<&PipelineTimes> = best.taken.iter().map(|(_, t)| t).filter(fits).collect();
        if taken.is_empty() {
            return false;
        }
        let times = taken.iter().flat_map(|t| {
            let line = t.line();
            t.times.iter().map(move |time| time + line)
        });
        case.floor = Some(times.collect::<Histogram>());
        case.floor_of = Some(NAME.to_owned());
        case.floor_line = Some(taken.iter().map(|t| t.line()).sum::<f64>() / taken.len() as f64);
        true
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measure::placement::allowed_processors;
    use fastpath_report::testing::samples::make_case;

    #[test]
    fn pipeline__is_the_floor_of_a_large_message_between_the_same_processors() {
        let [first, .., last] = allowed_processors()[..] else {
            return;
        };
        assert!(PipelineRun::search([first, last], &[0, 8]).unwrap().is_none());
        let found = find_best([first, last], &[4096], 1).unwrap();
        let mut beside = PipelineRun::new([first, last], found);
        beside.measure(&[8], SampleTime::Before).unwrap();
        assert!(beside.sizes[0].taken.is_empty());
        for when in [SampleTime::Before, SampleTime::After] {
            beside.measure(&[4096], when).unwrap();
        }
        let mut case = make_case(4096, &[5000.0]);
        case.processors = vec![last as i32, first as i32];
        case.lines = Some([1e9; 2]);
        assert!(!beside.attach(&mut case, true), "in another state");
        assert!(beside.attach(&mut case, false));
        assert_eq!(case.floor_of.as_deref(), Some(NAME));
        assert_eq!(case.floor.unwrap().count(), 2 * SAMPLES as u64);
        assert!(case.floor_line.unwrap() > 0.0);
    }

    #[test]
    fn pipeline__is_no_floor_of_small_messages_other_tests_adapters_and_several_hosts() {
        assert!(is_floor_of(&make_case(4096, &[1.0])));
        assert!(!is_floor_of(&make_case(4095, &[1.0])));
        let others = [
            Case { of: Quantity::Message, ..make_case(4096, &[1.0]) },
            Case { ranks: 4, ..make_case(4096, &[1.0]) },
            Case { transport: Some("rc".into()), ..make_case(4096, &[1.0]) },
            Case { floor: None, ..make_case(4096, &[1.0]) },
            Case { floor_of: Some("bare socket".into()), ..make_case(4096, &[1.0]) },
        ];
        assert!(!others.iter().any(is_floor_of));
    }
}
