//! Sends and receives that return immediately, with a request.
//!
//! **USER'S BUFFER.** The parent module's contract holds until the request completes. `request` is null or a variable.
#![allow(unsafe_code)]

use super::*;
use crate::p2p::DONE_HANDLE;
use fastpath_protocol::request::RequestKind;

/// Executes any nonblocking send.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(never)]
pub unsafe fn isend(name: &'static str, args: Args, mode: Mode, request: *mut usize) -> Result {
    let p = process::enter(name, false)?;
    if request.is_null() {
        return Err(Error::new(
            MPI_ERR_ARG,
            "the address of the request is NULL: pass the address of a variable for the request",
        ));
    }
    if mode != Mode::Buffered {
        // In traces, the time since the entry of the call counts as checks.
        trace::share_time_of(Point::Call);
    }
    // SAFETY: USER'S BUFFER.
    unsafe {
        *request = isend_checked(&p, &args, mode)?;
    }
    trace::share_time_of(Point::Posted);
    Ok(())
}

/// Executes a nonblocking send inside MPI, and returns the request's handle.
pub(crate) unsafe fn isend_checked(p: &Process, args: &Args, mode: Mode) -> Result<usize> {
    let checked = check_send(p, args)?;
    // SAFETY: USER'S BUFFER.
    unsafe { start_isend(p, checked.as_ref(), args, mode) }
}

/// Starts a send that [`check_send`] has checked, and returns the request's handle. Safety: see USER'S BUFFER.
pub(crate) unsafe fn start_isend(
    p: &Process, checked: Option<&CheckedArguments>, args: &Args, mode: Mode,
) -> Result<usize> {
    let Some(checked) = checked else {
        return Ok(DONE_HANDLE);
    };
    // SAFETY: USER'S BUFFER.
    unsafe {
        let started = match mode {
            Mode::Buffered => copied::send(p, checked, args)?,
            _ => start_send(p, checked, args, mode)?,
        };
        match started {
            StartOutcome::Done => Ok(DONE_HANDLE),
            StartOutcome::Request(id) => Ok((*p.worker()?).requests.get(id).handle as usize),
        }
    }
}

/// Executes any nonblocking receive.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(never)]
pub unsafe fn irecv(name: &'static str, args: Args, request: *mut usize) -> Result {
    let p = process::enter(name, false)?;
    if request.is_null() {
        return Err(Error::new(
            MPI_ERR_ARG,
            "the address of the request is NULL: pass the address of a variable for the request",
        ));
    }
    // SAFETY: USER'S BUFFER.
    unsafe {
        *request = irecv_checked(&p, &args)?;
    }
    Ok(())
}

/// Executes a nonblocking receive inside MPI, and returns the request's handle.
pub(crate) unsafe fn irecv_checked(p: &Process, args: &Args) -> Result<usize> {
    let checked = check_recv(p, args)?;
    // SAFETY: USER'S BUFFER.
    unsafe { start_irecv(p, checked.as_ref(), args) }
}

/// Starts a receive that [`check_recv`] has checked, and returns the request's handle. Safety: see USER'S BUFFER.
pub(crate) unsafe fn start_irecv(
    p: &Process, checked: Option<&CheckedArguments>, args: &Args,
) -> Result<usize> {
    let Some(checked) = checked else {
        return make_proc_null(p);
    };
    // SAFETY: USER'S BUFFER.
    unsafe {
        let id = match p.checks() {
            None => post_recv::<true>(p, checked, checked.buffer.clone(), args)?,
            Some(_) => start_recv(p, checked, args)?,
        };
        Ok((*p.worker()?).requests.get(id).handle as usize)
    }
}

pub(crate) fn make_proc_null(p: &Process) -> Result<usize> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs.
    let pool = unsafe { &mut (*worker).requests };
    let id = pool.allocate(RequestKind::Recv).ok_or_else(out_of_requests)?;
    let request = pool.get_mut(id);
    request.state = RequestState::Complete;
    request.source = MPI_PROC_NULL;
    request.received_tag = MPI_ANY_TAG;
    request.received = 0;
    Ok(request.handle as usize)
}

#[cold]
pub(crate) fn out_of_requests() -> Error {
    Error::new(MPI_ERR_OTHER, "4 million requests are in use: complete or free some")
}
