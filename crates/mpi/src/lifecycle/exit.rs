//! Release of the library's memory at the exit of a process that has finalized MPI. A leak checker then finds no block
//! of the library.
//!
//! `MPI_Finalize` releases nothing, because it must be short, and because some calls are allowed after it. The loader
//! calls [`release`] after the exit handlers and destructors of the program, which may still use MPI. For the smallest
//! program the release takes 137,000 instructions.
#![allow(unsafe_code)]

use crate::common::lock;
use crate::p2p::{channel::deadlock, probe};
use crate::process::{self, ForkedChild, Process, failures};
use crate::{io, recovery, rma};
use fastpath_base::exit;
use fastpath_base::sync::{StaticBool, StaticOrdering as Ordering};

/// Whether the process has left its job, so that no peer and no thread of the library uses its memory any more.
static HAS_LEFT: StaticBool = StaticBool::new(false);

/// Lets [`release`] run. Called at the end of `MPI_Finalize`.
pub(super) fn allow_release() {
    // ORDERING: release; partner is the acquire in `release`, which the exiting thread may call.
    HAS_LEFT.store(true, Ordering::Release);
}

/// Called by the loader at the exit of the process, or if the library is unloaded.
extern "C" fn release() {
    // ORDERING: acquire; partner is the release in `allow_release`.
    if !HAS_LEFT.swap(false, Ordering::Acquire) || ForkedChild::find().is_some() {
        return;
    }
    // The lock is never released: a thread that still runs must not enter MPI any more.
    lock::get().acquire();
    // SAFETY: this thread holds the lock, and other threads may not call MPI after `MPI_Finalize`.
    let p = unsafe { process::get_unlocked() };
    let Some(engine) = p.engine() else { return };
    let owner = engine.job.own_page().owner_pid.load(Ordering::Relaxed);
    // SAFETY: the worker lives until `drop_all`.
    let has_adapter = unsafe { (*engine.worker()).interfaces().has_adapter() };
    // A child by a bare `clone` is not the rank. The library of an adapter may have been unloaded already.
    if owner != std::process::id() || has_adapter {
        return;
    }
    drop_objects(p);
    // SAFETY: the process has left the job, its tables are empty, and the engine, which refers to the job and the
    // worker, is removed first. Later calls find a process after `MPI_Finalize`.
    unsafe {
        *p.engine.get() = None;
        exit::drop_all();
    }
}

/// Drops all MPI objects of the process, each before those that it refers to.
fn drop_objects(p: &Process) {
    io::drop_all(p);
    rma::window::drop_all(p);
    probe::drop_all(p);
    deadlock::drop_all(p);
    recovery::drop_all(p);
    p.extras.drop_all();
    p.session_use.drop_all();
    p.comms.clear();
    p.freed_comms.drop_all();
    failures::drop_all(p);
    p.contexts.drop_all();
    p.groups.clear();
    p.types.clear();
    p.ops.clear();
    p.sessions.clear();
    p.keyvals.clear();
    p.infos.clear();
    p.errhandlers.clear();
    p.codes.drop_all();
    p.spare_blocks.drop_all();
    p.spare_buffers.drop_all();
}

// SAFETY: the section holds functions of this type, which the loader calls once.
#[used]
#[unsafe(link_section = ".fini_array")]
static RELEASE: extern "C" fn() = release;
