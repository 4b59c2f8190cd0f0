//! Accesses in "external32" (MPI 5.0, section 14.5.2): converted in pieces of whole elements.
#![allow(unsafe_code)]

use super::Refused;
use super::access::{Access, Target};
use crate::datatype::Datatype;
use crate::error::Result;

/// Bytes that are converted at a time, where an element has no more.
const STAGE_BYTES: u64 = 1 << 20;

/// Bytes of memory that `bytes` bytes of the file stand for: of whole elements where their sizes differ.
pub(super) fn memory_bytes(datatype: &Datatype, bytes: u64) -> Result<u64> {
    let (one, size) = (datatype.external_size(1)? as u64, datatype.layout().size());
    Ok(match one {
        0 => 0,
        one if one == size => bytes,
        one => bytes / one * size,
    })
}

/// Moves the elements of an access; how many bytes of the file.
///
/// # Safety
/// The elements are readable or, to be read into, writable.
pub(super) unsafe fn move_portable(
    to: &Target<'_>,
    access: &Access,
    datatype: &Datatype,
) -> std::result::Result<u64, Refused> {
    let other = |error| Refused::Other(crate::Error::from(error));
    let (file, view, start) = (to.file, to.view, to.start);
    let one = datatype.external_size(1).map_err(other)? as u64;
    if one == 0 {
        return Ok(0);
    }
    let count = access.count as u64;
    let most = (STAGE_BYTES / one).clamp(1, count.max(1));
    let mut stage = vec![0u8; (most * one) as usize];
    let room = stage.len() as i64;
    let (mut element, mut done) = (0, 0);
    while element < count {
        let now = most.min(count - element);
        let bytes = (now * one) as usize;
        let step = (element as i64).wrapping_mul(datatype.extent().1);
        let memory = access.buf.wrapping_offset(step as isize);
        // SAFETY: the elements from this one on are readable or writable by the caller's promise, apart from the
        // stage, which has room for so many.
        unsafe {
            if access.writes {
                datatype
                    .pack_external(memory, now as i64, stage.as_mut_ptr(), room, 0)
                    .map_err(other)?;
                file.write_view(view, start + done, stage.as_ptr(), bytes, to.sieve)?;
                done += bytes as u64;
            } else {
                let read = file.read_view(view, start + done, stage.as_mut_ptr(), bytes)? as u64;
                let whole = (read / one) as i64;
                datatype
                    .unpack_external(stage.as_ptr(), room, 0, memory, whole)
                    .map_err(other)?;
                done += read;
                if read < bytes as u64 {
                    break;
                }
            }
        }
        element += now;
    }
    Ok(done)
}
