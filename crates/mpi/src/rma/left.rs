//! Windows that are left when the program calls `MPI_Finalize`: with an epoch whose end others may wait for, and, where
//! mistakes are looked for, all that were never freed.

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

/// Refuses to end while this process has locks that others may wait for, or has accessed ranks that wait for its
/// `MPI_Win_complete`: they would wait for ever. Where `MPI_Win_lock_all` is only counted, [`tell`] ends it.
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` for such an epoch.
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
                "called while {what}{targets} (window {title}): a rank that waits for its end \
                 would wait for ever"
            );
            return Err(Error::new(MPI_ERR_RMA_SYNC, text).with_advice(Some(advice)));
        }
    }
    Ok(())
}

/// Tells of them, and ends `MPI_Win_lock_all`, for whose end others may wait.
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

/// The epoch that has to be ended before the window is freed, if there is one.
fn describe_epoch(window: &Window) -> Option<String> {
    let epoch = window.epoch.borrow();
    let refusal = epoch.may_free().err()?;
    let (what, advice) = refusal.explain();
    let (title, targets) = (full_title(window), name_targets(&epoch, refusal));
    Some(format!(
        "MPI_Finalize is called while {what}{targets} (window {title}), and others may wait for \
         its end: {advice}, and MPI_Win_free"
    ))
}

/// Its name, and how it was made.
fn full_title(window: &Window) -> String {
    match window.name.borrow().as_str() {
        "" => window.title(),
        name => format!("{name}, made by {}", window.made_by),
    }
}
