//! Memory of unexpected messages that do not fit their entries, kept for the next ones.

/// Buffers of stored messages.
#[derive(Default)]
pub struct Buffers {
    spare: Vec<Vec<u8>>,
}

/// Buffers up to this size are kept for the next message.
const SPARE_CAPACITY: usize = 4096;
/// How many of them.
const SPARE_COUNT: usize = 64;

impl Buffers {
    /// An empty buffer for a message of `len` bytes.
    pub fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve(len);
        buffer
    }

    /// Takes back a buffer.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_CAPACITY && self.spare.len() < SPARE_COUNT {
            self.spare.push(buffer);
        }
    }
}
