//! Traces (`FASTPATH_TRACE`): their start and end, and the immediate path with trace points.
//!
//! While points are recorded, the keys of communicators in the hot tables match no handle (`hot::key`), so the
//! immediate path declines every call on a communicator. Therefore it needs no test for tracing, and costs nothing more
//! when tracing is off. A declined call comes here first, and runs the same immediate code with points around it.
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
use fastpath_job::Job;
use fastpath_job::trace::{describe, prepare_file, write_file};
use fastpath_segment::Notice;
use std::path::Path;
use std::sync::OnceLock;

/// Job and path of the trace that this process writes itself, if no launcher of Fastpath does.
static ALONE: OnceLock<(&'static Job, &'static Path)> = OnceLock::new();

/// Starts recording if the configuration or a tool requests it. Returns whether trace points are recorded. On failure
/// it prints the reason, and the program runs without a trace.
pub(crate) fn start(config: &'static Config, job: &'static Job, threads: bool) -> bool {
    let path = config.text(Key::Trace);
    if path.is_empty() && !event::is_wanted() {
        return false;
    }
    if !path.is_empty() && job.writes_trace() {
        let path = name_file(job, path);
        if let Err(e) = prepare_file(Path::new(path)) {
            let path = shorten(path);
            tell!(
                "fastpath: no trace is written, because FASTPATH_TRACE={path} cannot be used: {e}"
            );
            return false;
        }
        _ = ALONE.set((job, Path::new(path)));
        // SAFETY: `write_alone` needs no arguments and may run at any time from now on.
        unsafe { libc::atexit(write_alone) };
    }
    let events = config.number(Key::TraceEvents).unwrap_or(u64::MAX);
    match job.start_trace(events.min(u64::from(u32::MAX)) as u32, threads) {
        Ok(()) => true,
        Err(e) => {
            if job.header().is_first_notice(Notice::Trace) {
                tell!("fastpath: no trace is recorded for FASTPATH_TRACE: {e}");
            }
            false
        }
    }
}

/// Returns the path of a node's trace. Each node after the first adds its number to the path.
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

fn world(args: &Args) -> u32 {
    // SAFETY: the immediate path has validated the communicator and the rank.
    unsafe { *hot::comm(args.comm).world.add(args.peer as usize) }
}

/// Sends immediately, with trace points. Returns `None` if nothing is recorded, or if the send is declined.
///
/// # Safety
/// See [`try_send`].
pub unsafe fn send(name: &'static str, args: Args) -> Option<Result<()>> {
    if !trace::is_on() {
        return None;
    }
    let begun = trace::read_ticks();
    let shows = hot::sends_inside(args.comm);
    let sent = match shows {
        // SAFETY: the buffer is readable as count and datatype specify, by this function's contract.
        true => unsafe { try_send::<false, { hot::INSIDE }>(args) },
        false => Immediate::Declined,
    };
    if sent == Immediate::Declined {
        return None;
    }
    let bytes = (args.count as u64).wrapping_mul(hot::datatype(args.datatype).size);
    let peer = world(&args);
    let Immediate::Wake(bytes) = sent else {
        // The message is complete, so the call returns now.
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

/// Receives immediately, with trace points. Returns false if nothing is recorded, or if no message is there.
///
/// # Safety
/// See [`crate::p2p::try_copy`].
pub unsafe fn recv(name: &'static str, args: Args, status: *mut Status) -> bool {
    if !trace::is_on() {
        return false;
    }
    let begun = trace::read_ticks();
    // SAFETY: the buffer is writable as count and datatype specify, and `status` is null or writable, by this
    // function's contract.
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
