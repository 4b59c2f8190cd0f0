//! Traces (`FASTPATH_TRACE`): where they begin and end, and the immediate path with its points.
//!
//! Where points are recorded, the hot tables hide from the immediate path (`hot::key`), so that it costs nothing where
//! they are not. What it declines comes here first, and goes the same way with points around it.
#![allow(unsafe_code)]

use crate::common::error::Result;
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::objects::hot;
use crate::p2p::slow;
use crate::p2p::{Immediate, fill_status, find_source, try_send};
use crate::process::ForkedChild;
use crate::tool::event;
use fastpath_base::config::{Config, Key, shorten};
use fastpath_base::tell;
use fastpath_base::trace::{self, Point};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::Notice;
use fastpath_bootstrap::trace::{describe, prepare_file, write_file};
use std::path::Path;
use std::sync::OnceLock;

/// Without a launcher of ours a process writes the file of its node itself.
static ALONE: OnceLock<(&'static Job, &'static Path)> = OnceLock::new();

/// Begins to record, if the configuration or a tool asks for it; returns whether points are recorded. If that fails, a
/// line says why, and the program runs without a trace.
pub(crate) fn start(config: &'static Config, job: &'static Job, threads: bool) -> bool {
    let path = config.text(Key::Trace);
    if path.is_empty() && !event::is_wanted() {
        return false;
    }
    if !path.is_empty() && job.writes_trace() {
        let path = name_file(job, path);
        if let Err(e) = prepare_file(Path::new(path)) {
            let path = shorten(path);
            tell!("fastpath: FASTPATH_TRACE={path}: {e} (no trace is written)");
            return false;
        }
        _ = ALONE.set((job, Path::new(path)));
        // SAFETY: `write_alone` may run at any time after this.
        unsafe { libc::atexit(write_alone) };
    }
    let events = config.number(Key::TraceEvents).unwrap_or(u64::MAX);
    match job.start_trace(events.min(u64::from(u32::MAX)) as u32, threads) {
        Ok(()) => true,
        Err(e) => {
            if job.header().is_first_notice(Notice::Trace) {
                tell!("fastpath: FASTPATH_TRACE: {e} (nothing is recorded)");
            }
            false
        }
    }
}

/// Where a node's trace goes: nodes beyond the first one have files of their own.
fn name_file(job: &Job, path: &'static str) -> &'static str {
    match job.host(job.rank()) {
        0 => path,
        node => Box::leak(format!("{path}.{node}").into_boxed_str()),
    }
}

extern "C" fn write_alone() {
    let Some((job, path)) = ALONE.get().filter(|_| ForkedChild::find().is_none()) else {
        return;
    };
    let outcome = write_file(job.segment(), path);
    tell!("fastpath: {}", describe(path, outcome));
}

/// World rank of a communicator's rank.
fn world(args: &Args) -> u32 {
    // SAFETY: the immediate path has accepted the communicator and the rank.
    unsafe { *hot::comm(args.comm).world.add(args.peer as usize) }
}

/// An immediate send with its points; `None` where nothing is recorded, or it is declined.
///
/// # Safety
/// As [`try_send`].
pub unsafe fn send(name: &'static str, args: Args) -> Option<Result<()>> {
    if !trace::is_on() {
        return None;
    }
    let begun = trace::read_ticks();
    let shows = hot::sends_inside(args.comm);
    let sent = match shows {
        // SAFETY: the buffer is readable as count and datatype say, by this function's contract.
        true => unsafe { try_send::<false, { hot::INSIDE }>(args) },
        false => Immediate::Declined,
    };
    if sent == Immediate::Declined {
        return None;
    }
    let bytes = (args.count as u64).wrapping_mul(hot::datatype(args.datatype).size);
    let peer = world(&args);
    let Immediate::Wake(bytes) = sent else {
        // Nothing is left to do: the call returns when it has posted.
        trace::record_call(name, begun, Point::PostShort, peer, args.tag, bytes);
        return Some(Ok(()));
    };
    trace::enter_at(name, begun);
    trace::record(Point::PostShort, peer, args.tag, bytes);
    trace::record(Point::Wake, peer, 0, bytes);
    let result = slow::wake(args.comm, args.peer, args.tag, bytes);
    trace::leave();
    Some(result)
}

/// An immediate receive with its points; false where nothing is recorded, or the message is not there.
///
/// # Safety
/// As [`crate::p2p::try_copy`].
pub unsafe fn recv(name: &'static str, args: Args, status: *mut Status) -> bool {
    if !trace::is_on() {
        return false;
    }
    let begun = trace::read_ticks();
    // SAFETY: the buffer is writable as count and datatype say, and `status` null or a status, by this function's
    // contract.
    unsafe {
        if !hot::receives_inside(args.comm) {
            return false;
        }
        let Some((endpoint, key, room)) = find_source::<{ hot::INSIDE }>(&args) else {
            return false;
        };
        let Some(taken) = (*endpoint).recv_short(key, args.tag, args.buf, room) else {
            return false;
        };
        fill_status(status, args.peer, taken.tag, taken.len as i64);
        let (peer, len) = (world(&args), taken.len as u64);
        trace::record_call(name, begun, Point::TakeShort, peer, taken.tag, len);
    }
    true
}
