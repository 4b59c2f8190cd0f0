//! Remote memory at the level of the protocol, by a key that is unpacked once.
//!
//! **WORKER.** The worker lives as long as the process and is used by one thread. No reference to it is held during a
//! call through the pointer.
#![allow(unsafe_code)]

use fastpath_protocol::Worker;
use fastpath_protocol::rma::{AccessPath, PACKED_BYTES};

use super::super::protocol::ProtocolLink;
use super::atomics::Atomic;
use super::{HeldResource, Memory, RemoteLink, Words};

impl RemoteLink for ProtocolLink {
    fn memories(&mut self) -> &'static [Memory] {
        let peer = self.peer();
        match self.worker_mut().shares_memory(peer) {
            true => &[Memory::Shared, Memory::Private],
            false => &[Memory::Private],
        }
    }

    fn take_shared(&mut self, bytes: usize) -> *mut u8 {
        let at = self.worker_mut().allocate_memory(bytes, 64);
        at.map_or(std::ptr::null_mut(), |at| at.as_ptr())
    }

    fn expose(&mut self, at: *mut u8, bytes: usize, _: Memory) -> (Words, HeldResource) {
        // SAFETY: the memory lives until the target ends, and this rank uses it only between orders.
        let exposed = unsafe { self.worker_mut().expose_memory(at, bytes) };
        let mut words = [1; 9];
        for (word, bytes) in words[1..].iter_mut().zip(exposed.key.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        (words, HeldResource::Region(exposed.id))
    }

    fn deregister(&mut self, held: HeldResource) {
        if let HeldResource::Region(id) = held {
            self.worker_mut().withdraw_memory(id);
        }
    }

    fn free(&mut self, at: *mut u8) {
        self.worker_mut().free_memory(at.addr());
    }

    fn open(&mut self, words: Words, _: usize) -> Result<(), String> {
        let mut key = [0; PACKED_BYTES];
        for (to, word) in key.chunks_exact_mut(8).zip(&words[1..]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let peer = self.peer();
        let unpacked = self.worker_mut().unpack_key(peer, &key);
        self.key = Some(unpacked.map_err(|e| e.to_string())?);
        Ok(())
    }

    fn variant(&self) -> &'static str {
        self.key.as_ref().map_or("", |key| key.way().name())
    }

    fn way(&self, puts: bool, bytes: usize) -> &'static str {
        match &self.key {
            Some(key) if key.way() == AccessPath::Adapter => {
                self.worker().name_method(key, puts, bytes)
            }
            _ => self.variant(),
        }
    }

    #[inline]
    fn put(&mut self, data: &[u8]) -> bool {
        let (worker, from, len) = (self.worker, data.as_ptr(), data.len());
        let Some(key) = &mut self.key else {
            return false;
        };
        // SAFETY: WORKER; the slice lives until the flush that follows in every caller.
        unsafe { (*worker).put_nbi(key, 0, from, len).is_ok() }
    }

    #[inline]
    fn get(&mut self, into: &mut [u8]) -> bool {
        let (worker, to, len) = (self.worker, into.as_mut_ptr(), into.len());
        let Some(key) = &mut self.key else {
            return false;
        };
        // SAFETY: WORKER; the slice lives until the flush that follows in every caller.
        unsafe { (*worker).get_nbi(key, 0, to, len).is_ok() }
    }

    #[inline]
    fn get_blocking(&mut self, into: &mut [u8]) -> bool {
        let (worker, to, len) = (self.worker, into.as_mut_ptr(), into.len());
        let Some(key) = &mut self.key else {
            return false;
        };
        // SAFETY: WORKER; the slice is writable for `len` bytes.
        unsafe { Worker::get(worker, key, 0, to, len).is_ok() }
    }

    #[inline]
    fn flush(&mut self) -> bool {
        // SAFETY: WORKER.
        unsafe { Worker::flush(self.worker, self.peer()).is_ok() }
    }

    fn has_atomics(&self, _: Memory) -> bool {
        true
    }

    fn way_of_atomics(&self) -> &'static str {
        match &self.key {
            Some(key) if key.way() == AccessPath::LoadStore => AccessPath::LoadStore.name(),
            _ => AccessPath::Messages.name(),
        }
    }

    #[inline]
    fn change(&mut self, atomic: Atomic, operand: u64, compare: u64) -> Option<u64> {
        let (worker, key) = (self.worker, self.key.as_mut()?);
        let mut word = 0;
        let found = &raw mut word;
        // SAFETY: WORKER; the word lives until the flush below has ended.
        let posted = unsafe {
            match atomic {
                Atomic::FetchAdd => (*worker).fetch_add_nbi(key, 0, operand, found),
                Atomic::CompareSwap => (*worker).compare_swap_nbi(key, 0, compare, operand, found),
            }
        };
        let complete = posted.is_ok() && self.flush();
        // SAFETY: `found` is a local word, which is written no more after the flush.
        complete.then(|| unsafe { found.read() })
    }

    fn serve(&mut self) -> bool {
        self.worker_mut().progress()
    }

    fn has_lost_peer(&mut self) -> bool {
        let peer = self.peer();
        self.worker_mut().peer_has_left(peer)
    }
}
