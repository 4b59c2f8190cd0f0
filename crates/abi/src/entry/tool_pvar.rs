//! Performance variables of the tool interface (MPI 5.0, section 15.3.7).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::load;
use super::tool::{tell, tell_text, text_of};
use core::ffi::{c_char, c_int, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::tool::pvar;
use fastpath_mpi::{Error, Process, Result};

pub unsafe fn t_pvar_get_info(
    pvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int,
    var_class: *mut c_int, datatype: *mut usize, enumtype: *mut usize, desc: *mut c_char,
    desc_len: *mut c_int, bind: *mut c_int, readonly: *mut c_int, continuous: *mut c_int,
    atomic: *mut c_int,
) -> Result<()> {
    let variable = pvar::find(pvar_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell_text(name, name_len, variable.name);
        tell_text(desc, desc_len, variable.meaning);
        tell(verbosity, MPI_T_VERBOSITY_USER_DETAIL);
        tell(var_class, variable.class);
        tell(datatype, MPI_UINT64_T);
        tell(enumtype, MPI_T_ENUM_NULL);
        tell(bind, MPI_T_BIND_NO_OBJECT);
        tell(readonly, c_int::from(variable.is_level()));
        tell(continuous, c_int::from(variable.is_level()));
        tell(atomic, c_int::from(!variable.is_level()));
    }
    Ok(())
}

pub unsafe fn t_pvar_get_index(
    name: *const c_char, var_class: c_int, pvar_index: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(pvar_index, pvar::index_of(text_of(name)?, var_class)? as c_int) };
    Ok(())
}

pub unsafe fn t_pvar_session_create(session: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(session, pvar::open_session()?) };
    Ok(())
}

pub unsafe fn t_pvar_session_free(session: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        pvar::close_session(load(session)?)?;
        tell(session, MPI_T_PVAR_SESSION_NULL);
    }
    Ok(())
}

pub unsafe fn t_pvar_handle_alloc(
    session: usize, pvar_index: c_int, _obj_handle: *mut c_void, handle: *mut usize,
    count: *mut c_int,
) -> Result<()> {
    let opened = pvar::open(session, pvar_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell(handle, opened);
        tell(count, 1);
    }
    Ok(())
}

pub unsafe fn t_pvar_handle_free(session: usize, handle: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        pvar::close(session, load(handle)?)?;
        tell(handle, MPI_T_PVAR_HANDLE_NULL);
    }
    Ok(())
}

pub fn t_pvar_start(p: &Process, session: usize, handle: usize) -> Result<()> {
    pvar::start(p, session, handle)
}

pub fn t_pvar_stop(p: &Process, session: usize, handle: usize) -> Result<()> {
    pvar::stop(p, session, handle)
}

/// Stores a value of 8 bytes.
///
/// # Safety
/// `buf` is null or has room for 8 bytes.
unsafe fn tell_value(buf: *mut c_void, value: u64) -> Result<()> {
    if buf.is_null() {
        return Err(Error::new(MPI_T_ERR_INVALID, "the buffer is null"));
    }
    // SAFETY: ARGUMENTS.
    unsafe { buf.cast::<u64>().write_unaligned(value) };
    Ok(())
}

pub unsafe fn t_pvar_read(
    p: &Process, session: usize, handle: usize, buf: *mut c_void,
) -> Result<()> {
    let value = pvar::read(p, session, handle)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell_value(buf, value) }
}

pub unsafe fn t_pvar_readreset(
    p: &Process, session: usize, handle: usize, buf: *mut c_void,
) -> Result<()> {
    let value = pvar::read_and_reset(p, session, handle)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell_value(buf, value) }
}

pub fn t_pvar_reset(p: &Process, session: usize, handle: usize) -> Result<()> {
    pvar::write(p, session, handle, 0)
}

pub unsafe fn t_pvar_write(
    p: &Process, session: usize, handle: usize, buf: *const c_void,
) -> Result<()> {
    if buf.is_null() {
        return Err(Error::new(MPI_T_ERR_INVALID, "the buffer is null"));
    }
    // SAFETY: ARGUMENTS.
    let value = unsafe { buf.cast::<u64>().read_unaligned() };
    pvar::write(p, session, handle, value)
}
