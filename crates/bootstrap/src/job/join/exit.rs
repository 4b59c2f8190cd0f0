#![allow(unsafe_code)]
//! A process that exits without having finalized MPI ends its job, with its exit code. Its launcher may not care, and a
//! peer that sees its connections close cannot know the code.
//!
//! Handlers and destructors of the program run before: one of them may finalize MPI.

use crate::job::{Job, exit_code};
use crate::segment::Phase;
use fastpath_base::sync::{Ordering, StaticUsize};

/// Address of the job of this process; 0 if its end is not watched.
static NOTED: StaticUsize = StaticUsize::new(0);

/// Has the exit of this process looked at.
pub fn note(job: &'static Job) {
    NOTED.store(std::ptr::from_ref(job) as usize, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    // SAFETY: a function of the type that glibc declares (stdlib.h), which stays as long as the library.
    unsafe {
        on_exit(note_status, std::ptr::null_mut())
    };
}

/// The job, if this process is the rank: a child that was forked is not.
fn find_job() -> Option<&'static Job> {
    let job = NOTED.load(Ordering::Relaxed) as *const Job;
    // SAFETY: null, or a job that lives as long as the process (`note`).
    let job = unsafe { job.as_ref() }?;
    let owner = job.own_page().owner_pid.load(Ordering::Relaxed);
    (owner == std::process::id()).then_some(job)
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(
        handler: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void,
    ) -> libc::c_int;
}

/// The process has begun to exit, with this status.
#[cfg(target_env = "gnu")]
extern "C" fn note_status(status: libc::c_int, _: *mut libc::c_void) {
    if let Some(job) = find_job() {
        let noted = (status & 0xff) as u32 + 1;
        job.own_page().exit_status.store(noted, Ordering::Relaxed);
    }
}

/// The loader's last call of this library, after the handlers and the destructors of the program.
extern "C" fn end() {
    let Some(job) = find_job() else { return };
    let page = job.own_page();
    // Not noted: the library is unloaded, and the process goes on.
    let Some(status) = page.exit_status.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    if page.phase() != Phase::Finalized
        && let Some(link) = &job.link
    {
        // SAFETY: flushing all streams has no precondition; it would come next.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        link.tell_own_death(job);
        // What is left are destructors of other libraries: with those of PMIx's after an abort PRRTE sometimes hung.
        // SAFETY: ends the process, as it is about to.
        unsafe { libc::_exit(exit_code(status as i32)) };
    }
}

// SAFETY: the section holds functions of this type, which the loader calls once.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
