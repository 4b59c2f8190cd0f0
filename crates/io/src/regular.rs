//! Many small pieces at even distances: one call reads the range of many pieces, which are then copied without a list.
//!
//! **PIECES.** The pieces of a run are contiguous in the caller's memory, readable for a write and writable for a read.
#![allow(unsafe_code)]

use crate::counters::Counter;
use crate::descriptor::{CALL_BYTES, Descriptor};
use crate::error::IoError;
use crate::runs::StridedRun;

/// Smallest number of pieces of a run that is read by sieving or stored through mappings.
pub(crate) const LEAST_PIECES: u64 = 64;

/// Bytes of the file that one call reads, and that one mapping covers. A read has so few that they stay in the
/// processor's cache until they are copied.
const READ_SPAN: i64 = 1 << 18;
const MAPPED_SPAN: i64 = 1 << 22;

/// Copies `count` pieces of `len` bytes. `to` advances by `to_step` bytes for each piece, `from` by `from_step`.
///
/// # Safety
/// All pieces are readable at `from`, writable at `to`, and do not overlap.
unsafe fn copy_pieces(
    mut to: *mut u8, to_step: usize, mut from: *const u8, from_step: usize, len: usize,
    count: usize,
) {
    macro_rules! of_length {
        ($len:expr) => {
            for _ in 0..count {
                // SAFETY: PIECES. Addresses after the last piece are not used.
                unsafe { to.copy_from_nonoverlapping(from, $len) };
                to = to.wrapping_add(to_step);
                from = from.wrapping_add(from_step);
            }
        };
    }
    // A constant length needs no call to `memcpy`.
    match len {
        4 => of_length!(4),
        8 => of_length!(8),
        16 => of_length!(16),
        _ => of_length!(len),
    }
}

impl StridedRun {
    /// Returns the first pieces of the run, those within `span` bytes but at least one, and the remaining run.
    fn split(self, span: i64) -> (StridedRun, Option<StridedRun>) {
        let now = ((span / self.stride.max(1)).max(1) as u64).min(self.count);
        let rest = (now < self.count).then(|| StridedRun {
            offset: self.offset.wrapping_add(self.stride.wrapping_mul(now as i64)),
            count: self.count - now,
            ..self
        });
        (StridedRun { count: now, ..self }, rest)
    }

    /// Bytes from the start of the first piece to the end of the last.
    fn span(&self) -> usize {
        ((self.count - 1) * self.stride as u64 + self.len) as usize
    }
}

/// Whether a write may read the gaps between its pieces and write them back. This is correct only if no other process
/// changes the gaps meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sieve {
    /// No writer of the file writes back the bytes between pieces.
    #[default]
    Never,
    /// Every writer locks: exclusively if it writes back the bytes between pieces, otherwise shared.
    Locked,
}

impl Descriptor {
    /// Whether the run is read by calls that each read many pieces.
    pub(crate) fn reads_run(&self, run: &StridedRun) -> bool {
        let gap = run.stride.saturating_sub_unsigned(run.len);
        self.may_sieve() && run.count >= LEAST_PIECES && (1..=self.call_bytes()).contains(&gap)
    }

    /// Reads a run for which [`Descriptor::reads_run`] holds, up to the end of the file. Returns the bytes read.
    ///
    /// # Safety
    /// `to` is writable for the bytes of all pieces.
    pub(crate) unsafe fn read_run(
        &self, run: StridedRun, to: *mut u8, room: &mut Vec<u8>,
    ) -> Result<usize, IoError> {
        let (mut done, mut rest) = (0, Some(run));
        while let Some(run) = rest {
            let (now, later) = run.split(READ_SPAN);
            let (span, len, stride) = (now.span(), now.len as usize, now.stride as usize);
            room.resize(room.len().max(span), 0);
            // SAFETY: `room` has at least `span` bytes.
            let there = unsafe { self.read_at(room.as_mut_ptr(), span, now.offset)? };
            self.count(Counter::Sieved, 1);
            self.count(Counter::SievedBytes, span as u64 - now.bytes());
            let whole = match there < len {
                true => 0,
                false => ((there - len) / stride + 1).min(now.count as usize),
            };
            // Bytes of the piece in which the file ends.
            let part = match whole < now.count as usize {
                true => there.saturating_sub(whole * stride).min(len),
                false => 0,
            };
            // SAFETY: PIECES. The source is within the bytes of `room` that were read.
            unsafe {
                let (to, from) = (to.add(done), room.as_ptr());
                copy_pieces(to, len, from, stride, len, whole);
                let (to, from) = (to.add(whole * len), from.wrapping_add(whole * stride));
                to.copy_from_nonoverlapping(from, part);
            }
            done += whole * len + part;
            rest = later.filter(|_| whole == now.count as usize);
        }
        Ok(done)
    }

    /// Whether the run is stored through mappings if the file can be mapped.
    pub(crate) fn stores_run(&self, run: &StridedRun) -> bool {
        let is_small = run.stride > run.len as i64 && run.stride < CALL_BYTES / 4;
        self.may_map() && run.count >= LEAST_PIECES && is_small
    }

    /// Stores the first pieces of a run through mappings. Returns the rest: all if the file cannot be mapped.
    ///
    /// # Safety
    /// `data` is readable for the bytes of all pieces.
    pub(crate) unsafe fn store_run(
        &self, run: StridedRun, data: *const u8, sieve: Sieve,
    ) -> Result<Option<StridedRun>, IoError> {
        let (mut done, mut rest) = (0, Some(run));
        while let Some(run) = rest {
            let (now, later) = run.split(MAPPED_SPAN);
            let end = now.offset.saturating_add_unsigned(now.span() as u64);
            let _lock = match sieve {
                Sieve::Locked => Some(self.lock(false, now.offset, end - now.offset)?),
                _ => None,
            };
            let Some(mapping) = self.map(now.offset..end) else {
                return Ok(rest);
            };
            let (len, stride) = (now.len as usize, now.stride as usize);
            // SAFETY: PIECES. The mapped range contains every piece.
            unsafe {
                let (to, from) = (mapping.place(now.offset), data.add(done));
                copy_pieces(to, stride, from, len, len, now.count as usize);
            }
            self.count(Counter::Mappings, 1);
            self.count(Counter::StoredBytes, now.bytes());
            if !mapping.is_whole() {
                return Ok(rest);
            }
            done += now.bytes() as usize;
            rest = later;
        }
        Ok(None)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn run__is_split_into_parts_of_a_span() {
        let run = StridedRun { offset: 100, len: 8, stride: 32, count: 10 };
        let (first, rest) = run.split(100);
        assert_eq!((first.count, first.span()), (3, 72));
        let rest = rest.unwrap();
        assert_eq!((rest.offset, rest.count), (196, 7));
        assert_eq!(run.split(1).0.count, 1);
        assert_eq!(run.split(10_000), (run, None));
    }

    #[test]
    fn copy__of_each_length_takes_the_pieces_alone() {
        let from: Vec<u8> = (0..200).collect();
        for len in [1, 4, 8, 16, 19] {
            let mut to = vec![255u8; 200];
            // SAFETY: both vectors contain seven pieces, at most 28 bytes apart.
            unsafe { copy_pieces(to.as_mut_ptr(), 28, from.as_ptr(), 20, len, 7) };
            for (at, byte) in to.iter().enumerate() {
                let is_piece = at / 28 < 7 && at % 28 < len;
                let wanted = if is_piece { (at / 28 * 20 + at % 28) as u8 } else { 255 };
                assert_eq!(*byte, wanted, "length {len}, byte {at}");
            }
        }
    }
}
