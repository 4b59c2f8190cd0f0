//! Transfers of the bytes of a view: one call for each piece, or one read for pieces that are close to each other (data
//! sieving; Thakur, Gropp and Lusk, 1999).
//!
//! Writes normally leave the bytes between pieces alone, so that no data of other writers is lost. Many small pieces
//! are stored through a mapping of the file ([`crate::mapping`]), if its file system allows that. If all writers lock
//! what they write ([`Sieve`]), close pieces may be read together with their gaps, changed, and written back.
//!
//! **PIECES.** Each piece is in the caller's memory at its distance from `data` or `to`, readable for a write and
//! writable for a read. Callers of `write_view`, `read_view`, `write_covered` and `read_covered` guarantee this. All
//! other functions here work on pieces of these calls.
#![allow(unsafe_code)]

use crate::counters::Counter;
use crate::descriptor::{CALL_BYTES, Descriptor};
use crate::error::IoError;
use crate::regular::{LEAST_PIECES, Sieve};
use crate::runs::{Coverage, StridedRun};
use crate::view::View;
use std::ops::Range;

const SIEVE_BYTES: i64 = 1 << 20;

const BATCH: usize = 1 << 16;

/// Smallest number of pieces for which a mapping is made.
const MAPPED_PIECES: usize = 64;

/// Smallest number of pieces for which a range is read, changed and written back.
const SIEVED_PIECES: usize = 4;

#[derive(Debug, Clone, Copy)]
struct TransferPiece {
    offset: i64,
    bytes: usize,
    /// Offset in the caller's memory.
    at: usize,
}

impl Descriptor {
    /// Writes `len` bytes to bytes `from..from + len` of the view, which must reach them. Errors: those of the system
    /// call. Part of the data may be in the file then.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn write_view(
        &self, view: &View, from: u64, data: *const u8, len: usize, sieve: Sieve,
    ) -> Result<(), IoError> {
        if let Some(offset) = view.dense_offset(from) {
            let one = TransferPiece { offset, bytes: len, at: 0 };
            // SAFETY: PIECES.
            return unsafe { self.write_batch(&[one], data, sieve) };
        }
        let mut batch: Vec<TransferPiece> = Vec::new();
        let (mut at, mut result) = (0, Ok(()));
        // SAFETY: PIECES: the pieces of the view are `len` bytes in all.
        let write = |batch: &mut Vec<TransferPiece>, result: &mut Result<(), IoError>| unsafe {
            if result.is_ok() && !batch.is_empty() {
                *result = self.write_batch(batch, data, sieve);
            }
            batch.clear();
        };
        view.for_each_part(from, len as u64, LEAST_PIECES, |run| {
            let mut rest = Some(run);
            if self.stores_run(&run) {
                write(&mut batch, &mut result);
                if result.is_ok() {
                    // SAFETY: PIECES: the pieces of the run begin at `at`.
                    match unsafe { self.store_run(run, data.add(at), sieve) } {
                        Ok(left) => rest = left,
                        Err(error) => result = Err(error),
                    }
                }
                let left = rest.map_or(0, |run| run.bytes());
                at += (run.bytes() - left) as usize;
            }
            for piece in rest.iter().flat_map(StridedRun::pieces) {
                batch.push(TransferPiece { offset: piece, bytes: run.len as usize, at });
                at += run.len as usize;
                if batch.len() == BATCH {
                    write(&mut batch, &mut result);
                }
            }
        });
        write(&mut batch, &mut result);
        result
    }

    /// Writes the covered bytes of a window. `data` holds the whole window. Errors: those of the system call. Part of
    /// the data may be in the file then.
    ///
    /// # Safety
    /// Each covered byte is readable in `data`, at its distance from the start of the window.
    pub unsafe fn write_covered(
        &self, covered: &Coverage, data: *const u8, sieve: Sieve,
    ) -> Result<(), IoError> {
        let mut result = Ok(());
        for_each_batch(covered, |batch| {
            if result.is_ok() {
                // SAFETY: PIECES.
                result = unsafe { self.write_batch(batch, data, sieve) };
            }
        });
        result
    }

    /// Reads the covered bytes of a window into their places in `to`. Returns whether the file has all of them.
    ///
    /// # Safety
    /// `to` is writable for the bytes of the window.
    pub unsafe fn read_covered(&self, covered: &Coverage, to: *mut u8) -> Result<bool, IoError> {
        let mut outcome = Ok(true);
        for_each_batch(covered, |batch| {
            if matches!(outcome, Ok(true)) {
                let whole = bytes_of(batch);
                // SAFETY: PIECES.
                outcome = unsafe { self.read_batch(batch, to) }.map(|done| done == whole);
            }
        });
        outcome
    }

    /// Writes pieces in their order.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn write_batch(
        &self, pieces: &[TransferPiece], data: *const u8, sieve: Sieve,
    ) -> Result<(), IoError> {
        // SAFETY: PIECES, in all calls.
        unsafe {
            let lock = match sieve {
                Sieve::Locked => {
                    range_of(pieces).map(|r| self.lock(false, r.start, r.end - r.start))
                }
                _ => None,
            };
            let lock = lock.transpose()?;
            if self.write_mapped(pieces, data) {
                return Ok(());
            }
            drop(lock);
            let mut room = Vec::new();
            let mut rest = pieces;
            while !rest.is_empty() {
                let together = match self.is_readable() && sieve != Sieve::Never {
                    true => count_together(rest, self.call_bytes()),
                    false => 1,
                };
                let (now, later) = rest.split_at(together);
                match is_sieved(now, self.call_bytes()) {
                    true => self.write_sieved(now, data, &mut room)?,
                    false => self.write_pieces(now, data, sieve)?,
                }
                rest = later;
            }
            Ok(())
        }
    }

    /// Stores pieces through a mapping. Returns false if calls are cheaper, or if the bytes could not be stored.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn write_mapped(&self, pieces: &[TransferPiece], data: *const u8) -> bool {
        let Some(mapping) = mapped_range(pieces).and_then(|range| self.map(range)) else {
            return false;
        };
        for piece in pieces {
            // SAFETY: PIECES. The mapped range contains every piece.
            unsafe { mapping.store(piece.offset, data.add(piece.at), piece.bytes) };
        }
        self.count(Counter::Mappings, 1);
        self.count(Counter::StoredBytes, bytes_of(pieces) as u64);
        mapping.is_whole()
    }

    /// Writes each piece by a call.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn write_pieces(
        &self, pieces: &[TransferPiece], data: *const u8, sieve: Sieve,
    ) -> Result<(), IoError> {
        for piece in pieces {
            let lock = match sieve {
                Sieve::Locked => Some(self.lock(false, piece.offset, piece.bytes as i64)?),
                _ => None,
            };
            // SAFETY: PIECES.
            unsafe { self.write_at(data.add(piece.at), piece.bytes, piece.offset)? };
            drop(lock);
        }
        Ok(())
    }

    /// Reads the range of ascending pieces, changes it, and writes it back, under an exclusive lock.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn write_sieved(
        &self, pieces: &[TransferPiece], data: *const u8, room: &mut Vec<u8>,
    ) -> Result<(), IoError> {
        let Some(range) = range_of(pieces) else {
            return Ok(());
        };
        let span = (range.end - range.start) as usize;
        let lock = self.lock(true, range.start, span as i64)?;
        if room.len() < span {
            room.resize(span, 0);
        }
        // SAFETY: PIECES. `room` has `span` bytes, and every piece is in the range.
        unsafe {
            let there = self.read_at(room.as_mut_ptr(), span, range.start)?;
            // Bytes after the end of the file become zeros.
            room[there..span].fill(0);
            for piece in pieces {
                let to = room.as_mut_ptr().add((piece.offset - range.start) as usize);
                to.copy_from_nonoverlapping(data.add(piece.at), piece.bytes);
            }
            self.write_at(room.as_ptr(), span, range.start)?;
        }
        drop(lock);
        self.count_sieved(span, pieces);
        Ok(())
    }

    /// Reads bytes `from..from + len` of the view, which must reach them, up to the file's end. Returns the bytes read.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    pub unsafe fn read_view(
        &self, view: &View, from: u64, to: *mut u8, len: usize,
    ) -> Result<usize, IoError> {
        if let Some(offset) = view.dense_offset(from) {
            // SAFETY: PIECES.
            return unsafe { self.read_at(to, len, offset) };
        }
        let (mut batch, mut room): (Vec<TransferPiece>, _) = (Vec::new(), Vec::new());
        let (mut at, mut read) = (0, ReadProgress::default());
        view.for_each_part(from, len as u64, LEAST_PIECES, |run| {
            if read.is_over {
                return;
            }
            if self.reads_run(&run) {
                // SAFETY: PIECES: the pieces of the view are `len` bytes in all.
                unsafe {
                    read.add(at, self.read_batch(&batch, to));
                    batch.clear();
                    if !read.is_over {
                        let moved = self.read_run(run, to.add(at), &mut room);
                        at += run.bytes() as usize;
                        read.add(at, moved);
                    }
                }
                return;
            }
            for offset in run.pieces() {
                batch.push(TransferPiece { offset, bytes: run.len as usize, at });
                at += run.len as usize;
                if batch.len() == BATCH && !read.is_over {
                    // SAFETY: PIECES.
                    read.add(at, unsafe { self.read_batch(&batch, to) });
                    batch.clear();
                }
            }
        });
        if !read.is_over {
            // SAFETY: PIECES.
            read.add(at, unsafe { self.read_batch(&batch, to) });
        }
        read.failed.map_or(Ok(read.done), Err)
    }

    /// Reads pieces in their order, up to the end of the file. Returns the bytes read.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn read_batch(&self, pieces: &[TransferPiece], to: *mut u8) -> Result<usize, IoError> {
        let mut room = Vec::new();
        let mut rest = pieces;
        let mut done = 0;
        while !rest.is_empty() {
            let together = match self.may_sieve() {
                true => count_together(rest, self.call_bytes()),
                false => 1,
            };
            let (now, later) = rest.split_at(together);
            // SAFETY: PIECES.
            let read = unsafe {
                match now {
                    [one] => self.read_at(to.add(one.at), one.bytes, one.offset)?,
                    _ => self.read_sieved(now, to, &mut room)?,
                }
            };
            done += read;
            let whole = bytes_of(now);
            if read < whole {
                break;
            }
            rest = later;
        }
        Ok(done)
    }

    /// Reads ascending pieces by one call. Returns the bytes read.
    ///
    /// # Safety
    /// PIECES.
    unsafe fn read_sieved(
        &self, pieces: &[TransferPiece], to: *mut u8, room: &mut Vec<u8>,
    ) -> Result<usize, IoError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return Ok(0);
        };
        let span = (last.offset - first.offset) as usize + last.bytes;
        if room.len() < span {
            room.resize(span, 0);
        }
        // SAFETY: `room` has at least `span` bytes.
        let there = unsafe { self.read_at(room.as_mut_ptr(), span, first.offset)? };
        self.count_sieved(span, pieces);
        let mut read = 0;
        for piece in pieces {
            let start = (piece.offset - first.offset) as usize;
            let bytes = piece.bytes.min(there.saturating_sub(start));
            // SAFETY: PIECES. The source is within the bytes of `room` that were read.
            unsafe { to.add(piece.at).copy_from_nonoverlapping(room.as_ptr().add(start), bytes) };
            read += bytes;
            if bytes < piece.bytes {
                break;
            }
        }
        Ok(read)
    }

    fn count_sieved(&self, span: usize, pieces: &[TransferPiece]) {
        self.count(Counter::Sieved, 1);
        let between = span.saturating_sub(bytes_of(pieces));
        self.count(Counter::SievedBytes, between as u64);
    }
}

/// Progress of a read of a view: the bytes read until the file ended or a call failed.
#[derive(Default)]
struct ReadProgress {
    done: usize,
    failed: Option<IoError>,
    is_over: bool,
}

impl ReadProgress {
    fn add(&mut self, until: usize, moved: Result<usize, IoError>) {
        match moved {
            Ok(bytes) => self.done += bytes,
            Err(error) => self.failed = Some(error),
        }
        self.is_over = self.done < until;
    }
}

fn bytes_of(pieces: &[TransferPiece]) -> usize {
    pieces.iter().map(|piece| piece.bytes).sum()
}

fn for_each_batch(covered: &Coverage, mut visit: impl FnMut(&[TransferPiece])) {
    let mut batch: Vec<TransferPiece> = Vec::new();
    covered.for_each_stretch(|offset, bytes| {
        batch.push(TransferPiece {
            offset,
            bytes: bytes as usize,
            at: (offset - covered.start()) as usize,
        });
        if batch.len() == BATCH {
            visit(&batch);
            batch.clear();
        }
    });
    if !batch.is_empty() {
        visit(&batch);
    }
}

fn range_of(pieces: &[TransferPiece]) -> Option<Range<i64>> {
    let low = pieces.iter().map(|piece| piece.offset).min()?;
    let high = pieces.iter().map(|piece| piece.offset + piece.bytes as i64).max()?;
    Some(low..high)
}

/// Whether reading and writing back the whole range costs less than a call for each piece.
fn is_sieved(pieces: &[TransferPiece], call_bytes: i64) -> bool {
    let span = range_of(pieces).map_or(0, |range| range.end - range.start);
    pieces.len() >= SIEVED_PIECES && 2 * span < pieces.len() as i64 * call_bytes
}

/// Range of the pieces, if storing them through a mapping is cheaper. A mapped page costs about one call.
fn mapped_range(pieces: &[TransferPiece]) -> Option<Range<i64>> {
    if pieces.len() < MAPPED_PIECES {
        return None;
    }
    let range = range_of(pieces)?;
    ((range.end - range.start) / CALL_BYTES < pieces.len() as i64 / 4).then_some(range)
}

/// Number of leading pieces that one call reads: they ascend, and each gap costs less than a call.
fn count_together(pieces: &[TransferPiece], call_bytes: i64) -> usize {
    let mut pairs = pieces.iter().zip(&pieces[1..]);
    let Some(first) = pieces.first() else {
        return 0;
    };
    let parted = pairs.position(|(piece, next)| {
        let gap = next.offset - piece.offset - piece.bytes as i64;
        let span = next.offset + next.bytes as i64 - first.offset;
        !(0..=call_bytes).contains(&gap) || span > SIEVE_BYTES
    });
    parted.map_or(pieces.len(), |index| index + 1)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::descriptor::Opening;
    use crate::descriptor::testing::scratch_in;
    use crate::lustre::Striping;
    use crate::system::System;
    use fastpath_base::layout::Layout;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::sync::Arc;

    fn scratch(name: &str) -> (Descriptor, CString) {
        scratch_in(&std::env::temp_dir(), name)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn transfer__agrees_with_a_map_of_bytes(
            displacement in 0i64..5000, len in 1u64..2000, wide in any::<bool>(), gap in 0u64..9000, from in 0u64..3000,
            bytes in 0usize..20000, size in 0i64..60000, maps in any::<bool>(), uncached in any::<bool>(),
            sieve in prop::sample::select(vec![Sieve::Never, Sieve::Locked]),
        ) {
            let (len, gap) = if wide { (len, gap) } else { (1 + len % 20, gap % 60) };
            let (mut file, path) = scratch("transfer");
            file.set_mapping(maps);
            if uncached {
                file.system = System::Nfs;
            }
            crate::delete(&path).unwrap();
            let block = Layout::contiguous(len).unwrap().resized(0, (len + gap) as i64).unwrap();
            let view = View::new(displacement, Arc::new(block));
            file.set_size(size).unwrap();
            let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8 + 1).collect();
            let mut model = vec![0u8; size as usize];
            let mut next = data.iter();
            view.for_each_piece(from, bytes as u64, |at, n| {
                let end = at as usize + n as usize;
                model.resize(model.len().max(end), 0);
                model[at as usize..end].iter_mut().for_each(|byte| *byte = *next.next().unwrap());
            });
            // SAFETY: each buffer has the length that is passed with it.
            unsafe {
                file.write_view(&view, from, data.as_ptr(), bytes, sieve).unwrap();
                prop_assert_eq!(file.size().unwrap() as usize, model.len());
                let mut all = vec![0u8; model.len()];
                file.read_at(all.as_mut_ptr(), all.len(), 0).unwrap();
                prop_assert_eq!(&all, &model);
                // A read beyond the end of the file stops there.
                let mut back = vec![9u8; bytes + 3000];
                let read = file.read_view(&view, from, back.as_mut_ptr(), back.len()).unwrap();
                let there = view.bytes_before(model.len() as i64).saturating_sub(from) as usize;
                prop_assert_eq!(read, there.min(back.len()));
                prop_assert_eq!(&back[..bytes.min(read)], &data[..bytes.min(read)]);
            }
        }
    }

    #[test]
    fn covered__bytes_are_written_and_read_at_their_places() {
        let (file, path) = scratch("covered");
        crate::delete(&path).unwrap();
        for (maps, sieve) in [(true, Sieve::Never), (false, Sieve::Never), (false, Sieve::Locked)] {
            file.set_mapping(maps);
            file.set_size(0).unwrap();
            file.set_size(9000).unwrap();
            let mut covered = Coverage::new(100..9100);
            let mut model = vec![0u8; 9100];
            let window: Vec<u8> = (0..9000).map(|i| (i % 251) as u8 + 1).collect();
            for run in [(100, 7, 40, 200), (8500, 300, 0, 1), (9000, 100, 0, 1)] {
                let (offset, len, stride, count) = run;
                covered.add(&crate::StridedRun { offset, len, stride, count });
                for at in (0..count as i64).flat_map(|i| {
                    let start = offset + i * stride;
                    start..start + len as i64
                }) {
                    model[at as usize] = window[at as usize - 100];
                }
            }
            // SAFETY: the buffers hold the 9000 bytes of the window, or the 9100 bytes that are read.
            unsafe {
                file.write_covered(&covered, window.as_ptr(), sieve).unwrap();
                let mut all = vec![9u8; 9100];
                assert_eq!(file.read_at(all.as_mut_ptr(), 9100, 0).unwrap(), 9100);
                assert!(all == model);
                let mut back = vec![0u8; 9000];
                assert!(file.read_covered(&covered, back.as_mut_ptr()).unwrap());
                assert!(back == model[100..]);
                file.set_size(9050).unwrap();
                assert!(!file.read_covered(&covered, back.as_mut_ptr()).unwrap());
            }
        }
    }

    #[test]
    fn write__survives_a_file_that_is_cut_off_meanwhile() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (file, path) = scratch("cut");
        let how = Opening {
            read: true,
            write: true,
            create: false,
            exclusive: false,
            mode: 0,
            striping: Striping::default(),
        };
        let other = Descriptor::open(&path, how).unwrap();
        crate::delete(&path).unwrap();
        let eight = Layout::contiguous(8).unwrap().resized(0, 32).unwrap();
        let view = View::new(0, Arc::new(eight));
        let data: Vec<u8> = (0..1 << 16).map(|i| (i % 251) as u8).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    other.set_size(0).unwrap();
                }
            });
            for _ in 0..100 {
                // SAFETY: the length of `data` is passed with it.
                unsafe {
                    file.write_view(&view, 0, data.as_ptr(), data.len(), Sieve::Never).unwrap()
                };
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut back = vec![0u8; data.len()];
        // SAFETY: the length of each buffer is passed with it.
        unsafe {
            file.write_view(&view, 0, data.as_ptr(), data.len(), Sieve::Never).unwrap();
            let read = file.read_view(&view, 0, back.as_mut_ptr(), back.len());
            assert_eq!(read.unwrap(), data.len());
        }
        assert!(back == data);
    }
}
