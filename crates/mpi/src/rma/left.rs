//! Windows that are in an epoch at `MPI_Finalize` for which other ranks may wait. With `FASTPATH_CHECK`, all windows
//! that were never freed.

use super::epoch::{Refusal, Sharing};
use super::error::name_targets;
use super::lock_all;
use super::window::{WINDOWS, Window};
use crate::common::consts::MPI_ERR_RMA_SYNC;
use crate::common::error::{Error, Result};
use crate::process::Process;
use fastpath_base::tell;
use std::rc::Rc;

fn list(p: &Process) -> impl Iterator<Item = Rc<Window>> + use<'_> {
    let windows = WINDOWS.of(p);
    windows.handles().into_iter().filter_map(|handle| windows.get(handle))
}

/// Refuses to finalize during an epoch that other ranks would wait for forever: an epoch with locks, or one without its
/// `MPI_Win_complete`. An epoch by `MPI_Win_lock_all` that is only counted is not refused, because [`tell`] ends it.
/// Errors: `MPI_ERR_RMA_SYNC`.
pub(crate) fn refuse_open(p: &Process) -> Result {
    for window in list(p) {
        let epoch = window.epoch.borrow();
        let Err(refusal) = epoch.may_free() else {
            continue;
        };
        let keeps_others = match refusal {
            Refusal::InLock => epoch.keeps_locks(),
            Refusal::InStart => true,
            Refusal::InLockAll => epoch.may_unlock_all() == Ok(Sharing::Locks),
            _ => false,
        };
        if keeps_others {
            let (what, advice) = refusal.explain();
            let (title, targets) = (full_title(&window), name_targets(&epoch, refusal));
            let text = format!(
                "MPI_Finalize is called while {what}{targets}, window {title}. Other ranks may be \
                 waiting for the end of this epoch"
            );
            return Err(Error::new(MPI_ERR_RMA_SYNC, text).with_advice(Some(advice)));
        }
    }
    Ok(())
}

/// Reports windows that are left, and ends their `MPI_Win_lock_all` epochs, which other ranks may wait for.
pub(crate) fn tell(p: &Process) {
    for window in list(p) {
        let (open, checks) = (describe_epoch(&window), p.checks());
        let rank = p.engine().map_or(0, |engine| engine.job.rank());
        match (open, checks) {
            (Some(text), Some(checks)) => checks.tell(&text),
            (Some(text), None) => tell!("fastpath: rank {rank}: {text}"),
            (None, Some(checks)) => {
                let title = full_title(&window);
                checks.tell(&format!("MPI_Win_free was never called for the window ({title})"));
            }
            (None, None) => {}
        }
        lock_all::end_left(p, &window);
    }
}

fn describe_epoch(window: &Window) -> Option<String> {
    let epoch = window.epoch.borrow();
    let refusal = epoch.may_free().err()?;
    let (what, advice) = refusal.explain();
    let (title, targets) = (full_title(window), name_targets(&epoch, refusal));
    Some(format!(
        "MPI_Finalize is called while {what}{targets}, window {title}. Other ranks may be waiting \
         for the end of this epoch. Before MPI_Finalize: {advice}, then MPI_Win_free"
    ))
}

fn full_title(window: &Window) -> String {
    match window.name.borrow().as_str() {
        "" => window.title(),
        name => format!("{name}, made by {}", window.made_by),
    }
}
