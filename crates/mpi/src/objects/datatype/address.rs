//! Special addresses of buffers (MPI-5.0 section 2.5.4).

use super::{Datatype, TypeError};
use crate::common::consts::*;

/// Returns whether an address is above `MPI_BOTTOM`, `MPI_IN_PLACE` and `MPI_BUFFER_AUTOMATIC`, as all memory is.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send: one comparison, as with null
pub fn is_memory(buf: *const u8) -> bool {
    buf as usize > MPI_BUFFER_AUTOMATIC
}

/// The name of a special address.
pub fn name_special(buf: *const u8) -> &'static str {
    match buf as usize {
        MPI_IN_PLACE => "MPI_IN_PLACE",
        MPI_BUFFER_AUTOMATIC => "MPI_BUFFER_AUTOMATIC",
        _ => "NULL",
    }
}

impl Datatype {
    /// Refuses a special address for a buffer of `bytes` bytes of this type. Null is `MPI_BOTTOM`: valid for a type
    /// with absolute addresses, invalid for one that starts at 0. Errors: [`TypeError::Address`]
    pub fn check_address(&self, buf: *const u8, bytes: u64) -> Result<(), TypeError> {
        let is_bottom = buf.is_null() && self.layout().true_lb() != 0;
        match is_memory(buf) || bytes == 0 || is_bottom {
            true => Ok(()),
            false => Err(TypeError::Address(name_special(buf), bytes)),
        }
    }
}
