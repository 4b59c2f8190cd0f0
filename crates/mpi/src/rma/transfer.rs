//! `MPI_Put` and `MPI_Get` (MPI 5.0, sections 12.3.1 and 12.3.2).
//!
//! **ORIGIN AND RESULT.** Until the operation completes, the origin's buffer is readable for a put and writable for a
//! get, by count and datatype. The user guarantees this, and each function here requires it of its caller.
#![allow(unsafe_code)]

use super::check::{Access, OriginBuffer};
use super::conflicts::AccessKind;
pub use super::hot::Sides;
use super::lock;
use super::target::{self, Elements, RmaTarget};
use super::window::Window;
use super::{error, hot};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::Process;
use fastpath_base::trace::Point;
use std::rc::Rc;

/// Bytes packed at a time if data is in pieces on both sides.
const CHUNK: usize = 1 << 14;

/// Window and rank of an operation that a flush must complete; `None` if the operation is complete.
pub(super) type UnflushedTarget = Option<(Rc<Window>, u32)>;

/// `MPI_Put`. Errors: `MPI_ERR_WIN`, `MPI_ERR_RANK`, `MPI_ERR_COUNT`, `MPI_ERR_TYPE`, `MPI_ERR_DISP`.
/// `MPI_ERR_RMA_SYNC` outside an epoch, `MPI_ERR_RMA_RANGE` outside the window, `MPI_ERR_TRUNCATE` if the sides differ
/// in bytes.
///
/// # Safety
/// ORIGIN AND RESULT: the buffer is readable until the operation completes.
pub unsafe fn put(p: &Process, sides: &Sides) -> Result {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match hot::try_move_long::<true>(p, sides) {
            Some(done) => done,
            None => transfer::<true>(p, sides, false).map(drop),
        }
    }
}

/// `MPI_Get`. Errors: see [`put`].
///
/// # Safety
/// ORIGIN AND RESULT: the buffer is writable, and not used otherwise until the operation completes.
pub unsafe fn get(p: &Process, sides: &Sides) -> Result {
    // SAFETY: ORIGIN AND RESULT.
    unsafe {
        match hot::try_move_long::<false>(p, sides) {
            Some(done) => done,
            None => transfer::<false>(p, sides, false).map(drop),
        }
    }
}

/// Starts a put or a get. Returns what its completion needs. Safety: ORIGIN AND RESULT.
pub(super) unsafe fn transfer<const PUTS: bool>(
    p: &Process, sides: &Sides, has_request: bool,
) -> Result<UnflushedTarget> {
    let window = p.win(sides.win)?;
    let origin = Elements::new(p, sides.count, sides.datatype)?;
    let there = Elements::new(p, sides.target_count, sides.target_datatype)?;
    if sides.rank == MPI_PROC_NULL {
        return Ok(None);
    }
    let rank = window.check_rank(sides.rank)?;
    if origin.bytes != there.bytes {
        return Err(refuse_lengths(PUTS, &origin, &there));
    }
    target::enter(&window, rank)?;
    if origin.bytes == 0 {
        return Ok(None);
    }
    origin.datatype.check_address(sides.origin, origin.bytes)?;
    let found = target::find(p, &window, rank, sides.disp, &there)?;
    let (kind, point) = match PUTS {
        true => (AccessKind::Put, Point::Put),
        false => (AccessKind::Get, Point::Get),
    };
    window.record(point, window.world(rank), there.bytes);
    window.counts.add_move::<PUTS>(there.bytes);
    let buffer = OriginBuffer { at: sides.origin, elements: &origin, is_written: !PUTS };
    let target = (&found, &there);
    Access { window: &window, target, kind, has_request, buffers: &[buffer] }.check(p);
    // SAFETY: ORIGIN AND RESULT. `find` has checked that the target's bytes are inside its memory.
    unsafe { move_data::<PUTS>(p, &window, &found, (sides.origin, &origin), &there)? };
    window.show(p, rank)?;
    Ok(window.peers[rank as usize].pending.get().then_some((window, rank)))
}

/// Performs a put or a get of 1 to 2^62 contiguous bytes, `start` bytes into a rank's part. An epoch must give access
/// to the rank, and load and store must not reach it. Returns `None` if the bytes are not inside the part. Safety:
/// ORIGIN AND RESULT.
#[inline]
pub(super) unsafe fn move_far<const PUTS: bool>(
    p: &Process, window: &Window, sides: &Sides, start: u64, bytes: u64,
) -> Option<Result> {
    let found = target::find_far(p, window, sides.rank as u32, start, bytes)?;
    window.counts.add_move::<PUTS>(bytes);
    // SAFETY: ORIGIN AND RESULT. `find_far` has checked that the target's bytes are inside its memory.
    unsafe {
        Some(match PUTS {
            true => found.put(p, window, 0, sides.origin, bytes as usize),
            false => found.get(p, window, 0, sides.origin, bytes as usize),
        })
    }
}

#[cold]
#[inline(never)]
fn refuse_lengths(puts: bool, origin: &Elements, there: &Elements) -> Error {
    let what = if puts { "put" } else { "get" };
    let text = format!(
        "the {what} has {} bytes at the origin, but {} bytes at the target",
        origin.bytes, there.bytes
    );
    Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some(error::SAME_DATA))
}

/// Moves the data of a put or get. Safety: ORIGIN AND RESULT. The target was found with the span of `there`.
unsafe fn move_data<const PUTS: bool>(
    p: &Process, window: &Window, found: &RmaTarget, (buffer, origin): (*mut u8, &Elements),
    there: &Elements,
) -> Result {
    // SAFETY: ORIGIN AND RESULT, in every call.
    unsafe {
        if let Some(at) = origin.piece() {
            let first = buffer.wrapping_offset(at as isize);
            let near = !found.near.is_null() && there.piece().is_none();
            if near {
                let bytes = std::slice::from_raw_parts_mut(first, origin.bytes as usize);
                return match PUTS {
                    true => found.scatter(p, window, there, bytes),
                    false => found.gather(p, window, there, bytes),
                };
            }
            // No completion is needed here: the program's buffer stays valid until the operation completes.
            return found.transfer_all::<PUTS>(p, window, there, first);
        }
        if !found.near.is_null() {
            move_in_chunks::<PUTS>(found, (buffer, origin), there);
            return Ok(());
        }
        if PUTS {
            let packed = origin.pack(buffer)?;
            return found.scatter(p, window, there, &packed);
        }
        let mut packed = target::room(origin.bytes)?;
        found.gather(p, window, there, &mut packed)?;
        origin.layout().unpack(buffer, origin.count, 0, &packed);
        Ok(())
    }
}

/// Moves data with gaps at the origin to or from memory that load and store reach. Safety: ORIGIN AND RESULT.
unsafe fn move_in_chunks<const PUTS: bool>(
    found: &RmaTarget, (buffer, origin): (*mut u8, &Elements), there: &Elements,
) {
    let (from, to) = match PUTS {
        true => ((buffer, origin), (found.near, there)),
        false => ((found.near, there), (buffer, origin)),
    };
    let mut chunk = [0; CHUNK];
    let mut done = 0;
    while done < origin.bytes {
        let len = (origin.bytes - done).min(CHUNK as u64) as usize;
        // SAFETY: ORIGIN AND RESULT.
        unsafe {
            from.1.layout().pack(from.0, from.1.count, done, &mut chunk[..len]);
            to.1.layout().unpack(to.0, to.1.count, done, &chunk[..len]);
        }
        done += len as u64;
    }
}

pub(super) fn is_over(p: &Process, window: &Window, rank: u32) -> Result<bool> {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let over = unsafe { (*worker).progress_flush(window.world(rank)) };
    let over = over.map_err(|e| error::explain(window, rank, e))?;
    if over {
        lock::note_complete(window, rank);
    }
    Ok(over)
}
