//! Memory windows: a part of registered memory that one peer may reach by a key of its own, which that peer's send with
//! invalidate ends. Of the kind (type 2) that is bound by a queue pair and serves that pair alone. A window is bound
//! anew only after its key has ended (as the InfiniBand Architecture Specification has it).
#![allow(unsafe_code)]

use super::abi::{self, BindTo};
use super::call::{make, unmake};
use super::error::{VerbsCall, VerbsError};
use super::memory::{MemoryRegion, ProtectionDomain};
use super::post::Operation;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory window.
pub struct MemoryWindow {
    raw: NonNull<abi::Mw>,
    /// That of the last binding.
    key: Cell<u32>,
    domain: Arc<ProtectionDomain>,
}

impl MemoryWindow {
    /// A window that leads nowhere yet.
    ///
    /// # Errors
    /// The device has none of this kind, or no more.
    pub fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, VerbsError> {
        let context = domain.context();
        let Some(alloc) = context.ops().alloc_mw else {
            let name = context.name();
            return Err(VerbsError::call(VerbsCall::AllocMw, name, libc::EOPNOTSUPP));
        };
        // SAFETY: `domain` keeps the raw domain alive, and the pointer is its context's own function.
        let raw = make(VerbsCall::AllocMw, context.name(), || unsafe {
            alloc(domain.raw.as_ptr(), abi::MW_TYPE_2)
        })?;
        Ok(MemoryWindow {
            // SAFETY: `make` gives what the library has just made, and nobody else has it yet.
            key: Cell::new(unsafe { raw.as_ref().rkey }),
            raw,
            domain: domain.clone(),
        })
    }

    /// The key by which the peer names what the window is bound to, once that binding is done.
    pub fn rkey(&self) -> u32 {
        self.key.get()
    }

    /// The operation that binds the window to `len` bytes at `address` of a region made with
    /// [`super::Access::Windowed`], for the peer of the queue pair that it is posted to, without segments. The peer may
    /// write there if `writable`, and read in any case. Its key is another than before. What was bound by it before is
    /// done.
    pub fn bind<'a>(
        &'a self, region: &'a MemoryRegion, address: *mut u8, len: usize, writable: bool,
    ) -> Operation<'a> {
        // The low byte is the owner's to change, so that an old key does not fit the new binding.
        let key = self.key.get();
        // The provider is told by this field which binding is the last.
        // SAFETY: alive until `drop`; no other thread has it, as a window is not `Sync`, and the library reads it only
        // within a call.
        unsafe { (*self.raw.as_ptr()).rkey = key };
        self.key.set(key & !0xff | key.wrapping_add(1) & 0xff);
        let access = match writable {
            true => abi::ACCESS_REMOTE_READ | abi::ACCESS_REMOTE_WRITE,
            false => abi::ACCESS_REMOTE_READ,
        };
        Operation::Bind(Binding {
            to: BindTo {
                mw: self.raw.as_ptr(),
                rkey: self.key.get(),
                mr: region.raw.as_ptr(),
                addr: address.expose_provenance() as u64,
                length: len as u64,
                access: access as u32,
            },
            _of: PhantomData,
        })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if let Some(dealloc) = self.domain.context().ops().dealloc_mw {
            // SAFETY: made by `alloc_mw` of this domain, which is still alive; `drop` runs once.
            unmake(unsafe { dealloc(self.raw.as_ptr()) });
        }
    }
}

/// What a window is about to be bound to. Window and region stay alive meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    to: BindTo,
    _of: PhantomData<&'a MemoryWindow>,
}

impl Binding<'_> {
    /// As the interface has it.
    pub(super) fn to(&self) -> BindTo {
        self.to
    }
}
