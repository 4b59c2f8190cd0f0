//! Traces: each rank records into its part of the node segment (`fastpath_base::trace`). After the end of the job, even
//! by a failure, all parts are merged into one file.
//!
//! The file is JSON in the Trace Event Format of Chrome's tracer, which Perfetto reads too. In the file, each rank is a
//! process, and each thread a track. The parts are not trusted: numbers are bounded, and texts are cleaned.
#![allow(unsafe_code)]

mod read;
mod write;

pub use write::Summary;

use crate::job::Job;
use fastpath_base::tell::{count, escape};
use fastpath_base::trace::{AREA_BYTES, Area, start};
use fastpath_segment::{Segment, SegmentError};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

impl Job {
    /// Starts to record the last `events` points of each thread. With `threads` each thread has its own ring. Otherwise
    /// there is one ring, for a process in which one thread at a time is inside MPI.
    ///
    /// # Errors
    /// No address space or no memory is left; nothing is then recorded.
    pub fn start_trace(&'static self, events: u32, threads: bool) -> Result<(), SegmentError> {
        let offset = self.segment().trace_offset(self.rank());
        let offset = offset.ok_or(SegmentError::Ranks(self.rank()))?;
        let mapping = self.map_range(offset, AREA_BYTES as usize)?;
        let back = move |at, bytes| self.segment().ensure_backed(offset + at, bytes).is_ok();
        // SAFETY: the mapping is forgotten, so it lasts as long as the process. Only this rank uses the offset.
        let area = unsafe { Area::new(mapping.base().as_ptr(), events, Box::new(back)) };
        std::mem::forget(mapping);
        match area.is_some_and(|area| start(area, threads)) {
            true => Ok(()),
            false => Err(SegmentError::System {
                step: "memory for a trace",
                cause: io::ErrorKind::OutOfMemory.into(),
            }),
        }
    }
}

/// Creates or empties the file, so that a wrong path is an error at the start of a job rather than at its end.
///
/// # Errors
/// The file cannot be written.
pub fn prepare_file(path: &Path) -> io::Result<()> {
    File::create(path).map(drop)
}

/// Writes the points of all ranks to a file.
///
/// # Errors
/// The segment cannot be read, or the file cannot be written.
pub fn write_file(segment: &Segment, path: &Path) -> io::Result<Summary> {
    let mut out = BufWriter::new(File::create(path)?);
    let summary = write::write(&read::read_ranks(segment)?, &mut out)?;
    out.flush()?;
    Ok(summary)
}

/// Describes the written trace in one line.
pub fn describe(path: &Path, outcome: io::Result<Summary>) -> String {
    let path = escape(&path.to_string_lossy()).into_owned();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(e) => return format!("no trace was written to {path}: {e}"),
    };
    let Summary { ranks, points, overwritten, threads_lost } = summary;
    let mut text =
        format!("trace of {} in {path}: {}", count(ranks as u64, "rank"), count(points, "point"));
    if overwritten > 0 {
        text += &format!(
            ", {overwritten} earlier points overwritten (raise FASTPATH_TRACE_EVENTS to keep more)"
        );
    }
    if threads_lost > 0 {
        let lost = count(threads_lost, "thread");
        text += &format!(", {lost} not recorded: the trace has no space for more threads");
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
