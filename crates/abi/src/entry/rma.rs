//! One-sided operations (MPI 5.0, section 12.3).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::{OneSided, ResultArguments};
use core::ffi::{c_int, c_void};
use fastpath_mpi::objects::hot::{INSIDE, OPEN, is_hidden};
use fastpath_mpi::rma::accumulate::{AccumulateBuffer, Swap, Update};
use fastpath_mpi::rma::transfer::Sides;
use fastpath_mpi::rma::{hot, hot_atomics, staged};
use fastpath_mpi::{Process, Result};

fn side(buffer: *const c_void, count: i64, datatype: usize) -> AccumulateBuffer {
    AccumulateBuffer { buffer: buffer.cast_mut().cast(), count, datatype }
}

fn result_side(result: &ResultArguments) -> AccumulateBuffer {
    side(result.result_addr, result.result_count, result.result_datatype)
}

fn update_of(sides: &Sides, result: Option<AccumulateBuffer>, op: usize) -> Update {
    Update {
        origin: side(sides.origin.cast(), sides.count, sides.datatype),
        result,
        rank: sides.rank,
        disp: sides.disp,
        target_count: sides.target_count,
        target_datatype: sides.target_datatype,
        op,
        is_atomic: false,
        win: sides.win,
    }
}

/// Immediate path of `MPI_Put` to memory that this process reaches by load and store.
///
/// # Safety
/// The buffer is readable for count and datatype.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn put_quick(call: OneSided) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { hot::try_move::<true>(call.into()) }
}

/// # Safety
/// The buffer is readable for count and datatype until the operation is completed.
pub unsafe fn put(p: &Process, call: OneSided) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { staged::put(p, &call.into()) }
}

/// Immediate path of `MPI_Get` from memory that this process reaches by load and store.
///
/// # Safety
/// The buffer is writable for count and datatype.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn get_quick(call: OneSided) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { hot::try_move::<false>(call.into()) }
}

/// # Safety
/// The buffer is writable for count and datatype, and has no other user until the operation is completed.
pub unsafe fn get(p: &Process, call: OneSided) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { staged::get(p, &call.into()) }
}

/// # Safety
/// The contract is that of [`put`].
pub unsafe fn rput(p: &Process, call: OneSided) -> Result<usize> {
    let sides = Sides::from(call);
    // SAFETY: ARGUMENTS.
    unsafe { staged::rput(p, &sides) }
}

/// # Safety
/// The contract is that of [`get`].
pub unsafe fn rget(p: &Process, call: OneSided) -> Result<usize> {
    let sides = Sides::from(call);
    // SAFETY: ARGUMENTS.
    unsafe { staged::rget(p, &sides) }
}

/// Immediate path of `MPI_Accumulate` to memory that this process reaches by load and store.
///
/// # Safety
/// The buffer is readable for count and datatype.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn accumulate_quick(call: OneSided, op: usize) -> bool {
    let sides = Sides::from(call);
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_accumulate::<OPEN>(&sides, op) }
}

/// # Safety
/// The contract is that of [`put`].
pub unsafe fn accumulate(p: &Process, call: OneSided, op: usize) -> Result<()> {
    let sides = Sides::from(call);
    // SAFETY: ARGUMENTS.
    if is_hidden() && unsafe { hot_atomics::try_accumulate::<INSIDE>(&sides, op) } {
        return Ok(());
    }
    let asked = update_of(&sides, None, op);
    // SAFETY: ARGUMENTS.
    unsafe { staged::update(p, &asked) }
}

/// # Safety
/// The contract is that of [`put`].
pub unsafe fn raccumulate(p: &Process, call: OneSided, op: usize) -> Result<usize> {
    let sides = Sides::from(call);
    let asked = update_of(&sides, None, op);
    // SAFETY: ARGUMENTS.
    unsafe { staged::rupdate(p, &asked) }
}

/// Immediate path of `MPI_Get_accumulate` on memory that this process reaches by load and store.
///
/// # Safety
/// The contract is that of [`accumulate_quick`], and the result is writable for its count and datatype.
#[inline(always)] // see `accumulate_quick`
pub unsafe fn get_accumulate_quick(call: OneSided, result: ResultArguments, op: usize) -> bool {
    let sides = Sides::from(call);
    let place = (result.result_addr.cast(), result.result_count, result.result_datatype);
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_get_accumulate::<OPEN>(&sides, place, op) }
}

/// # Safety
/// The contracts are those of [`put`] for the buffer and of [`get`] for the result.
pub unsafe fn get_accumulate(
    p: &Process, call: OneSided, result: ResultArguments, op: usize,
) -> Result<()> {
    let sides = Sides::from(call);
    let place = (result.result_addr.cast(), result.result_count, result.result_datatype);
    // SAFETY: ARGUMENTS.
    if is_hidden() && unsafe { hot_atomics::try_get_accumulate::<INSIDE>(&sides, place, op) } {
        return Ok(());
    }
    let asked = update_of(&sides, Some(result_side(&result)), op);
    // SAFETY: ARGUMENTS.
    unsafe { staged::update(p, &asked) }
}

/// # Safety
/// The contract is that of [`get_accumulate`].
pub unsafe fn rget_accumulate(
    p: &Process, call: OneSided, result: ResultArguments, op: usize,
) -> Result<usize> {
    let sides = Sides::from(call);
    let asked = update_of(&sides, Some(result_side(&result)), op);
    // SAFETY: ARGUMENTS.
    unsafe { staged::rupdate(p, &asked) }
}

/// Immediate path of `MPI_Fetch_and_op` on memory that this process reaches by load and store.
///
/// # Safety
/// The buffers have an element of the datatype each.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn fetch_and_op_quick(
    origin_addr: *const c_void, result_addr: *mut c_void, datatype: usize, target_rank: c_int,
    target_disp: isize, op: usize, win: usize,
) -> bool {
    let place = (target_rank, target_disp);
    let buffers = (origin_addr.cast(), result_addr.cast());
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_fetch_and_op::<OPEN>(buffers, datatype, place, op, win) }
}

/// # Safety
/// The buffers have an element of the datatype each, and do not overlap.
pub unsafe fn fetch_and_op(
    p: &Process, origin_addr: *const c_void, result_addr: *mut c_void, datatype: usize,
    target_rank: c_int, target_disp: isize, op: usize, win: usize,
) -> Result<()> {
    let (place, buffers) = ((target_rank, target_disp), (origin_addr.cast(), result_addr.cast()));
    // SAFETY: ARGUMENTS.
    let done = is_hidden()
        && unsafe { hot_atomics::try_fetch_and_op::<INSIDE>(buffers, datatype, place, op, win) };
    if done {
        return Ok(());
    }
    let asked = Update {
        origin: side(origin_addr, 1, datatype),
        result: Some(side(result_addr, 1, datatype)),
        rank: target_rank,
        disp: target_disp,
        target_count: 1,
        target_datatype: datatype,
        op,
        is_atomic: true,
        win,
    };
    // SAFETY: ARGUMENTS.
    unsafe { staged::update(p, &asked) }
}

/// Immediate path of `MPI_Compare_and_swap` on memory that this process reaches by load and store.
///
/// # Safety
/// The buffers have an element of the datatype each.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn compare_and_swap_quick(
    origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void,
    datatype: usize, target_rank: c_int, target_disp: isize, win: usize,
) -> bool {
    let buffers = (origin_addr.cast(), compare_addr.cast(), result_addr.cast());
    // SAFETY: ARGUMENTS.
    unsafe {
        hot_atomics::try_compare_and_swap::<OPEN>(
            buffers,
            datatype,
            (target_rank, target_disp),
            win,
        )
    }
}

/// # Safety
/// The buffers have an element of the datatype each, and do not overlap.
pub unsafe fn compare_and_swap(
    p: &Process, origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void,
    datatype: usize, target_rank: c_int, target_disp: isize, win: usize,
) -> Result<()> {
    let (place, buffers) =
        ((target_rank, target_disp), (origin_addr.cast(), compare_addr.cast(), result_addr.cast()));
    // SAFETY: ARGUMENTS.
    let done = is_hidden()
        && unsafe { hot_atomics::try_compare_and_swap::<INSIDE>(buffers, datatype, place, win) };
    if done {
        return Ok(());
    }
    let asked = Swap {
        origin: origin_addr.cast(),
        compare: compare_addr.cast(),
        result: result_addr.cast(),
        datatype,
        rank: target_rank,
        disp: target_disp,
        win,
    };
    // SAFETY: ARGUMENTS.
    unsafe { staged::compare_and_swap(p, &asked) }
}
