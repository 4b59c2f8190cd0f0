//! State shared by an interface and its endpoints.
//!
//! A `RefCell` check costs a few instructions for each message. One invariant makes it unnecessary:
//!
//! **ONE CALL AT A TIME.** A reference to the core lives within one call of an interface or an endpoint. While a call
//! holds a reference, it runs only the transport's own code and calls no interface and no endpoint. It holds no
//! reference while it calls the `pack` closure of a message. Interfaces and endpoints hold an `Rc`, which keeps them in
//! one thread or under one lock.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

pub(super) struct SharedCore<C>(Rc<RefCell<C>>);

impl<C> SharedCore<C> {
    pub fn new(core: C) -> Self {
        SharedCore(Rc::new(RefCell::new(core)))
    }

    /// Returns the core. Only debug builds check that no other reference to it exists.
    ///
    /// # Safety
    /// The caller obeys ONE CALL AT A TIME, which the head of this file states.
    #[inline]
    pub unsafe fn core(&mut self) -> &mut C {
        debug_assert!(self.0.try_borrow_mut().is_ok(), "a call within a call");
        // SAFETY: the memory lives as long as `self`. By ONE CALL AT A TIME there is no other reference, and none is
        // made while this one lives.
        unsafe { &mut *self.0.as_ptr() }
    }
}

impl<C> Clone for SharedCore<C> {
    fn clone(&self) -> Self {
        SharedCore(self.0.clone())
    }
}

/// Access by checked borrows, for code that does not run for each message.
impl<C> Deref for SharedCore<C> {
    type Target = RefCell<C>;

    fn deref(&self) -> &RefCell<C> {
        &self.0
    }
}
