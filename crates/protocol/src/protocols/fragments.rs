//! Eager fragments: a message that is sent at once in several parts, so that both sides copy at the same time.
//!
//! `EAGER_FIRST` carries the first part and the message's length. Each `EAGER_MIDDLE` carries the next part, or eager
//! bytes after an RTS.
#![allow(unsafe_code)]

use super::{Record, below};
use crate::buffer::Buffer;
use crate::endpoint::{EagerTarget, Endpoint};
use crate::learning::EagerCopy;
use crate::matching::MatchCriteria;
use crate::plan::SendPlan;
use crate::request::RequestId;
use crate::selection::candidates::{fixed, stream_byte_ns};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::tag::{key_source, tag_matches};
use crate::wire::{self, Rts, SHORT_LIMIT, Timing};
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::copy::{copy, copy_with};
use fastpath_transport::{Connection, Header, Lane, Post};

pub(super) const RECORD: Record = Record {
    name: "eager multi-fragment",
    steps: "EAGER_FIRST, EAGER_MIDDLE",
    probe: |case| Ok(case.sizes().eager.min(below(case.thresholds.copy_from(case.shared)))),
    describe: |case| {
        let part = case.sizes().part;
        format!("sent at once, in fragments of {part} B; {}", case.thresholds.stream())
    },
    cost: |c, t, _| eager_fragments(c, t),
};

/// Returns the cost of several eager buffers, copied in and out at the same time. If the message fits one buffer, the
/// cost is that of `eager`.
pub fn eager_fragments(c: &Constants, t: &Thresholds) -> Curve {
    let ns_per_byte = stream_byte_ns(c, t.fragment, true);
    let first = t.fragment as f64 * (2.0 * c.transfer_byte_ns - ns_per_byte);
    let cost = fixed(c.post_ns + first, c.line_ns, c.post_ns, ns_per_byte);
    Curve::line(t.fragment + 1, t.first, cost)
}

const PART_POLLS: u32 = 10_000;

/// Outcome of [`Worker::recv_parts`] when it has received at least the first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// The message is complete.
    Done {
        /// Tag of the message.
        tag: i32,
        /// Length in bytes.
        len: u64,
    },
    /// This request receives the rest.
    Request(RequestId),
}

/// Sends a message of up to [`crate::wire::EARLY_LIMIT`] bytes in parts now, or returns `NoResource` and sends nothing.
///
/// # Safety
/// `data` is readable for `len` bytes.
pub(super) unsafe fn start_now(
    endpoint: &mut Endpoint, plan: &SendPlan, (key, tag): (u64, i32), data: *const u8, len: usize,
) -> Post {
    let (part, copy) = (plan.part as usize, plan.copy());
    let first = part.min(len);
    // A first part that fits a slot could not carry the message's length, because slots have no `Header::aux`.
    if first <= SHORT_LIMIT || endpoint.blocked != 0 {
        return Post::NoResource;
    }
    endpoint.lane.prepare_stream(len as u64);
    if !endpoint.lane.has_room(len.div_ceil(part) as u32, part) {
        return Post::NoResource;
    }
    let header =
        Header { aux: (len - 1) as u16, ..Header::new(wire::EAGER_FIRST, tag as u32, key) };
    // SAFETY: `data` is readable for `first <= len` bytes, and the transport's `to` has space for them.
    let mut post =
        endpoint.post_bcopy(header, first, |to| unsafe { copy_with(copy.by, to, data, first) });
    let mut done = first;
    while done < len && post == Post::Done {
        let next = part.min(len - done);
        let header = Header::new(wire::EAGER_MIDDLE, copy.mark(), 0);
        // SAFETY: `data` is readable for `done + next <= len` bytes, and the transport's `to` has space for `next`.
        post = endpoint
            .post_bcopy(header, next, |to| unsafe { copy_with(copy.by, to, data.add(done), next) });
        done += next;
    }
    post
}

#[inline]
fn await_part(lane: &mut Lane, left: u64) -> Option<(*const u8, usize, u32)> {
    for _ in 0..PART_POLLS {
        if let Some(part) = lane.look() {
            let fits = (1..=left).contains(&(part.len() as u64));
            return (part.header.id == wire::EAGER_MIDDLE && fits)
                .then(|| (part.data(), part.len(), part.header.imm));
        }
    }
    None
}

impl Worker {
    /// Receives a message in parts from the ring into the buffer, without a request, if it is the peer's next arrival,
    /// matches and fits. `None` if nothing was received. If the next part has not arrived, a request receives the rest.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. The caller has checked that no posted receive matches the arrival
    /// ([`Worker::is_unclaimed`]), and that no unexpected message satisfies `want`.
    pub unsafe fn recv_parts(
        &mut self, want: MatchCriteria, to: *mut u8, room: u64, user: usize,
    ) -> Option<Parts> {
        let arrival = self.endpoints[want.peer].lane.look()?;
        let (header, data, len) = (arrival.header, arrival.data(), arrival.len());
        let (tag, total) = (header.imm as i32, u64::from(header.aux) + 1);
        let fits = total <= room && (1..=total).contains(&(len as u64));
        if header.id != wire::EAGER_FIRST
            || header.key != want.key
            || !tag_matches(want.tag, tag)
            || !fits
            || !self.requests.has_room()
        {
            return None;
        }
        let lane = &mut self.endpoints[want.peer].lane;
        // SAFETY: `to` has space for `total` bytes, and the arrival stays valid until it is taken.
        unsafe { copy(to, data, len) };
        lane.take();
        let mut moved = len as u64;
        while moved < total {
            let Some((data, len, mark)) = await_part(lane, total - moved) else {
                return self
                    .continue_parts(want, tag, to, room, moved, total, user)
                    .map(Parts::Request);
            };
            let timed = EagerCopy::of_mark(mark).map(|by| (by, clock::now_ns()));
            // SAFETY: `moved + len` is at most `total`, which is at most `room`, for which `to` is writable.
            unsafe { copy(to.add(moved as usize), data, len) };
            if let Some((by, began_ns)) = timed {
                let costs = &mut self.planner.copy_costs;
                costs.note_eager_unpack(by, total, len as u64, began_ns);
            }
            lane.take();
            moved += len as u64;
        }
        Some(Parts::Done { tag, len: total })
    }

    #[allow(clippy::too_many_arguments)]
    #[cold]
    fn continue_parts(
        &mut self, want: MatchCriteria, tag: i32, to: *mut u8, room: u64, moved: u64, total: u64,
        user: usize,
    ) -> Option<RequestId> {
        // The allocation cannot fail: `recv_parts` checked for a free request before it took any message.
        let id =
            self.allocate_recv(MatchCriteria { tag, ..want }, Buffer::contiguous(to, room)).ok()?;
        let request = self.requests.get_mut(id);
        request.user = user;
        request.source = key_source(want.key) as i32;
        request.received_tag = tag;
        request.moved = moved;
        request.limit = total;
        request.time(Timing::default());
        self.endpoints[want.peer].early = EagerTarget::of_request((total - moved) as u32, id);
        Some(id)
    }

    pub(crate) fn handle_eager_first(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) {
        if len == 0 {
            return self.violation();
        }
        let rts = Rts::of_parts(header.aux);
        self.announce(peer, header, rts, Timing::default(), data, len);
    }

    pub(crate) fn handle_eager_middle(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) {
        let early = &mut self.endpoints[peer].early;
        if len as u64 > early.left as u64 || len == 0 {
            return self.violation();
        }
        early.left -= len as u32;
        let (stored, id) = (early.stored, early.id);
        if !stored {
            let total = self.requests.get(id).limit;
            let timed = EagerCopy::of_mark(header.imm).map(|by| (by, clock::now_ns()));
            self.add_bytes(id, data, len);
            if let Some((by, began_ns)) = timed {
                let costs = &mut self.planner.copy_costs;
                costs.note_eager_unpack(by, total, len as u64, began_ns);
            }
            return;
        }
        // SAFETY: `data` holds `len` bytes.
        if id != EagerTarget::NOWHERE && !unsafe { self.matcher.store.extend(id, data, len) } {
            self.violation();
        }
    }

    /// Returns whether eager bytes for this receive's buffer are outstanding. The receive must not end before they
    /// arrive.
    pub(crate) fn awaits_early(&self, peer: u32, id: RequestId) -> bool {
        let early = &self.endpoints[peer].early;
        early.left > 0 && !early.stored && early.id == id
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::protocols::eager::eager;

    #[test]
    fn parts__of_one_cost_what_a_buffer_does() {
        let (c, t) = (Constants::default(), Thresholds::default());
        let (fragments, eager) = (eager_fragments(&c, &t), eager(&c, 1 << 20));
        let (one, two) = (eager.at(t.fragment).unwrap(), fragments.at(t.fragment + 1).unwrap());
        assert!((two / one - 1.0).abs() < 0.01, "{one} and {two}");
    }
}
