//! Sizes of requests.

use super::super::*;
use super::*;

/// Returns the bytes of a call's request, without its data.
fn size_of_running<C: Collective + 'static>() -> usize {
    fn of<F, M: Fn(NonblockingFabric, C) -> F, C>(_: M) -> usize {
        size_of::<F>() + size_of::<NonblockingCall<F, fn() -> F>>()
    }
    // SAFETY: the future is never polled.
    of(|f: NonblockingFabric, call: C| async move { unsafe { call.run(&f).await } })
}

#[test]
fn request__takes_at_most_2_kib() {
    let sizes = [
        ("barrier", size_of_running::<Barrier>()),
        ("bcast", size_of_running::<Bcast>()),
        ("gather", size_of_running::<Gather>()),
        ("gatherv", size_of_running::<Gatherv>()),
        ("scatter", size_of_running::<Scatter>()),
        ("scatterv", size_of_running::<Scatterv>()),
        ("allgather", size_of_running::<Allgather>()),
        ("allgatherv", size_of_running::<Allgatherv>()),
        ("alltoall", size_of_running::<Alltoall>()),
        ("alltoallv", size_of_running::<Alltoallv>()),
        ("alltoallw", size_of_running::<Alltoallw>()),
        ("reduce", size_of_running::<Reduce>()),
        ("allreduce", size_of_running::<Allreduce>()),
        ("reduce_scatter", size_of_running::<ReduceScatter>()),
        ("reduce_scatter_block", size_of_running::<ReduceScatterBlock>()),
        ("scan", size_of_running::<Scan>()),
        ("exscan", size_of_running::<Exscan>()),
        ("neighbor_alltoallw", size_of_running::<NeighborAlltoallw>()),
    ];
    for (name, bytes) in sizes {
        eprintln!("{name} {bytes}");
        assert!(bytes <= 2048, "{name} takes {bytes} bytes");
    }
}
