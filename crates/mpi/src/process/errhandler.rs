//! Error handlers, and their use for an error (MPI-5.0 section 9.3).
#![allow(unsafe_code)]

pub mod abort;
pub(crate) mod report;

use crate::common::consts::*;
use crate::common::error::handler::{ErrorAction, Function};
use crate::common::error::{Error, Result};
use crate::common::table::HandleKind;
use crate::objects::comm::Comm;
use crate::process::{self, Process};
use std::cell::Cell;
use std::rc::Rc;

pub use crate::common::error::handler::{Errhandler, HandlerKind};

impl HandleKind for Errhandler {
    const NOUN: &'static str = "error handler";
    const NULL: (usize, &'static str) = (MPI_ERRHANDLER_NULL, "MPI_ERRHANDLER_NULL");
    const CLASS: i32 = MPI_ERR_ERRHANDLER;
}

/// Object whose error handler handles an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// No object: the handler is that of `MPI_COMM_SELF`, or of `MPI_COMM_WORLD` if the program has set only that.
    None,
    /// Handle of a communicator.
    Comm(usize),
    /// Handle of a window.
    Win(usize),
    /// Handle of a file.
    File(usize),
    /// Handle of a session.
    Session(usize),
    /// Error handler for a new object of this kind, in the call that makes it.
    New(HandlerKind, usize),
}

/// Registers the predefined error handlers.
pub fn register_predefined(p: &Process) {
    p.errhandlers.insert_predefined(MPI_ERRORS_ARE_FATAL, Errhandler::new(ErrorAction::End));
    p.errhandlers.insert_predefined(MPI_ERRORS_ABORT, Errhandler::new(ErrorAction::End));
    p.errhandlers.insert_predefined(MPI_ERRORS_RETURN, Errhandler::new(ErrorAction::Return));
}

/// Makes an error handler from the address of a user's function. Errors: `MPI_ERR_ARG` for a null address,
/// `MPI_ERR_OTHER` if no handle is free.
///
/// # Safety
/// `function` must be null, or a function of the type that the standard gives for `kind` while the handler is in use.
pub unsafe fn create_errhandler(p: &Process, kind: HandlerKind, function: usize) -> Result<usize> {
    if function == 0 {
        return Err(Error::new(MPI_ERR_ARG, "the error handler function is NULL: pass a function"));
    }
    // SAFETY: the address is a function of this type, by the contract of this function. The types for the kinds of
    // objects differ only in the type of the handle, an integer here.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    let handler = Errhandler::new(ErrorAction::Call(kind, function));
    p.errhandlers.publish(handler)
}

/// Finds the error handler of a handle. The predefined ones also exist before initialisation. Errors:
/// `MPI_ERR_ERRHANDLER` for a handle that is not an error handler.
pub fn find_errhandler(p: &Process, handle: usize) -> Result<Rc<Errhandler>> {
    if (MPI_ERRORS_ARE_FATAL..=MPI_ERRORS_RETURN).contains(&handle)
        && p.errhandlers.get(handle).is_none()
    {
        register_predefined(p);
    }
    p.errhandlers.find(handle)
}

/// `MPI_Errhandler_free`. Objects keep the handler. Errors: `MPI_ERR_ERRHANDLER` for a handle that is not an error
/// handler, or that was freed as often as it was returned.
pub fn free_errhandler(p: &Process, handle: usize) -> Result {
    let handler = find_errhandler(p, handle)?;
    if !matches!(handler.action, ErrorAction::Call(..)) {
        return Ok(());
    }
    let Some(left) = handler.held.get().checked_sub(1) else {
        return Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler was freed already"));
    };
    handler.held.set(left);
    remove_unused(p, handle, &handler);
    Ok(())
}

fn remove_unused(p: &Process, handle: usize, handler: &Errhandler) {
    if matches!(handler.action, ErrorAction::Call(..))
        && handler.held.get() == 0
        && handler.attached.get() == 0
    {
        p.errhandlers.remove(handle);
    }
}

/// Counts an object that uses the error handler, until [`detach`].
pub fn attach(p: &Process, handle: usize) {
    if let Some(handler) = p.errhandlers.get(handle) {
        handler.attached.set(handler.attached.get() + 1);
    }
}

/// Undoes [`attach`].
pub fn detach(p: &Process, handle: usize) {
    if let Some(handler) = p.errhandlers.get(handle) {
        handler.attached.set(handler.attached.get().saturating_sub(1));
        remove_unused(p, handle, &handler);
    }
}

/// Checks that an object of `kind` may have the error handler. Errors: `MPI_ERR_ERRHANDLER` for a handle that is not an
/// error handler, or one for other objects.
pub fn check_errhandler(p: &Process, kind: HandlerKind, handle: usize) -> Result {
    let handler = find_errhandler(p, handle)?;
    if matches!(handler.action, ErrorAction::Call(other, _) if other != kind) {
        let message = "the error handler was made for another kind of object (communicator, \
                       window, file or session)";
        return Err(Error::new(MPI_ERR_ERRHANDLER, message));
    }
    Ok(())
}

/// Replaces the error handler in `place` of an object of `kind`. Errors: `MPI_ERR_ERRHANDLER` for a handle that is not
/// an error handler, or one for other objects.
pub fn set_errhandler(
    p: &Process, kind: HandlerKind, place: &Cell<usize>, handle: usize,
) -> Result {
    check_errhandler(p, kind, handle)?;
    attach(p, handle);
    detach(p, place.replace(handle));
    Ok(())
}

/// Records that the program has set the error handler of a communicator.
pub fn note_set(p: &Process, comm: usize) {
    if comm == MPI_COMM_SELF {
        p.own_handler_is_set.set(true);
    }
}

/// Returns the error handler in `place`, as a handle that the user must free.
pub fn get_errhandler(p: &Process, place: &Cell<usize>) -> usize {
    let handle = place.get();
    if let Some(handler) = p.errhandlers.get(handle) {
        handler.held.set(handler.held.get() + 1);
    }
    handle
}

/// Error handler of an object, and the handle that the handler's function gets. Without a valid object, the handler is
/// that of [`find_default`].
struct HandlerTarget {
    handler: usize,
    object: usize,
    comm: Option<Rc<Comm>>,
}

fn find_target(p: &Process, scope: Scope, error: &Error) -> HandlerTarget {
    let of_object = |handler, object| HandlerTarget { handler, object, comm: None };
    if let Scope::New(kind, handler) = scope
        && check_errhandler(p, kind, handler).is_ok()
    {
        let none_yet = match kind {
            HandlerKind::Session => MPI_SESSION_NULL,
            _ => MPI_COMM_NULL,
        };
        return of_object(handler, none_yet);
    }
    let finders = p.finders.get();
    let wanted = match (error.comm(), error.file().map_or(scope, Scope::File)) {
        (Some(comm), _) => p.comm_of_request(comm),
        (None, Scope::Comm(comm)) => p.comms.get(comm),
        (None, Scope::Win(win)) => match (finders.win)(p, win) {
            Some(handler) => return of_object(handler, win),
            None => None,
        },
        (None, Scope::Session(session)) => match p.sessions.get(session) {
            Some(found) => return of_object(found.errhandler.get(), session),
            None => None,
        },
        // Files return errors by default.
        (None, Scope::File(file)) => {
            let own = (finders.file)(p, file);
            return of_object(own.unwrap_or(p.file_errhandler.get()), file);
        }
        (None, Scope::None | Scope::New(..)) => None,
    };
    match wanted.clone().or_else(|| find_default(p)) {
        Some(comm) => HandlerTarget {
            handler: comm.errhandler.get(),
            object: comm.handle.get(),
            comm: wanted,
        },
        // MPI is not initialised yet, or finalised.
        None => HandlerTarget { handler: MPI_ERRORS_ARE_FATAL, object: MPI_COMM_NULL, comm: None },
    }
}

/// Returns the communicator whose error handler handles errors without an object: `MPI_COMM_SELF`. Before MPI 4.0 it
/// was `MPI_COMM_WORLD`. A program that has not set the handler of `MPI_COMM_SELF` gets that of `MPI_COMM_WORLD`, as in
/// MPICH and Open MPI.
fn find_default(p: &Process) -> Option<Rc<Comm>> {
    let default = match p.own_handler_is_set.get() {
        true => MPI_COMM_SELF,
        false => MPI_COMM_WORLD,
    };
    p.comms.get(default)
}

/// Passes `error` of the call `name` to the error handler of `scope`, and returns the code that the MPI call returns.
/// `process` is `None` if the call could not enter MPI or did not need to enter it.
#[cold]
#[inline(never)]
pub fn raise(process: Option<&Process>, scope: Scope, name: &'static str, error: Error) -> i32 {
    match process {
        Some(p) => dispatch(p, scope, name, error),
        None => match process::enter(name, true) {
            Ok(guard) => dispatch(&guard, scope, name, error),
            Err(_) => error.code(),
        },
    }
}

/// Reports an error of the call `name` as fatal, independent of the error handlers, and ends the job.
pub fn end_job(p: &Process, name: &str, error: &Error, comm: Option<&Comm>) -> ! {
    let report = report::describe(p, name, error, comm);
    abort::abort_after_error(p, error.code(), &report)
}

fn dispatch(p: &Process, scope: Scope, name: &'static str, error: Error) -> i32 {
    let code = error.code();
    let target = find_target(p, scope, &error);
    match find_errhandler(p, target.handler).map(|handler| handler.action) {
        Ok(ErrorAction::Return) => p.codes.remember(code, format!("{name}: {error}")),
        Ok(ErrorAction::Call(_, function)) => {
            p.codes.remember(code, format!("{name}: {error}"));
            return call_function(function, target.object, code);
        }
        Ok(ErrorAction::End) | Err(_) => {
            let report = report::describe(p, name, &error, target.comm.as_deref());
            abort::abort_after_error(p, code, &report)
        }
    }
    code
}

/// Calls the user's function. Returns the code that the function leaves, which the MPI call then returns.
fn call_function(function: Function, object: usize, code: i32) -> i32 {
    let (mut object, mut code) = (object, code);
    // SAFETY: the contract of `create_errhandler` gives the function this type, and the variables outlive the call. The
    // lock is recursive, so that the function may call MPI.
    unsafe { function(&mut object, &mut code) };
    code
}

/// Calls the handler of `scope` with `code`, for `MPI_Comm_call_errhandler` and similar calls. Ignores `MPI_SUCCESS`.
pub fn call_errhandler(p: &Process, scope: Scope, name: &'static str, code: i32) {
    if code != MPI_SUCCESS {
        dispatch(p, scope, name, raised_error(p, code));
    }
}

/// Returns the error for a code that the program, or a library in it, passes to an error handler.
fn raised_error(p: &Process, code: i32) -> Error {
    let text = p.codes.text(code);
    // A code that was added at run time has its own text, to which the remedy of its class need not fit.
    match p.codes.is_added(code) && !text.is_empty() {
        true => Error::new(code, text).with_advice(Some("")),
        false => Error::new(code, format!("the program raised this error itself: {text}")),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
