//! Tables of MPI objects, and the encoding of their handles.
//!
//! A predefined handle is an integer from 1 to 4095, fixed by the standard ABI. A handle made at run time is `1 << 30 |
//! generation << 22 | index`. It fits a positive C `int`, so `MPI_X_toint` returns the value itself. It is never an
//! address, and a stale or invalid handle is detected.

use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;

/// Bit that marks a handle made at run time.
pub const USER_BIT: usize = 1 << 30;
/// Number of bits of the index part.
pub const INDEX_BITS: u32 = 22;
/// Mask of the index part.
pub const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
/// Number of generations of a slot, after which its handles repeat.
const GENERATIONS: u32 = 256;
/// Smallest index of a run-time handle. The ABI reserves smaller numbers for predefined handles.
pub const FIRST_USER: usize = 4096;

struct TableSlot<T> {
    generation: u32,
    object: Option<Rc<T>>,
}

struct Inner<T> {
    predefined: Vec<Option<Rc<T>>>,
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
    /// Objects that [`HandleTable::get_visible`] does not find, with their handles.
    hidden: Vec<(usize, Rc<T>)>,
}

impl<T> Inner<T> {
    const EMPTY: Inner<T> =
        Inner { predefined: Vec::new(), slots: Vec::new(), free: Vec::new(), hidden: Vec::new() };

    fn slot_mut(&mut self, handle: usize) -> Option<&mut Option<Rc<T>>> {
        if handle < FIRST_USER {
            return self.predefined.get_mut(handle);
        }
        let index = slot_index(handle)?;
        let slot = self.slots.get_mut(index)?;
        (encode(slot.generation, index) == handle).then_some(&mut slot.object)
    }

    /// Makes a hidden object visible again.
    fn show(&mut self, handle: usize) {
        let Some(at) = self.hidden.iter().position(|(hidden, _)| *hidden == handle) else { return };
        let (_, object) = self.hidden.swap_remove(at);
        if let Some(slot) = self.slot_mut(handle) {
            *slot = Some(object);
        }
    }
}

/// Table of objects of one kind. No method calls user code while it borrows the contents.
pub struct HandleTable<T> {
    inner: RefCell<Inner<T>>,
}

/// Kind of object with handles, and the texts of its error messages.
pub trait HandleKind {
    /// Name of the kind.
    const NOUN: &'static str;
    /// Value and name of the null handle.
    const NULL: (usize, &'static str);
    /// Error class of an invalid handle.
    const CLASS: i32;
}

impl<T: HandleKind> HandleTable<T> {
    /// Returns the object of `handle`. Errors: class [`HandleKind::CLASS`] if the handle is null, stale or invalid.
    #[inline]
    pub fn find(&self, handle: usize) -> Result<Rc<T>> {
        match self.get(handle) {
            Some(object) => Ok(object),
            None => Err(refuse_handle::<T>(handle)),
        }
    }

    /// Stores an object that an MPI call returns, and returns its handle. Errors: `MPI_ERR_OTHER` if no handle is free.
    pub fn publish(&self, object: impl Into<Rc<T>>) -> Result<usize> {
        self.insert_rc(object.into()).ok_or_else(|| {
            let noun = T::NOUN;
            let text = format!("all {noun} handles are in use: free some {noun}s");
            Error::new(MPI_ERR_OTHER, text)
        })
    }
}

#[cold]
#[inline(never)]
fn refuse_handle<T: HandleKind>(handle: usize) -> Error {
    let (noun, (null, name)) = (T::NOUN, T::NULL);
    let text = match handle == null {
        true => format!("the {noun} is {name}"),
        false => format!("invalid {noun} handle {handle:#x}: never made, or freed already"),
    };
    Error::new(T::CLASS, text)
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> HandleTable<T> {
    /// Makes an empty table.
    pub const fn new() -> Self {
        HandleTable { inner: RefCell::new(Inner::EMPTY) }
    }

    /// Stores `object` and returns its handle, or `None` if all indices are in use.
    pub fn insert(&self, object: T) -> Option<usize> {
        self.insert_rc(Rc::new(object))
    }

    /// Stores a shared object and returns its handle, or `None` if all indices are in use.
    pub fn insert_rc(&self, object: Rc<T>) -> Option<usize> {
        let inner = &mut *self.inner.borrow_mut();
        let index = match inner.free.pop() {
            Some(index) => index as usize,
            None => {
                if inner.slots.len() + FIRST_USER > INDEX_MASK {
                    return None;
                }
                inner.slots.push(TableSlot { generation: 0, object: None });
                inner.slots.len() - 1
            }
        };
        let slot = &mut inner.slots[index];
        slot.object = Some(object);
        Some(encode(slot.generation, index))
    }

    /// Stores an object under a handle that the ABI predefines (1 to 4095).
    pub fn insert_predefined(&self, handle: usize, object: T) {
        debug_assert!((1..FIRST_USER).contains(&handle));
        let mut inner = self.inner.borrow_mut();
        if inner.predefined.len() <= handle {
            inner.predefined.resize_with(handle + 1, || None);
        }
        inner.predefined[handle] = Some(Rc::new(object));
    }

    /// Removes and returns the object of a predefined handle.
    pub fn remove_predefined(&self, handle: usize) -> Option<Rc<T>> {
        let mut inner = self.inner.borrow_mut();
        inner.show(handle);
        inner.predefined.get_mut(handle)?.take()
    }

    /// Returns the object of `handle`, or `None` if the handle is null, stale or invalid.
    pub fn get(&self, handle: usize) -> Option<Rc<T>> {
        self.get_visible(handle).or_else(|| self.get_hidden(handle))
    }

    #[cold]
    #[inline(never)]
    fn get_hidden(&self, handle: usize) -> Option<Rc<T>> {
        let inner = self.inner.borrow();
        inner.hidden.iter().find(|(hidden, _)| *hidden == handle).map(|(_, object)| object.clone())
    }

    /// Hides an object: from now on [`HandleTable::get`] finds it, and [`HandleTable::get_visible`] does not.
    pub fn hide(&self, handle: usize) {
        let mut inner = self.inner.borrow_mut();
        if let Some(object) = inner.slot_mut(handle).and_then(Option::take) {
            inner.hidden.push((handle, object));
        }
    }

    /// Returns the object of `handle`, or `None` if the object is hidden, or the handle null, stale or invalid.
    pub fn get_visible(&self, handle: usize) -> Option<Rc<T>> {
        let inner = self.inner.borrow();
        if handle < FIRST_USER {
            return inner.predefined.get(handle)?.clone();
        }
        let slot = inner.slots.get(slot_index(handle)?)?;
        if encode(slot.generation, slot_index(handle)?) != handle {
            return None;
        }
        slot.object.clone()
    }

    /// Removes and returns the object of a run-time handle. The handle becomes stale.
    pub fn remove(&self, handle: usize) -> Option<Rc<T>> {
        let object = self.withdraw(handle)?;
        self.reuse(handle);
        Some(object)
    }

    /// Removes the object of `handle`. No other object gets the handle before [`HandleTable::reuse`].
    pub fn withdraw(&self, handle: usize) -> Option<Rc<T>> {
        let mut inner = self.inner.borrow_mut();
        inner.show(handle);
        slot_index(handle)?;
        inner.slot_mut(handle)?.take()
    }

    /// Makes the handle of a withdrawn object available again.
    pub fn reuse(&self, handle: usize) {
        let Some(index) = slot_index(handle) else {
            return;
        };
        let inner = &mut *self.inner.borrow_mut();
        let Some(slot) = inner.slots.get_mut(index) else {
            return;
        };
        let is_hidden = inner.hidden.iter().any(|(hidden, _)| *hidden == handle);
        if encode(slot.generation, index) == handle && slot.object.is_none() && !is_hidden {
            slot.generation = (slot.generation + 1) % GENERATIONS;
            inner.free.push(index as u32);
        }
    }

    /// Returns the handles of all living run-time objects.
    pub fn handles(&self) -> Vec<usize> {
        let inner = self.inner.borrow();
        let slots = inner.slots.iter().enumerate().filter(|(_, s)| s.object.is_some());
        let hidden = inner.hidden.iter().map(|(handle, _)| *handle);
        let hidden = hidden.filter(|&handle| handle >= FIRST_USER);
        slots.map(|(i, s)| encode(s.generation, i)).chain(hidden).collect()
    }

    /// Removes all objects, including predefined ones.
    pub fn clear(&self) {
        // Objects are dropped outside the borrow, because a drop may use this table.
        drop(self.inner.replace(Inner::EMPTY));
    }
}

fn encode(generation: u32, slot: usize) -> usize {
    USER_BIT | (generation as usize) << INDEX_BITS | (slot + FIRST_USER)
}

fn slot_index(handle: usize) -> Option<usize> {
    if handle & !(USER_BIT | (USER_BIT - 1)) != 0 || handle & USER_BIT == 0 {
        return None;
    }
    (handle & INDEX_MASK).checked_sub(FIRST_USER)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn handle__fits_a_positive_int_and_is_not_predefined() {
        let table = HandleTable::new();
        for _ in 0..10 {
            let handle = table.insert(1).unwrap();
            assert!(handle > FIRST_USER && handle <= i32::MAX as usize);
        }
    }

    #[test]
    fn handle__of_a_withdrawn_object_is_no_others_until_it_may_be() {
        let table = HandleTable::new();
        let kept = table.insert(0).unwrap();
        assert_eq!(table.withdraw(kept).as_deref(), Some(&0));
        assert!(table.get(kept).is_none() && table.withdraw(kept).is_none());
        for round in 0..2 * GENERATIONS {
            let other = table.insert(round).unwrap();
            assert_ne!(other, kept);
            table.remove(other).unwrap();
        }
        table.reuse(kept);
        table.reuse(kept);
        let (a, b) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_ne!(a, b);
    }

    #[test]
    fn hidden_object__keeps_its_handle_and_can_be_removed() {
        let table = HandleTable::new();
        table.insert_predefined(7, "world");
        let made = table.insert("made").unwrap();
        for handle in [7, made] {
            table.hide(handle);
            table.hide(handle);
            assert!(table.get_visible(handle).is_none() && table.get(handle).is_some());
        }
        assert_eq!(table.handles(), [made]);
        table.reuse(made);
        let other = table.insert("other").unwrap();
        assert_ne!(other & INDEX_MASK, made & INDEX_MASK);
        assert_eq!(table.remove(made).as_deref(), Some(&"made"));
        assert_eq!(table.remove_predefined(7).as_deref(), Some(&"world"));
        assert!(table.get(made).is_none() && table.get(7).is_none());
        assert_eq!(table.insert("next").unwrap() & INDEX_MASK, made & INDEX_MASK);
    }

    #[test]
    fn handle__stale_and_garbage_are_refused() {
        let table = HandleTable::new();
        let first = table.insert("a").unwrap();
        assert_eq!(*table.remove(first).unwrap(), "a");
        let second = table.insert("b").unwrap();
        assert_ne!(first, second);
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        for garbage in [0, 1, 4095, 4096, usize::MAX, second | 1 << 40, 0x7fff_0000_1234] {
            assert!(table.get(garbage).is_none(), "{garbage:#x}");
        }
    }
}
