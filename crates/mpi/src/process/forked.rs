//! Forked children of a rank. Forked children are not ranks: they share the rank's memory of the job, but not its place
//! in the job.
//!
//! A handler of `fork` runs in the child. It clears the hot tables, so that every call takes the ordinary path, and
//! moves the child to the phase after `MPI_Finalize`. Calls of MPI then fail in the child, and `MPI_Finalized` is true
//! for exit handlers. The parent executes no additional instruction. Children by a bare `clone`, by `vfork` and by
//! `posix_spawn` run no handlers; such a child only calls `execve`.
#![allow(unsafe_code)]

use super::{PROCESS, ProcessPhase, Runtime};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::Error;
use crate::common::lock;
use crate::objects::hot;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use std::cell::UnsafeCell;
use std::sync::OnceLock;

/// Facts that the handler of `fork` needs, stored before any fork.
struct ForkFacts {
    child: ForkedChild,
    clear_windows: fn(),
}

static WATCHED: OnceLock<ForkFacts> = OnceLock::new();
static IS_CHILD: StaticBool = StaticBool::new(false);

/// Engine that a child has inherited, kept so that a leak checker finds its memory.
struct InheritedRuntime(UnsafeCell<Option<Runtime>>);

// SAFETY: the value is written once, while the process has one thread, and never read.
unsafe impl Sync for InheritedRuntime {}

static INHERITED: InheritedRuntime = InheritedRuntime(UnsafeCell::new(None));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkedChild {
    /// Rank of the parent in the job.
    pub(crate) rank: u32,
    /// Process number of the parent.
    pub(crate) parent: u32,
}

impl ForkedChild {
    pub(crate) fn find() -> Option<ForkedChild> {
        let is_child = IS_CHILD.load(Ordering::Relaxed);
        WATCHED.get().filter(|_| is_child).map(|watched| watched.child)
    }

    pub(crate) fn refuse(self) -> Error {
        let ForkedChild { rank, parent } = self;
        let text = format!(
            "this call was made by a forked child process, which is not a rank: the parent process \
             is rank {rank}, process {parent}"
        );
        Error::new(MPI_ERR_OTHER, text).with_advice(Some(
            "call MPI only in the parent; let the child call _exit or execute another program",
        ))
    }
}

/// Disables MPI in children that this process forks later. `clear_windows` clears the hot table of windows, and must be
/// async-signal-safe. Fails if `pthread_atfork` has no memory.
pub(crate) fn watch(rank: usize, clear_windows: fn()) -> std::io::Result<()> {
    let child = ForkedChild { rank: rank as u32, parent: std::process::id() };
    let watched = ForkFacts { child, clear_windows };
    if WATCHED.set(watched).is_err() {
        return Ok(());
    }
    // SAFETY: the handler is async-signal-safe, and its code stays loaded as long as the library.
    match unsafe { libc::pthread_atfork(None, None, Some(lose_job)) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Handler of `fork`: disables MPI in the child, which has one thread. It takes no lock, because a thread of the parent
/// may have held one at the fork.
unsafe extern "C" fn lose_job() {
    let Some(watched) = WATCHED.get() else { return };
    // In a child of a child, MPI is disabled already.
    if IS_CHILD.swap(true, Ordering::Relaxed) {
        return;
    }
    lock::get().abandon();
    hot::clear_all();
    (watched.clear_windows)();
    // SAFETY: the child has one thread. Nothing is dropped: the destination was empty.
    unsafe { INHERITED.0.get().write((*PROCESS.engine.get()).take()) };
    PROCESS.set_phase(ProcessPhase::Finalized);
    PROCESS.set_world_phase(ProcessPhase::Finalized);
}
