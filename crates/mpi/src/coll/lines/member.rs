//! Shared lines in memory that all members map, as one member uses them in one call.
#![allow(unsafe_code)]

use super::Lines;
use crate::coll_choice::line_plan::{LinePlan, Readers};
use crate::common::error::Result;
use crate::objects::shared_lines::SharedLines;
use fastpath_base::sync::{Ordering, compiler_fence};
use std::cell::Cell;

/// Waits of a member.
pub(crate) trait LineWait {
    /// Waits until `poll` returns true, which then is not called again. `from` and the bits of `pending` tell whose
    /// lines are awaited. `has_ended` returns whether a member has ended the call; if so, and its line is not there,
    /// the member takes no part in the call. Errors: such a member has left, or takes no part.
    fn wait(
        &self, from: &[u32], pending: &Cell<u64>, poll: &mut dyn FnMut() -> bool,
        has_ended: &dyn Fn(u32) -> bool,
    ) -> Result;

    /// Waits until `poll` returns true because member `rank` has ended calls. Errors: the member has left.
    fn wait_for_end(&self, rank: u32, poll: &mut dyn FnMut() -> bool) -> Result {
        self.wait(&[rank], &Cell::new(1), poll, &|_| false)
    }

    /// Wakes a member that sleeps.
    fn wake(&self, rank: u32);

    /// Defers the error of an unexpected length to the end of the call.
    fn defer_length(&self, from: u32, expected: usize, found: usize);
}

/// Call of one member. It ends when this object drops.
pub(crate) struct LineCall<'l, W: LineWait> {
    lines: &'l SharedLines,
    wait: W,
    call: u64,
    /// Whether a wait has failed.
    has_failed: Cell<bool>,
}

impl<'l, W: LineWait> LineCall<'l, W> {
    /// Makes the object of a call that [`SharedLines::begin`] has begun.
    #[inline]
    pub(crate) fn new(lines: &'l SharedLines, wait: W, call: u64) -> Self {
        LineCall { lines, wait, call, has_failed: Cell::new(false) }
    }
}

impl<W: LineWait> Drop for LineCall<'_, W> {
    #[inline]
    fn drop(&mut self) {
        match self.has_failed.get() {
            false => self.lines.end(self.call),
            true => give_up(self.lines, &self.wait, self.call),
        }
    }
}

/// Ends a collective call in which this member publishes nothing more, so that the members that wait for it fail.
#[cold]
#[inline(never)]
pub(crate) fn give_up(lines: &SharedLines, wait: &impl LineWait, call: u64) {
    lines.give_up(call);
    // ORDERING: the loads of `wake` stay behind the store; partner is the fence of a sleeper (`fence_others`).
    compiler_fence(Ordering::SeqCst);
    let others = (0..lines.plan.ranks()).filter(|&rank| rank != lines.plan.rank());
    others.for_each(|rank| wait.wake(rank));
}

impl<W: LineWait> LineCall<'_, W> {
    /// Waits until the memory of a step is free.
    #[cold]
    #[inline(never)]
    fn wait_for_readers(&self, step: u32, bytes: usize) -> Result {
        let find_late = || self.lines.find_late_reader(self.call, step, bytes);
        while let Some(late) = find_late() {
            let ended = self.wait.wait_for_end(late, &mut || find_late() != Some(late));
            self.note(ended)?;
        }
        Ok(())
    }

    /// Records the failure of a wait.
    #[inline]
    fn note(&self, waited: Result) -> Result {
        if waited.is_err() {
            self.has_failed.set(true);
        }
        waited
    }
}

/// Takes the data that the `pending` members of `from` have published for a step of a call. Returns whether no member
/// is left.
#[inline]
pub(super) fn take_found(
    lines: &SharedLines, wait: &impl LineWait, (from, (call, step)): (&[u32], (u64, u32)),
    pending: &Cell<u64>, bytes: &impl Fn(usize) -> usize, take: &mut impl FnMut(usize, *const u8),
) -> bool {
    let mut left = pending.get();
    while left != 0 {
        let index = left.trailing_zeros() as usize;
        left &= left - 1;
        let (rank, expected) = (from[index], bytes(index));
        if let Some((found, at)) = lines.find(rank, call, step, expected) {
            if found != expected {
                wait.defer_length(rank, expected, found);
            }
            take(index, at);
            pending.set(pending.get() & !(1 << index));
        }
    }
    pending.get() == 0
}

impl<W: LineWait> Lines for LineCall<'_, W> {
    #[inline]
    fn plan(&self) -> &LinePlan {
        &self.lines.plan
    }

    fn number(&self) -> u64 {
        self.call
    }

    async fn wait_for_end(&self, call: u64, readers: Readers) -> Result {
        let mut ended = Ok(());
        self.plan().each_reader(readers, |rank| {
            if ended.is_ok() && !self.lines.has_ended(rank, call) {
                let has_ended = &mut || self.lines.has_ended(rank, call);
                ended = self.note(self.wait.wait_for_end(rank, has_ended));
            }
        });
        ended
    }

    #[inline]
    fn note_all_began(&self) {
        self.lines.note_all_began(self.call);
    }

    #[inline]
    fn note_began(&self, rank: u32) {
        self.lines.note_began(rank, self.call);
    }

    #[inline]
    fn look_ahead(&self) {
        self.lines.look_ahead();
    }

    #[inline]
    async unsafe fn publish(
        &self, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) -> Result {
        if self.lines.find_late_reader(self.call, step, bytes).is_some() {
            self.wait_for_readers(step, bytes)?;
        }
        // SAFETY: the memory of the step is free, and the caller promises that the data fits.
        unsafe { self.lines.publish(self.call, step, bytes, fill, readers) };
        // ORDERING: the loads of `wake` stay behind the store; partner is the fence of a sleeper (`fence_others`).
        compiler_fence(Ordering::SeqCst);
        self.plan().each_reader(readers, |rank| self.wait.wake(rank));
        Ok(())
    }

    #[inline]
    async fn collect(
        &self, from: &[u32], step: u32, bytes: impl Fn(usize) -> usize,
        mut take: impl FnMut(usize, *const u8),
    ) -> Result {
        let pending = Cell::new(u64::MAX >> (64 - from.len()));
        let step = (self.call, step);
        let mut poll =
            || take_found(self.lines, &self.wait, (from, step), &pending, &bytes, &mut take);
        match poll() {
            true => Ok(()),
            false => {
                let has_ended = |rank| self.lines.has_ended(rank, self.call);
                self.note(self.wait.wait(from, &pending, &mut poll, &has_ended))
            }
        }
    }
}
