//! Probes, and receives of matched messages (MPI 5.0, section 3.8).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, store};
use core::ffi::{c_int, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::p2p::probe;
use fastpath_mpi::p2p::request;
use fastpath_mpi::{Process, Result};

pub unsafe fn probe(
    p: &Process, source: c_int, tag: c_int, comm: usize, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        if let Some(found) = probe::probe(p, "MPI_Probe", source, tag, comm, true, false)? {
            request::write_status(status, found.status);
        }
        Ok(())
    }
}

pub unsafe fn iprobe(
    p: &Process, source: c_int, tag: c_int, comm: usize, flag: *mut c_int, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let found = probe::probe(p, "MPI_Iprobe", source, tag, comm, false, false)?;
        if let Some(found) = &found {
            request::write_status(status, found.status);
        }
        store(flag, found.is_some() as c_int)
    }
}

pub unsafe fn mprobe(
    p: &Process, source: c_int, tag: c_int, comm: usize, message: *mut usize, status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        match probe::probe(p, "MPI_Mprobe", source, tag, comm, true, true)? {
            Some(found) => {
                request::write_status(status, found.status);
                store(message, found.message)
            }
            None => store(message, MPI_MESSAGE_NULL),
        }
    }
}

pub unsafe fn improbe(
    p: &Process, source: c_int, tag: c_int, comm: usize, flag: *mut c_int, message: *mut usize,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let found = probe::probe(p, "MPI_Improbe", source, tag, comm, false, true)?;
        if let Some(found) = &found {
            request::write_status(status, found.status);
            store(message, found.message)?;
        }
        store(flag, found.is_some() as c_int)
    }
}

pub unsafe fn mrecv(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, message: *mut usize,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut request = probe::imrecv(p, buf.cast(), count, datatype, load(message)?)?;
        *message = MPI_MESSAGE_NULL;
        request::wait(p, &mut request, status)
    }
}

pub unsafe fn imrecv(
    p: &Process, buf: *mut c_void, count: i64, datatype: usize, message: *mut usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let made = probe::imrecv(p, buf.cast(), count, datatype, load(message)?)?;
        *message = MPI_MESSAGE_NULL;
        store(request, made)
    }
}
