//! What can be wrong with a segment.

use fastpath_base::refusal::{Bytes, describe_call};
use std::fmt;
use std::io;

/// Why there is no segment, or not enough of it.
#[derive(Debug)]
pub enum SegmentError {
    /// More ranks than a segment is laid out for, or none.
    Ranks(usize),
    /// The kernel refused one step.
    System {
        /// The system call.
        step: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// There is no place for the file.
    NoFile(String),
    /// There is no address space for a piece of it.
    NoAddresses(io::Error),
    /// The file is no segment of this library, or of another version or size.
    Foreign(String),
    /// Not enough memory.
    Shortage {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that there are.
        available: u64,
        /// Whether it is the file system of the file that has no more.
        in_file_system: bool,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Ranks(n) => {
                write!(
                    f,
                    "{n} ranks on one node: from 1 to {} are possible",
                    super::MAX_RANKS
                )
            }
            SegmentError::System { step, cause } => f.write_str(&describe_call(step, cause)),
            SegmentError::NoFile(why) => f.write_str(why),
            SegmentError::NoAddresses(why) => write!(f, "mapping it: {why}"),
            SegmentError::Foreign(why) => write!(f, "not a segment of this library: {why}"),
            SegmentError::Shortage {
                needed,
                available,
                in_file_system,
            } => {
                let place = match in_file_system {
                    true => {
                        "in the file system of the job's memory (in use because memfd_create is \
                         refused; for docker its size is --shm-size)"
                    }
                    false => "on this node (memory of the machine or limit of the control group)",
                };
                write!(
                    f,
                    "out of shared memory: {} needed, {} available {place}; use fewer ranks or \
                     raise the limit",
                    Bytes(*needed),
                    Bytes(*available)
                )
            }
        }
    }
}

impl std::error::Error for SegmentError {}

/// What the kernel has just said to a call.
pub(super) fn system(step: &'static str) -> SegmentError {
    SegmentError::System {
        step,
        cause: io::Error::last_os_error(),
    }
}
