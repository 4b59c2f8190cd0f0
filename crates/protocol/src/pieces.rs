//! How a message is cut into pieces that two processes copy from both ends.

/// Smallest piece in bytes: below, the system call costs more than the copy.
const MIN: u64 = 16 * 1024;
/// Largest piece in bytes, so that neither side waits long for the other's last one.
const MAX: u64 = 256 * 1024;
/// Pieces are multiples of a page.
const PAGE: u64 = 4096;

/// The pieces of one message. Both sides compute the same from its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// Length of the message in bytes.
    pub total: u64,
    /// Length of all pieces but the last, in bytes.
    pub size: u64,
    /// Number of pieces.
    pub count: u32,
}

impl Pieces {
    /// The pieces of a message of `total` bytes.
    pub fn of(total: u64) -> Self {
        let wanted = (total / 4)
            .clamp(MIN, MAX)
            .max(total / (u32::MAX as u64 / 2) + PAGE);
        let size = wanted.div_ceil(PAGE) * PAGE;
        Pieces {
            total,
            size,
            count: total.div_ceil(size) as u32,
        }
    }

    /// Offset and length of the piece `index` from the front.
    pub fn from_front(&self, index: u32) -> (u64, u64) {
        let offset = (index as u64 * self.size).min(self.total);
        (offset, self.size.min(self.total - offset))
    }

    /// Offset and length of the piece `index` from the back.
    pub fn from_back(&self, index: u32) -> (u64, u64) {
        self.from_front(self.count.saturating_sub(1).saturating_sub(index))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pieces__cover_the_message_from_either_end() {
        for total in [
            1,
            4096,
            16384,
            16385,
            65536,
            100_000,
            1 << 20,
            (1 << 33) + 5,
            1 << 45,
        ] {
            let pieces = Pieces::of(total);
            let forward: u64 = (0..pieces.count.min(1000))
                .map(|i| pieces.from_front(i).1)
                .sum();
            let (offset, len) = pieces.from_back(0);
            assert_eq!(offset + len, total);
            if pieces.count <= 1000 {
                assert_eq!(forward, total);
                let backward: u64 = (0..pieces.count).map(|i| pieces.from_back(i).1).sum();
                assert_eq!(backward, total);
            }
        }
    }
}
