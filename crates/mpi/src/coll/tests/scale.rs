//! What calls take on networks of hosts, by a virtual clock, and whether the choice is the right one.

use super::super::choose::{self, *};
use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::simulator::clock::{self, Hosts};
use super::super::vector::{self, Vector};
use super::super::{allgather, allreduce, barrier, bcast, reduce};
use crate::coll_choice::hosts::Spread;
use crate::common::consts::MPI_BYTE;
use crate::objects::datatype::{Basic, Datatype};
use crate::objects::op::{Function, Op};
use std::fmt::Write;

/// How ranks lie on hosts.
#[derive(Debug, Clone, Copy)]
enum Placing {
    /// So many consecutive ranks on each host; the last may have fewer.
    Blocks(u32),
    /// Ranks are dealt out in turn to so many hosts that each has this many.
    Dealt(u32),
    /// Consecutive ranks, on each host another number of them, up to this one.
    Uneven(u32),
}

impl Placing {
    /// The host of each rank.
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

/// One call on one network.
#[derive(Debug, Clone, Copy)]
struct Case {
    ranks: u32,
    placing: Placing,
    bytes: u64,
}

/// Ranks up to which algorithms that take a step for each rank are run where it is not plain that they are no better.
const RING_RANKS: u32 = 1 << 10;

/// The calls of which there are several algorithms over hosts.
#[derive(Debug, Clone, Copy)]
enum Call {
    Barrier,
    Bcast,
    /// Whether operands may be combined in any order.
    Reduce(Order),
    Allreduce(Order),
    Allgather,
}

/// The algorithm that is chosen, and what each takes: its name and, where it was run, its time.
struct Table {
    chosen: String,
    taken: Vec<(String, f64)>,
}

impl Table {
    /// The chosen algorithm's time to the best one's.
    fn ratio(&self) -> f64 {
        let time = |name: &str| self.taken.iter().find(|t| t.0 == name).map(|t| t.1);
        let best = self.taken.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
        time(&self.chosen).unwrap_or(f64::INFINITY) / best
    }
}

/// `rings`: algorithms with a step for each rank, and the least that they take. Where that is above what others take,
/// or there are too many ranks, they are not run.
fn measure<H: Copy + PartialEq + std::fmt::Debug>(
    chosen: H, all: &[H], rings: &[H], (least, may_run): (f64, bool), run: impl Fn(H) -> f64,
) -> Table {
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
    Table { chosen, taken }
}

/// The least that one round of all blocks takes: a block's way from rank to rank, and the adapters' time for all.
fn least_of_ring(spread: Spread, network: &Network, ranks: u32, bytes: u64) -> f64 {
    let between = match spread.in_blocks {
        true => spread.nodes - 1,
        false => ranks - 1,
    };
    let round = f64::from(between) * network.message
        + f64::from(ranks - 1 - between) * network.near_message;
    let passes = f64::from(ranks - 1) * network.gap + bytes as f64 * network.byte;
    round.max(passes)
}

fn simulate(call: Call, case: Case, network: &Network) -> Table {
    let Case { ranks, bytes, .. } = case;
    let hosts = &Hosts::new(case.placing.hosts(ranks), network, 64 * bytes + (1 << 20));
    let placement = &hosts.nodes().unwrap().placement;
    let (spread, room) = (placement.spread, Room::Hosts(placement));
    let memory = hosts.memory();
    let data = Vector::raw(memory, bytes);
    let byte = Datatype::named(Basic::from_handle(MPI_BYTE).unwrap());
    let op = Op::user(Function::User(clock::fold), true);
    let red = &Reduction::new(&op, &byte, MPI_BYTE).unwrap();
    let red = match call {
        Call::Reduce(Order::Free) | Call::Allreduce(Order::Free) => &red.in_any_order(),
        _ => red,
    };
    let sum = red.at(memory, bytes);
    let size = red.size(bytes, room);
    let may_run = ranks <= RING_RANKS;
    let round = least_of_ring(spread, network, ranks, bytes);
    let passes = bytes as f64 * network.byte;
    match call {
        Call::Barrier => {
            let all = [Barrier::Dissemination, Barrier::Nodes];
            let chosen = choose::barrier(ranks, room);
            measure(chosen, &all, &[], (0.0, false), |how| {
                hosts.run(|f| async move { barrier::run_many(&f, how).await })
            })
        }
        Call::Bcast => {
            let all = [Bcast::Binomial, Bcast::Nodes];
            let (rings, least) = ([Bcast::ScatterAllgather], passes + round);
            let chosen = choose::bcast(bytes, ranks, room);
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    // SAFETY: memory of the hosts, long enough, whose contents nobody looks at.
                    unsafe { bcast::run_by(&f, how, data, 0).await }
                })
            })
        }
        Call::Reduce(_) => {
            let all = [
                (Reduce::Binomial, true),
                (Reduce::Halving, size.can_share(ranks)),
                (Reduce::Nodes, spread.may_combine(size)),
            ];
            let chosen = choose::reduce(size, ranks, room);
            measure(chosen, &those(&all), &[], (0.0, false), |how| {
                hosts.run(|f| async move {
                    let result = (f.rank() == 0).then_some(sum);
                    // SAFETY: memory of the hosts, long enough, whose contents nobody looks at.
                    unsafe { reduce::run(&f, how, red, sum, result, 0).await }
                })
            })
        }
        Call::Allreduce(order) => {
            let chosen = choose::allreduce(size, ranks, (room, false));
            let is_round = chosen == Allreduce::Ring && order == Order::Fixed;
            let all = [
                (Allreduce::Doubling, !is_round),
                (Allreduce::HalvingDoubling, !is_round && size.can_share(ranks)),
                (Allreduce::Nodes, !is_round && spread.may_combine(size)),
            ];
            let rings =
                [(Allreduce::Ring, is_round || (order == Order::Free && size.can_share(ranks)))];
            let least = 2.0 * round;
            measure(chosen, &those(&all), &those(&rings), (least, may_run), |how| {
                hosts.run(|f| async move {
                    // SAFETY: memory of the hosts, long enough, whose contents nobody looks at.
                    unsafe { allreduce::run(&f, how, red, sum, sum).await }
                })
            })
        }
        Call::Allgather => {
            let mut all = vec![Allgather::Bruck, Allgather::Nodes];
            if ranks.is_power_of_two() {
                all.push(Allgather::Doubling);
            }
            let (rings, least) = ([Allgather::Ring], round);
            let chosen = choose::allgather(bytes, true, ranks, (room, false));
            let first = data.part(0, bytes / u64::from(ranks));
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    let block = vector::even_blocks(first);
                    // SAFETY: memory of the hosts, long enough, whose contents nobody looks at.
                    unsafe { allgather::run(&f, how, None, &block, Some(data)).await }
                })
            })
        }
    }
}

/// Those that may be used.
fn those<H: Copy>(all: &[(H, bool)]) -> Vec<H> {
    let may = all.iter().filter(|(_, may)| *may);
    may.map(|(how, _)| *how).collect()
}

/// Runs all cases; prints a table in Markdown, and returns the lines whose ratio is above 1.2.
fn tabulate(calls: &[Call], placings: &[Placing], ranks: u32, sizes: &[u64]) -> String {
    let mut wrong = String::new();
    for (&call, &placing) in calls.iter().flat_map(|call| placings.iter().map(move |p| (call, p))) {
        let sizes = match call {
            Call::Barrier => &[0],
            _ => sizes,
        };
        for &bytes in sizes {
            let bytes = match call {
                // Of each rank's block.
                Call::Allgather => bytes * u64::from(ranks),
                _ => bytes,
            };
            let case = Case { ranks, placing, bytes };
            let table = simulate(call, case, &Network::TCP);
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

/// Those with a number of bytes for the whole call.
const CALLS: [Call; 6] = [
    Call::Barrier,
    Call::Bcast,
    Call::Reduce(Order::Fixed),
    Call::Reduce(Order::Free),
    Call::Allreduce(Order::Fixed),
    Call::Allreduce(Order::Free),
];

#[test]
fn choice__over_hosts_takes_at_most_1_2_of_the_best() {
    let wrong = tabulate(&CALLS, &PLACINGS, 128, &[8, 16 << 10, 1 << 20])
        + &tabulate(&CALLS, &PLACINGS, 100, &[8, 4 << 10, 256 << 10])
        + &tabulate(&[Call::Allgather], &PLACINGS, 128, &[8, 64, 1 << 10]);
    assert!(wrong.is_empty(), "{wrong}");
}

/// Some cases, up to 100,000 ranks; with `FASTPATH_TEST_SCALE=1` all, which takes half an hour: the table of
/// `docs/scale.md`.
#[test]
fn choice__of_many_ranks_takes_at_most_1_2_of_the_best() {
    let few = [Placing::Blocks(48), Placing::Dealt(64)];
    let mut wrong = tabulate(&CALLS, &few, 1000, &[8])
        + &tabulate(&CALLS[2..4], &[Placing::Uneven(24)], 10_000, &[8])
        + &tabulate(&[Call::Bcast], &[Placing::Blocks(64)], 100_000, &[8]);
    if std::env::var_os("FASTPATH_TEST_SCALE").is_some() {
        let sizes = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
        let allgather = &[Call::Allgather];
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
