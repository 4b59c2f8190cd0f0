//! What the interface of a transport and its endpoints share.
//!
//! The check that a `RefCell` makes at each call costs a message a few instructions, and finds what cannot be:
//!
//! **ONE CALL AT A TIME.** A reference to the core lives within one call of an interface or an endpoint. What such a
//! call does meanwhile is the transport's own and calls no interface and no endpoint; what it is given to call, the
//! `pack` of a message, it calls while it holds no reference. An interface and its endpoints stay in one thread, or are
//! under one lock, since they hold an `Rc`.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

/// A core, of which the interface and each endpoint have one of these.
pub(super) struct Shared<C>(Rc<RefCell<C>>);

impl<C> Shared<C> {
    pub fn new(core: C) -> Self {
        Shared(Rc::new(RefCell::new(core)))
    }

    /// The core, unchecked but in debug builds.
    ///
    /// # Safety
    /// ONE CALL AT A TIME, above, holds for the caller.
    #[inline]
    pub unsafe fn core(&mut self) -> &mut C {
        debug_assert!(self.0.try_borrow_mut().is_ok(), "a call within a call");
        // SAFETY: the memory lives as long as `self`. By ONE CALL AT A TIME nobody else has a reference now, and nobody
        // makes one before this ends.
        unsafe { &mut *self.0.as_ptr() }
    }
}

impl<C> Clone for Shared<C> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

/// For all that is not done for each message.
impl<C> Deref for Shared<C> {
    type Target = RefCell<C>;

    fn deref(&self) -> &RefCell<C> {
        &self.0
    }
}
