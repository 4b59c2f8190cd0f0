//! Wire-up messages between ranks of one node, through the job's memory.
//!
//! Each ordered pair of ranks that an adapter connects has one slot. The slot is at the start of the pair's region,
//! which then holds no ring. A message replaces the previous one; the wire-up repeats lost messages. The version of a
//! slot is odd during a write.
#![allow(unsafe_code)]

use crate::allowed::Allowed;
use crate::contract::{ADDRESS_BYTES, Address};
use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering, fence};
use fastpath_job::Job;
use fastpath_segment::SegmentError;

const WORDS: usize = ADDRESS_BYTES.div_ceil(8);

#[repr(C)]
struct MessageSlot {
    /// Odd while the sender writes; 0 if empty.
    version: AtomicU32,
    /// Step in the low 8 bits, and the address's length above it.
    step: AtomicU32,
    words: [AtomicU64; WORDS],
}

pub(crate) struct WireupMailbox {
    job: &'static Job,
    me: usize,
    allowed: Allowed,
    seen_generation: u32,
    seen: Vec<u32>,
    waiting: Vec<u32>,
}

impl WireupMailbox {
    pub fn new(job: &'static Job, allowed: Allowed) -> Self {
        WireupMailbox {
            job,
            me: job.rank(),
            allowed,
            seen_generation: 0,
            seen: vec![0; job.capacity()],
            waiting: Vec::new(),
        }
    }

    fn place(&self, from: usize, to: usize) -> Option<&'static MessageSlot> {
        let at = self.job.pair_region(from, to)?;
        // SAFETY: the region is mapped as long as the job and longer than a slot. It consists of aligned atomics, for
        // which any bits are valid. It is accessed only after its sender has had it backed.
        Some(unsafe { at.cast().as_ref() })
    }

    /// Sends a message; an unread earlier message is lost. Fails if the pair's region gets no memory.
    pub fn send(&self, peer: u32, step: u8, address: &Address) -> Result<(), SegmentError> {
        let to = peer as usize;
        let segment = self.job.segment();
        let (Some(offset), Some(own)) = (segment.pair_offset(self.me, to), segment.place(self.me))
        else {
            return Ok(());
        };
        segment.ensure_backed(offset, size_of::<MessageSlot>() as u64)?;
        let (Some(place), Some(page)) = (self.place(self.me, to), self.job.rank_page(to)) else {
            return Ok(());
        };
        let mut padded = [0; WORDS * 8];
        let len = address.as_slice().len();
        padded[..len].copy_from_slice(address.as_slice());
        let version = place.version.load(Ordering::Relaxed);
        place.version.store(version.wrapping_add(1) | 1, Ordering::Relaxed);
        // ORDERING: a reader of any later store also sees the odd version; partner is the acquire fence in `read`.
        fence(Ordering::Release);
        let head = step as u32 | (len as u32) << 8;
        place.step.store(head, Ordering::Relaxed);
        for (word, bytes) in place.words.iter().zip(padded.chunks_exact(8)) {
            let bytes = bytes.try_into().unwrap_or_default();
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        // ORDERING: publishes the message; partner is the acquire load in `read`.
        place.version.store((version | 1).wrapping_add(1), Ordering::Release);
        if let Some(words) = self.job.incoming_bitmap(to)
            && let Some(word) = words.get(own / 64)
        {
            // ORDERING: publishes that the region is backed; partner is the acquire load in `receive`.
            word.fetch_or(1 << (own % 64), Ordering::Release);
        }
        // ORDERING: publishes bit and message; partner is the acquire load in `receive`.
        page.incoming_generation.fetch_add(1, Ordering::Release);
        crate::shm::iface::wake(&page.state);
        page.call.ring();
        Ok(())
    }

    pub fn signals(&self) -> bool {
        let generation = &self.job.own_page().incoming_generation;
        !self.waiting.is_empty() || generation.load(Ordering::Relaxed) != self.seen_generation
    }

    pub fn receive(&mut self) -> Option<(u32, u8, Address)> {
        let own = self.job.own_page();
        // ORDERING: acquires the bits; partner is the last release in `send`.
        let generation = own.incoming_generation.load(Ordering::Acquire);
        if self.waiting.is_empty() && generation != self.seen_generation {
            self.seen_generation = generation;
            let words = self.job.incoming_bitmap(self.me).unwrap_or_default();
            for (index, word) in words.iter().enumerate() {
                // ORDERING: acquires the backing of the region; partner is the release of the bit in `send`.
                let mut bits = word.load(Ordering::Acquire);
                while bits != 0 {
                    let at = index * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let peer = self.job.segment().rank_at(at);
                    if let Some(peer) = peer.filter(|&p| self.allowed.leads_outside(self.job, p)) {
                        self.waiting.push(peer as u32);
                    }
                }
            }
        }
        while let Some(peer) = self.waiting.pop() {
            if let Some(found) = self.read(peer) {
                return Some(found);
            }
        }
        None
    }

    fn read(&mut self, peer: u32) -> Option<(u32, u8, Address)> {
        let place = self.place(peer as usize, self.me)?;
        let seen = self.seen.get_mut(peer as usize)?;
        // ORDERING: acquires the message; partner is the release store in `send`.
        let version = place.version.load(Ordering::Acquire);
        if version == *seen || version & 1 != 0 {
            return None; // the writer will signal again
        }
        let head = place.step.load(Ordering::Relaxed);
        let mut bytes = [0; WORDS * 8];
        for (to, word) in bytes.chunks_exact_mut(8).zip(&place.words) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        // ORDERING: the version is read again after the message; partner is the release fence in `send`.
        fence(Ordering::Acquire);
        if place.version.load(Ordering::Relaxed) != version {
            return None;
        }
        *seen = version;
        let address = Address::new(bytes.get(..(head >> 8) as usize)?)?;
        Some((peer, head as u8, address))
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn pair() -> [WireupMailbox; 2] {
        let allowed = Allowed {
            shm: false,
            adapter: Some(crate::adapter::AdapterTransport::Rc),
            ..Allowed::default()
        };
        let jobs = Job::in_process(2).unwrap();
        let mails: Vec<WireupMailbox> = jobs
            .into_iter()
            .map(|job| WireupMailbox::new(Box::leak(Box::new(job)), allowed))
            .collect();
        mails.try_into().ok().unwrap()
    }

    #[test]
    fn send__is_received_once() {
        let [a, mut b] = pair();
        assert!(!b.signals());
        let address = Address::new(&[7; ADDRESS_BYTES]).unwrap();
        a.send(1, 3, &address).unwrap();
        assert!(b.signals());
        assert_eq!(b.receive(), Some((0, 3, address)));
        assert_eq!((b.receive(), b.signals()), (None, false));
    }

    #[test]
    fn send__replaces_what_was_not_read() {
        let [mut a, b] = pair();
        for step in 1..=3 {
            b.send(0, step, &Address::new(&[step; 5]).unwrap()).unwrap();
        }
        assert_eq!(a.receive(), Some((1, 3, Address::new(&[3; 5]).unwrap())));
        assert_eq!(a.receive(), None);
    }

    #[test]
    fn receive__of_what_no_healthy_peer_writes_is_nothing() {
        let [a, mut b] = pair();
        a.send(1, 1, &Address::default()).unwrap();
        let place = b.place(0, 1).unwrap();
        place.step.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(b.receive(), None);
        place.version.store(7, Ordering::Relaxed);
        b.job.own_page().incoming_generation.fetch_add(1, Ordering::Relaxed);
        assert_eq!(b.receive(), None);
    }
}
