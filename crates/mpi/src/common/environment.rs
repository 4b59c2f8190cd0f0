//! Values of the predefined attributes (MPI-5.0 section 9.1.2). They lie at fixed addresses, because
//! `MPI_Comm_get_attr` returns pointers to them.

use crate::common::consts::*;
use std::cell::Cell;

/// The predefined attributes. Those that depend on the job are set by initialisation.
pub struct Environment {
    /// Largest tag: a constant of this implementation, the same in every communicator.
    pub tag_upper_bound: Cell<i32>,
    /// Rank of a host process: there is none.
    pub host: Cell<i32>,
    /// Rank that can do input and output: any.
    pub io: Cell<i32>,
    /// `MPI_Wtime` reads the clock of the node, which all ranks of a node share: 1.
    pub wtime_is_global: Cell<i32>,
    /// Number of this program on the launcher's command line; `None` without a launcher.
    pub appnum: Cell<Option<i32>>,
    /// Most ranks that the job can have; `None` if unknown.
    pub universe_size: Cell<Option<i32>>,
    appnum_value: Cell<i32>,
    universe_size_value: Cell<i32>,
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// The values before initialisation.
    pub const fn new() -> Self {
        Environment {
            tag_upper_bound: Cell::new(i32::MAX),
            host: Cell::new(MPI_PROC_NULL),
            io: Cell::new(MPI_ANY_SOURCE),
            wtime_is_global: Cell::new(1),
            appnum: Cell::new(None),
            universe_size: Cell::new(None),
            appnum_value: Cell::new(0),
            universe_size_value: Cell::new(0),
        }
    }

    /// The address of the value of a predefined attribute: `None` if `keyval` is not one of them, `Some(null)` if the
    /// attribute is not set. `MPI_LASTUSEDCODE` lies with the error codes.
    pub fn address(&self, keyval: i32) -> Option<*mut i32> {
        let optional = |value: &Cell<Option<i32>>, place: &Cell<i32>| match value.get() {
            Some(value) => {
                place.set(value);
                place.as_ptr()
            }
            None => std::ptr::null_mut(),
        };
        Some(match keyval {
            MPI_TAG_UB => self.tag_upper_bound.as_ptr(),
            MPI_HOST => self.host.as_ptr(),
            MPI_IO => self.io.as_ptr(),
            MPI_WTIME_IS_GLOBAL => self.wtime_is_global.as_ptr(),
            MPI_APPNUM => optional(&self.appnum, &self.appnum_value),
            MPI_UNIVERSE_SIZE => optional(&self.universe_size, &self.universe_size_value),
            _ => return None,
        })
    }
}
