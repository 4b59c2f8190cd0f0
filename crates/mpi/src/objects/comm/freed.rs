//! Communicators that were freed while requests still need them: context, error handler and the number of the handle
//! are kept until the last of those is freed too (MPI-5.0 section 7.4.3).

use super::Comm;
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

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Takes a communicator whose handle has just been freed.
    pub(crate) fn add(&self, comm: Rc<Comm>) {
        self.0.borrow_mut().push(comm);
    }

    /// Gives up those that are not to be kept.
    pub(crate) fn retain(&self, keep: impl FnMut(&Rc<Comm>) -> bool) {
        self.0.borrow_mut().retain(keep);
    }

    /// Returns whether `is_it` holds for a kept communicator.
    pub(crate) fn any(&self, is_it: impl Fn(&Comm) -> bool) -> bool {
        self.0.borrow().iter().any(|comm| is_it(comm))
    }

    /// The one that had this handle.
    pub fn find(&self, handle: usize) -> Option<Rc<Comm>> {
        let all = self.0.borrow();
        all.iter().find(|comm| comm.handle.get() == handle).cloned()
    }
}
