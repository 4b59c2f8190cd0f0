//! Connected ranks of other jobs, as ranks of this job.

use super::Job;
use crate::control::Foreign;
use crate::foreign::{SPARE, number_host};
use crate::identity::Origin;
use fastpath_segment::RemoteRank;

impl Job {
    /// Returns whether a rank is of another job, known to this process or not.
    pub fn is_foreign(&self, rank: usize) -> bool {
        self.segment.is_foreign(rank)
    }

    /// Returns the identity of a rank that is valid in all jobs.
    pub fn origin(&self, rank: usize) -> Origin {
        let own = Origin { job: self.job_id, rank: rank as u32 };
        self.foreign.origin(rank).unwrap_or(own)
    }

    /// Returns the rank in this job of `origin`; `None` for a rank of another job that this process does not know.
    pub fn find_origin(&self, origin: Origin) -> Option<u32> {
        if origin.job == self.job_id {
            return ((origin.rank as usize) < self.present()).then_some(origin.rank);
        }
        self.foreign.rank(origin)
    }

    /// Returns the secret with which this process connects to a rank of another job; `None` if it has none.
    pub fn foreign_secret(&self, rank: usize) -> Option<[u8; 32]> {
        self.foreign.secret(rank)
    }

    /// Returns the secrets of ranks of other jobs: job number and secret, each once.
    pub fn foreign_secrets(&self) -> Vec<(u64, [u8; 32])> {
        self.foreign.secrets()
    }

    /// Records the connection with `ranks` of other jobs: their numbers in this job, and their identities.
    pub fn know_foreign(&self, ranks: impl Iterator<Item = (u32, Origin)>, secret: [u8; 32]) {
        self.foreign.know(ranks, secret);
    }

    /// Returns whether the ranks of a node assign numbers to ranks of other jobs, because our launcher is absent.
    pub fn numbers_foreign(&self) -> bool {
        self.launcher.is_none()
    }

    /// Adds ranks of another job on this node. Returns the first of their consecutive numbers.
    ///
    /// # Errors
    /// No numbers are left; a text for users.
    pub fn add_foreign(&self, foreign: &[Foreign]) -> Result<u32, String> {
        let elsewhere: Vec<RemoteRank<'_>> = foreign
            .iter()
            .map(|one| RemoteRank { host: number_host(one.origin.job, one.host), card: &one.card })
            .collect();
        let added = self.segment.add_foreign(&elsewhere);
        let refused = |e| {
            let (asked, most) = (foreign.len(), SPARE.foreign);
            format!(
                "this job cannot add {asked} ranks of another job: {e}; a job that mpiexec has not \
                 started can add at most {most}"
            )
        };
        added.map(|first| first as u32).map_err(refused)
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::foreign::tests::foreign;

    #[test]
    fn singleton__has_room_for_ranks_of_other_jobs() {
        let job = Job::singleton().unwrap();
        assert!(job.numbers_foreign() && job.present() == 1);
        let asked = [foreign(7, 3, 0), foreign(7, 5, 1)];
        assert_eq!(job.add_foreign(&asked), Ok(1));
        assert_eq!(job.present(), 3);
        assert!(job.is_remote(1) && job.host(1) != job.host(2));
        assert_eq!(job.network_card(2).unwrap().port, 6);
        assert!(job.find_origin(asked[0].origin).is_none());
        let pairs = [1, 2].into_iter().zip(asked.iter().map(|one| one.origin));
        job.know_foreign(pairs, [3; 32]);
        assert_eq!(job.find_origin(asked[1].origin), Some(2));
        assert_eq!(job.origin(1), asked[0].origin);
        assert!(job.is_foreign(1) && !job.is_foreign(0));
        job.know_foreign([(2, asked[1].origin)].into_iter(), [4; 32]);
        assert_eq!(job.foreign_secret(2), Some([4; 32]));
        assert_eq!(job.foreign_secrets(), [(7, [3; 32]), (7, [4; 32])]);
        let many: Vec<Foreign> =
            (0..SPARE.foreign as u32).map(|rank| foreign(8, rank, 0)).collect();
        assert!(job.add_foreign(&many).unwrap_err().contains("cannot add"));
        assert_eq!(job.add_foreign(&many[..1]), Ok(3));
    }
}
