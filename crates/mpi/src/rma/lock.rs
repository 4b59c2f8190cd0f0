//! Passive target synchronisation (MPI 5.0, section 12.5.3): locks, taken by the origin alone, and flushes.
#![allow(unsafe_code)]

use super::control::{LOCK, OWNER, PRESSED, Words, queue_at};
use super::counts::RmaCounter;
use super::epoch::{HeldLock, Refusal};
use super::hot::Caller;
use super::kept_lock::{KEEP_AWAKE, KEEP_MAX, Owner, is_kept};
use super::lock_word::{LockWord, Ticket};
use super::window::Window;
use super::{error, hot, lock_all};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::Process;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::{Ordering, fence};
use fastpath_base::trace::Point;
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::try_briefly;
use fastpath_segment::AwaitedRanks;
use std::cell::Cell;

pub(super) fn check_assertion(assertion: i32, known: i32) -> Result {
    match assertion & !known {
        0 => Ok(()),
        wrong => Err(Error::new(
            MPI_ERR_ASSERT,
            format!("the assertion {assertion} has bits ({wrong:#x}) that this call does not take"),
        )),
    }
}

pub(super) fn refuse(
    window: &Window, rank: Option<u32>, result: core::result::Result<(), Refusal>,
) -> Result {
    result.map_err(|refusal| error::refuse_epoch(window, rank, refusal))
}

/// Ends the access of a fence epoch, because another access epoch begins.
pub(super) fn leave_fence(window: &Window) {
    if window.epoch.borrow().is_fenced() {
        window.close_all();
    }
}

/// `MPI_Win_lock`. Errors: `MPI_ERR_LOCKTYPE`, `MPI_ERR_RANK`, `MPI_ERR_ASSERT`, and `MPI_ERR_RMA_SYNC` if another
/// epoch is open.
pub fn lock(p: &Process, window: &Window, kind: i32, rank: i32, assertion: i32) -> Result {
    let held = match kind {
        MPI_LOCK_EXCLUSIVE => HeldLock::Exclusive,
        MPI_LOCK_SHARED => HeldLock::Shared,
        _ => {
            let text =
                format!("the lock type {kind} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE");
            return Err(Error::new(MPI_ERR_LOCKTYPE, text));
        }
    };
    check_assertion(assertion, MPI_MODE_NOCHECK)?;
    if rank == MPI_PROC_NULL {
        refuse(window, None, window.epoch.borrow().may_lock_null())?;
        leave_fence(window);
        window.epoch.borrow_mut().lock_null();
        return Ok(());
    }
    let rank = window.check_rank(rank)?;
    error::refuse_broken(window)?;
    let may = window.epoch.borrow().may_lock(Some(rank));
    refuse(window, Some(rank), may)?;
    leave_fence(window);
    let held = match assertion & MPI_MODE_NOCHECK {
        0 => {
            take(p, window, rank, held == HeldLock::Exclusive)?;
            held
        }
        _ => HeldLock::Unchecked,
    };
    window.epoch.borrow_mut().lock(rank, held);
    window.counts.add(RmaCounter::Locks);
    window.show(p, rank)
}

/// `MPI_Win_unlock`. Operations of the epoch are then complete at the target. Errors: `MPI_ERR_RANK`,
/// `MPI_ERR_RMA_SYNC` without a lock. The lock is released even if pending operations fail.
pub fn unlock(p: &Process, window: &Window, rank: i32) -> Result {
    if rank == MPI_PROC_NULL {
        let ended = window.epoch.borrow_mut().unlock_null();
        return refuse(window, None, ended);
    }
    let rank = window.check_rank(rank)?;
    let held = window.epoch.borrow().may_unlock(rank);
    let held = held.map_err(|refusal| error::refuse_epoch(window, Some(rank), refusal))?;
    window.close(rank);
    forget(p, window, Some(rank), false);
    // Without pending operations, no fence is needed: the release makes all writes visible to the next lock holder.
    let done = match window.peers[rank as usize].pending.get() {
        true => complete_slow(p, window, rank),
        false if held == HeldLock::Unchecked => complete(p, window, rank),
        false => Ok(()),
    };
    if held != HeldLock::Unchecked {
        give(p, window, rank, held == HeldLock::Exclusive)?;
    }
    window.epoch.borrow_mut().unlock(rank);
    done.and_then(|()| serve(p, window))
}

/// `MPI_Win_flush` and, with `local`, `MPI_Win_flush_local`. Both complete operations at the target. Errors:
/// `MPI_ERR_RANK`, `MPI_ERR_RMA_SYNC` without a lock, and those of pending operations.
pub fn flush(p: &Process, window: &Window, rank: i32, local: bool) -> Result {
    if rank == MPI_PROC_NULL {
        return Ok(());
    }
    let rank = window.check_rank(rank)?;
    let may = window.epoch.borrow().may_flush(Some(rank));
    if may.is_err() {
        hot::take_back_flush(window.handle.get());
        return refuse(window, Some(rank), may);
    }
    complete(p, window, rank)?;
    forget(p, window, Some(rank), local);
    window.record(Point::Flush, window.world(rank), 0);
    look(p, window, Caller::Flush)
}

/// `MPI_Win_flush_all` and, with `local`, `MPI_Win_flush_local_all`. Errors: see [`flush`].
pub fn flush_all(p: &Process, window: &Window, local: bool) -> Result {
    let may = window.epoch.borrow().may_flush(None);
    refuse(window, None, may)?;
    // ORDERING: a full fence, which pairs with a full fence in another rank.
    fence(Ordering::SeqCst);
    complete_begun(p, window)?;
    forget(p, window, None, local);
    window.record(Point::FlushAll, 0, 0);
    look(p, window, Caller::FlushAll)
}

/// `MPI_Win_sync`. Orders this process's loads and stores to the window against those of other processes.
pub fn sync(p: &Process, window: &Window) -> Result {
    // ORDERING: a full fence between the program's accesses before and after. Pairs with one in another rank.
    fence(Ordering::SeqCst);
    look(p, window, Caller::Sync)
}

/// Performs operations that peers have requested of this rank, if peers may depend on this rank's progress. A program
/// may poll its own memory in a loop of epochs (MPI 5.0, section 12.7.3).
#[inline]
pub(super) fn serve(p: &Process, window: &Window) -> Result {
    if window.serves {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*p.worker()?).progress() };
    }
    Ok(())
}

/// Polls for messages. A program may loop over these calls until a message arrives or changes a word.
fn look(p: &Process, window: &Window, caller: Caller) -> Result {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    unsafe { (*p.worker()?).progress() };
    let flushes = hot::note_look(window.handle.get(), caller);
    window.counts.add_many(RmaCounter::Flushes, flushes);
    Ok(())
}

#[inline]
pub(super) fn complete(p: &Process, window: &Window, rank: u32) -> Result {
    match window.peers[rank as usize].pending.get() {
        true => complete_slow(p, window, rank),
        false => {
            // ORDERING: a full fence, which pairs with a full fence in another rank.
            fence(Ordering::SeqCst);
            Ok(())
        }
    }
}

#[cold]
#[inline(never)]
fn complete_slow(p: &Process, window: &Window, rank: u32) -> Result {
    // SAFETY: the worker lives while MPI runs, and no reference to it is held here.
    let done = unsafe { Worker::flush(p.worker()?, window.world(rank)) };
    note_complete(window, rank);
    done.map_err(|e| error::explain(window, rank, e))
}

/// For `FASTPATH_CHECK`: records that accesses to a rank, or to all ranks, are complete. With `local`, only the buffers
/// of the accesses are free.
#[inline]
pub(super) fn forget(p: &Process, window: &Window, rank: Option<u32>, local: bool) {
    if p.checks().is_some() {
        window.forget_uses(rank);
        if !local {
            window.forget_accesses(rank);
        }
    }
}

pub(super) fn note_complete(window: &Window, rank: u32) {
    if window.peers[rank as usize].pending.replace(false) {
        window.pending.borrow_mut().retain(|&other| other != rank);
    }
}

/// Completes operations to all ranks. Returns the first error at the end.
pub(super) fn complete_all(p: &Process, window: &Window) -> Result {
    // ORDERING: a full fence, which pairs with a full fence in another rank.
    fence(Ordering::SeqCst);
    complete_pending(p, window)
}

/// Completes operations to all ranks without a fence, because later messages order the writes.
pub(super) fn complete_pending(p: &Process, window: &Window) -> Result {
    forget(p, window, None, false);
    complete_begun(p, window)
}

fn complete_begun(p: &Process, window: &Window) -> Result {
    let mut result = Ok(());
    loop {
        let rank = window.pending.borrow().last().copied();
        match rank {
            Some(rank) => result = result.and(complete_slow(p, window, rank)),
            None => return result,
        }
    }
}

#[inline]
pub(super) fn take(p: &Process, window: &Window, rank: u32, exclusive: bool) -> Result {
    if exclusive && !window.announced.get() {
        lock_all::announce(p, window)?;
    }
    let words = Words::of(p, window, rank)?;
    if words.owner().is_some_and(Owner::keeps) && retake(&words, exclusive)? {
        return note(p, window, rank, true);
    }
    let (ticket, granted) = words.request_lock(exclusive)?;
    if !granted {
        window.counts.add(RmaCounter::LockWaits);
        await_turn(&words, ticket, exclusive)?;
    }
    if let (true, Some(owner)) = (exclusive, words.near(OWNER)) {
        owner.store(u64::from(window.rank) + 1, Ordering::Relaxed);
    }
    note(p, window, rank, true)
}

/// Records that a lock is taken or released, for reports that may follow the death of this process.
#[inline]
pub(super) fn note(p: &Process, window: &Window, rank: u32, taken: bool) -> Result {
    let (world, point) = match taken {
        true => (window.world(rank), Point::Lock),
        false => (window.world(rank), Point::Unlock),
    };
    window.record(point, world, 0);
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    unsafe { (*p.worker()?).note_window_lock(window.number(), world, taken) };
    Ok(())
}

/// Waits for the turn of a ticket. A writer at the head of the queue gives way to readers behind it that hold other
/// locks. Otherwise there could be a deadlock: the ranks that the writer waits for could themselves wait for those
/// other locks.
#[cold]
#[inline(never)]
fn await_turn(words: &Words<'_>, mut ticket: Ticket, exclusive: bool) -> Result {
    let presses = !exclusive && words.window.epoch.borrow().holds_any();
    if presses {
        words.add(PRESSED, 1)?;
        wake_next(words, LockWord(words.load(LOCK)?))?;
    }
    while !await_ticket(words, ticket, exclusive)? {
        // To give way, act as a reader that enters and leaves.
        wake_next(words, words.admit_to_lock()?)?;
        wake_next(words, words.leave_lock(false)?)?;
        let (again, granted) = words.request_lock(true)?;
        if granted {
            break;
        }
        ticket = again;
    }
    if presses {
        words.add(PRESSED, 1_u64.wrapping_neg())?;
    }
    if exclusive {
        return Ok(());
    }
    let after = words.admit_to_lock()?;
    wake_next(words, after)
}

/// Waits for a ticket's turn. Returns false if the holder of the ticket, a writer, has to give way.
fn await_ticket(words: &Words<'_>, ticket: Ticket, exclusive: bool) -> Result<bool> {
    let window = words.window;
    if let Some(place) = words.near(queue_at(window.size(), ticket)) {
        place.store(u64::from(window.rank) + 1, Ordering::Relaxed);
        // ORDERING: pairs with the fence in `wake_next`. A rank that leaves the lock or raises PRESSED sees this rank's
        // entry in the queue, or this rank sees the change by that rank.
        fence(Ordering::SeqCst);
    }
    let awaited = holder(words, ticket).unwrap_or_else(|| words.others());
    let is_pressed = || words.load(PRESSED).is_ok_and(|pressed| pressed != 0);
    let gives_way = Cell::new(false);
    let is_over = |word| {
        let word = LockWord(word);
        let is_turn = word.is_turn(ticket, exclusive) || word.is_next(ticket) && take_away(words);
        gives_way.set(!is_turn && exclusive && word.holds_up(ticket) && is_pressed());
        is_turn || gives_way.get()
    };
    let peer = words.rank as i32;
    sleeping(words, || words.await_word(LOCK, (peer, awaited), is_over))?;
    Ok(!gives_way.get())
}

/// Returns the writer that holds the lock, if the request of `ticket` is next, and so waits for no other rank.
fn holder(words: &Words<'_>, ticket: Ticket) -> Option<AwaitedRanks> {
    // ORDERING: acquire, before the load of the owner word, which a leaving rank clears. Partner: that rank's release.
    let word = LockWord(words.near(LOCK)?.load(Ordering::Acquire));
    let owner = words.near(OWNER)?.load(Ordering::Relaxed).wrapping_sub(1);
    let world = words.window.group.world_ranks().get(owner as usize);
    let world = world.filter(|_| word.is_next(ticket))?;
    Some(AwaitedRanks::holding(&[*world]))
}

/// Executes `wait`. If there are more ranks than processors, this rank sleeps during `wait`, because the lock holder
/// and the next rank need the processors. This rank is woken at its turn.
fn sleeping(words: &Words<'_>, wait: impl FnOnce() -> Result) -> Result {
    let worker = words.p.worker()?;
    let sleeps = sleeps(words)?;
    if sleeps {
        // SAFETY: the worker lives while MPI runs, and no reference to it is held across `wait`.
        unsafe { (*worker).wait.mode = WaitMode::Sleep };
    }
    let result = wait();
    if sleeps {
        // SAFETY: the worker lives while MPI runs, and no reference to it is held across `wait`.
        unsafe { (*worker).wait.mode = WaitMode::Auto };
    }
    result
}

/// Ends this rank's use of a contended lock and keeps the lock for its next use. Returns false if the lock must be
/// released to a waiting rank.
#[cold]
#[inline(never)]
fn keep(words: &Words<'_>) -> Result<bool> {
    let window = words.window;
    let (Some(owner), Some(word)) = (words.owner(), words.near(LOCK)) else {
        return Ok(false);
    };
    let word = LockWord(word.load(Ordering::Relaxed));
    let kept = window.kept.get() + 1;
    let most = if sleeps(words)? { KEEP_MAX } else { KEEP_AWAKE };
    if !window.is_local || !word.is_awaited() || kept > most {
        window.kept.set(0);
        return Ok(false);
    }
    window.kept.set(kept);
    owner.keep();
    wake_next(words, word.release(true))?;
    Ok(true)
}

/// Enters a lock that this rank keeps, for an exclusive use. Returns false if this rank has to request the lock,
/// because the lock was taken away or is to be shared.
#[cold]
#[inline(never)]
fn retake(words: &Words<'_>, exclusive: bool) -> Result<bool> {
    let Some(owner) = words.owner() else {
        return Ok(false);
    };
    if exclusive && owner.retake() {
        return Ok(true);
    }
    if owner.take_away() {
        let after = words.leave_lock(true)?;
        wake_next(words, after)?;
    }
    Ok(false)
}

/// Takes the lock away from the rank that keeps it, for the first waiting rank. Tries for a short time, because an
/// owner that has retaken the lock soon leaves it.
fn take_away(words: &Words<'_>) -> bool {
    let Some(owner) = words.owner() else {
        // The control words are not mapped. A rank that reaches them only by messages needs the progress of a rank that
        // has mapped them, such as the target.
        return take_away_far(words).unwrap_or(false);
    };
    try_briefly(|| owner.take_away()) && words.leave_lock(true).is_ok()
}

/// Takes the lock away by remote operations, with a single attempt.
fn take_away_far(words: &Words<'_>) -> Result<bool> {
    let seen = words.load(OWNER)?;
    let taken = is_kept(seen) && words.swap(OWNER, seen, 0)? == seen;
    if taken {
        words.leave_lock(true)?;
    }
    Ok(taken)
}

/// Returns whether ranks that wait for a lock sleep.
fn sleeps(words: &Words<'_>) -> Result<bool> {
    let worker = words.p.worker()?;
    // SAFETY: the worker lives while MPI runs, this call holds the lock, and no reference is kept.
    let (mode, crowded) = unsafe { ((*worker).wait.mode, (*worker).is_crowded()) };
    Ok(crowded && words.window.is_local && mode == WaitMode::Auto)
}

/// Releases the lock of a rank, or keeps the lock while other ranks wait for it.
#[inline]
pub(super) fn give(p: &Process, window: &Window, rank: u32, exclusive: bool) -> Result {
    let words = Words::of(p, window, rank)?;
    note(p, window, rank, false)?;
    if exclusive && keep(&words)? {
        return Ok(());
    }
    if let (true, Some(owner)) = (exclusive, words.near(OWNER)) {
        owner.store(0, Ordering::Relaxed);
    }
    let after = words.leave_lock(exclusive)?;
    match after.first_waiting() {
        None => Ok(()),
        Some(_) => wake_next(&words, after),
    }
}

/// Wakes the first waiting rank. A waiting rank on another host than the control words is not woken, because it polls.
#[cold]
#[inline(never)]
fn wake_next(words: &Words<'_>, word: LockWord) -> Result {
    let window = words.window;
    let Some(ticket) = word.first_waiting() else {
        return Ok(());
    };
    // ORDERING: pairs with the fence in `await_ticket`.
    fence(Ordering::SeqCst);
    let Some(place) = words.near(queue_at(window.size(), ticket)) else {
        return Ok(());
    };
    let waiting = place.load(Ordering::Relaxed).wrapping_sub(1);
    if let Some(&world) = window.group.world_ranks().get(waiting as usize) {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*words.p.worker()?).wake_rank(world) };
    }
    Ok(())
}
