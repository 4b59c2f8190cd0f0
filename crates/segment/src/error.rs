//! Errors of a segment.

use crate::layout::MAX_RANKS;
use fastpath_base::fd::LostFd;
use fastpath_base::refusal::{ByteSize, describe_call};
use std::io;

/// Error of creating, mapping or backing a segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The requested number of ranks is 0, or exceeds the capacity of the segment.
    #[error(
        "{0} ranks on one host are not possible: a host can have 1 to {most} ranks",
        most = MAX_RANKS
    )]
    Ranks(usize),
    /// A system call failed.
    #[error("{}", describe_call(.step, .cause))]
    System {
        /// The system call.
        step: &'static str,
        /// Error of the kernel.
        cause: io::Error,
    },
    /// The file cannot be made anywhere; the text has each attempt and its cause.
    #[error("{0}")]
    NoFile(String),
    /// There is no address space for a mapping.
    #[error("the job's shared memory cannot be mapped: {0}")]
    NoAddresses(io::Error),
    /// The program closed the file's descriptor, and the attempt without it failed.
    #[error("{lost}; without this descriptor, the job's shared memory cannot be used: {cause}")]
    Lost {
        /// The descriptor.
        lost: LostFd,
        /// Error of the attempt without the descriptor.
        cause: io::Error,
    },
    /// The file is not a segment of this library, or has another version or size; the text is the reason.
    #[error("the file cannot be used as the shared memory of this job: {0}")]
    Foreign(String),
    /// There is not enough memory, or space in the file's file system.
    #[error("{}", describe_shortage(.needed, .available, .in_file_system))]
    Shortage {
        /// Bytes requested.
        needed: u64,
        /// Bytes available.
        available: u64,
        /// Whether the file system of the file is full, rather than memory.
        in_file_system: bool,
    },
}

fn describe_shortage(needed: &u64, available: &u64, in_file_system: &bool) -> String {
    let place = match in_file_system {
        true => "in the file system for shared memory (in docker set its size by --shm-size)",
        false => "on this host (free memory, or the rest of the control group's memory limit)",
    };
    let (needed, available) = (ByteSize(*needed), ByteSize(*available));
    format!(
        "out of shared memory: {needed} needed, {available} available {place}; use fewer ranks on \
         this host, or make more memory available"
    )
}

pub(crate) fn system(step: &'static str) -> SegmentError {
    SegmentError::System { step, cause: io::Error::last_os_error() }
}
