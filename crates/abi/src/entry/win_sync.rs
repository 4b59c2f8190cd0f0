//! Synchronisation of windows (MPI 5.0, section 12.5).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::store;
use core::ffi::c_int;
use fastpath_mpi::objects::hot::{INSIDE, OPEN, is_hidden};
use fastpath_mpi::rma::{exposure, fence, hot, hot_lock, lock, lock_all};
use fastpath_mpi::{Process, Result};

pub fn win_fence(p: &Process, assert: c_int, win: usize) -> Result<()> {
    fence::fence(p, &*p.win(win)?, assert)
}

pub fn win_post(p: &Process, group: usize, assert: c_int, win: usize) -> Result<()> {
    let (window, group) = (p.win(win)?, p.group(group)?);
    exposure::post(p, &window, &group, assert)
}

pub fn win_start(p: &Process, group: usize, assert: c_int, win: usize) -> Result<()> {
    let (window, group) = (p.win(win)?, p.group(group)?);
    exposure::start(p, &window, &group, assert)
}

pub fn win_complete(p: &Process, win: usize) -> Result<()> {
    exposure::complete(p, &*p.win(win)?)
}

pub fn win_wait(p: &Process, win: usize) -> Result<()> {
    exposure::wait(p, &*p.win(win)?)
}

pub unsafe fn win_test(p: &Process, win: usize, flag: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(flag, 0)?;
        store(flag, exposure::test(p, &*p.win(win)?)?.into())
    }
}

/// Immediate path of `MPI_Win_lock` of a free lock, at a rank that this process reaches by load and store.
///
/// # Safety
/// Always sound.
#[inline]
pub unsafe fn win_lock_quick(lock_type: c_int, rank: c_int, assert: c_int, win: usize) -> bool {
    hot_lock::try_lock::<OPEN>(lock_type, rank, assert, win)
}

pub fn win_lock(
    p: &Process, lock_type: c_int, rank: c_int, assert: c_int, win: usize,
) -> Result<()> {
    if is_hidden() && hot_lock::try_lock::<INSIDE>(lock_type, rank, assert, win) {
        return Ok(());
    }
    lock::lock(p, &*p.win(win)?, lock_type, rank, assert)
}

/// Immediate path of `MPI_Win_unlock` of a rank that this process reaches by load and store, if no rank waits for the
/// lock.
///
/// # Safety
/// Always sound.
#[inline]
pub unsafe fn win_unlock_quick(rank: c_int, win: usize) -> bool {
    hot_lock::try_unlock::<OPEN>(rank, win)
}

pub fn win_unlock(p: &Process, rank: c_int, win: usize) -> Result<()> {
    if is_hidden() && hot_lock::try_unlock::<INSIDE>(rank, win) {
        return Ok(());
    }
    lock::unlock(p, &*p.win(win)?, rank)
}

/// Immediate path of `MPI_Win_lock_all` of a window without exclusive locks.
///
/// # Safety
/// Always sound.
#[inline]
pub unsafe fn win_lock_all_quick(assert: c_int, win: usize) -> bool {
    lock_all::try_lock_all::<OPEN>(assert, win)
}

pub fn win_lock_all(p: &Process, assert: c_int, win: usize) -> Result<()> {
    if is_hidden() && lock_all::try_lock_all::<INSIDE>(assert, win) {
        return Ok(());
    }
    lock_all::lock_all(p, &*p.win(win)?, assert)
}

/// Immediate path of `MPI_Win_unlock_all` of a window without exclusive locks.
///
/// # Safety
/// Always sound.
#[inline]
pub unsafe fn win_unlock_all_quick(win: usize) -> bool {
    lock_all::try_unlock_all::<OPEN>(win)
}

pub fn win_unlock_all(p: &Process, win: usize) -> Result<()> {
    if is_hidden() && lock_all::try_unlock_all::<INSIDE>(win) {
        return Ok(());
    }
    lock_all::unlock_all(p, &*p.win(win)?)
}

/// Immediate path of `MPI_Win_flush` of a rank that this process reaches by load and store.
///
/// # Safety
/// Always sound.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn win_flush_quick(rank: c_int, win: usize) -> bool {
    hot::try_flush::<OPEN, false>(rank, win)
}

pub fn win_flush(p: &Process, rank: c_int, win: usize) -> Result<()> {
    if is_hidden() && hot::try_flush::<INSIDE, false>(rank, win) {
        return Ok(());
    }
    lock::flush(p, &*p.win(win)?, rank, false)
}

/// Immediate path of `MPI_Win_flush_local` of a rank that this process reaches by load and store.
///
/// # Safety
/// Always sound.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn win_flush_local_quick(rank: c_int, win: usize) -> bool {
    hot::try_flush::<OPEN, true>(rank, win)
}

pub fn win_flush_local(p: &Process, rank: c_int, win: usize) -> Result<()> {
    if is_hidden() && hot::try_flush::<INSIDE, true>(rank, win) {
        return Ok(());
    }
    lock::flush(p, &*p.win(win)?, rank, true)
}

pub fn win_flush_all(p: &Process, win: usize) -> Result<()> {
    lock::flush_all(p, &*p.win(win)?, false)
}

/// Completes all operations of this process on the window locally, at the origin.
pub fn win_flush_local_all(p: &Process, win: usize) -> Result<()> {
    lock::flush_all(p, &*p.win(win)?, true)
}

pub fn win_sync(p: &Process, win: usize) -> Result<()> {
    lock::sync(p, &*p.win(win)?)
}
