//! Requests of calls whose buffers in device memory are replaced by copies.
#![allow(unsafe_code)]

use super::{
    Operation, cancel, check_complete, collect, free, make_operation, make_persistent_operation,
    resolve, start, wait,
};
use crate::common::consts::MPI_ERR_REQUEST;
use crate::common::error::{COMPLETE_FIRST, Error, Result};
use crate::common::status::Status;
use crate::objects::staging::CallCopies;
use crate::process::Process;

/// A request on copies. Its results are stored to device memory when it completes.
struct StagedRequest {
    /// Request of the call on the copies.
    inner: usize,
    copies: CallCopies,
    is_active: bool,
    kind: StagedKind,
}

/// Kind of a request on copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StagedKind {
    /// A nonblocking collective call.
    Collective,
    /// A persistent collective call.
    Persistent,
    /// An access of a file. Its request may be freed before it is complete.
    File,
}

impl Operation<Process> for StagedRequest {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        match resolve(p, self.inner).and_then(|named| check_complete(p, &named)) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        self.is_active = false;
        // SAFETY: the request is in a field of `self`, so the pointer is to a variable.
        Some(match unsafe { collect(p, &mut self.inner) } {
            Ok((status, None)) => self.copies.store().map(|()| status),
            Ok((_, Some(error))) | Err(error) => Err(error),
        })
    }

    fn is_composed(&self) -> bool {
        true
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        self.copies.load()?;
        start(p, self.inner)?;
        self.is_active = true;
        Ok(self.poll(p))
    }

    fn cancel(&mut self, p: &Process) -> Result {
        cancel(p, self.inner)
    }

    fn check_free(&self) -> Result {
        match self.is_active && self.kind != StagedKind::File {
            false => Ok(()),
            true => {
                let text = "the request uses device memory, is active and cannot be freed before \
                            it is complete";
                Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST)))
            }
        }
    }

    fn free(&mut self, p: &Process) -> Result {
        // SAFETY: the request is in a field of `self`, so the pointer is to a variable.
        unsafe {
            match self.kind {
                StagedKind::Persistent => free(p, &mut self.inner),
                // The copy is needed until the access is complete.
                StagedKind::File if self.is_active => {
                    wait(p, &mut self.inner, std::ptr::null_mut())?;
                    self.copies.store()
                }
                _ => Ok(()),
            }
        }
    }
}

/// Returns a request that completes with the request `inner`, after the results of the call are stored. Both
/// requests are persistent, or neither.
pub(crate) fn make_staged(
    p: &Process, inner: usize, copies: CallCopies, kind: StagedKind,
) -> Result<usize> {
    let restarts = kind == StagedKind::Persistent;
    let request = Box::new(StagedRequest { inner, copies, is_active: !restarts, kind });
    match restarts {
        true => make_persistent_operation(p, request),
        false => make_operation(p, request),
    }
}
