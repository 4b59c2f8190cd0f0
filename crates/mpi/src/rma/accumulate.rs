//! The accumulate family (MPI 5.0, sections 12.3.3 and 12.3.4). The origin takes the target's accumulate lock, then
//! reads, combines and writes. So accumulates on one target of a window are atomic and ordered, whatever their
//! operation, datatype and size.
//!
//! **ORIGIN AND RESULT.** Until the operation completes, the origin's buffer is readable and the result buffer
//! writable, as counts and datatypes specify. The two do not overlap. The user guarantees this, and each function here
//! requires it of its caller.
#![allow(unsafe_code)]

use super::change::{ChangeKind, ElementChange};
use super::check::{Access, OriginBuffer};
use super::conflicts;
use super::control::Words;
use super::counts::RmaCounter;
use super::hot_atomics::note_compared;
use super::lock;
use super::target::{self, Elements, RmaTarget, copy_here, room};
use super::window::Window;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::{Basic, BasicKind};
use crate::objects::op::Reducer;
use crate::process::Process;
use fastpath_base::trace::Point;
use std::ptr;

/// Buffer argument with its count and datatype.
#[derive(Clone, Copy)]
pub struct AccumulateBuffer {
    /// Address of the buffer.
    pub buffer: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Handle of an element's datatype.
    pub datatype: usize,
}

/// Arguments of an accumulate operation.
#[derive(Clone, Copy)]
pub struct Update {
    /// Operand, ignored with `MPI_NO_OP`.
    pub origin: AccumulateBuffer,
    /// Buffer for the target's previous elements; `None` for `MPI_Accumulate`.
    pub result: Option<AccumulateBuffer>,
    /// Rank of the target.
    pub rank: i32,
    /// Displacement at the target, in the target's displacement units.
    pub disp: isize,
    /// Number of elements at the target.
    pub target_count: i64,
    /// Handle of the datatype of the target's elements.
    pub target_datatype: usize,
    /// Handle of the operation.
    pub op: usize,
    /// Whether the call is `MPI_Fetch_and_op`.
    pub is_atomic: bool,
    /// Handle of the window.
    pub win: usize,
}

/// `MPI_Accumulate`, `MPI_Get_accumulate` and their request forms. The operation is complete on return. Errors: see
/// [`super::transfer::put`]. `MPI_ERR_OP` for an operation that is not predefined or not defined for the datatype.
/// `MPI_ERR_TYPE` unless all sides consist of one predefined datatype.
///
/// # Safety
/// See ORIGIN AND RESULT.
pub unsafe fn update(p: &Process, asked: &Update, has_request: bool) -> Result {
    let window = p.win(asked.win)?;
    let op = p.op(asked.op)?;
    if !op.is_predefined() {
        return Err(Error::new(
            MPI_ERR_OP,
            "the operation was made by MPI_Op_create, which one-sided calls do not accept",
        )
        .with_advice(Some("pass a predefined operation, such as MPI_SUM")));
    }
    let there = Elements::new(p, asked.target_count, asked.target_datatype)?;
    let reads = asked.op != MPI_NO_OP;
    let side = |side: AccumulateBuffer| Elements::new(p, side.count, side.datatype);
    let origin = if reads { Some(side(asked.origin)?) } else { None };
    let result = asked.result.map(side).transpose()?;
    if asked.rank == MPI_PROC_NULL {
        return Ok(());
    }
    let rank = window.check_rank(asked.rank)?;
    for (what, other) in [("origin", &origin), ("result", &result)] {
        let Some(other) = other else { continue };
        if other.bytes != there.bytes {
            return Err(refuse_lengths(what, other, &there));
        }
        // A datatype without elements contains no predefined datatype, so there is nothing to compare.
        let (here, at_target) = (other.datatype.signature(), there.datatype.signature());
        if there.bytes != 0 && here.uniform() != at_target.uniform() {
            return Err(refuse_types(what));
        }
    }
    target::enter(&window, rank)?;
    if there.bytes == 0 {
        return Ok(());
    }
    for (elements, side) in [(&origin, Some(asked.origin)), (&result, asked.result)] {
        if let (Some(elements), Some(side)) = (elements, side) {
            elements.datatype.check_address(side.buffer, elements.bytes)?;
        }
    }
    let basic = there.datatype.signature().uniform().ok_or_else(|| refuse_types("target"))?;
    let handle = usize::from(basic.handle);
    let reducer = op.reducer(&*p.datatype(handle)?, handle)?;
    let found = target::find(p, &window, rank, asked.disp, &there)?;
    let read = origin.as_ref().map(|elements| (asked.origin.buffer, elements, false));
    let written = result.as_ref().zip(asked.result);
    let written = written.map(|(elements, side)| (side.buffer, elements, true));
    let buffers = [read, written].into_iter().flatten();
    let buffers =
        buffers.map(|(at, elements, is_written)| OriginBuffer { at, elements, is_written });
    check(p, &window, (&found, &there), has_request, || buffers.collect());
    window.record(Point::Accumulate, window.world(rank), there.bytes);
    window.counts.add(if asked.is_atomic { RmaCounter::Atomics } else { RmaCounter::Accumulates });
    window.show(p, rank)?;
    let job = AccumulateCall {
        p,
        window: &window,
        found,
        there: &there,
        basic,
        reducer,
        op: asked.op,
        writes: reads,
    };
    let (from, to) = (asked.origin.buffer, asked.result.map_or(std::ptr::null_mut(), |r| r.buffer));
    // SAFETY: ORIGIN AND RESULT. `find` has checked that the target's bytes are inside its memory.
    unsafe { job.run(origin.map(|o| (from.cast_const(), o)), result.map(|r| (to, r))) }
}

/// Reports mistakes of an accumulate if `FASTPATH_CHECK` is set.
#[inline]
fn check<'a>(
    p: &Process, window: &Window, target: (&RmaTarget, &Elements), has_request: bool,
    buffers: impl FnOnce() -> Vec<OriginBuffer<'a>>,
) {
    if p.checks().is_some() {
        let kind = conflicts::AccessKind::Accumulate;
        Access { window, target, kind, has_request, buffers: &buffers() }.check(p);
    }
}

#[cold]
#[inline(never)]
fn refuse_lengths(what: &str, other: &Elements, there: &Elements) -> Error {
    let text = format!(
        "the {what} buffer has {} bytes, but the target buffer has {}",
        other.bytes, there.bytes
    );
    Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some(super::error::SAME_DATA))
}

#[cold]
#[inline(never)]
fn refuse_types(what: &str) -> Error {
    let text = format!("the {what} and the target have elements of different predefined datatypes");
    Error::new(MPI_ERR_TYPE, text).with_advice(Some(
        "pass elements of the same predefined datatype for origin, result and target",
    ))
}

struct AccumulateCall<'a> {
    p: &'a Process,
    window: &'a Window,
    found: RmaTarget,
    there: &'a Elements,
    basic: Basic,
    reducer: Reducer,
    op: usize,
    writes: bool,
}

impl AccumulateCall<'_> {
    /// Performs the accumulate. Safety: see ORIGIN AND RESULT.
    unsafe fn run(
        &self, origin: Option<(*const u8, Elements)>, result: Option<(*mut u8, Elements)>,
    ) -> Result {
        let words = Words::of(self.p, self.window, self.found.rank)?;
        let piece = |(at, elements): (*const u8, &Elements)| {
            let offset = elements.piece()?;
            Some(at.wrapping_offset(offset as isize))
        };
        let target = (!self.found.near.is_null()).then_some(self.found.near.cast_const());
        let target = target.and_then(|near| piece((near, self.there)));
        let from = origin.as_ref().and_then(|(at, elements)| piece((*at, elements)));
        let to = result.as_ref().and_then(|(at, elements)| piece((at.cast_const(), elements)));
        // `whole` is true if each local buffer is absent or one piece of memory.
        let whole = from.is_some() == origin.is_some() && to.is_some() == result.is_some();
        if let (Some(target), true) = (target, whole && self.is_dense()) {
            words.lock_accumulates()?;
            // SAFETY: ORIGIN AND RESULT. Each side is one piece of memory.
            unsafe { self.combine_near(from, to, target.cast_mut()) };
            return words.unlock_accumulates();
        }
        if let (Some(at), true, Some(from)) = (self.there.piece(), whole && self.may_ask(), from) {
            words.lock_accumulates()?;
            // SAFETY: ORIGIN AND RESULT. Each side is one piece of memory.
            let done = unsafe { self.change_pieces(at, from, to) };
            return words.unlock_accumulates().and(done);
        }
        if let (Some(at), true, Some(from)) =
            (self.there.piece(), whole && self.may_delegate(), from)
            // SAFETY: ORIGIN AND RESULT. Each side is one piece of memory.
            && unsafe { self.delegate(&words, at, from, to)? }
        {
            return Ok(());
        }
        let operand = match &origin {
            // SAFETY: ORIGIN AND RESULT.
            Some((at, elements)) => unsafe { elements.pack(*at)? },
            None => Vec::new(),
        };
        let mut old = room(self.there.bytes)?;
        words.lock_accumulates()?;
        // SAFETY: ORIGIN AND RESULT.
        let done = unsafe { self.change(&operand, &mut old, result.is_some()) };
        words.unlock_accumulates()?;
        done?;
        if let Some((at, elements)) = result {
            // SAFETY: ORIGIN AND RESULT.
            unsafe { elements.layout().unpack(at, elements.count, 0, &old) };
        }
        Ok(())
    }

    /// Returns whether elements have no gaps between them.
    fn is_dense(&self) -> bool {
        self.basic.kind != BasicKind::Pair || self.reducer.extent() == i64::from(self.basic.size)
    }

    fn may_ask(&self) -> bool {
        self.found.may_ask() && self.may_delegate()
    }

    /// Returns whether the target can perform the change itself.
    fn may_delegate(&self) -> bool {
        self.writes && self.basic.kind != BasicKind::Pair
    }

    fn change_of(&self, fetches: bool) -> ElementChange {
        ElementChange {
            datatype: self.basic.handle,
            op: self.op as u16,
            how: if fetches { ChangeKind::Fetch } else { ChangeKind::Combine },
        }
    }

    /// If only messages reach the target's memory, requests that the target combine under its own accumulate lock.
    /// Returns false if the target did not combine. Safety: see ORIGIN AND RESULT; each side is one piece of memory.
    unsafe fn delegate(
        &self, words: &Words, at: i64, from: *const u8, to: Option<*const u8>,
    ) -> Result<bool> {
        let len = self.there.bytes as usize;
        let change = (self.change_of(to.is_some()), at, len);
        let taken = to.map_or((ptr::null_mut(), 0), |to| (to.cast_mut(), len));
        // SAFETY: ORIGIN AND RESULT.
        unsafe { self.found.delegate(words, change, (from, len), taken) }
    }

    /// Lets the target combine as many bytes as it accepts. Reads, combines and writes the other bytes here. `at`
    /// counts bytes from the displacement. Safety: see ORIGIN AND RESULT; each side is one piece of memory.
    unsafe fn change_pieces(&self, at: i64, from: *const u8, to: Option<*const u8>) -> Result {
        let (p, window, len) = (self.p, self.window, self.there.bytes as usize);
        let to = to.map(<*const u8>::cast_mut);
        let change = self.change_of(to.is_some());
        let taken = to.map_or((ptr::null_mut(), 0), |to| (to, len));
        // SAFETY: ORIGIN AND RESULT.
        let done = unsafe { self.found.ask(p, window, (change, at, len), (from, len), taken)? };
        if done == len {
            return Ok(());
        }
        let (at, rest) = (at + done as i64, len - done);
        let mut elements = room(rest as u64)?;
        // SAFETY: ORIGIN AND RESULT. `elements` and the buffers live until `complete` has returned.
        unsafe {
            self.found.get(p, window, at, elements.as_mut_ptr(), rest)?;
            lock::complete(p, window, self.found.rank)?;
            if let Some(to) = to {
                copy_here(to.wrapping_add(done), elements.as_ptr(), rest);
            }
            let operand = std::slice::from_raw_parts(from.wrapping_add(done), rest);
            self.combine_packed(operand, &mut elements)?;
            let begun = self.found.put(p, window, at, elements.as_ptr(), rest);
            lock::complete(p, window, self.found.rank).and(begun)
        }
    }

    /// Combines in mapped memory. Safety: all pointers are to pieces of memory with the target's number of elements.
    unsafe fn combine_near(&self, from: Option<*const u8>, to: Option<*const u8>, target: *mut u8) {
        let bytes = self.there.bytes as usize;
        // SAFETY: ORIGIN AND RESULT.
        unsafe {
            if let Some(to) = to {
                copy_here(to.cast_mut(), target, bytes);
            }
            if let Some(from) = from {
                self.reducer.apply(from, target, self.there.bytes / u64::from(self.basic.size));
            }
        }
    }

    /// Reads the target's elements into `old`, combines and writes them back. Safety: see ORIGIN AND RESULT.
    unsafe fn change(&self, operand: &[u8], old: &mut [u8], fetches: bool) -> Result {
        let (p, window) = (self.p, self.window);
        // SAFETY: ORIGIN AND RESULT.
        unsafe {
            self.found.gather(p, window, self.there, old)?;
            if !self.writes {
                return Ok(());
            }
            if !fetches {
                self.combine_packed(operand, old)?;
                return self.found.scatter(p, window, self.there, old);
            }
            let mut new = room(self.there.bytes)?;
            new.copy_from_slice(old);
            self.combine_packed(operand, &mut new)?;
            self.found.scatter(p, window, self.there, &new)
        }
    }

    fn combine_packed(&self, operand: &[u8], into: &mut [u8]) -> Result {
        let (size, extent) = (u64::from(self.basic.size), self.reducer.extent() as u64);
        let count = into.len() as u64 / size;
        if size == extent {
            // SAFETY: both slices have `count` elements.
            unsafe { self.reducer.apply(operand.as_ptr(), into.as_mut_ptr(), count) };
            return Ok(());
        }
        let layout = self.basic.layout().map_err(|_| refuse_types("target"))?;
        let (mut left, mut right) = (room(count * extent)?, room(count * extent)?);
        // SAFETY: both arrays have space for `count` elements at their extent.
        unsafe {
            layout.unpack(left.as_mut_ptr(), count, 0, operand);
            layout.unpack(right.as_mut_ptr(), count, 0, into);
            self.reducer.apply(left.as_ptr(), right.as_mut_ptr(), count);
            layout.pack(right.as_ptr(), count, 0, into);
        }
        Ok(())
    }
}

/// Arguments of `MPI_Compare_and_swap`.
#[derive(Clone, Copy)]
pub struct Swap {
    /// The new value.
    pub origin: *const u8,
    /// Value that the target must hold for the swap.
    pub compare: *const u8,
    /// Buffer for the target's previous value.
    pub result: *mut u8,
    /// Handle of the datatype of all values.
    pub datatype: usize,
    /// Rank of the target.
    pub rank: i32,
    /// Displacement at the target, in the target's displacement units.
    pub disp: isize,
    /// Handle of the window.
    pub win: usize,
}

/// `MPI_Compare_and_swap`. Errors: see [`update`]. `MPI_ERR_TYPE` unless the datatype is an integer, logical or byte.
///
/// # Safety
/// Each buffer holds one element, and the buffers do not overlap.
pub unsafe fn compare_and_swap(p: &Process, asked: &Swap) -> Result {
    let window = p.win(asked.win)?;
    let there = Elements::new(p, 1, asked.datatype)?;
    let basic = there.datatype.basic();
    let allowed = [
        BasicKind::Signed,
        BasicKind::Unsigned,
        BasicKind::Address,
        BasicKind::Logical,
        BasicKind::Byte,
        BasicKind::Character,
    ];
    let Some(basic) = basic.filter(|basic| allowed.contains(&basic.kind)) else {
        let text = format!("elements of {} cannot be compared", there.datatype.name());
        let advice = "pass an integer, character or logical datatype, or MPI_BYTE";
        return Err(Error::new(MPI_ERR_TYPE, text).with_advice(Some(advice)));
    };
    note_compared(asked.datatype);
    if asked.rank == MPI_PROC_NULL {
        return Ok(());
    }
    let rank = window.check_rank(asked.rank)?;
    target::enter(&window, rank)?;
    for buf in [asked.origin, asked.compare, asked.result] {
        there.datatype.check_address(buf, there.bytes)?;
    }
    let found = target::find(p, &window, rank, asked.disp, &there)?;
    let buffers =
        [(asked.origin, false), (asked.compare, false), (asked.result.cast_const(), true)];
    let buffers = buffers.map(|(at, is_written)| OriginBuffer { at, elements: &there, is_written });
    check(p, &window, (&found, &there), false, || buffers.into());
    window.record(Point::Accumulate, window.world(rank), there.bytes);
    window.counts.add(RmaCounter::Atomics);
    window.show(p, rank)?;
    let words = Words::of(p, &window, rank)?;
    let len = there.bytes as usize;
    let mut old = [0_u8; 32];
    let mut given = [0_u8; 32];
    // SAFETY: ORIGIN AND RESULT. An element has at most 16 bytes, so two fit in `given`.
    unsafe {
        copy_here(given.as_mut_ptr(), asked.compare, len);
        copy_here(given.as_mut_ptr().add(len), asked.origin, len);
    }
    let (given, taken) = ((given.as_ptr(), 2 * len), (asked.result, len));
    let change = ElementChange { datatype: basic.handle, op: 0, how: ChangeKind::Swap };
    let change = (change, 0, len);
    // SAFETY: ORIGIN AND RESULT.
    if unsafe { found.delegate(&words, change, given, taken)? } {
        return Ok(());
    }
    words.lock_accumulates()?;
    // SAFETY: ORIGIN AND RESULT.
    match unsafe { found.ask(p, &window, change, given, taken) } {
        Ok(0) => {}
        done => return words.unlock_accumulates().and(done.map(drop)),
    }
    // SAFETY: ORIGIN AND RESULT. An element has at most 16 bytes, so it fits in `old`.
    let done = unsafe {
        let compare = std::slice::from_raw_parts(asked.compare, len);
        let new = std::slice::from_raw_parts(asked.origin, len);
        found.gather(p, &window, &there, &mut old[..len]).and_then(|()| {
            match old[..len] == *compare {
                true => found.scatter(p, &window, &there, new),
                false => Ok(()),
            }
        })
    };
    words.unlock_accumulates()?;
    done?;
    // SAFETY: ORIGIN AND RESULT.
    unsafe { copy_here(asked.result, old.as_ptr(), len) };
    Ok(())
}
