//! What a benchmark does and what comes out of it: the types that the launching process and the
//! ranks exchange as JSON.

use serde::{Deserialize, Serialize};

use crate::measure::floor::Floor;
use crate::measure::statistics::Summary;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// Send and receive in turn between the first and the last rank.
    Pingpong,
    /// Small messages in windows.
    Rate,
    /// Large messages in windows.
    Bandwidth,
    /// `MPI_Barrier` of all ranks.
    Barrier,
    /// `MPI_Allreduce` of doubles, all ranks.
    Allreduce,
}

impl Test {
    /// Only the first and the last rank take part; the others wait in a barrier.
    pub fn is_pairwise(self) -> bool {
        !matches!(self, Test::Barrier | Test::Allreduce)
    }

    /// Messages are sent in windows.
    pub fn is_windowed(self) -> bool {
        matches!(self, Test::Rate | Test::Bandwidth)
    }

    /// What one sample is the time of.
    pub fn describe_unit(self) -> &'static str {
        match self {
            Test::Pingpong => "ns per half round trip",
            Test::Rate | Test::Bandwidth => "ns per message",
            Test::Barrier | Test::Allreduce => "ns per call",
        }
    }

    /// Sizes in bytes when none are asked for.
    pub fn default_sizes(self) -> Vec<usize> {
        match self {
            Test::Pingpong => [0, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10]
                .into_iter()
                .chain([64 << 10, 256 << 10, 1 << 20, 4 << 20])
                .collect(),
            Test::Rate | Test::Allreduce => vec![8],
            Test::Bandwidth => vec![4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
            Test::Barrier => vec![0],
        }
    }
}

/// Everything the ranks need to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What to measure.
    pub test: Test,
    /// Bytes of a message, one case for each.
    pub sizes: Vec<usize>,
    /// Messages in flight at once, where there are windows.
    pub window: usize,
    /// Samples of each case, fewer where `case_ns` does not suffice for them.
    pub samples: usize,
    /// A sample is the mean over a batch of operations that lasts at least this long.
    pub batch_ns: u64,
    /// Time for the samples of one case.
    pub case_ns: u64,
    /// The library to measure.
    pub library: std::path::PathBuf,
}

/// The fewest samples of a case, however long they take.
pub const SAMPLES_MIN: usize = 20;

/// One case: a test at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// What was measured.
    pub test: Test,
    /// Number of ranks of the job.
    pub ranks: usize,
    /// Bytes of a message (of the whole vector, for allreduce).
    pub bytes: usize,
    /// Messages in flight, where there are windows.
    pub window: Option<usize>,
    /// What the times are in and of.
    pub unit: String,
    /// Statistics over batches.
    pub time: Summary,
    /// Operations in each batch.
    pub operations_per_batch: u64,
    /// Smallest step of the clock that was seen.
    pub clock_step_ns: u64,
    /// The floor measured in turn with the case; None where that is not possible.
    pub floor: Option<Floor>,
}

impl Case {
    /// Megabytes (10^6 bytes) per second at the median; None where bytes are not the matter.
    pub fn megabytes_per_s(&self) -> Option<f64> {
        let moved = self.test.is_windowed() || self.test == Test::Pingpong;
        (moved && self.bytes > 0).then(|| self.bytes as f64 * 1e3 / self.time.median)
    }

    /// Millions of messages per second at the median, where messages are counted.
    pub fn million_messages_per_s(&self) -> Option<f64> {
        self.test.is_windowed().then(|| 1e3 / self.time.median)
    }
}

/// What rank 0 prints, one line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Who is measured.
    Start {
        /// What the library says it is.
        library: String,
        /// Number of ranks.
        ranks: usize,
        /// Processors on which the first and the last rank were seen.
        processors: [Option<usize>; 2],
    },
    /// A step of a case is done.
    Progress {
        /// Bytes of the case in hand.
        bytes: usize,
        /// Steps done of all cases.
        done: u64,
        /// Steps of all cases.
        total: u64,
    },
    /// A case is done.
    Case(Box<Case>),
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measure::statistics::summarize;

    fn make_case(test: Test, bytes: usize, median: f64) -> Case {
        Case {
            test,
            ranks: 2,
            bytes,
            window: None,
            unit: test.describe_unit().to_owned(),
            time: summarize(&[median]).unwrap(),
            operations_per_batch: 1,
            clock_step_ns: 20,
            floor: None,
        }
    }

    #[test]
    fn event__survives_a_round_trip_through_json() {
        let event = Event::Case(Box::new(make_case(Test::Rate, 8, 20.0)));
        let text = serde_json::to_string(&event).unwrap();
        assert!(!text.contains('\n'));
        let Event::Case(back) = serde_json::from_str(&text).unwrap() else {
            panic!("another event came back");
        };
        assert_eq!(
            (back.test, back.bytes, back.time.median),
            (Test::Rate, 8, 20.0)
        );
    }

    #[test]
    fn rates__are_decimal_megabytes_and_millions() {
        let case = make_case(Test::Bandwidth, 1_000_000, 100_000.0);
        assert_eq!(case.megabytes_per_s(), Some(10_000.0));
        let case = make_case(Test::Rate, 8, 20.0);
        assert_eq!(case.million_messages_per_s(), Some(50.0));
        assert_eq!(make_case(Test::Barrier, 0, 1.0).megabytes_per_s(), None);
    }
}
