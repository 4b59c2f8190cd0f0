//! Sends and receives that return at once, with a request.
//!
//! **USER'S BUFFER.** As in `p2p_slow`: a buffer stays as it is needed until the request completes; `request` is null
//! or a variable.
#![allow(unsafe_code)]

use super::*;

/// Any nonblocking send.
///
/// # Safety
/// The buffer is readable until the request completes; `request` is null or a variable.
#[inline(never)]
pub unsafe fn isend(name: &'static str, args: Args, mode: Mode, request: *mut usize) -> Result {
    let p = process::enter(name, false)?;
    if request.is_null() {
        return Err(Error::new(MPI_ERR_ARG, "the pointer for the request is null"));
    }
    if mode != Mode::Buffered {
        // Since the call was entered, its arguments were checked.
        trace::share_time_of(Point::Call);
    }
    // SAFETY: USER'S BUFFER.
    unsafe {
        *request = isend_checked(&p, &args, mode)?;
    }
    trace::share_time_of(Point::Posted);
    Ok(())
}

/// As [`isend`], inside MPI; returns the request's handle.
pub(crate) unsafe fn isend_checked(p: &Process, args: &Args, mode: Mode) -> Result<usize> {
    let checked = check_send(p, args)?;
    // SAFETY: USER'S BUFFER.
    unsafe { start_isend(p, checked.as_ref(), args, mode) }
}

/// Starts what [`check_send`] has returned; returns the request's handle.
///
/// # Safety
/// As for [`isend`].
pub(crate) unsafe fn start_isend(
    p: &Process, checked: Option<&Checked>, args: &Args, mode: Mode,
) -> Result<usize> {
    let Some(checked) = checked else {
        return Ok(request::DONE_HANDLE);
    };
    let place = checked.place;
    let _within = places::within(place);
    // SAFETY: USER'S BUFFER.
    unsafe {
        let started = match mode {
            Mode::Buffered => crate::buffered::send(p, checked, args)?,
            _ => start_send(p, checked, args, mode)?,
        };
        match started {
            Started::Done => Ok(request::DONE_HANDLE),
            Started::Request(id) => Ok((*p.worker_at(place)?).requests.get(id).handle as usize),
        }
    }
}

/// Any nonblocking receive.
///
/// # Safety
/// The buffer is writable until the request completes; `request` is null or a variable.
#[inline(never)]
pub unsafe fn irecv(name: &'static str, args: Args, request: *mut usize) -> Result {
    let p = process::enter(name, false)?;
    if request.is_null() {
        return Err(Error::new(MPI_ERR_ARG, "the pointer for the request is null"));
    }
    // SAFETY: USER'S BUFFER.
    unsafe {
        *request = irecv_checked(&p, &args)?;
    }
    Ok(())
}

/// As [`irecv`], inside MPI; returns the request's handle.
pub(crate) unsafe fn irecv_checked(p: &Process, args: &Args) -> Result<usize> {
    let checked = check_recv(p, args)?;
    // SAFETY: USER'S BUFFER.
    unsafe { start_irecv(p, checked.as_ref(), args) }
}

/// Starts what [`check_recv`] has returned; returns the request's handle.
///
/// # Safety
/// As for [`irecv`].
pub(crate) unsafe fn start_irecv(
    p: &Process, checked: Option<&Checked>, args: &Args,
) -> Result<usize> {
    let Some(checked) = checked else {
        return request::make_proc_null(p);
    };
    let place = checked.place;
    let _within = places::within(place);
    // SAFETY: USER'S BUFFER.
    unsafe {
        let id = match p.checks() {
            None => post_recv::<true>(p, checked, checked.buffer.clone(), args)?,
            Some(_) => start_recv(p, checked, args)?,
        };
        Ok((*p.worker_at(place)?).requests.get(id).handle as usize)
    }
}
