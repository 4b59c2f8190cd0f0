//! The three forms of a collective call.
//!
//! **CALL'S BUFFERS.** The buffers of a call are as [`Collective::run`] wants them until the call is complete, or until
//! its request is: each function here asks this of its caller.
#![allow(unsafe_code)]

use super::arguments::Collective;
use super::fabric::drive;
use super::inter::Between;
use super::{nonblocking, open};
use crate::common::consts::MPI_ERR_ARG;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::process::Process;
use std::rc::Rc;

/// How a collective call is made; the pointer is the caller's variable for the request.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// It returns when it is complete.
    Blocking,
    /// `MPI_I...`: it returns at once.
    Nonblocking(*mut usize),
    /// `MPI_..._init`: it begins when it is started, any number of times.
    Persistent(*mut usize),
}

impl Form {
    /// Whether the call returns when it is complete.
    #[inline]
    pub fn is_blocking(self) -> bool {
        matches!(self, Form::Blocking)
    }

    /// Makes the call. It takes its place among the collective calls of the communicator before `read` looks at its
    /// arguments, so that the ranks stay in step when one of them refuses a call.
    ///
    /// # Errors
    /// What `read` returns; those of the call. Of a call that does not block the request has the later ones.
    ///
    /// # Safety
    /// The buffers are as [`Collective::run`] wants them until the call is complete.
    #[inline]
    pub unsafe fn run<C: Collective + 'static>(
        self, p: &Process, comm: usize, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        let comm = p.comm(comm)?;
        // SAFETY: CALL'S BUFFERS.
        unsafe {
            match comm.is_inter() {
                false => self.run_on(p, comm, read),
                true => self.run_between(p, comm, read),
            }
        }
    }

    /// # Safety
    /// As [`Form::run`].
    #[cold]
    #[inline(never)]
    unsafe fn run_between<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        // SAFETY: CALL'S BUFFERS.
        unsafe { self.run_on(p, comm, |comm| read(comm).map(Between)) }
    }

    /// # Safety
    /// As [`Form::run`].
    #[inline]
    unsafe fn run_on<C: Collective + 'static>(
        self, p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
    ) -> Result {
        let (request, made) = match self {
            Form::Blocking => {
                let f = open(p, &comm);
                let call = read(&comm)?;
                // SAFETY: CALL'S BUFFERS.
                return drive(unsafe { call.run(&f) });
            }
            Form::Nonblocking(request) | Form::Persistent(request) if request.is_null() => {
                return Err(Error::new(MPI_ERR_ARG, "the pointer to the request is null"));
            }
            // SAFETY: CALL'S BUFFERS.
            Form::Nonblocking(request) => (request, unsafe { nonblocking::start(p, comm, read)? }),
            // SAFETY: CALL'S BUFFERS, of each start until its completion.
            Form::Persistent(request) => (request, unsafe { nonblocking::prepare(p, comm, read)? }),
        };
        // SAFETY: the variable was seen above not to be null.
        unsafe { request.write(made) };
        Ok(())
    }
}
