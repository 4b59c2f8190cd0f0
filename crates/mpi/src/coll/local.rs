//! Reductions of vectors in memory. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

use super::choose::{self, JobProcessors, ReductionOrder, Size};
use super::halving::Actors;
use super::vector::Vector;
use crate::common::consts::MPI_ERR_BUFFER;
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use crate::objects::op::{Op, Reducer};
use fastpath_protocol::layout::Layout;
use std::sync::Arc;

#[derive(Clone, Copy)]
pub(super) struct Reduction<'a> {
    pub(super) reducer: Reducer,
    pub(super) layout: &'a Arc<Layout>,
    op: Op,
    datatype: &'a Datatype,
}

impl<'a> Reduction<'a> {
    #[inline]
    pub(super) fn new(op: &Op, datatype: &'a Datatype, handle: usize) -> Result<Self> {
        let reducer = op.collective_reducer(datatype, handle)?;
        Ok(Reduction { reducer, layout: datatype.layout(), op: *op, datatype })
    }

    /// Returns a reduction that allows any order of operands.
    #[cfg(test)]
    pub(super) fn in_any_order(self) -> Self {
        let op = Op::builtin(crate::objects::op::Builtin::Bor);
        Reduction { op, ..self }
    }

    /// Returns the inputs of the choice of an algorithm.
    #[inline]
    pub(super) fn size(&self, count: u64, room: JobProcessors<'_>) -> Size {
        Size {
            bytes: self.layout.size() * count,
            count,
            commutes: self.reducer.commutes(),
            is_contiguous: self.layout.is_contiguous(),
            order: match room {
                JobProcessors::Hosts(_) => self.order_slow(),
                _ => ReductionOrder::Fixed,
            },
        }
    }

    /// Returns whether operands may be combined in any order.
    #[inline]
    pub(super) fn has_free_order(&self) -> bool {
        self.reducer.commutes() && self.order_slow() == ReductionOrder::Free
    }

    #[cold]
    #[inline(never)]
    fn order_slow(&self) -> ReductionOrder {
        match self.op.is_exact(self.datatype) || choose::wants_any_order() {
            true => ReductionOrder::Free,
            false => ReductionOrder::Fixed,
        }
    }

    #[inline]
    pub(super) fn at(&self, ptr: *const u8, count: u64) -> Vector<'a> {
        Vector::at(ptr, count, self.layout)
    }

    /// Computes `inout = left op inout`, element by element.
    ///
    /// # Safety
    /// `left` is readable, `inout` writable and equally long. They do not overlap.
    #[inline]
    pub(super) unsafe fn fold(&self, left: Vector<'_>, inout: Vector<'_>) {
        // SAFETY: VECTORS.
        unsafe { self.reducer.apply(left.ptr, inout.ptr, inout.count) }
    }
}

/// Value of one rank, and the buffers between which operations move the value. An operation leaves its result in the
/// right operand's buffer. Operands keep the rank order, so that all ranks compute the same bits.
pub(super) struct RankValue<'a> {
    pub(super) red: &'a Reduction<'a>,
    pub(super) value: Vector<'a>,
    /// Buffer for the next received operand.
    pub(super) spare: Vector<'a>,
    /// Buffer to which a value moves first if it must not be overwritten.
    pub(super) home: Option<Vector<'a>>,
}

impl RankValue<'_> {
    /// Combines the value with the operand of a lower or higher rank, which is in `spare`.
    ///
    /// # Safety
    /// The vectors are valid and do not overlap.
    pub(super) unsafe fn combine(&mut self, is_lower: bool) -> Result {
        // SAFETY: VECTORS.
        unsafe {
            match is_lower {
                true => self.combine_lower()?,
                false => self.combine_higher(),
            }
        }
        Ok(())
    }

    /// Combines the value with the operand of a lower rank, which is in `spare`.
    ///
    /// # Safety
    /// The vectors are valid and do not overlap.
    #[inline]
    pub(super) unsafe fn combine_lower(&mut self) -> Result {
        // SAFETY: VECTORS.
        unsafe {
            if let Some(home) = self.home.take() {
                self.value.copy_to(home)?;
                self.value = home;
            }
            self.red.fold(self.spare, self.value);
        }
        Ok(())
    }

    /// Combines the value with the operand of a higher rank, which is in `spare`.
    ///
    /// # Safety
    /// The vectors are valid and do not overlap.
    #[inline]
    pub(super) unsafe fn combine_higher(&mut self) {
        // SAFETY: VECTORS.
        unsafe { self.red.fold(self.value, self.spare) };
        let old = std::mem::replace(&mut self.value, self.spare);
        self.spare = self.home.take().unwrap_or(old);
    }
}

/// Capacity of the stack: largest number of operands that wait to be combined, plus one.
const DEEP: usize = 33;

/// Combines the operands of all ranks along the tree of [`Actors`]. The operands must be added in rank order.
pub(super) struct Stack<'a> {
    red: &'a Reduction<'a>,
    actors: Actors,
    /// This rank's operand. If `is_fixed`, it must not be overwritten.
    own: Vector<'a>,
    is_fixed: bool,
    /// Buffers for operands: the result, and further buffers, which are adjacent in `others`.
    result: Vector<'a>,
    others: Vector<'a>,
    /// Free buffers, one bit each. The result is bit 0.
    free: u64,
    /// Buffers of the operands that wait to be combined.
    waiting: [u8; DEEP],
    depth: usize,
}

/// Number in `waiting` that stands for this rank's own operand, if that is not in the result.
const OWN: u8 = u8::MAX;

impl<'a> Stack<'a> {
    /// Returns the number of buffers that `ranks` ranks need in addition to the result.
    pub(super) fn places(ranks: u32) -> u64 {
        ranks.next_power_of_two().ilog2().into()
    }

    /// Makes a stack. `own` may be the result. `others` holds the further buffers, which are adjacent.
    pub(super) fn new(
        red: &'a Reduction<'a>, ranks: u32, own: Vector<'a>, result: Vector<'a>, others: Vector<'a>,
    ) -> Self {
        let is_fixed = own.ptr != result.ptr;
        let free = (2u64 << Stack::places(ranks)) - 1;
        Stack {
            red,
            actors: Actors::of(ranks),
            own,
            is_fixed,
            result,
            others,
            free: if is_fixed { free } else { free & !1 },
            waiting: [0; DEEP],
            depth: 0,
        }
    }

    fn at(&self, place: u8) -> Vector<'a> {
        match place {
            OWN => self.own,
            0 => self.result,
            _ => {
                let count = self.result.count;
                self.others.part((u64::from(place) - 1) * count, count)
            }
        }
    }

    /// Returns the buffer for a rank's operand. For the last rank, returns the result if it is free, because the
    /// combined value stays in the last operand's buffer.
    pub(super) fn place(&mut self, rank: u32) -> Vector<'a> {
        let is_last = rank + 1 == self.actors.ranks();
        let among = match is_last && self.free & 1 != 0 {
            true => 1,
            false => self.free & !1,
        };
        let place = among.trailing_zeros() as u8;
        self.take(place);
        self.at(place)
    }

    fn take(&mut self, place: u8) {
        if place != OWN {
            self.free &= !(1 << place);
        }
        self.waiting[self.depth] = place;
        self.depth += 1;
    }

    /// Adds this rank's operand as the next operand.
    ///
    /// # Safety
    /// See [`Stack::combine`].
    pub(super) unsafe fn take_own(&mut self, rank: u32) -> Result {
        if !self.is_fixed {
            self.take(0);
        } else if self.red.reducer.commutes() || rank == 0 {
            self.take(OWN);
        } else {
            let place = self.place(rank);
            // SAFETY: VECTORS.
            unsafe { self.own.copy_to(place)? };
        }
        Ok(())
    }

    /// Combines operands after the operand of `rank` has been stored.
    ///
    /// # Safety
    /// Operands are readable and buffers writable. They do not overlap.
    pub(super) unsafe fn combine(&mut self, rank: u32) {
        let actors = self.actors;
        if actors.is_paired(rank) && rank.is_multiple_of(2) {
            return;
        }
        let pair = u32::from(actors.is_paired(rank));
        for _ in 0..pair + (actors.number(rank) + 1).trailing_zeros() {
            // SAFETY: VECTORS.
            unsafe { self.combine_last() };
        }
    }

    /// Combines the last two operands.
    ///
    /// # Safety
    /// See [`Stack::combine`].
    unsafe fn combine_last(&mut self) {
        self.depth -= 1;
        let (left, right) = (self.waiting[self.depth - 1], self.waiting[self.depth]);
        // The combined value replaces the right operand. It replaces the left operand if the right one must not be
        // overwritten, or if the operation commutes and the left operand is in the result.
        let swapped = right == OWN || (left == 0 && self.red.reducer.commutes());
        let (left, right) = match swapped {
            true => (right, left),
            false => (left, right),
        };
        // SAFETY: VECTORS.
        unsafe { self.red.fold(self.at(left), self.at(right)) };
        if left != OWN {
            self.free |= 1 << left;
        }
        self.waiting[self.depth - 1] = right;
    }

    /// Moves the combined value to the result.
    ///
    /// # Safety
    /// See [`Stack::combine`].
    pub(super) unsafe fn finish(self) -> Result {
        // SAFETY: VECTORS.
        unsafe { self.at(self.waiting[0]).copy_to(self.result) }
    }
}

/// `MPI_Reduce_local`: `inout = input op inout`. `datatype` includes the handle, to pass to a user's function.
///
/// # Safety
/// `input` is readable and `inout` writable, for count and datatype.
pub unsafe fn reduce_local(
    input: *const u8, inout: *mut u8, count: i64, datatype: (&Datatype, usize), op: &Op,
) -> Result {
    let left = Vector::new(input, count, datatype.0)?;
    let right = Vector::new(inout, count, datatype.0)?;
    let reducer = op.reducer(datatype.0, datatype.1)?;
    if left.bytes() > 0 && overlap(left, right)? {
        let error = Error::new(MPI_ERR_BUFFER, "inbuf and inoutbuf overlap");
        return Err(error.with_advice(Some("pass buffers that do not overlap")));
    }
    // SAFETY: VECTORS; they do not overlap, as checked above.
    unsafe { reducer.apply(left.ptr, right.ptr, left.count) };
    Ok(())
}

/// Returns whether the memory of two equally long vectors of one type overlaps.
fn overlap(a: Vector<'_>, b: Vector<'_>) -> Result<bool> {
    let (_, bytes) = a.layout.span(a.count).map_err(crate::objects::datatype::TypeError::from)?;
    Ok((a.ptr as u64).abs_diff(b.ptr as u64) < bytes as u64)
}
