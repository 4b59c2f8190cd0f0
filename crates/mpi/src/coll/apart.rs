//! Send and receive buffers that share memory without `MPI_IN_PLACE`: an error (MPI-5.0 section 2.5).

use super::vector::Vector;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::p2p::channel::Channel;

const ADVICE: &str = "pass MPI_IN_PLACE for the rank's own data, or two buffers";

/// Refuses a call whose rank sends to itself from where it receives; `out` is None with `MPI_IN_PLACE`. Both are the
/// rank's own blocks. The call is taken back: nothing was sent, and the program may make it again as it should be.
///
/// # Errors
/// `MPI_ERR_BUFFER`
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

/// As [`check_apart`], of blocks that overlap in part, where mistakes are looked for. Blocks with gaps may lie in each
/// other's.
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
        return Ok(()); // one address, of which the types take different parts
    }
    f.take_back();
    let text = format!(
        "the rank's own data lies at {:p} in the send buffer and in the receive buffer",
        out.ptr
    );
    Err(Error::new(MPI_ERR_BUFFER, text).with_advice(Some(ADVICE)))
}
