//! Host memory for copies of device memory.
#![allow(unsafe_code)]

use super::cuda::{Direction, Driver};
use super::{DeviceError, DeviceMemory};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

/// Smallest block, in bytes. Sizes up to [`KEPT_BYTES`] are powers of two, others are whole numbers of this size.
const SMALLEST: usize = 64 << 10;
/// Most bytes of unused blocks that are kept. Pinning a block takes longer than a copy.
const KEPT_BYTES: usize = 64 << 20;

/// Memory of a block.
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    pinned: bool,
}

// SAFETY: only the owner uses the memory.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.pinned
            && let Some(driver) = Driver::loaded()
        {
            driver.unregister(self.start.addr().get());
        }
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

static UNUSED: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// Host memory for a copy of device memory, pinned if the driver allows that. Dropped blocks are kept for reuse.
pub struct HostBlock(Option<Pages>);

impl HostBlock {
    /// Returns a block of at least `bytes` bytes, to copy from or to `memory`. Its contents are undefined.
    pub fn take(bytes: u64, memory: &DeviceMemory) -> Result<HostBlock, DeviceError> {
        let none = DeviceError::NoMemory(bytes);
        let wanted = match usize::try_from(bytes).ok() {
            Some(bytes) if bytes <= KEPT_BYTES => Some(bytes.next_power_of_two()),
            Some(bytes) => bytes.checked_next_multiple_of(SMALLEST),
            None => None,
        };
        let wanted = wanted.ok_or(none)?.max(SMALLEST);
        if let Ok(mut unused) = UNUSED.lock()
            && let Some(at) = unused.iter().position(|pages| pages.bytes == wanted)
        {
            return Ok(HostBlock(Some(unused.swap_remove(at))));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), wanted, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(none);
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(none)?;
        let mut pages = Pages { start, bytes: wanted, pinned: false };
        // A process may own mappings without being allowed to pin them: the copies are then only slower.
        if wanted <= KEPT_BYTES
            && let Some(driver) = Driver::loaded()
        {
            let register = |_| Ok(driver.register(start.addr().get(), wanted));
            pages.pinned = driver.with_stream(memory, Direction::In, register).unwrap_or(false);
        }
        Ok(HostBlock(Some(pages)))
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.0.as_ref().map_or(ptr::null_mut(), |pages| pages.start.as_ptr())
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        let Some(pages) = self.0.take() else { return };
        if let Ok(mut unused) = UNUSED.lock() {
            let kept: usize = unused.iter().map(|pages| pages.bytes).sum();
            if kept + pages.bytes <= KEPT_BYTES {
                unused.push(pages);
            }
        }
    }
}
