//! Failures in the order of their detection, and which of them a communicator has acknowledged.

use super::failed_set::FailedSet;

/// Failed ranks of `MPI_COMM_WORLD` that this process knows, each once, in the order of detection.
#[derive(Debug, Default)]
pub struct FailureLog {
    ranks: Vec<usize>,
    known: FailedSet,
}

impl FailureLog {
    /// Creates an empty log.
    pub const fn new() -> Self {
        FailureLog { ranks: Vec::new(), known: FailedSet::new() }
    }

    /// Adds the failure of `rank`. Returns whether it is new.
    pub fn report(&mut self, rank: usize) -> bool {
        let is_new = self.known.insert(rank);
        if is_new {
            self.ranks.push(rank);
        }
        is_new
    }

    /// Returns whether the failure of `rank` is known.
    pub fn contains(&self, rank: usize) -> bool {
        self.known.contains(rank)
    }

    /// The failed ranks in the order of detection.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

/// Failed members of one communicator, in the order of detection. The first of them are acknowledged.
///
/// Members have the numbers that `member_of` of [`CommFailures::update`] returns: ranks of the communicator, or of an
/// intercommunicator numbers that cover both groups.
#[derive(Debug, Default)]
pub struct CommFailures {
    /// Number of entries of the log that have been read.
    read: usize,
    failed: Vec<usize>,
    failed_set: FailedSet,
    acknowledged: usize,
}

impl CommFailures {
    /// Creates the state of a communicator without known failures.
    pub const fn new() -> Self {
        CommFailures { read: 0, failed: Vec::new(), failed_set: FailedSet::new(), acknowledged: 0 }
    }

    /// Adds the failures that `log` has got since the last call. `member_of` returns the member that a rank of
    /// `MPI_COMM_WORLD` is, if it is one.
    pub fn update(&mut self, log: &FailureLog, member_of: impl Fn(usize) -> Option<usize>) {
        for &rank in log.ranks.get(self.read..).unwrap_or_default() {
            if let Some(member) = member_of(rank)
                && self.failed_set.insert(member)
            {
                self.failed.push(member);
            }
        }
        self.read = log.ranks.len();
    }

    /// The failed members, as of `MPIX_Comm_get_failed`. An earlier list is a prefix of each later one.
    pub fn failed(&self) -> &[usize] {
        &self.failed
    }

    /// The failed members as a set.
    pub fn failed_set(&self) -> &FailedSet {
        &self.failed_set
    }

    /// Acknowledges the first `count` failures, all if there are fewer, and returns the number of acknowledged ones, as
    /// `MPIX_Comm_ack_failed`. What was acknowledged stays so.
    pub fn acknowledge(&mut self, count: usize) -> usize {
        self.acknowledged = self.acknowledged.max(count.min(self.failed.len()));
        self.acknowledged
    }

    /// Acknowledges all known failures, as `MPIX_Comm_failure_ack`.
    pub fn acknowledge_all(&mut self) {
        self.acknowledged = self.failed.len();
    }

    /// The acknowledged members, as of `MPIX_Comm_failure_get_acked`.
    pub fn acknowledged(&self) -> &[usize] {
        &self.failed[..self.acknowledged]
    }

    /// Returns the acknowledged members as a set.
    pub fn acknowledged_set(&self) -> FailedSet {
        self.acknowledged().iter().copied().collect()
    }

    /// Returns whether a known failure is not acknowledged, so that wildcard receives raise an error.
    pub fn has_unacknowledged(&self) -> bool {
        self.acknowledged < self.failed.len()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Returns the log of `ranks`.
    fn log(ranks: &[usize]) -> FailureLog {
        let mut log = FailureLog::new();
        for rank in ranks {
            log.report(*rank);
        }
        log
    }

    #[test]
    fn log__has_each_rank_once_in_the_order_of_detection() {
        let mut log = log(&[70, 3]);
        assert!(!log.report(70));
        assert!(log.report(5));
        assert_eq!(log.ranks(), [70, 3, 5]);
        assert!(log.contains(5) && !log.contains(4));
    }

    #[test]
    fn failed__grows_at_its_end_by_members_only() {
        // Members of the communicator: the even ranks.
        let member_of = |rank: usize| rank.is_multiple_of(2).then_some(rank / 2);
        let mut log = log(&[8, 3]);
        let mut comm = CommFailures::new();
        comm.update(&log, member_of);
        assert_eq!(comm.failed(), [4]);
        log.report(2);
        log.report(5);
        comm.update(&log, member_of);
        comm.update(&log, member_of);
        assert_eq!(comm.failed(), [4, 1]);
        assert_eq!(comm.failed_set(), &[1, 4].into_iter().collect());
    }

    #[test]
    fn acknowledge__takes_the_first_and_never_shrinks() {
        let mut comm = CommFailures::new();
        comm.update(&log(&[9, 2, 4]), Some);
        assert_eq!(comm.acknowledge(0), 0);
        assert_eq!(comm.acknowledge(2), 2);
        assert_eq!((comm.acknowledge(1), comm.acknowledge(0)), (2, 2));
        assert_eq!(comm.acknowledged(), [9, 2]);
        assert_eq!(comm.acknowledged_set(), [2, 9].into_iter().collect());
        assert!(comm.has_unacknowledged());
        assert_eq!(comm.acknowledge(100), 3);
        assert!(!comm.has_unacknowledged());
    }

    #[test]
    fn failure_ack__acknowledges_what_is_known_and_nothing_later() {
        let mut log = log(&[1]);
        let mut comm = CommFailures::new();
        comm.update(&log, Some);
        comm.acknowledge_all();
        assert!(!comm.has_unacknowledged());
        log.report(0);
        comm.update(&log, Some);
        assert_eq!(comm.acknowledged(), [1]);
        assert!(comm.has_unacknowledged());
        assert_eq!(comm.acknowledge(0), 1);
    }
}
