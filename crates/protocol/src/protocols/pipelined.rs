//! Pipelined rendezvous: after the RTR the message is sent in fragments (`FRAG`), which both sides copy at the same
//! time.
#![allow(unsafe_code)]

use super::{PeerPlace, Record, below};
use crate::learning::Half;
use crate::plan::LaneSizes;
use crate::request::{Fault, MessagePhase, RequestId, RequestKind};
use crate::selection::candidates::{fixed, stream_byte_ns};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::wire::{self, EARLY_LIMIT};
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header, Post};
use std::mem::MaybeUninit;

pub(super) const RECORD: Record = Record {
    name: "rendezvous pipelined",
    steps: "RTS, RTR, FRAG",
    probe: |case| {
        let t = case.thresholds;
        Ok(match (case.place(), case.peers.registered) {
            (PeerPlace::Itself, _) => t.first,
            (PeerPlace::Node, _) => below(t.copy_from(case.shared)),
            (PeerPlace::Outside, Ok(())) => below(t.fetch),
            (PeerPlace::Outside, Err(_)) => u64::MAX,
        })
    },
    describe: |case| {
        let t = case.thresholds;
        let LaneSizes { early: first, part: fragment, .. } = case.sizes();
        if case.peers.bulk {
            return format!(
                "the first {first} B are sent with the RTS, from the buffer without a copy; the \
                 rest is sent in the same way or, if it is not contiguous, in fragments of \
                 {fragment} B"
            );
        }
        let stream = t.stream();
        format!(
            "the first {first} B are sent with the RTS, the rest in fragments of {fragment} B; \
             {stream}"
        )
    },
    cost: |c, t, _| fragments(c, t),
};

/// Returns the cost of an RTS with the first bytes, then fragments. The first copy overlaps with the RTR.
pub fn fragments(c: &Constants, t: &Thresholds) -> Curve {
    let early = t.first.min(EARLY_LIMIT);
    let piece = t.fragment.min(early) as f64;
    let stream = stream_byte_ns(c, t.fragment, true);
    let begin = 2.0 * c.post_ns + c.line_ns + piece * (2.0 * c.transfer_byte_ns - stream);
    let handshake = 4.0 * c.post_ns + 3.0 * c.line_ns;
    let early_ns = (begin + early as f64 * stream).max(handshake);
    let ns_per_byte = stream_byte_ns(c, t.fragment, t.pipelined);
    let start = early_ns + 2.0 * c.step_ns - early as f64 * ns_per_byte;
    let cost = fixed(start, 0.0, 0.0, ns_per_byte);
    Curve::line(early + 1, u64::MAX, cost)
}

/// Maximum number of bytes taken at once of a bulk message whose bytes cannot go directly to the receive buffer.
const PART: usize = 16 * 1024;

impl Worker {
    pub(crate) fn push_later(&mut self, id: RequestId) {
        self.sends.pushing.push(id);
        self.ring_own();
    }

    /// Sends fragments of long messages while there is space, and makes deferred copies.
    pub(crate) fn push_fragments(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.sends.pushing.len() {
            let id = self.sends.pushing[index];
            if self.requests.get(id).kind == RequestKind::Recv {
                self.sends.pushing.swap_remove(index);
                self.receive_deferred(id);
                moved = true;
                continue;
            }
            if self.push_one(id) {
                moved = true;
                self.ring(self.requests.get(id).peer);
            }
            let request = self.requests.get(id);
            if request.moved >= request.limit {
                self.sends.pushing.swap_remove(index);
                self.complete(id);
            } else {
                index += 1;
            }
        }
        moved
    }

    fn push_one(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let lane = &self.endpoints[request.peer].lane;
        let fragment = self.planner.thresholds.sizes_on(lane).part;
        let is_timed = self.times_copies(Half::Pack, request, fragment);
        let request = self.requests.get_mut(id);
        let mut moved = false;
        while request.moved < request.limit {
            if !self.planner.thresholds.pipelined && !self.endpoints[request.peer].lane.is_drained()
            {
                break;
            }
            let left = request.limit - request.moved;
            let began = is_timed.then(clock::now_ns);
            let header = Header::new(wire::FRAG, 0, request.remote as u64);
            let data = request.place(request.moved).map(<*mut u8>::cast_const);
            // SAFETY: the buffer is readable by the contract of `start_send`, and `to` has space for `len` bytes.
            let (post, gone) = unsafe {
                let pack = |to, len| request.pack(request.moved, to, len);
                let endpoint = &mut self.endpoints[request.peer];
                endpoint.post_next(header, (left, fragment), data, pack)
            };
            match post {
                Post::NoResource if self.endpoints[request.peer].lane.is_starved() => {
                    request.fault = Fault::NoMemory;
                    request.moved = request.limit;
                }
                Post::NoResource if !self.endpoints[request.peer].lane.peer_has_left() => break,
                Post::PeerGone | Post::NoResource => {
                    request.fault = Fault::PeerGone;
                    request.moved = request.limit;
                }
                Post::Done | Post::InProgress | Post::Wake => {
                    trace::record(Point::Fragment, request.peer, 0, gone);
                    request.moved += gone;
                    self.planner.copy_costs.note(Half::Pack, began, gone);
                }
            }
            moved = true;
        }
        moved
    }
}

impl Worker {
    pub(crate) fn handle_fragment(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) {
        let Some(id) = self.find_active(header.key, RequestKind::Recv, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        let fits = len as u64 <= request.limit.saturating_sub(request.moved);
        if !fits || !self.takes_bytes(peer, id) {
            return self.violation();
        }
        self.add_bytes(id, data, len);
    }

    /// Takes bytes of a peer's bulk message; they go directly to a contiguous receive buffer. Returns whether any bytes
    /// were taken.
    #[cold]
    pub(crate) fn receive_bulk(&mut self, peer: u32) -> bool {
        let Some((header, left)) = self.endpoints[peer].lane.find_bulk() else {
            return false;
        };
        let early = &self.endpoints[peer].early;
        let id = match header.id {
            wire::FRAG => {
                let id = self.find_active(header.key, RequestKind::Recv, peer);
                id.filter(|&id| self.takes_bytes(peer, id))
            }
            wire::EAGER_MIDDLE if left as u64 <= early.left as u64 && !early.stored => {
                Some(early.id)
            }
            _ => None,
        };
        let place = id.and_then(|id| {
            let request = self.requests.get(id);
            let end = request.moved.checked_add(left as u64)?;
            let fits = end <= request.limit && end <= request.bytes;
            Some((id, request.place(request.moved).filter(|_| fits)?))
        });
        let Some((id, to)) = place else {
            return self.receive_part(peer, header, left);
        };
        // SAFETY: the buffer is writable by the contract of `start_recv`, and has `left` bytes from `to` on.
        let taken = unsafe { self.endpoints[peer].lane.stream(to, left) };
        if taken == 0 {
            return false;
        }
        if header.id == wire::EAGER_MIDDLE {
            self.endpoints[peer].early.left -= taken as u32;
        }
        self.advance_recv(id, taken as u64);
        true
    }

    /// Takes bytes of a bulk message that is truncated, unexpected or noncontiguous, and handles them like a fragment.
    fn receive_part(&mut self, peer: u32, header: Header, left: usize) -> bool {
        let mut part = [MaybeUninit::<u8>::uninit(); PART];
        let at = part.as_mut_ptr().cast::<u8>();
        // SAFETY: `part` has `PART` bytes.
        let taken = unsafe { self.endpoints[peer].lane.stream(at, left.min(PART)) };
        if taken > 0 {
            self.handle(peer, header, at, taken);
        }
        taken > 0
    }

    /// Returns whether a receive accepts requested bytes. A posted receive does not: its `limit` is from an earlier
    /// use.
    pub(crate) fn takes_bytes(&self, peer: u32, id: RequestId) -> bool {
        let phase = self.requests.get(id).phase;
        matches!(phase, MessagePhase::Begun | MessagePhase::FellBack)
            && !self.awaits_early(peer, id)
    }

    pub(crate) fn add_bytes(&mut self, id: RequestId, data: *const u8, len: usize) {
        let request = self.requests.get(id);
        let fits = request.bytes.saturating_sub(request.moved).min(len as u64);
        let began = self.times_copies(Half::Unpack, request, fits).then(clock::now_ns);
        // SAFETY: the buffer is writable by the contract of `start_recv`, and `data` holds `len` bytes.
        unsafe { request.unpack(request.moved, data, fits as usize) };
        self.planner.copy_costs.note(Half::Unpack, began, fits);
        self.advance_recv(id, len as u64);
    }

    fn advance_recv(&mut self, id: RequestId, bytes: u64) {
        let request = self.requests.get_mut(id);
        request.moved += bytes;
        if request.moved >= request.limit {
            request.received = request.moved.min(request.bytes);
            self.finish_recv(id);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::protocols::fragments::eager_fragments;

    #[test]
    fn fragments__go_on_where_the_parts_end() {
        let (c, t) = (Constants::default(), Thresholds::default());
        let last = eager_fragments(&c, &t).at(t.first).unwrap();
        let next = fragments(&c, &t).at(t.first + 1).unwrap();
        assert!((next - last - 2.0 * c.step_ns).abs() < 1.0, "{last} and {next}");
    }
}
