//! Sends and receives that return at once, with a request.
//!
//! **USER'S BUFFER.** As in `slow`: a buffer stays as it is needed until the request completes; `request` is null
//! or a variable.
#![allow(unsafe_code)]

use super::*;
use crate::p2p::DONE_HANDLE;
use fastpath_protocol::request::RequestKind;

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
        return Ok(DONE_HANDLE);
    };
    let place = checked.place;
    let _within = places::within(place);
    // SAFETY: USER'S BUFFER.
    unsafe {
        let started = match mode {
            Mode::Buffered => copied::send(p, checked, args)?,
            _ => start_send(p, checked, args, mode)?,
        };
        match started {
            Started::Done => Ok(DONE_HANDLE),
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
        return make_proc_null(p);
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

/// A completed receive from `MPI_PROC_NULL`.
pub(crate) fn make_proc_null(p: &Process) -> Result<usize> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs.
    let pool = unsafe { &mut (*worker).requests };
    let id = pool.allocate(RequestKind::Recv).ok_or_else(out_of_requests)?;
    let request = pool.get_mut(id);
    request.state = State::Complete;
    request.source = MPI_PROC_NULL;
    request.received_tag = MPI_ANY_TAG;
    request.received = 0;
    Ok(request.handle as usize)
}

#[cold]
pub(crate) fn out_of_requests() -> Error {
    Error::new(MPI_ERR_OTHER, "4 million requests are in use: complete or free some")
}
