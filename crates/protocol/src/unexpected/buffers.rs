//! Recycled memory of unexpected messages that do not fit their entries. An allocator would return large blocks to the
//! kernel, which would have to clear their pages again.

/// Pool of recycled buffers.
#[derive(Default)]
pub struct Buffers {
    /// Unused buffers by capacity: [`LEAST`] bytes, then twice as many for each class.
    spare: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

/// Capacity of the smallest buffers, in bytes.
const LEAST: usize = 128;
/// Number of different capacities, the largest of which is 64 KiB.
const CLASSES: usize = 10;
const SPARE_BYTES: usize = 1 << 20;

fn class(len: usize) -> usize {
    (len.max(LEAST) - 1).ilog2() as usize + 1 - LEAST.ilog2() as usize
}

impl Buffers {
    /// Returns an empty buffer with space for `len` bytes.
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

    /// Returns a buffer to the pool.
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
