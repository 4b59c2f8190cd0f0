//! Tests of the times of calls on networks of hosts, by a virtual clock, and of the choice of algorithms.

use super::super::choose::{self, *};
use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::simulator::clock::{self, Hosts};
use super::super::vector::{self, Vector};
use super::super::{allgather, allreduce, barrier, bcast, reduce};
use crate::coll_choice::hosts::Spread;
use crate::common::consts::MPI_BYTE;
use crate::objects::datatype::{Basic, Datatype};
use crate::objects::op::{Op, OpFunction};
use std::fmt::Write;

#[derive(Debug, Clone, Copy)]
enum Placing {
    /// The given number of consecutive ranks on each host; fewer on the last.
    Blocks(u32),
    /// Ranks on hosts round-robin, with the given number on each.
    Dealt(u32),
    /// Consecutive ranks, a different number on each host, up to the given one.
    Uneven(u32),
}

impl Placing {
    fn hosts(self, ranks: u32) -> Vec<u32> {
        match self {
            Placing::Blocks(each) => (0..ranks).map(|rank| rank / each).collect(),
            Placing::Dealt(each) => {
                let hosts = ranks.div_ceil(each);
                (0..ranks).map(|rank| rank % hosts).collect()
            }
            Placing::Uneven(most) => {
                let sizes = (0..ranks).map(|host| 1 + host * 7 % most);
                let hosts = sizes.zip(0..).flat_map(|(size, host)| vec![host; size as usize]);
                hosts.take(ranks as usize).collect()
            }
        }
    }
}

const PLACINGS: [Placing; 8] = [
    Placing::Blocks(1),
    Placing::Blocks(8),
    Placing::Dealt(8),
    Placing::Uneven(24),
    Placing::Blocks(48),
    Placing::Dealt(48),
    Placing::Blocks(64),
    Placing::Dealt(64),
];

#[derive(Debug, Clone, Copy)]
struct ScaleCase {
    ranks: u32,
    placing: Placing,
    bytes: u64,
}

/// Maximum number of ranks at which an algorithm with one step per rank is measured if it can be the fastest.
const RING_RANKS: u32 = 1 << 10;

#[derive(Debug, Clone, Copy)]
enum ScaleCall {
    Barrier,
    Bcast,
    Reduce(ReductionOrder),
    Allreduce(ReductionOrder),
    Allgather,
}

/// Chosen algorithm, and the name and time of each algorithm that was run.
struct ScaleTable {
    chosen: String,
    taken: Vec<(String, f64)>,
}

impl ScaleTable {
    fn ratio(&self) -> f64 {
        let time = |name: &str| self.taken.iter().find(|t| t.0 == name).map(|t| t.1);
        let best = self.taken.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
        time(&self.chosen).unwrap_or(f64::INFINITY) / best
    }
}

/// Measures the algorithms. `rings` have one step per rank, and `least` is a lower bound of their time. A ring is run
/// if it is the chosen algorithm, or if `may_run` is true and `least` is below the other times.
fn measure<H: Copy + PartialEq + std::fmt::Debug>(
    chosen: H, all: &[H], rings: &[H], (least, may_run): (f64, bool), run: impl Fn(H) -> f64,
) -> ScaleTable {
    let mut taken: Vec<(String, f64)> =
        all.iter().map(|&how| (format!("{how:?}"), run(how))).collect();
    let best = taken.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
    for &how in rings {
        match how == chosen || (may_run && least < best) {
            true => taken.push((format!("{how:?}"), run(how))),
            false => taken.push((format!("{how:?} at least"), least)),
        }
    }
    let chosen = format!("{chosen:?}");
    ScaleTable { chosen, taken }
}

/// Returns a lower bound of a ring's time: the path of one block past all ranks, or the adapters' time for all blocks.
fn least_of_ring(spread: Spread, network: &NetworkCosts, ranks: u32, bytes: u64) -> f64 {
    let between = match spread.in_blocks {
        true => spread.nodes - 1,
        false => ranks - 1,
    };
    let round = f64::from(between) * network.message
        + f64::from(ranks - 1 - between) * network.near_message;
    let passes = f64::from(ranks - 1) * network.gap + bytes as f64 * network.byte;
    round.max(passes)
}

fn simulate(call: ScaleCall, case: ScaleCase, network: &NetworkCosts) -> ScaleTable {
    let ScaleCase { ranks, bytes, .. } = case;
    let hosts = &Hosts::new(case.placing.hosts(ranks), network, 64 * bytes + (1 << 20));
    let placement = &hosts.nodes().unwrap().placement;
    let (spread, room) = (placement.spread, JobProcessors::Hosts(placement));
    let memory = hosts.memory();
    let data = Vector::raw(memory, bytes);
    let byte = Datatype::named(Basic::from_handle(MPI_BYTE).unwrap());
    let op = Op::user(OpFunction::User(clock::fold), true);
    let red = &Reduction::new(&op, &byte, MPI_BYTE).unwrap();
    let red = match call {
        ScaleCall::Reduce(ReductionOrder::Free) | ScaleCall::Allreduce(ReductionOrder::Free) => {
            &red.in_any_order()
        }
        _ => red,
    };
    let sum = red.at(memory, bytes);
    let size = red.size(bytes, room);
    let may_run = ranks <= RING_RANKS;
    let round = least_of_ring(spread, network, ranks, bytes);
    let passes = bytes as f64 * network.byte;
    match call {
        ScaleCall::Barrier => {
            let all = [Barrier::Dissemination, Barrier::Nodes];
            let chosen = choose::barrier(ranks, CallPlace::messages(room));
            measure(chosen, &all, &[], (0.0, false), |how| {
                hosts.run(|f| async move { barrier::run_many(&f, how).await })
            })
        }
        ScaleCall::Bcast => {
            let all = [Bcast::Binomial, Bcast::Nodes];
            let (rings, least) = ([Bcast::ScatterAllgather], passes + round);
            let chosen = choose::bcast(bytes, ranks, CallPlace::messages(room));
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    // SAFETY: the memory of the hosts is long enough, and its contents are not read.
                    unsafe { bcast::run_by(&f, how, data, 0).await }
                })
            })
        }
        ScaleCall::Reduce(_) => {
            let all = [
                (Reduce::Binomial, true),
                (Reduce::Halving, size.can_share(ranks)),
                (Reduce::Nodes, spread.may_combine(size)),
            ];
            let chosen = choose::reduce(size, ranks, CallPlace::messages(room));
            measure(chosen, &those(&all), &[], (0.0, false), |how| {
                hosts.run(|f| async move {
                    let result = (f.rank() == 0).then_some(sum);
                    // SAFETY: the memory of the hosts is long enough, and its contents are not read.
                    unsafe { reduce::run(&f, how, red, sum, result, 0).await }
                })
            })
        }
        ScaleCall::Allreduce(order) => {
            let chosen = choose::allreduce(size, ranks, CallPlace::messages(room));
            let is_round = chosen == Allreduce::Ring && order == ReductionOrder::Fixed;
            let all = [
                (Allreduce::Doubling, !is_round),
                (Allreduce::HalvingDoubling, !is_round && size.can_share(ranks)),
                (Allreduce::Nodes, !is_round && spread.may_combine(size)),
            ];
            let rings = [(
                Allreduce::Ring,
                is_round || (order == ReductionOrder::Free && size.can_share(ranks)),
            )];
            let least = 2.0 * round;
            measure(chosen, &those(&all), &those(&rings), (least, may_run), |how| {
                hosts.run(|f| async move {
                    // SAFETY: the memory of the hosts is long enough, and its contents are not read.
                    unsafe { allreduce::run(&f, how, red, sum, sum).await }
                })
            })
        }
        ScaleCall::Allgather => {
            let mut all = vec![Allgather::Bruck, Allgather::Nodes];
            if ranks.is_power_of_two() {
                all.push(Allgather::Doubling);
            }
            let (rings, least) = ([Allgather::Ring], round);
            let chosen = choose::allgather(bytes, true, ranks, CallPlace::messages(room));
            let first = data.part(0, bytes / u64::from(ranks));
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    let block = vector::even_blocks(first);
                    // SAFETY: the memory of the hosts is long enough, and its contents are not read.
                    unsafe { allgather::run(&f, how, None, &block, Some(data)).await }
                })
            })
        }
    }
}

fn those<H: Copy>(all: &[(H, bool)]) -> Vec<H> {
    let may = all.iter().filter(|(_, may)| *may);
    may.map(|(how, _)| *how).collect()
}

/// Runs all cases and prints a table in Markdown. Returns the lines with a ratio above 1.2.
fn tabulate(calls: &[ScaleCall], placings: &[Placing], ranks: u32, sizes: &[u64]) -> String {
    let mut wrong = String::new();
    for (&call, &placing) in calls.iter().flat_map(|call| placings.iter().map(move |p| (call, p))) {
        let sizes = match call {
            ScaleCall::Barrier => &[0],
            _ => sizes,
        };
        for &bytes in sizes {
            let bytes = match call {
                // Here `bytes` is the size of each rank's block.
                ScaleCall::Allgather => bytes * u64::from(ranks),
                _ => bytes,
            };
            let case = ScaleCase { ranks, placing, bytes };
            let table = simulate(call, case, &NetworkCosts::TCP);
            let ratio = table.ratio();
            let times: Vec<String> = table
                .taken
                .iter()
                .map(|(name, taken)| format!("{name} {:.1}", taken / 1000.0))
                .collect();
            let line = format!(
                "| {call:?} | {ranks} | {placing:?} | {bytes} | {} | {ratio:.2} | {} |",
                table.chosen,
                times.join(", ")
            );
            println!("{line}");
            if ratio > 1.2 {
                writeln!(wrong, "{line}").unwrap();
            }
        }
    }
    wrong
}

/// Calls whose size in a case is that of the whole call. The size of an allgather is that of one block.
const CALLS: [ScaleCall; 6] = [
    ScaleCall::Barrier,
    ScaleCall::Bcast,
    ScaleCall::Reduce(ReductionOrder::Fixed),
    ScaleCall::Reduce(ReductionOrder::Free),
    ScaleCall::Allreduce(ReductionOrder::Fixed),
    ScaleCall::Allreduce(ReductionOrder::Free),
];

#[test]
fn choice__over_hosts_takes_at_most_1_2_of_the_best() {
    let wrong = tabulate(&CALLS, &PLACINGS, 128, &[8, 16 << 10, 1 << 20])
        + &tabulate(&CALLS, &PLACINGS, 100, &[8, 4 << 10, 256 << 10])
        + &tabulate(&[ScaleCall::Allgather], &PLACINGS, 128, &[8, 64, 1 << 10]);
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs some cases. `FASTPATH_TEST_SCALE=1` runs all in half an hour, for the table of `docs/scale.md`.
#[test]
fn choice__of_many_ranks_takes_at_most_1_2_of_the_best() {
    let few = [Placing::Blocks(48), Placing::Dealt(64)];
    let mut wrong = tabulate(&CALLS, &few, 1000, &[8])
        + &tabulate(&CALLS[2..4], &[Placing::Uneven(24)], 10_000, &[8])
        + &tabulate(&[ScaleCall::Bcast], &[Placing::Blocks(64)], 100_000, &[8]);
    if std::env::var_os("FASTPATH_TEST_SCALE").is_some() {
        let sizes = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
        let allgather = &[ScaleCall::Allgather];
        let blocks = &[Placing::Blocks(64), Placing::Blocks(48)];
        wrong += &tabulate(&CALLS, blocks, 100_000, &[8, 16 << 10]);
        wrong += &tabulate(&CALLS, &PLACINGS, 1000, &sizes);
        wrong += &tabulate(&CALLS, &PLACINGS, 1024, &sizes);
        wrong += &tabulate(allgather, &PLACINGS, 1024, &[8, 64, 1 << 10]);
        wrong += &tabulate(allgather, &PLACINGS, 4096, &[8]);
        wrong += &tabulate(&CALLS, &PLACINGS[1..], 10_000, &sizes);
    }
    assert!(wrong.is_empty(), "{wrong}");
}
