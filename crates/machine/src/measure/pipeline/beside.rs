//! The bare pipeline beside the runs of a benchmark: the floor of a ping-pong of large messages.
//!
//! The best plan for each size is searched for once; then the pipeline is measured with it before
//! a run and after it, as a run keeps both processors busy. What two processors share can change on
//! a virtual machine within seconds, so that the time of a cache line stands beside each.

use std::io;

use fastpath_report::record::{Case, Histogram, Of};
use fastpath_report::statistics::summarize;

use super::search::{BestPlan, find_best};
use super::{Pipeline, Taken};

/// Sizes from which the pipeline is the floor, up to which there is memory for it.
pub const SIZES: std::ops::RangeInclusive<u64> = 4096..=16 << 20;

/// How results call it.
pub const NAME: &str = "bare pipeline and a cache line one way";

/// Time for the search of each size.
const SEARCH_NS: u64 = 200_000_000;

/// Samples before a run, and as many after it; each is the mean over a batch.
const SAMPLES: usize = 4;
const BATCH_NS: u64 = 200_000;

/// The pipeline at its best for one size, and what it took beside the run that is under way.
pub struct Best {
    pipeline: Pipeline,
    /// The plan, and what it took in the search.
    pub found: BestPlan,
    /// What it took beside the run.
    pub taken: Vec<(When, Taken)>,
}

/// When something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the run.
    Before,
    /// After it.
    After,
}

/// The pipeline between two processors, for some sizes.
pub struct Beside {
    /// The two processors.
    pub processors: [usize; 2],
    /// One way of a cache line between them while the plans were searched for.
    pub line: f64,
    /// By size, ascending.
    pub sizes: Vec<Best>,
}

impl Best {
    /// Bytes of a message.
    pub fn bytes(&self) -> usize {
        self.pipeline.bytes()
    }
}

/// Whether the pipeline is the floor of a case: half a round trip of one large message between two
/// ranks that share memory, as the ranks found when they measured a floor themselves: no socket.
pub fn is_floor_of(case: &Case) -> bool {
    let over_adapter = case.transport.as_deref().is_some_and(|t| t == "rc" || t == "ud");
    let by_socket = case.floor_of.as_deref().is_some_and(|f| f.contains("socket"));
    let large = case.of == Of::HalfRoundTrip && SIZES.contains(&case.bytes);
    large && case.ranks == 2 && case.floor.is_some() && !over_adapter && !by_socket
}

impl Beside {
    /// Searches for the best plans, a fifth of a second for each size. None where no size is large.
    ///
    /// # Errors
    /// Processors that this process may not use; no memory.
    pub fn search(processors: [usize; 2], sizes: &[u64]) -> io::Result<Option<Beside>> {
        let large = sizes.iter().filter(|b| SIZES.contains(b));
        let large: Vec<usize> = large.map(|&b| b as usize).collect();
        if large.is_empty() {
            return Ok(None);
        }
        let limit_ns = SEARCH_NS * large.len() as u64;
        let found = find_best(processors, &large, limit_ns)?;
        Ok(Some(Beside::new(processors, found)))
    }

    fn new(processors: [usize; 2], found: Vec<(Pipeline, BestPlan)>) -> Beside {
        let lines: Vec<f64> = found.iter().map(|(_, found)| found.line).collect();
        let make = |(pipeline, found)| Best { pipeline, found, taken: Vec::new() };
        Beside {
            processors,
            line: summarize(&lines).map_or(0.0, |l| l.median),
            sizes: found.into_iter().map(make).collect(),
        }
    }

    /// Whether it is of these processors, in either order.
    pub fn is_between(&self, pair: [usize; 2]) -> bool {
        self.processors == pair || self.processors == [pair[1], pair[0]]
    }

    /// Whether there is a plan for messages of `bytes` bytes.
    pub fn has(&self, bytes: u64) -> bool {
        self.sizes.iter().any(|best| best.bytes() as u64 == bytes)
    }

    /// Forgets what was measured beside an earlier run.
    pub fn begin_run(&mut self) {
        self.sizes.iter_mut().for_each(|best| best.taken.clear());
    }

    /// Measures these sizes.
    ///
    /// # Errors
    /// The processors cannot be used any more.
    pub fn measure(&mut self, sizes: &[u64], when: When) -> io::Result<()> {
        for best in &mut self.sizes {
            if sizes.contains(&(best.bytes() as u64)) {
                let plan = best.found.plan;
                // Whatever ran last has left the caches in another state.
                best.pipeline.sample(plan, 1, BATCH_NS)?;
                let taken = best.pipeline.sample(plan, SAMPLES, BATCH_NS)?;
                best.taken.push((when, taken));
            }
        }
        Ok(())
    }

    /// Puts the pipeline in the place of a case's floor, if it is that and was measured between the
    /// same processors: what it took while a line took as long as beside the case, or, unless
    /// `alike`, at all. Whether it did so.
    pub fn attach(&self, case: &mut Case, alike: bool) -> bool {
        let size = |best: &&Best| best.bytes() as u64 == case.bytes;
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
        let fits = |taken: &&Taken| !alike || line.is_some_and(|line| taken.is_at(line));
        let taken: Vec<&Taken> = best.taken.iter().map(|(_, t)| t).filter(fits).collect();
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
        assert!(Beside::search([first, last], &[0, 8]).unwrap().is_none());
        let found = find_best([first, last], &[4096], 1).unwrap();
        let mut beside = Beside::new([first, last], found);
        beside.measure(&[8], When::Before).unwrap();
        assert!(beside.sizes[0].taken.is_empty());
        for when in [When::Before, When::After] {
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
            Case { of: Of::Message, ..make_case(4096, &[1.0]) },
            Case { ranks: 4, ..make_case(4096, &[1.0]) },
            Case { transport: Some("rc".into()), ..make_case(4096, &[1.0]) },
            Case { floor: None, ..make_case(4096, &[1.0]) },
            Case { floor_of: Some("bare socket".into()), ..make_case(4096, &[1.0]) },
        ];
        assert!(!others.iter().any(is_floor_of));
    }
}
