//! Post, start, complete and wait (MPI 5.0, section 12.5.2): each rank counts in words of the others' memory how many
//! epochs it has posted for each, and how many of those that each has posted for it it has ended.
#![allow(unsafe_code)]

use super::control::{Words, ends_of, posts_of};
use super::counts::Counted;
use super::window::Window;
use super::{error, lock};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::group::Group;
use crate::p2p::request::note_miss;
use crate::process::Process;
use fastpath_base::trace::Point;
use std::rc::Rc;

/// What a rank and this one have done with each other.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Epochs that this rank has posted for the other one, and said so.
    posted: u64,
    /// Epochs of the other one that this rank has waited for.
    started: u64,
    /// Epochs that this rank has posted for the other one.
    exposed: u64,
    /// Epochs by `MPI_Win_start` that this rank has ended there.
    ended: u64,
}

/// A group, and the ranks that it names in the window, which ascend: programs name the same one again and again.
type Named = Option<(Rc<Group>, Rc<[u32]>)>;

/// What the calls count and remember.
#[derive(Default)]
pub(super) struct Exposure {
    /// By rank; empty until the first call.
    counts: Vec<Counts>,
    posted: Named,
    started: Named,
}

/// Changes, or reads, what has been counted of a rank. Nothing is borrowed when it returns: other threads may come in.
#[inline]
fn count(window: &Window, rank: u32, change: impl FnOnce(&mut Counts) -> u64) -> u64 {
    let counts = &mut window.exposure.borrow_mut().counts;
    if counts.is_empty() {
        counts.resize(window.size() as usize, Counts::default());
    }
    change(&mut counts[rank as usize])
}

fn next(count: &mut u64) -> u64 {
    *count += 1;
    *count
}

/// The ranks that a group names in the window.
#[inline]
fn ranks_of(window: &Window, group: &Rc<Group>, last: &mut Named) -> Result<Rc<[u32]>> {
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
        return Err(Error::new(MPI_ERR_GROUP, text));
    }
    ranks.sort_unstable();
    Ok(ranks.into_iter().map(|rank| rank as u32).collect())
}

fn note_begun(window: &Window) {
    window.counts.add(Counted::Epochs);
    window.record(Point::EpochBegins, 0, 0);
}

fn end_post(window: &Window) {
    window.epoch.borrow_mut().end_post();
    window.record(Point::EpochEnds, 0, 0);
}

/// `MPI_Win_post`
///
/// # Errors
/// `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where an exposure epoch is open.
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

/// `MPI_Win_start`: returns when the targets have posted.
///
/// # Errors
/// `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where an access epoch is open.
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

/// `MPI_Win_complete`
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` without `MPI_Win_start`; those of operations under way, after the targets were notified.
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

/// The ranks of the exposure epoch.
fn exposed(window: &Window) -> Result<Rc<[u32]>> {
    let posted = window.epoch.borrow().posted();
    posted.map_err(|refusal| error::refuse_epoch(window, None, refusal))
}

/// How many epochs a rank has to have ended here.
fn wanted(window: &Window, rank: u32) -> u64 {
    count(window, rank, |counts| counts.exposed)
}

/// `MPI_Win_wait`
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` without `MPI_Win_post`.
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

/// `MPI_Win_test`: as [`wait`], if it need not wait.
///
/// # Errors
/// As [`wait`].
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
