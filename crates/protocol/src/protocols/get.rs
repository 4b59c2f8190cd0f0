//! Rendezvous get: only the receiver copies an announced message from its sender's memory. The receiver uses load and
//! store if the memory is shared, otherwise an adapter or the kernel. `ATS` reports the end.
#![allow(unsafe_code)]

use super::{PeerPlace, Record, below};
use crate::learning::Half;
use crate::request::RequestId;
use crate::selection::Constants;
use crate::selection::candidates::{DirectCopyCost, fixed};
use crate::selection::envelope::Curve;
use crate::wire::{self, Offer, Rts, SHORT_LIMIT};
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header, Remote};

pub(super) const RECORD: Record = Record {
    name: "rendezvous get",
    steps: "RTS, ATS",
    probe: |case| {
        let t = case.thresholds;
        match case.place() {
            PeerPlace::Itself => Ok(u64::MAX),
            PeerPlace::Node => match (case.check_copies(), t.crowded_copy) {
                (Ok(()), _) if case.shared => Ok(below(t.cooperative.max(t.direct))),
                (Ok(()), _) => {
                    Err("the cooperative protocol is used instead: both sides copy".to_owned())
                }
                (Err(why), from) if case.shared || from == u64::MAX => Err(why),
                (Err(why), from) => Err(format!(
                    "{why}; between ranks that share processors, used from {from} B on if a \
                     measurement shows that it is faster"
                )),
            },
            PeerPlace::Outside => match case.peers.registered {
                Ok(()) => Ok(u64::MAX),
                Err(why) => Err(why.to_owned()),
            },
        }
    },
    describe: |case| match case.place() {
        PeerPlace::Itself => "after the RTS, copied once from buffer to buffer".to_owned(),
        PeerPlace::Node => format!(
            "after the RTS, the receiver copies {} from buffer to buffer",
            case.copy_method()
        ),
        PeerPlace::Outside => {
            "after the RTS, the receiver's adapter reads from buffer to buffer".to_owned()
        }
    },
    cost: |c, _, shared| receiver_copy(c, DirectCopyCost::of(c, shared)),
};

fn receiver_copy(c: &Constants, by: DirectCopyCost) -> Curve {
    let receiver = c.post_ns + c.step_ns + 2.0 * by.call_ns;
    let cost = fixed(c.post_ns, c.line_ns, receiver, by.byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost)
}

impl Worker {
    #[inline]
    pub(crate) fn is_read_directly(&self, address: usize, len: u64) -> bool {
        let arena = &self.interfaces.arena;
        len >= self.planner.thresholds.direct
            && !arena.is_empty()
            && arena.find(address, len).is_some()
    }

    pub(crate) fn find_shared(&self, id: RequestId, peer: u32, len: u64) -> Option<Remote> {
        let address = self.requests.get(id).ptr.expose_provenance();
        let lane = &self.endpoints[peer].lane;
        let arena = &self.interfaces.arena;
        match len >= self.planner.thresholds.direct {
            true => lane.share_memory(arena, address, len),
            false => None,
        }
    }

    pub(crate) fn name_memory(&self, id: RequestId, peer: u32) -> Remote {
        let addr = self.requests.get(id).ptr.expose_provenance() as u64;
        let rkey = self.endpoints[peer].lane.memory_key();
        Remote { addr, rkey }
    }

    pub(crate) fn expose_message(&mut self, id: RequestId) -> Option<Remote> {
        let request = self.requests.get(id);
        let endpoint = &mut self.endpoints[request.peer];
        if request.bytes < self.planner.thresholds.fetch
            || !request.is_contiguous()
            || endpoint.declines
        {
            return None;
        }
        // SAFETY: the buffer lives until the request completes, and `withdraw_offer` precedes that.
        unsafe { endpoint.lane.register(request.ptr, request.bytes as usize) }
    }
}

impl Worker {
    /// Copies an offered message: alone, or with the sender if the sender offered a cooperative copy. Returns whether
    /// the message is complete or being copied.
    pub(crate) fn get_message(&mut self, id: RequestId, peer: u32, rts: &Rts, wanted: u64) -> bool {
        let (from, counter) = match rts.offer {
            Offer::Get(from) => (from, None),
            Offer::Cooperative(from, counter) => (from, Some(counter)),
            Offer::Fragments | Offer::Nothing => return false,
        };
        self.requests.get_mut(id).memory = from;
        let lane = &mut self.endpoints[peer].lane;
        let shared = lane.is_shared(&from);
        if shared && self.planner.thresholds.direct == u64::MAX {
            return false;
        }
        let contiguous = self.requests.get(id).is_contiguous();
        if let (true, Some(counter)) = (contiguous, counter) {
            let own = self.find_shared(id, peer, wanted);
            if own.is_some() || self.endpoints[peer].lane.knows_single_copy() {
                let own = own.unwrap_or_else(|| self.name_memory(id, peer));
                self.cooperate_as_receiver(id, counter, own);
                return true;
            }
        }
        let (request, lane) = (self.requests.get(id), &mut self.endpoints[peer].lane);
        let (begins, ends) = match lane.wants_exposure() {
            true => (Point::Read, Point::ReadDone),
            false => (Point::Copy, Point::Copied),
        };
        if shared || contiguous {
            trace::record(begins, peer, 0, wanted);
        }
        let fetched = if shared {
            let mut at = 0;
            lane.visit_shared(from, wanted as usize, |from, part| {
                // SAFETY: the parts have `wanted` bytes in all, for which the buffer has space.
                unsafe { request.unpack(at, from, part) };
                at += part as u64;
            })
            .is_ok()
        } else {
            let is_timed = lane.is_same_host() && self.times_copies(Half::Get, request, wanted);
            let began = is_timed.then(clock::now_ns);
            let (request, lane) = (self.requests.get(id), &mut self.endpoints[peer].lane);
            // SAFETY: the contiguous buffer has space for `wanted` bytes.
            let is_copied =
                contiguous && unsafe { lane.get(request.ptr, wanted as usize, from) }.is_ok();
            if is_copied {
                self.planner.copy_costs.note(Half::Get, began, wanted);
            }
            is_copied
        };
        if shared || contiguous {
            trace::record(ends, 0, 0, 0);
        }
        if fetched {
            self.end_fetch(id);
        }
        fetched
    }

    pub(crate) fn end_fetch(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        let (peer, header) = (request.peer, Header::new(wire::ATS, 0, request.remote as u64));
        (request.moved, request.received) = (request.limit, request.limit);
        match self.endpoints[peer].lane.is_shared(&request.memory) {
            true => self.counters.direct_reads += 1,
            false => self.counters.single_copies += 1,
        }
        self.send_control(peer, header, &[]);
        self.finish_recv(id);
    }
}
