//! Post, start, complete and wait (MPI 5.0, section 12.5.2). A rank keeps two counts in each other rank's memory: the
//! exposure epochs that it has posted for that rank, and its own `MPI_Win_start` epochs to that rank that it has ended.
#![allow(unsafe_code)]

use super::control::{Words, ends_of, posts_of};
use super::counts::RmaCounter;
use super::window::Window;
use super::{error, lock};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::group::Group;
use crate::p2p::request::note_miss;
use crate::process::Process;
use fastpath_base::trace::Point;
use std::rc::Rc;

#[derive(Debug, Clone, Copy, Default)]
struct EpochCounts {
    /// Number of epochs that this rank has posted for the other rank and announced.
    posted: u64,
    /// Number of exposure epochs of the other rank that this rank has waited for in `MPI_Win_start`.
    started: u64,
    /// Number of epochs that this rank has posted for the other rank, announced or not.
    exposed: u64,
    /// Number of `MPI_Win_start` epochs that this rank has ended on the other rank.
    ended: u64,
}

/// The last group used and its ranks in the window, in ascending order. Programs use one group repeatedly.
type CachedGroup = Option<(Rc<Group>, Rc<[u32]>)>;

#[derive(Default)]
pub(super) struct Exposure {
    /// Counts by rank; empty until a call needs them.
    counts: Vec<EpochCounts>,
    posted: CachedGroup,
    started: CachedGroup,
}

/// Changes or reads the counts of a rank. No borrow outlives this call, because other threads may enter MPI later.
#[inline]
fn count(window: &Window, rank: u32, change: impl FnOnce(&mut EpochCounts) -> u64) -> u64 {
    let counts = &mut window.exposure.borrow_mut().counts;
    if counts.is_empty() {
        counts.resize(window.size() as usize, EpochCounts::default());
    }
    change(&mut counts[rank as usize])
}

fn next(count: &mut u64) -> u64 {
    *count += 1;
    *count
}

#[inline]
fn ranks_of(window: &Window, group: &Rc<Group>, last: &mut CachedGroup) -> Result<Rc<[u32]>> {
    match last {
        Some((named, ranks)) if Rc::ptr_eq(named, group) => Ok(Rc::clone(ranks)),
        _ => {
            let ranks = translate(window, group)?;
            *last = Some((Rc::clone(group), Rc::clone(&ranks)));
            Ok(ranks)
        }
    }
}

#[cold]
#[inline(never)]
fn translate(window: &Window, group: &Group) -> Result<Rc<[u32]>> {
    let all: Vec<i32> = (0..group.size() as i32).collect();
    let mut ranks = group.translate(&all, &window.group)?;
    if let Some(stranger) = ranks.iter().position(|&rank| rank == MPI_UNDEFINED) {
        let title = window.title();
        let text = format!("rank {stranger} of the group is not in the window's group ({title})");
        let advice = "pass a subgroup of the window's group";
        return Err(Error::new(MPI_ERR_GROUP, text).with_advice(Some(advice)));
    }
    ranks.sort_unstable();
    Ok(ranks.into_iter().map(|rank| rank as u32).collect())
}

fn note_begun(window: &Window) {
    window.counts.add(RmaCounter::Epochs);
    window.record(Point::EpochBegins, 0, 0);
}

fn end_post(window: &Window) {
    window.epoch.borrow_mut().end_post();
    window.record(Point::EpochEnds, 0, 0);
}

/// `MPI_Win_post`. Errors: `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, and `MPI_ERR_RMA_SYNC` if an exposure epoch is open.
pub fn post(p: &Process, window: &Window, group: &Rc<Group>, assertion: i32) -> Result {
    lock::check_assertion(assertion, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)?;
    let may = window.epoch.borrow().may_post();
    may.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    let ranks = ranks_of(window, group, &mut window.exposure.borrow_mut().posted)?;
    let at = posts_of(window.size(), window.rank);
    for &rank in &*ranks {
        count(window, rank, |counts| next(&mut counts.exposed));
        if assertion & MPI_MODE_NOCHECK == 0 {
            let posted = count(window, rank, |counts| next(&mut counts.posted));
            Words::of(p, window, rank)?.count(at, posted)?;
        }
    }
    window.epoch.borrow_mut().post(ranks);
    note_begun(window);
    Ok(())
}

/// `MPI_Win_start`. Returns once the targets have posted. Errors: `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, and
/// `MPI_ERR_RMA_SYNC` if an access epoch is open.
pub fn start(p: &Process, window: &Window, group: &Rc<Group>, assertion: i32) -> Result {
    lock::check_assertion(assertion, MPI_MODE_NOCHECK)?;
    let may = window.epoch.borrow().may_start();
    may.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    let ranks = ranks_of(window, group, &mut window.exposure.borrow_mut().started)?;
    lock::leave_fence(window);
    if assertion & MPI_MODE_NOCHECK == 0 {
        let own = Words::of(p, window, window.rank)?;
        for &rank in &*ranks {
            let wanted = count(window, rank, |counts| next(&mut counts.started));
            own.await_count(posts_of(window.size(), rank), rank, wanted)?;
        }
    }
    for &rank in &*ranks {
        window.show_again(rank);
    }
    window.epoch.borrow_mut().start(ranks);
    note_begun(window);
    Ok(())
}

/// `MPI_Win_complete`. Errors: `MPI_ERR_RMA_SYNC` without `MPI_Win_start`. Pending operations may also fail, after the
/// targets are notified.
pub fn complete(p: &Process, window: &Window) -> Result {
    let ranks = window.epoch.borrow().may_complete();
    let ranks = ranks.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    window.close_all();
    let done = lock::complete_pending(p, window);
    let at = ends_of(window.size(), window.rank);
    for &rank in &*ranks {
        let ended = count(window, rank, |counts| next(&mut counts.ended));
        Words::of(p, window, rank)?.count(at, ended)?;
    }
    window.epoch.borrow_mut().complete();
    window.record(Point::EpochEnds, 0, 0);
    done
}

fn exposed(window: &Window) -> Result<Rc<[u32]>> {
    let posted = window.epoch.borrow().posted();
    posted.map_err(|refusal| error::refuse_epoch(window, None, refusal))
}

fn wanted(window: &Window, rank: u32) -> u64 {
    count(window, rank, |counts| counts.exposed)
}

/// `MPI_Win_wait`. Errors: `MPI_ERR_RMA_SYNC` without `MPI_Win_post`.
pub fn wait(p: &Process, window: &Window) -> Result {
    let ranks = exposed(window)?;
    let own = Words::of(p, window, window.rank)?;
    for &rank in &*ranks {
        let at = ends_of(window.size(), rank);
        own.await_count(at, rank, wanted(window, rank))?;
    }
    end_post(window);
    Ok(())
}

/// `MPI_Win_test`: ends the exposure epoch if [`wait`] would not block. Returns whether it ended. Errors: see [`wait`].
pub fn test(p: &Process, window: &Window) -> Result<bool> {
    let ranks = exposed(window)?;
    let own = Words::of(p, window, window.rank)?;
    let is_over = || -> Result<bool> {
        for &rank in &*ranks {
            if own.load(ends_of(window.size(), rank))? < wanted(window, rank) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if !is_over()? {
        // SAFETY: the worker lives while MPI runs, and this call holds the lock.
        unsafe { (*p.worker()?).progress() };
        if !is_over()? {
            note_miss(p)?;
            return Ok(false);
        }
    }
    end_post(window);
    Ok(true)
}
