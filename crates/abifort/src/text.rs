//! Strings: Fortran pads with blanks and passes a length, C ends with a zero byte.
#![allow(unsafe_code)]

use core::ffi::c_int;

/// Bytes of the longest string that MPI stores (MPI_MAX_LIBRARY_VERSION_STRING).
pub const LONGEST: c_int = 8192;

/// Copies a Fortran string for C, without trailing blanks.
///
/// # Safety
/// `start` is valid for `length` bytes, or `length` is 0.
pub unsafe fn to_c(start: *const u8, length: usize, drops_leading: bool) -> Vec<u8> {
    // SAFETY: by this function's contract.
    let all = unsafe { bytes(start, length) };
    let mut all = trim_end(all);
    if drops_leading {
        let blanks = all.iter().take_while(|b| **b == b' ').count();
        all = &all[blanks..];
    }
    [all, &[0]].concat()
}

/// The bytes of a Fortran string. Some compilers pass lengths of 32 bits, so the upper half is not read.
///
/// # Safety
/// `start` is valid for `length` bytes as long as the result is used, or `length` is 0.
pub unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    let length = length as u32 as usize;
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(start, length) }
}

/// The string without blanks at its end.
pub fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

/// Memory in which C stores a string for Fortran.
pub struct OutText(Vec<u8>);

impl OutText {
    /// Memory for a string of up to `length` bytes, but at most [`LONGEST`], and the zero byte at its end.
    pub fn new(length: c_int) -> Self {
        Self(vec![0; length.clamp(0, LONGEST) as usize + 1])
    }

    /// The memory's address, for C.
    pub fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Stores the string in Fortran's variable: cut off at its length, or padded with blanks.
    ///
    /// # Safety
    /// `start` is valid for writes of `length` bytes.
    pub unsafe fn store(&self, start: *mut u8, length: usize) {
        let length = length as u32 as usize;
        if start.is_null() || length == 0 {
            return;
        }
        // SAFETY: by this function's contract.
        let target = unsafe { core::slice::from_raw_parts_mut(start, length) };
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len()).min(length);
        target[..end].copy_from_slice(&self.0[..end]);
        target[end..].fill(b' ');
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn to_c__drops_blanks_at_the_end_and_on_request_at_the_start() {
        let text = b"  a b   ";
        // SAFETY: a slice's address and length.
        let (plain, lead) = unsafe {
            (to_c(text.as_ptr(), text.len(), false), to_c(text.as_ptr(), text.len(), true))
        };
        assert_eq!((&plain[..], &lead[..]), (&b"  a b\0"[..], &b"a b\0"[..]));
        // SAFETY: length 0 is allowed for every address.
        assert_eq!(unsafe { to_c(core::ptr::null(), 0, true) }, b"\0");
    }

    #[test]
    fn memory__is_bounded() {
        assert_eq!(OutText::new(c_int::MAX).0.len(), LONGEST as usize + 1);
        assert_eq!(OutText::new(-1).0.len(), 1);
    }

    #[test]
    fn store__pads_and_cuts_off() {
        let mut text = OutText::new(8);
        // SAFETY: the memory has 9 bytes.
        unsafe { core::ptr::copy_nonoverlapping(c"abc".as_ptr().cast(), text.address(), 4) };
        let (mut long, mut short) = ([b'x'; 5], [b'x'; 2]);
        // SAFETY: addresses and lengths of arrays.
        unsafe {
            text.store(long.as_mut_ptr(), long.len());
            text.store(short.as_mut_ptr(), short.len());
        }
        assert_eq!((&long, &short), (b"abc  ", b"ab"));
    }
}
