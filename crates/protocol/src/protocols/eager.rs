//! Eager protocol: a message that is sent whole at once. A short message is in its slot, next to the header.
//!
//! `EAGER` carries the message. `EAGER_SYNC` carries a message whose sender waits for the `ACK` of its match.
#![allow(unsafe_code)]

use super::{PeerPlace, Record};
use crate::endpoint::{Endpoint, ImmediateReceive};
use crate::plan::SendPlan;
use crate::recall::RecallMatch;
use crate::request::{Fault, MessagePhase, RequestId};
use crate::selection::Constants;
use crate::selection::candidates::fixed;
use crate::selection::envelope::Curve;
use crate::selection::thresholds::WHOLE_MAX;
use crate::tag::{key_source, tag_matches};
use crate::unexpected::UnexpectedKind;
use crate::wire::{self, SHORT_LIMIT, SYNC_HEADER};
use crate::worker::Worker;
use fastpath_base::copy::{COPY_SMALL_MAX, copy, copy_small, copy_with};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Header, Post};

pub(super) const SHORT: Record = Record {
    name: "eager short",
    steps: "EAGER",
    probe: |_| Ok(SHORT_LIMIT as u64),
    describe: |case| match case.place() {
        PeerPlace::Itself => KEPT.to_owned(),
        PeerPlace::Node => "header and payload in one cache line".to_owned(),
        PeerPlace::Outside => "header and payload in one packet".to_owned(),
    },
    cost: |c, _, _| short(c),
};

pub(super) const EAGER: Record = Record {
    name: "eager",
    steps: "EAGER",
    probe: |case| Ok(case.sizes().whole),
    describe: |case| match case.place() {
        PeerPlace::Itself => KEPT.to_owned(),
        PeerPlace::Node => {
            "sent at once as one piece, through the ring between the two ranks".to_owned()
        }
        PeerPlace::Outside => {
            "sent at once as one piece, which the network may split into packets".to_owned()
        }
    },
    cost: |c, t, _| eager(c, t.first.min(WHOLE_MAX)),
};

const KEPT: &str = "kept in the process until it is received";

/// Returns the cost of a message in a slot: one cache line. Half of a longer message's work is for its data area.
fn short(c: &Constants) -> Curve {
    let cost = fixed(c.post_ns / 2.0, c.line_ns, c.post_ns / 2.0, 0.0);
    Curve::line(0, SHORT_LIMIT as u64, cost)
}

/// Returns the cost of one buffer with one copy in and one out.
pub fn eager(c: &Constants, most: u64) -> Curve {
    let cost = fixed(c.post_ns, c.line_ns, c.post_ns, 2.0 * c.transfer_byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, most, cost)
}

/// Immediate path: neither side has a request.
impl Endpoint {
    /// Sends the message by one copy into its slot, without a request or a call, or returns `NoResource` ("sendi" of
    /// the Open MPI sm latency study). If the result is `Wake`, the caller must wake the peer by [`Endpoint::wake`].
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::wire::SHORT_LIMIT`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    pub unsafe fn send_immediate(
        &mut self, key: u64, tag: i32, data: *const u8, len: usize,
    ) -> Post {
        if self.blocked != 0 {
            return Post::NoResource;
        }
        let header = Header::new(wire::EAGER, tag as u32, key);
        // SAFETY: `data` is readable for `len` bytes, by this function's contract, and at most a slot's.
        unsafe { self.lane.am_short_known(header, data, len) }
    }

    /// Receives the peer's next arrival into the user's buffer if it matches, is in its slot and fits; else returns
    /// `None`. The caller has checked that no earlier receive or message comes first (`Matcher::is_quiet`).
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. If `room` is negative as an `isize`, no message fits, not even an empty one.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub unsafe fn recv_short(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<ImmediateReceive> {
        // SAFETY: `to` is writable by this function's contract, and `copy_short` has just copied the message.
        unsafe {
            let taken = self.copy_short(key, tag, to, room)?;
            self.take_short();
            Some(taken)
        }
    }

    /// Receives the next arrival like [`Endpoint::recv_short`], but only if it has exactly `len` bytes.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    pub unsafe fn recv_short_whole(
        &mut self, key: u64, tag: i32, to: *mut u8, len: usize,
    ) -> Option<ImmediateReceive> {
        // SAFETY: `to` is writable for `len` bytes, by this function's contract, and no other length is copied.
        unsafe {
            let taken = self.copy_short_if(key, tag, to, |found| found == len)?;
            self.take_short();
            Some(taken)
        }
    }

    /// Copies a short message without taking it; [`Endpoint::take_short`] must follow. They are separate, because
    /// together they would use registers that the MPI call would have to save. See [`Endpoint::recv_short`].
    ///
    /// # Safety
    /// See [`Endpoint::recv_short`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn copy_short(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<ImmediateReceive> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract, and no longer message is copied.
        unsafe { self.copy_short_if(key, tag, to, |len| len as isize <= room as isize) }
    }

    /// # Safety
    /// `to` is writable for every length that `fits` accepts.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    unsafe fn copy_short_if(
        &mut self, key: u64, tag: i32, to: *mut u8, fits: impl FnOnce(usize) -> bool,
    ) -> Option<ImmediateReceive> {
        let arrival = self.lane.look_short(wire::EAGER)?;
        let header = arrival.header;
        let (from, len) = (arrival.data(), arrival.len());
        let matches = header.key == key && tag_matches(tag, header.imm as i32);
        if !matches || !fits(len) {
            return None;
        }
        // SAFETY: `to` has space for `len` bytes, and the arrival stays valid until it is taken.
        unsafe { copy_small(to, from, len) };
        Some(ImmediateReceive { tag: header.imm as i32, len })
    }

    /// Takes the message that [`Endpoint::copy_short`] has copied.
    ///
    /// # Safety
    /// [`Endpoint::copy_short`] has just copied a message.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn take_short(&mut self) {
        // SAFETY: `copy_short` has just read this message, by this function's contract.
        unsafe { self.lane.take_short() }
    }

    /// Takes the message without returning credits. Returns whether [`Endpoint::tell_taken`] must follow.
    ///
    /// # Safety
    /// See [`Endpoint::take_short`].
    #[inline(always)] // see `take_short`
    #[must_use]
    pub unsafe fn advance_short(&mut self) -> bool {
        // SAFETY: `copy_short` has just read this message, by this function's contract.
        unsafe { self.lane.advance_short() }
    }

    /// Returns credits to the sender.
    ///
    /// # Safety
    /// [`Endpoint::advance_short`] has just returned true.
    pub unsafe fn tell_taken(&mut self) {
        // SAFETY: `advance_short` has just returned true, by this function's contract.
        unsafe { self.lane.tell_taken() };
    }

    /// Receives the next arrival like [`Endpoint::recv_short`], even if it is too long for a slot but in one buffer.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline]
    pub unsafe fn recv_immediate(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<ImmediateReceive> {
        let arrival = self.lane.look()?;
        let header = arrival.header;
        let (from, len) = (arrival.data(), arrival.len());
        let matches =
            header.id == wire::EAGER && header.key == key && tag_matches(tag, header.imm as i32);
        if !matches || len > room {
            return None;
        }
        // SAFETY: `to` has space for `len` bytes, and the arrival stays valid until it is taken.
        unsafe {
            if len <= fastpath_base::copy::COPY_SMALL_MAX {
                copy_small(to, from, len);
            } else {
                copy(to, from, len);
            }
        }
        self.lane.take();
        Some(ImmediateReceive { tag: header.imm as i32, len })
    }
}

/// Sends a contiguous message of one buffer now, without a request, or returns `NoResource`. Wakes a sleeping peer.
///
/// # Safety
/// `data` is readable for `len` bytes, at most [`crate::wire::EAGER_LIMIT`].
#[inline]
pub(super) unsafe fn start_now(
    endpoint: &mut Endpoint, plan: &SendPlan, (key, tag): (u64, i32), data: *const u8, len: usize,
) -> Post {
    if endpoint.blocked != 0 {
        return Post::NoResource;
    }
    let header = Header::new(wire::EAGER, tag as u32, key);
    let by = plan.arm.copy_loop();
    // SAFETY: `data` is readable for `len` bytes, by this function's contract, and `to` has space for them.
    endpoint.post_bcopy(header, len, |to| unsafe { copy_with(by, to, data, len) })
}

pub(super) fn start(worker: &mut Worker, id: RequestId) -> Post {
    let request = worker.requests.get_mut(id);
    let len = request.bytes as usize;
    let sync = request.synchronous;
    let skip = if sync { SYNC_HEADER } else { 0 };
    let wire_id = if sync { wire::EAGER_SYNC } else { wire::EAGER };
    let header = Header::new(wire_id, request.tag as u32, request.key);
    let handle = request.handle as u64;
    // SAFETY: the buffer is readable by the contract of `start_send`, and `to` has space for all of it.
    let post = worker.endpoints[request.peer].post_bcopy(header, len + skip, |to| unsafe {
        if sync {
            to.cast::<u64>().write_unaligned(handle);
        }
        request.pack(0, to.add(skip), len);
    });
    if post == Post::Done {
        trace::record(Point::Eager, request.peer, request.tag, request.bytes);
        let (peer, bytes) = (request.peer, request.bytes);
        worker.count_eager(peer, bytes);
    }
    let request = worker.requests.get_mut(id);
    if post == Post::Done && sync {
        // The receiver can answer only after the post.
        request.phase = MessagePhase::Announced;
    } else if post == Post::Done {
        worker.complete(id);
    }
    post
}

impl Worker {
    pub(crate) fn handle_eager(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        let tag = header.imm as i32;
        match self.matcher.match_arrival(peer, header.key, tag) {
            Some(id) => self.deliver(id, header.key, tag, data, len),
            None => self.store(peer, header, data, len),
        }
    }

    pub(crate) fn handle_eager_sync(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) {
        // SAFETY: `data` holds `len` bytes.
        let Some(sender) = (unsafe { wire::read::<u64>(data, len) }) else {
            return self.violation();
        };
        // SAFETY: `read` has checked that `len` is at least that of the header.
        let (data, len) = (unsafe { data.add(SYNC_HEADER) }, len - SYNC_HEADER);
        let tag = header.imm as i32;
        match self.match_announced(peer, header.key, tag, Some(sender as u32)) {
            RecallMatch::Receive(id) => {
                self.deliver(id, header.key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender), &[]);
            }
            RecallMatch::Nothing => {
                let arrived = UnexpectedKind::EagerSync(sender as u32);
                self.store_long(peer, header, arrived, data, len);
            }
            RecallMatch::TakenBack => {}
        }
    }

    pub(crate) fn deliver(
        &mut self, id: RequestId, key: u64, tag: i32, data: *const u8, len: usize,
    ) {
        let request = self.requests.get_mut(id);
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        let fits = (len as u64).min(request.bytes);
        if (len as u64) > request.bytes {
            request.fault = Fault::Truncated;
            request.limit = len as u64; // for the text of the error
        }
        request.received = fits;
        // SAFETY: the buffer is writable by the contract of `start_recv`, and `data` holds `len` bytes.
        unsafe {
            if request.is_contiguous() && fits as usize <= COPY_SMALL_MAX {
                copy_small(request.ptr, data, fits as usize);
            } else {
                request.unpack(0, data, fits as usize);
            }
        }
        self.complete(id);
    }
}
