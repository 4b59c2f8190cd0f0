//! What the ranks compute: a reduction of vectors in memory.
#![allow(unsafe_code)]

use super::choose::{self, Order, Room, Size};
use super::halving::Actors;
use super::vector::Vector;
use crate::common::consts::MPI_ERR_BUFFER;
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use crate::objects::op::{Op, Reducer};
use fastpath_protocol::layout::Layout;
use std::sync::Arc;

/// An operation on vectors of one datatype.
#[derive(Clone, Copy)]
pub(super) struct Reduction<'a> {
    pub(super) reducer: Reducer,
    pub(super) layout: &'a Arc<Layout>,
    op: Op,
    datatype: &'a Datatype,
}

impl<'a> Reduction<'a> {
    /// The operation of a collective call.
    #[inline]
    pub(super) fn new(op: &Op, datatype: &'a Datatype, handle: usize) -> Result<Self> {
        let reducer = op.collective_reducer(datatype, handle)?;
        Ok(Reduction { reducer, layout: datatype.layout(), op: *op, datatype })
    }

    /// The same as if the order of operands did not matter.
    #[cfg(test)]
    pub(super) fn in_any_order(self) -> Self {
        let op = Op::builtin(crate::objects::op::Builtin::Bor);
        Reduction { op, ..self }
    }

    /// What the choice of an algorithm asks for.
    #[inline]
    pub(super) fn size(&self, count: u64, room: Room<'_>) -> Size {
        Size {
            bytes: self.layout.size() * count,
            count,
            commutes: self.reducer.commutes(),
            is_contiguous: self.layout.is_contiguous(),
            order: match room {
                Room::Hosts(_) => self.order_slow(),
                _ => Order::Fixed,
            },
        }
    }

    #[cold]
    #[inline(never)]
    fn order_slow(&self) -> Order {
        match self.op.is_exact(self.datatype) || choose::wants_any_order() {
            true => Order::Free,
            false => Order::Fixed,
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
        // SAFETY: VECTORS.
        unsafe { self.reducer.apply(left.ptr, inout.ptr, inout.count) }
    }
}

/// The value of one rank, and the places that it moves between: an operation leaves its result where the right
/// operand was, and operands keep the order of ranks, so that all ranks compute the same bits.
pub(super) struct Value<'a> {
    pub(super) red: &'a Reduction<'a>,
    /// Combined so far.
    pub(super) value: Vector<'a>,
    /// Where the next operand goes.
    pub(super) spare: Vector<'a>,
    /// Where a value that must not be written moves first.
    pub(super) home: Option<Vector<'a>>,
}

impl Value<'_> {
    /// Combines with the operand of a lower or higher rank that lies in `spare`.
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

    /// Combines with the operand of a lower rank that lies in `spare`.
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

    /// Combines with the operand of a higher rank that lies in `spare`.
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

/// Most operands that wait for another one to be combined with, and one more.
const DEEP: usize = 33;

/// Combines the operands of all ranks, which come in their order, along the tree of [`Actors`].
pub(super) struct Stack<'a> {
    red: &'a Reduction<'a>,
    actors: Actors,
    /// Where the own operand is, and whether it must not be written.
    own: Vector<'a>,
    is_fixed: bool,
    /// Places for operands: the result, and others behind each other.
    result: Vector<'a>,
    others: Vector<'a>,
    /// Those that are free, a bit for each; the result is the first.
    free: u64,
    /// Where operands lie that have been combined so far, and how many there are.
    waiting: [u8; DEEP],
    depth: usize,
}

/// The place of an own operand that is not in the result.
const OWN: u8 = u8::MAX;

impl<'a> Stack<'a> {
    /// Places that operands of `ranks` ranks need besides the result.
    pub(super) fn places(ranks: u32) -> u64 {
        ranks.next_power_of_two().ilog2().into()
    }

    /// `own` may be the result. `others` has the places, one behind the other.
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

    /// Where the operand of a rank goes: the last one to the result, since what is combined stays there.
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

    /// The own operand is the next one.
    ///
    /// # Safety
    /// As [`Stack::combine`].
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

    /// The operand of `rank` is in its place: combines what can be.
    ///
    /// # Safety
    /// Operands are readable, places writable; they do not overlap.
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

    /// Combines the last two.
    ///
    /// # Safety
    /// As [`Stack::combine`].
    unsafe fn combine_last(&mut self) {
        self.depth -= 1;
        let (left, right) = (self.waiting[self.depth - 1], self.waiting[self.depth]);
        // What is combined goes where the right one was; where both orders are the same, to the result rather.
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

    /// Puts what all ranks' operands were combined to into the result.
    ///
    /// # Safety
    /// As [`Stack::combine`].
    pub(super) unsafe fn finish(self) -> Result {
        // SAFETY: VECTORS.
        unsafe { self.at(self.waiting[0]).copy_to(self.result) }
    }
}

/// `MPI_Reduce_local`: `inout = input op inout`. `handle` is the datatype's, for a user's function.
///
/// # Safety
/// `input` is readable, `inout` writable, as count and datatype say.
pub unsafe fn reduce_local(
    input: *const u8, inout: *mut u8, count: i64, datatype: (&Datatype, usize), op: &Op,
) -> Result {
    let left = Vector::new(input, count, datatype.0)?;
    let right = Vector::new(inout, count, datatype.0)?;
    let reducer = op.reducer(datatype.0, datatype.1)?;
    if left.bytes() > 0 && overlap(left, right)? {
        return Err(Error::new(MPI_ERR_BUFFER, "inbuf and inoutbuf overlap"));
    }
    // SAFETY: VECTORS, and checked not to overlap.
    unsafe { reducer.apply(left.ptr, right.ptr, left.count) };
    Ok(())
}

/// Whether the memory of two vectors of one type has a byte in common.
fn overlap(a: Vector<'_>, b: Vector<'_>) -> Result<bool> {
    let (_, bytes) = a.layout.span(a.count).map_err(crate::objects::datatype::TypeError::from)?;
    Ok((a.ptr as u64).abs_diff(b.ptr as u64) < bytes as u64)
}
