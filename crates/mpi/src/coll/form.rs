//! The three forms of a collective call.
//!
//! **CALL'S BUFFERS.** The buffers of a call satisfy [`Collective::run`] until the call, or its request, is complete.
//! Each unsafe function here requires CALL'S BUFFERS of its caller.
#![allow(unsafe_code)]

use super::arguments::Collective;
use super::fabric::drive;
use super::inter::InterCollective;
use super::{lines, nonblocking, open};
use crate::common::consts::MPI_ERR_ARG;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::staging::CallCopies;
use crate::p2p::request::{StagedKind, make_staged};
use crate::process::Process;
use fastpath_base::device;
use std::rc::Rc;

/// Form of a collective call, with the address of the request.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// Blocking call: returns when it is complete.
    Blocking,
    /// `MPI_I...`: the call returns at once. The value is the address of the request.
    Nonblocking(*mut usize),
    /// `MPI_..._init`: the call begins at each start. The value is the address of the request.
    Persistent(*mut usize),
}

impl Form {
    /// Returns whether the call returns when it is complete.
    #[inline]
    pub fn is_blocking(self) -> bool {
        matches!(self, Form::Blocking)
    }

    /// Executes the call. The call is counted before `read` checks the arguments, so that a rank that refuses the call
    /// has counted it too. Errors: those of `read` and of the call. The request of a nonblocking call reports later
    /// errors.
    ///
    /// # Safety
    /// See CALL'S BUFFERS.
    #[inline]
    pub unsafe fn run<C: Collective + 'static>(
        self, p: &Process, comm: usize, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        let comm = p.comm(comm)?;
        // SAFETY: CALL'S BUFFERS.
        unsafe {
            match device::may_appear() {
                false => self.run_in_memory(p, comm, read),
                true => self.run_staged(p, comm, read),
            }
        }
    }

    /// Executes a call whose buffers are in host memory. Safety: see CALL'S BUFFERS.
    #[inline]
    unsafe fn run_in_memory<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        // SAFETY: CALL'S BUFFERS.
        unsafe {
            match comm.is_inter() {
                false => self.run_on(p, comm, read),
                true => self.run_between(p, comm, read),
            }
        }
    }

    /// Executes a call whose buffers may be in device memory. `read` replaces those by copies. Safety: see CALL'S
    /// BUFFERS.
    #[cold]
    #[inline(never)]
    unsafe fn run_staged<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        // A function of the program that the call runs may make another call.
        let outer = p.staged.exchange(CallCopies::default());
        let mut copies = CallCopies::default();
        let read = |comm: &Comm| {
            let call = read(comm);
            copies = p.staged.exchange(CallCopies::default());
            call
        };
        // SAFETY: CALL'S BUFFERS.
        let result = unsafe { self.run_in_memory(p, comm, read) };
        p.staged.exchange(outer);
        if copies.is_empty() {
            return result;
        }
        result?;
        let (request, kind) = match self {
            Form::Blocking => return copies.store(),
            Form::Nonblocking(request) => (request, StagedKind::Collective),
            Form::Persistent(request) => (request, StagedKind::Persistent),
        };
        // SAFETY: the call has stored its request there.
        unsafe { request.write(make_staged(p, request.read(), copies, kind)?) };
        Ok(())
    }

    /// Executes the call on an intercommunicator. Safety: see CALL'S BUFFERS.
    #[cold]
    #[inline(never)]
    unsafe fn run_between<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        // SAFETY: CALL'S BUFFERS.
        unsafe { self.run_on(p, comm, |comm| read(comm).map(InterCollective)) }
    }

    /// Executes the call with the arguments that `read` returns. Safety: see CALL'S BUFFERS.
    #[inline]
    unsafe fn run_on<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        let (request, made) = match self {
            Form::Blocking => {
                let f = open(p, &comm);
                let result = match read(&comm) {
                    // SAFETY: CALL'S BUFFERS.
                    Ok(call) => drive(unsafe { call.run(&f) }),
                    Err(error) => Err(error),
                };
                if result.is_err() {
                    lines::mapped::end_failed(&f);
                }
                return result;
            }
            Form::Nonblocking(request) | Form::Persistent(request) if request.is_null() => {
                return Err(Error::new(
                    MPI_ERR_ARG,
                    "the address of the request is NULL: pass the address of a variable for the \
                     request",
                ));
            }
            // SAFETY: CALL'S BUFFERS.
            Form::Nonblocking(request) => (request, unsafe { nonblocking::start(p, comm, read)? }),
            // SAFETY: CALL'S BUFFERS hold from each start to its completion.
            Form::Persistent(request) => (request, unsafe { nonblocking::prepare(p, comm, read)? }),
        };
        // SAFETY: the pointer is not null, as checked above, and so points to a variable.
        unsafe { request.write(made) };
        Ok(())
    }
}
