//! Generalized requests (MPI-5.0 section 13.2): operations of the program behind a request.
#![allow(unsafe_code)]

use super::{Notice, Operation, empty_status, make_operation, not_of_kind, notify};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::process::Process;
use std::borrow::Cow;
use std::ffi::{c_int, c_void};

type Query = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The functions of a generalized request, and what they are called with.
struct Generalized {
    query: Option<Query>,
    free: Option<Free>,
    cancel: Option<Cancel>,
    extra: *mut c_void,
    is_complete: bool,
}

/// `MPI_Grequest_start`.
///
/// # Errors
/// `MPI_ERR_ARG` for a function that is null.
///
/// # Safety
/// The functions are null or of the types that the standard gives, and stay so until the request is freed.
pub unsafe fn start_generalized(
    p: &Process, (query, free, cancel): (usize, usize, usize), extra: usize,
) -> Result<usize> {
    if query == 0 || free == 0 || cancel == 0 {
        let text = "a function of the generalized request is a null pointer: pass all three";
        return Err(Error::new(MPI_ERR_ARG, text));
    }
    // SAFETY: functions of these types by the contract of this function.
    let request = unsafe {
        Generalized {
            query: Some(std::mem::transmute::<usize, Query>(query)),
            free: Some(std::mem::transmute::<usize, Free>(free)),
            cancel: Some(std::mem::transmute::<usize, Cancel>(cancel)),
            extra: extra as *mut c_void,
            is_complete: false,
        }
    };
    make_operation(p, Box::new(request))
}

/// `MPI_Grequest_complete`: threads that wait for it continue.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request of another kind, or one that is complete.
pub fn complete_generalized(p: &Process, handle: usize) -> Result {
    notify(p, handle, Notice::Complete)?;
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*p.worker()?).wake_sleepers() };
    Ok(())
}

fn result_of(function: &str, code: c_int) -> Result {
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(Error::new(
            code,
            format!("the {function} function of a generalized request has returned this error"),
        )),
    }
}

impl Operation<Process> for Generalized {
    fn poll(&mut self, _: &Process) -> Option<Result<Status>> {
        if !self.is_complete {
            return None;
        }
        let mut status = empty_status();
        let code = match self.query {
            // SAFETY: a function of this type, promised at the start; the status lives.
            Some(query) => unsafe { query(self.extra, &mut status) },
            None => MPI_SUCCESS,
        };
        Some(result_of("query", code).map(|()| status))
    }

    fn calls_back(&self) -> bool {
        true
    }

    fn began(&self) -> &'static str {
        "MPI_Grequest_start"
    }

    fn state(&self) -> Cow<'static, str> {
        "MPI_Grequest_complete was not called".into()
    }

    fn is_over(&self) -> bool {
        self.is_complete
    }

    fn cancel_function(&self) -> Option<Box<dyn FnOnce() -> Result>> {
        let (cancel, extra, is_complete) = (self.cancel?, self.extra, self.is_complete);
        Some(Box::new(move || {
            // SAFETY: the user gave this function for such calls with this extra state, which is valid until the
            // request is freed; it is called at once, by `MPI_Cancel` of that request.
            result_of("cancel", unsafe { cancel(extra, is_complete.into()) })
        }))
    }

    fn notify(&mut self, _: &Process, notice: Notice) -> Result<bool> {
        match notice {
            Notice::Complete if self.is_complete => {
                Err(Error::new(MPI_ERR_REQUEST, "the generalized request is complete already"))
            }
            Notice::Complete => {
                self.is_complete = true;
                Ok(true)
            }
            _ => Err(not_of_kind("of a partitioned operation")),
        }
    }

    fn outlives_request(&self) -> bool {
        !self.is_complete
    }

    fn free(&mut self, _: &Process) -> Result {
        let Some(free) = self.free.take() else {
            return Ok(());
        };
        // SAFETY: the user gave this function for such calls with this extra state.
        result_of("free", unsafe { free(self.extra) })
    }
}
