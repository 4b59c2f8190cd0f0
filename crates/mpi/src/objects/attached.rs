//! Attached buffers for buffered sends (MPI-5.0 section 3.6).

use crate::common::consts::MPI_BUFFER_AUTOMATIC;
use fastpath_base::exit;
use fastpath_base::sync::{AtomicI64, Ordering};
use std::cell::{Cell, RefCell};

/// Buffer attached to the process, a communicator or a session. Outstanding copies hold its address, so that the buffer
/// object of a communicator or session is not freed but reused ([`SpareAttachedBuffers`]).
#[derive(Default)]
pub struct AttachedBuffer {
    /// Address; `MPI_BUFFER_AUTOMATIC` for a buffer of unlimited size.
    pub(crate) address: Cell<usize>,
    pub(crate) size: Cell<i64>,
    /// Bytes in use. Every worker that sends a copy updates it.
    pub(crate) used: AtomicI64,
    pub(crate) is_attached: Cell<bool>,
}

impl AttachedBuffer {
    pub const fn new() -> Self {
        AttachedBuffer {
            address: Cell::new(0),
            size: Cell::new(0),
            used: AtomicI64::new(0),
            is_attached: Cell::new(false),
        }
    }

    pub(crate) fn used(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether the size of the buffer is unlimited.
    pub(crate) fn is_automatic(&self) -> bool {
        self.address.get() == MPI_BUFFER_AUTOMATIC
    }
}

/// Buffer of a communicator or a session; `None` until one has been attached.
pub(crate) type BufferCell = Cell<Option<&'static AttachedBuffer>>;

pub(crate) struct SpareAttachedBuffers(RefCell<Vec<&'static AttachedBuffer>>);

impl SpareAttachedBuffers {
    pub const fn new() -> Self {
        SpareAttachedBuffers(RefCell::new(Vec::new()))
    }

    pub(crate) fn take(&self) -> &'static AttachedBuffer {
        let spare = self.0.borrow_mut().pop();
        spare.unwrap_or_else(|| exit::store(AttachedBuffer::new()))
    }

    /// Drops the list of an exiting process.
    pub(crate) fn drop_all(&self) {
        self.0.take();
    }

    /// Keeps the buffer of a freed object for reuse. The object has no outstanding message.
    pub fn put(&self, place: &BufferCell) {
        if let Some(attached) = place.take() {
            attached.is_attached.set(false);
            self.0.borrow_mut().push(attached);
        }
    }
}
