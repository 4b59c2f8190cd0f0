//! Reduce.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::bcast::{absolute, parent_distance, relative};
use super::choose;
use super::fabric::{Call, Fabric};
use super::local::{Accumulator, Reduction};
use super::ring::{self, Deal, deal_evenly};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{check_root, gather, is_in_place, nodes};
use crate::datatype::Datatype;
use crate::error::Result;
use crate::op::Op;

/// `MPI_Reduce`; the receive buffer counts at the root alone. `datatype` comes with its handle, for a user's function.
///
/// # Safety
/// The send buffer is readable, at the root the receive buffer writable, as count and datatype say; they do not
/// overlap.
pub async unsafe fn reduce<C: Call>(
    f: &C,
    (send, recv): (*const u8, *mut u8),
    count: i64,
    datatype: (&Datatype, usize),
    op: &Op,
    root: i32,
) -> Result {
    let root = check_root(f.channel().comm, root)?;
    let is_root = f.rank() == root;
    let red = &Reduction::new(op, datatype.0, datatype.1)?;
    let result = if is_root {
        Some(Vector::new(recv, count, datatype.0)?)
    } else {
        None
    };
    let operand = match result {
        Some(result) if is_in_place(send) => result,
        _ => Vector::new(send, count, datatype.0)?,
    };
    if let Some(result) = result {
        check_apart(f.channel(), (!is_in_place(send)).then_some(operand), result)?;
    }
    let data = |_| Some((datatype.0, count));
    compare(f, Arguments::new(&data, &data).op(op).root(root)).await?;
    if operand.bytes() == 0 {
        return Ok(());
    }
    let how = choose::reduce(red.size(operand.count), f.size(), f.room());
    // SAFETY: by the contract of this function.
    f.channel()
        .conclude(unsafe { run(f, how, red, operand, result, root).await })
}

/// `operand` is this rank's vector; `result` is present at the root, and may be the operand.
///
/// # Safety
/// The operand is readable, the result writable; they do not overlap, or are the same.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F,
    how: choose::Reduce,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    result: Option<Vector<'a>>,
    root: u32,
) -> Result {
    // SAFETY: the same contract.
    unsafe {
        match (how, f.nodes()) {
            (choose::Reduce::Nodes, Some(nodes)) => {
                Box::pin(nodes::reduce(f, nodes, red, operand, result, root)).await
            }
            _ => run_as(f, how, red, operand, result, root).await,
        }
    }
}

/// All members at once.
///
/// # Safety
/// As [`run`].
pub(super) async unsafe fn run_as<'a, F: Fabric>(
    f: &F,
    how: choose::Reduce,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    result: Option<Vector<'a>>,
    root: u32,
) -> Result {
    // SAFETY: the same contract.
    unsafe {
        match how {
            choose::Reduce::Flat => flat(f, red, operand, result, root).await,
            choose::Reduce::Binomial | choose::Reduce::Nodes => {
                binomial(f, red, operand, result, root).await
            }
            choose::Reduce::RingGather => f.apart(ring_gather(f, red, operand, result, root)).await,
        }
    }
}

/// The two places of an accumulation of `combines` steps that is to end at `result`. The first place is not `result`
/// where the operand is.
fn places<'a>(
    result: Vector<'a>,
    other: Vector<'a>,
    combines: u32,
    in_place: bool,
) -> [Vector<'a>; 2] {
    if combines % 2 == 1 && !in_place {
        [result, other]
    } else {
        [other, result]
    }
}

/// All send to the root.
///
/// # Safety
/// As [`run`].
pub(super) async unsafe fn flat<'a, F: Fabric>(
    f: &F,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    result: Option<Vector<'a>>,
    root: u32,
) -> Result {
    // SAFETY: the same contract.
    unsafe {
        match result {
            None => f.send(root, operand.buffer()).await,
            Some(result) => flat_root(f, red, operand, result).await,
        }
    }
}

/// The root receives the operands and combines them: in the order of ranks, or its own first if the order is free.
///
/// # Safety
/// As [`run`].
async unsafe fn flat_root<'a, F: Fabric>(
    f: &F,
    red: &'a Reduction<'a>,
    own: Vector<'a>,
    result: Vector<'a>,
) -> Result {
    let (root, ranks) = (f.rank(), f.size());
    let mut scratch = Scratch::new(f);
    let other = scratch.elements(red.layout, own.count)?;
    // SAFETY: the same contract; the scratch is as long as the operand.
    unsafe {
        if red.reducer.commutes() || root == 0 {
            let mut sum = Accumulator::new(
                red,
                own,
                places(result, other, ranks - 1, own.ptr == result.ptr),
            );
            for rank in (0..ranks).filter(|&r| r != root) {
                f.recv(rank, sum.next().buffer()).await?;
                sum.combine();
            }
            return sum.value().copy_to(result);
        }
        // Rank 0's operand comes first; where the own one lies in the result, it moves out of the way.
        let mut copy = Scratch::new(f);
        let mut own = own;
        if own.ptr == result.ptr {
            let copy = copy.elements(red.layout, own.count)?;
            own.copy_to(copy)?;
            own = copy;
        }
        let [next, first] = places(result, other, ranks - 1, false);
        f.recv(0, first.buffer()).await?;
        let mut sum = Accumulator::new(red, first, [next, first]);
        for rank in 1..ranks {
            if rank == root {
                own.copy_to(sum.next())?;
            } else {
                f.recv(rank, sum.next().buffer()).await?;
            }
            sum.combine();
        }
        sum.value().copy_to(result)
    }
}

/// A tree in which each rank combines the ranks behind it, so that operands stay in order. An operation that does not
/// commute is reduced to rank 0, which hands the result to the root.
///
/// # Safety
/// As [`run`].
async unsafe fn binomial<'a, F: Fabric>(
    f: &F,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    result: Option<Vector<'a>>,
    root: u32,
) -> Result {
    let ranks = f.size();
    let top = if red.reducer.commutes() { root } else { 0 };
    let me = relative(f.rank(), top, ranks);
    let distance = parent_distance(me, ranks);
    let children = (0..32)
        .map(|bit| 1u32 << bit)
        .take_while(|d| *d < distance && me + d < ranks);
    let combines = children.clone().count() as u32;
    let mut scratch = [Scratch::new(f), Scratch::new(f)];
    let [a, b] = &mut scratch;
    let other = if combines > 0 {
        a.elements(red.layout, operand.count)?
    } else {
        operand
    };
    let last = match result {
        Some(result) => result,
        None if combines > 1 || me == 0 => b.elements(red.layout, operand.count)?,
        None => other,
    };
    let in_place = operand.ptr == last.ptr;
    // SAFETY: the same contract; both places are as long as the operand.
    unsafe {
        let mut sum = Accumulator::new(red, operand, places(last, other, combines, in_place));
        for child in children {
            f.recv(absolute(me + child, top, ranks), sum.next().buffer())
                .await?;
            sum.combine();
        }
        if me != 0 {
            f.send(absolute(me - distance, top, ranks), sum.value().buffer())
                .await?;
        } else if top != root {
            f.send(root, sum.value().buffer()).await?;
        }
        match result {
            Some(result) if top != root => f.recv(top, result.buffer()).await,
            Some(result) => sum.value().copy_to(result),
            None => Ok(()),
        }
    }
}

/// Each rank reduces a part of the vector; the root gathers the parts.
///
/// # Safety
/// As [`run`]; the operation commutes.
async unsafe fn ring_gather<'a, F: Fabric>(
    f: &F,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    result: Option<Vector<'a>>,
    root: u32,
) -> Result {
    let deal = deal_evenly(operand.count, f.size());
    let (first, count) = deal.block(f.rank());
    let mut scratch = Scratch::new(f);
    let mine = match result {
        Some(result) => result.part(first, count),
        None => scratch.elements(red.layout, count)?,
    };
    let block = result.map(|result| {
        move |rank: u32| {
            let (first, count) = deal.block(rank);
            result.part(first, count)
        }
    });
    // SAFETY: the same contract; at the root, whose part is in its place, the other parts are written when the
    // operand has been used.
    unsafe {
        ring::reduce_scatter(f, red, operand.ptr, &deal, mine.ptr).await?;
        let own = if result.is_some() { None } else { Some(mine) };
        gather::run(f, choose::Gather::Linear, own, block, root).await
    }
}
