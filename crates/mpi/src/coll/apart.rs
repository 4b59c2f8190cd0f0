//! Send and receive buffers that share memory without `MPI_IN_PLACE`: an error (MPI-5.0 section 2.5).

use super::vector::Vector;
use crate::channel::Channel;
use crate::consts::*;
use crate::error::{Error, Result};

/// Refuses a call whose rank sends to itself from where it receives; `out` is none with `MPI_IN_PLACE`. Both are the
/// rank's own blocks. The call is taken back: nothing was sent, and the program may make it again as it should be.
///
/// # Errors
/// `MPI_ERR_BUFFER`
#[inline]
pub(super) fn check_apart(f: &Channel<'_>, out: Option<Vector<'_>>, into: Vector<'_>) -> Result {
    match out {
        Some(out) if out.ptr == into.ptr && out.bytes() > 0 && into.bytes() > 0 => {
            refuse_alias(f, out)
        }
        _ => Ok(()),
    }
}

#[cold]
#[inline(never)]
fn refuse_alias(f: &Channel<'_>, out: Vector<'_>) -> Result {
    if out.ptr.is_null() {
        return Ok(()); // MPI_BOTTOM: the types say where the data lies
    }
    f.take_back();
    Err(Error::new(
        MPI_ERR_BUFFER,
        format!(
            "the rank's own data lies at {:p} in the send buffer and in the receive buffer: pass MPI_IN_PLACE, or two buffers",
            out.ptr
        ),
    ))
}
