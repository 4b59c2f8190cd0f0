//! What the ranks compute: a reduction of vectors in memory.
#![allow(unsafe_code)]

use super::choose::Size;
use super::vector::Vector;
use crate::consts::MPI_ERR_BUFFER;
use crate::datatype::Datatype;
use crate::error::{Error, Result};
use crate::op::{Op, Reducer};
use fastpath_protocol::layout::Layout;
use std::sync::Arc;

/// An operation on vectors of one datatype.
#[derive(Clone, Copy)]
pub(super) struct Reduction<'a> {
    pub(super) reducer: Reducer,
    pub(super) layout: &'a Arc<Layout>,
}

impl<'a> Reduction<'a> {
    /// The operation of a collective call.
    #[inline]
    pub(super) fn new(op: &Op, datatype: &'a Datatype, handle: usize) -> Result<Self> {
        let reducer = op.collective_reducer(datatype, handle)?;
        Ok(Reduction {
            reducer,
            layout: datatype.layout(),
        })
    }

    /// What the choice of an algorithm asks for.
    #[inline]
    pub(super) fn size(&self, count: u64) -> Size {
        Size {
            bytes: self.layout.size() * count,
            count,
            commutes: self.reducer.commutes(),
        }
    }

    /// `count` elements at an address.
    #[inline]
    pub(super) fn at(&self, ptr: *const u8, count: u64) -> Vector<'a> {
        Vector::at(ptr, count, self.layout)
    }

    /// `inout = left op inout`, element by element.
    ///
    /// # Safety
    /// `left` is readable, `inout` writable and of the same length; they do not overlap.
    #[inline]
    pub(super) unsafe fn fold(&self, left: Vector<'_>, inout: Vector<'_>) {
        // SAFETY: the same contract.
        unsafe { self.reducer.apply(left.ptr, inout.ptr, inout.count) }
    }
}

/// A value that grows as operands come from the right. Starts as an operand that is only read, and then moves
/// between two places, since an operation leaves its result where the right operand was.
pub(super) struct Accumulator<'a> {
    red: &'a Reduction<'a>,
    value: Vector<'a>,
    free: [Vector<'a>; 2],
}

impl<'a> Accumulator<'a> {
    /// Starts with `value`, which may be the second place but not the first.
    pub(super) fn new(red: &'a Reduction<'a>, value: Vector<'a>, places: [Vector<'a>; 2]) -> Self {
        Accumulator {
            red,
            value,
            free: places,
        }
    }

    /// Where the next operand goes.
    pub(super) fn next(&self) -> Vector<'a> {
        self.free[0]
    }

    /// The operand in [`Accumulator::next`] is there: combines.
    ///
    /// # Safety
    /// The value is readable, the places are writable; they do not overlap.
    pub(super) unsafe fn combine(&mut self) {
        // SAFETY: the same contract.
        unsafe { self.red.fold(self.value, self.free[0]) };
        self.value = self.free[0];
        self.free.swap(0, 1);
    }

    /// What has been combined so far.
    pub(super) fn value(&self) -> Vector<'a> {
        self.value
    }
}

/// `MPI_Reduce_local`: `inout = input op inout`. `handle` is the datatype's, for a user's function.
///
/// # Safety
/// `input` is readable, `inout` writable, as count and datatype say.
pub unsafe fn reduce_local(
    input: *const u8,
    inout: *mut u8,
    count: i64,
    datatype: (&Datatype, usize),
    op: &Op,
) -> Result {
    let left = Vector::new(input, count, datatype.0)?;
    let right = Vector::new(inout, count, datatype.0)?;
    let reducer = op.reducer(datatype.0, datatype.1)?;
    if left.bytes() > 0 && overlap(left, right)? {
        return Err(Error::new(MPI_ERR_BUFFER, "inbuf and inoutbuf overlap"));
    }
    // SAFETY: by the contract of this function, and checked not to overlap.
    unsafe { reducer.apply(left.ptr, right.ptr, left.count) };
    Ok(())
}

/// Whether the memory of two vectors of one type has a byte in common.
fn overlap(a: Vector<'_>, b: Vector<'_>) -> Result<bool> {
    let (_, bytes) = a
        .layout
        .span(a.count)
        .map_err(crate::datatype::TypeError::from)?;
    Ok((a.ptr as u64).abs_diff(b.ptr as u64) < bytes as u64)
}
