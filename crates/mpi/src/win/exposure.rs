//! Post, start, complete and wait (MPI 5.0, section 12.5.2): each rank counts in words of its own memory, which the
//! others change, how many epochs each rank has posted for it, and how many that it has posted have ended.
#![allow(unsafe_code)]

use super::control::{COMPLETED, Words, posts_of};
use super::window::Window;
use super::{error, lock};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::process::Process;
use crate::request::note_miss;
use fastpath_base::sync::{Ordering, fence};
use fastpath_bootstrap::segment::Awaited;

/// The ranks that a group names in the window.
fn ranks_of(window: &Window, group: &Group) -> Result<Vec<u32>> {
    let all: Vec<i32> = (0..group.size() as i32).collect();
    let ranks = group.translate(&all, &window.group)?;
    match ranks.iter().position(|&rank| rank == MPI_UNDEFINED) {
        None => Ok(ranks.into_iter().map(|rank| rank as u32).collect()),
        Some(stranger) => Err(Error::new(
            MPI_ERR_GROUP,
            format!(
                "rank {stranger} of the group is not in the window's group ({})",
                window.title()
            ),
        )),
    }
}

fn awaited(window: &Window, ranks: &[u32]) -> Awaited {
    let worlds: Vec<u32> = ranks.iter().map(|&rank| window.world(rank)).collect();
    Awaited::of(&worlds)
}

/// Adds 1 to a word of a rank and wakes it.
fn tell(p: &Process, window: &Window, rank: u32, at: u64) -> Result {
    Words::of(p, window, rank)?.add(at, 1)?;
    // ORDERING: the word is there before it is seen whether the rank sleeps; the partner is the barrier by which it
    // announces that.
    fence(Ordering::SeqCst);
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    unsafe { (*p.worker()?).wake_rank(window.world(rank)) };
    Ok(())
}

/// `MPI_Win_post`
///
/// # Errors
/// `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where an exposure epoch is open.
pub fn post(p: &Process, window: &Window, group: &Group, assertion: i32) -> Result {
    lock::check_assertion(
        assertion,
        MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT,
    )?;
    let may = window.epoch.borrow().may_post();
    may.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    let ranks = ranks_of(window, group)?;
    // ORDERING: what the program has written is there for who accesses it; partner: the acquire of its `start`.
    fence(Ordering::SeqCst);
    if assertion & MPI_MODE_NOCHECK == 0 {
        let at = posts_of(window.size(), window.rank);
        ranks
            .iter()
            .try_for_each(|&rank| tell(p, window, rank, at))?;
    }
    window.epoch.borrow_mut().post(ranks);
    Ok(())
}

/// `MPI_Win_start`: returns when the targets have posted.
///
/// # Errors
/// `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where an access epoch is open.
pub fn start(p: &Process, window: &Window, group: &Group, assertion: i32) -> Result {
    lock::check_assertion(assertion, MPI_MODE_NOCHECK)?;
    let may = window.epoch.borrow().may_start();
    may.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    let ranks = ranks_of(window, group)?;
    lock::leave_fence(window);
    if assertion & MPI_MODE_NOCHECK == 0 {
        let own = Words::of(p, window, window.rank)?;
        for &rank in &ranks {
            let wanted = window.count_start(rank);
            let (at, who) = (posts_of(window.size(), rank), awaited(window, &[rank]));
            own.await_word(at, (rank as i32, who), |posts| posts >= wanted)?;
        }
    }
    window.epoch.borrow_mut().start(ranks);
    Ok(())
}

/// `MPI_Win_complete`
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` without `MPI_Win_start`; those of operations that are under way, after the targets were told.
pub fn complete(p: &Process, window: &Window) -> Result {
    let ranks = window.epoch.borrow().may_complete();
    let ranks = ranks.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    window.close_all();
    let done = lock::complete_all(p, window);
    ranks
        .iter()
        .try_for_each(|&rank| tell(p, window, rank, COMPLETED))?;
    window.epoch.borrow_mut().complete();
    done
}

/// The ranks of the exposure epoch, and how many epochs have ended here when it is over.
fn exposed(window: &Window) -> Result<(Vec<u32>, u64)> {
    let epoch = window.epoch.borrow();
    let posted = epoch
        .posted()
        .map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    Ok((
        posted.to_vec(),
        window.completions.get() + posted.len() as u64,
    ))
}

fn end(window: &Window, wanted: u64) {
    window.completions.set(wanted);
    window.epoch.borrow_mut().end_post();
}

/// `MPI_Win_wait`
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` without `MPI_Win_post`.
pub fn wait(p: &Process, window: &Window) -> Result {
    let (ranks, wanted) = exposed(window)?;
    let own = Words::of(p, window, window.rank)?;
    own.await_word(COMPLETED, (-1, awaited(window, &ranks)), |ended| {
        ended >= wanted
    })?;
    end(window, wanted);
    Ok(())
}

/// `MPI_Win_test`: as [`wait`], if it need not wait.
///
/// # Errors
/// As [`wait`].
pub fn test(p: &Process, window: &Window) -> Result<bool> {
    let (_, wanted) = exposed(window)?;
    let own = Words::of(p, window, window.rank)?;
    if own.load(COMPLETED)? < wanted {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*p.worker()?).progress() };
        if own.load(COMPLETED)? < wanted {
            note_miss(p)?;
            return Ok(false);
        }
    }
    end(window, wanted);
    Ok(true)
}
