//! Pieces of memory that are contiguous in the file, moved by one system call for many pieces.
//!
//! **PIECES.** Each piece is readable for a write, and writable for a read.
#![allow(unsafe_code)]

use crate::counters::Counter;
use crate::descriptor::Descriptor;
use crate::error::{Action, IoError};
use crate::system::retry;

/// Largest number of pieces of one call: the kernel's limit.
const MOST: usize = 1024;

/// An access that moves a contiguous range of a file to or from many pieces of memory.
pub struct ScatteredAccess<'f> {
    file: &'f Descriptor,
    writes: bool,
    offset: i64,
    pieces: Vec<libc::iovec>,
    moved: u64,
    /// Whether nothing more can be moved, because the file has ended or a call has failed.
    is_over: bool,
    failed: Option<IoError>,
}

impl<'f> ScatteredAccess<'f> {
    /// Begins an access at `offset` of `file`.
    pub fn new(file: &'f Descriptor, writes: bool, offset: i64) -> Self {
        ScatteredAccess {
            file,
            writes,
            offset,
            pieces: Vec::new(),
            moved: 0,
            is_over: false,
            failed: None,
        }
    }

    /// Adds the next piece in the order of the file.
    ///
    /// # Safety
    /// PIECES holds for `len` bytes at `at` until [`ScatteredAccess::finish`] has returned.
    pub unsafe fn add(&mut self, at: *mut u8, len: usize) {
        self.pieces.push(libc::iovec { iov_base: at.cast(), iov_len: len });
        if self.pieces.len() == MOST {
            self.flush();
        }
    }

    /// Moves the remaining pieces. Returns the bytes moved in all; these are fewer than were added only if the file
    /// ends. Errors: those of the system call. Part of the data may then be in the file.
    pub fn finish(mut self) -> Result<u64, IoError> {
        self.flush();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.moved),
        }
    }

    fn flush(&mut self) {
        let mut first = 0;
        while !self.is_over && first < self.pieces.len() {
            let rest = &mut self.pieces[first..];
            let left: u64 = rest.iter().map(|piece| piece.iov_len as u64).sum();
            if left == 0 {
                break;
            }
            let (fd, at) = (self.file.raw(), self.offset);
            let (list, count) = (rest.as_ptr(), rest.len() as i32);
            // SAFETY: PIECES; the call checks the file descriptor.
            let n = retry(|| unsafe {
                match self.writes {
                    true => libc::pwritev(fd, list, count, at),
                    false => libc::preadv(fd, list, count, at),
                }
            });
            let (action, calls, bytes) = match self.writes {
                true => (Action::Write, Counter::Writes, Counter::WrittenBytes),
                false => (Action::Read, Counter::Reads, Counter::ReadBytes),
            };
            self.file.count(calls, 1);
            self.file.count(bytes, n.max(0) as u64);
            match n {
                n if n > 0 => {
                    first += skip(rest, n as usize);
                    self.moved += n as u64;
                    self.offset += n as i64;
                }
                0 if !self.writes => self.is_over = true,
                0 => self.fail(IoError { action, errno: libc::ENOSPC, offset: at, bytes: left }),
                _ => self.fail(IoError::last(action, at, left)),
            }
        }
        self.pieces.clear();
    }

    fn fail(&mut self, error: IoError) {
        (self.is_over, self.failed) = (true, Some(error));
    }
}

/// Removes `moved` bytes from the front of the pieces. Returns the number of whole pieces removed.
fn skip(pieces: &mut [libc::iovec], mut moved: usize) -> usize {
    for (index, piece) in pieces.iter_mut().enumerate() {
        if moved < piece.iov_len {
            piece.iov_base = piece.iov_base.wrapping_byte_add(moved);
            piece.iov_len -= moved;
            return index;
        }
        moved -= piece.iov_len;
    }
    pieces.len()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn skip__goes_on_inside_a_piece() {
        let mut memory = [0_u8; 30];
        let base = memory.as_mut_ptr();
        let piece =
            |at: usize, len| libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len: len };
        let all = || [piece(0, 4), piece(10, 0), piece(20, 6)];
        for (moved, done, left) in [(3, 0, 1), (4, 2, 6), (9, 2, 1), (10, 3, 0)] {
            let mut pieces = all();
            assert_eq!(skip(&mut pieces, moved), done, "{moved}");
            if left != 0 {
                assert_eq!(pieces[done].iov_len, left, "{moved}");
            }
        }
        let mut pieces = all();
        skip(&mut pieces, 9);
        assert_eq!(pieces[2].iov_base.addr(), base.addr() + 25);
    }
}
