//! Result of a receive: `MPI_Status`.

/// `MPI_Status` in its C layout: 32 bytes, aligned to 4 (MPI 5.0, chapter 20). The last five words are private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    /// `MPI_SOURCE`: rank of the sender.
    pub source: i32,
    /// `MPI_TAG`: tag of the message.
    pub tag: i32,
    /// `MPI_ERROR`: error code. Only calls that complete several operations write it.
    pub error: i32,
    /// Received bytes (low half, high half), the cancelled flag, and two zeros.
    internal: [i32; 5],
}

const _: () = assert!(size_of::<Status>() == 32 && align_of::<Status>() == 4);

impl Status {
    /// Makes a status of a message of `bytes` bytes, not cancelled.
    #[must_use]
    #[inline]
    pub const fn new(source: i32, tag: i32, error: i32, bytes: i64) -> Self {
        let mut status = Self { source, tag, error, internal: [0; 5] };
        status.set_bytes(bytes);
        status
    }

    /// Returns the number of bytes received.
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

    /// Returns whether the operation was cancelled.
    #[must_use]
    #[inline]
    pub const fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    /// Sets whether the operation was cancelled.
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
