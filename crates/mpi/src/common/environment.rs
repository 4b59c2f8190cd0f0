//! Values of the predefined attributes (MPI-5.0 section 9.1.2). `MPI_Comm_get_attr` returns pointers to them.

use crate::common::consts::*;
use std::cell::Cell;

/// Values of the predefined attributes. Initialisation sets the values that depend on the job.
pub struct Environment {
    /// Largest tag, equal in every communicator.
    pub tag_upper_bound: Cell<i32>,
    /// Rank of the host process (`MPI_HOST`): `MPI_PROC_NULL`, because this library has no host process.
    pub host: Cell<i32>,
    /// Rank that can do input and output (`MPI_IO`): `MPI_ANY_SOURCE`, because any rank can.
    pub io: Cell<i32>,
    /// 1 if all ranks are on one node, else 0. `MPI_Wtime` reads `CLOCK_MONOTONIC`, which the ranks of a node share;
    /// the clocks of different nodes are not synchronised.
    pub wtime_is_global: Cell<i32>,
    /// Number of this program on the launcher's command line, or `None` without a launcher.
    pub appnum: Cell<Option<i32>>,
    /// Maximum number of ranks of the job, or `None` if unknown.
    pub universe_size: Cell<Option<i32>>,
    appnum_value: Cell<i32>,
    universe_size_value: Cell<i32>,
    /// 1 if the job tolerates failures (`MPIX_FT`), else 0.
    pub tolerates_failures: Cell<i32>,
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// Makes the values before initialisation.
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
            tolerates_failures: Cell::new(0),
        }
    }

    /// Returns the address of the value of predefined attribute `keyval`; `None` if `keyval` is not predefined. A null
    /// address means that the attribute is not set. [`codes`](super::error::codes) holds `MPI_LASTUSEDCODE`.
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
            MPIX_FT => self.tolerates_failures.as_ptr(),
            _ => return None,
        })
    }
}
