//! Operations on a peer's memory, as a lane does them: at once, or posted and completed by a flush.
//!
//! A lane that posts chooses by size how ([`Method`]): short, from the descriptor; bcopy, through a buffer of the
//! transport; zcopy, between the memories themselves. The layer above and the benchmarks of a transport alone post
//! through the same calls, so that both choose the same.
//!
//! **BYTES.** What is put is readable and what is got writable, and nobody else's, for its length: until the answer, or
//! [`Lane::progress_flush`], says that it is done. What is registered stays mapped meanwhile. Each function here asks
//! this of its caller.
#![allow(unsafe_code)]

use crate::contract::{Capabilities, Endpoint, Post, Remote, RemoteError};
use crate::interfaces::Interfaces;
use crate::lane::Lane;
use crate::shm::arena::KEY_ARENA;
pub use crate::shm::arena::{MAX_ALIGN, MIN_ALIGN};
pub use crate::shm::mapped::{MappedMemory, copy_mapped};
use crate::verbs::MemoryRegion;
use fastpath_base::sync::{Ordering, fence};
use std::sync::Arc;

/// How one operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The bytes lie in the descriptor.
    Short,
    /// They pass through a buffer of the transport.
    Bcopy,
    /// The adapter moves them between the two memories.
    Zcopy,
}

impl Method {
    /// The field's name.
    pub fn name(self) -> &'static str {
        match self {
            Method::Short => "short",
            Method::Bcopy => "bcopy",
            Method::Zcopy => "zcopy",
        }
    }
}

/// What became of an operation on a peer's memory.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// So many bytes from the front are under way, and their buffer may be reused.
    Done(usize),
    /// So many bytes from the front are under way; their buffer stays in use until a flush.
    InProgress(usize),
    /// No room now, or not connected yet. Nothing has changed.
    NoResource,
    /// The peer cannot be reached any more.
    PeerGone,
}

/// Memory that an adapter knows, for as long as this lives.
pub struct Registration {
    region: Arc<MemoryRegion>,
}

impl Registration {
    /// The key by which peers reach it.
    pub fn rkey(&self) -> u32 {
        self.region.rkey()
    }
}

impl Interfaces {
    /// Lets peers that are reached by an adapter read and write `len` bytes at `address`, as long as the answer is
    /// kept;
    /// `None` where there is no adapter that can, or the memory cannot be locked.
    ///
    /// # Safety
    /// The memory stays mapped until then.
    pub unsafe fn register_memory(&self, address: *mut u8, len: usize) -> Option<Registration> {
        let iface = self.connections()?;
        // SAFETY: BYTES.
        let region = unsafe { iface.register_remote(address, len) }?;
        Some(Registration { region })
    }

    /// So many bytes of the program's own memory stay registered at most between messages; 0: none, as before this is
    /// called.
    pub fn keep_registrations(&self, bytes: usize) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.keep_most(bytes));
        }
    }

    /// Adapters forget memory that nothing uses any more.
    pub fn release_registrations(&self) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.release_unused());
        }
    }

    /// Where `len` bytes at `address` are for ranks of this host ([`Interfaces::map_memory`]); `None` where not all of
    /// them are memory that is given out to be shared.
    pub fn locate_shared(&self, address: usize, len: usize) -> Option<u64> {
        let found = self.arena.find(address, len.max(1) as u64);
        found.map(|remote| remote.addr)
    }

    /// Maps memory of `peer`, a rank of this host that says where ([`Interfaces::locate_shared`]).
    ///
    /// # Errors
    /// As [`MappedMemory::new`].
    pub fn map_memory(&self, peer: u32, at: u64, len: usize) -> Result<MappedMemory, RemoteError> {
        let remote = Remote { addr: at, rkey: KEY_ARENA | u64::from(peer) };
        MappedMemory::new(self.shared_domain(), peer, remote, len)
    }

    /// Whether send queues are polled only while something is outstanding (as by default).
    pub fn set_tx_gate(&mut self, on: bool) {
        if let Some(iface) = self.connections() {
            iface.set_tx_gate(on);
        }
    }

    /// Whether a message with the header of the last one goes without it (as by default).
    pub fn set_repeats(&mut self, on: bool) {
        if let Some(iface) = self.connections() {
            iface.set_repeats(on);
        }
    }
}

impl Lane {
    /// Whether operations on the peer's memory are posted, and complete later.
    #[inline]
    pub fn posts_remote(&self) -> bool {
        matches!(self, Lane::Rc(_))
    }

    /// Whether memory of the peer that is given out to be shared is reached by load and store.
    #[inline]
    pub fn can_load_store(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Whether [`Lane::get`] and [`Lane::put`] copy from and to any memory of the peer, as far as is known.
    pub fn copies_directly(&self) -> bool {
        let able = |c: Capabilities| c.get_zcopy > 0 && c.put_zcopy > 0;
        match self {
            Lane::Shm(endpoint) => able(endpoint.capabilities()),
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => able(endpoint.capabilities()),
            _ => false,
        }
    }

    /// How a put of `len` bytes is posted; `None` where none is.
    pub fn put_method(&self, len: usize) -> Option<Method> {
        match self {
            Lane::Rc(endpoint) => Some(endpoint.put_method(len)),
            _ => None,
        }
    }

    /// How a get of `len` bytes is posted; `None` where none is.
    pub fn get_method(&self, len: usize) -> Option<Method> {
        match self {
            Lane::Rc(endpoint) => Some(endpoint.get_method(len)),
            _ => None,
        }
    }

    /// Posts a put of up to `len` bytes.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes: until [`Lane::progress_flush`] says `Done` where this says `InProgress`.
    #[inline]
    pub unsafe fn post_put(&mut self, from: *const u8, len: usize, to: Remote) -> Posted {
        match self {
            // SAFETY: BYTES.
            Lane::Rc(endpoint) => unsafe { endpoint.post_put(from, len, to) },
            _ => Posted::PeerGone,
        }
    }

    /// Posts a get of up to `len` bytes. They are there when [`Lane::progress_flush`] says `Done`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and nobody else's, until then.
    #[inline]
    pub unsafe fn post_get(&mut self, to: *mut u8, len: usize, from: Remote) -> Posted {
        match self {
            // SAFETY: BYTES.
            Lane::Rc(endpoint) => unsafe { endpoint.post_get(to, len, from) },
            _ => Posted::PeerGone,
        }
    }

    /// Goes on with completing all that was posted to the peer's memory: `Done` when it is, `InProgress` to be called
    /// again. On lanes that copy at once only the order is left, as in [`Lane::flush`].
    #[inline]
    pub fn progress_flush(&mut self) -> Post {
        match self {
            Lane::Rc(endpoint) => endpoint.progress_flush(),
            _ => {
                // ORDERING: between the puts and whatever tells the peer about them; its partner is the acquire by
                // which the peer learns of it.
                fence(Ordering::SeqCst);
                Post::Done
            }
        }
    }
}
