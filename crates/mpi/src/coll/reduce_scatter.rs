//! Reduce_scatter and Reduce_scatter_block.
#![allow(unsafe_code)]

use super::agreement::{Arguments, compare};
use super::apart::check_apart;
use super::choose;
use super::fabric::{Call, Fabric, place};
use super::local::Reduction;
use super::ring::{self, Deal};
use super::scratch::Scratch;
use super::vector::Vector;
use super::{allreduce, is_in_place};
use crate::consts::MPI_ERR_COUNT;
use crate::datatype::Datatype;
use crate::error::{Error, Result};
use crate::op::Op;

/// `MPI_Reduce_scatter`; `counts` has one entry for each rank.
///
/// # Safety
/// The send buffer is readable for all blocks, the receive buffer writable for this rank's (for all in place), as
/// counts and datatype say; they do not overlap.
pub async unsafe fn reduce_scatter<C: Call>(
    f: &C,
    (send, recv): (*const u8, *mut u8),
    counts: &[i64],
    datatype: (&Datatype, usize),
    op: &Op,
) -> Result {
    let red = &Reduction::new(op, datatype.0, datatype.1)?;
    let mut starts = Vec::with_capacity(counts.len());
    let mut total = 0u64;
    for &count in counts {
        starts.push(total);
        total = u64::try_from(count)
            .ok()
            .and_then(|c| total.checked_add(c))
            .ok_or_else(|| refuse_count(count))?;
    }
    let deal = |rank: u32| (starts[rank as usize], counts[rank as usize] as u64);
    let (operand, result) = buffers(f.rank(), (send, recv), total, &deal, datatype.0)?;
    check_apart(f.channel(), (!is_in_place(send)).then_some(operand), result)?;
    let sends = |to: u32| Some((datatype.0, counts[to as usize]));
    let receives = |_| sends(f.rank());
    compare(f, Arguments::new(&sends, &receives).op(op)).await?;
    // SAFETY: by the contract of this function.
    f.channel().conclude(unsafe {
        run(
            f,
            choose::reduce_scatter(red.size(total, f.room())),
            red,
            operand,
            &deal,
            result,
        )
        .await
    })
}

/// `MPI_Reduce_scatter_block`; `count` elements for each rank.
///
/// # Safety
/// As [`reduce_scatter`].
pub async unsafe fn reduce_scatter_block<C: Call>(
    f: &C,
    (send, recv): (*const u8, *mut u8),
    count: i64,
    datatype: (&Datatype, usize),
    op: &Op,
) -> Result {
    let red = &Reduction::new(op, datatype.0, datatype.1)?;
    let share = u64::try_from(count).map_err(|_| refuse_count(count))?;
    let total = share
        .checked_mul(f.size() as u64)
        .ok_or_else(|| refuse_count(count))?;
    let deal = move |rank: u32| (rank as u64 * share, share);
    let (operand, result) = buffers(f.rank(), (send, recv), total, &deal, datatype.0)?;
    check_apart(f.channel(), (!is_in_place(send)).then_some(operand), result)?;
    let data = |_| Some((datatype.0, count));
    compare(f, Arguments::new(&data, &data).op(op)).await?;
    // SAFETY: by the contract of this function.
    f.channel().conclude(unsafe {
        run(
            f,
            choose::reduce_scatter(red.size(total, f.room())),
            red,
            operand,
            &deal,
            result,
        )
        .await
    })
}

#[cold]
#[inline(never)]
fn refuse_count(count: i64) -> Error {
    let text = if count < 0 {
        "is negative"
    } else {
        "is too large: the blocks of all ranks do not fit 63 bits"
    };
    Error::new(MPI_ERR_COUNT, format!("the count {count} {text}"))
}

/// The whole operand and this rank's part of the result.
fn buffers<'a>(
    rank: u32,
    (send, recv): (*const u8, *mut u8),
    total: u64,
    deal: &impl Deal,
    datatype: &'a Datatype,
) -> Result<(Vector<'a>, Vector<'a>)> {
    let total = i64::try_from(total).map_err(|_| refuse_count(i64::MAX))?;
    let mine = deal.block(rank).1;
    if is_in_place(send) {
        let operand = Vector::new(recv, total, datatype)?;
        return Ok((operand, operand.part(0, mine)));
    }
    Ok((
        Vector::new(send, total, datatype)?,
        Vector::new(recv, mine as i64, datatype)?,
    ))
}

/// The result may lie at the operand's beginning.
///
/// # Safety
/// The operand is readable, the result writable.
pub(super) async unsafe fn run<'a, F: Fabric>(
    f: &F,
    how: choose::ReduceScatter,
    red: &'a Reduction<'a>,
    operand: Vector<'a>,
    deal: &impl Deal,
    result: Vector<'a>,
) -> Result {
    if operand.bytes() == 0 {
        return Ok(());
    }
    let (first, count) = deal.block(f.rank());
    let in_place = operand.ptr == result.ptr;
    let mut scratch = Scratch::new(f);
    // SAFETY: the same contract; the scratch is as long as what is written to it.
    unsafe {
        match how {
            choose::ReduceScatter::Allreduce => {
                let whole = scratch.elements(red.layout, operand.count)?;
                let how = choose::allreduce(red.size(operand.count, f.room()), f.size(), place(f));
                f.apart(allreduce::run(f, how, red, operand, whole)).await?;
                whole.part(first, count).copy_to(result)
            }
            choose::ReduceScatter::Ring if in_place => {
                let mine = scratch.elements(red.layout, count)?;
                f.apart(ring::reduce_scatter(f, red, operand.ptr, deal, mine.ptr))
                    .await?;
                mine.copy_to(result)
            }
            choose::ReduceScatter::Ring => {
                f.apart(ring::reduce_scatter(f, red, operand.ptr, deal, result.ptr))
                    .await
            }
        }
    }
}
