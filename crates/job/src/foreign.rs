//! Connected ranks of other jobs (docs/decisions/0071).
//!
//! These ranks have numbers in this job. Our launcher assigns one number to each of them, equal for all ranks. Without
//! our launcher, the ranks of each node assign numbers, which are valid on that node only. An [`Origin`] identifies a
//! rank for all processes of all jobs.

use crate::control::Foreign;
use crate::identity::Origin;
use fastpath_segment::{FIRST_FOREIGN_HOST, SpareRanks};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Spare numbers for ranks of other jobs on each node of a job without our launcher.
pub(crate) const SPARE: SpareRanks = SpareRanks { ranks: 0, foreign: 256 };

/// Maximum number of secrets kept for a pair of ranks; the latest are kept. A connected pair needs no secret.
const SECRETS_MOST: usize = 8;

/// Returns the number in this job of a host of another job. Two hosts get one number with a chance of one in 2^30.
pub fn number_host(job: u64, host: u32) -> u32 {
    // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    let mixed = (job ^ u64::from(host).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    FIRST_FOREIGN_HOST | (mixed >> 34) as u32
}

/// Numbers that the launcher has assigned to ranks of other jobs.
#[derive(Debug, Default)]
pub struct ForeignNumbers(BTreeMap<Origin, u32>);

impl ForeignNumbers {
    /// Returns the numbers of the ranks `asked`. A new rank gets the next number from `next` on. The second list
    /// contains the new ranks, in order.
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

    /// Removes the numbers from `first` on. The caller must know that no rank uses them.
    pub fn take_back(&mut self, first: u32) {
        self.0.retain(|_, number| *number < first);
    }
}

#[derive(Clone, Debug)]
struct KnownRank {
    rank: u32,
    origin: Origin,
    /// Secrets that prove on a network that a process is of the other job, and that this process is of its own job.
    /// There is one secret for each of the latest times at which the two processes were connected.
    secrets: Vec<[u8; 32]>,
}

#[derive(Debug, Default)]
pub(crate) struct ForeignRanks {
    known: Mutex<Vec<KnownRank>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForeignRanks {
    fn find<T>(
        &self, is_it: impl Fn(&KnownRank) -> bool, read: impl Fn(&KnownRank) -> T,
    ) -> Option<T> {
        lock(&self.known).iter().find(|one| is_it(one)).map(read)
    }

    /// Returns the identity, valid in all jobs, of a rank of another job by its number in this job.
    pub(crate) fn origin(&self, rank: usize) -> Option<Origin> {
        self.find(|one| one.rank as usize == rank, |one| one.origin)
    }

    /// Returns a rank's number in this job.
    pub(crate) fn rank(&self, origin: Origin) -> Option<u32> {
        self.find(|one| one.origin == origin, |one| one.rank)
    }

    /// Returns the secret with which this process connects to the rank with that number in this job; `None` if unknown.
    pub(crate) fn secret(&self, rank: usize) -> Option<[u8; 32]> {
        self.find(|one| one.rank as usize == rank, |one| one.secrets.last().copied())?
    }

    /// Returns the secrets of ranks of other jobs: job number and secret, each once.
    pub(crate) fn secrets(&self) -> Vec<(u64, [u8; 32])> {
        let known = lock(&self.known);
        let all = known.iter().flat_map(|one| {
            let secrets = one.secrets.iter();
            secrets.map(|&secret| (one.origin.job, secret))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Records the connection with `ranks` of other jobs: their numbers in this job, and their identities.
    pub(crate) fn know(&self, ranks: impl Iterator<Item = (u32, Origin)>, secret: [u8; 32]) {
        let mut known = lock(&self.known);
        for (rank, origin) in ranks {
            match known.iter_mut().find(|one| one.origin == origin) {
                Some(one) => {
                    one.secrets.push(secret);
                    if one.secrets.len() > SECRETS_MOST {
                        one.secrets.remove(0);
                    }
                }
                None => known.push(KnownRank { rank, origin, secrets: vec![secret] }),
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;
    use crate::network::NetworkCard;

    pub(crate) fn foreign(job: u64, rank: u32, host: u32) -> Foreign {
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
}
