#![allow(unsafe_code)]
//! Table of the ranks for debuggers: MPIR process acquisition interface, version 1.1, 2018. `mpir.c` defines the
//! symbols.
//!
//! The table is always filled, so that a debugger can attach at any time. If the launcher itself runs under a debugger,
//! ranks wait in `MPI_Init` until [`publish_ranks`] returns from the breakpoint. The table lists the ranks of the
//! command line on this host; for several hosts, the launch engine's own table lists the agents.

use fastpath_base::sync::Ordering;
use fastpath_base::wait::futex_wake;
use fastpath_segment::Segment;
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// `MPIR_PROCDESC`.
#[repr(C)]
struct ProcessDescription {
    host_name: *const c_char,
    executable_name: *const c_char,
    pid: c_int,
}

/// Value of `MPIR_debug_state` when the table is complete.
const SPAWNED: c_int = 1;
/// Value of `MPIR_debug_state` when the job aborts.
const ABORTING: c_int = 2;

unsafe extern "C" {
    static mut MPIR_proctable: *const ProcessDescription;
    static mut MPIR_proctable_size: c_int;
    static mut MPIR_debug_state: c_int;
    static mut MPIR_debug_abort_string: *const c_char;
    static mut MPIR_being_debugged: c_int;
    fn MPIR_Breakpoint();
}

/// Returns whether ranks must wait for a debugger, which has set `MPIR_being_debugged` or traces this process. gdb does
/// not set the variable.
pub fn is_debugged() -> bool {
    // SAFETY: the variable is an int of this process; the volatile read gets the value that a debugger wrote.
    let is_set = unsafe { (&raw const MPIR_being_debugged).read_volatile() } != 0;
    is_set || is_traced(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Returns whether a process is traced, by its `/proc/PID/status`.
fn is_traced(status: &str) -> bool {
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// Holds the ranks in `MPI_Init` until [`publish_ranks`] returns. Called before the first rank starts.
pub fn hold_ranks(segment: &Segment) {
    segment.header().is_held.store(1, Ordering::Relaxed);
}

/// Publishes the process numbers of the ranks, stops at the breakpoint for a debugger, and releases held ranks. `path`
/// returns a rank's program.
pub fn publish_ranks<'a>(
    segment: &Segment, host: &str, pids: &[libc::pid_t], path: impl Fn(usize) -> &'a Path,
) {
    let host = keep_text(host.as_bytes());
    let mut last: (&Path, *const c_char) = (Path::new(""), null());
    let describe = |(rank, &pid): (usize, &libc::pid_t)| {
        // Consecutive ranks of one program share its text.
        if path(rank) != last.0 {
            last = (path(rank), keep_text(path(rank).as_os_str().as_bytes()));
        }
        ProcessDescription { host_name: host, executable_name: last.1, pid }
    };
    let table: Vec<ProcessDescription> = pids.iter().enumerate().map(describe).collect();
    // SAFETY: only this thread writes the variables, and a debugger reads them while this process is stopped. The table
    // and its texts are never freed. The volatile writes precede the call, and the function takes no arguments.
    unsafe {
        (&raw mut MPIR_proctable_size).write_volatile(table.len() as c_int);
        (&raw mut MPIR_proctable).write_volatile(table.leak().as_ptr());
        (&raw mut MPIR_debug_state).write_volatile(SPAWNED);
        MPIR_Breakpoint();
    }
    // ORDERING: release; partner is the acquire load in `Job::attach`. No other data is passed.
    if segment.header().is_held.swap(0, Ordering::Release) != 0 {
        futex_wake(&segment.header().is_held, u32::MAX);
    }
}

/// Stops at the breakpoint for a debugger because the job aborts; `text` is the reason.
pub fn report_abort(text: &str) {
    // SAFETY: only this thread writes the variables. The text is never freed.
    unsafe {
        (&raw mut MPIR_debug_abort_string).write_volatile(keep_text(text.as_bytes()));
        (&raw mut MPIR_debug_state).write_volatile(ABORTING);
        MPIR_Breakpoint();
    }
}

/// Copies a text to memory that is never freed.
fn keep_text(text: &[u8]) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn table__has_a_row_for_each_rank_and_held_ranks_are_released() {
        let segment = Segment::create(3, 1).unwrap();
        hold_ranks(&segment);
        let paths = ["/a", "/a", "/b c"].map(Path::new);
        publish_ranks(&segment, "node", &[10, 11, 12], |rank| paths[rank]);
        assert_eq!(segment.header().is_held.load(Ordering::Relaxed), 0);
        // SAFETY: this thread has just written the variables; the table has the published length.
        let table = unsafe {
            assert_eq!((&raw const MPIR_debug_state).read_volatile(), SPAWNED);
            let size = (&raw const MPIR_proctable_size).read_volatile();
            std::slice::from_raw_parts((&raw const MPIR_proctable).read_volatile(), size as usize)
        };
        // SAFETY: the texts are C strings that live for ever.
        let text = |at| unsafe { CStr::from_ptr(at) }.to_str().unwrap();
        let rows: Vec<_> =
            table.iter().map(|r| (text(r.host_name), text(r.executable_name), r.pid)).collect();
        assert_eq!(rows, [("node", "/a", 10), ("node", "/a", 11), ("node", "/b c", 12)]);
        assert_eq!(table[0].executable_name, table[1].executable_name);
    }

    #[test]
    fn tracer__is_read_from_the_status() {
        assert!(is_traced("Name:\tmpiexec\nTracerPid:\t77\nUid:\t0\n"));
        assert!(!is_traced("Name:\tmpiexec\nTracerPid:\t0\n"));
        assert!(!is_traced(""));
    }
}
