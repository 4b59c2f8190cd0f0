#![allow(unsafe_code)]
//! Bare loops of the copy engine on one processor, with both sides in its caches.

use std::hint::black_box;
use std::io;
use std::thread;

use fastpath_base::copy::engine::Loop;
use fastpath_report::statistics::{Summary, summarize};

use super::{calibrate_calls, placement, time_calls};

/// Offsets of source and target in their pages, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the source.
    pub from: usize,
    /// Offset of the target.
    pub to: usize,
}

/// Target of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTarget {
    /// A buffer as large as the source.
    Buffer,
    /// A ring of [`RING`] bytes, in pieces of up to [`PIECE`] bytes.
    Ring,
}

/// Size of the ring, in bytes.
pub const RING: usize = 32 << 10;

/// Largest piece that one call copies into the ring, in bytes.
pub const PIECE: usize = 4 << 10;

const PAGE: usize = 4096;

/// Buffers for copies.
pub struct Copies {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Copies {
    /// Allocates and touches memory for copies of up to `largest` bytes; an offset may be up to a page.
    pub fn new(largest: usize) -> Copies {
        Copies {
            source: vec![1; largest + 2 * PAGE],
            target: vec![2; largest.max(RING) + 2 * PAGE],
        }
    }

    /// Measures a copy of `bytes` bytes (at most the `largest` of `new`) on this processor, in nanoseconds.
    ///
    /// # Errors
    /// This process may not use the processor.
    pub fn measure(
        &mut self, processor: usize, which: Loop, (target, offsets): (CopyTarget, Offsets),
        bytes: usize, (samples, batch_ns): (usize, u64),
    ) -> io::Result<Option<Summary>> {
        let mut sample = || {
            placement::bind_thread(processor)?;
            let mut copy = self.make_copy(which, target, offsets, bytes);
            let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| copy()));
            Ok((0..samples).map(|_| time_calls(calls, &mut copy)).collect())
        };
        let taken: io::Result<Vec<f64>> =
            thread::scope(|scope| match scope.spawn(&mut sample).join() {
                Ok(taken) => taken,
                Err(_) => Ok(Vec::new()),
            });
        taken.map(|samples| summarize(&samples))
    }

    fn make_copy(
        &mut self, which: Loop, target: CopyTarget, offsets: Offsets, bytes: usize,
    ) -> impl FnMut() {
        assert!(which.is_available() && offsets.from < PAGE && offsets.to < PAGE);
        let piece = match target {
            CopyTarget::Buffer => bytes.max(1),
            CopyTarget::Ring => bytes.clamp(1, PIECE),
        };
        let pieces = RING / piece;
        let from = self.source.as_ptr().align_offset(PAGE) + offsets.from;
        let to = self.target.as_ptr().align_offset(PAGE) + offsets.to;
        assert!(from + bytes <= self.source.len() && to + RING.max(bytes) <= self.target.len());
        let from = self.source[from..].as_ptr();
        let to = self.target[to..].as_mut_ptr();
        let mut slot = 0;
        move || {
            for at in (0..bytes).step_by(piece) {
                let (from, to) = black_box((from, to));
                // SAFETY: both ranges are inside their buffers: the lengths were compared above, and a slot is in the
                // ring. The loop is available.
                unsafe { which.run(to.add(slot * piece), from.add(at), piece.min(bytes - at)) };
                if target == CopyTarget::Ring {
                    slot = (slot + 1) % pieces;
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn copy__moves_the_bytes_to_the_buffer_and_around_the_ring() {
        let offsets = Offsets { from: 16, to: 7 };
        for (target, touched) in [(CopyTarget::Buffer, 10_000), (CopyTarget::Ring, RING)] {
            let mut copies = Copies::new(10_000);
            let mut copy = copies.make_copy(Loop::usual(), target, offsets, 10_000);
            (0..8).for_each(|_| copy());
            drop(copy);
            assert_eq!(copies.target.iter().filter(|&&b| b == 1).count(), touched);
            let first = copies.target.iter().position(|&b| b == 1).unwrap();
            assert_eq!(copies.target[first..].as_ptr() as usize % PAGE, 7);
        }
    }

    #[test]
    fn measure__summarizes_or_says_that_there_is_no_such_processor() {
        let mut copies = Copies::new(100);
        let to = (CopyTarget::Buffer, Offsets { from: 0, to: 0 });
        let mut measure = |cpu| copies.measure(cpu, Loop::usual(), to, 100, (3, 100));
        let first = placement::allowed_processors()[0];
        assert_eq!(measure(first).unwrap().unwrap().samples, 3);
        assert!(measure(1 << 20).is_err());
    }
}
