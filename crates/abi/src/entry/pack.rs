//! Packing (MPI 5.0, section 5.2 and 5.3).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Count, load, read_text, store};
use core::ffi::{c_char, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::objects::datatype::{Datatype, TypeError};
use fastpath_mpi::objects::staging::{CallCopies, Use};
use fastpath_mpi::{Error, Process, Result};

/// Runs `run` on the addresses of elements and of packed bytes. Copies replace device memory, and the results are
/// stored. The elements are the input of a call that `packs`. Errors: those of a copy, and of `run`.
fn staged(
    packs: bool, (elements, packed): ((*const c_void, i64, &Datatype), (*const c_void, i64)),
    run: impl FnOnce(*mut u8, *mut u8) -> Result<()>,
) -> Result<()> {
    let (read, written) = (Use::Input, Use::Output);
    let (of_elements, of_packed) = if packs { (read, written) } else { (written, read) };
    let mut copies = CallCopies::default();
    let (at, count, datatype) = elements;
    let at = copies.add_elements(at.cast_mut().cast(), count, datatype, of_elements)?;
    let bytes = copies.add_bytes(packed.0.cast_mut().cast(), packed.1, of_packed)?;
    run(at, bytes)?;
    copies.store()
}

/// Advances the caller's position to the result of `step`.
unsafe fn advance<C: Count>(
    position: *mut C, step: impl FnOnce(i64) -> core::result::Result<i64, TypeError>,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let at = unsafe { load(position)? };
    // The conversion cannot fail: the new position is at most the buffer size, which the caller passed in an integer of
    // type `C`.
    let next = C::from_i64_or_undefined(step(at.to_i64())?);
    // SAFETY: ARGUMENTS.
    unsafe { store(position, next) }
}

/// # Safety
/// The buffers meet the requirements of the standard; `position` is null or a variable.
pub unsafe fn pack<C: Count>(
    p: &Process, inbuf: *const c_void, incount: i64, datatype: usize, outbuf: *mut c_void,
    outsize: i64, position: *mut C, comm: usize,
) -> Result<()> {
    p.comm(comm)?;
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let data = ((inbuf, incount, &*datatype), (outbuf.cast_const(), outsize));
        staged(true, data, |inbuf, outbuf| {
            advance(position, |at| datatype.pack(inbuf, incount, outbuf, outsize, at))
        })
    }
}

/// # Safety
/// The buffers meet the requirements of the standard; `position` is null or a variable.
pub unsafe fn unpack<C: Count>(
    p: &Process, inbuf: *const c_void, insize: i64, position: *mut C, outbuf: *mut c_void,
    outcount: i64, datatype: usize, comm: usize,
) -> Result<()> {
    p.comm(comm)?;
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let data = ((outbuf.cast_const(), outcount, &*datatype), (inbuf, insize));
        staged(false, data, |outbuf, inbuf| {
            advance(position, |at| datatype.unpack(inbuf, insize, at, outbuf, outcount))
        })
    }
}

/// Returns the size, or `MPI_UNDEFINED` if it does not fit.
pub fn pack_size<C: Count>(p: &Process, incount: i64, datatype: usize, comm: usize) -> Result<C> {
    p.comm(comm)?;
    let bytes = p.datatype(datatype)?.pack_size(incount)?;
    Ok(C::from_i64_or_undefined(bytes))
}

/// Checks that the representation is "external32", the only portable one.
unsafe fn check_datarep(datarep: *const c_char) -> Result<()> {
    // SAFETY: ARGUMENTS.
    match unsafe { read_text("datarep", datarep, MPI_MAX_DATAREP_STRING as usize) }?.as_str() {
        "external32" => Ok(()),
        other => {
            Err(Error::new(MPI_ERR_ARG, format!("datarep is \"{other}\": pass \"external32\"")))
        }
    }
}

/// # Safety
/// The buffers meet the requirements of the standard; `datarep` is null or a string, `position` null or a variable.
pub unsafe fn pack_external<D: Count>(
    p: &Process, datarep: *const c_char, inbuf: *const c_void, incount: i64, datatype: usize,
    outbuf: *mut c_void, outsize: i64, position: *mut D,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        check_datarep(datarep)?;
        let data = ((inbuf, incount, &*datatype), (outbuf.cast_const(), outsize));
        staged(true, data, |inbuf, outbuf| {
            advance(position, |at| datatype.pack_external(inbuf, incount, outbuf, outsize, at))
        })
    }
}

/// # Safety
/// The buffers meet the requirements of the standard; `datarep` is null or a string, `position` null or a variable.
pub unsafe fn unpack_external<D: Count>(
    p: &Process, datarep: *const c_char, inbuf: *const c_void, insize: i64, position: *mut D,
    outbuf: *mut c_void, outcount: i64, datatype: usize,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        check_datarep(datarep)?;
        let data = ((outbuf.cast_const(), outcount, &*datatype), (inbuf, insize));
        staged(false, data, |outbuf, inbuf| {
            advance(position, |at| datatype.unpack_external(inbuf, insize, at, outbuf, outcount))
        })
    }
}

pub unsafe fn pack_external_size<D: Count>(
    p: &Process, datarep: *const c_char, incount: i64, datatype: usize,
) -> Result<D> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        check_datarep(datarep)?;
        Ok(D::from_i64_or_undefined(datatype.external_size(incount)?))
    }
}
