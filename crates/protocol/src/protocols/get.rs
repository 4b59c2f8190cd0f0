//! Rendezvous get: the receiver alone copies an announced message from its sender's memory: by load and store where it
//! is shared, by an adapter, or by the kernel. `ATS` says that it has it.
#![allow(unsafe_code)]

use super::{PeerPlace, Record, below};
use crate::learning::Half;
use crate::request::RequestId;
use crate::selection::Constants;
use crate::selection::candidates::{Copying, fixed};
use crate::selection::envelope::Curve;
use crate::wire::{self, Offer, Rts};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::clock;
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Connection, Header, Remote};

/// What one side copies sooner than both.
pub(super) const RECORD: Record = Record {
    name: "rendezvous get",
    steps: "RTS, ATS",
    most: |case| {
        let t = case.thresholds;
        match case.place() {
            PeerPlace::Itself => Ok(u64::MAX),
            PeerPlace::Node => match (case.check_copies(), t.crowded_copy) {
                (Ok(()), _) if case.shared => Ok(below(t.cooperative.max(t.direct))),
                (Ok(()), _) => Err("both sides copy".to_owned()),
                (Err(why), from) if case.shared || from == u64::MAX => Err(why),
                (Err(why), from) => Err(format!(
                    "{why}, or from {from} B where ranks share processors and it takes less"
                )),
            },
            PeerPlace::Outside => match case.peers.registered {
                Ok(()) => Ok(u64::MAX),
                Err(why) => Err(why.to_owned()),
            },
        }
    },
    how: |case| match case.place() {
        PeerPlace::Itself => "announced, then copied once from buffer to buffer".to_owned(),
        PeerPlace::Node => format!("announced; {} from buffer to buffer", case.copier()),
        PeerPlace::Outside => {
            "announced; the receiver's adapter reads from buffer to buffer".to_owned()
        }
    },
    cost: |c, _, shared| receiver_copy(c, Copying::of(c, shared)),
};

/// The receiver alone copies, as soon as it has the RTS.
fn receiver_copy(c: &Constants, by: Copying) -> Curve {
    let receiver = c.post_ns + c.step_ns + 2.0 * by.call_ns;
    let cost = fixed(c.post_ns, c.line_ns, receiver, by.byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost)
}

/// The sender.
impl Worker {
    /// Whether messages of `len` bytes at `address` are read by their receivers directly.
    #[inline]
    pub(crate) fn is_read_directly(&self, address: usize, len: u64) -> bool {
        let arena = &self.interfaces.arena;
        len >= self.thresholds.direct && !arena.is_empty() && arena.find(address, len).is_some()
    }

    /// The memory of a contiguous request where its peer can reach it by load and store.
    pub(crate) fn find_shared(&self, id: RequestId, peer: u32, len: u64) -> Option<Remote> {
        let address = self.requests.get(id).ptr.expose_provenance();
        let lane = &self.endpoints[peer].lane;
        let arena = &self.interfaces.arena;
        match len >= self.thresholds.direct {
            true => lane.share_memory(arena, address, len),
            false => None,
        }
    }

    /// The memory of a contiguous request for copies by the kernel.
    pub(crate) fn name_memory(&self, id: RequestId, peer: u32) -> Remote {
        let addr = self.requests.get(id).ptr.expose_provenance() as u64;
        let rkey = self.endpoints[peer].lane.memory_key();
        Remote { addr, rkey }
    }

    /// Shows a message to its receiver, which fetches it by an adapter.
    pub(crate) fn expose_message(&mut self, id: RequestId) -> Option<Remote> {
        let request = self.requests.get(id);
        let endpoint = &mut self.endpoints[request.peer];
        if request.bytes < self.thresholds.fetch || !request.is_contiguous() || endpoint.declines {
            return None;
        }
        // SAFETY: the buffer is there until the request completes, and `withdraw_offer` comes before that.
        unsafe { endpoint.lane.register(request.ptr, request.bytes as usize) }
    }
}

/// The receiver.
impl Worker {
    /// A message that was offered: by one copy, which this side makes alone, or both at once where the
    /// sender has opened a cooperative copy.
    pub(crate) fn get_message(&mut self, id: RequestId, peer: u32, rts: &Rts, wanted: u64) -> bool {
        let (from, counter) = match rts.offer {
            Offer::Get(from) => (from, None),
            Offer::Cooperative(from, counter) => (from, Some(counter)),
            Offer::Fragments | Offer::Nothing => return false,
        };
        self.requests.get_mut(id).memory = from;
        let lane = &mut self.endpoints[peer].lane;
        let shared = lane.is_shared(&from);
        if shared && self.thresholds.direct == u64::MAX {
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
                // SAFETY: the stretches are `wanted` bytes in all, for which the buffer has room.
                unsafe { request.unpack(at, from, part) };
                at += part as u64;
            })
            .is_ok()
        } else {
            let is_timed = lane.is_same_host() && self.times_copies(Half::Get, request, wanted);
            let began = is_timed.then(clock::now_ns);
            let (request, lane) = (self.requests.get(id), &mut self.endpoints[peer].lane);
            // SAFETY: the contiguous buffer has room for `wanted` bytes.
            let is_copied =
                contiguous && unsafe { lane.get(request.ptr, wanted as usize, from) }.is_ok();
            if is_copied {
                self.copy_costs.note(Half::Get, began, wanted);
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

    /// All of the message has been copied out of its sender's memory.
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
