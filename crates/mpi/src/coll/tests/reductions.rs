//! Tests of reductions. A noncommutative operation reveals every operand out of order. VECTORS is defined in `coll.rs`.

use super::*;
use crate::coll::choose::*;
use crate::coll::fabric::{Fabric, drive};
use crate::coll::local::Reduction;
use crate::coll::scan::Prefix;
use crate::coll::simulator::{SimRank, run, run_on};
use crate::coll::{allreduce, choose, reduce, reduce_scatter, ring, scan};
use crate::coll_choice::{ALLREDUCE, NodeMap, REDUCE, REDUCE_SCATTER};
use crate::objects::op::{Op, OpFunction};
use std::ffi::c_void;

type Matrix = [u32; WORDS];

fn multiply(a: Matrix, b: Matrix) -> Matrix {
    let dot = |i: usize, j: usize| {
        a[2 * i].wrapping_mul(b[j]).wrapping_add(a[2 * i + 1].wrapping_mul(b[j + 2]))
    };
    [dot(0, 0), dot(0, 1), dot(1, 0), dot(1, 1)]
}

fn add(a: Matrix, b: Matrix) -> Matrix {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

/// Applies `f` to each element. Safety: see the contract of an MPI_User_function. The handle is the shape's extent in
/// words.
unsafe fn apply(
    f: fn(Matrix, Matrix) -> Matrix, left: *mut c_void, inout: *mut c_void, len: i32, extent: usize,
) {
    let shape = if extent == Shape::Tight.extent() { Shape::Tight } else { Shape::Gappy };
    for i in 0..len as usize {
        let at =
            |base: *mut c_void, place: usize| base.cast::<u32>().wrapping_add(i * extent + place);
        // SAFETY: VECTORS.
        unsafe {
            let a = shape.places().map(|p| at(left, p).read());
            let b = shape.places().map(|p| at(inout, p).read());
            for (place, word) in shape.places().into_iter().zip(f(a, b)) {
                at(inout, place).write(word);
            }
        }
    }
}

unsafe extern "C" fn product(
    left: *mut c_void, inout: *mut c_void, len: *mut i32, handle: *mut usize,
) {
    // SAFETY: a reducer passes valid arguments.
    unsafe { apply(multiply, left, inout, *len, *handle) }
}

unsafe extern "C" fn sum(left: *mut c_void, inout: *mut c_void, len: *mut i32, handle: *mut usize) {
    // SAFETY: a reducer passes valid arguments.
    unsafe { apply(add, left, inout, *len, *handle) }
}

#[derive(Clone, Copy)]
struct ReductionCase {
    naive: fn(Matrix, Matrix) -> Matrix,
    function: crate::objects::op::UserFunction,
    commutes: bool,
}

impl ReductionCase {
    const PRODUCT: ReductionCase =
        ReductionCase { naive: multiply, function: product, commutes: false };
    const SUM: ReductionCase = ReductionCase { naive: add, function: sum, commutes: true };

    fn of(commutes: bool) -> ReductionCase {
        if commutes { ReductionCase::SUM } else { ReductionCase::PRODUCT }
    }

    fn reduction(self, area: &Area) -> Reduction<'_> {
        let op = Op::user(OpFunction::User(self.function), self.commutes);
        Reduction::new(&op, &area.datatype, area.shape.extent()).unwrap()
    }

    fn expect(self, ranks: std::ops::Range<u32>, count: u64) -> Vec<u32> {
        let operands = ranks.map(|rank| operand(rank, count));
        operands.reduce(|a, b| combine(self.naive, &a, &b)).unwrap()
    }
}

fn combine(f: fn(Matrix, Matrix) -> Matrix, a: &[u32], b: &[u32]) -> Vec<u32> {
    let matrix = |v: &[u32]| Matrix::try_from(v).unwrap();
    a.chunks(WORDS).zip(b.chunks(WORDS)).flat_map(|(a, b)| f(matrix(a), matrix(b))).collect()
}

/// Returns a rank's operand: odd numbers, so that products of many do not vanish.
fn operand(rank: u32, count: u64) -> Vec<u32> {
    (0..count as u32 * 4).map(|i| (i * 7 + rank * 13 + (i ^ rank) * 5) * 2 + 1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn reduce__combines_in_order(
        hosts in any_hosts(), root in 0u32..18, count in any_count(), mode in any_mode(), shape in any_shape(),
        in_place in any::<bool>(), commutes in any::<bool>(),
    ) {
        let ranks = hosts.len() as u32;
        let (root, operation) = (root % ranks, ReductionCase::of(commutes));
        let expected = operation.expect(0..ranks, count);
        for &(how, _) in REDUCE.all {
            let keeps_order = how != Reduce::Nodes || hosts.is_sorted();
            let fits = how != Reduce::Shared || shape == Shape::Tight;
            if !fits || (!commutes && (how == Reduce::Halving || !keeps_order)) {
                continue;
            }
            let results = run_on(&hosts, mode, |f| {
                let (own, is_root) = (operand(f.rank(), count), f.rank() == root);
                let send = Area::filled(shape, &own);
                let mut recv = Area::new(shape, count as usize);
                if in_place && is_root {
                    recv.put(0, &own);
                }
                let result = recv.vector(0, count);
                let operand = if in_place && is_root { result } else { send.vector(0, count) };
                let red = &operation.reduction(&recv);
                // SAFETY: the areas outlive the call.
                unsafe { drive(reduce::run(f, how, red, operand, is_root.then_some(result), root)).unwrap() };
                assert_eq!(send.data(), own, "the send buffer changed");
                recv.data()
            });
            prop_assert_eq!(&results[root as usize], &expected, "{:?}", how);
            for (_, other) in results.iter().enumerate().filter(|(r, _)| *r != root as usize) {
                prop_assert_eq!(other, &untouched(count));
            }
        }
    }

    #[test]
    fn allreduce__combines_in_order(
        hosts in any_hosts(), count in any_count(), mode in any_mode(), shape in any_shape(),
        in_place in any::<bool>(), commutes in any::<bool>(), pieces in any::<bool>(),
    ) {
        let ranks = hosts.len() as u32;
        let operation = ReductionCase::of(commutes);
        let expected = operation.expect(0..ranks, count);
        for &(how, _) in ALLREDUCE.all {
            let keeps_order = how != Allreduce::Nodes || hosts.is_sorted();
            let shares = matches!(how, Allreduce::HalvingDoubling | Allreduce::Ring);
            let fits = how != Allreduce::Shared || shape == Shape::Tight;
            if !fits || (!commutes && (shares || !keeps_order)) {
                continue;
            }
            let results = run_on(&hosts, mode, |f| {
                let own = operand(f.rank(), count);
                let send = Area::filled(shape, &own);
                let mut recv = Area::new(shape, count as usize);
                if in_place {
                    recv.put(0, &own);
                }
                let result = recv.vector(0, count);
                let operand = if in_place { result } else { send.vector(0, count) };
                let red = &operation.reduction(&recv);
                // SAFETY: the areas outlive the call.
                unsafe {
                    if how == Allreduce::Doubling && pieces {
                        drive(allreduce::in_pieces(f, red, operand, result, 3)).unwrap();
                    } else {
                        drive(allreduce::run(f, how, red, operand, result)).unwrap();
                    }
                }
                assert_eq!(send.data(), own, "the send buffer changed");
                recv.data()
            });
            prop_assert!(results.iter().all(|r| *r == expected), "{:?}", how);
        }
    }

    #[test]
    fn reduce_scatter__gives_each_its_block(
        ranks in 1u32..18, count in any_count(), mode in any_mode(), shape in any_shape(),
        in_place in any::<bool>(), commutes in any::<bool>(), even in any::<bool>(),
    ) {
        let operation = ReductionCase::of(commutes);
        let length = |rank: u32| if even || rank % 3 != 1 { count + (!even as u32 * (rank % 4)) as u64 } else { 0 };
        let deal = |rank: u32| ((0..rank).map(length).sum::<u64>(), length(rank));
        let total = deal(ranks).0;
        let expected = operation.expect(0..ranks, total);
        for &(how, _) in REDUCE_SCATTER.all {
            if how == ReduceScatter::Ring && !commutes {
                continue;
            }
            let results = run(ranks, mode, |f| {
                let send = Area::filled(shape, &operand(f.rank(), total));
                let recv = Area::new(shape, length(f.rank()) as usize);
                let whole = send.vector(0, total);
                let mine = if in_place { send.vector(0, length(f.rank())) } else { recv.vector(0, length(f.rank())) };
                // SAFETY: the areas outlive the call.
                unsafe { drive(reduce_scatter::run(f, how, &operation.reduction(&recv), whole, &deal, mine)).unwrap() };
                let data = if in_place { send.data() } else { recv.data() };
                data[..length(f.rank()) as usize * WORDS].to_vec()
            });
            for (rank, result) in results.iter().enumerate() {
                let (first, n) = deal(rank as u32);
                let at = first as usize * WORDS;
                prop_assert_eq!(result, &expected[at..at + n as usize * WORDS], "{:?}", how);
            }
        }
    }

    #[test]
    fn scan_exscan__combine_the_ranks_before(
        ranks in 1u32..18, count in any_count(), mode in any_mode(), shape in any_shape(),
        in_place in any::<bool>(), commutes in any::<bool>(),
    ) {
        let operation = ReductionCase::of(commutes);
        for (how, prefix) in [
            (Scan::Chain, Prefix::Inclusive),
            (Scan::Doubling, Prefix::Inclusive),
            (Scan::Lines, Prefix::Inclusive),
            (Scan::Lines, Prefix::Exclusive),
            (Scan::Chain, Prefix::Exclusive),
            (Scan::Doubling, Prefix::Exclusive),
        ] {
            let results = run(ranks, mode, |f| {
                let own = operand(f.rank(), count);
                let send = Area::filled(shape, &own);
                let mut recv = Area::new(shape, count as usize);
                if in_place {
                    recv.put(0, &own);
                }
                let result = recv.vector(0, count);
                let operand = if in_place { result } else { send.vector(0, count) };
                let red = &operation.reduction(&recv);
                // SAFETY: the areas outlive the call.
                unsafe { drive(scan::run(f, how, prefix, red, operand, result)).unwrap() };
                recv.data()
            });
            for (rank, result) in results.iter().enumerate() {
                let rank = rank as u32;
                let expected = match prefix {
                    Prefix::Inclusive => operation.expect(0..rank + 1, count),
                    Prefix::Exclusive if rank > 0 => operation.expect(0..rank, count),
                    Prefix::Exclusive if in_place => operand(0, count),
                    Prefix::Exclusive => untouched(count),
                };
                prop_assert_eq!(result, &expected, "{:?} {:?}", how, prefix);
            }
        }
    }

    #[test]
    fn sums_of_floats__have_the_same_bits_whatever_the_algorithm_and_the_hosts(
        hosts in any_hosts(), values in proptest::collection::vec(-1e9f64..1e9, 1..200), mode in any_mode(),
        root in 0u32..18, in_place in any::<bool>(),
    ) {
        let ranks = hosts.len() as u32;
        let root = root % ranks;
        let expected = bits(&tree_sum(&values, ranks));
        for how in [Reduce::Flat, Reduce::Binomial, Reduce::Halving, Reduce::Nodes] {
            if how == Reduce::Nodes && !hosts.is_sorted() {
                continue;
            }
            let sums = sum_floats(&hosts, mode, &values, in_place, |f, red, operand, result| {
                let at_root = (f.rank() == root).then_some(result);
                // SAFETY: the vectors outlive the call.
                unsafe { drive(reduce::run(f, how, red, operand, at_root, root)) }
            });
            prop_assert_eq!(bits(&sums[root as usize]), &expected[..], "{:?}", how);
        }
        for how in [Allreduce::Flat, Allreduce::Doubling, Allreduce::HalvingDoubling, Allreduce::Nodes] {
            if how == Allreduce::Nodes && !hosts.is_sorted() {
                continue;
            }
            let sums = sum_floats(&hosts, mode, &values, in_place, |f, red, operand, result| {
                // SAFETY: the vectors outlive the call.
                unsafe { drive(allreduce::run(f, how, red, operand, result)) }
            });
            for sum in &sums {
                prop_assert_eq!(bits(sum), &expected[..], "{:?}", how);
            }
        }
    }

    #[test]
    fn sums_of_floats__are_alike_on_all_ranks_and_in_all_runs(
        hosts in any_hosts(), values in proptest::collection::vec(-1e9f64..1e9, 1..200), mode in any_mode(),
    ) {
        for how in [Allreduce::Ring, Allreduce::Nodes] {
            let once = || sum_floats(&hosts, mode, &values, false, |f, red, operand, result| {
                // SAFETY: the vectors outlive the call.
                unsafe { drive(allreduce::run(f, how, red, operand, result)) }
            });
            let (first, second) = (once(), once());
            prop_assert!(first.iter().all(|sum| bits(sum) == bits(&first[0])), "{:?}: ranks differ", how);
            prop_assert!(first.iter().zip(&second).all(|(a, b)| bits(a) == bits(b)), "{:?}: runs differ", how);
        }
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn floats(values: &[f64], rank: u32) -> Vec<f64> {
    values.iter().map(|v| v / (f64::from(rank) + 0.3)).collect()
}

/// Returns the sum of all ranks along the tree: neighbours first. The first few pairs of ranks count as one rank each.
fn tree_sum(values: &[f64], ranks: u32) -> Vec<f64> {
    let add = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
    let mut operands: Vec<Vec<f64>> = (0..ranks).map(|rank| floats(values, rank)).collect();
    let pairs = (ranks - (1 << ranks.ilog2())) as usize;
    let rest = operands.split_off(2 * pairs);
    let mut level: Vec<Vec<f64>> = operands.chunks(2).map(|two| add(&two[0], &two[1])).collect();
    level.extend(rest);
    while level.len() > 1 {
        level = level.chunks(2).map(|two| add(&two[0], &two[1])).collect();
    }
    level.remove(0)
}

fn sum_floats(
    hosts: &[u32], mode: Mode, values: &[f64], in_place: bool,
    sum: impl for<'a> Fn(
        &SimRank<'_>,
        &'a Reduction<'a>,
        Vector<'a>,
        Vector<'a>,
    ) -> crate::common::error::Result
    + Sync,
) -> Vec<Vec<f64>> {
    use crate::common::consts::{MPI_DOUBLE, MPI_SUM};
    run_on(hosts, mode, |f| {
        let double = Datatype::named(Basic::from_handle(MPI_DOUBLE).unwrap());
        let builtins = crate::objects::op::Builtin::ALL.into_iter();
        let op = builtins.map(Op::builtin).find(|op| op.predefined_handle() == MPI_SUM as u32);
        let red = &Reduction::new(&op.unwrap(), &double, MPI_DOUBLE).unwrap();
        let own = floats(values, f.rank());
        let mut result = if in_place { own.clone() } else { vec![0.0; own.len()] };
        let count = own.len() as u64;
        let place = red.at(result.as_mut_ptr().cast(), count);
        let operand = if in_place { place } else { red.at(own.as_ptr().cast(), count) };
        sum(f, red, operand, place).unwrap();
        result
    })
}

#[test]
fn scan_and_reduce_scatter__through_shared_memory__have_the_bits_of_messages() {
    let values = |count: u32| (0..count).map(|i| f64::from(i).sqrt() + 0.1).collect::<Vec<_>>();
    for ranks in [2, 3, 5, 7, 8, 13] {
        let hosts = vec![0; ranks as usize];
        let scans = [Scan::Lines, Scan::Doubling].map(|how| {
            sum_floats(&hosts, Mode::Eager, &values(9), false, |f, red, operand, result| {
                // SAFETY: the vectors outlive the call.
                unsafe { drive(scan::run(f, how, Prefix::Inclusive, red, operand, result)) }
            })
        });
        assert_eq!(scans[0], scans[1], "{ranks} ranks");
        for (count, by_messages) in [(100, ReduceScatter::Allreduce), (1100, ReduceScatter::Ring)] {
            let results = [ReduceScatter::Shared, by_messages].map(|how| {
                sum_floats(&hosts, Mode::Eager, &values(count), false, |f, red, operand, result| {
                    let deal = ring::deal_evenly(operand.count, ranks);
                    let mine = result.part(0, deal(f.rank()).1);
                    // SAFETY: the vectors outlive the call.
                    unsafe { drive(reduce_scatter::run(f, how, red, operand, &deal, mine)) }
                })
            });
            assert_eq!(results[0], results[1], "{ranks} ranks, {count} elements");
        }
    }
}

#[test]
fn deal_evenly__covers_every_element_once() {
    for (count, ranks) in [(0, 3), (2, 5), (17, 4), (1 << 40, 7)] {
        let deal = ring::deal_evenly(count, ranks);
        let end = (0..ranks).fold(0, |at, r| {
            let (first, n) = deal(r);
            assert_eq!(first, at);
            assert!(n == count / ranks as u64 || n == count / ranks as u64 + 1);
            first + n
        });
        assert_eq!(end, count);
    }
}

/// Returns the place of ranks on one host that may use shared buffers if `may_share`.
fn sharing(room: JobProcessors<'_>, may_share: bool) -> CallPlace<'_> {
    CallPlace { may_share, ..CallPlace::messages(room) }
}

#[test]
fn choice__shares_arithmetic_only_where_it_may() {
    for ranks in 2u32..40 {
        for bytes in [8, 1 << 12, 1 << 20, 1 << 34] {
            let size = |commutes, count| Size {
                bytes,
                count,
                commutes,
                is_contiguous: true,
                order: ReductionOrder::Fixed,
            };
            let shared = [Allreduce::HalvingDoubling, Allreduce::Ring];
            for room in [JobProcessors::Own, JobProcessors::Shared, JobProcessors::Tight] {
                assert!(!shared.contains(&choose::allreduce(
                    size(false, bytes),
                    ranks,
                    sharing(room, true)
                )));
                assert!(!shared.contains(&choose::allreduce(
                    size(true, 1),
                    ranks,
                    sharing(room, true)
                )));
                assert_ne!(
                    choose::reduce(size(false, bytes), ranks, CallPlace::messages(room)),
                    Reduce::Halving
                );
            }
            assert_ne!(
                choose::reduce_scatter(
                    &choose::REDUCE_SCATTER,
                    size(false, bytes),
                    ranks,
                    CallPlace::messages(JobProcessors::Own)
                ),
                ReduceScatter::Ring
            );
        }
    }
}

#[test]
fn choice__goes_through_shared_buffers_where_ranks_share_processors_and_have_some() {
    let size = |bytes, is_contiguous| Size {
        bytes,
        count: bytes / 8,
        commutes: false,
        is_contiguous,
        order: ReductionOrder::Fixed,
    };
    let long = size(128 << 10, true);
    for room in [JobProcessors::Shared, JobProcessors::Tight] {
        for ranks in 3..=64 {
            let reduce = |size, may| choose::allreduce(size, ranks, sharing(room, may));
            let gather = |total, may| choose::allgather(total, true, ranks, sharing(room, may));
            assert_eq!(reduce(long, true), Allreduce::Shared);
            assert_ne!(reduce(long, false), Allreduce::Shared);
            assert_ne!(reduce(size(8 << 10, true), true), Allreduce::Shared);
            assert_ne!(reduce(size(128 << 10, false), true), Allreduce::Shared);
            assert_eq!(gather(64 << 10, true), Allgather::Shared);
            assert_ne!(gather(64 << 10, false), Allgather::Shared);
            assert_ne!(gather(4 << 10, true), Allgather::Shared);
        }
    }
    assert_ne!(choose::allreduce(long, 8, sharing(JobProcessors::Own, true)), Allreduce::Shared);
    // The ring combines operands in an order of its own, so it is chosen by the vector and the number of ranks alone.
    let round = Size { commutes: true, ..size(1 << 20, true) };
    assert_eq!(choose::allreduce(round, 6, sharing(JobProcessors::Tight, true)), Allreduce::Ring);
}

/// Checks which algorithms combine in the common order of the tree.
#[test]
fn choice__of_what_is_rounded_is_by_ranks_and_count_alone() {
    let placings: [fn(u32) -> u32; 5] = [|r| r / 8, |r| r % 3, |r| r / 7, |r| r, |r| r * r % 5];
    for (ranks, bytes) in
        (3u32..200).flat_map(|n| [8u64, 1 << 15, 1 << 18, 1 << 24].map(|b| (n, b)))
    {
        let size =
            |order| Size { bytes, count: bytes / 8, commutes: true, is_contiguous: true, order };
        let hosts = |of: fn(u32) -> u32| {
            let hosts: Vec<u32> = (0..ranks).map(of).collect();
            NodeMap::new(&hosts, JobProcessors::Own)
        };
        let nodes: Vec<NodeMap> = placings.into_iter().filter_map(hosts).collect();
        let rooms = nodes.iter().map(|nodes| JobProcessors::Hosts(&nodes.placement));
        let rooms: Vec<JobProcessors<'_>> = rooms
            .chain([JobProcessors::Own, JobProcessors::Shared, JobProcessors::Tight])
            .collect();
        let mut goes_round = Vec::new();
        for &room in &rooms {
            let how = choose::allreduce(size(ReductionOrder::Fixed), ranks, sharing(room, true));
            goes_round.push(how == Allreduce::Ring);
            let mixed = matches!(room, JobProcessors::Hosts(on) if !on.spread.in_blocks);
            assert!(!mixed || how != Allreduce::Nodes, "{ranks} {bytes}");
            let how = choose::reduce(size(ReductionOrder::Fixed), ranks, CallPlace::messages(room));
            assert!(!mixed || how != Reduce::Nodes, "{ranks} {bytes}");
            let part = choose::allreduce(size(ReductionOrder::Tree), ranks, sharing(room, true));
            assert_ne!(part, Allreduce::Ring, "{ranks} {bytes}");
        }
        let first = goes_round[0];
        assert!(goes_round.iter().all(|&round| round == first), "{ranks} {bytes}");
    }
}
