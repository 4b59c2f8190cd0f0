//! Eager multi-fragment: a message that goes without asking in parts that follow each other at once, so that both sides
//! copy at the same time.
//!
//! `EAGER_FIRST` carries the first part and the length of the whole, each `EAGER_MIDDLE` the next one. The first bytes
//! of an announced message go on by `EAGER_MIDDLE` as well.
#![allow(unsafe_code)]

use super::{Record, below};
use crate::buffer::Buffer;
use crate::endpoint::{Early, Endpoint};
use crate::learning::EagerCopy;
use crate::matching::Want;
use crate::request::RequestId;
use crate::selection::candidates::{fixed, stream_byte_ns};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Thresholds};
use crate::tag::{key_source, tag_matches};
use crate::wire::{self, Rts, Timing};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::clock;
use fastpath_base::copy::{copy, copy_with};
use fastpath_transport::{Connection, Header, Lane, Post};

/// What goes eagerly, but not as one.
pub(super) const RECORD: Record = Record {
    name: "eager multi-fragment",
    steps: "EAGER_FIRST, EAGER_MIDDLE",
    most: |case| {
        let t = case.thresholds;
        Ok(t.first.min(below(t.copy_from(case.shared))))
    },
    how: |case| {
        let part = case.thresholds.fragment.max(case.as_one());
        format!("parts of {part} B without asking; {}", case.thresholds.stream())
    },
    cost: |c, t, _| eager_fragments(c, t),
};

/// Several buffers without asking: the receiver copies one out while the sender copies the next one in.
/// A single part costs what `eager` does.
pub fn eager_fragments(c: &Constants, t: &Thresholds) -> Curve {
    let ns_per_byte = stream_byte_ns(c, t.fragment, true);
    let first = t.fragment as f64 * (2.0 * c.transfer_byte_ns - ns_per_byte);
    let cost = fixed(c.post_ns + first, c.line_ns, c.post_ns, ns_per_byte);
    Curve::line(t.fragment + 1, t.first, cost)
}

/// Looks for the next part of a message before a request takes over.
const PART_POLLS: u32 = 10_000;

/// What became of a message that comes in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// It is there.
    Done {
        /// Its tag.
        tag: i32,
        /// Its length in bytes.
        len: u64,
    },
    /// The rest goes to this request.
    Request(RequestId),
}

/// The sender.
impl Endpoint {
    /// Sends a contiguous message of up to [`crate::worker::EARLY_LIMIT`] bytes in parts that follow each other at
    /// once, so that both sides copy at the same time; or does nothing.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn send_fragments(
        &mut self, key: u64, tag: i32, data: *const u8, len: usize, part: usize, copy: EagerCopy,
    ) -> Post {
        let first = part.min(len);
        // In a slot there is no room for the length of the whole (`Header::aux`).
        if first <= SHORT_LIMIT || self.blocked != 0 {
            return Post::NoResource;
        }
        self.lane.prepare_stream(len as u64);
        if !self.lane.has_room(len.div_ceil(part) as u32, part) {
            return Post::NoResource;
        }
        let header =
            Header { aux: (len - 1) as u16, ..Header::new(wire::EAGER_FIRST, tag as u32, key) };
        // SAFETY: the first `first` of the `len` readable bytes at `data`; the transport gives `to` with room for them.
        let mut post =
            self.post_bcopy(header, first, |to| unsafe { copy_with(copy.by, to, data, first) });
        let mut done = first;
        while done < len && post == Post::Done {
            let next = part.min(len - done);
            let header = Header::new(wire::EAGER_MIDDLE, copy.mark(), 0);
            // SAFETY: the next `next` of the `len` readable bytes at `data`; the transport gives `to` with room for
            // them.
            post = self.post_bcopy(header, next, |to| unsafe {
                copy_with(copy.by, to, data.add(done), next)
            });
            done += next;
        }
        post
    }
}

/// Looks for the next part of a message, of up to `left` bytes, for a while.
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

/// The receiver.
impl Worker {
    /// Receives a message that comes in parts by itself, if it is the peer's next arrival, is the wanted
    /// one and fits: straight from the ring into the buffer, without a request. `None`: nothing has
    /// happened. A sender that stops in the middle leaves the rest to a request.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. The caller has made sure that no receive asks for the arrival
    /// ([`Worker::is_unclaimed`]), and that no unexpected message is the wanted one.
    pub unsafe fn recv_parts(
        &mut self, want: Want, to: *mut u8, room: u64, user: usize,
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
        // SAFETY: `to` has room for `total` bytes; the arrival stays until it is taken.
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
            // SAFETY: `moved + len` is at most the message's length, which fits `room`, for which `to` is writable.
            unsafe { copy(to.add(moved as usize), data, len) };
            if let Some((by, began_ns)) = timed {
                let costs = &mut self.copy_costs;
                costs.note_eager_unpack(by, total, len as u64, began_ns);
            }
            lane.take();
            moved += len as u64;
        }
        Some(Parts::Done { tag, len: total })
    }

    /// Hands the rest of a message in parts to a request.
    #[allow(clippy::too_many_arguments)]
    #[cold]
    fn continue_parts(
        &mut self, want: Want, tag: i32, to: *mut u8, room: u64, moved: u64, total: u64,
        user: usize,
    ) -> Option<RequestId> {
        // There is one: `recv_parts` has looked before it took anything.
        let id = self.allocate_recv(Want { tag, ..want }, Buffer::contiguous(to, room)).ok()?;
        let request = self.requests.get_mut(id);
        request.user = user;
        request.source = key_source(want.key) as i32;
        request.received_tag = tag;
        request.moved = moved;
        request.limit = total;
        request.time(Timing::default());
        self.endpoints[want.peer].early = Early::of_request((total - moved) as u32, id);
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

    /// More of the message that the peer announced last.
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
                let costs = &mut self.copy_costs;
                costs.note_eager_unpack(by, total, len as u64, began_ns);
            }
            return;
        }
        // SAFETY: `data` holds `len` bytes.
        if id != Early::NOWHERE && !unsafe { self.matcher.store.extend(id, data, len) } {
            self.violation();
        }
    }

    /// Whether bytes of a receive are still to come by themselves. It must not end before: they would
    /// go to a buffer that is its user's again.
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
