//! Ranks of other jobs that this one is connected with (docs/decisions/0071).
//!
//! They have numbers in this job. Where there is a launcher of ours it gives them, the same for all ranks; else the
//! ranks of a node take some of their own, so that a number means nothing in another process. Its [`Origin`] identifies
//! a rank for all processes of all jobs.

use super::Job;
use crate::control::Foreign;
use crate::segment::{Elsewhere, FIRST_FOREIGN_HOST, Spare};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Room for ranks of other jobs on each node of a job without a launcher of ours.
pub(super) const SPARE: Spare = Spare { ranks: 0, foreign: 256 };

/// Secrets of a pair that are kept: the last ones. A pair needs none once it has its connection.
const SECRETS_MOST: usize = 8;

/// A rank, as all jobs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Number of its own job.
    pub job: u64,
    /// Its rank there.
    pub rank: u32,
}

/// The number that a host of another job has in this one: not that of any other host, but by a chance of one in 2^30.
pub fn number_host(job: u64, host: u32) -> u32 {
    // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    let mixed = (job ^ u64::from(host).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    FIRST_FOREIGN_HOST | (mixed >> 34) as u32
}

/// The numbers that a launcher has given to ranks of other jobs.
#[derive(Debug, Default)]
pub struct ForeignNumbers(BTreeMap<Origin, u32>);

impl ForeignNumbers {
    /// The numbers of those ranks: of one that comes for the first time the next one from `next` on. The second list
    /// has those that are new, in order.
    pub fn assign(&mut self, asked: &[Foreign], next: u32) -> (Vec<u32>, Vec<Foreign>) {
        let mut new = Vec::new();
        let numbers = asked.iter().map(|foreign| {
            *self.0.entry(foreign.origin).or_insert_with(|| {
                new.push(foreign.clone());
                next + new.len() as u32 - 1
            })
        });
        (numbers.collect(), new)
    }

    /// Forgets numbers from `first` on, which were given to no rank.
    pub fn take_back(&mut self, first: u32) {
        self.0.retain(|_, number| *number < first);
    }
}

/// One of them as this process knows it.
#[derive(Clone, Debug)]
struct Known {
    rank: u32,
    origin: Origin,
    /// What proves on a network that somebody is of that job, and that this process is of its own: one for each of the
    /// last times that both have been connected.
    secrets: Vec<[u8; 32]>,
}

/// Those that this process knows.
#[derive(Debug, Default)]
pub(super) struct ForeignRanks {
    known: Mutex<Vec<Known>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForeignRanks {
    fn find<T>(&self, is_it: impl Fn(&Known) -> bool, read: impl Fn(&Known) -> T) -> Option<T> {
        lock(&self.known).iter().find(|one| is_it(one)).map(read)
    }
}

impl Job {
    /// Whether a rank is of another job, known to this process or not.
    pub fn is_foreign(&self, rank: usize) -> bool {
        self.segment.is_foreign(rank)
    }

    /// Who a rank is for all jobs.
    pub fn origin(&self, rank: usize) -> Origin {
        let of = |one: &Known| one.rank as usize == rank;
        let own = Origin { job: self.job_id, rank: rank as u32 };
        self.foreign.find(of, |one| one.origin).unwrap_or(own)
    }

    /// The rank in this job of one that all jobs call so; `None` for a rank of another job that this process does not
    /// know.
    pub fn find_origin(&self, origin: Origin) -> Option<u32> {
        if origin.job == self.job_id {
            return ((origin.rank as usize) < self.present()).then_some(origin.rank);
        }
        self.foreign.find(|one| one.origin == origin, |one| one.rank)
    }

    /// The secret by which this process calls a rank of another job.
    pub fn foreign_secret(&self, rank: usize) -> Option<[u8; 32]> {
        let of = |one: &Known| one.rank as usize == rank;
        self.foreign.find(of, |one| one.secrets.last().copied())?
    }

    /// What ranks of other jobs may prove themselves by: number of the job and secret, each once.
    pub fn foreign_secrets(&self) -> Vec<(u64, [u8; 32])> {
        let known = lock(&self.foreign.known);
        let all = known.iter().flat_map(|one| {
            let secrets = one.secrets.iter();
            secrets.map(|&secret| (one.origin.job, secret))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// This process is connected with those ranks of other jobs, which have these numbers in this one.
    pub fn know_foreign(&self, ranks: impl Iterator<Item = (u32, Origin)>, secret: [u8; 32]) {
        let mut known = lock(&self.foreign.known);
        for (rank, origin) in ranks {
            match known.iter_mut().find(|one| one.origin == origin) {
                Some(one) => {
                    one.secrets.push(secret);
                    if one.secrets.len() > SECRETS_MOST {
                        one.secrets.remove(0);
                    }
                }
                None => known.push(Known { rank, origin, secrets: vec![secret] }),
            }
        }
    }

    /// Whether the ranks of a node number those of other jobs by themselves: there is no launcher of ours.
    pub fn numbers_foreign(&self) -> bool {
        self.launcher.is_none()
    }

    /// Makes room on this node for ranks of another job; returns the first of their numbers, which follow each other.
    ///
    /// # Errors
    /// For people: there is no room.
    pub fn add_foreign(&self, foreign: &[Foreign]) -> Result<u32, String> {
        let elsewhere: Vec<Elsewhere<'_>> = foreign
            .iter()
            .map(|one| Elsewhere { host: number_host(one.origin.job, one.host), card: &one.card })
            .collect();
        let added = self.segment.add_foreign(&elsewhere);
        let refused = |e| {
            let (asked, most) = (foreign.len(), SPARE.foreign);
            format!(
                "no room for {asked} ranks of another job (where mpiexec has not started the job, \
                 a node has room for {most} in all): {e}"
            )
        };
        added.map(|first| first as u32).map_err(refused)
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::network::NetworkCard;

    fn foreign(job: u64, rank: u32, host: u32) -> Foreign {
        let card = NetworkCard {
            host: "there".to_owned(),
            port: 1 + rank as u16,
            addresses: vec![[10, 0, 0, 1].into()],
        };
        Foreign { origin: Origin { job, rank }, host, card: card.encode() }
    }

    #[test]
    fn numbers__stay_and_hosts_of_two_jobs_differ() {
        let mut numbers = ForeignNumbers::default();
        let (ranks, new) = numbers.assign(&[foreign(7, 0, 0), foreign(7, 1, 0)], 4);
        assert_eq!((ranks, new.len()), (vec![4, 5], 2));
        let (ranks, later) = numbers.assign(&[foreign(8, 1, 0), foreign(7, 1, 0)], 6);
        assert_eq!((ranks, later), (vec![6, 5], vec![foreign(8, 1, 0)]));
        numbers.take_back(6);
        assert_eq!(numbers.assign(&[foreign(9, 0, 0)], 6).0, [6]);
        let hosts = [(7, 0), (7, 1), (8, 0), (0, 7)].map(|(job, host)| number_host(job, host));
        assert!(hosts.iter().all(|&host| host >= FIRST_FOREIGN_HOST));
        assert!((1..hosts.len()).all(|i| !hosts[..i].contains(&hosts[i])));
    }

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
        assert!(job.add_foreign(&many).unwrap_err().contains("no room"));
        assert_eq!(job.add_foreign(&many[..1]), Ok(3));
    }
}
