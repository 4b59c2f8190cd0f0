//! Traces: each rank records into its part of the node segment (`fastpath_base::trace`), and one file is made of all
//! parts when the job has ended, in whatever way.
//!
//! The file has the Trace Event Format of Chrome's tracer as JSON, which Perfetto reads too: a process for each rank,
//! a track for each thread. What ranks have written is not trusted: numbers are bounded, texts are cleaned.
#![allow(unsafe_code)]

mod read;
mod write;

use crate::job::Job;
use crate::segment::{Segment, SegmentError};
use fastpath_base::tell::escape;
use fastpath_base::trace::{AREA_BYTES, Area, start};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What a trace holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Ranks that have recorded.
    pub ranks: usize,
    /// Points in the file.
    pub points: u64,
    /// Points that were overwritten by later ones.
    pub overwritten: u64,
    /// Threads that had no room for a ring.
    pub threads_lost: u64,
}

impl Job {
    /// Records points from now on: the last `events` of each thread. With `threads` each thread has a ring of its own,
    /// else there is one, for a process of which one thread at a time is inside MPI.
    ///
    /// # Errors
    /// No address space or no memory for it; then nothing is recorded.
    pub fn start_trace(&'static self, events: u32, threads: bool) -> Result<(), SegmentError> {
        let offset = self.segment().trace_offset(self.rank());
        let offset = offset.ok_or(SegmentError::Ranks(self.rank()))?;
        let mapping = self.map_range(offset, AREA_BYTES as usize)?;
        let back = move |at, bytes| self.segment().ensure_backed(offset + at, bytes).is_ok();
        // SAFETY: mapped for the life of the process, as the mapping is forgotten; the offset is this rank's alone.
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

/// Makes the file, or empties it: the place a trace goes to is wrong at the start of a job rather than at its end.
///
/// # Errors
/// The file cannot be written.
pub fn prepare_file(path: &Path) -> io::Result<()> {
    File::create(path).map(drop)
}

/// Writes the points of all ranks to a file.
///
/// # Errors
/// The segment cannot be read, or the file not be written.
pub fn write_file(segment: &Segment, path: &Path) -> io::Result<Summary> {
    let mut out = BufWriter::new(File::create(path)?);
    let summary = write::write(&read::read_ranks(segment)?, &mut out)?;
    out.flush()?;
    Ok(summary)
}

/// What is said of a trace at the end, in one line.
pub fn describe(path: &Path, outcome: io::Result<Summary>) -> String {
    let path = escape(&path.to_string_lossy()).into_owned();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(e) => return format!("no trace in {path}: {e}"),
    };
    let Summary { ranks, points, overwritten, threads_lost } = summary;
    let mut text = format!("trace of {ranks} ranks in {path}: {points} points");
    if overwritten > 0 {
        text +=
            &format!(", {overwritten} earlier ones overwritten (FASTPATH_TRACE_EVENTS keeps more)");
    }
    if threads_lost > 0 {
        text += &format!(", {threads_lost} threads had no room");
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
