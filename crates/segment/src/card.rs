//! Short data, such as an address, that a rank publishes once in shared memory.

use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};

/// Shared buffer of at most `8 * W` bytes, which its owner writes once.
#[repr(C)]
#[derive(Debug)]
pub struct Card<const W: usize> {
    /// Number of valid bytes; 0 before `store`.
    length: AtomicU32,
    _reserved: AtomicU32,
    words: [AtomicU64; W],
}

impl<const W: usize> Card<W> {
    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn fresh() -> Self {
        Card {
            length: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Publishes 1 to `8 * W` bytes. Only the page's owner calls it, once.
    pub fn store(&self, bytes: &[u8]) {
        debug_assert!((1..=W * 8).contains(&bytes.len()));
        for (word, chunk) in self.words.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        // ORDERING: publishes the words; partner is the acquire load in `load`.
        self.length.store(bytes.len() as u32, Ordering::Release);
    }

    /// Returns the bytes; `None` before `store`, or if the stored length is invalid (0 or above `8 * W`).
    pub fn load(&self) -> Option<Vec<u8>> {
        // ORDERING: partner is the release store in `store`.
        let length = self.length.load(Ordering::Acquire) as usize;
        if !(1..=W * 8).contains(&length) {
            return None;
        }
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        Some(words.flat_map(u64::to_le_bytes).take(length).collect())
    }
}
