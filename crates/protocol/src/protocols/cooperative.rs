//! Cooperative protocol: both sides copy pieces of an announced message, from opposite ends until they meet.
//!
//! The RTS names a counter in shared memory that counts claimed pieces. The RTR states the size of the pieces. The
//! sender sends `DONE` after its last piece; the receiver sends `ATS` when the message is complete.
#![allow(unsafe_code)]

use super::pieces::{CopyStart, HALF, Pieces};
use super::{PeerPlace, Record};
use crate::request::{MessagePhase, RequestId, RequestKind};
use crate::selection::candidates::{DirectCopyCost, fixed};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::wire::{self, NOWHERE, Offer, Rtr, SHORT_LIMIT};
use crate::worker::Worker;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header, Remote};

pub(super) const RECORD: Record = Record {
    name: "cooperative",
    steps: "RTS, RTR, DONE, ATS",
    probe: |case| match case.place() {
        PeerPlace::Node => case.check_copies().map(|()| u64::MAX),
        PeerPlace::Itself | PeerPlace::Outside => Ok(0),
    },
    describe: |case| {
        let t = case.thresholds;
        let (how, least, most) = (case.copy_method(), t.piece_min, t.piece_max);
        format!(
            "after the RTS, sender and receiver both copy {how} from buffer to buffer, in pieces \
             of {least} to {most} B, and start at opposite ends"
        )
    },
    cost: |c, t, shared| cooperative_copy(c, DirectCopyCost::of(c, shared), t),
};

/// Returns the cost if both sides copy pieces. The receiver begins after it has sent the RTR, the sender when it has
/// received the RTR. The sender reports the end of its last piece by a message.
fn cooperative_copy(c: &Constants, by: DirectCopyCost, t: &Thresholds) -> Curve {
    let (least, most) = (t.piece_min, t.piece_max);
    let (sender, latency) = (c.post_ns + c.step_ns, 2.0 * c.line_ns);
    let receiver = 2.0 * c.post_ns + c.step_ns + by.call_ns;
    let cost = |more: f64, ns_per_byte| fixed(sender, latency, receiver + more, ns_per_byte);
    let half = HALF.clamp(least, most);
    let piece = |size: u64| by.call_ns + size as f64 * by.byte_ns;
    let each = piece(half) / (2 * half) as f64;
    // Ranges of the curve, by the pieces of a message: one, two with a shorter second one, two halves, three or four.
    // Longer messages have two pieces for each side, then more pieces of the largest size.
    let mut curve = Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost(by.call_ns, by.byte_ns))
        .then(least + 1, cost(piece(least), 0.0));
    if half > least {
        curve = curve.then(2 * least + 1, cost(by.call_ns, by.byte_ns / 2.0));
    }
    curve = curve
        .then(2 * half + 1, cost(0.0, each))
        .then(4 * half + 1, cost(2.0 * by.call_ns, by.byte_ns / 2.0));
    let calls = by.call_ns / (2.0 * most as f64);
    if most > half {
        curve = curve.then(4 * most + 1, cost(0.0, calls + by.byte_ns / 2.0));
    }
    curve
}

impl Worker {
    pub(crate) fn offer_copy(&mut self, peer: u32, from: Remote, both: bool) -> Offer {
        let counter = both.then(|| self.endpoints[peer].lane.open_cooperative());
        match counter.flatten() {
            Some(counter) => Offer::Cooperative(from, counter as u8),
            None => Offer::Get(from),
        }
    }

    pub(crate) fn cooperate_as_sender(
        &mut self, id: RequestId, counter: u8, rtr: &Rtr, pieces: Pieces,
    ) {
        let (claimed, failed) = self.copy_pieces(id, counter, pieces, rtr.into);
        if claimed > 0 {
            let header = Header::new(wire::DONE, failed as u32, rtr.request as u64);
            self.send_control(self.requests.get(id).peer, header, &[]);
        }
    }

    /// Copies pieces from this side's end until all are claimed. Returns this side's pieces, and whether a copy failed.
    fn copy_pieces(
        &mut self, id: RequestId, counter: u8, pieces: Pieces, other: Remote,
    ) -> (u32, bool) {
        let request = self.requests.get(id);
        let (end, sends) =
            (CopyStart::of(self.rank, request.peer), request.kind == RequestKind::Send);
        let lane = &mut self.endpoints[request.peer].lane;
        let (mut claimed, mut failed) = (0, false);
        // The counter is in shared memory: a peer that resets it affects only its own message.
        while claimed < pieces.count
            && !failed
            && lane.claim_cooperative(counter as u32, sends) < pieces.count
        {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let addr = other.addr.wrapping_add(offset);
            let there = Remote { addr, ..other };
            trace::record(Point::Copy, request.peer, 0, len);
            // SAFETY: the buffer holds the bytes of all pieces. The receiver cut the pieces for its own buffer. The
            // sender checked the limit in the answer against its own buffer.
            failed = unsafe {
                let here = request.ptr.add(offset as usize);
                match sends {
                    true => lane.put(here, len as usize, there).is_err(),
                    false => lane.get(here, len as usize, there).is_err(),
                }
            };
            trace::record(Point::Copied, 0, 0, 0);
        }
        (claimed, failed)
    }
}

impl Worker {
    pub(crate) fn cooperate_as_receiver(&mut self, id: RequestId, counter: u8, own: Remote) {
        let request = self.requests.get_mut(id);
        request.phase = MessagePhase::Cooperating;
        let (least, most) = (self.planner.thresholds.piece_min, self.planner.thresholds.piece_max);
        let pieces = Pieces::of(request.limit, least, most);
        self.send_answer(id, wire::join(pieces.pages()), own);
        match self.copy_pieces(id, counter, pieces, self.requests.get(id).memory) {
            (_, true) => self.ask_for_fragments(id),
            (claimed, false) if claimed >= pieces.count => self.end_fetch(id),
            _ => {} // the sender has claimed all other pieces and will send `DONE`
        }
    }

    pub(crate) fn handle_done(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, RequestKind::Recv, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        match request.phase {
            MessagePhase::Cooperating => {}
            MessagePhase::FellBack => return,
            _ => return self.violation(),
        }
        let lane = &mut self.endpoints[peer].lane;
        let len = request.limit as usize;
        // After a failure, copy the sender's part again. SAFETY: the receive buffer holds `limit` bytes.
        match header.imm != 0 && unsafe { lane.get(request.ptr, len, request.memory) }.is_err() {
            true => self.ask_for_fragments(id),
            false => self.end_fetch(id),
        }
    }

    /// Requests the whole message in fragments after a copy failed. The sender's later `DONE` is ignored.
    #[cold]
    fn ask_for_fragments(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        (request.phase, request.moved) = (MessagePhase::FellBack, 0);
        let answer = self.choose_answer(self.requests.get(id).peer);
        self.send_answer(id, answer, NOWHERE);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn check_steps(curve: &Curve, sizes: &[u64]) {
        for &size in sizes {
            let (before, after) = (curve.at(size).unwrap(), curve.at(size + 1).unwrap());
            let step = after / before;
            assert!((0.99..1.01).contains(&step), "{size}: {before} and {after}");
        }
    }

    #[test]
    fn cooperative_copy__does_not_jump() {
        let (c, t) = (Constants::default(), Thresholds::default());
        for by in [false, true].map(|shared| DirectCopyCost::of(&c, shared)) {
            let curve = cooperative_copy(&c, by, &t);
            let sizes = [t.piece_min, 2 * t.piece_min, 2 * HALF, 4 * HALF, 4 * t.piece_max];
            check_steps(&curve, &sizes);
        }
    }
}
