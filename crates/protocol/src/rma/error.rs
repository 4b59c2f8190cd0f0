//! Why a one-sided operation did not happen.

/// Why a one-sided operation, or the making of a key, did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// The bytes `offset..offset + len` are not all inside the region, which has `size`. Nothing was moved.
    #[error("{len} bytes at {offset} of a region of {size} bytes")]
    OutOfBounds {
        /// First byte, from the region's begin.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// An atomic's 8 bytes do not begin at a multiple of 8. Nothing was moved.
    #[error("an atomic operation needs a multiple of 8 bytes as its address")]
    Misaligned,
    /// These bytes are no key; the text says what is wrong with them.
    #[error("this is no key of a memory region: {0}")]
    BadKey(&'static str),
    /// The owner does not expose that memory (any more).
    #[error("its owner does not expose this memory any more")]
    Withdrawn,
    /// The owner has left the job, or cannot be reached any more.
    #[error("the owner of the memory has left the job or cannot be reached")]
    PeerGone,
    /// There is no memory for the connection.
    #[error("there is no memory for the connection")]
    NoMemory,
}
