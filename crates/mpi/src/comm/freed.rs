//! Communicators that were freed while requests still need them: context, error handler and the number of the handle
//! are kept until the last of those is freed too (MPI-5.0 section 7.4.3).

use super::Comm;
use crate::errhandler;
use crate::places;
use crate::process::Process;
use crate::request;
use std::cell::RefCell;
use std::rc::Rc;

/// The communicators that no handle names any more, but requests do.
#[derive(Default)]
pub struct Freed(RefCell<Vec<Rc<Comm>>>);

impl Freed {
    /// None.
    pub const fn new() -> Self {
        Freed(RefCell::new(Vec::new()))
    }

    /// The one that had this handle.
    pub fn find(&self, handle: usize) -> Option<Rc<Comm>> {
        let all = self.0.borrow();
        all.iter().find(|comm| comm.handle.get() == handle).cloned()
    }
}

/// Takes a communicator whose handle has just been freed.
pub(super) fn add(p: &Process, comm: Rc<Comm>) {
    p.freed_comms.0.borrow_mut().push(comm);
    release_unused(p);
}

/// Gives back what no request needs any more. Walks all requests, but where there is nothing to give back.
pub fn release_unused(p: &Process) {
    if p.freed_comms.0.borrow().is_empty() {
        return;
    }
    let needed = request::comms_in_use(p);
    p.freed_comms.0.borrow_mut().retain(|comm| {
        let keep = needed.contains(&comm.handle.get());
        if !keep {
            p.spare_buffers.put(&comm.buffer);
            errhandler::detach(p, comm.errhandler.get());
            p.contexts.release(comm.my_world_rank(), comm.context);
            if comm.place != 0 {
                places::keep_title(comm.handle.get(), None);
            }
            p.comms.reuse(comm.handle.get());
        }
        keep
    });
}
