//! Pieces of a message that two processes copy, one from each end.

/// Unit of the sizes of pieces, in bytes.
pub const PAGE: u64 = 4096;
/// Largest piece, in bytes, that may be half of a message. With smaller pieces both sides would end closer together,
/// but the added system calls would cost more than that saves.
pub const HALF: u64 = 64 * 1024;
/// Maximum number of pieces of a message, because both sides count claimed pieces in 32 bits.
const COUNT_MAX: u64 = u32::MAX as u64 / 2;

/// Pieces of one message. The receiver sends their size, so both sides cut equally even if measurements differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// Length of the message in bytes.
    pub total: u64,
    /// Length of each piece except the last, in bytes.
    pub size: u64,
    /// Number of pieces.
    pub count: u32,
}

impl Pieces {
    /// Cuts a message of `total` bytes into two pieces, one for each side, if each has at most [`HALF`] bytes,
    /// otherwise into three or four. The size of a piece, in bytes, is at least `smallest` and at most `largest`, which
    /// may change the number.
    pub fn of(total: u64, smallest: u64, largest: u64) -> Self {
        let wanted = (total / 4)
            .max((total / 2).min(HALF))
            .clamp(smallest.min(largest), largest)
            .max(total / COUNT_MAX + 1);
        let size = wanted.div_ceil(PAGE).max(1) * PAGE;
        Pieces { total, size, count: total.div_ceil(size) as u32 }
    }

    /// Cuts a message of `total` bytes into pieces of `pages` pages. `None` for a number that valid peers do not send.
    pub fn cut(total: u64, pages: u32) -> Option<Self> {
        let size = pages as u64 * PAGE;
        if size == 0 || total.div_ceil(size) > COUNT_MAX {
            return None;
        }
        let count = total.div_ceil(size) as u32;
        Some(Pieces { total, size, count })
    }

    /// Returns the size of a piece in pages.
    pub fn pages(&self) -> u32 {
        (self.size / PAGE) as u32
    }

    /// Returns offset and length, in bytes, of piece `index`, counted from `end`.
    pub fn from(&self, end: CopyStart, index: u32) -> (u64, u64) {
        let index = match end {
            CopyStart::Front => index,
            CopyStart::Back => self.count.saturating_sub(1).saturating_sub(index),
        };
        let offset = (index as u64 * self.size).min(self.total);
        (offset, self.size.min(self.total - offset))
    }
}

/// End at which a side begins. The lower rank begins at the front, whichever rank sends. If memory is sent both ways,
/// each half thus stays in the caches of the rank that copies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStart {
    /// Begins with the first piece and goes forward.
    Front,
    /// Begins with the last piece and goes backward.
    Back,
}

impl CopyStart {
    /// Returns the end at which rank `own` begins in a copy with `peer`.
    pub fn of(own: u32, peer: u32) -> Self {
        match own < peer {
            true => CopyStart::Front,
            false => CopyStart::Back,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pieces__cover_the_message_from_either_end() {
        for total in [1, 4096, 16384, 16385, 65536, 100_000, 1 << 20, (1 << 33) + 5, 1 << 45] {
            let pieces = Pieces::of(total, 16 << 10, 256 << 10);
            assert_eq!(Pieces::cut(total, pieces.pages()), Some(pieces));
            let forward: u64 =
                (0..pieces.count.min(1000)).map(|i| pieces.from(CopyStart::Front, i).1).sum();
            let (offset, len) = pieces.from(CopyStart::Back, 0);
            assert_eq!(offset + len, total);
            if pieces.count <= 1000 {
                assert_eq!(forward, total);
                let backward: u64 =
                    (0..pieces.count).map(|i| pieces.from(CopyStart::Back, i).1).sum();
                assert_eq!(backward, total);
            }
        }
    }

    #[test]
    fn ends__differ_and_do_not_depend_on_the_direction() {
        assert_eq!((CopyStart::of(0, 3), CopyStart::of(3, 0)), (CopyStart::Front, CopyStart::Back));
    }

    #[test]
    fn pieces__keep_to_the_sizes_asked_for() {
        let sizes = |total| Pieces::of(total, 16 << 10, 256 << 10).size;
        assert_eq!(
            [1, 64 << 10, 100 << 10, 1 << 20, 1 << 24].map(sizes),
            [16 << 10, 32 << 10, 52 << 10, 256 << 10, 256 << 10]
        );
        assert_eq!(Pieces::of(1 << 20, 8192, 8192).count, 128);
        // If the bounds contradict each other, only `largest` is obeyed.
        assert_eq!(Pieces::of(1 << 20, 1 << 20, 4096).size, 4096);
    }

    #[test]
    fn cut__refuses_what_cannot_be_counted() {
        assert_eq!(Pieces::cut(1 << 20, 0), None);
        assert_eq!(Pieces::cut(u64::MAX, 1), None);
        assert_eq!(Pieces::cut(0, 1).map(|p| p.count), Some(0));
    }
}
