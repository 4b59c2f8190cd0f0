//! Part of a peer's arena, mapped into this process. The key is resolved once, so every later operation is only a copy.
#![allow(unsafe_code)]

use super::arena::KEY_ARENA;
use super::domain::Domain;
use crate::contract::{Remote, RemoteError};
use fastpath_base::copy::{COPY_SMALL_MAX, copy, copy_small};
use fastpath_segment::Mapping;

const PAGE: u64 = 4096;

/// Mapped memory of a peer. Other processes may write there at any time.
pub struct MappedMemory {
    mapping: Mapping,
    skip: usize,
}

impl MappedMemory {
    /// Maps `len` bytes, at least one, of the arena of `peer` that the key names.
    ///
    /// # Errors
    /// `Unsupported` if the key names no arena or there is no address space. `Fault` if the key names another rank's
    /// arena, or a range outside of the arena.
    pub fn new(
        domain: &Domain, peer: u32, remote: Remote, len: usize,
    ) -> Result<Self, RemoteError> {
        if remote.rkey & KEY_ARENA == 0 {
            return Err(RemoteError::Unsupported);
        }
        let end = remote.addr.checked_add(len.max(1) as u64);
        let inside = end.filter(|&end| end <= domain.arena_bytes());
        let (Some(end), true) = (inside, remote.rkey & !KEY_ARENA == u64::from(peer)) else {
            return Err(RemoteError::Fault);
        };
        let first = remote.addr / PAGE * PAGE;
        let bytes = end.next_multiple_of(PAGE) - first;
        let offset = domain.arena_start(peer).ok_or(RemoteError::Fault)? + first;
        let mapping = domain.job.map_range(offset, bytes as usize);
        Ok(MappedMemory {
            mapping: mapping.map_err(|_| RemoteError::Unsupported)?,
            skip: (remote.addr - first) as usize,
        })
    }

    /// Address of the first byte, valid as long as `self`.
    pub fn base(&self) -> *mut u8 {
        // SAFETY: the mapping has at least one byte at `skip`.
        unsafe { self.mapping.base().as_ptr().add(self.skip) }
    }
}

/// Copies between a buffer and mapped memory of a peer. Short copies are inline, so that eight bytes are one store.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy_mapped(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: this function's contract is that of both copies.
    unsafe {
        match len <= COPY_SMALL_MAX {
            true => copy_small(to, from, len),
            false => copy(to, from, len),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::shm::Arena;
    use fastpath_job::Job;
    use fastpath_segment::ARENA_BYTES;

    fn domains() -> [Domain; 2] {
        let jobs: &'static [Job] = Job::in_process(2).unwrap().leak();
        [Domain::new(&jobs[0]), Domain::new(&jobs[1])]
    }

    #[test]
    fn mapped__memory_is_the_owners() {
        let [owner, peer] = domains();
        let mut arena = Arena::new(Box::leak(Box::new(owner)));
        for (bytes, skip) in [(100, 0), (100, 77), (100_000, 4095), (100_000, 4096)] {
            let memory = arena.allocate(bytes, 64).unwrap().as_ptr();
            let remote = arena.find(memory.addr() + skip, (bytes - skip) as u64);
            let mapped = MappedMemory::new(&peer, 0, remote.unwrap(), bytes - skip).unwrap();
            // SAFETY: both have `bytes - skip` bytes, which have no other user.
            unsafe {
                memory.write_bytes(1, bytes);
                let from = vec![7_u8; bytes - skip];
                copy_mapped(mapped.base(), from.as_ptr(), from.len());
                for at in 0..bytes {
                    assert_eq!(memory.add(at).read(), if at < skip { 1 } else { 7 });
                }
            }
        }
    }

    #[test]
    fn mapped__memory_is_the_named_peers_and_inside_its_arena() {
        let [_, peer] = domains();
        let map = |addr, rkey, len| MappedMemory::new(&peer, 0, Remote { addr, rkey }, len).err();
        assert_eq!(map(0, KEY_ARENA, 8), None);
        assert_eq!(map(ARENA_BYTES - 8, KEY_ARENA, 8), None);
        assert_eq!(map(0, 0, 8), Some(RemoteError::Unsupported));
        for (addr, rank, len) in [
            (ARENA_BYTES - 8, 0, 9),
            (ARENA_BYTES, 0, 0),
            (u64::MAX, 0, 8),
            (u64::MAX - 7, 0, 8),
            (0, 1, 8),
            (0, 2, 8),
            (0, 0, usize::MAX),
        ] {
            assert_eq!(map(addr, KEY_ARENA | rank, len), Some(RemoteError::Fault));
        }
    }
}
