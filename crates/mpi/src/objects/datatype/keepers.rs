//! Handles that stay while the program's functions may still be called with them.
//!
//! A collective call that does not block gives a user's operation the handle of its datatype, and the program may free
//! that datatype as soon as the call has returned (MPI-5.0 section 5.1.9).

use super::Datatype;
use std::cell::Cell;
use std::rc::Rc;

/// How many calls keep the handle, and what takes it out of the table when the last of them ends, after the program has
/// freed it.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    count: Cell<u32>,
    remove: Cell<Option<fn(usize)>>,
}

impl Clone for Keepers {
    /// A copy of a datatype has a handle of its own, without keepers.
    fn clone(&self) -> Self {
        Keepers::default()
    }
}

/// A datatype with its handle, which names it as long as this object lives.
pub struct Kept {
    datatype: Rc<Datatype>,
    handle: usize,
}

impl Kept {
    /// Keeps the handle.
    pub fn new(datatype: Rc<Datatype>, handle: usize) -> Self {
        let count = &datatype.keepers.count;
        count.set(count.get() + 1);
        Kept { datatype, handle }
    }

    /// The datatype and its handle.
    pub fn typed(&self) -> (&Datatype, usize) {
        (&self.datatype, self.handle)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Keepers { count, remove } = &self.datatype.keepers;
        count.set(count.get() - 1);
        if let (0, Some(remove)) = (count.get(), remove.get()) {
            remove(self.handle);
        }
    }
}

impl Datatype {
    /// Takes the handle from the table by `remove`, now or when the last call that needs it has ended.
    pub fn free_handle(&self, handle: usize, remove: fn(usize)) {
        match self.keepers.count.get() {
            0 => remove(handle),
            _ => self.keepers.remove.set(Some(remove)),
        }
    }

    /// Whether the program has freed the handle.
    pub fn is_freed(&self) -> bool {
        self.keepers.remove.get().is_some()
    }
}
