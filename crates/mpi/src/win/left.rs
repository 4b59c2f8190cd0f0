//! Windows that are left when the program calls `MPI_Finalize`: with an epoch that others may wait for, and, where
//! mistakes are looked for, all that were never freed.

use super::error::name_targets;
use super::window::{WINDOWS, Window};
use crate::process::Process;

/// Tells of them.
pub(crate) fn tell(p: &Process) {
    let windows = WINDOWS.of(p);
    for window in windows.handles().into_iter().filter_map(|handle| windows.get(handle)) {
        let (open, checks) = (describe_epoch(&window), p.checks());
        let rank = p.engine().map_or(0, |engine| engine.job.rank());
        match (open, checks) {
            (Some(text), Some(checks)) => checks.tell(&text),
            (Some(text), None) => eprintln!("fastpath: rank {rank}: {text}"),
            (None, Some(checks)) => {
                let title = full_title(&window);
                checks.tell(&format!("MPI_Win_free was never called for the window ({title})"));
            }
            (None, None) => {}
        }
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
