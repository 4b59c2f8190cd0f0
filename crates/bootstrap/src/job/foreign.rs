//! Ranks of other jobs that this one is connected with (docs/decisions/0071).
//!
//! They have numbers in this job, which are the same for all its ranks: the launcher gives them, or the process itself
//! where it is alone. Who they are everywhere is told by an [`Origin`].

use super::Job;
use crate::control::Foreign;
use crate::segment::Elsewhere;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of hosts from here on are those of other jobs' ranks: two jobs share no memory, whichever hosts they run on.
const FIRST_HOST: u32 = 1 << 30;
/// Most ranks of other jobs that a process without a launcher can be connected with in all.
pub(super) const ALONE_MOST: usize = 128;

/// A rank, as all jobs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Number of its own job.
    pub job: u64,
    /// Its rank there.
    pub rank: u32,
}

/// The numbers that ranks of other jobs have in this one.
#[derive(Debug, Default)]
pub struct ForeignNumbers {
    ranks: BTreeMap<Origin, u32>,
    /// Number of the host of the job, in the order of coming.
    hosts: BTreeMap<(u64, u32), u32>,
}

impl ForeignNumbers {
    /// The numbers of those ranks: of one that comes for the first time the next one from `next` on. The second list
    /// has those that are new, in order, with the host that they count as being on.
    pub fn assign(&mut self, asked: &[Foreign], next: u32) -> (Vec<u32>, Vec<(Foreign, u32)>) {
        let mut new = Vec::new();
        let numbers = asked.iter().map(|foreign| {
            if let Some(&known) = self.ranks.get(&foreign.origin) {
                return known;
            }
            let number = next + new.len() as u32;
            self.ranks.insert(foreign.origin, number);
            let host = FIRST_HOST + self.hosts.len() as u32;
            let key = (foreign.origin.job, foreign.host);
            let host = *self.hosts.entry(key).or_insert(host);
            new.push((foreign.clone(), host));
            number
        });
        (numbers.collect(), new)
    }

    /// Forgets numbers from `first` on, which nobody has been told.
    pub fn take_back(&mut self, first: u32) {
        self.ranks.retain(|_, number| *number < first);
    }
}

/// One of them as this process knows it.
#[derive(Clone, Debug)]
struct Known {
    rank: u32,
    origin: Origin,
    /// What proves on a network that somebody is of that job, and that this process is of its own: one for each time
    /// that both have been connected.
    secrets: Vec<[u8; 32]>,
}

/// Those that this process knows.
#[derive(Debug, Default)]
pub(super) struct ForeignRanks {
    known: Mutex<Vec<Known>>,
    /// Where there is no launcher.
    numbers: Mutex<ForeignNumbers>,
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
    /// Whether a rank is of another job.
    pub fn is_foreign(&self, rank: usize) -> bool {
        rank >= self.began_with && self.origin(rank).job != self.job_id
    }

    /// Who a rank is for all jobs.
    pub fn origin(&self, rank: usize) -> Origin {
        let of = |one: &Known| one.rank as usize == rank;
        let own = Origin {
            job: self.job_id,
            rank: rank as u32,
        };
        self.foreign.find(of, |one| one.origin).unwrap_or(own)
    }

    /// The rank in this job of one that all jobs call so; `None` for a rank of another job that this process does not
    /// know.
    pub fn find_origin(&self, origin: Origin) -> Option<u32> {
        if origin.job == self.job_id {
            return ((origin.rank as usize) < self.present()).then_some(origin.rank);
        }
        self.foreign
            .find(|one| one.origin == origin, |one| one.rank)
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
                Some(one) => one.secrets.push(secret),
                None => known.push(Known {
                    rank,
                    origin,
                    secrets: vec![secret],
                }),
            }
        }
    }

    /// Whether this process gives ranks of other jobs their numbers itself: it is alone.
    pub fn numbers_foreign(&self) -> bool {
        self.launcher.is_none() && self.began_with == 1 && self.segment.capacity() > 1
    }

    /// Gives ranks of other jobs their numbers, where this process is alone.
    ///
    /// # Errors
    /// For people: there is no room.
    pub fn number_foreign(&self, asked: &[Foreign]) -> Result<Vec<u32>, String> {
        let mut numbers = lock(&self.foreign.numbers);
        let first = self.present();
        let (ranks, new) = numbers.assign(asked, first as u32);
        let elsewhere = |rank: usize| {
            let (foreign, host) = new.get(rank - first)?;
            Some(Elsewhere {
                host: *host,
                card: &foreign.card,
            })
        };
        match self.segment.add_ranks(new.len(), elsewhere, |_, _| {}) {
            Ok(_) => Ok(ranks),
            Err(e) => {
                numbers.take_back(first as u32);
                Err(format!(
                    "no room for {} ranks of another job (a process without mpiexec has room for \
                     {ALONE_MOST} in all): {e}",
                    new.len()
                ))
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
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
        Foreign {
            origin: Origin { job, rank },
            host,
            card: card.encode(),
        }
    }

    #[test]
    fn numbers__stay_and_hosts_of_two_jobs_differ() {
        let mut numbers = ForeignNumbers::default();
        let (ranks, new) = numbers.assign(&[foreign(7, 0, 0), foreign(7, 1, 0)], 4);
        assert_eq!((ranks, new.len()), (vec![4, 5], 2));
        assert_eq!(new[0].1, new[1].1);
        let (ranks, later) = numbers.assign(&[foreign(8, 1, 0), foreign(7, 1, 0)], 6);
        assert_eq!((ranks, later.len()), (vec![6, 5], 1));
        assert_ne!(later[0].1, new[0].1);
        numbers.take_back(6);
        assert_eq!(numbers.assign(&[foreign(9, 0, 0)], 6).0, [6]);
    }

    #[test]
    fn singleton__has_room_for_ranks_of_other_jobs() {
        let job = Job::singleton().unwrap();
        assert!(job.numbers_foreign() && job.present() == 1);
        let asked = [foreign(7, 3, 0), foreign(7, 5, 1)];
        assert_eq!(job.number_foreign(&asked).unwrap(), [1, 2]);
        assert_eq!(job.number_foreign(&asked[1..]).unwrap(), [2]);
        assert_eq!(job.present(), 3);
        assert!(job.is_remote(1) && job.host(1) != job.host(2));
        assert_eq!(job.network_card(2).unwrap().port, 6);
        assert!(job.find_origin(asked[0].origin).is_none() && !job.is_foreign(1));
        let pairs = [1, 2].into_iter().zip(asked.iter().map(|one| one.origin));
        job.know_foreign(pairs, [3; 32]);
        assert_eq!(job.find_origin(asked[1].origin), Some(2));
        assert_eq!(job.origin(1), asked[0].origin);
        assert!(job.is_foreign(1) && !job.is_foreign(0));
        job.know_foreign([(2, asked[1].origin)].into_iter(), [4; 32]);
        assert_eq!(job.foreign_secret(2), Some([4; 32]));
        assert_eq!(job.foreign_secrets(), [(7, [3; 32]), (7, [4; 32])]);
        let many: Vec<Foreign> = (0..ALONE_MOST as u32)
            .map(|rank| foreign(8, rank, 0))
            .collect();
        assert!(job.number_foreign(&many).unwrap_err().contains("no room"));
        assert_eq!(job.number_foreign(&many[..1]).unwrap(), [3]);
    }
}
