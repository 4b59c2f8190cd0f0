//! One-sided operations (MPI 5.0, section 12.3).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::store;
use core::ffi::{c_int, c_void};
use fastpath_mpi::hot::{INSIDE, OPEN, is_hidden};
use fastpath_mpi::win::accumulate::{Side, Swap, Update, compare_and_swap as swap, update};
use fastpath_mpi::win::transfer::{self, Sides};
use fastpath_mpi::win::{hot, hot_atomics};
use fastpath_mpi::win::{rget as begin_get, rput as begin_put, rupdate};
use fastpath_mpi::{Process, Result};

fn side(buffer: *const c_void, count: i64, datatype: usize) -> Side {
    Side {
        buffer: buffer.cast_mut().cast(),
        count,
        datatype,
    }
}

/// The two sides of an operation: origin with its elements, target with rank, displacement and elements.
#[inline(always)] // `fastpath bench instructions` counts MPI_Put and MPI_Get
fn sides(
    (origin, count, datatype): (*const c_void, i64, usize),
    (rank, disp, target_count, target_datatype): (c_int, isize, i64, usize),
    win: usize,
) -> Sides {
    Sides {
        origin: origin.cast_mut().cast(),
        count,
        datatype,
        rank,
        disp,
        target_count,
        target_datatype,
        win,
    }
}

/// What an accumulate asks for.
fn update_of(sides: &Sides, result: Option<Side>, op: usize) -> Update {
    Update {
        origin: side(sides.origin.cast(), sides.count, sides.datatype),
        result,
        rank: sides.rank,
        disp: sides.disp,
        target_count: sides.target_count,
        target_datatype: sides.target_datatype,
        op,
        win: sides.win,
    }
}

/// `MPI_Put` to memory that is reached by load and store.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn put_quick(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
) -> bool {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { hot::try_move::<true>(sides) }
}

/// `MPI_Put`
///
/// # Safety
/// The buffer is readable as count and datatype say until the operation is completed.
pub unsafe fn put(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { transfer::put(p, &sides) }
}

/// `MPI_Get` from memory that is reached by load and store.
///
/// # Safety
/// The buffer is writable as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn get_quick(
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
) -> bool {
    let origin = (origin_addr.cast_const(), origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { hot::try_move::<false>(sides) }
}

/// `MPI_Get`
///
/// # Safety
/// The buffer is writable as count and datatype say, and nobody uses it until the operation is completed.
pub unsafe fn get(
    p: &Process,
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
) -> Result<()> {
    let origin = (origin_addr.cast_const(), origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { transfer::get(p, &sides) }
}

/// `MPI_Rput`
///
/// # Safety
/// As [`put`]; `request` is null or a variable.
pub unsafe fn rput(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
    request: *mut usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { store(request, begin_put(p, &sides)?) }
}

/// `MPI_Rget`
///
/// # Safety
/// As [`get`]; `request` is null or a variable.
pub unsafe fn rget(
    p: &Process,
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    win: usize,
    request: *mut usize,
) -> Result<()> {
    let origin = (origin_addr.cast_const(), origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { store(request, begin_get(p, &sides)?) }
}

/// `MPI_Accumulate` to memory that is reached by load and store.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn accumulate_quick(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
) -> bool {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_accumulate::<OPEN>(&sides, op) }
}

/// `MPI_Accumulate`
///
/// # Safety
/// As [`put`].
pub unsafe fn accumulate(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    // SAFETY: ARGUMENTS.
    if is_hidden() && unsafe { hot_atomics::try_accumulate::<INSIDE>(&sides, op) } {
        return Ok(());
    }
    let asked = update_of(&sides, None, op);
    // SAFETY: ARGUMENTS.
    unsafe { update(p, &asked) }
}

/// `MPI_Raccumulate`
///
/// # Safety
/// As [`put`]; `request` is null or a variable.
pub unsafe fn raccumulate(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
    request: *mut usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    let asked = update_of(&sides, None, op);
    // SAFETY: ARGUMENTS.
    unsafe { store(request, rupdate(p, &asked)?) }
}

/// `MPI_Get_accumulate` on memory that is reached by load and store.
///
/// # Safety
/// As [`accumulate_quick`]; the result is writable as its count and datatype say.
#[inline(always)] // as `accumulate_quick`
pub unsafe fn get_accumulate_quick(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
) -> bool {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    let result = (result_addr.cast(), result_count, result_datatype);
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_get_accumulate::<OPEN>(&sides, result, op) }
}

/// `MPI_Get_accumulate`
///
/// # Safety
/// As [`put`], and [`get`] for the result.
pub unsafe fn get_accumulate(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    let result = (result_addr.cast(), result_count, result_datatype);
    // SAFETY: ARGUMENTS.
    if is_hidden() && unsafe { hot_atomics::try_get_accumulate::<INSIDE>(&sides, result, op) } {
        return Ok(());
    }
    let asked = update_of(
        &sides,
        Some(side(result_addr, result_count, result_datatype)),
        op,
    );
    // SAFETY: ARGUMENTS.
    unsafe { update(p, &asked) }
}

/// `MPI_Rget_accumulate`
///
/// # Safety
/// As [`get_accumulate`]; `request` is null or a variable.
pub unsafe fn rget_accumulate(
    p: &Process,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: usize,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    target_count: i64,
    target_datatype: usize,
    op: usize,
    win: usize,
    request: *mut usize,
) -> Result<()> {
    let origin = (origin_addr, origin_count, origin_datatype);
    let sides = sides(
        origin,
        (target_rank, target_disp, target_count, target_datatype),
        win,
    );
    let asked = update_of(
        &sides,
        Some(side(result_addr, result_count, result_datatype)),
        op,
    );
    // SAFETY: ARGUMENTS.
    unsafe { store(request, rupdate(p, &asked)?) }
}

/// `MPI_Fetch_and_op` on memory that is reached by load and store.
///
/// # Safety
/// The buffers have an element of the datatype each.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn fetch_and_op_quick(
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    op: usize,
    win: usize,
) -> bool {
    let place = (target_rank, target_disp);
    let buffers = (origin_addr.cast(), result_addr.cast());
    // SAFETY: ARGUMENTS.
    unsafe { hot_atomics::try_fetch_and_op::<OPEN>(buffers, datatype, place, op, win) }
}

/// `MPI_Fetch_and_op`
///
/// # Safety
/// The buffers have an element of the datatype each, and do not overlap.
pub unsafe fn fetch_and_op(
    p: &Process,
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    op: usize,
    win: usize,
) -> Result<()> {
    let (place, buffers) = (
        (target_rank, target_disp),
        (origin_addr.cast(), result_addr.cast()),
    );
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
        win,
    };
    // SAFETY: ARGUMENTS.
    unsafe { update(p, &asked) }
}

/// `MPI_Compare_and_swap` on memory that is reached by load and store.
///
/// # Safety
/// The buffers have an element of the datatype each.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn compare_and_swap_quick(
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    win: usize,
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

/// `MPI_Compare_and_swap`
///
/// # Safety
/// The buffers have an element of the datatype each, and do not overlap.
pub unsafe fn compare_and_swap(
    p: &Process,
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: usize,
    target_rank: c_int,
    target_disp: isize,
    win: usize,
) -> Result<()> {
    let (place, buffers) = (
        (target_rank, target_disp),
        (origin_addr.cast(), compare_addr.cast(), result_addr.cast()),
    );
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
    unsafe { swap(p, &asked) }
}
