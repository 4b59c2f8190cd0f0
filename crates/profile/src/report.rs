//! The merged records of all ranks.

use crate::library::ByteKind;
use crate::place::{CallPlace, Places};
use crate::record::CallCounters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Record of one rank, as sent to rank 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RankProfile {
    pub rank: u32,
    pub host: String,
    pub program: String,
    /// Time from the return of `MPI_Init` to the call of `MPI_Finalize`.
    pub wall_nanoseconds: u64,
    pub calls: Vec<RankCalls>,
}

/// Calls of one function at one call site.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RankCalls {
    pub function: String,
    pub kind: ByteKind,
    /// File with the code of the call site, and the address of the call in it.
    pub object: String,
    pub address: u64,
    pub counters: CallCounters,
}

/// A report. Its JSON form is `PREFIX.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub version: u32,
    pub program: String,
    /// Rank that aborted the job. The report then covers only this rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted_by: Option<u32>,
    pub ranks: Vec<RankTimes>,
    /// Largest MPI time of a rank, divided by the mean of all ranks.
    pub imbalance: f64,
    pub functions: Vec<FunctionTotals>,
    pub sites: Vec<Site>,
    pub calls: Vec<SiteTotals>,
}

/// Times of one rank.
#[derive(Debug, Serialize)]
pub(crate) struct RankTimes {
    pub rank: u32,
    pub host: String,
    pub wall_seconds: f64,
    pub mpi_seconds: f64,
}

/// A call site. Its number is its place in the list of sites, from 1.
#[derive(Debug, Serialize)]
pub(crate) struct Site {
    pub site: usize,
    #[serde(flatten)]
    pub place: CallPlace,
}

/// Calls of one function from all sites.
#[derive(Debug, Serialize)]
pub(crate) struct FunctionTotals {
    pub function: String,
    pub bytes_of: ByteKind,
    #[serde(flatten)]
    pub totals: Totals,
    pub imbalance: f64,
}

/// Calls of one function at one site.
#[derive(Debug, Serialize)]
pub(crate) struct SiteTotals {
    pub function: String,
    pub site: usize,
    pub bytes_of: ByteKind,
    #[serde(flatten)]
    pub totals: Totals,
    pub imbalance: f64,
    pub by_rank: Vec<RankTotals>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RankTotals {
    pub rank: u32,
    #[serde(flatten)]
    pub totals: Totals,
}

/// Sums over calls, and the smallest and largest value of a call. `min_bytes` ignores calls without bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Totals {
    pub calls: u64,
    pub seconds: f64,
    pub min_seconds: f64,
    pub max_seconds: f64,
    pub calls_with_bytes: u64,
    pub bytes: u64,
    pub min_bytes: u64,
    pub max_bytes: u64,
}

impl From<&CallCounters> for Totals {
    fn from(counters: &CallCounters) -> Totals {
        Totals {
            calls: counters.calls,
            seconds: seconds(counters.nanoseconds),
            min_seconds: seconds(counters.min_nanoseconds),
            max_seconds: seconds(counters.max_nanoseconds),
            calls_with_bytes: counters.calls_with_bytes,
            bytes: counters.bytes,
            min_bytes: counters.min_bytes,
            max_bytes: counters.max_bytes,
        }
    }
}

impl Totals {
    /// Returns the mean time of a call.
    pub fn mean_seconds(&self) -> f64 {
        self.seconds / self.calls.max(1) as f64
    }

    /// Returns the mean number of bytes of the calls with bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.calls_with_bytes.max(1) as f64
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns the largest of `count` values divided by their mean; 1 if all are 0. Values that `values` lacks are 0.
fn imbalance(values: impl Iterator<Item = u64>, count: usize) -> f64 {
    let (mut largest, mut sum) = (0, 0_u64);
    for value in values {
        largest = largest.max(value);
        sum = sum.saturating_add(value);
    }
    match sum {
        0 => 1.0,
        sum => largest as f64 * count as f64 / sum as f64,
    }
}

/// Counters of one function, by rank.
type ByRank = BTreeMap<u32, CallCounters>;

fn sum_of(by_rank: &ByRank) -> CallCounters {
    let mut sum = CallCounters::default();
    by_rank.values().for_each(|counters| sum.merge(counters));
    sum
}

impl Report {
    /// Merges the records of ranks, ordered by rank. `aborted_by` is the rank whose call of `MPI_Abort` ends the job.
    pub fn new(ranks: Vec<RankProfile>, aborted_by: Option<u32>) -> Report {
        let mut sites: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        let mut functions: BTreeMap<&str, (ByteKind, ByRank)> = BTreeMap::new();
        let mut calls: BTreeMap<(&str, u64, &str), (ByteKind, ByRank)> = BTreeMap::new();
        for rank in &ranks {
            for call in &rank.calls {
                let place = (&*call.object, call.address);
                *sites.entry(place).or_default() += call.counters.nanoseconds;
                let empty = || (call.kind, ByRank::new());
                let function = functions.entry(&call.function).or_insert_with(empty);
                let site = calls.entry((place.0, place.1, &call.function)).or_insert_with(empty);
                for (_, by_rank) in [function, site] {
                    by_rank.entry(rank.rank).or_default().merge(&call.counters);
                }
            }
        }
        let mut order: Vec<_> = sites.into_iter().collect();
        order.sort_by_key(|&(_, nanoseconds)| std::cmp::Reverse(nanoseconds));
        let number = |object: &str, address: u64| {
            order.iter().position(|&(place, _)| place == (object, address)).map_or(0, |at| at + 1)
        };
        let mpi_nanoseconds =
            |rank: &RankProfile| rank.calls.iter().map(|c| c.counters.nanoseconds).sum();
        let rank_imbalance =
            |by_rank: &ByRank| imbalance(by_rank.values().map(|c| c.nanoseconds), ranks.len());
        let mut functions: Vec<FunctionTotals> = functions
            .into_iter()
            .map(|(name, (kind, by_rank))| FunctionTotals {
                function: name.to_owned(),
                bytes_of: kind,
                totals: (&sum_of(&by_rank)).into(),
                imbalance: rank_imbalance(&by_rank),
            })
            .collect();
        let mut calls: Vec<SiteTotals> = calls
            .into_iter()
            .map(|((object, address, name), (kind, by_rank))| SiteTotals {
                function: name.to_owned(),
                site: number(object, address),
                bytes_of: kind,
                totals: (&sum_of(&by_rank)).into(),
                imbalance: rank_imbalance(&by_rank),
                by_rank: by_rank
                    .iter()
                    .map(|(&rank, counters)| RankTotals { rank, totals: counters.into() })
                    .collect(),
            })
            .collect();
        functions.sort_by(|a, b| b.totals.seconds.total_cmp(&a.totals.seconds));
        calls.sort_by(|a, b| b.totals.seconds.total_cmp(&a.totals.seconds));
        let mut places = Places::default();
        let sites = order.iter().zip(1..).map(|(&((object, address), _), site)| Site {
            site,
            place: places.find(object, address),
        });
        Report {
            version: 1,
            program: ranks.first().map(|rank| rank.program.clone()).unwrap_or_default(),
            aborted_by,
            imbalance: imbalance(ranks.iter().map(mpi_nanoseconds), ranks.len()),
            functions,
            sites: sites.collect(),
            calls,
            ranks: ranks
                .iter()
                .map(|rank| RankTimes {
                    rank: rank.rank,
                    host: rank.host.clone(),
                    wall_seconds: seconds(rank.wall_nanoseconds),
                    mpi_seconds: seconds(mpi_nanoseconds(rank)),
                })
                .collect(),
        }
    }

    /// Returns the MPI time of all ranks together.
    pub fn mpi_seconds(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.mpi_seconds).sum()
    }

    /// Returns the wall time of all ranks together.
    pub fn wall_seconds(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.wall_seconds).sum()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rank(rank: u32, calls: &[(&str, u64, u64, u64)]) -> RankProfile {
        let calls = calls.iter().map(|&(function, address, nanoseconds, bytes)| RankCalls {
            function: function.to_owned(),
            kind: ByteKind::Sent,
            object: "/proc/none".to_owned(),
            address,
            counters: CallCounters::of_call(nanoseconds, bytes),
        });
        RankProfile {
            rank,
            host: "a<b".to_owned(),
            program: "/p".to_owned(),
            wall_nanoseconds: 1_000_000_000,
            calls: calls.collect(),
        }
    }

    #[test]
    fn report__orders_sites_by_time_and_adds_ranks() {
        let first = rank(0, &[("MPI_Send", 1, 100, 8), ("MPI_Recv", 2, 300, 0)]);
        let second = rank(1, &[("MPI_Send", 1, 500, 16)]);
        let report = Report::new(vec![first, second], None);
        assert_eq!((report.sites.len(), report.sites[0].place.address), (2, 1));
        let send = &report.calls[0];
        assert_eq!((&*send.function, send.site, send.by_rank.len()), ("MPI_Send", 1, 2));
        assert_eq!((send.totals.calls, send.totals.bytes, send.totals.min_bytes), (2, 24, 8));
        assert_eq!(report.imbalance, 500.0 / 450.0);
        // Rank 1 has no receive: the mean is over both ranks.
        assert_eq!(report.calls[1].imbalance, 2.0);
    }

    #[test]
    fn imbalance__of_no_time_is_even() {
        assert_eq!(imbalance([0, 0].into_iter(), 2), 1.0);
    }
}
