//! Handles that outlive their release by the program, because the program's functions may still be called with them.
//!
//! A nonblocking collective call passes the handle of its datatype to the user's operation. The program may free that
//! datatype as soon as the call has returned (MPI-5.0 section 5.1.9).

use super::Datatype;
use std::cell::Cell;
use std::rc::Rc;

/// Number of calls that need the handle. If the program has freed the handle, also the function that removes it after
/// the last of these calls.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    count: Cell<u32>,
    remove: Cell<Option<fn(usize)>>,
}

impl Clone for Keepers {
    /// Returns an empty count, because the copy of a datatype has its own handle.
    fn clone(&self) -> Self {
        Keepers::default()
    }
}

/// Datatype whose handle stays valid during the life of this object.
pub struct DatatypeKeeper {
    datatype: Rc<Datatype>,
    handle: usize,
}

impl DatatypeKeeper {
    /// Keeps `handle`, the caller's handle of `datatype`, valid until the drop.
    pub fn new(datatype: Rc<Datatype>, handle: usize) -> Self {
        let count = &datatype.keepers.count;
        count.set(count.get() + 1);
        DatatypeKeeper { datatype, handle }
    }

    /// Returns the datatype and its handle.
    pub fn typed(&self) -> (&Datatype, usize) {
        (&self.datatype, self.handle)
    }
}

impl Drop for DatatypeKeeper {
    fn drop(&mut self) {
        let Keepers { count, remove } = &self.datatype.keepers;
        count.set(count.get() - 1);
        if let (0, Some(remove)) = (count.get(), remove.get()) {
            remove(self.handle);
        }
    }
}

impl Datatype {
    /// Removes the handle from the table by `remove`, now or when the last call that needs it has ended.
    pub fn free_handle(&self, handle: usize, remove: fn(usize)) {
        match self.keepers.count.get() {
            0 => remove(handle),
            _ => self.keepers.remove.set(Some(remove)),
        }
    }

    /// Returns whether the program has freed the handle.
    pub fn is_freed(&self) -> bool {
        self.keepers.remove.get().is_some()
    }
}
