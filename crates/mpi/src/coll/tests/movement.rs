//! Tests of barrier and of calls that only move data.

use super::*;
use crate::coll::choose::*;
use crate::coll::fabric::{Fabric, drive};
use crate::coll::simulator::{run, run_on};
use crate::coll::{allgather, alltoall, barrier, bcast, gather, lines, scatter, shared, vector};
use crate::coll_choice::{ALLGATHER, ALLGATHERV, BARRIER, BCAST, GATHER, SCATTER};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn barrier__releases_no_rank_before_all_have_entered() {
    for mode in [Mode::Eager, Mode::Rendezvous] {
        let on_one_host =
            BARRIER.all.iter().map(|&(how, _)| how).filter(|&how| how != Barrier::Nodes);
        for (how, ranks) in on_one_host.flat_map(|how| (3..=17).map(move |ranks| (how, ranks))) {
            let inside = AtomicU32::new(0);
            let seen = run(ranks, mode, |f| {
                inside.fetch_add(1, Ordering::SeqCst);
                drive(barrier::run_many(f, how)).unwrap();
                inside.load(Ordering::SeqCst)
            });
            assert_eq!(seen, vec![ranks; ranks as usize], "{how:?}");
        }
        for hosts in [&[0, 0, 1, 1, 1, 2][..], &[0, 1, 0, 1], &[2, 1, 1, 0, 2]] {
            let inside = AtomicU32::new(0);
            let seen = run_on(hosts, mode, |f| {
                inside.fetch_add(1, Ordering::SeqCst);
                drive(barrier::run_many(f, Barrier::Nodes)).unwrap();
                inside.load(Ordering::SeqCst)
            });
            assert_eq!(seen, vec![hosts.len() as u32; hosts.len()]);
        }
        let inside = AtomicU32::new(0);
        let seen = run(2, mode, |f| {
            inside.fetch_add(1, Ordering::SeqCst);
            drive(barrier::run(f)).unwrap();
            inside.load(Ordering::SeqCst)
        });
        assert_eq!(seen, [2, 2]);
    }
    run(1, Mode::Rendezvous, |f| drive(barrier::run(f)).unwrap());
}

/// Returns the count of a rank in a call with different counts, some of them 0.
fn uneven(rank: u32, count: u64) -> u64 {
    if rank % 3 == 1 { 0 } else { count + rank as u64 % 4 }
}

/// Returns start and count of a rank's block. Blocks are in reverse rank order, with one unused element between
/// neighbours.
fn scattered(rank: u32, ranks: u32, count: u64) -> (u64, u64) {
    let first = (rank + 1..ranks).map(|r| uneven(r, count) + 1).sum();
    (first, uneven(rank, count))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bcast__gives_all_the_roots_data(
        hosts in any_hosts(), root in 0u32..18, count in any_count(), mode in any_mode(),
        shapes in (any_shape(), any_shape()),
    ) {
        let ranks = hosts.len() as u32;
        let root = root % ranks;
        let expected = words(root, 0, count);
        for &(how, _) in BCAST.all {
            let results = run_on(&hosts, mode, |f| {
                let shape = if f.rank() % 2 == 0 { shapes.0 } else { shapes.1 };
                let area = Area::filled(shape, &words(f.rank(), 0, count));
                // SAFETY: the area outlives the call.
                unsafe { drive(bcast::run_by(f, how, area.vector(0, count), root)).unwrap() };
                area.data()
            });
            prop_assert!(results.iter().all(|r| *r == expected), "{:?}", how);
        }
    }

    /// Repeated broadcasts and allgathers use the same buffers, which are shorter than the data.
    #[test]
    fn bcast_long__leaves_buffers_until_all_have_read(
        ranks in 1u32..18, count in any_count(), roots in proptest::collection::vec(0u32..18, 1..6),
        shape in any_shape(),
    ) {
        let results = run(ranks, Mode::Eager, |f| {
            let (buffers, mut found) = (f.shared().unwrap().unwrap(), Vec::new());
            for (call, root) in (0..).zip(roots.iter().map(|root| root % ranks)) {
                let area = Area::filled(shape, &words(f.rank(), call, count));
                let all = Area::new(shape, ranks as usize * count as usize);
                let block = |rank: u32| all.vector(u64::from(rank) * count, count);
                // SAFETY: the areas outlive the calls.
                unsafe {
                    let first = f.lines().unwrap().unwrap();
                    let begin = || f.lines();
                    let data = area.vector(0, count);
                    drive(lines::bcast_long(f, buffers, first, begin, data, root)).unwrap();
                    if call % 2 == 1 {
                        drive(shared::allgather(f, buffers, area.vector(0, count), &block)).unwrap();
                    }
                }
                found.push(area.data());
            }
            found
        });
        for found in results {
            for (call, root) in (0..).zip(roots.iter().map(|root| root % ranks)) {
                prop_assert_eq!(&found[call as usize], &words(root, call, count));
            }
        }
    }

    #[test]
    fn gather__collects_blocks_in_order(
        ranks in 1u32..18, root in 0u32..18, count in any_count(), mode in any_mode(),
        shapes in (any_shape(), any_shape()), in_place in any::<bool>(),
    ) {
        let root = root % ranks;
        let expected: Vec<u32> = (0..ranks).flat_map(|r| words(r, 0, count)).collect();
        for &(how, _) in GATHER.all {
            let results = run(ranks, mode, |f| {
                let (own, is_root) = (words(f.rank(), 0, count), f.rank() == root);
                let send = Area::filled(shapes.0, &own);
                let mut recv = Area::new(shapes.1, if is_root { ranks as usize * count as usize } else { 0 });
                if in_place && is_root {
                    recv.put(f.rank() as usize * count as usize, &own);
                }
                let block = is_root.then(|| vector::even_blocks(recv.vector(0, count)));
                let own = (!in_place || !is_root).then(|| send.vector(0, count));
                // SAFETY: the areas outlive the call.
                unsafe { drive(gather::run(f, how, own, block, root)).unwrap() };
                recv.data()
            });
            prop_assert_eq!(&results[root as usize], &expected, "{:?}", how);
        }
    }

    #[test]
    fn scatter__deals_out_blocks_in_order(
        ranks in 1u32..18, root in 0u32..18, count in any_count(), mode in any_mode(),
        shapes in (any_shape(), any_shape()), in_place in any::<bool>(),
    ) {
        let root = root % ranks;
        let all: Vec<u32> = (0..ranks).flat_map(|r| words(r, 0, count)).collect();
        for &(how, _) in SCATTER.all {
            let results = run(ranks, mode, |f| {
                let is_root = f.rank() == root;
                let send = Area::filled(shapes.0, if is_root { &all } else { &[] });
                let recv = Area::new(shapes.1, count as usize);
                let block = is_root.then(|| vector::even_blocks(send.vector(0, count)));
                let own = (!in_place || !is_root).then(|| recv.vector(0, count));
                // SAFETY: the areas outlive the call.
                unsafe { drive(scatter::run(f, how, block, own, root)).unwrap() };
                recv.data()
            });
            for (rank, result) in results.iter().enumerate() {
                let stays = in_place && rank == root as usize;
                let expected = if stays { untouched(count) } else { words(rank as u32, 0, count) };
                prop_assert_eq!(result, &expected, "{:?}", how);
            }
        }
    }

    #[test]
    fn gatherv_scatterv__use_counts_and_displacements(
        ranks in 1u32..18, root in 0u32..18, count in any_count(), mode in any_mode(), shape in any_shape(),
    ) {
        let root = root % ranks;
        let room = |r: u32| scattered(r, ranks, count);
        let length = (0..ranks).map(|r| room(r).0 + room(r).1).max().unwrap() as usize;
        let results = run(ranks, mode, |f| {
            let (rank, mine) = (f.rank(), uneven(f.rank(), count));
            let send = Area::filled(shape, &words(rank, 0, mine));
            let middle = Area::new(Shape::Gappy, length);
            let recv = Area::new(shape, mine as usize);
            let block = || (rank == root).then_some(|r: u32| middle.vector(room(r).0, room(r).1));
            // SAFETY: the areas outlive the call.
            unsafe {
                drive(gather::run(f, Gather::Linear, Some(send.vector(0, mine)), block(), root)).unwrap();
                drive(scatter::run(f, Gather::Linear, block(), Some(recv.vector(0, mine)), root)).unwrap();
            }
            (middle.data(), recv.data())
        });
        let mut expected = untouched(length as u64);
        for rank in 0..ranks {
            let (first, n) = room(rank);
            let at = first as usize * WORDS;
            expected[at..at + n as usize * WORDS].copy_from_slice(&words(rank, 0, n));
            prop_assert_eq!(&results[rank as usize].1, &words(rank, 0, n));
        }
        prop_assert_eq!(&results[root as usize].0, &expected);
    }

    #[test]
    fn allgather__gives_all_every_block(
        hosts in any_hosts(), count in any_count(), mode in any_mode(),
        shapes in (any_shape(), any_shape()), in_place in any::<bool>(),
    ) {
        let ranks = hosts.len() as u32;
        let expected: Vec<u32> = (0..ranks).flat_map(|r| words(r, 0, count)).collect();
        for &(how, _) in ALLGATHER.all {
            if how == Allgather::Doubling && !ranks.is_power_of_two() {
                continue;
            }
            let results = run_on(&hosts, mode, |f| {
                let own = words(f.rank(), 0, count);
                let send = Area::filled(shapes.0, &own);
                let mut recv = Area::new(shapes.1, (ranks as u64 * count) as usize);
                if in_place {
                    recv.put((f.rank() as u64 * count) as usize, &own);
                }
                let own = (!in_place).then(|| send.vector(0, count));
                let block = vector::even_blocks(recv.vector(0, count));
                let whole = recv.vector(0, ranks as u64 * count);
                // SAFETY: the areas outlive the call.
                unsafe { drive(allgather::run(f, how, own, &block, Some(whole))).unwrap() };
                recv.data()
            });
            prop_assert!(results.iter().all(|r| *r == expected), "{:?}", how);
        }
    }

    #[test]
    fn allgatherv__uses_counts_and_displacements(
        hosts in any_hosts(), count in any_count(), mode in any_mode(), shape in any_shape(),
    ) {
        let ranks = hosts.len() as u32;
        let room = |r: u32| scattered(r, ranks, count);
        let length = (0..ranks).map(|r| room(r).0 + room(r).1).max().unwrap() as usize;
        let mut expected = untouched(length as u64);
        for rank in 0..ranks {
            let (first, n) = room(rank);
            let at = first as usize * WORDS;
            expected[at..at + n as usize * WORDS].copy_from_slice(&words(rank, 0, n));
        }
        for &(how, _) in ALLGATHERV.all {
            let results = run_on(&hosts, mode, |f| {
                let mine = uneven(f.rank(), count);
                let send = Area::filled(Shape::Tight, &words(f.rank(), 0, mine));
                let recv = Area::new(shape, length);
                let block = |r: u32| recv.vector(room(r).0, room(r).1);
                // SAFETY: the areas outlive the call.
                unsafe { drive(allgather::run(f, how, Some(send.vector(0, mine)), &block, None)).unwrap() };
                recv.data()
            });
            prop_assert!(results.iter().all(|r| *r == expected), "{:?}", how);
        }
    }

    #[test]
    fn alltoall__transposes(
        ranks in 1u32..18, count in any_count(), mode in any_mode(), shapes in (any_shape(), any_shape()),
    ) {
        for how in [Alltoall::Together, Alltoall::Bruck, Alltoall::Flat] {
            let results = run(ranks, mode, |f| {
                let all: Vec<u32> = (0..ranks).flat_map(|to| words(f.rank(), to, count)).collect();
                let send = Area::filled(shapes.0, &all);
                let recv = Area::new(shapes.1, (ranks as u64 * count) as usize);
                let (out, into) = (send.vector(0, count), recv.vector(0, count));
                // SAFETY: the areas outlive the call.
                unsafe { drive(alltoall::run(f, how, &vector::even_blocks(out), &vector::even_blocks(into))).unwrap() };
                if how != Alltoall::Together && ranks > 1 {
                    let in_place = Area::filled(shapes.1, &all);
                    let block = vector::even_blocks(in_place.vector(0, count));
                    // SAFETY: the block is valid for its counts, and is the only buffer.
                    unsafe { drive(alltoall::run_in_place(f, how, &block)).unwrap() };
                    assert_eq!(in_place.data(), recv.data());
                }
                // Repeat the call in place. Ranks may choose different algorithms here.
                for choice in 0..3 {
                    let pairs = if choice == 2 { f.rank() % 2 } else { choice };
                    let how = [Alltoall::Copied, Alltoall::Pairs][pairs as usize];
                    let in_place = Area::filled(shapes.1, &all);
                    let block = vector::even_blocks(in_place.vector(0, count));
                    // SAFETY: the block is valid for its counts, and is the only buffer.
                    unsafe { drive(alltoall::run_in_place(f, how, &block)).unwrap() };
                    assert_eq!(in_place.data(), recv.data());
                }
                recv.data()
            });
            for (rank, result) in results.iter().enumerate() {
                let expected: Vec<u32> = (0..ranks).flat_map(|from| words(from, rank as u32, count)).collect();
                prop_assert_eq!(result, &expected, "{:?}", how);
            }
        }
    }

    #[test]
    fn alltoallv__uses_counts_and_displacements(
        ranks in 1u32..18, count in any_count(), mode in any_mode(), shapes in (any_shape(), any_shape()),
    ) {
        // The count from rank i to rank j depends on i + j, so that both ranks know the count.
        let room = |me: u32| move |r: u32| {
            let before: u64 = (0..r).map(|q| uneven(q + me, count) + 1).sum();
            (before, uneven(r + me, count))
        };
        let results = run(ranks, mode, |f| {
            let room = room(f.rank());
            let length = (room(ranks).0) as usize;
            let mut send = Area::new(shapes.0, length);
            for to in 0..ranks {
                send.put(room(to).0 as usize, &words(f.rank(), to, room(to).1));
            }
            let recv = Area::new(shapes.1, length);
            let out = |r: u32| send.vector(room(r).0, room(r).1);
            let into = |r: u32| recv.vector(room(r).0, room(r).1);
            // SAFETY: the areas outlive the call.
            unsafe { drive(alltoall::run(f, Alltoall::Together, &out, &into)).unwrap() };
            let received = recv.data();
            let how = if count % 2 == 0 { Alltoall::Copied } else { Alltoall::Pairs };
            // SAFETY: the blocks of `out` are valid for their counts.
            unsafe { drive(alltoall::run_in_place(f, how, &out)).unwrap() };
            assert_eq!(send.data(), received);
            received
        });
        for (rank, result) in results.iter().enumerate() {
            let room = room(rank as u32);
            let mut expected = untouched(room(ranks).0);
            for from in 0..ranks {
                let (first, n) = room(from);
                let at = first as usize * WORDS;
                expected[at..at + n as usize * WORDS].copy_from_slice(&words(from, rank as u32, n));
            }
            prop_assert_eq!(result, &expected);
        }
    }
}
