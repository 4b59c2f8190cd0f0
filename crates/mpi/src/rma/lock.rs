//! Passive targets (MPI 5.0, section 12.5.3): locks, which the origin takes by itself, and flushes.
#![allow(unsafe_code)]

use super::control::{LOCK, OWNER, PRESSED, Words, queue_at};
use super::counts::Counted;
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
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::try_briefly;
use std::cell::Cell;

/// Refuses bits that the call does not know.
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

/// An epoch begins that gives access to other ranks than a fence did.
pub(super) fn leave_fence(window: &Window) {
    if window.epoch.borrow().is_fenced() {
        window.close_all();
    }
}

/// `MPI_Win_lock`
///
/// # Errors
/// `MPI_ERR_LOCKTYPE`, `MPI_ERR_RANK`, `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where another epoch is open.
pub fn lock(p: &Process, window: &Window, kind: i32, rank: i32, assertion: i32) -> Result {
    let held = match kind {
        MPI_LOCK_EXCLUSIVE => HeldLock::Exclusive,
        MPI_LOCK_SHARED => HeldLock::Shared,
        _ => {
            let text = format!("{kind} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE");
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
    window.counts.add(Counted::Locks);
    window.show(p, rank)
}

/// `MPI_Win_unlock`: what was begun is complete at the target.
///
/// # Errors
/// `MPI_ERR_RANK`, `MPI_ERR_RMA_SYNC` without a lock; those of operations that are under way, and then the lock is
/// given back nevertheless.
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
    // Where nothing is under way, the lock's own order is enough: who takes it next sees what was written.
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

/// `MPI_Win_flush` and, with `local`, `MPI_Win_flush_local`, which does as much.
///
/// # Errors
/// `MPI_ERR_RANK`, `MPI_ERR_RMA_SYNC` without a lock; those of operations that are under way.
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

/// `MPI_Win_flush_all` and, with `local`, `MPI_Win_flush_local_all`.
///
/// # Errors
/// As [`flush`].
pub fn flush_all(p: &Process, window: &Window, local: bool) -> Result {
    let may = window.epoch.borrow().may_flush(None);
    refuse(window, None, may)?;
    // ORDERING: as in `sync`.
    fence(Ordering::SeqCst);
    complete_begun(p, window)?;
    forget(p, window, None, local);
    window.record(Point::FlushAll, 0, 0);
    look(p, window, Caller::FlushAll)
}

/// `MPI_Win_sync`: what this process has written by load and store is there for others, and the other way round.
///
/// # Errors
/// None of its own.
pub fn sync(p: &Process, window: &Window) -> Result {
    // ORDERING: a full fence between the program's own accesses before and after; its partner is the same fence in
    // another rank.
    fence(Ordering::SeqCst);
    look(p, window, Caller::Sync)
}

/// Carries out what peers have requested of this rank, if they may depend on its progress: a program may poll its own
/// memory in a loop of epochs (MPI-5.0 section 12.7.3).
#[inline]
pub(super) fn serve(p: &Process, window: &Window) -> Result {
    if window.serves {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*p.worker()?).progress() };
    }
    Ok(())
}

/// Looks for messages: a program may wait for one, or for a word that one changes, in a loop of these calls.
fn look(p: &Process, window: &Window, caller: Caller) -> Result {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    unsafe { (*p.worker()?).progress() };
    let flushes = hot::note_look(window.handle.get(), caller);
    window.counts.add_many(Counted::Flushes, flushes);
    Ok(())
}

/// Completes what was begun to a rank.
///
/// # Errors
/// What was found out about it.
#[inline]
pub(super) fn complete(p: &Process, window: &Window, rank: u32) -> Result {
    match window.peers[rank as usize].pending.get() {
        true => complete_slow(p, window, rank),
        false => {
            // ORDERING: as in `sync`.
            fence(Ordering::SeqCst);
            Ok(())
        }
    }
}

#[cold]
#[inline(never)]
fn complete_slow(p: &Process, window: &Window, rank: u32) -> Result {
    // SAFETY: the worker lives while MPI runs; no reference to it is held here.
    let done = unsafe { Worker::flush(p.worker()?, window.world(rank)) };
    note_complete(window, rank);
    done.map_err(|e| error::explain(window, rank, e))
}

/// With `FASTPATH_CHECK`: accesses to a rank, or to all of them, are complete, or with `local` only their buffers are
/// free.
#[inline]
fn forget(p: &Process, window: &Window, rank: Option<u32>, local: bool) {
    if p.checks().is_some() {
        window.forget_uses(rank);
        if !local {
            window.forget_accesses(rank);
        }
    }
}

/// Nothing is under way to a rank any more.
pub(super) fn note_complete(window: &Window, rank: u32) {
    if window.peers[rank as usize].pending.replace(false) {
        window.pending.borrow_mut().retain(|&other| other != rank);
    }
}

/// Completes what was begun to any rank; returns the first error at the end.
///
/// # Errors
/// As [`complete`].
pub(super) fn complete_all(p: &Process, window: &Window) -> Result {
    // ORDERING: as in `sync`.
    fence(Ordering::SeqCst);
    complete_pending(p, window)
}

/// As [`complete_all`], where messages follow that order what was written.
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

/// Takes the lock of a rank.
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
        window.counts.add(Counted::LockWaits);
        await_turn(&words, ticket, exclusive)?;
    }
    if let (true, Some(owner)) = (exclusive, words.near(OWNER)) {
        owner.store(u64::from(window.rank) + 1, Ordering::Relaxed);
    }
    note(p, window, rank, true)
}

/// Notes that a lock is held, or not any more, for reports after this process has died.
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
/// locks: whom it waits for may wait for those.
#[cold]
#[inline(never)]
fn await_turn(words: &Words<'_>, mut ticket: Ticket, exclusive: bool) -> Result {
    let presses = !exclusive && words.window.epoch.borrow().holds_any();
    if presses {
        words.add(PRESSED, 1)?;
        wake_next(words, LockWord(words.load(LOCK)?))?;
    }
    while !await_ticket(words, ticket, exclusive)? {
        // As a reader that goes in and out again.
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

/// Waits until it is a ticket's turn; false where its holder is to give way.
fn await_ticket(words: &Words<'_>, ticket: Ticket, exclusive: bool) -> Result<bool> {
    let window = words.window;
    if let Some(place) = words.near(queue_at(window.size(), ticket)) {
        place.store(u64::from(window.rank) + 1, Ordering::Relaxed);
        // ORDERING: who leaves, or presses, sees this place, or this rank sees what it did; partner: the fence in
        // `wake_next`.
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

/// The writer that is inside, if the holder of a ticket comes next: then no other gets the lock before.
fn holder(words: &Words<'_>, ticket: Ticket) -> Option<Awaited> {
    // ORDERING: before the word of the owner, which whoever is not inside has left empty; partner: who leaves the lock.
    let word = LockWord(words.near(LOCK)?.load(Ordering::Acquire));
    let owner = words.near(OWNER)?.load(Ordering::Relaxed).wrapping_sub(1);
    let world = words.window.group.world_ranks().get(owner as usize);
    let world = world.filter(|_| word.is_next(ticket))?;
    Some(Awaited::holding(&[*world]))
}

/// Waits without keeping the processor if there are fewer than ranks: the holder of the lock, and the next one, need
/// it, and this rank is woken when its own turn has come.
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

/// Leaves the lock while another rank of this host waits, but keeps it; false where it is to be given away.
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

/// Goes into the lock again that this rank keeps; false where it has to ask.
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

/// The first of those that wait takes the lock away from the rank that keeps it: its turn has come. It looks for a
/// moment, as the owner is inside for moments only.
fn take_away(words: &Words<'_>) -> bool {
    let Some(owner) = words.owner() else {
        // Who reaches the words by messages alone waits for one that reaches them, as their own rank does.
        return take_away_far(words).unwrap_or(false);
    };
    try_briefly(|| owner.take_away()) && words.leave_lock(true).is_ok()
}

/// The same once, by operations of the layer below.
fn take_away_far(words: &Words<'_>) -> Result<bool> {
    let seen = words.load(OWNER)?;
    let taken = is_kept(seen) && words.swap(OWNER, seen, 0)? == seen;
    if taken {
        words.leave_lock(true)?;
    }
    Ok(taken)
}

/// Whether ranks that wait for a lock sleep.
fn sleeps(words: &Words<'_>) -> Result<bool> {
    let worker = words.p.worker()?;
    // SAFETY: the worker lives while MPI runs, this call holds the lock, and no reference is kept.
    let (mode, crowded) = unsafe { ((*worker).wait.mode, (*worker).is_crowded()) };
    Ok(crowded && words.window.is_local && mode == WaitMode::Auto)
}

/// Gives the lock of a rank back.
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

/// Wakes the first of those that wait. Who waits on another host than the words looks for itself.
#[cold]
#[inline(never)]
fn wake_next(words: &Words<'_>, word: LockWord) -> Result {
    let window = words.window;
    let Some(ticket) = word.first_waiting() else {
        return Ok(());
    };
    // ORDERING: partner: the fence in `await_ticket`.
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
