//! Fast path of arrivals of posted receives. The message arrives whole, and the receive names its source and has a long
//! enough contiguous buffer. `progress` handles all other arrivals.
#![allow(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::matching::ANY_PEER;
use crate::progress::ROUND;
use crate::request::{Request, RequestState};
use crate::tag::key_source;
use crate::wire;
use crate::worker::Worker;
use fastpath_base::copy::{copy, copy_small};

impl Worker {
    /// Takes arrivals from the source of a posted receive by the fast path. Returns true once that receive has
    /// completed, and false if the fast path does not apply or finds no arrival that it can take. The loop ends,
    /// because each arrival taken completes a posted receive.
    ///
    /// # Safety
    /// The receive is posted.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
    pub unsafe fn drain_until(&mut self, request: *mut Request) -> bool {
        // SAFETY: the receive is posted, by this function's contract, and a posted request is valid.
        let peer = unsafe { (*request).peer };
        if peer == ANY_PEER || self.wait.sleepers.count() != self.wait.drain_at {
            return false;
        }
        loop {
            match self.drain_next(peer) {
                None => return false,
                Some(done) if done == request => return true,
                Some(_) => {}
            }
        }
    }

    /// Takes the arrivals of `peer` by the fast path, as many as one round of progress.
    #[inline(never)]
    pub fn drain_round(&mut self, peer: u32) {
        for _ in 0..ROUND {
            if self.drain_next(peer).is_none() {
                break;
            }
        }
    }

    /// Takes the next arrival of `peer` by the fast path. Returns the completed receive; `None` if nothing was taken.
    #[inline(always)] // `fastpath bench rate`: windows of nonblocking receives
    pub(crate) fn drain_next(&mut self, peer: u32) -> Option<*mut Request> {
        let endpoint: *mut Endpoint = &mut self.endpoints[peer];
        // SAFETY: an endpoint lives as long as its worker, and no other reference to it is used meanwhile.
        let lane = unsafe { &mut (*endpoint).lane };
        let short = lane.look_short(wire::EAGER);
        let is_short = short.is_some();
        // SAFETY: the endpoint lives, and the first poll returned nothing that borrows the lane.
        let arrival = short.or_else(|| unsafe { (*endpoint).lane.look_long(wire::EAGER) })?;
        let (header, from, len) = (arrival.header, arrival.data(), arrival.len());
        let tag = header.imm as i32;
        let request = self.matcher.find_named(peer, header.key, tag)?;
        // SAFETY: a posted request is valid, and no other reference to it is used meanwhile.
        let found = unsafe { &mut *request };
        if len as u64 > found.bytes || !found.is_contiguous() || found.detached {
            return None;
        }
        // SAFETY: the buffer has space for `len` bytes, the arrival was just read, and the peer's list has the request.
        unsafe {
            match is_short {
                true => copy_small(found.ptr, from, len),
                false => copy(found.ptr, from, len),
            }
            found.source = key_source(header.key) as i32;
            found.received_tag = tag;
            found.received = len as u64;
            found.state = RequestState::Complete;
            self.matcher.unpost_named(peer, request);
            match is_short {
                true => (*endpoint).lane.take_short(),
                false => (*endpoint).lane.take(),
            }
        }
        Some(request)
    }
}
