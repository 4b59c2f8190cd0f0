//! Rendezvous, cooperative: both sides copy pieces of an announced message from both ends, until they meet.
//!
//! The announcement names a counter in shared memory by which pieces are claimed, the answer their size. The sender says
//! `DONE` after its last piece, the receiver `FIN` when all is there.
#![allow(unsafe_code)]

use super::pieces::{End, HALF, Pieces};
use super::{Record, copier};
use crate::request::{Kind, Phase, RequestId};
use crate::selection::candidates::{Copying, fixed};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::wire::{self, Offer, Rtr};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Header, Remote};

/// The longest messages.
pub(super) const RECORD: Record = Record {
    name: |shared| match shared {
        true => "direct, both sides",
        false => "single copy, both sides",
    },
    most: |_, _| u64::MAX,
    how: |t, shared| {
        let (who, least, most) = (copier(shared), t.piece_min, t.piece_max);
        format!(
            "announced; {who} from buffer to buffer, pieces of {least} to {most} B taken from both ends"
        )
    },
    cost: |c, t, shared| joint_copy(c, Copying::of(c, shared), t),
};

/// Both sides copy pieces. The receiver begins when it has answered, the sender when it has the answer,
/// and the end of its last piece must be told.
fn joint_copy(c: &Constants, by: Copying, t: &Thresholds) -> Curve {
    let (least, most) = (t.piece_min, t.piece_max);
    let (sender, latency) = (c.post_ns + c.step_ns, 2.0 * c.line_ns);
    let receiver = 2.0 * c.post_ns + c.step_ns + by.first_ns;
    let cost = |more: f64, ns_per_byte| fixed(sender, latency, receiver + more, ns_per_byte);
    let half = HALF.clamp(least, most);
    let piece = |size: u64| by.call_ns + size as f64 * by.byte_ns;
    let each = piece(half) / (2 * half) as f64;
    // One piece; then a second, shorter one; two halves; three and four pieces; two pieces for either side.
    let mut curve = Curve::line(
        SHORT_LIMIT as u64 + 1,
        u64::MAX,
        cost(by.call_ns, by.byte_ns),
    )
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
        let counter = both.then(|| self.endpoint(peer).lane.open_joint());
        match counter.flatten() {
            Some(counter) => Offer::Cooperative(from, counter as u8),
            None => Offer::Get(from),
        }
    }

    /// Copies pieces of a joint copy from the end that is this side's, until the receiver's are met; then says so.
    pub(crate) fn cooperate_as_sender(
        &mut self,
        id: RequestId,
        counter: u8,
        rtr: &Rtr,
        pieces: Pieces,
    ) {
        let request = self.requests.get(id);
        let end = End::of(self.rank, request.peer);
        let lane = &mut self.endpoint(request.peer).lane;
        let (mut claimed, mut failed) = (0, false);
        while claimed < pieces.count
            && !failed
            && lane.claim_joint(counter as u32, true) < pieces.count
        {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let to = Remote {
                addr: rtr.addr.wrapping_add(offset),
                rkey: rtr.rkey,
            };
            trace::record(Point::Copy, request.peer, 0, len);
            // SAFETY: the send buffer holds `bytes`, of which `limit` is no more.
            failed =
                unsafe { lane.put(request.ptr.add(offset as usize), len as usize, to) }.is_err();
            trace::record(Point::Copied, 0, 0, 0);
        }
        if claimed > 0 {
            let (peer, header) = (
                request.peer,
                Header::new(wire::DONE, failed as u32, rtr.request as u64),
            );
            self.send_control(peer, header, &[]);
        }
    }
}

/// The receiver.
impl Worker {
    /// Both sides copy, from both ends.
    pub(crate) fn cooperate_as_receiver(
        &mut self,
        id: RequestId,
        peer: u32,
        sender: u32,
        (start, counter): (Remote, u8),
        wanted: u64,
        own: Remote,
    ) {
        let request = self.requests.get(id);
        request.phase = Phase::Cooperating;
        request.limit = wanted;
        request.remote = sender;
        request.memory = start;
        let (addr, rkey, handle) = (own.addr, own.rkey, request.handle);
        let pieces = Pieces::of(wanted, self.thresholds.piece_min, self.thresholds.piece_max);
        self.send_answer(
            peer,
            sender,
            &Rtr {
                limit: wanted,
                request: handle,
                answer: wire::join(pieces.pages()),
                addr,
                rkey,
            },
        );
        let request = self.requests.get(id);
        let lane = &mut self.endpoint(peer).lane;
        let (mut claimed, end) = (0, End::of(self.rank, peer));
        // The counter lies in shared memory: a peer that turns it back ends nothing but its own message.
        while claimed < pieces.count && lane.claim_joint(counter as u32, false) < pieces.count {
            let (offset, len) = pieces.from(end, claimed);
            claimed += 1;
            let from = Remote {
                addr: start.addr.wrapping_add(offset),
                ..start
            };
            trace::record(Point::Copy, peer, 0, len);
            // SAFETY: the receive buffer holds `wanted` bytes.
            let got = unsafe { lane.get(request.ptr.add(offset as usize), len as usize, from) };
            trace::record(Point::Copied, 0, 0, 0);
            if got.is_err() {
                return self.ask_for_fragments(id);
            }
        }
        // Otherwise the sender has claimed the rest, and says `DONE` when it is there.
        if claimed >= pieces.count {
            let shared = lane.is_shared(&start);
            self.end_fetch(id, peer, sender, wanted, shared);
        }
    }

    /// The sender has done its part of a joint copy.
    pub(crate) fn handle_done(&mut self, peer: u32, header: Header) {
        match self.find_active(header.key, Kind::Recv, peer) {
            Some(id) => match self.requests.get(id).phase {
                Phase::Cooperating => self.end_cooperation(id, header.imm != 0),
                Phase::FellBack => {}
                _ => self.violation(),
            },
            None => self.violation(),
        }
    }

    /// The sender has done its part of a joint copy, or could not.
    pub(crate) fn end_cooperation(&mut self, id: RequestId, failed: bool) {
        let request = self.requests.get(id);
        let (peer, sender, limit) = (request.peer, request.remote, request.limit);
        let start = request.memory;
        let lane = &mut self.endpoint(peer).lane;
        if failed {
            // Rare: what is there already comes again.
            // SAFETY: the receive buffer holds `limit` bytes.
            if unsafe { lane.get(request.ptr, limit as usize, start) }.is_err() {
                return self.ask_for_fragments(id);
            }
        }
        let shared = lane.is_shared(&start);
        self.end_fetch(id, peer, sender, limit, shared);
    }

    /// A direct way has stopped working in the middle of a message: all of it comes in fragments. What
    /// the sender still says of its part of the joint copy is not listened to.
    #[cold]
    fn ask_for_fragments(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        request.phase = Phase::FellBack;
        request.moved = 0;
        let (peer, sender, limit, handle) =
            (request.peer, request.remote, request.limit, request.handle);
        let answer = self.choose_answer(peer);
        self.send_answer(
            peer,
            sender,
            &Rtr {
                limit,
                request: handle,
                answer,
                addr: 0,
                rkey: 0,
            },
        );
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
    fn joint_copy__does_not_jump() {
        let (c, t) = (Constants::default(), Thresholds::default());
        for by in [false, true].map(|shared| Copying::of(&c, shared)) {
            let curve = joint_copy(&c, by, &t);
            let sizes = [
                t.piece_min,
                2 * t.piece_min,
                2 * HALF,
                4 * HALF,
                4 * t.piece_max,
            ];
            check_steps(&curve, &sizes);
        }
    }
}
