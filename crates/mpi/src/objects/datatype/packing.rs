#![allow(unsafe_code)]
//! MPI_Pack and MPI_Unpack (MPI 5.0, section 5.2). The packed form is the data bytes in type-map order, as in memory.

use super::{Datatype, Result, TypeError, is_memory, name_special};

/// Returns the part of a packed buffer from `position` on, and its bytes. Errors: a null buffer, a negative size, or a
/// position outside of the buffer. Safety: `buffer` must be null or have `size` bytes.
pub(super) unsafe fn open_packed(
    buffer: *const u8, size: i64, position: i64,
) -> Result<(*mut u8, usize)> {
    let wrong = |name, what: String| Err(TypeError::Argument(name, what));
    if size < 0 {
        return wrong("the size of the packed buffer", format!("is {size}"));
    }
    if position < 0 || position > size {
        return wrong("position", format!("is {position} in a buffer of {size} bytes"));
    }
    if !is_memory(buffer) && size > position {
        return Err(TypeError::Address(name_special(buffer), (size - position) as u64));
    }
    Ok((buffer.wrapping_add(position as usize).cast_mut(), (size - position) as usize))
}

impl Datatype {
    /// Checks that the type may be used in communication and packing.
    pub fn check_ready(&self) -> Result<()> {
        self.check_usable()?;
        if self.is_committed() { Ok(()) } else { Err(TypeError::NotCommitted) }
    }

    /// Checks a count and returns the packed bytes of `count` elements.
    pub(super) fn packed_bytes(&self, count: i64) -> Result<u64> {
        self.check_usable()?;
        let count = u64::try_from(count).map_err(|_| TypeError::NegativeCount(count))?;
        self.layout.total_bytes(count).ok_or(TypeError::Overflow)
    }

    /// MPI_Pack_size: bytes that MPI_Pack needs for `count` elements.
    pub fn pack_size(&self, count: i64) -> Result<i64> {
        Ok(self.packed_bytes(count)? as i64)
    }

    /// Checks the arguments of MPI_Pack and similar calls; returns the packed bytes. `buffer` is the user's.
    pub(super) fn check_packing(&self, buffer: *const u8, count: i64) -> Result<u64> {
        let bytes = self.packed_bytes(count)?;
        self.check_ready()?;
        self.check_address(buffer, bytes)?;
        Ok(bytes)
    }

    /// MPI_Pack: packs `count` elements at `input` to `position` of a buffer of `size` bytes. Returns the new position.
    ///
    /// # Safety
    /// The elements at `input` are readable, and `output` is null or has `size` writable bytes, apart from them.
    pub unsafe fn pack(
        &self, input: *const u8, count: i64, output: *mut u8, size: i64, position: i64,
    ) -> Result<i64> {
        let bytes = self.check_packing(input, count)?;
        // SAFETY: `output` is null or has `size` bytes, as the caller promises.
        let (to, room) = unsafe { open_packed(output, size, position) }?;
        if bytes > room as u64 {
            return Err(TypeError::Truncated(bytes, room as u64));
        }
        if bytes > 0 {
            // SAFETY: `to` has room for `bytes` bytes, and the caller promises readable elements apart from it.
            unsafe {
                let out = std::slice::from_raw_parts_mut(to, bytes as usize);
                self.layout.pack(input, count as u64, 0, out);
            }
        }
        Ok(position + bytes as i64)
    }

    /// MPI_Unpack: unpacks `count` elements from `position` of a buffer of `size` bytes. Returns the new position.
    ///
    /// # Safety
    /// The elements at `output` are writable, and `input` is null or has `size` readable bytes, apart from them.
    pub unsafe fn unpack(
        &self, input: *const u8, size: i64, position: i64, output: *mut u8, count: i64,
    ) -> Result<i64> {
        let bytes = self.check_packing(output, count)?;
        // SAFETY: `input` is null or has `size` bytes, as the caller promises.
        let (from, room) = unsafe { open_packed(input, size, position) }?;
        if bytes > room as u64 {
            return Err(TypeError::Truncated(bytes, room as u64));
        }
        if bytes > 0 {
            // SAFETY: `from` has `bytes` bytes, and the caller promises writable elements apart from them.
            unsafe {
                let data = std::slice::from_raw_parts(from, bytes as usize);
                self.layout.unpack(output, count as u64, 0, data);
            }
        }
        Ok(position + bytes as i64)
    }
}
