//! Short texts in shared memory.

use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_base::tell::{escape, escape_lines};

/// A text of at most `8 * W` bytes that one process writes and others may read at any time.
///
/// The text is stored in atomic words. A reader during a write sees a mixture of the old and the new text, without
/// undefined behaviour. All zeros is the empty text.
#[repr(C)]
#[derive(Debug)]
pub struct SharedText<const W: usize> {
    length: AtomicU32,
    _reserved: AtomicU32,
    words: [AtomicU64; W],
}

impl<const W: usize> SharedText<W> {
    /// Largest length in bytes.
    pub const CAPACITY: usize = 8 * W;

    /// Makes an empty text for the model checker, whose memory is not zeroed.
    #[cfg(feature = "loom")]
    pub fn new() -> Self {
        SharedText {
            length: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Replaces the text. A longer text is cut between two characters.
    pub fn store(&self, text: &str) {
        let mut end = text.len().min(Self::CAPACITY);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.length.store(0, Ordering::Relaxed);
        for (word, chunk) in self.words.iter().zip(text.as_bytes()[..end].chunks(8)) {
            let mut bytes = [0u8; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        // ORDERING: publishes the words; partner is the acquire load in `load`.
        self.length.store(end as u32, Ordering::Release);
    }

    /// Returns the present text for one line of a message. The length is bounded and control characters are escaped,
    /// because the writer is not trusted.
    pub fn load(&self) -> String {
        escape(&self.load_raw()).into_owned()
    }

    /// Returns the lines of the present text, escaped as by [`SharedText::load`].
    pub fn load_lines(&self) -> String {
        escape_lines(&self.load_raw()).into_owned()
    }

    fn load_raw(&self) -> String {
        // ORDERING: partner is the release store in `store`.
        let length = (self.length.load(Ordering::Acquire) as usize).min(Self::CAPACITY);
        let bytes: Vec<u8> = self
            .words
            .iter()
            .flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes())
            .take(length)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn empty() -> SharedText<2> {
        SharedText {
            length: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    #[test]
    fn text__round_trips() {
        let t = empty();
        assert_eq!(t.load(), "");
        for text in ["MPI_Recv", "", "sixteen bytes ok", "nine byte"] {
            t.store(text);
            assert_eq!(t.load(), text);
        }
    }

    #[test]
    fn text__is_cut_at_a_character() {
        let t = empty();
        t.store("0123456789abcdeé");
        assert_eq!(t.load(), "0123456789abcde");
    }

    #[test]
    fn text__survives_a_hostile_writer() {
        let t = empty();
        t.length.store(u32::MAX, Ordering::Relaxed);
        t.words[0].store(u64::MAX, Ordering::Relaxed);
        t.words[1].store(u64::from_le_bytes(*b"\x1b[2J\0\0\0\0"), Ordering::Relaxed);
        assert!(t.load().chars().all(|c| !c.is_control()));
    }
}
