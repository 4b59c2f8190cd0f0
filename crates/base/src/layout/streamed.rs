//! Layouts whose bytes the processor cannot touch.
#![allow(unsafe_code)]

use super::{Layout, LayoutError};
use std::fmt;
use std::sync::Arc;

/// Bytes that are moved by functions. Callers mostly pass ascending positions.
pub trait ByteStream: Send + Sync + fmt::Debug {
    /// Copies `len` bytes, from byte `from` on, to `out`. Returns false if the copy failed. A stream that keeps its
    /// errors for another call returns true.
    ///
    /// # Safety
    /// `out` is writable for `len` bytes, and the stream has bytes `from..from + len`.
    unsafe fn read(&self, from: u64, out: *mut u8, len: usize) -> bool;

    /// Copies `len` bytes at `data` to byte `at` and the bytes behind it. Returns false if the copy failed; see
    /// [`ByteStream::read`].
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, and the stream has bytes `at..at + len`.
    unsafe fn write(&self, at: u64, data: *const u8, len: usize) -> bool;
}

impl Layout {
    /// Makes a layout of `bytes` bytes that `stream` moves. Only one element may be packed or unpacked, and its address
    /// is ignored. The layout has no runs of memory, and cannot be part of another layout.
    pub fn streamed(stream: Arc<dyn ByteStream>, bytes: u64) -> Result<Layout, LayoutError> {
        let list = Layout::empty().list;
        let dense = Layout::contiguous(bytes)?;
        Ok(Layout { contiguous: false, list, stream: Some(stream), ..dense })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug)]
    struct StoredBytes(Mutex<Vec<u8>>);

    impl ByteStream for StoredBytes {
        unsafe fn read(&self, from: u64, out: *mut u8, len: usize) -> bool {
            let bytes = self.0.lock().unwrap();
            // SAFETY: the contract of `read`; the slice checks the range.
            unsafe { out.copy_from(bytes[from as usize..][..len].as_ptr(), len) };
            true
        }

        unsafe fn write(&self, at: u64, data: *const u8, len: usize) -> bool {
            let mut bytes = self.0.lock().unwrap();
            // SAFETY: the contract of `write`; the slice checks the range.
            unsafe { bytes[at as usize..][..len].as_mut_ptr().copy_from(data, len) };
            true
        }
    }

    #[test]
    fn streamed_layout__moves_bytes_by_its_stream() {
        let stream = Arc::new(StoredBytes(Mutex::new((0..10).collect())));
        let layout = Layout::streamed(stream.clone(), 10).unwrap();
        assert!(!layout.is_contiguous() && layout.dense_offset(1).is_none());
        assert_eq!((layout.size(), layout.span(1)), (10, Ok((0, 10))));
        let (mut out, nowhere) = ([0; 8], std::ptr::null_mut());
        // SAFETY: the stream moves the bytes, and the address is not used.
        unsafe {
            assert_eq!(layout.pack(nowhere, 1, 7, &mut out), 3, "up to the end");
            assert_eq!(layout.unpack(nowhere, 1, 1, &[50, 51]), 2);
        }
        assert_eq!(out, [7, 8, 9, 0, 0, 0, 0, 0]);
        assert_eq!(stream.0.lock().unwrap()[..4], [0, 50, 51, 3]);
    }
}
