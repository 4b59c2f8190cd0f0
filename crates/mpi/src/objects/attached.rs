//! Buffers for buffered sends that the program has attached (MPI-5.0 section 3.6).

use crate::common::consts::MPI_BUFFER_AUTOMATIC;
use fastpath_base::sync::{AtomicI64, Ordering};
use std::cell::{Cell, RefCell};

/// A buffer that the program has attached to the process, a communicator or a session. Copies that are under way hold
/// its address: one of a communicator or session is never given back, but kept for the next one ([`Spares`]).
#[derive(Default)]
pub struct Attached {
    /// Its address; `MPI_BUFFER_AUTOMATIC` of one without an end.
    pub(crate) address: Cell<usize>,
    /// Its bytes.
    pub(crate) size: Cell<i64>,
    /// Counted by whichever worker has sent a copy.
    pub(crate) used: AtomicI64,
    /// Whether there is one.
    pub(crate) is_attached: Cell<bool>,
}

impl Attached {
    /// Nothing attached.
    pub const fn new() -> Self {
        Attached {
            address: Cell::new(0),
            size: Cell::new(0),
            used: AtomicI64::new(0),
            is_attached: Cell::new(false),
        }
    }

    /// Bytes that messages under way take.
    pub(crate) fn used(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether there is room for all messages.
    pub(crate) fn is_automatic(&self) -> bool {
        self.address.get() == MPI_BUFFER_AUTOMATIC
    }
}

/// The buffer of a communicator or a session, once one was attached.
pub(crate) type BufferCell = Cell<Option<&'static Attached>>;

/// Buffers of communicators and sessions that are gone.
pub(crate) struct Spares(RefCell<Vec<&'static Attached>>);

impl Spares {
    /// None.
    pub const fn new() -> Self {
        Spares(RefCell::new(Vec::new()))
    }

    /// One of them, or a new one.
    pub(crate) fn take(&self) -> &'static Attached {
        let spare = self.0.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::leak(Box::default()))
    }

    /// Keeps the buffer of an object that goes, and that has no message under way.
    pub fn put(&self, place: &BufferCell) {
        if let Some(attached) = place.take() {
            attached.is_attached.set(false);
            self.0.borrow_mut().push(attached);
        }
    }
}
