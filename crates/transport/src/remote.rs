//! One-sided operations of a lane: immediate, or posted and completed by a flush.
//!
//! A lane that posts chooses the [`Method`] by size. *Short* takes the bytes from the descriptor, *bcopy* goes through
//! a transport buffer, *zcopy* moves between the memories directly. The upper layer and the transport benchmarks make
//! the same calls, so they get the same method.
//!
//! **BYTES.** Memory that is put is readable. Memory that is got is writable and not accessed otherwise. Registered
//! memory stays mapped. This holds until the result, or [`Lane::progress_flush`], reports completion. Each function
//! here requires this of its caller.
#![allow(unsafe_code)]

use crate::contract::{Capabilities, Endpoint, Method, Post, PostOutcome, Remote, RemoteError};
use crate::interfaces::Interfaces;
use crate::lane::Lane;
use crate::shm::arena::KEY_ARENA;
pub use crate::shm::arena::{MAX_ALIGN, MIN_ALIGN};
pub use crate::shm::mapped::{MappedMemory, copy_mapped};
use crate::verbs::MemoryRegion;
use fastpath_base::sync::{Ordering, fence};
use std::sync::Arc;

/// Registered memory; dropping the value deregisters the memory.
pub struct Registration {
    region: Arc<MemoryRegion>,
}

impl Registration {
    /// Key by which peers access the memory.
    pub fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}

impl Interfaces {
    /// Registers `len` bytes at `address` for reads and writes of peers that an adapter reaches. `None` if no adapter
    /// can access registered memory, or the memory cannot be locked.
    ///
    /// # Safety
    /// The memory stays mapped as long as the result lives.
    pub unsafe fn register_memory(&self, address: *mut u8, len: usize) -> Option<Registration> {
        let iface = self.connections()?;
        // SAFETY: BYTES: the memory stays mapped, by this function's contract.
        let region = unsafe { iface.register_remote(address, len) }?;
        Some(Registration { region })
    }

    /// Keeps up to `bytes` bytes of user memory registered between messages. The default 0 keeps none.
    pub fn keep_registrations(&self, bytes: usize) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.keep_most(bytes));
        }
    }

    /// Deregisters unused memory.
    pub fn release_registrations(&self) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.release_unused());
        }
    }

    /// Offset of the memory at `address`, for [`Interfaces::map_memory`] in other ranks of this host. `None` if not all
    /// `len` bytes are in this process's arena.
    pub fn locate_shared(&self, address: usize, len: usize) -> Option<u64> {
        let found = self.arena.find(address, len.max(1) as u64);
        found.map(|remote| remote.addr)
    }

    /// Maps `len` bytes of `peer`, a rank of this host. `at`: offset from `peer`'s [`Interfaces::locate_shared`].
    ///
    /// # Errors
    /// See [`MappedMemory::new`].
    pub fn map_memory(&self, peer: u32, at: u64, len: usize) -> Result<MappedMemory, RemoteError> {
        let remote = Remote { addr: at, rkey: KEY_ARENA | u64::from(peer) };
        MappedMemory::new(self.shared_domain(), peer, remote, len)
    }

    /// Sets whether send queues are polled only while completions are outstanding (default true).
    pub fn set_tx_gate(&mut self, on: bool) {
        if let Some(iface) = self.connections() {
            iface.set_tx_gate(on);
        }
    }

    /// Sets whether a message omits a header equal to the previous one (default true).
    pub fn set_repeats(&mut self, on: bool) {
        if let Some(iface) = self.connections() {
            iface.set_repeats(on);
        }
    }
}

impl Lane {
    /// Whether one-sided operations are posted, and complete later.
    #[inline]
    pub fn posts_remote(&self) -> bool {
        matches!(self, Lane::Rc(_))
    }

    /// Whether the peer's arena is accessible by load and store.
    #[inline]
    pub fn can_load_store(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Whether [`Lane::get`] and [`Lane::put`] are expected to work on any memory of the peer.
    pub fn copies_directly(&self) -> bool {
        let able = |c: Capabilities| c.get_zcopy > 0 && c.put_zcopy > 0;
        match self {
            Lane::Shm(endpoint) => able(endpoint.capabilities()),
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => able(endpoint.capabilities()),
            _ => false,
        }
    }

    /// Method of a posted put of `len` bytes; `None` if the lane does not post.
    pub fn put_method(&self, len: usize) -> Option<Method> {
        match self {
            Lane::Rc(endpoint) => Some(endpoint.put_method(len)),
            _ => None,
        }
    }

    /// Method of a posted get of `len` bytes; `None` if the lane does not post.
    pub fn get_method(&self, len: usize) -> Option<Method> {
        match self {
            Lane::Rc(endpoint) => Some(endpoint.get_method(len)),
            _ => None,
        }
    }

    /// Posts a put of up to `len` bytes.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes. If the result is `InProgress`, they stay readable until
    /// [`Lane::progress_flush`] returns `Done`.
    #[inline]
    pub unsafe fn post_put(&mut self, from: *const u8, len: usize, to: Remote) -> PostOutcome {
        match self {
            // SAFETY: BYTES: this function's contract is that of the endpoint.
            Lane::Rc(endpoint) => unsafe { endpoint.post_put(from, len, to) },
            _ => PostOutcome::PeerGone,
        }
    }

    /// Posts a get of up to `len` bytes. The bytes are there when [`Lane::progress_flush`] returns `Done`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and not accessed otherwise, until `Done`.
    #[inline]
    pub unsafe fn post_get(&mut self, to: *mut u8, len: usize, from: Remote) -> PostOutcome {
        match self {
            // SAFETY: BYTES: this function's contract is that of the endpoint.
            Lane::Rc(endpoint) => unsafe { endpoint.post_get(to, len, from) },
            _ => PostOutcome::PeerGone,
        }
    }

    /// Makes progress on all posted one-sided operations. Returns `Done` on completion, or `InProgress`: call it again.
    /// Lanes that copy immediately only order their operations, as in [`Lane::flush`].
    #[inline]
    pub fn progress_flush(&mut self) -> Post {
        match self {
            Lane::Rc(endpoint) => endpoint.progress_flush(),
            _ => {
                // ORDERING: this fence orders the puts before the later notification of the peer. Partner: the acquire
                // load by which the peer sees that notification.
                fence(Ordering::SeqCst);
                Post::Done
            }
        }
    }
}
