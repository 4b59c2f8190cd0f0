//! What calls take on networks of hosts, by a virtual clock, and whether the choice is the right one.

use super::super::choose::{self, *};
use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::simulator::clock::Hosts;
use super::super::vector::{self, Vector};
use super::super::{allgather, allreduce, barrier, bcast, reduce};
use crate::consts::MPI_BYTE;
use crate::datatype::{Basic, Datatype};
use crate::op::{Function, Op};
use std::ffi::c_void;
use std::fmt::Write;

/// How ranks lie on hosts.
#[derive(Debug, Clone, Copy)]
enum Placing {
    Blocks,
    Dealt,
}

/// One call on one network.
#[derive(Debug, Clone, Copy)]
struct Case {
    ranks: u32,
    each: u32,
    placing: Placing,
    bytes: u64,
}

impl Case {
    fn hosts(self) -> Vec<u32> {
        let hosts = self.ranks.div_ceil(self.each);
        (0..self.ranks)
            .map(|rank| match self.placing {
                Placing::Blocks => rank / self.each,
                Placing::Dealt => rank % hosts,
            })
            .collect()
    }
}

/// Ranks up to which algorithms that take a step for each rank are run where it is not plain that they are no better.
const RING_RANKS: u32 = 1 << 10;

/// An operation that does nothing: of memory that nobody looks at.
unsafe extern "C" fn nothing(_: *mut c_void, _: *mut c_void, _: *mut i32, _: *mut usize) {}

/// The calls of which there are several algorithms over hosts.
#[derive(Debug, Clone, Copy)]
enum Call {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
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
    chosen: H,
    all: &[H],
    rings: &[H],
    (least, may_run): (f64, bool),
    run: impl Fn(H) -> f64,
) -> Table {
    let mut taken: Vec<(String, f64)> = all
        .iter()
        .map(|&how| (format!("{how:?}"), run(how)))
        .collect();
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
    let hosts = &Hosts::new(case.hosts(), network, 2 * bytes + (1 << 20));
    let spread = hosts.nodes().unwrap().spread;
    let room = Room::Hosts(spread);
    let memory = hosts.memory();
    let data = Vector::raw(memory, bytes);
    let byte = Datatype::named(Basic::from_handle(MPI_BYTE).unwrap());
    let op = Op::user(Function::User(nothing), true);
    let red = &Reduction::new(&op, &byte, MPI_BYTE).unwrap();
    let sum = red.at(memory, bytes);
    let size = red.size(bytes);
    let may_run = ranks <= RING_RANKS;
    let round = least_of_ring(spread, network, ranks, bytes);
    let passes = bytes as f64 * network.byte;
    // SAFETY: memory of the hosts, whose contents nobody looks at.
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
                hosts.run(|f| async move { unsafe { bcast::run_by(&f, how, data, 0).await } })
            })
        }
        Call::Reduce => {
            let all = [Reduce::Binomial, Reduce::Nodes];
            let rings = [Reduce::RingGather].map(|how| size.can_share(ranks).then_some(how));
            let rings: Vec<Reduce> = rings.into_iter().flatten().collect();
            let least = passes + round;
            let chosen = choose::reduce(size, ranks, room);
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    let result = (f.rank() == 0).then_some(sum);
                    unsafe { reduce::run(&f, how, red, sum, result, 0).await }
                })
            })
        }
        Call::Allreduce => {
            let mut all = vec![Allreduce::Doubling, Allreduce::Nodes];
            let mut rings = Vec::new();
            if size.can_share(ranks) {
                all.push(Allreduce::HalvingDoubling);
                rings.push(Allreduce::Ring);
            }
            let least = 2.0 * round;
            let chosen = choose::allreduce(size, ranks, room);
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts
                    .run(|f| async move { unsafe { allreduce::run(&f, how, red, sum, sum).await } })
            })
        }
        Call::Allgather => {
            let mut all = vec![Allgather::Bruck, Allgather::Nodes];
            if ranks.is_power_of_two() {
                all.push(Allgather::Doubling);
            }
            let (rings, least) = ([Allgather::Ring], round);
            let chosen = choose::allgather(bytes, true, ranks, room);
            let first = data.part(0, bytes / u64::from(ranks));
            measure(chosen, &all, &rings, (least, may_run), |how| {
                hosts.run(|f| async move {
                    let block = vector::even_blocks(first);
                    unsafe { allgather::run(&f, how, None, &block, Some(data)).await }
                })
            })
        }
    }
}

/// Runs all cases; returns a table in Markdown and the worst ratio.
fn tabulate(calls: &[Call], ranks: u32, sizes: &[u64]) -> (String, f64) {
    let (mut text, mut worst) = (String::new(), 1.0f64);
    for &call in calls {
        for (each, placing) in [
            (8, Placing::Blocks),
            (8, Placing::Dealt),
            (48, Placing::Blocks),
            (64, Placing::Blocks),
            (64, Placing::Dealt),
        ] {
            let sizes = if matches!(call, Call::Barrier) {
                &[0][..]
            } else {
                sizes
            };
            for &bytes in sizes {
                let bytes = match call {
                    // Of each rank's block.
                    Call::Allgather => bytes * u64::from(ranks),
                    _ => bytes,
                };
                let case = Case {
                    ranks,
                    each,
                    placing,
                    bytes,
                };
                let table = simulate(call, case, &Network::TCP);
                let ratio = table.ratio();
                worst = worst.max(ratio);
                let times: Vec<String> = table
                    .taken
                    .iter()
                    .map(|(name, taken)| format!("{name} {:.1}", taken / 1000.0))
                    .collect();
                let line = format!(
                    "| {call:?} | {ranks} | {each} {placing:?} | {bytes} | {} | {ratio:.2} | {} |",
                    table.chosen,
                    times.join(", ")
                );
                println!("{line}");
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    (text, worst)
}

const CALLS: [Call; 5] = [
    Call::Barrier,
    Call::Bcast,
    Call::Reduce,
    Call::Allreduce,
    Call::Allgather,
];

/// 128 ranks; with `FASTPATH_TEST_SCALE=1` up to 100,000, which takes minutes and makes the table of `docs/scale.md`.
#[test]
fn choice__over_hosts_takes_at_most_1_2_of_the_best() {
    let sizes = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
    let (calls, blocks) = (&CALLS[..4], [8, 64, 1 << 10]);
    let runs: &[(&[Call], u32, &[u64])] = match std::env::var_os("FASTPATH_TEST_SCALE") {
        None => &[
            (calls, 128, &[8, 16 << 10, 1 << 20]),
            (&CALLS[4..], 128, &blocks),
        ],
        Some(_) => &[
            (calls, 1000, &sizes),
            (calls, 1024, &sizes),
            (&CALLS[4..], 1024, &blocks),
            (&CALLS[4..], 4096, &blocks[..1]),
            (calls, 10_000, &sizes),
            (calls, 100_000, &sizes[..3]),
        ],
    };
    for (calls, ranks, sizes) in runs {
        let (text, worst) = tabulate(calls, *ranks, sizes);
        assert!(worst <= 1.2, "{worst}\n{text}");
    }
}
