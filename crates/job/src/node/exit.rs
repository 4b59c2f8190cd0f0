#![allow(unsafe_code)]
//! Exit of a process that has not finalized MPI: it ends its job, with its exit code. A launcher may ignore such an
//! exit, and a peer that sees the connections close cannot know the code.
//!
//! Handlers and destructors of the program run before this code, and may finalize MPI.

use super::death::{OwnRank, exit_code, tell_death};
use crate::engine::Aborter;
use fastpath_base::sync::{Ordering, StaticUsize};
use fastpath_segment::RankPhase;
use std::sync::Arc;

/// A process whose exit is watched.
struct WatchedProcess {
    own: OwnRank,
    aborter: Arc<Aborter>,
}

/// Address of this process's [`WatchedProcess`]; 0 if its exit is not watched.
static NOTED: StaticUsize = StaticUsize::new(0);

/// Starts to watch the exit of this process.
pub fn note(own: OwnRank, aborter: Arc<Aborter>) {
    let process: &WatchedProcess = Box::leak(Box::new(WatchedProcess { own, aborter }));
    NOTED.store(std::ptr::from_ref(process) as usize, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    // SAFETY: `note_status` has the type that glibc declares (stdlib.h), and is valid as long as the library.
    unsafe {
        on_exit(note_status, std::ptr::null_mut())
    };
}

/// Returns the watched process; `None` if there is none, or in a forked child, which is not the rank.
fn find_noted() -> Option<&'static WatchedProcess> {
    let noted = NOTED.load(Ordering::Relaxed) as *const WatchedProcess;
    // SAFETY: the address is 0, or that of a value that `note` has leaked.
    let noted = unsafe { noted.as_ref() }?;
    let owner = noted.own.page().owner_pid.load(Ordering::Relaxed);
    (owner == std::process::id()).then_some(noted)
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(
        handler: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void,
    ) -> libc::c_int;
}

/// Called when the process has begun to exit.
#[cfg(target_env = "gnu")]
extern "C" fn note_status(status: libc::c_int, _: *mut libc::c_void) {
    if let Some(WatchedProcess { own, .. }) = find_noted() {
        let noted = (status & 0xff) as u32 + 1;
        own.page().exit_status.store(noted, Ordering::Relaxed);
    }
}

/// Called by the loader last, after the handlers and the destructors of the program.
extern "C" fn end() {
    let Some(WatchedProcess { own, aborter }) = find_noted() else { return };
    let page = own.page();
    // Without an exit status, only the library is being unloaded, and the process continues.
    let Some(status) = page.exit_status.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    if page.phase() != RankPhase::Finalized {
        // SAFETY: flushing all streams has no precondition; exit would do it next.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        tell_death(*own, aborter, own.rank);
        // Skip the destructors of other libraries: with those of PMIx after an abort, PRRTE sometimes hung.
        // SAFETY: `_exit` has no precondition, and the process is exiting.
        unsafe { libc::_exit(exit_code(status as i32)) };
    }
}

// SAFETY: the section holds functions of this type, which the loader calls once.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
