//! Accesses with a request (MPI 5.0, sections 14.4.2 to 14.4.4). The helper thread performs large independent accesses.
//! Collective accesses advance in any call that makes progress. Short independent accesses are complete when the call
//! that starts them returns.
//!
//! **ELEMENTS.** The elements in memory are readable or writable as in `access`, until the request completes.
#![allow(unsafe_code)]

use super::access::{Access, AccessTarget, FilePlace, Memory, stage};
use super::{AccessFailure, File, collective, helper};
use crate::coll::nonblocking::start_status;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::staging::CallCopies;
use crate::p2p::request::{Operation, PollCondition, StagedKind, make_operation, make_staged};
use crate::process::Process;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use fastpath_io::IoError;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum size, in bytes, of an access for the helper thread. A smaller access takes no longer than waking the thread.
const HELPED_BYTES: u64 = 1 << 16;

impl File {
    /// Starts a read or write with a request. Errors: those of an independent access's arguments. The request reports
    /// later errors.
    ///
    /// # Safety
    /// See ELEMENTS.
    pub unsafe fn start(self: Rc<Self>, p: &Process, access: &Access) -> Result<usize> {
        let mut copies = CallCopies::default();
        let staged = stage(p, access, &mut copies);
        // SAFETY: ELEMENTS. The copies live until the request completes.
        let inner = unsafe {
            match staged {
                Ok(access) => self.start_in_memory(p, &access, None)?,
                // The other ranks of a collective access need this rank.
                Err(error) if access.collective => self.start_in_memory(p, access, Some(error))?,
                Err(error) => return Err(error),
            }
        };
        match copies.is_empty() {
            true => Ok(inner),
            false => make_staged(p, inner, copies, StagedKind::File),
        }
    }

    /// Starts an access of elements in host memory. The access fails with the error `refused`, if there is one. Safety:
    /// see ELEMENTS.
    unsafe fn start_in_memory(
        self: Rc<Self>, p: &Process, access: &Access, refused: Option<Error>,
    ) -> Result<usize> {
        // SAFETY: ELEMENTS.
        unsafe {
            if access.collective && self.comm.size() > 1 {
                return self.start_collective(p, access, refused);
            }
            if let Some(error) = refused {
                return Err(error);
            }
            if let Some(request) = self.clone().start_helped(p, access)? {
                return Ok(request);
            }
            let status = self.access(p, access)?;
            make_operation(p, Box::new(CompletedAccess(status)))
        }
    }

    /// Starts a collective access on several ranks. Safety: see ELEMENTS.
    unsafe fn start_collective(
        self: Rc<Self>, p: &Process, access: &Access, refused: Option<Error>,
    ) -> Result<usize> {
        let checked = refused.map_or_else(|| self.check(p, access), Err);
        let from = match access.place {
            FilePlace::At(offset) => offset,
            _ => self.position.get(),
        };
        if let (FilePlace::Individual, Ok(checked)) = (access.place, &checked) {
            self.position.set(from + checked.units);
        }
        let located = checked.and_then(|checked| self.locate(checked, from));
        let (access, comm, handle) = (*access, self.comm.clone(), self.handle.get());
        let datatype = p.datatype(access.datatype).ok();
        let calls_back = self.converts(access.writes);
        start_status(p, comm, calls_back, move |f| async move {
            // SAFETY: ELEMENTS.
            let moved = unsafe { collective::run(&f, &self, &access, located).await };
            let status =
                moved.and_then(|bytes| self.status_of(&access, datatype.as_deref(), bytes));
            status.map_err(|error| error.on_file(handle))
        })
    }

    /// Submits an access to the helper thread. Returns `None` if it is short, needs conversion, or the thread is
    /// disabled.
    ///
    /// # Safety
    /// See ELEMENTS.
    unsafe fn start_helped(self: Rc<Self>, p: &Process, access: &Access) -> Result<Option<usize>> {
        let is_off = p.engine().is_none_or(|e| e.config.is_disabled("file-thread"));
        if is_off || self.converts(access.writes) {
            return Ok(None);
        }
        let checked = self.check(p, access)?;
        if checked.bytes < HELPED_BYTES {
            return Ok(None);
        }
        let units = checked.units;
        let from = match access.place {
            FilePlace::At(offset) => offset,
            FilePlace::Individual => self.position.get(),
            FilePlace::Shared | FilePlace::Ordered => self.take_shared(p, units)?,
        };
        let located = self.locate(checked, from)?;
        if access.place == FilePlace::Individual {
            self.position.set(from + units);
        }
        let work = Work {
            to: self.make_target(&located).map_err(|refused| self.explain(refused))?,
            memory: Memory::of(access, &located.checked),
        };
        // SAFETY: the worker lives while MPI runs.
        let wake = unsafe { (*p.worker()?).waker() };
        let done = Arc::new(HelperOutcome::default());
        let theirs = done.clone();
        let job = move || {
            theirs.set(work.run());
            wake();
        };
        if let Err(job) = helper::submit(job) {
            job();
        }
        make_operation(p, Box::new(HelperRequest { done, file: self })).map(Some)
    }
}

struct Work {
    to: AccessTarget,
    memory: Memory,
}

// SAFETY: the program does not use the memory until the request has completed. Everything else is owned by the thread
// or shared by an `Arc`.
unsafe impl Send for Work {}

impl Work {
    fn run(self) -> std::result::Result<u64, IoError> {
        // SAFETY: ELEMENTS: `File::check` has verified the arguments.
        unsafe { self.to.move_bytes(&self.memory) }
    }
}

#[derive(Default)]
struct HelperOutcome {
    is_over: StaticBool,
    outcome: Mutex<Option<std::result::Result<u64, IoError>>>,
}

impl HelperOutcome {
    fn set(&self, outcome: std::result::Result<u64, IoError>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        // ORDERING: release, pairs with the acquire in `take`: the bytes that were read are visible.
        self.is_over.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<std::result::Result<u64, IoError>> {
        // ORDERING: acquire, pairs with the release in `set`.
        if !self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.take()
    }
}

struct HelperRequest {
    done: Arc<HelperOutcome>,
    file: Rc<File>,
}

impl Operation<Process> for HelperRequest {
    fn poll(&mut self, _: &Process) -> Option<Result<Status>> {
        let handle = self.file.handle.get();
        Some(match self.done.take()? {
            Ok(bytes) => Ok(Status::new(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_SUCCESS, bytes as i64)),
            Err(error) => {
                let error: Error = self.file.explain(AccessFailure::System(error));
                Err(error.on_file(handle))
            }
        })
    }

    fn watch(&self) -> PollCondition {
        PollCondition::Always
    }
}

struct CompletedAccess(Status);

impl Operation<Process> for CompletedAccess {
    fn poll(&mut self, _p: &Process) -> Option<Result<Status>> {
        Some(Ok(self.0))
    }
}
