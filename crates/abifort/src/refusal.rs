//! Errors of buffers and callbacks that a call cannot take.
#![allow(unsafe_code)]

use crate::convert::{comm_from, file_from, win_from};
use crate::ffi;
use crate::section::BufferRefusal;
use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Object whose error handler gets an error.
pub enum Scope {
    /// A communicator's INTEGER.
    Comm(c_int),
    /// A window's INTEGER.
    Win(c_int),
    /// A file's INTEGER.
    File(c_int),
}

/// Class of an error about a buffer.
const ERR_BUFFER: c_int = 1;
/// Class of an error for which there is no closer one.
const ERR_OTHER: c_int = 16;
/// The communicator to which errors without another object belong.
pub const COMM_SELF: c_int = 258;

/// Raises the error for a buffer that `function` cannot take, and returns its code.
#[cold]
pub fn refuse(function: &str, argument: &str, scope: Scope, refusal: BufferRefusal) -> c_int {
    let (cause, remedy) = match refusal {
        BufferRefusal::UnknownDescriptor => (
            "has an array descriptor of an unknown compiler",
            "use module mpi, or gfortran or flang",
        ),
        BufferRefusal::NoDatatype => (
            "is an array section that is not contiguous, which this call cannot take",
            "pass a contiguous array",
        ),
        BufferRefusal::OtherElements => (
            "is an array section that is not contiguous, and count and datatype do not describe \
             its elements",
            "pass the datatype of its elements, or a contiguous array",
        ),
    };
    raise(scope, ERR_BUFFER, &format!("{function}: {argument} {cause}: {remedy}"))
}

/// Raises the error for a callback when all slots of its kind are used, and returns its code.
#[cold]
pub fn refuse_callback(function: &str, slots: usize) -> c_int {
    let text = format!(
        "{function}: a process can create {slots} of these with functions written in Fortran, \
         unless the C library is Fastpath's: create them once and keep them"
    );
    raise(Scope::Comm(COMM_SELF), ERR_OTHER, &text)
}

/// Calls the error handler with an error code of `class`, and returns the code.
fn raise(scope: Scope, class: c_int, text: &str) -> c_int {
    let code = code_of(class, text);
    // SAFETY: the functions take any handle and code.
    unsafe {
        match scope {
            Scope::Comm(comm) => ffi::PMPI_Comm_call_errhandler(comm_from(comm), code),
            Scope::Win(win) => ffi::PMPI_Win_call_errhandler(win_from(win), code),
            Scope::File(file) => ffi::PMPI_File_call_errhandler(file_from(file), code),
        };
    }
    code
}

/// Error codes that this library has added, by class and text: a process has a limited number of codes.
static CODES: Mutex<BTreeMap<(c_int, String), c_int>> = Mutex::new(BTreeMap::new());

/// Error code with this text; `class` if none can be added.
fn code_of(class: c_int, text: &str) -> c_int {
    let key = (class, text.to_string());
    if let Some(code) = codes().get(&key) {
        return *code;
    }
    let text = [text.as_bytes(), &[0]].concat();
    let mut code = class;
    // The lock is not held here: a failure runs an error handler, which may call MPI.
    // SAFETY: address of a local variable; the text ends with a zero byte.
    unsafe {
        if ffi::PMPI_Add_error_code(class, &mut code) != 0 {
            return class;
        }
        ffi::PMPI_Add_error_string(code, text.as_ptr().cast_mut().cast());
    }
    codes().insert(key, code);
    code
}

fn codes() -> MutexGuard<'static, BTreeMap<(c_int, String), c_int>> {
    CODES.lock().unwrap_or_else(PoisonError::into_inner)
}
