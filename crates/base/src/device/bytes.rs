//! Device memory that other processes read and write through this process.
#![allow(unsafe_code)]

use super::copy::{Move, copy_in, copy_out};
use super::freed::check_kept;
use super::{DeviceError, DeviceMemory};
use crate::layout::ByteStream;
use crate::sync::{AtomicBool, Ordering};
use std::ptr;

/// Contiguous device memory, whose bytes the driver copies in each call. The call returns when the copy is complete.
#[derive(Debug)]
pub struct DeviceBytes {
    start: usize,
    memory: DeviceMemory,
    /// Whether a failure of the driver was printed.
    has_printed: AtomicBool,
}

impl DeviceBytes {
    /// Returns the bytes of `memory` from `start` on.
    pub fn new(start: *mut u8, memory: DeviceMemory) -> DeviceBytes {
        DeviceBytes {
            start: start.expose_provenance(),
            memory,
            has_printed: AtomicBool::new(false),
        }
    }

    fn piece(&self, at: u64, host: *mut u8, len: usize) -> Move {
        let device = ptr::with_exposed_provenance_mut(self.start.wrapping_add(at as usize));
        Move { device, device_stride: 0, host, host_stride: 0, len: len as u64, count: 1 }
    }

    /// Returns whether a copy succeeded. Prints the first failure, because another process has made the call.
    fn is_done(&self, copied: Result<(), DeviceError>) -> bool {
        if let Err(error) = copied
            && !self.has_printed.swap(true, Ordering::Relaxed)
        {
            let (start, memory) = (self.start, self.memory);
            crate::tell!("fastpath: the window at {start:#x} is {memory}, and {error}");
        }
        copied.is_ok()
    }
}

impl ByteStream for DeviceBytes {
    unsafe fn read(&self, from: u64, out: *mut u8, len: usize) -> bool {
        let piece = self.piece(from, out, len);
        let kept = check_kept(piece.device, &self.memory);
        // SAFETY: this function's contract.
        self.is_done(kept.and_then(|()| unsafe { copy_in(&self.memory, |visit| visit(piece)) }))
    }

    unsafe fn write(&self, at: u64, data: *const u8, len: usize) -> bool {
        let piece = self.piece(at, data.cast_mut(), len);
        let kept = check_kept(piece.device, &self.memory);
        // SAFETY: this function's contract. A copy to the device only reads the host memory.
        self.is_done(kept.and_then(|()| unsafe { copy_out(&self.memory, |visit| visit(piece)) }))
    }
}
