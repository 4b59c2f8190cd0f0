//! One-sided operations whose buffers at the origin may be in device memory. Such an operation works on copies, and is
//! complete when the call returns.
//!
//! **ORIGIN AND RESULT.** The buffers are valid as `transfer.rs` and `accumulate.rs` define. Each unsafe function here
//! requires this of its caller.
#![allow(unsafe_code)]

use super::accumulate::{self, AccumulateBuffer, Swap, Update};
use super::hot::Sides;
use super::lock::{complete, forget};
use super::request::{self, check_epoch, request_of};
use super::transfer::{self, transfer};
use crate::common::error::Result;
use crate::objects::staging::{CallCopies, Use};
use crate::process::Process;
use fastpath_base::device;

/// Replaces a buffer by a copy, if it is in device memory. A wrong datatype is left to the checks of the call.
fn add(
    p: &Process, copies: &mut CallCopies, buffer: AccumulateBuffer, used: Use,
) -> Result<AccumulateBuffer> {
    let Ok(datatype) = p.datatype(buffer.datatype) else { return Ok(buffer) };
    let at = copies.add_elements(buffer.buffer, buffer.count, &datatype, used)?;
    Ok(AccumulateBuffer { buffer: at, ..buffer })
}

/// Stores the results of a complete operation. Its copies may be used for the next operation, so checks forget them.
fn finish(p: &Process, copies: &CallCopies, win: usize) -> Result {
    if !copies.is_empty() {
        forget(p, &*p.win(win)?, None, true);
    }
    copies.store()
}

/// Performs a put or a get on a copy. Safety: see ORIGIN AND RESULT.
#[cold]
unsafe fn move_staged<const PUTS: bool>(p: &Process, sides: &Sides, has_request: bool) -> Result {
    let mut copies = CallCopies::default();
    let used = if PUTS { Use::Input } else { Use::Output };
    let Sides { origin: buffer, count, datatype, .. } = *sides;
    let origin = add(p, &mut copies, AccumulateBuffer { buffer, count, datatype }, used)?.buffer;
    // SAFETY: ORIGIN AND RESULT. The copies live until the operation is complete.
    let begun = unsafe { transfer::<PUTS>(p, &Sides { origin, ..*sides }, has_request)? };
    if let Some((window, rank)) = begun {
        complete(p, &window, rank)?;
    }
    finish(p, &copies, sides.win)
}

/// Performs a put or a get on a copy, and returns its request, which is complete. Safety: see ORIGIN AND RESULT.
#[cold]
unsafe fn move_by_request<const PUTS: bool>(p: &Process, sides: &Sides) -> Result<usize> {
    check_epoch(p, sides.win)?;
    // SAFETY: ORIGIN AND RESULT.
    unsafe { move_staged::<PUTS>(p, sides, true)? };
    request_of(p, sides.win, None)
}

/// `MPI_Put`. Errors: see [`transfer::put`], and those of a copy.
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn put(p: &Process, sides: &Sides) -> Result {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match device::may_appear() {
            false => transfer::put(p, sides),
            true => move_staged::<true>(p, sides, false),
        }
    }
}

/// `MPI_Get`. Errors: see [`transfer::get`], and those of a copy.
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn get(p: &Process, sides: &Sides) -> Result {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match device::may_appear() {
            false => transfer::get(p, sides),
            true => move_staged::<false>(p, sides, false),
        }
    }
}

/// `MPI_Rput`. Errors: see [`put`].
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn rput(p: &Process, sides: &Sides) -> Result<usize> {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match device::may_appear() {
            false => request::rput(p, sides),
            true => move_by_request::<true>(p, sides),
        }
    }
}

/// `MPI_Rget`. Errors: see [`get`].
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn rget(p: &Process, sides: &Sides) -> Result<usize> {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match device::may_appear() {
            false => request::rget(p, sides),
            true => move_by_request::<false>(p, sides),
        }
    }
}

#[cold]
fn stage_update(p: &Process, asked: &Update, copies: &mut CallCopies) -> Result<Update> {
    let origin = add(p, copies, asked.origin, Use::Input)?;
    let result = asked.result.map(|result| add(p, copies, result, Use::Output)).transpose()?;
    Ok(Update { origin, result, ..*asked })
}

/// `MPI_Accumulate` and `MPI_Get_accumulate`. Errors: see [`accumulate::update`], and those of a copy.
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn update(p: &Process, asked: &Update) -> Result {
    let mut copies = CallCopies::default();
    // SAFETY: ORIGIN AND RESULT. The operation is complete when `update` returns.
    unsafe {
        if !device::may_appear() {
            return accumulate::update(p, asked, false);
        }
        accumulate::update(p, &stage_update(p, asked, &mut copies)?, false)?;
    }
    finish(p, &copies, asked.win)
}

/// `MPI_Raccumulate` and `MPI_Rget_accumulate`. Errors: see [`update`].
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn rupdate(p: &Process, asked: &Update) -> Result<usize> {
    let mut copies = CallCopies::default();
    // SAFETY: ORIGIN AND RESULT. The operation is complete when `rupdate` returns.
    let request = unsafe {
        if !device::may_appear() {
            return request::rupdate(p, asked);
        }
        request::rupdate(p, &stage_update(p, asked, &mut copies)?)?
    };
    finish(p, &copies, asked.win).map(|()| request)
}

/// `MPI_Compare_and_swap`. Errors: see [`accumulate::compare_and_swap`], and those of a copy.
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn compare_and_swap(p: &Process, asked: &Swap) -> Result {
    let mut copies = CallCopies::default();
    let mut add_one = |at: *const u8, used| {
        let buffer = AccumulateBuffer { buffer: at.cast_mut(), count: 1, datatype: asked.datatype };
        add(p, &mut copies, buffer, used).map(|buffer| buffer.buffer)
    };
    let staged = match device::may_appear() {
        false => *asked,
        true => Swap {
            origin: add_one(asked.origin, Use::Input)?,
            compare: add_one(asked.compare, Use::Input)?,
            result: add_one(asked.result, Use::Output)?,
            ..*asked
        },
    };
    // SAFETY: ORIGIN AND RESULT. The operation is complete when `compare_and_swap` returns.
    unsafe { accumulate::compare_and_swap(p, &staged)? };
    finish(p, &copies, asked.win)
}
