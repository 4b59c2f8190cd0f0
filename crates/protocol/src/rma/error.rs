//! Why a one-sided operation did not happen.

use std::fmt;

/// Why a one-sided operation, or the making of a key, did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RmaError {
    /// The bytes `offset..offset + len` are not all inside the region, which has `size`. Nothing was moved.
    OutOfBounds {
        /// First byte, from the region's begin.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// An atomic's 8 bytes do not begin at a multiple of 8. Nothing was moved.
    Misaligned,
    /// These bytes are no key; the text says what is wrong with them.
    BadKey(&'static str),
    /// The owner does not expose that memory (any more).
    Withdrawn,
    /// The owner has left the job, or cannot be reached any more.
    PeerGone,
    /// There is no memory for the connection.
    NoMemory,
}

impl fmt::Display for RmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RmaError::OutOfBounds { offset, len, size } => {
                write!(f, "{len} bytes at {offset} of a region of {size} bytes")
            }
            RmaError::Misaligned => {
                f.write_str("an atomic operation needs a multiple of 8 bytes as its address")
            }
            RmaError::BadKey(why) => write!(f, "this is no key of a memory region: {why}"),
            RmaError::Withdrawn => f.write_str("its owner does not expose this memory any more"),
            RmaError::PeerGone => {
                f.write_str("the owner of the memory has left the job or cannot be reached")
            }
            RmaError::NoMemory => f.write_str("there is no memory for the connection"),
        }
    }
}

impl std::error::Error for RmaError {}
