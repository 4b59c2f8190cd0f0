//! Cooperative: both sides copy pieces of an announced message from both ends, until they meet.
//!
//! The RTS names a counter in shared memory by which pieces are claimed, the answer their size. The sender
//! says `DONE` after its last piece, the receiver `ATS` when all is there.
#![allow(unsafe_code)]

use super::pieces::{CopyStart, HALF, Pieces};
use super::{PeerPlace, Record};
use crate::request::{Phase, RequestId, RequestKind};
use crate::selection::candidates::{Copying, fixed};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::wire::{self, NOWHERE, Offer, Rtr};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header, Remote};

/// The longest messages.
pub(super) const RECORD: Record = Record {
    name: "cooperative",
    steps: "RTS, RTR, DONE, ATS",
    most: |case| match case.place() {
        PeerPlace::Node => case.check_copies().map(|()| u64::MAX),
        PeerPlace::Itself | PeerPlace::Outside => Ok(0),
    },
    how: |case| {
        let t = case.thresholds;
        let (who, least, most) = (case.copier(), t.piece_min, t.piece_max);
        format!(
            "announced; {who} from buffer to buffer, pieces of {least} to {most} B taken from \
             both ends"
        )
    },
    cost: |c, t, shared| cooperative_copy(c, Copying::of(c, shared), t),
};

/// Both sides copy pieces. The receiver begins when it has answered, the sender when it has the answer,
/// and the end of its last piece must be told.
fn cooperative_copy(c: &Constants, by: Copying, t: &Thresholds) -> Curve {
    let (least, most) = (t.piece_min, t.piece_max);
    let (sender, latency) = (c.post_ns + c.step_ns, 2.0 * c.line_ns);
    let receiver = 2.0 * c.post_ns + c.step_ns + by.call_ns;
    let cost = |more: f64, ns_per_byte| fixed(sender, latency, receiver + more, ns_per_byte);
    let half = HALF.clamp(least, most);
    let piece = |size: u64| by.call_ns + size as f64 * by.byte_ns;
    let each = piece(half) / (2 * half) as f64;
    // One piece; then a second, shorter one; two halves; three and four pieces; two pieces for either side.
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

/// The sender.
impl Worker {
    pub(crate) fn offer_copy(&mut self, peer: u32, from: Remote, both: bool) -> Offer {
        let counter = both.then(|| self.endpoints[peer].lane.open_cooperative());
        match counter.flatten() {
            Some(counter) => Offer::Cooperative(from, counter as u8),
            None => Offer::Get(from),
        }
    }

    /// The sender's part; says when it is done.
    pub(crate) fn cooperate_as_sender(
        &mut self, id: RequestId, counter: u8, rtr: &Rtr, pieces: Pieces,
    ) {
        let (claimed, failed) = self.copy_pieces(id, counter, pieces, rtr.into);
        if claimed > 0 {
            let header = Header::new(wire::DONE, failed as u32, rtr.request as u64);
            self.send_control(self.requests.get(id).peer, header, &[]);
        }
    }

    /// Claims pieces and copies them from the end that is this side's, until all are claimed. Says how many were its
    /// own, and whether one of them could not be copied.
    fn copy_pieces(
        &mut self, id: RequestId, counter: u8, pieces: Pieces, other: Remote,
    ) -> (u32, bool) {
        let request = self.requests.get(id);
        let (end, sends) =
            (CopyStart::of(self.rank, request.peer), request.kind == RequestKind::Send);
        let lane = &mut self.endpoints[request.peer].lane;
        let (mut claimed, mut failed) = (0, false);
        // The counter lies in shared memory: a peer that turns it back ends nothing but its own message.
        while claimed < pieces.count
            && !failed
            && lane.claim_cooperative(counter as u32, sends) < pieces.count
        {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let addr = other.addr.wrapping_add(offset);
            let there = Remote { addr, ..other };
            trace::record(Point::Copy, request.peer, 0, len);
            // SAFETY: the buffer holds the bytes of all pieces: the receiver has made them for its own, and the sender
            // has seen that the limit in the answer is no more than it sends.
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

/// The receiver.
impl Worker {
    /// Asks the sender to take part with this side's memory, and copies.
    pub(crate) fn cooperate_as_receiver(&mut self, id: RequestId, counter: u8, own: Remote) {
        let request = self.requests.get_mut(id);
        request.phase = Phase::Cooperating;
        let (least, most) = (self.thresholds.piece_min, self.thresholds.piece_max);
        let pieces = Pieces::of(request.limit, least, most);
        self.send_answer(id, wire::join(pieces.pages()), own);
        match self.copy_pieces(id, counter, pieces, self.requests.get(id).memory) {
            (_, true) => self.ask_for_fragments(id),
            (claimed, false) if claimed >= pieces.count => self.end_fetch(id),
            _ => {} // the sender has claimed the rest, and says `DONE` when it is there
        }
    }

    /// The sender has done its part, or could not.
    pub(crate) fn handle_done(&mut self, peer: u32, header: Header) {
        let Some(id) = self.find_active(header.key, RequestKind::Recv, peer) else {
            return self.violation();
        };
        let request = self.requests.get(id);
        match request.phase {
            Phase::Cooperating => {}
            Phase::FellBack => return,
            _ => return self.violation(),
        }
        let lane = &mut self.endpoints[peer].lane;
        let len = request.limit as usize;
        // Rare: what is there already comes again.
        // SAFETY: the receive buffer holds `limit` bytes.
        match header.imm != 0 && unsafe { lane.get(request.ptr, len, request.memory) }.is_err() {
            true => self.ask_for_fragments(id),
            false => self.end_fetch(id),
        }
    }

    /// The copy has stopped working in the middle of a message: all of it comes in fragments. What the sender still
    /// says of its part is not listened to.
    #[cold]
    fn ask_for_fragments(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        (request.phase, request.moved) = (Phase::FellBack, 0);
        let answer = self.choose_answer(self.requests.get(id).peer);
        self.send_answer(id, answer, NOWHERE);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// A curve does not jump where its pieces meet.
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
        for by in [false, true].map(|shared| Copying::of(&c, shared)) {
            let curve = cooperative_copy(&c, by, &t);
            let sizes = [t.piece_min, 2 * t.piece_min, 2 * HALF, 4 * HALF, 4 * t.piece_max];
            check_steps(&curve, &sizes);
        }
    }
}
