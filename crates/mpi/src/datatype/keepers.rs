//! Handles that stay while the program's functions may still be called with them.
//!
//! A collective call that does not block gives a user's operation the handle of its datatype, and the program may free
//! that datatype as soon as the call has returned (MPI-5.0 section 5.1.9).
#![allow(unsafe_code)]

use super::Datatype;
use crate::process::{self, Process};
use std::cell::Cell;
use std::rc::Rc;

/// How many calls keep the handle, and whether the program has freed it.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    count: Cell<u32>,
    freed: Cell<bool>,
}

impl Clone for Keepers {
    /// A copy of a datatype has a handle of its own, which nobody keeps.
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
        let Keepers { count, freed } = &self.datatype.keepers;
        count.set(count.get() - 1);
        if count.get() == 0 && freed.get() {
            // SAFETY: calls end inside MPI.
            unsafe { process::get_unlocked() }.types.remove(self.handle);
        }
    }
}

impl Datatype {
    /// Takes the handle from the table, now or when the last call that needs it has ended.
    pub fn free_handle(&self, p: &Process, handle: usize) {
        p.hot_type_clear(handle);
        match self.keepers.count.get() {
            0 => _ = p.types.remove(handle),
            _ => self.keepers.freed.set(true),
        }
    }

    /// Whether the program has freed the handle.
    pub fn is_freed(&self) -> bool {
        self.keepers.freed.get()
    }
}
