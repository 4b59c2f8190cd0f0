//! Arrivals of one-sided operations: performs operations of peers, and takes answers to this rank's operations.
#![allow(unsafe_code)]

use crate::rma::atomic::change;
use crate::rma::error::RmaError::Withdrawn;
use crate::rma::message::{AtomicChange, RegionOffset, ReplyTarget};
use crate::rma::queue::Reply;
use crate::wire::{self, EAGER_LIMIT};
use crate::worker::Worker;
use fastpath_base::copy::copy;
use fastpath_transport::Header;

/// Most replies to one peer that wait for space. A valid peer requests fewer at a time.
const REPLIES_MOST: usize = 1024;

impl Worker {
    /// Handles one arrival. `data` is valid for `len` bytes, in memory that the peer may still write. The functions
    /// below return `None` for a violation of the protocol.
    #[cold]
    pub(crate) fn handle_remote(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        let healthy = match header.id {
            wire::REMOTE_PUT => self.serve_put(peer, data, len),
            wire::REMOTE_GET => self.serve_get(peer, header, data, len),
            wire::REMOTE_ATOMIC => self.serve_atomic(peer, header, data, len),
            wire::REMOTE_DATA => self.take_answer(peer, header, data, len),
            wire::REMOTE_FLUSH => self.serve_flush(peer, header),
            wire::REMOTE_FLUSHED => self.take_flushed(peer, header),
            wire::REMOTE_ASK => self.serve_ask(header),
            wire::REMOTE_CHANGE => self.serve_change(peer, header, data, len),
            wire::REMOTE_PUT_BLOCKS => self.serve_put_blocks(peer, header, data, len),
            wire::REMOTE_GET_BLOCKS => self.serve_get_blocks(peer, header, data, len),
            _ => None,
        };
        self.counters.violations += u64::from(healthy.is_none());
    }

    fn serve_put(&mut self, peer: u32, data: *const u8, len: usize) -> Option<()> {
        // SAFETY: `data` holds `len` bytes.
        let place = unsafe { wire::read::<RegionOffset>(data, len) }?;
        let skip = size_of::<RegionOffset>();
        let regions = &self.rma.regions;
        let found = regions.locate_to_write(place.region, place.offset, (len - skip) as u64);
        // SAFETY: `to` is inside exposed memory, which its owner keeps mapped, and the arrival has as many bytes.
        let is_written = found.is_some_and(|to| unsafe { to.write(data.add(skip), len - skip) });
        if !is_written {
            self.remote_peer(peer).refused += 1;
        }
        self.rma.counters.served += 1;
        Some(())
    }

    fn serve_get(&mut self, peer: u32, header: Header, data: *const u8, len: usize) -> Option<()> {
        // SAFETY: `data` holds `len` bytes.
        let place = unsafe { wire::read::<RegionOffset>(data, len) }?;
        let most = self.endpoints[peer].lane.capabilities().map_or(0, |c| c.bcopy);
        if header.imm as usize > most.min(EAGER_LIMIT) || !self.may_reply_later(peer) {
            return None;
        }
        self.rma.counters.served += 1;
        if self.connect(peer).is_ok() {
            let (token, len) = (header.key, header.imm);
            self.start_reply(peer, Reply { token, place, len, blocks: Vec::new() });
        }
        Some(())
    }

    /// Returns whether one more reply to the peer may wait for space.
    pub(super) fn may_reply_later(&mut self, peer: u32) -> bool {
        self.remote_peer(peer).replies.len() < REPLIES_MOST
    }

    fn serve_atomic(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) -> Option<()> {
        // SAFETY: `data` holds `len` bytes.
        let asked = unsafe { wire::read::<AtomicChange>(data, len) }?;
        let place = asked.place;
        let regions = &self.rma.regions;
        let at = regions.locate_to_write(place.region, place.offset, 8);
        let at = at.and_then(|bytes| bytes.address());
        let at = at.filter(|at| at.addr().is_multiple_of(8));
        // SAFETY: `at` is aligned and inside exposed memory, which is accessed as memory that others change.
        let found =
            at.and_then(|at| unsafe { change(at, header.imm, asked.operand, asked.compare) });
        self.rma.counters.served += 1;
        let answer = Header::new(wire::REMOTE_DATA, u32::from(found.is_none()), header.key);
        let bytes = found.unwrap_or(0).to_ne_bytes();
        self.send_control(peer, answer, if found.is_some() { &bytes } else { &[] });
        Some(())
    }

    fn serve_flush(&mut self, peer: u32, header: Header) -> Option<()> {
        let refused = std::mem::take(&mut self.remote_peer(peer).refused);
        let answer = Header::new(wire::REMOTE_FLUSHED, refused, header.key);
        self.send_control(peer, answer, &[]);
        Some(())
    }

    fn take_answer(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) -> Option<()> {
        let is_its = |landing: &ReplyTarget| landing.peer == peer;
        let landing = self.rma.landings.remove_if(header.key, is_its)?;
        let whole = header.imm == 0 && len == landing.len;
        if whole {
            // SAFETY: the arrival has `len` bytes, and the user's memory has `len` bytes until the answer is taken.
            unsafe { copy(landing.to, data, len) };
        }
        let state = self.remote_peer(peer);
        state.answers = state.answers.saturating_sub(1);
        if !whole {
            state.failed = Some(Withdrawn);
        }
        (whole || header.imm != 0).then_some(())
    }

    fn take_flushed(&mut self, peer: u32, header: Header) -> Option<()> {
        let state = self.remote_peer(peer);
        if header.key > state.asked || header.key < state.acked {
            return None;
        }
        state.acked = header.key;
        if header.imm != 0 {
            state.failed = Some(Withdrawn);
        }
        Some(())
    }
}
