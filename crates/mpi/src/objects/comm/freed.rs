//! Communicators that were freed while requests still need them. Context, error handler and the number of the handle
//! are kept until the last of those requests is freed (MPI-5.0 section 7.4.3).

use super::Comm;
use std::cell::RefCell;
use std::rc::Rc;

/// Communicators without a handle that requests still use.
#[derive(Default)]
pub struct FreedComms(RefCell<Vec<Rc<Comm>>>);

impl FreedComms {
    /// Makes an empty list.
    pub const fn new() -> Self {
        FreedComms(RefCell::new(Vec::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn add(&self, comm: Rc<Comm>) {
        self.0.borrow_mut().push(comm);
    }

    pub(crate) fn retain(&self, keep: impl FnMut(&Rc<Comm>) -> bool) {
        self.0.borrow_mut().retain(keep);
    }

    /// Drops all communicators of an exiting process.
    pub(crate) fn drop_all(&self) {
        self.0.take();
    }

    pub(crate) fn any(&self, is_it: impl Fn(&Comm) -> bool) -> bool {
        self.0.borrow().iter().any(|comm| is_it(comm))
    }

    /// Returns all communicators.
    pub(crate) fn list(&self) -> Vec<Rc<Comm>> {
        self.0.borrow().clone()
    }

    /// Finds the communicator that had `handle`.
    pub fn find(&self, handle: usize) -> Option<Rc<Comm>> {
        let all = self.0.borrow();
        all.iter().find(|comm| comm.handle.get() == handle).cloned()
    }
}
