//! Jobs of several hosts combined: each host lists its own jobs, and waits are followed over all hosts.

use fastpath_job::inspect::cause::{RankWaits, find_cause, name_ranks};
use fastpath_report::document::Document;

use super::{JobEntry, Listing, RankEntry, find_place};
use crate::on_hosts::HostGroup;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hosts {
    hosts: Vec<Listing>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    why: Vec<VerdictReason>,
}

#[derive(Debug, Serialize, Deserialize)]
struct VerdictReason {
    id: String,
    why: String,
}

/// A rank, and the number of its host.
type Placed<'a> = BTreeMap<usize, (usize, &'a RankEntry)>;

/// Runs as the process of one host; the first process reports.
pub(super) fn probe(own: &Listing, why: bool) -> Result<(), String> {
    let mut group = HostGroup::join()?;
    let hosts = group.exchange("jobs", own)?;
    let mut all = Hosts { hosts, why: Vec::new() };
    if why {
        let found = all.find_waits();
        // Only the rank's own host can find the function that the rank executes.
        let place = |awaited: &AwaitedRank| {
            (awaited.host == group.own).then(|| find_place(awaited.process))
        };
        let own: Vec<Option<String>> =
            found.iter().map(|(_, f)| f.as_ref().ok().and_then(place)).collect();
        let places = group.exchange("places", &own)?;
        all.why = found
            .into_iter()
            .enumerate()
            .map(|(index, (id, found))| {
                let place = places.iter().find_map(|host| host.get(index)?.clone());
                let why = found.map_or_else(|why| why, |a| a.describe(place.as_deref()));
                VerdictReason { id, why }
            })
            .collect();
    }
    group.end(&all)
}

struct AwaitedRank {
    rank: usize,
    waiters: Vec<usize>,
    host: usize,
    process: i32,
    name: String,
}

impl AwaitedRank {
    fn describe(&self, place: Option<&str>) -> String {
        let (rank, process, host) = (self.rank, self.process, &self.name);
        format!(
            "{} for rank {rank} (process {process} on {host}), which {}",
            name_ranks(&self.waiters),
            place.unwrap_or("has ended or is no longer visible")
        )
    }
}

impl Hosts {
    /// Finds, for each job, the rank for which the largest number of ranks wait; without one, describes the waits.
    fn find_waits(&self) -> Vec<(String, Result<AwaitedRank, String>)> {
        let jobs = || self.hosts.iter().flat_map(|host| &host.jobs);
        let ids: BTreeSet<&String> = jobs().map(|job| &job.id).collect();
        let find = |id: &String| (id.clone(), self.find_wait(id));
        ids.into_iter().map(find).collect()
    }

    fn find_wait(&self, id: &str) -> Result<AwaitedRank, String> {
        let ranks: Placed<'_> = self.place_ranks(id);
        let last = ranks.keys().last().map_or(0, |last| last + 1);
        let waits: Vec<RankWaits> = (0..last)
            .map(|rank| ranks.get(&rank).map_or_else(RankWaits::unknown, |(_, r)| r.waits()))
            .collect();
        let (awaited, waiters) = find_cause(&waits)?;
        let &(host, entry) = ranks.get(&awaited).ok_or_else(|| {
            let waiters = name_ranks(&waiters);
            format!(
                "{waiters} for rank {awaited}, which is on none of the given hosts; add the host \
                 of rank {awaited} to --host"
            )
        })?;
        Ok(AwaitedRank {
            rank: awaited,
            waiters,
            host,
            process: entry.process,
            name: self.hosts[host].host.clone(),
        })
    }

    fn place_ranks(&self, id: &str) -> Placed<'_> {
        let mut all = BTreeMap::new();
        for (number, host) in self.hosts.iter().enumerate() {
            let jobs = host.jobs.iter().filter(|job| job.id == id);
            for rank in jobs.flat_map(|job: &JobEntry| &job.ranks) {
                all.insert(rank.rank, (number, rank));
            }
        }
        all
    }

    /// Keeps only the job that has this number on one of the hosts; returns whether there is such a job.
    pub(super) fn keep(&mut self, number: i32) -> bool {
        let mut jobs = self.hosts.iter().flat_map(|host| &host.jobs);
        let Some(id) = jobs.find(|job| job.job == number).map(|job| job.id.clone()) else {
            return false;
        };
        self.why.retain(|why| why.id == id);
        for host in &mut self.hosts {
            host.jobs.retain(|job| job.id == id);
        }
        true
    }

    pub(super) fn describe(&self, every: bool) -> Document {
        let mut said = Document::default();
        for VerdictReason { id, why } in &self.why {
            said.text(format!("{}: {why}", self.name_job(id)));
        }
        for host in &self.hosts {
            super::describe_into(&mut said, host, every);
        }
        said
    }

    /// Names a job as listed by the first host that has ranks of it.
    fn name_job(&self, id: &str) -> String {
        let mut jobs = self.hosts.iter().flat_map(|host| {
            let job = host.jobs.iter().find(|job| job.id == id)?;
            Some(format!("job {} on {}", job.job, host.host))
        });
        jobs.next().unwrap_or_else(|| format!("job {id}"))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn listing(host: &str, jobs: &[(i32, &str)]) -> Listing {
        let job = |&(job, id): &(i32, &str)| JobEntry {
            job,
            id: id.to_owned(),
            command: String::new(),
            seconds: None,
            shared_bytes: 0,
            ranks: Vec::new(),
            why: None,
        };
        Listing { host: host.to_owned(), jobs: jobs.iter().map(job).collect() }
    }

    #[test]
    fn verdict__names_its_job() {
        let hosts = vec![listing("h1", &[(7, "a")]), listing("h2", &[(9, "b"), (8, "a")])];
        let all = Hosts { hosts, why: Vec::new() };
        assert_eq!(all.name_job("a"), "job 7 on h1");
        assert_eq!(all.name_job("b"), "job 9 on h2");
    }
}
