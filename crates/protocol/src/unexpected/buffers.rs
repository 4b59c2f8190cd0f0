//! Memory of unexpected messages that do not fit their entries, kept for the next ones: an allocator gives large blocks
//! back to the kernel, which clears their pages anew.

/// Buffers of stored messages.
#[derive(Default)]
pub struct Buffers {
    /// By capacity, from [`LEAST`] on in doublings.
    spare: [Vec<Vec<u8>>; CLASSES],
    /// Bytes of all of them.
    bytes: usize,
}

/// Capacity of the smallest buffers.
const LEAST: usize = 128;
/// Capacities that are kept, the largest 64 KiB.
const CLASSES: usize = 10;
/// Most bytes that are kept.
const SPARE_BYTES: usize = 1 << 20;

/// The smallest capacity that holds so many bytes.
fn class(len: usize) -> usize {
    (len.max(LEAST) - 1).ilog2() as usize + 1 - LEAST.ilog2() as usize
}

impl Buffers {
    /// An empty buffer for a message of `len` bytes.
    pub fn buffer(&mut self, len: usize) -> Vec<u8> {
        let class = class(len);
        let Some(spare) = self.spare.get_mut(class) else {
            return Vec::with_capacity(len);
        };
        match spare.pop() {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(LEAST << class),
        }
    }

    /// Takes back a buffer.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity < LEAST || self.bytes + capacity > SPARE_BYTES {
            return;
        }
        if let Some(spare) = self.spare.get_mut(class(capacity / 2 + 1)) {
            buffer.clear();
            self.bytes += capacity;
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn buffers__are_kept_by_capacity_and_few_of_them() {
        let mut buffers = Buffers::default();
        for len in [0, 1, 128, 129, 4096, 4097, 32 << 10, (64 << 10) - 1, 64 << 10] {
            let buffer = buffers.buffer(len);
            let (at, capacity) = (buffer.as_ptr(), buffer.capacity());
            assert!(capacity >= len && capacity < 2 * len.max(LEAST), "{len}");
            buffers.recycle(buffer);
            let again = buffers.buffer(len);
            assert_eq!((again.as_ptr(), again.len()), (at, 0), "{len}");
            buffers.recycle(again);
        }
        let many: Vec<_> = (0..100).map(|_| buffers.buffer(64 << 10)).collect();
        many.into_iter().for_each(|buffer| buffers.recycle(buffer));
        buffers.recycle(Vec::with_capacity(1 << 20));
        assert!(buffers.bytes <= SPARE_BYTES);
        let kept = buffers.spare.iter().flatten().map(Vec::capacity);
        assert_eq!(kept.sum::<usize>(), buffers.bytes);
    }
}
