//! Accesses with a request (MPI 5.0, sections 14.4.2 to 14.4.4): large independent ones are left to a thread, the
//! collective ones proceed in any call that makes progress, and short ones are complete when they begin.
//!
//! **ELEMENTS.** As in `access`, until the request has completed: the elements in memory are readable or writable as
//! the access says.
#![allow(unsafe_code)]

use super::access::{Access, FilePlace, Memory, Target};
use super::{File, Refused, collective, helper};
use crate::coll::nonblocking::start_status;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::p2p::request::{Operation, Watch, make_operation};
use crate::process::Process;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use fastpath_io::IoError;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes from which a thread is worth waking: below, the system's call takes no longer than that.
const HELPED_BYTES: u64 = 1 << 16;

impl File {
    /// Reads or writes with a request.
    ///
    /// # Errors
    /// Those of the arguments of an independent access; later errors are the request's.
    ///
    /// # Safety
    /// As [`File::access`], until the request has completed.
    pub unsafe fn start(self: Rc<Self>, p: &Process, access: &Access) -> Result<usize> {
        // SAFETY: ELEMENTS.
        unsafe {
            if access.collective && self.comm.size() > 1 {
                return self.start_collective(p, access);
            }
            if let Some(request) = self.clone().start_helped(p, access)? {
                return Ok(request);
            }
            let status = self.access(p, access)?;
            make_operation(p, Box::new(Moved(status)))
        }
    }

    /// # Safety
    /// As [`File::start`].
    unsafe fn start_collective(self: Rc<Self>, p: &Process, access: &Access) -> Result<usize> {
        let checked = self.check(p, access);
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

    /// Leaves an access to the thread; none where it is short, goes through a conversion, or there is no thread.
    ///
    /// # Safety
    /// As [`File::start`].
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
        let done = Arc::new(Done::default());
        let theirs = done.clone();
        let job = move || {
            theirs.set(work.run());
            wake();
        };
        if let Err(job) = helper::submit(job) {
            job();
        }
        make_operation(p, Box::new(Helped { done, file: self })).map(Some)
    }
}

/// What the thread does.
struct Work {
    to: Target,
    memory: Memory,
}

// SAFETY: the program leaves the memory alone until the request has completed; everything else is the thread's own, or
// shared by an `Arc`.
unsafe impl Send for Work {}

impl Work {
    fn run(self) -> std::result::Result<u64, IoError> {
        // SAFETY: ELEMENTS: `File::start` has checked what the memory holds.
        unsafe { self.to.move_bytes(&self.memory) }
    }
}

/// How an access has ended, if it has.
#[derive(Default)]
struct Done {
    is_over: StaticBool,
    outcome: Mutex<Option<std::result::Result<u64, IoError>>>,
}

impl Done {
    fn set(&self, outcome: std::result::Result<u64, IoError>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        // ORDERING: release, with the acquire in `take`: the bytes that were read are there.
        self.is_over.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<std::result::Result<u64, IoError>> {
        // ORDERING: acquire, with the release in `set`.
        if !self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.take()
    }
}

/// An access that the thread carries out.
struct Helped {
    done: Arc<Done>,
    file: Rc<File>,
}

impl Operation<Process> for Helped {
    fn poll(&mut self, _: &Process) -> Option<Result<Status>> {
        let handle = self.file.handle.get();
        Some(match self.done.take()? {
            Ok(bytes) => Ok(Status::new(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_SUCCESS, bytes as i64)),
            Err(error) => {
                let error: Error = self.file.explain(Refused::System(error));
                Err(error.on_file(handle))
            }
        })
    }

    fn watch(&self) -> Watch {
        Watch::Always
    }
}

/// An access that is over.
struct Moved(Status);

impl Operation<Process> for Moved {
    fn poll(&mut self, _p: &Process) -> Option<Result<Status>> {
        Some(Ok(self.0))
    }
}
