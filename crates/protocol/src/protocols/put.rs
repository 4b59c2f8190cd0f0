//! Rendezvous put: the sender writes the rest of a message into shared memory of the receiver that the RTR names. `ATP`
//! reports the end. The receiver chooses this protocol.
#![allow(unsafe_code)]

use super::{PeerPlace, Protocol, Record};
use crate::request::{RequestId, RequestKind};
use crate::selection::Constants;
use crate::selection::candidates::{DirectCopyCost, fixed};
use crate::selection::envelope::Curve;
use crate::wire::{self, NOWHERE, Rtr, SHORT_LIMIT};
use crate::worker::Worker;
use fastpath_transport::{Header, Remote};

pub(super) const RECORD: Record = Record {
    name: "rendezvous put",
    steps: "RTS, RTR, ATP",
    probe: |case| match case.place() {
        PeerPlace::Node if case.shared => {
            case.check_copies()?;
            Err(format!(
                "used only if three conditions hold: the receiver's memory is shared, the sender's \
                 memory is not shared, and at least {} B of the message remain to be sent after \
                 the RTS. By this protocol, a message of 1 MiB takes {:.1} us",
                case.thresholds.direct,
                case.far_us(Protocol::Put)
            ))
        }
        PeerPlace::Node => Err("the memory is not shared (use MPI_Alloc_mem)".to_owned()),
        PeerPlace::Itself | PeerPlace::Outside => Ok(0),
    },
    describe: |_| {
        "after RTS and RTR, the sender stores the rest into the receiver's buffer".to_owned()
    },
    cost: |c, _, _| sender_copy(c),
};

/// Returns the cost if the sender copies as soon as it has the RTR, and then reports the end.
fn sender_copy(c: &Constants) -> Curve {
    let sender = 2.0 * c.post_ns + c.step_ns;
    let receiver = 2.0 * c.post_ns + c.step_ns;
    let cost = fixed(sender, 3.0 * c.line_ns, receiver, DirectCopyCost::of(c, true).byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost)
}

impl Worker {
    pub(crate) fn offer_room(&self, id: RequestId, peer: u32, missing: u64) -> Remote {
        let request = self.requests.get(id);
        if !request.is_contiguous() || missing < self.planner.thresholds.direct {
            return NOWHERE;
        }
        self.find_shared(id, peer, request.limit).unwrap_or(NOWHERE)
    }

    pub(crate) fn handle_atp(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, RequestKind::Recv, peer) else {
            return self.violation();
        };
        if !self.takes_bytes(peer, id) {
            return self.violation();
        }
        let request = self.requests.get_mut(id);
        request.moved = request.limit;
        request.received = request.limit.min(request.bytes);
        self.finish_recv(id);
    }
}

impl Worker {
    /// Writes the rest of a message into the receiver's memory, if the RTR offers that memory, and reports the end.
    /// Otherwise returns false and writes nothing; the message is then sent through buffers.
    pub(crate) fn put_message(&mut self, id: RequestId, rtr: &Rtr) -> bool {
        let request = self.requests.get(id);
        let lane = &mut self.endpoints[request.peer].lane;
        let rest = rtr.limit.saturating_sub(request.moved);
        if !lane.is_shared(&rtr.into)
            || self.planner.thresholds.direct == u64::MAX
            || request.moved < request.early as u64
        {
            return false;
        }
        let Some(addr) = rtr.into.addr.checked_add(request.moved) else {
            return false;
        };
        let mut at = request.moved;
        let put = lane.visit_shared(Remote { addr, ..rtr.into }, rest as usize, |to, part| {
            // SAFETY: the send buffer holds `limit` bytes, and the range at `to` is mapped.
            unsafe { request.pack(at, to, part) };
            at += part as u64;
        });
        if put.is_err() {
            return false;
        }
        self.counters.direct_writes += 1;
        let peer = request.peer;
        self.send_control(peer, Header::new(wire::ATP, 0, rtr.request as u64), &[]);
        true
    }
}
