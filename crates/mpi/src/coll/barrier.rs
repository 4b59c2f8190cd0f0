//! Barrier.
#![allow(unsafe_code)]

use super::agreement::{self, Arguments, compare};
use super::arguments::Collective;
use super::choose::{CallPlace, JobProcessors};
use super::fabric::{CallFabric, Fabric, place};
use super::{choose, inter, lines, nodes};
use crate::common::error::Result;
use fastpath_protocol::buffer::Buffer;

/// Arguments of `MPI_Barrier`, which has none.
pub struct Barrier;

impl Collective for Barrier {
    #[inline]
    async unsafe fn run<C: CallFabric>(&self, f: &C) -> Result {
        barrier(f).await
    }

    async unsafe fn run_between<C: CallFabric>(&self, f: &C) -> Result {
        inter::barrier(f).await
    }
}

#[inline]
pub(super) async fn barrier<C: CallFabric>(f: &C) -> Result {
    compare(f, Arguments::new(&agreement::nothing, &agreement::nothing)).await?;
    f.channel().conclude(run(f).await)
}

#[inline]
pub(super) async fn run<F: Fabric>(f: &F) -> Result {
    match f.size() {
        1 => Ok(()),
        2 => {
            choose::barrier(2, CallPlace::messages(JobProcessors::Own));
            // SAFETY: messages without bytes touch no memory.
            unsafe {
                f.exchange(1 - f.rank(), Buffer::empty(), 1 - f.rank(), Buffer::empty()).await
            }
        }
        ranks => run_many(f, choose::barrier(ranks, place(f))).await,
    }
}

pub(super) async fn run_many<F: Fabric>(f: &F, how: choose::Barrier) -> Result {
    match (how, f.nodes()) {
        (choose::Barrier::Nodes, Some(nodes)) => Box::pin(nodes::barrier(f, nodes)).await,
        _ => run_as(f, how).await,
    }
}

pub(super) async fn run_as<F: Fabric>(f: &F, how: choose::Barrier) -> Result {
    match how {
        choose::Barrier::Flat => flat(f).await,
        choose::Barrier::Lines if let Some(lines) = f.lines()? => lines::barrier(&lines).await,
        choose::Barrier::Dissemination | choose::Barrier::Lines | choose::Barrier::Nodes => {
            dissemination(f).await
        }
    }
}

/// All ranks report to rank 0, which releases them.
async fn flat<F: Fabric>(f: &F) -> Result {
    // SAFETY: messages without bytes touch no memory.
    unsafe {
        if f.rank() == 0 {
            for rank in 1..f.size() {
                f.recv(rank, Buffer::empty()).await?;
            }
            for rank in 1..f.size() {
                f.send(rank, Buffer::empty()).await?;
            }
            Ok(())
        } else {
            f.send(0, Buffer::empty()).await?;
            f.recv(0, Buffer::empty()).await
        }
    }
}

/// In step k each rank receives from the rank 2^k before it (Hensgen, Finkel and Manber, 1988).
pub(super) async fn dissemination<F: Fabric>(f: &F) -> Result {
    let (rank, ranks) = (f.rank(), f.size());
    let mut distance = 1;
    while distance < ranks {
        let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
        // SAFETY: messages without bytes touch no memory.
        unsafe { f.exchange(to, Buffer::empty(), from, Buffer::empty()).await? };
        distance *= 2;
    }
    Ok(())
}
