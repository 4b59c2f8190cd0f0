//! Check for send and receive buffers that share memory without `MPI_IN_PLACE` (MPI-5.0 section 2.5).

use super::vector::Vector;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::p2p::channel::Channel;

const ADVICE: &str = "pass MPI_IN_PLACE, or two buffers that do not overlap";

/// Refuses a call whose rank sends to itself from its receive buffer. Both vectors are the rank's own blocks; `out` is
/// `None` with `MPI_IN_PLACE`. A refused call does not count as one of the communicator's collective calls: nothing was
/// sent, and the program may repeat it correctly. Errors: `MPI_ERR_BUFFER`.
#[inline]
pub(super) fn check_apart(f: &Channel<'_>, out: Option<Vector<'_>>, into: Vector<'_>) -> Result {
    match out {
        Some(out) if out.ptr == into.ptr && out.bytes() > 0 && into.bytes() > 0 => {
            refuse_alias(f, out, into)
        }
        Some(out) if f.process.checks().is_some() => check_overlap(f, out, into),
        _ => Ok(()),
    }
}

/// With checks, refuses a call whose own blocks overlap in part. Blocks with gaps are accepted, because their pieces
/// may interleave without overlap.
#[cold]
#[inline(never)]
fn check_overlap(f: &Channel<'_>, out: Vector<'_>, into: Vector<'_>) -> Result {
    let (Some(from), Some(to)) = (out.dense(), into.dense()) else {
        return Ok(());
    };
    let ends = (from.addr() as u64 + out.bytes(), to.addr() as u64 + into.bytes());
    let apart = ends.0 <= to.addr() as u64 || ends.1 <= from.addr() as u64;
    if apart || out.bytes() == 0 || into.bytes() == 0 {
        return Ok(());
    }
    f.take_back();
    let text = format!(
        "the send buffer ({} bytes at {from:p}) and the receive buffer ({} bytes at {to:p}) \
         overlap",
        out.bytes(),
        into.bytes()
    );
    Err(Error::new(MPI_ERR_BUFFER, text).with_advice(Some(ADVICE)))
}

#[cold]
#[inline(never)]
fn refuse_alias(f: &Channel<'_>, out: Vector<'_>, into: Vector<'_>) -> Result {
    if !out.buffer().is_same(&into.buffer()) {
        return Ok(()); // the types use different parts of the memory
    }
    f.take_back();
    let text = format!(
        "this rank's own data is at {:p} in both the send buffer and the receive buffer",
        out.ptr
    );
    Err(Error::new(MPI_ERR_BUFFER, text).with_advice(Some(ADVICE)))
}
