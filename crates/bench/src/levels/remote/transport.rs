//! Remote memory at the level of the transport. The key's target is resolved once, in this file.
#![allow(unsafe_code)]

use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_transport::PostOutcome;
use fastpath_transport::shm::mapped::copy_mapped;
use fastpath_transport::{Connection, Post, Remote};

use super::super::transport::{PeerMemory, TransportLink};
use super::atomics::Atomic;
use super::{HeldResource, Memory, RemoteLink, Words};

/// Slice over memory of a target.
pub fn make_slice<'a>(at: *mut u8, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the memory has `bytes` bytes. The peer writes it only between two orders, during which the slice is not
    // used.
    unsafe { std::slice::from_raw_parts_mut(at, bytes) }
}

const BY_LOAD: u64 = 1;
const BY_KERNEL: u64 = 2;
const BY_ADAPTER: u64 = 3;

impl TransportLink {
    /// Posts until all bytes are in flight.
    #[inline]
    fn post_all(
        &mut self, len: usize, mut post: impl FnMut(&mut Self, usize) -> PostOutcome,
    ) -> bool {
        let mut done = 0;
        while done < len {
            match post(self, done) {
                PostOutcome::Done(bytes) | PostOutcome::InProgress(bytes) => done += bytes,
                PostOutcome::NoResource => {
                    self.interfaces.progress();
                }
                PostOutcome::PeerGone => return false,
            }
        }
        true
    }
}

impl RemoteLink for TransportLink {
    fn memories(&mut self) -> &'static [Memory] {
        match self.is_adapter() {
            true => &[Memory::Private],
            false => &[Memory::Shared, Memory::Private],
        }
    }

    fn take_shared(&mut self, bytes: usize) -> *mut u8 {
        let at = self.interfaces.arena.allocate(bytes, 64);
        at.map_or(std::ptr::null_mut(), |at| at.as_ptr())
    }

    fn expose(&mut self, at: *mut u8, bytes: usize, memory: Memory) -> (Words, HeldResource) {
        let mut words = [0; 9];
        let addr = at.expose_provenance() as u64;
        let (arena, lane) = (&self.interfaces.arena, &self.lane);
        // SAFETY: the memory lives until the target ends.
        let registration = unsafe { self.interfaces.register_memory(at, bytes) };
        let shared = lane.share_memory(arena, at.addr(), bytes as u64);
        let (by, remote) = match (&registration, shared) {
            (Some(registration), _) => {
                let rkey = u64::from(registration.rkey());
                (BY_ADAPTER, Remote { addr, rkey })
            }
            (None, Some(remote)) => (BY_LOAD, remote),
            (None, None) if memory == Memory::Private && !self.is_adapter() => {
                let rkey = lane.memory_key();
                (BY_KERNEL, Remote { addr, rkey })
            }
            (None, None) => return (words, HeldResource::Nothing),
        };
        words[..3].copy_from_slice(&[by, remote.addr, remote.rkey]);
        (words, registration.map_or(HeldResource::Nothing, HeldResource::Registration))
    }

    fn deregister(&mut self, held: HeldResource) {
        drop(held);
        self.interfaces.release_registrations();
    }

    fn free(&mut self, at: *mut u8) {
        self.interfaces.arena.free(at.addr());
    }

    fn open(&mut self, words: Words, bytes: usize) -> Result<(), String> {
        let [by, addr, rkey, ..] = words;
        let remote = Remote { addr, rkey };
        self.reached = match by {
            BY_LOAD => {
                let mapped = self.interfaces.map_memory(self.peer, remote.addr, bytes);
                PeerMemory::Mapped(
                    mapped
                        .map_err(|e| format!("cannot map the memory of the other rank: {e:?}"))?,
                )
            }
            BY_KERNEL => PeerMemory::ByKernel(remote),
            BY_ADAPTER => PeerMemory::ByAdapter(remote),
            _ => {
                return Err(
                    "the transport cannot access this kind of memory of the other rank".to_owned()
                );
            }
        };
        Ok(())
    }

    fn variant(&self) -> &'static str {
        match self.reached {
            PeerMemory::Nothing => "",
            PeerMemory::Mapped(_) => "load-store",
            PeerMemory::ByKernel(_) => "kernel",
            PeerMemory::ByAdapter(_) => "adapter",
        }
    }

    fn way(&self, puts: bool, bytes: usize) -> &'static str {
        let method = match puts {
            true => self.lane.put_method(bytes),
            false => self.lane.get_method(bytes),
        };
        method.map_or_else(|| self.variant(), |method| method.name())
    }

    #[inline]
    fn put(&mut self, data: &[u8]) -> bool {
        let (from, len) = (data.as_ptr(), data.len());
        match &self.reached {
            // SAFETY: the mapped memory has at least `len` bytes, and so has the slice.
            PeerMemory::Mapped(mapped) => unsafe {
                copy_mapped(mapped.base(), from, len);
                true
            },
            // SAFETY: the slice is readable.
            &PeerMemory::ByKernel(to) => unsafe { self.lane.put(from, len, to).is_ok() },
            &PeerMemory::ByAdapter(to) => self.post_all(len, |this, done| {
                let to = Remote { addr: to.addr + done as u64, ..to };
                // SAFETY: the slice is readable until the flush that follows in every caller.
                unsafe { this.lane.post_put(from.wrapping_add(done), len - done, to) }
            }),
            PeerMemory::Nothing => false,
        }
    }

    #[inline]
    fn get(&mut self, into: &mut [u8]) -> bool {
        let (to, len) = (into.as_mut_ptr(), into.len());
        match &self.reached {
            // SAFETY: the mapped memory has at least `len` bytes, and so has the slice.
            PeerMemory::Mapped(mapped) => unsafe {
                copy_mapped(to, mapped.base(), len);
                true
            },
            // SAFETY: the slice is writable.
            &PeerMemory::ByKernel(from) => unsafe { self.lane.get(to, len, from).is_ok() },
            &PeerMemory::ByAdapter(from) => self.post_all(len, |this, done| {
                let from = Remote { addr: from.addr + done as u64, ..from };
                // SAFETY: the slice is writable until the flush that follows in every caller.
                unsafe { this.lane.post_get(to.wrapping_add(done), len - done, from) }
            }),
            PeerMemory::Nothing => false,
        }
    }

    #[inline]
    fn get_blocking(&mut self, into: &mut [u8]) -> bool {
        let posted = self.get(into);
        match self.reached {
            PeerMemory::ByAdapter(_) => posted && self.flush(),
            _ => posted,
        }
    }

    #[inline]
    fn flush(&mut self) -> bool {
        let mut polls = 0;
        loop {
            match self.lane.progress_flush() {
                Post::Done => return true,
                Post::PeerGone => return false,
                _ => self.pause(&mut polls),
            }
        }
    }

    fn has_atomics(&self, memory: Memory) -> bool {
        memory == Memory::Shared
    }

    #[inline]
    fn change(&mut self, atomic: Atomic, operand: u64, compare: u64) -> Option<u64> {
        let PeerMemory::Mapped(mapped) = &self.reached else {
            return None;
        };
        let at = mapped.base().cast::<AtomicU64>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: the other rank's memory has at least 8 bytes, which both ranks access only by atomics meanwhile.
        let word = unsafe { &*at };
        // ORDERING: acquire and release, as in the protocol's atomics; the partners are the other rank's atomics.
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let found = match atomic {
            Atomic::FetchAdd => word.fetch_add(operand, done),
            Atomic::CompareSwap => {
                let swapped = word.compare_exchange(compare, operand, done, seen);
                swapped.unwrap_or_else(|found| found)
            }
        };
        self.flush().then_some(found)
    }

    fn serve(&mut self) -> bool {
        let served = self.is_adapter() && self.interfaces.progress();
        if self.is_adapter() {
            self.lane.return_credits();
        }
        served
    }

    fn has_lost_peer(&mut self) -> bool {
        self.lane.peer_has_left()
    }
}
