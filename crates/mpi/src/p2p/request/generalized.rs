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

struct Generalized {
    query: Option<Query>,
    free: Option<Free>,
    cancel: Option<Cancel>,
    extra: *mut c_void,
    is_complete: bool,
}

/// `MPI_Grequest_start`. Errors: `MPI_ERR_ARG` for a null function.
///
/// # Safety
/// The functions must be null or of the types that the standard gives, until the request is freed.
pub unsafe fn start_generalized(
    p: &Process, (query, free, cancel): (usize, usize, usize), extra: usize,
) -> Result<usize> {
    if query == 0 || free == 0 || cancel == 0 {
        let text = "query_fn, free_fn or cancel_fn is NULL: pass all three functions";
        return Err(Error::new(MPI_ERR_ARG, text));
    }
    // SAFETY: the addresses are functions of these types, by the contract of this function.
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

/// `MPI_Grequest_complete`: wakes threads that wait for the request. Errors: `MPI_ERR_REQUEST` for a request of another
/// kind, or one that is complete.
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
            format!(
                "the {function} function of a generalized request returned error code {code}: \
                 correct that function"
            ),
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
            // SAFETY: the contract of `start_generalized` gives the function this type, and the status lives.
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
            // request is freed. `MPI_Cancel` of that request calls this function at once, so the request is not freed
            // before this call.
            result_of("cancel", unsafe { cancel(extra, is_complete.into()) })
        }))
    }

    fn notify(&mut self, _: &Process, notice: Notice) -> Result<bool> {
        match notice {
            Notice::Complete if self.is_complete => {
                let text = "the generalized request is complete already";
                let advice = "call MPI_Grequest_complete once for each request";
                Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(advice)))
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
