//! Memory windows: one peer accesses part of registered memory by a key, until it sends with invalidate.
//!
//! These windows are of type 2: a queue pair binds them, and they serve that pair alone. A window is bound again only
//! after its key has ended, as the InfiniBand Architecture Specification requires.
#![allow(unsafe_code)]

use super::abi::{self, BindTo};
use super::call::{make, unmake};
use super::error::{VerbsCall, VerbsError};
use super::memory::{MemoryRegion, ProtectionDomain};
use super::post::{Binding, SendOperation};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory window.
pub struct MemoryWindow {
    raw: NonNull<abi::Mw>,
    key: Cell<u32>,
    domain: Arc<ProtectionDomain>,
}

impl MemoryWindow {
    /// Creates an unbound window.
    ///
    /// # Errors
    /// The device has no windows of this type, or no more of them.
    pub fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, VerbsError> {
        let context = domain.context();
        let Some(alloc) = context.ops().alloc_mw else {
            let name = context.name();
            return Err(VerbsError::call(VerbsCall::AllocMw, name, libc::EOPNOTSUPP));
        };
        // SAFETY: `domain` keeps the raw domain alive, and the function is that of its context.
        let raw = make(VerbsCall::AllocMw, context.name(), || unsafe {
            alloc(domain.raw.as_ptr(), abi::MW_TYPE_2)
        })?;
        Ok(MemoryWindow {
            // SAFETY: the library has just made the window, which has no other user.
            key: Cell::new(unsafe { raw.as_ref().rkey }),
            raw,
            domain: domain.clone(),
        })
    }

    /// Key for the peer. It is valid once the operation of the last [`MemoryWindow::bind`] has completed.
    pub fn rkey(&self) -> u32 {
        self.key.get()
    }

    /// Creates the operation that binds the window to `len` bytes in a region with [`super::Access::Windowed`].
    ///
    /// Post it without segments. The operation lets the peer of the posting queue pair read the memory, and write it if
    /// `writable`. The window gets a new key; the peer must have invalidated the previous key.
    pub fn bind<'a>(
        &'a self, region: &'a MemoryRegion, address: *mut u8, len: usize, writable: bool,
    ) -> SendOperation<'a> {
        // Change the low byte, which the owner may choose, so that an old key does not match the new binding.
        let key = self.key.get();
        // The provider reads the key of the last binding from this field. SAFETY: the raw window is alive until `drop`.
        // No other thread uses it, because a window is not `Sync`, and the library reads it only within a call.
        unsafe { (*self.raw.as_ptr()).rkey = key };
        self.key.set(key & !0xff | key.wrapping_add(1) & 0xff);
        let access = match writable {
            true => abi::ACCESS_REMOTE_READ | abi::ACCESS_REMOTE_WRITE,
            false => abi::ACCESS_REMOTE_READ,
        };
        SendOperation::Bind(Binding::new(BindTo {
            mw: self.raw.as_ptr(),
            rkey: self.key.get(),
            mr: region.raw.as_ptr(),
            addr: address.expose_provenance() as u64,
            length: len as u64,
            access: access as u32,
        }))
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if let Some(dealloc) = self.domain.context().ops().dealloc_mw {
            // SAFETY: `alloc_mw` of this domain made it, and the domain is alive; `drop` runs once.
            unmake(unsafe { dealloc(self.raw.as_ptr()) });
        }
    }
}
