//! Tests of long calls through shared lines and buffers on the virtual clock of a host.
#![allow(unsafe_code)]

use super::super::choose::*;
use super::super::local::Reduction;
use super::super::simulator::lines::Host;
use super::super::simulator::machine::Machine;
use super::super::vector::Vector;
use super::super::{allreduce, alltoall, bcast};
use crate::common::consts::MPI_UINT64_T;
use crate::objects::datatype::{Basic, Datatype};
use crate::objects::op::{Builtin, Op};

/// Returns the time of the last rank of a broadcast of `bytes` bytes, in ns, and checks the contents.
fn predict_bcast(host: &Host<'_>, how: Bcast, bytes: u64, root: u32) -> f64 {
    let run = |call: u64| {
        let ends = host.run(|f| async move {
            let of_rank = |at: u64| if f.rank == root { call << 32 | at } else { 0 };
            let mut buffer: Vec<u64> = (0..bytes / 8).map(of_rank).collect();
            let vector = Vector::raw(buffer.as_mut_ptr().cast(), bytes);
            // SAFETY: the buffer lives until the call has ended.
            unsafe { bcast::run_by(&f, how, vector, root).await? };
            assert!(buffer.into_iter().eq((0..bytes / 8).map(|at| call << 32 | at)));
            Ok(())
        });
        ends.into_iter().fold(0.0, f64::max)
    };
    run(1);
    run(2)
}

#[test]
fn long_broadcasts__from_any_root__move_the_right_data() {
    let machine = Machine::epyc_9654();
    for (ranks, root) in [(13, 12), (100, 0), (100, 50), (100, 99)] {
        let host = Host::new(&machine, ranks, &machine.line_costs(ranks)).unwrap();
        for bytes in [20_000, 262_152, 600_000] {
            predict_bcast(&host, Bcast::Lines, bytes, root);
        }
    }
}

/// Prints times of long broadcasts beside the time in which a core copies the data from another core of its socket.
/// One of 1 MiB has at least 0.8 of the bandwidth of this copy. `FASTPATH_TEST_SCALE=1` adds hosts, for
/// `docs/scale.md`.
#[test]
fn long_broadcasts__reach_the_target_and_are_faster_than_by_messages() {
    println!("| host | ranks | bytes | lines, us | one copy, us | share | messages, us |");
    println!("|---|---|---|---|---|---|---|");
    let (mut cases, mut sizes) = (vec![(Machine::xeon_8375c(), 64)], vec![16 << 10, 1 << 20]);
    if std::env::var_os("FASTPATH_TEST_SCALE").is_some() {
        cases.extend([
            (Machine::graviton3(), 64),
            (Machine::epyc_9754(), 128),
            (Machine::epyc_9654(), 192),
        ]);
        sizes.push(64 << 10);
    }
    for (machine, ranks) in &cases {
        let host = Host::new(machine, *ranks, &machine.line_costs(*ranks)).unwrap();
        for &bytes in &sizes {
            let copy = machine.costs.adjacent[0] * (bytes / 64) as f64;
            let [lines, binomial, ring] = [Bcast::Lines, Bcast::Binomial, Bcast::ScatterAllgather]
                .map(|how| predict_bcast(&host, how, bytes, 0));
            let messages = binomial.min(ring);
            println!(
                "| {} | {ranks} | {bytes} | {:.1} | {:.1} | {:.2} | {:.1} |",
                machine.name,
                lines / 1e3,
                copy / 1e3,
                copy / lines,
                messages / 1e3
            );
            assert!(lines < messages);
            assert!(bytes < 1 << 20 || copy >= 0.8 * lines);
        }
    }
}

/// Returns the time of the last rank of an allreduce of `bytes` bytes, in ns.
fn predict_long_allreduce(host: &Host<'_>, how: Allreduce, bytes: usize) -> f64 {
    let datatype = Datatype::named(Basic::from_handle(MPI_UINT64_T).unwrap());
    let red = &Reduction::new(&Op::builtin(Builtin::Sum), &datatype, MPI_UINT64_T).unwrap();
    let ranks = u64::from(host.ranks());
    let run = || {
        let ends = host.run(|f| async move {
            let mut data: Vec<u64> =
                (0..bytes as u64 / 8).map(|at| u64::from(f.rank) + at).collect();
            let vector = red.at(data.as_mut_ptr().cast(), bytes as u64 / 8);
            // SAFETY: the data lives until the call has ended.
            unsafe { allreduce::run(&f, how, red, vector, vector).await? };
            assert!(
                (0..).map(|at| ranks * (ranks - 1) / 2 + ranks * at).zip(data).all(|(a, b)| a == b)
            );
            Ok(())
        });
        ends.into_iter().fold(0.0, f64::max)
    };
    run();
    run()
}

/// Returns the time of the last rank of an alltoall of blocks of `bytes` bytes, in ns. All blocks of a rank are the
/// same memory, because the data of all ranks is too long.
fn predict_long_alltoall(host: &Host<'_>, how: Alltoall, bytes: usize) -> f64 {
    let run = || {
        let ends = host.run(|f| async move {
            let (mut out, mut into) = (vec![f.rank as u8; bytes], vec![0u8; bytes]);
            let (out, into) = (out.as_mut_ptr(), into.as_mut_ptr());
            let block = |at: *mut u8| move |_| Vector::raw(at, bytes as u64);
            // SAFETY: the blocks live until the call has ended.
            unsafe { alltoall::run(&f, how, &block(out), &block(into)).await }
        });
        ends.into_iter().fold(0.0, f64::max)
    };
    run();
    run()
}

/// Prints times of long calls through shared buffers beside the time in which a core copies the bytes that it must get
/// from other ranks, as from its own socket, and as from the sockets of these ranks. An allreduce has at least 0.7 of
/// the bandwidth of the first, and an alltoall of long blocks of the second. `FASTPATH_TEST_SCALE=1` adds hosts, for
/// `docs/scale.md`.
#[test]
fn long_calls__reach_the_targets() {
    println!(
        "| host | ranks | call | bytes | lines, us | bound, us | share | with link | messages, us |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let is_long = std::env::var_os("FASTPATH_TEST_SCALE").is_some();
    let mut cases = vec![(Machine::graviton3(), if is_long { 64 } else { 8 })];
    if is_long {
        cases.push((Machine::xeon_8375c(), 64));
        cases.push((Machine::epyc_9754(), 128));
        cases.push((Machine::epyc_9654(), 192));
    }
    for (machine, ranks) in &cases {
        let host = Host::new(machine, *ranks, &machine.line_costs(*ranks)).unwrap();
        let copy = |bytes: usize| machine.costs.adjacent[0] * bytes as f64 / 64.0;
        let others = *ranks as usize - 1;
        // Time in which rank 0 copies a line of each other rank, relative to that of lines of its own socket.
        let each = |rank| {
            let is_near = machine.place(rank).socket == machine.place(0).socket;
            machine.costs.adjacent[usize::from(!is_near)]
        };
        let link = (1..*ranks).map(each).sum::<f64>() / (machine.costs.adjacent[0] * others as f64);
        let row = |call: &str, bytes: usize, lines: f64, least: f64, link: f64, messages: f64| {
            let [share, with_link] = [least, link * least].map(|least| least / lines);
            println!(
                "| {} | {ranks} | {call} | {bytes} | {:.1} | {:.1} | {share:.2} | {with_link:.2} | {:.1} |",
                machine.name,
                lines / 1e3,
                least / 1e3,
                messages / 1e3
            );
            assert!(with_link <= 1.0 && with_link >= if bytes < 64 << 10 { 0.6 } else { 0.7 });
        };
        let bytes = 1 << 20;
        let [lines, halving, ring] =
            [Allreduce::Shared, Allreduce::HalvingDoubling, Allreduce::Ring]
                .map(|how| predict_long_allreduce(&host, how, bytes));
        let least = 2.0 * copy(bytes) * others as f64 / f64::from(*ranks);
        row("Allreduce", bytes, lines, least, 1.0, halving.min(ring));
        for bytes in [8 << 10, 64 << 10] {
            let [lines, messages] = [Alltoall::Shared, Alltoall::Together]
                .map(|how| predict_long_alltoall(&host, how, bytes));
            row("Alltoall", bytes, lines, copy(bytes * others), link, messages);
        }
    }
}
