//! Rendezvous put: the sender writes the rest of a message into the receiver's memory, where that is shared and the
//! answer names it. `ATP` says that it is there. The receiver chooses it.
#![allow(unsafe_code)]

use super::{PeerPlace, Protocol, Record};
use crate::request::{RequestId, RequestKind};
use crate::selection::Constants;
use crate::selection::candidates::{Copying, fixed};
use crate::selection::envelope::Curve;
use crate::wire::{self, NOWHERE, Rtr};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_transport::{Header, Remote};

/// What goes into shared memory from memory that is not.
pub(super) const RECORD: Record = Record {
    name: "rendezvous put",
    steps: "RTS, RTR, ATP",
    most: |case| match case.place() {
        PeerPlace::Node if case.shared => {
            case.check_copies()?;
            Err(format!(
                "the receiver's choice, where only its memory is such and {} B or more are \
                 missing: 1 MiB takes {:.1} us",
                case.thresholds.direct,
                case.far_us(Protocol::Put)
            ))
        }
        PeerPlace::Node => Err("the memory is not shared (MPI_Alloc_mem gives such)".to_owned()),
        PeerPlace::Itself | PeerPlace::Outside => Ok(0),
    },
    how: |_| "announced; the sender stores the rest where the receiver wants it".to_owned(),
    cost: |c, _, _| sender_copy(c),
};

/// The sender alone copies, as soon as it has the answer, and says that it has.
fn sender_copy(c: &Constants) -> Curve {
    let sender = 2.0 * c.post_ns + c.step_ns;
    let receiver = 2.0 * c.post_ns + c.step_ns;
    let cost = fixed(sender, 3.0 * c.line_ns, receiver, Copying::of(c, true).byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost)
}

/// The receiver.
impl Worker {
    /// Where the sender may write what does not come by itself, for an answer that asks for it.
    pub(crate) fn offer_room(&self, id: RequestId, peer: u32, missing: u64) -> Remote {
        let request = self.requests.get(id);
        if !request.is_contiguous() || missing < self.thresholds.direct {
            return NOWHERE;
        }
        self.find_shared(id, peer, request.limit).unwrap_or(NOWHERE)
    }

    /// The sender has written the rest of a message where it was told to.
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

/// The sender.
impl Worker {
    /// Writes the rest of a message into the receiver's memory, where that is offered, and says so.
    /// False where nothing of it was done: it goes through buffers.
    pub(crate) fn put_message(&mut self, id: RequestId, rtr: &Rtr) -> bool {
        let request = self.requests.get(id);
        let lane = &mut self.endpoints[request.peer].lane;
        let rest = rtr.limit.saturating_sub(request.moved);
        if !lane.is_shared(&rtr.into)
            || self.thresholds.direct == u64::MAX
            || request.moved < request.early as u64
        {
            return false;
        }
        let Some(addr) = rtr.into.addr.checked_add(request.moved) else {
            return false;
        };
        let mut at = request.moved;
        let put = lane.visit_shared(Remote { addr, ..rtr.into }, rest as usize, |to, part| {
            // SAFETY: the send buffer holds `limit` bytes; the stretch is mapped.
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
