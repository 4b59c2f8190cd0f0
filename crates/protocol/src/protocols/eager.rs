//! Eager: a message that goes whole, without asking. A short one lies in its slot beside its header.
//!
//! `EAGER` carries the message, `EAGER_SYNC` one whose sender waits to hear that it was matched: `ACK`.
#![allow(unsafe_code)]

use super::{PeerPlace, Record};
use crate::endpoint::{Endpoint, Taken};
use crate::recall::Matched;
use crate::request::{Fault, Phase, RequestId};
use crate::selection::Constants;
use crate::selection::candidates::fixed;
use crate::selection::decide::WHOLE_MAX;
use crate::selection::envelope::Curve;
use crate::tag::{key_source, tag_matches};
use crate::unexpected::Arrived;
use crate::wire::{self, SYNC_HEADER};
use crate::worker::{SHORT_LIMIT, Worker};
use fastpath_base::copy::{COPY_SMALL_MAX, CopyLoop, copy, copy_small, copy_with};
use fastpath_base::trace::{self, Point};
use fastpath_transport::{Header, Post};

/// A message that fits the slot.
pub(super) const SHORT: Record = Record {
    name: "eager short",
    steps: "EAGER",
    most: |_| Ok(SHORT_LIMIT as u64),
    how: |case| match case.place() {
        PeerPlace::Itself => KEPT.to_owned(),
        PeerPlace::Node => "header and payload in one cache line".to_owned(),
        PeerPlace::Outside => "header and payload in one packet".to_owned(),
    },
    cost: |c, _, _| short(c),
};

/// One that fits a buffer.
pub(super) const EAGER: Record = Record {
    name: "eager",
    steps: "EAGER",
    most: |case| Ok(case.thresholds.eager.max(case.as_one())),
    how: |case| match case.place() {
        PeerPlace::Itself => KEPT.to_owned(),
        PeerPlace::Node => "whole, through the pair's ring, without asking".to_owned(),
        PeerPlace::Outside => "whole, in packets of the network, without asking".to_owned(),
    },
    cost: |c, t, _| eager(c, t.first.min(WHOLE_MAX)),
};

const KEPT: &str = "kept in the process until it is received";

/// A message that fits the slot: one line. Without the data area, half of a message's work.
fn short(c: &Constants) -> Curve {
    let cost = fixed(c.post_ns / 2.0, c.line_ns, c.post_ns / 2.0, 0.0);
    Curve::line(0, SHORT_LIMIT as u64, cost)
}

/// One buffer: copied in, then copied out.
pub fn eager(c: &Constants, most: u64) -> Curve {
    let cost = fixed(c.post_ns, c.line_ns, c.post_ns, 2.0 * c.transfer_byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, most, cost)
}

/// Without a request, on either side.
impl Endpoint {
    /// Send-immediate: the message leaves now, or nothing has happened. No request, no copy besides
    /// the one into the slot ("sendi" of the Open MPI sm latency study), and no call: `Wake` leaves
    /// the waking of a sleeping peer to [`Endpoint::wake`].
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::SHORT_LIMIT`].
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

    /// As [`Endpoint::send_immediate`], for any message that fits one buffer; wakes the peer itself.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::EAGER_LIMIT`].
    #[inline]
    pub unsafe fn send_buffered(
        &mut self, key: u64, tag: i32, data: *const u8, len: usize, by: CopyLoop,
    ) -> Post {
        if self.blocked != 0 {
            return Post::NoResource;
        }
        let header = Header::new(wire::EAGER, tag as u32, key);
        // SAFETY: `data` is readable for `len` bytes, by this function's contract; the transport gives `to` with room
        // for them.
        self.post_bcopy(header, len, |to| unsafe { copy_with(by, to, data, len) })
    }

    /// Receive-immediate: if the peer's next arrival is the wanted message, lies in its slot and fits,
    /// it is copied straight into the user's buffer; otherwise nothing has happened. The caller has
    /// made sure that no earlier receive or message stands before it (`Matcher::is_quiet`).
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. A room that is negative as an `isize` has room for nothing, not even for an
    /// empty message.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub unsafe fn recv_short(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<Taken> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract; what is taken has just been copied.
        unsafe {
            let taken = self.copy_short(key, tag, to, room)?;
            self.take_short();
            Some(taken)
        }
    }

    /// As [`Endpoint::recv_short`], for a message that must be as long as its place: another one is left where it is.
    ///
    /// # Safety
    /// As there.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Allreduce
    pub unsafe fn recv_short_whole(
        &mut self, key: u64, tag: i32, to: *mut u8, len: usize,
    ) -> Option<Taken> {
        // SAFETY: `to` is writable for `len` bytes, by this function's contract, and no other length is copied; what is
        // taken has just been copied.
        unsafe {
            let taken = self.copy_short_if(key, tag, to, |found| found == len)?;
            self.take_short();
            Some(taken)
        }
    }

    /// As [`Endpoint::recv_short`], but for the end: [`Endpoint::take_short`] must follow. What it may call then finds
    /// nothing in registers that would have to be saved for it.
    ///
    /// # Safety
    /// As there.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn copy_short(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<Taken> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract, and nothing longer is copied.
        unsafe { self.copy_short_if(key, tag, to, |len| len as isize <= room as isize) }
    }

    /// # Safety
    /// `to` is writable for so many bytes as `fits` allows.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    unsafe fn copy_short_if(
        &mut self, key: u64, tag: i32, to: *mut u8, fits: impl FnOnce(usize) -> bool,
    ) -> Option<Taken> {
        let arrival = self.lane.look_short(wire::EAGER)?;
        let header = arrival.header;
        let (from, len) = (arrival.data(), arrival.len());
        let matches = header.key == key && tag_matches(tag, header.imm as i32);
        if !matches || !fits(len) {
            return None;
        }
        // SAFETY: `to` has room for `len` bytes; the arrival stays valid until it is taken.
        unsafe { copy_small(to, from, len) };
        Some(Taken { tag: header.imm as i32, len })
    }

    /// Takes what [`Endpoint::copy_short`] has copied.
    ///
    /// # Safety
    /// It has just copied something.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn take_short(&mut self) {
        // SAFETY: `copy_short` has just shown the message that is taken, by this function's contract.
        unsafe { self.lane.take_short() }
    }

    /// The same, but for telling the sender; says whether [`Endpoint::tell_taken`] must follow.
    ///
    /// # Safety
    /// As [`Endpoint::take_short`].
    #[inline(always)] // as `take_short`
    #[must_use]
    pub unsafe fn advance_short(&mut self) -> bool {
        // SAFETY: `copy_short` has just shown the message, by this function's contract.
        unsafe { self.lane.advance_short() }
    }

    /// Tells the sender how far its messages have been taken.
    ///
    /// # Safety
    /// [`Endpoint::advance_short`] has just asked for it.
    pub unsafe fn tell_taken(&mut self) {
        // SAFETY: `advance_short` has just asked for it, by this function's contract.
        unsafe { self.lane.tell_taken() };
    }

    /// As [`Endpoint::recv_short`], for a message of any size that lies in one buffer.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline]
    pub unsafe fn recv_immediate(
        &mut self, key: u64, tag: i32, to: *mut u8, room: usize,
    ) -> Option<Taken> {
        let arrival = self.lane.look()?;
        let header = arrival.header;
        let (from, len) = (arrival.data(), arrival.len());
        let matches =
            header.id == wire::EAGER && header.key == key && tag_matches(tag, header.imm as i32);
        if !matches || len > room {
            return None;
        }
        // SAFETY: `to` has room for `len` bytes; the arrival stays valid until it is taken.
        unsafe {
            if len <= fastpath_base::copy::COPY_SMALL_MAX {
                copy_small(to, from, len);
            } else {
                copy(to, from, len);
            }
        }
        self.lane.take();
        Some(Taken { tag: header.imm as i32, len })
    }
}

/// The sender.
impl Worker {
    pub(crate) fn post_eager(&mut self, id: RequestId) -> Post {
        let request = self.requests.get_mut(id);
        let len = request.bytes as usize;
        let sync = request.synchronous;
        let skip = if sync { SYNC_HEADER } else { 0 };
        let wire_id = if sync { wire::EAGER_SYNC } else { wire::EAGER };
        let header = Header::new(wire_id, request.tag as u32, request.key);
        let handle = request.handle as u64;
        // SAFETY: the buffer is the caller's promise to `start_send`; `to` has room for all of it.
        let post = self.endpoints[request.peer].post_bcopy(header, len + skip, |to| unsafe {
            if sync {
                to.cast::<u64>().write_unaligned(handle);
            }
            request.pack(0, to.add(skip), len);
        });
        if post == Post::Done {
            trace::record(Point::Eager, request.peer, request.tag, request.bytes);
            let (peer, bytes) = (request.peer, request.bytes);
            self.count_eager(peer, bytes);
        }
        let request = self.requests.get_mut(id);
        if post == Post::Done && sync {
            // From now on, and not before, the receiver may answer.
            request.phase = Phase::Announced;
        } else if post == Post::Done {
            self.complete(id);
        }
        post
    }
}

/// The receiver.
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
        // SAFETY: `len` is at least the header's, as `read` found.
        let (data, len) = (unsafe { data.add(SYNC_HEADER) }, len - SYNC_HEADER);
        let tag = header.imm as i32;
        match self.match_announced(peer, header.key, tag, Some(sender as u32)) {
            Matched::Receive(id) => {
                self.deliver(id, header.key, tag, data, len);
                self.send_control(peer, Header::new(wire::ACK, 0, sender), &[]);
            }
            Matched::Nothing => {
                let arrived = Arrived::EagerSync(sender as u32);
                self.store_long(peer, header, arrived, data, len);
            }
            Matched::TakenBack => {}
        }
    }

    /// Completes a receive with a whole message.
    pub(crate) fn deliver(
        &mut self, id: RequestId, key: u64, tag: i32, data: *const u8, len: usize,
    ) {
        let request = self.requests.get_mut(id);
        request.source = key_source(key) as i32;
        request.received_tag = tag;
        let fits = (len as u64).min(request.bytes);
        if (len as u64) > request.bytes {
            request.fault = Fault::Truncated;
            request.limit = len as u64; // for the message that explains it
        }
        request.received = fits;
        // SAFETY: the receiver's buffer is its caller's promise; `data` holds `len` bytes.
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
