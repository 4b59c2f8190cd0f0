//! Tests of calls through shared lines on the virtual clock of a host: contents, and times against lower bounds,
//! messages, and published results.
#![allow(unsafe_code)]

use super::super::choose::{self, *};
use super::super::fabric::Fabric;
use super::super::local::Reduction;
use super::super::scan::Prefix;
use super::super::simulator::lines::{Host, LineId, Rank};
use super::super::simulator::machine::{Machine, SharedLineCosts};
use super::super::vector::Vector;
use super::super::{allreduce, barrier, bcast, gather, scan, scatter};
use crate::common::consts::{MPI_DOUBLE, MPI_UINT64_T};
use crate::common::error::Result;
use crate::objects::datatype::{Basic, Datatype};
use crate::objects::op::{Builtin, Op};
use std::cell::RefCell;

/// Returns the operand of a rank in a call.
fn operand(rank: u32, call: u64) -> f64 {
    1.0 / (f64::from(rank) + 1.0) + call as f64
}

/// Makes calls of an allreduce one after another, and returns the results of each rank as bits.
fn sums<T: Copy>(
    host: &Host<'_>, how: Allreduce, handle: usize, calls: u64, operand: impl Fn(u32, u64) -> T,
) -> Vec<Vec<T>> {
    let datatype = Datatype::named(Basic::from_handle(handle).unwrap());
    let red = &Reduction::new(&Op::builtin(Builtin::Sum), &datatype, handle).unwrap();
    let (results, operand) = (RefCell::new(vec![Vec::new(); host.ranks() as usize]), &operand);
    host.run(|f| {
        let results = &results;
        async move {
            let mut own = Vec::new();
            for call in 0..calls {
                let mut value = operand(f.rank, call);
                let at = red.at((&raw mut value).cast(), 1);
                // SAFETY: the value lives until the call has ended, and operand and result are the same.
                unsafe { allreduce::run(&f, how, red, at, at).await? };
                own.push(value);
            }
            results.borrow_mut()[f.rank as usize] = own;
            Ok(())
        }
    });
    results.into_inner()
}

#[test]
fn lines__of_many_ranks_move_the_right_data() {
    let machine = Machine::epyc_9654();
    for ranks in [3, 12, 31, 96, 128, 192] {
        let host = &Host::new(&machine, ranks, &machine.line_costs(ranks)).unwrap();
        let calls = 20;
        let of = |rank, call| u64::from(rank) * 1000 + call;
        let expected: Vec<u64> =
            (0..calls).map(|call| (0..ranks).map(|rank| of(rank, call)).sum()).collect();
        for result in sums(host, Allreduce::Lines, MPI_UINT64_T, calls, of) {
            assert_eq!(result, expected);
        }
        let bits = |how| -> Vec<Vec<u64>> {
            let results = sums(host, how, MPI_DOUBLE, calls, operand);
            results.into_iter().map(|own| own.into_iter().map(f64::to_bits).collect()).collect()
        };
        assert_eq!(bits(Allreduce::Lines), bits(Allreduce::Doubling), "{ranks} ranks");
        for (root, words) in [(0, 1), (ranks - 1, 7), (ranks / 2, 8), (1, 2000)] {
            host.run(|f| async move {
                for call in 0..calls {
                    let data = |at: u64| (u64::from(root) << 32 | call) * 10_000 + at;
                    let of_rank = |at| if f.rank == root { data(at) } else { 0 };
                    let mut buffer: Vec<u64> = (0..words).map(of_rank).collect();
                    let vector = Vector::raw(buffer.as_mut_ptr().cast(), words * 8);
                    // SAFETY: the buffer lives until the call has ended.
                    unsafe { bcast::run_by(&f, Bcast::Lines, vector, root).await? };
                    assert!((0..words).map(data).eq(buffer));
                }
                Ok(())
            });
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineCall {
    Barrier,
    Bcast,
    /// Sum of integers, in any order.
    Allreduce,
    /// Sum of floating-point numbers, whose order is fixed.
    OrderedAllreduce,
}

impl LineCall {
    const ALL: [LineCall; 4] =
        [LineCall::Barrier, LineCall::Bcast, LineCall::Allreduce, LineCall::OrderedAllreduce];

    /// Largest ratio to the lower bound.
    fn target(self) -> f64 {
        if self == LineCall::Bcast { 1.3 } else { 1.2 }
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Lines,
    Messages,
    Xhc,
}

/// Collective call of XHC as published: a tree of groups, of which each leader collects a line of each member and
/// publishes a line for all of them. A broadcast publishes first, and then collects acknowledgements. `groups` has the
/// group of each rank at each level.
async fn run_xhc(f: &Rank<'_>, groups: &[Vec<u32>], publishes_first: bool, call: u64) {
    let ranks: Vec<u32> = (0..f.size()).collect();
    let leader = |rank: u32, level: usize| match groups.get(level) {
        Some(of) => ranks.iter().copied().find(|&r| of[r as usize] == of[rank as usize]).unwrap(),
        None => 0,
    };
    let leads = |rank: u32, levels: usize| (0..levels).all(|level| leader(rank, level) == rank);
    let (up, down) = (|rank| LineId::Flag(rank, 0), |rank| LineId::Flag(rank, 1));
    let levels = (0..groups.len()).take_while(|&level| leader(f.rank, level) == f.rank).count();
    let parent = leader(f.rank, levels);
    let gather = async || {
        for level in 0..=levels.min(groups.len()) {
            let members = ranks.iter().copied().filter(|&rank| {
                rank != f.rank && leads(rank, level) && leader(rank, level) == f.rank
            });
            f.load(members.map(|rank| (up(rank), call))).await;
        }
        if parent != f.rank {
            f.store(up(f.rank), call, 0).await;
        }
    };
    if !publishes_first {
        gather().await;
    }
    if parent != f.rank {
        f.load([(down(parent), call)]).await;
    }
    if levels > 0 {
        f.store(down(f.rank), call, 0).await;
    }
    if publishes_first {
        gather().await;
    }
}

/// Number of calls whose times are averaged. Lines are used again after 16 calls.
const RUNS: u64 = 16;

/// Returns the mean time of the last rank of a call of 8 bytes, in ns.
fn predict(machine: &Machine, host: &Host<'_>, call: LineCall, way: Way) -> f64 {
    let handle = if call == LineCall::OrderedAllreduce { MPI_DOUBLE } else { MPI_UINT64_T };
    let datatype = Datatype::named(Basic::from_handle(handle).unwrap());
    let red = &Reduction::new(&Op::builtin(Builtin::Sum), &datatype, handle).unwrap();
    let key = |key: fn(crate::coll_choice::line_plan::CachePlace) -> u32| -> Vec<u32> {
        machine.places(host.ranks()).into_iter().map(key).collect()
    };
    let groups = &match call {
        LineCall::Barrier | LineCall::Bcast => vec![key(|place| place.socket)],
        _ => vec![key(|place| place.l3), key(|place| place.socket)],
    };
    let run = |number: u64| {
        let ends = host.run(|f| async move {
            let mut value = 0u64;
            let vector = red.at((&raw mut value).cast(), 1);
            // SAFETY: the value lives until the call has ended, and operand and result are the same.
            unsafe {
                match (call, way) {
                    (LineCall::Barrier, Way::Lines) => barrier::run_as(&f, Barrier::Lines).await,
                    (LineCall::Barrier, Way::Messages) => barrier::dissemination(&f).await,
                    (LineCall::Bcast, Way::Lines) => {
                        bcast::run_by(&f, Bcast::Lines, vector, 0).await
                    }
                    (LineCall::Bcast, Way::Messages) => bcast::binomial(&f, vector, 0).await,
                    (_, Way::Lines) => {
                        allreduce::run(&f, Allreduce::Lines, red, vector, vector).await
                    }
                    (_, Way::Messages) => {
                        allreduce::run(&f, Allreduce::Doubling, red, vector, vector).await
                    }
                    (_, Way::Xhc) => {
                        run_xhc(&f, groups, call == LineCall::Bcast, number).await;
                        Result::Ok(())
                    }
                }
            }
        });
        ends.into_iter().fold(0.0, f64::max)
    };
    (1..=RUNS).for_each(|number| _ = run(number));
    (1..=RUNS).map(|number| run(RUNS + number)).sum::<f64>() / RUNS as f64
}

/// Lower bounds of `ranks` on consecutive cores, in ns: of a broadcast, and of a barrier or allreduce by leaders and by
/// all ranks.
struct Bounds {
    bcast: f64,
    leaders: f64,
    all: f64,
}

impl Bounds {
    fn new(machine: &Machine, ranks: u32) -> Bounds {
        let (next, reader) = (machine.costs.next_line, machine.costs.next_reader);
        let places = machine.places(ranks);
        let sockets = places[ranks as usize - 1].socket + 1;
        let l3s = (places[ranks as usize - 1].l3 + 1).div_ceil(sockets);
        let sizes = [ranks.div_ceil(sockets * l3s), l3s, sockets];
        let [near, socket, far] = machine.medians(ranks);
        let below = |size: u32, bound: f64| if size > 1 { bound } else { 0.0 };
        let wide = |size: u32| f64::from(size.saturating_sub(2));
        Bounds {
            bcast: below(sizes[0], near + wide(sizes[0]) * reader)
                + below(sizes[1], socket + wide(sizes[1]) * reader)
                + below(sizes[2], far),
            leaders: below(sizes[0], 2.0 * near + wide(sizes[0]) * (next + reader))
                + below(sizes[1], 2.0 * socket + wide(sizes[1]) * (next + reader))
                + below(sizes[2], far + wide(sizes[2]) * next),
            all: learn(sizes[0], near, next)
                + learn(sizes[1], socket, next)
                + learn(sizes[2], far, next),
        }
    }

    fn of(&self, call: LineCall) -> f64 {
        match call {
            LineCall::Bcast => self.bcast,
            _ => self.leaders.min(self.all),
        }
    }
}

/// Returns the least time in which each of `ranks` learns from all, in rounds of several lines.
fn learn(ranks: u32, first: f64, next: f64) -> f64 {
    let round = |lines: u32| {
        let rest = learn(ranks.div_ceil(lines + 1), first, next);
        first + f64::from(lines - 1) * next + rest
    };
    (1..ranks).map(round).min_by(f64::total_cmp).unwrap_or(0.0)
}

#[test]
fn bounds__equal_those_derived_by_hand() {
    let of = |machine: Machine| {
        let bounds = Bounds::new(&machine, machine.cores());
        [bounds.bcast, bounds.leaders, bounds.all].map(f64::round)
    };
    assert_eq!(of(Machine::epyc_9654()), [367.0, 878.0, 545.0]);
    assert_eq!(of(Machine::xeon_8375c()), [249.0, 1020.0, 357.0]);
    assert_eq!(of(Machine::graviton3()), [232.0, 1766.0, 276.0]);
}

/// Compares the time of each call with the bound, messages and XHC, and prints a table. `FASTPATH_TEST_SCALE=1` adds
/// numbers of ranks between, for `docs/scale.md`. A message costs one line, like a step of a call through lines.
#[test]
fn lines__reach_the_targets() {
    let cases: [(Machine, &[u32], &[u32]); 4] = [
        (Machine::epyc_9654(), &[8, 192], &[16, 32, 64, 96]),
        (Machine::epyc_9754(), &[128], &[8, 16, 32, 64]),
        (Machine::xeon_8375c(), &[64], &[8, 16, 32]),
        (Machine::graviton3(), &[16, 64], &[8, 32]),
    ];
    println!("| host | ranks | call | lines, ns | bound, ns | ratio | messages, ns | XHC, ns |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut missed = String::new();
    for (machine, few, others) in &cases {
        let mut sizes = few.to_vec();
        if std::env::var_os("FASTPATH_TEST_SCALE").is_some() {
            sizes.extend(*others);
            sizes.sort();
        }
        for ranks in sizes {
            let host = Host::new(machine, ranks, &machine.line_costs(ranks)).unwrap();
            let bounds = Bounds::new(machine, ranks);
            for call in LineCall::ALL {
                let [lines, messages, xhc] = [Way::Lines, Way::Messages, Way::Xhc]
                    .map(|way| predict(machine, &host, call, way));
                let bound = bounds.of(call);
                let row = format!(
                    "| {} | {ranks} | {call:?} | {lines:.0} | {bound:.0} | {:.2} | {messages:.0} | {xhc:.0} |",
                    machine.name,
                    lines / bound
                );
                println!("{row}");
                if lines > call.target() * bound || lines > 1.03 * messages || lines > xhc {
                    missed += &format!("{row}\n");
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[derive(Debug, Clone, Copy)]
enum RootedCall {
    Gather,
    Scatter,
    Scan,
}

/// Returns the mean time of the last rank of a call with blocks of `words` words, in ns, and checks the contents.
fn predict_rooted(host: &Host<'_>, call: RootedCall, by_lines: bool, words: usize) -> f64 {
    let datatype = Datatype::named(Basic::from_handle(MPI_UINT64_T).unwrap());
    let red = &Reduction::new(&Op::builtin(Builtin::Sum), &datatype, MPI_UINT64_T).unwrap();
    let (ranks, bytes) = (host.ranks() as usize, words as u64 * 8);
    let data = |rank: usize, at: usize| (rank * words + at) as u64;
    let run = |root: u32| {
        let ends = host.run(|f| async move {
            let (rank, is_root) = (f.rank as usize, f.rank == root);
            let mut own: Vec<u64> = (0..words).map(|at| data(rank, at)).collect();
            let mut all = vec![0; if is_root { ranks * words } else { 0 }];
            let (own_at, all_at) = (own.as_mut_ptr(), all.as_mut_ptr());
            let mine = Vector::raw(own_at.cast(), bytes);
            let block = |r: u32| Vector::raw(all_at.wrapping_add(r as usize * words).cast(), bytes);
            let block = is_root.then_some(block);
            let expected: Vec<u64> = (0..ranks * words).map(|at| at as u64).collect();
            // SAFETY: the vectors live until the call has ended.
            unsafe {
                match call {
                    RootedCall::Gather => {
                        let how = if by_lines { Gather::Lines } else { Gather::Binomial };
                        gather::run(&f, how, Some(mine), block, root).await?;
                        assert!(!is_root || all == expected);
                    }
                    RootedCall::Scatter => {
                        let how = if by_lines { Gather::Shared } else { Gather::Binomial };
                        if is_root {
                            all.copy_from_slice(&expected);
                        }
                        own.fill(0);
                        scatter::run(&f, how, block, Some(mine), root).await?;
                        assert!(own.iter().copied().eq((0..words).map(|at| data(rank, at))));
                    }
                    RootedCall::Scan => {
                        let how = if by_lines { Scan::Lines } else { Scan::Doubling };
                        let value = red.at(own_at.cast(), words as u64);
                        scan::run(&f, how, Prefix::Inclusive, red, value, value).await?;
                        let sum = |at| (0..=rank).map(|r| data(r, at)).sum::<u64>();
                        assert!(own.iter().copied().eq((0..words).map(sum)));
                    }
                }
            }
            Ok(())
        });
        ends.into_iter().fold(0.0, f64::max)
    };
    run(host.ranks() - 1);
    run(host.ranks() / 2);
    (0..RUNS).for_each(|_| _ = run(0));
    (0..RUNS).map(|_| run(0)).sum::<f64>() / RUNS as f64
}

/// Prints the times of gather, scatter and scan, beside those by messages, for `docs/scale.md`. Lines are
/// at most as slow where they are the usual choice.
#[test]
fn gather_scatter_scan__by_default__take_at_most_the_time_of_messages() {
    println!("| host | ranks | call | bytes | lines, ns | messages, ns |");
    println!("|---|---|---|---|---|---|");
    let mut missed = String::new();
    for (machine, ranks) in [
        (Machine::epyc_9654(), 192),
        (Machine::epyc_9754(), 128),
        (Machine::xeon_8375c(), 64),
        (Machine::graviton3(), 64),
        (Machine::graviton3(), 8),
    ] {
        let host = Host::new(&machine, ranks, &machine.line_costs(ranks)).unwrap();
        for call in [RootedCall::Gather, RootedCall::Scatter, RootedCall::Scan] {
            for words in [1, 16] {
                let [lines, messages] =
                    [true, false].map(|by_lines| predict_rooted(&host, call, by_lines, words));
                let row = format!(
                    "| {} | {ranks} | {call:?} | {} | {lines:.0} | {messages:.0} |",
                    machine.name,
                    8 * words
                );
                println!("{row}");
                let room = JobProcessors::Own;
                let place = CallPlace { room, may_share: true, may_line: true };
                let bytes = 8 * words as u64;
                let size = Size {
                    bytes,
                    count: words as u64,
                    commutes: true,
                    is_contiguous: true,
                    order: ReductionOrder::Fixed,
                };
                let is_usual = match call {
                    RootedCall::Gather => {
                        choose::gather(&GATHER, bytes, ranks, place) == Gather::Lines
                    }
                    RootedCall::Scatter => {
                        choose::gather(&SCATTER, bytes, ranks, place) == Gather::Shared
                    }
                    RootedCall::Scan => choose::scan(&SCAN, size, ranks, place) == Scan::Lines,
                };
                if is_usual && lines > 1.03 * messages {
                    missed += &format!("{row}\n");
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

/// Returns the times of a flat broadcast of XHC: of the root, and the means of the readers in its socket and in the
/// other one. Readers wait for a line of the root, then the root waits for a line of each reader.
fn predict_flat(machine: &Machine, ranks: u32, bytes: usize) -> [f64; 3] {
    let host = Host::new(machine, machine.cores(), &machine.line_costs(2)).unwrap();
    let run = |call| {
        let ends = host.run(|f| async move {
            let root = LineId::Flag(0, 0);
            if f.rank == 0 {
                f.store(root, call, bytes).await;
                f.load((1..ranks).map(|rank| (LineId::Flag(rank, 0), call))).await;
            } else if f.rank < ranks {
                f.load([(root, call)]).await;
                f.store(LineId::Flag(f.rank, 0), call, 0).await;
            }
            Ok(())
        });
        let mean = |range: std::ops::Range<u32>| {
            let readers = &ends[range.start as usize..range.end.max(range.start) as usize];
            readers.iter().sum::<f64>() / readers.len() as f64
        };
        let half = machine.cores() / 2;
        [ends[0], mean(1..ranks.min(half)), mean(half..ranks)]
    };
    run(1);
    run(2)
}

/// Times of ranks in other sockets count from a later start than that of the root, because the barrier before the call
/// releases them later. This time and that of a store to a line with distant readers are fitted for each host.
#[test]
fn simulator__predicts_published_broadcasts_within_25_percent() {
    let text = include_str!("../simulator/machines/xeon-readers.txt");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split(' ').collect()).collect();
    let hosts =
        [("SKX-24", 24, 500.0, 350.0), ("CSX-48", 48, 600.0, 450.0), ("ICX-48", 48, 220.0, 0.0)];
    for (name, cores, far_store, late) in hosts {
        let costs = SharedLineCosts { far_store, instructions: 40.0, ..SharedLineCosts::XEON };
        let machine = Machine::two_sockets(name, cores, 51, 108, costs);
        for bytes in ["8", "4096"] {
            let mut errors = Vec::new();
            for row in rows.iter().filter(|row| row[0] == name && row[2] == bytes) {
                let (ranks, bytes) = (row[1].parse().unwrap(), bytes.parse().unwrap());
                let [root, same, other] = predict_flat(&machine, ranks, bytes);
                for (predicted, measured) in [root, same, other - late].iter().zip(&row[3..]) {
                    let Ok(measured) = measured.parse::<f64>() else { continue };
                    errors.push((predicted / measured - 1.0).abs());
                }
            }
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            println!("{name}, {bytes} bytes: mean error {:.0} %", 100.0 * mean);
            assert!(mean < 0.25);
            assert!(errors.len() >= 2 * (cores as usize - 1));
        }
    }
}
