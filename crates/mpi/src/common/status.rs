//! What a receive tells its caller: `MPI_Status`.

/// `MPI_Status` as C has it: 32 bytes, aligned to 4 (MPI 5.0, chapter 20). The last five words are
/// the library's; here they hold the number of bytes received and whether the operation was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    /// `MPI_SOURCE`: rank of the sender.
    pub source: i32,
    /// `MPI_TAG`: tag of the message.
    pub tag: i32,
    /// `MPI_ERROR`: written by calls that complete several operations, and by them only.
    pub error: i32,
    /// Bytes: low half, high half; then the flag of cancellation; the rest is 0.
    internal: [i32; 5],
}

const _: () = assert!(size_of::<Status>() == 32 && align_of::<Status>() == 4);

impl Status {
    /// A status of a message of `bytes` bytes, not cancelled.
    #[must_use]
    #[inline]
    pub const fn new(source: i32, tag: i32, error: i32, bytes: i64) -> Self {
        let mut status = Self { source, tag, error, internal: [0; 5] };
        status.set_bytes(bytes);
        status
    }

    /// The number of bytes received.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> i64 {
        (self.internal[0] as u32 as i64) | ((self.internal[1] as i64) << 32)
    }

    /// Sets the number of bytes received.
    #[inline]
    pub const fn set_bytes(&mut self, bytes: i64) {
        self.internal[0] = bytes as i32;
        self.internal[1] = (bytes >> 32) as i32;
    }

    /// Whether the operation was cancelled.
    #[must_use]
    #[inline]
    pub const fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    /// Says whether the operation was cancelled.
    #[inline]
    pub const fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[2] = cancelled as i32;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bytes__keep_all_their_bits_beside_the_flag() {
        for bytes in [0, 3, 1 << 31, (1 << 32) + 5, i64::MAX] {
            let mut status = Status::new(1, 2, 3, bytes);
            assert_eq!((status.bytes(), status.is_cancelled()), (bytes, false));
            status.set_cancelled(true);
            assert_eq!((status.bytes(), status.is_cancelled()), (bytes, true));
        }
    }
}
