//! Protection domains and registered memory.
#![allow(unsafe_code)]

use super::abi;
use super::call::{make, unmake};
use super::device::DeviceContext;
use super::error::{VerbsCall, VerbsError};
use std::ptr::NonNull;
use std::sync::Arc;

/// Protection domain. A queue pair can use only memory that is registered in its own domain.
pub struct ProtectionDomain {
    pub(super) raw: NonNull<abi::Pd>,
    pub(super) context: Arc<DeviceContext>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Creates a domain of a device.
    ///
    /// # Errors
    /// The device has no more protection domains.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = make(VerbsCall::AllocPd, context.name(), || unsafe {
            (context.library.alloc_pd)(context.raw.as_ptr())
        })?;
        Ok(Arc::new(ProtectionDomain { raw, context: context.clone() }))
    }

    /// Device of the domain.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: every object of the domain holds a reference to `self`, so none is left.
        unmake(unsafe { (self.context.library.dealloc_pd)(self.raw.as_ptr()) });
    }
}

/// Access of device and peers to registered memory. The process itself may always read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device reads the memory, for sends.
    Read,
    /// The device writes the memory, for receives and for answers of reads and atomics.
    Write,
    /// Peers read the memory.
    Shown,
    /// The device writes the memory and peers read it: [`Access::Write`] and [`Access::Shown`] together.
    Kept,
    /// Peers read and write the memory and use atomics; the device writes it.
    Remote,
    /// Peers access parts of the memory only through memory windows ([`super::MemoryWindow`]).
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

/// Memory registered with the device, which pins its pages.
pub struct MemoryRegion {
    pub(super) raw: NonNull<abi::Mr>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `len` bytes at `address`, at least 1.
    ///
    /// # Safety
    /// The memory stays mapped as long as the region lives. With [`Access::Write`] or [`Access::Remote`], the device
    /// may change the memory's bytes at any time.
    ///
    /// # Errors
    /// The memory is not mapped or not writable, or the limit on locked memory is too low.
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

    /// Key of the memory in this process's work requests.
    #[inline]
    pub fn lkey(&self) -> u32 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().lkey }
    }

    /// Key of the memory for peers.
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().rkey }
    }

    /// Address of the first byte.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().addr.cast() }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().length }
    }

    /// Whether the length is 0. Always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: `reg_mr` made it, and it is not used again.
        unmake(unsafe { (self.domain.context.library.dereg_mr)(self.raw.as_ptr()) });
    }
}

/// Calls `make` with `count`, then with half as many, down to one, until it succeeds. Returns false if `count` is 0.
///
/// # Errors
/// There is no memory for one object.
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

/// Registered pages of zeros, private to the process.
pub struct Buffer {
    /// First field, so that it is dropped before the pages.
    region: MemoryRegion,
    pages: Pages,
}

struct Pages(*mut u8, usize);

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are the reservation of `Buffer::new`, whose registration is gone.
        unsafe { fastpath_base::memory::release(self.0, self.1) };
    }
}

impl Buffer {
    /// Allocates at least `len` bytes.
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
        // SAFETY: the pages live longer than the region, and have no other user.
        let region = unsafe { MemoryRegion::register(domain, pages.0, len, access) }?;
        Ok(Buffer { region, pages })
    }

    /// Addresses of `count` consecutive pieces of `stride` bytes, each with the key of the memory.
    pub fn places(
        &self, stride: usize, count: u32,
    ) -> impl Iterator<Item = (*mut u8, u32)> + use<> {
        let (at, lkey) = (self.address(), self.region.lkey());
        (0..count as usize).map(move |index| (at.wrapping_add(index * stride), lkey))
    }

    /// Address of the first byte.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.pages.0
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.pages.1
    }

    /// Whether the length is 0. Always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Registration of the pages.
    #[inline]
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }
}
