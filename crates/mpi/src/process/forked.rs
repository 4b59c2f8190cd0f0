//! Forked children of a rank, which are no ranks: they share the rank's memory of the job, but not its place in it.
//!
//! A handler of `fork` runs in the child. It empties the hot tables, so that every call takes the ordinary path, and
//! moves the child to the phase after `MPI_Finalize`. Calls of MPI then fail in the child, and `MPI_Finalized` is true
//! for exit handlers that ask. The parent runs no instruction more. Children by a bare `clone`, by `vfork` and by
//! `posix_spawn` have no handlers: such a child only calls `execve`.
#![allow(unsafe_code)]

use super::{Engine, PROCESS, Phase};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::Error;
use crate::common::lock;
use crate::common::places;
use crate::objects::hot;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};
use std::cell::UnsafeCell;
use std::sync::OnceLock;

/// Facts that the handler of `fork` needs, stored before any fork.
struct Watched {
    child: ForkedChild,
    clear_windows: fn(),
}

static WATCHED: OnceLock<Watched> = OnceLock::new();
/// Whether this process is a child.
static IS_CHILD: StaticBool = StaticBool::new(false);

/// The engine that a child has inherited. A leak checker finds its memory here.
struct Inherited(UnsafeCell<Option<Engine>>);

// SAFETY: written once, while the process has one thread, and never read.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited(UnsafeCell::new(None));

/// A forked child of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkedChild {
    /// Rank of its parent in the job.
    pub(crate) rank: u32,
    /// Process number of its parent.
    pub(crate) parent: u32,
}

impl ForkedChild {
    /// What this process is, if it is a forked child of a rank.
    pub(crate) fn find() -> Option<ForkedChild> {
        let is_child = IS_CHILD.load(Ordering::Relaxed);
        WATCHED.get().filter(|_| is_child).map(|watched| watched.child)
    }

    /// The error of every call of MPI in this process.
    pub(crate) fn refuse(self) -> Error {
        let ForkedChild { rank, parent } = self;
        let text = format!(
            "called by a forked process, which is no rank: rank {rank} is its parent, \
             process {parent}"
        );
        Error::new(MPI_ERR_OTHER, text).with_advice(Some(
            "call MPI in the rank alone; let the child end by _exit or execute another program",
        ))
    }
}

/// Has forked children of this process lose MPI from now on. `clear_windows` empties the hot table of windows; it must
/// be async-signal-safe.
///
/// # Errors
/// `pthread_atfork` has no memory.
pub(crate) fn watch(rank: usize, clear_windows: fn()) -> std::io::Result<()> {
    let child = ForkedChild { rank: rank as u32, parent: std::process::id() };
    let watched = Watched { child, clear_windows };
    if WATCHED.set(watched).is_err() {
        return Ok(());
    }
    // SAFETY: the handler is async-signal-safe and stays as long as the library.
    match unsafe { libc::pthread_atfork(None, None, Some(lose_job)) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Runs in a child, which has one thread. Other threads of the parent may have held any lock, so that this takes none.
unsafe extern "C" fn lose_job() {
    let Some(watched) = WATCHED.get() else { return };
    // A child of a child has lost it already.
    if IS_CHILD.swap(true, Ordering::Relaxed) {
        return;
    }
    lock::first().abandon();
    hot::clear_all();
    (watched.clear_windows)();
    places::abandon();
    // SAFETY: the child has one thread. Nothing is dropped: the destination has been empty.
    unsafe { INHERITED.0.get().write((*PROCESS.engine.get()).take()) };
    PROCESS.set_phase(Phase::Finalized);
    PROCESS.set_world_phase(Phase::Finalized);
}
