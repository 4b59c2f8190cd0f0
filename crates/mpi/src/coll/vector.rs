//! Elements of a datatype in memory. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result, SAME_ON_ALL_RANKS};
use crate::objects::datatype::{Datatype, is_memory, name_special};
use fastpath_base::exit::LazyStatic;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::layout::Layout;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Vector<'a> {
    /// Address from which the byte offsets of the first element count.
    pub(crate) ptr: *mut u8,
    pub(crate) count: u64,
    pub(crate) layout: &'a Arc<Layout>,
}

impl<'a> Vector<'a> {
    /// Makes the vector of a call's buffer, and checks count, datatype and address.
    #[inline]
    pub(crate) fn new(buf: *const u8, count: i64, datatype: &'a Datatype) -> Result<Self> {
        let layout = datatype.layout();
        let fits = count >= 0 && layout.total_bytes(count as u64).is_some();
        let usable = datatype.is_committed() && datatype.is_supported();
        let there = is_memory(buf)
            || (buf.is_null() && (count == 0 || layout.true_lb() != 0 || layout.size() == 0));
        if !(fits && usable && there) {
            return Err(refuse_buffer(buf, count, datatype));
        }
        Ok(Vector { ptr: buf.cast_mut(), count: count as u64, layout })
    }

    /// Makes a vector of a count and a layout that have been checked.
    #[inline]
    pub(crate) fn at(ptr: *const u8, count: u64, layout: &'a Arc<Layout>) -> Self {
        Vector { ptr: ptr.cast_mut(), count, layout }
    }

    pub(crate) fn raw(ptr: *const u8, bytes: u64) -> Vector<'static> {
        static BYTE: LazyStatic<Arc<Layout>> = LazyStatic::new(|| Arc::new(Layout::basic(1, 1)));
        Vector { ptr: ptr.cast_mut(), count: bytes, layout: BYTE.get() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.size() * self.count
    }

    #[inline]
    pub(crate) fn part(&self, from: u64, count: u64) -> Self {
        Vector { ptr: offset(self.ptr, from, self.layout).cast_mut(), count, layout: self.layout }
    }

    #[inline]
    pub(crate) fn buffer(&self) -> Buffer {
        match self.layout.dense_offset(self.count) {
            Some(at) => Buffer::contiguous(self.ptr.wrapping_offset(at as isize), self.bytes()),
            None => Buffer {
                ptr: self.ptr,
                bytes: self.bytes(),
                layout: Some(self.layout.clone()),
                count: self.count,
            },
        }
    }

    /// Returns the address of the data if it is one piece of memory.
    #[inline]
    pub(crate) fn dense(&self) -> Option<*mut u8> {
        self.layout.dense_offset(self.count).map(|at| self.ptr.wrapping_offset(at as isize))
    }

    /// Copies the data to `self.bytes()` bytes at `out`.
    ///
    /// # Safety
    /// The elements are readable and `out` is writable. They do not overlap.
    pub(crate) unsafe fn pack(&self, out: *mut u8) {
        let bytes = self.bytes() as usize;
        if bytes > 0 {
            // SAFETY: the elements are readable and `out` is writable for all their bytes, by this function's contract.
            unsafe { self.layout.pack_to(self.ptr, self.count, 0, out, bytes) };
        }
    }

    /// Fills the elements from `self.bytes()` bytes at `data`.
    ///
    /// # Safety
    /// The elements are writable and `data` is readable. They do not overlap.
    pub(crate) unsafe fn unpack(&self, data: *const u8) {
        let bytes = self.bytes() as usize;
        if bytes > 0 {
            // SAFETY: the elements are writable and `data` readable for all their bytes, by this function's contract.
            unsafe { self.layout.unpack_from(self.ptr, self.count, 0, data, bytes) };
        }
    }

    /// Copies the data of `self` to `to`, like a message from this process to itself. The datatypes may differ. Errors:
    /// `MPI_ERR_TRUNCATE` if `to` is too short.
    ///
    /// # Safety
    /// `self` is readable and `to` writable. They do not overlap, or are the same elements.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, to: Vector<'_>) -> Result {
        let bytes = self.bytes();
        if bytes > to.bytes() {
            return Err(truncated(bytes, to.bytes()));
        }
        if bytes == 0 || (self.ptr == to.ptr && Arc::ptr_eq(self.layout, to.layout)) {
            return Ok(());
        }
        // SAFETY: VECTORS; an overlap, which an erroneous program may cause, is handled.
        unsafe {
            match (self.dense(), to.dense()) {
                (Some(from), Some(into)) if into.addr().abs_diff(from.addr()) as u64 >= bytes => {
                    fastpath_base::copy::copy(into, from, bytes as usize);
                }
                (Some(from), Some(into)) => std::ptr::copy(from, into, bytes as usize),
                (Some(from), None) => {
                    to.layout.unpack_from(to.ptr, to.count, 0, from, bytes as usize);
                }
                (None, Some(into)) => self.pack(into),
                (None, None) => self.copy_between(to),
            }
        }
        Ok(())
    }

    /// Copies between two layouts with gaps, through a small buffer.
    ///
    /// # Safety
    /// See [`Vector::copy_to`].
    #[inline(never)]
    unsafe fn copy_between(&self, to: Vector<'_>) {
        let mut piece = [0u8; 4096];
        let mut at = 0;
        while at < self.bytes() {
            // SAFETY: VECTORS; the piece overlaps neither.
            let n = unsafe {
                let n = self.layout.pack(self.ptr, self.count, at, &mut piece);
                to.layout.unpack(to.ptr, to.count, at, &piece[..n])
            };
            at += n as u64;
        }
    }
}

#[inline]
pub(super) fn offset(ptr: *const u8, index: u64, layout: &Layout) -> *const u8 {
    ptr.wrapping_offset((index as i64).wrapping_mul(layout.extent()) as isize)
}

#[cold]
#[inline(never)]
fn truncated(bytes: u64, room: u64) -> Error {
    let text = format!(
        "the sender passes {bytes} bytes for a block of {room} bytes: the sender's count or \
         datatype differs from the receiver's"
    );
    Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some(SAME_ON_ALL_RANKS))
}

#[cold]
#[inline(never)]
fn refuse_buffer(buf: *const u8, count: i64, datatype: &Datatype) -> Error {
    if count < 0 {
        return Error::new(MPI_ERR_COUNT, format!("the count {count} is negative"));
    }
    if !datatype.is_supported() {
        let text = format!("the datatype {} is not supported by this library", datatype.name());
        return Error::new(MPI_ERR_TYPE, text);
    }
    if !datatype.is_committed() {
        return Error::new(
            MPI_ERR_TYPE,
            "the datatype is not committed: call MPI_Type_commit first",
        );
    }
    if datatype.layout().total_bytes(count as u64).is_none() {
        let size = datatype.layout().size();
        return Error::new(
            MPI_ERR_COUNT,
            format!("{count} elements of {size} bytes are more than 2^63 - 1 bytes"),
        );
    }
    match buf as usize {
        MPI_IN_PLACE | MPI_BUFFER_AUTOMATIC => {
            let text = format!("{} is not allowed for this buffer", name_special(buf));
            Error::new(MPI_ERR_BUFFER, text).with_advice(Some("pass the address of memory"))
        }
        _ => Error::new(MPI_ERR_BUFFER, format!("the buffer is NULL, but the count is {count}")),
    }
}

/// Returns the blocks of a call with one count for all ranks. Blocks are adjacent.
pub(super) fn even_blocks<'a>(first: Vector<'a>) -> impl Fn(u32) -> Vector<'a> + use<'a> {
    move |rank: u32| first.part((rank as u64).wrapping_mul(first.count), first.count)
}
