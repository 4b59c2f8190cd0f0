/// Error of a one-sided operation, or of creating a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// The bytes `offset..offset + len` are not all inside the region of `size` bytes. Nothing was moved.
    #[error("{len} bytes at offset {offset} exceed the target's memory region of {size} bytes")]
    OutOfBounds {
        /// First byte, relative to the region.
        offset: u64,
        /// Number of bytes requested.
        len: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The 8 bytes of an atomic do not begin at a multiple of 8. Nothing was moved.
    #[error("an atomic operation needs an address that is a multiple of 8 bytes")]
    Misaligned,
    /// The bytes are not a valid key; the text has the reason.
    #[error("invalid key of a window's memory: {0}")]
    BadKey(&'static str),
    /// The owner does not expose the memory, or no longer does.
    #[error("the target no longer exposes this memory")]
    Withdrawn,
    /// The owner has left the job, or cannot be reached any more.
    #[error("the target has left the job or cannot be reached")]
    PeerGone,
    /// There is no memory for the connection.
    #[error("no memory for the connection to the target")]
    NoMemory,
}
