//! Protection domains and registered memory.
#![allow(unsafe_code)]

use super::abi;
use super::call::{make, unmake};
use super::device::DeviceContext;
use super::error::{VerbsCall, VerbsError};
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: what memory and queue pairs must share to work together.
pub struct ProtectionDomain {
    pub(super) raw: NonNull<abi::Pd>,
    pub(super) context: Arc<DeviceContext>,
}

// SAFETY: ANY THREAD.
unsafe impl Send for ProtectionDomain {}
// SAFETY: ANY THREAD.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// A new domain of a device.
    ///
    /// # Errors
    /// The device has no more.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = make(VerbsCall::AllocPd, context.name(), || unsafe {
            (context.library.alloc_pd)(context.raw.as_ptr())
        })?;
        Ok(Arc::new(ProtectionDomain { raw, context: context.clone() }))
    }

    /// The device.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: everything made of the domain holds a reference to `self`, so nothing is left.
        unmake(unsafe { (self.context.library.dealloc_pd)(self.raw.as_ptr()) });
    }
}

/// What may be done to registered memory. The owner's reading is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device reads it for sends.
    Read,
    /// The device writes it: receives, answers of reads and atomics.
    Write,
    /// Peers read it.
    Shown,
    /// The device writes it and peers read it: both of [`Access::Write`] and [`Access::Shown`].
    Kept,
    /// Peers read, write and change it too.
    Remote,
    /// Peers reach parts of it through memory windows ([`super::MemoryWindow`]) alone.
    Windowed,
}

impl Access {
    fn flags(self) -> i32 {
        match self {
            Access::Read => 0,
            Access::Write => abi::ACCESS_LOCAL_WRITE,
            Access::Shown => abi::ACCESS_REMOTE_READ,
            Access::Kept => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_READ,
            Access::Windowed => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_MW_BIND,
            Access::Remote => {
                abi::ACCESS_LOCAL_WRITE
                    | abi::ACCESS_REMOTE_WRITE
                    | abi::ACCESS_REMOTE_READ
                    | abi::ACCESS_REMOTE_ATOMIC
            }
        }
    }
}

/// Memory that the device may reach. Registering pins its pages.
pub struct MemoryRegion {
    pub(super) raw: NonNull<abi::Mr>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: ANY THREAD.
unsafe impl Send for MemoryRegion {}
// SAFETY: ANY THREAD.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `len` bytes at `address`, at least 1.
    ///
    /// # Safety
    /// The memory stays mapped as long as the region lives. With [`Access::Write`] or [`Access::Remote`] the device may
    /// write to it at any time, and nothing relies on its bytes staying the same.
    ///
    /// # Errors
    /// The memory is not there or not writable, or the limit on locked memory is too low.
    pub unsafe fn register(
        domain: &Arc<ProtectionDomain>, address: *mut u8, len: usize, access: Access,
    ) -> Result<Self, VerbsError> {
        let context = &domain.context;
        // SAFETY: the domain is alive; the kernel checks the memory.
        let raw = make(VerbsCall::RegMr, context.name(), || unsafe {
            (context.library.reg_mr)(domain.raw.as_ptr(), address.cast(), len, access.flags())
        })?;
        Ok(MemoryRegion { raw, domain: domain.clone() })
    }

    /// The key that names the memory in the process's own work requests.
    #[inline]
    pub fn lkey(&self) -> u32 {
        // SAFETY: ALIVE.
        unsafe { self.raw.as_ref().lkey }
    }

    /// The key by which peers name the memory.
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: ALIVE.
        unsafe { self.raw.as_ref().rkey }
    }

    /// Where it begins.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        // SAFETY: ALIVE.
        unsafe { self.raw.as_ref().addr.cast() }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: ALIVE.
        unsafe { self.raw.as_ref().length }
    }

    /// Whether it is empty, which no region is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: made by `reg_mr`, and not used again.
        unmake(unsafe { (self.domain.context.library.dereg_mr)(self.raw.as_ptr()) });
    }
}

/// As many as there is memory for: `make` is asked for `count`, then for half as many, and so on down to one. False
/// where none are wanted.
///
/// # Errors
/// There is not even memory for one.
pub fn fewer(
    mut count: u32, mut make: impl FnMut(u32) -> Result<(), VerbsError>,
) -> Result<bool, VerbsError> {
    while count > 0 {
        match make(count) {
            Ok(()) => return Ok(true),
            Err(error) if count == 1 => return Err(error),
            Err(_) => count /= 2,
        }
    }
    Ok(false)
}

/// Whole pages of zeros that belong to the process alone, registered.
pub struct Buffer {
    /// First, so that it goes before the pages.
    region: MemoryRegion,
    pages: Pages,
}

struct Pages(*mut u8, usize);

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the reservation of `Buffer::new`, whose registration is gone.
        unsafe { fastpath_base::memory::release(self.0, self.1) };
    }
}

impl Buffer {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn new(
        domain: &Arc<ProtectionDomain>, len: usize, access: Access,
    ) -> Result<Self, VerbsError> {
        let len = len.max(1).next_multiple_of(4096);
        let at = fastpath_base::memory::reserve(len).map_err(|cause| {
            let errno = cause.raw_os_error().unwrap_or(libc::ENOMEM);
            VerbsError::call(VerbsCall::RegMr, domain.context.name(), errno)
        })?;
        let pages = Pages(at.cast(), len);
        // SAFETY: the pages live until after the region, and nobody else knows them.
        let region = unsafe { MemoryRegion::register(domain, pages.0, len, access) }?;
        Ok(Buffer { region, pages })
    }

    /// Where so many pieces of `stride` bytes lie in it one after the other, each with the key of its memory.
    pub fn places(
        &self, stride: usize, count: u32,
    ) -> impl Iterator<Item = (*mut u8, u32)> + use<> {
        let (at, lkey) = (self.address(), self.region.lkey());
        (0..count as usize).map(move |index| (at.wrapping_add(index * stride), lkey))
    }

    /// First byte.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.pages.0
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.pages.1
    }

    /// Whether it is empty, which none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its registration.
    #[inline]
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }
}
