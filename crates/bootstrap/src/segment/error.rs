//! What can be wrong with a segment.

use fastpath_base::fd::LostFd;
use fastpath_base::refusal::{Bytes, describe_call};
use std::io;

/// Why there is no segment, or not enough of it.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// More ranks than a segment is laid out for, or none.
    #[error("{0} ranks on one node: from 1 to {most} are possible", most = super::MAX_RANKS)]
    Ranks(usize),
    /// The kernel refused one step.
    #[error("{}", describe_call(.step, .cause))]
    System {
        /// The system call.
        step: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// There is no place for the file.
    #[error("{0}")]
    NoFile(String),
    /// There is no address space for a piece of it.
    #[error("mapping it: {0}")]
    NoAddresses(io::Error),
    /// The descriptor of the file was lost, and doing without it failed.
    #[error("{lost}; going on without it: {cause}")]
    Lost {
        /// The descriptor.
        lost: LostFd,
        /// The kernel's answer to the way without it.
        cause: io::Error,
    },
    /// The file is no segment of this library, or of another version or size.
    #[error("not a segment of this library: {0}")]
    Foreign(String),
    /// Not enough memory.
    #[error("{}", describe_shortage(.needed, .available, .in_file_system))]
    Shortage {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that there are.
        available: u64,
        /// Whether it is the file system of the file that has no more.
        in_file_system: bool,
    },
}

fn describe_shortage(needed: &u64, available: &u64, in_file_system: &bool) -> String {
    let place = match in_file_system {
        true => {
            "in the file system of the job's memory (in use because memfd_create is refused; for \
             docker its size is --shm-size)"
        }
        false => "on this node (memory of the machine or limit of the control group)",
    };
    let (needed, available) = (Bytes(*needed), Bytes(*available));
    format!(
        "out of shared memory: {needed} needed, {available} available {place}; use fewer ranks or \
         raise the limit"
    )
}

/// What the kernel has just said to a call.
pub(super) fn system(step: &'static str) -> SegmentError {
    SegmentError::System { step, cause: io::Error::last_os_error() }
}
