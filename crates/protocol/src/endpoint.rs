//! The endpoint: one peer as the protocol layer sees it, and the immediate path.
#![allow(unsafe_code)]

use crate::learning::Learnt;
use crate::tag::tag_matches;
use crate::wire;
use crate::worker::SHORT_LIMIT;
use fastpath_base::copy::{CopyLoop, copy, copy_small, copy_with};
use fastpath_transport::{Header, Lane, Post};
use std::collections::VecDeque;

/// A message that waits for room: what is left to do with it.
pub(crate) enum Pending {
    /// An eager message or RTS of a request.
    Start(u32),
    /// A control message.
    Control(Header, [u8; wire::CONTROL_MAX], u8),
}

/// Where the unasked bytes of the message that a peer announced last belong.
#[derive(Clone, Copy)]
pub(crate) struct Early {
    /// Bytes still to come; 0 where there is no such message.
    pub left: u32,
    /// Whether `id` is a stored message's token; else it is a receive request.
    pub stored: bool,
    /// Where they go.
    pub id: u32,
}

impl Early {
    /// `id` of a stored message that was taken back: its bytes belong nowhere.
    pub const NOWHERE: u32 = u32::MAX;
}

/// One peer. All bits zero is a valid endpoint to a peer that has not been talked to.
#[repr(C)]
pub struct Endpoint {
    /// How bytes get there.
    pub(crate) lane: Lane,
    /// Not 0 while something must go before the next message: immediate sends are off.
    pub(crate) gate: u32,
    /// Whether the peer has declined to fetch a message by a single copy.
    pub(crate) declines: bool,
    /// What waits for room, in order.
    #[allow(clippy::box_collection)] // an endpoint stays small
    pub(crate) pending: Option<Box<VecDeque<Pending>>>,
    /// The announced message whose bytes come without being asked for.
    pub(crate) early: Early,
    /// Which way longer messages go; none before the first one.
    pub(crate) learnt: Option<Box<Learnt>>,
}

// An endpoint per rank of the job: it must stay small.
const _: () = assert!(size_of::<Endpoint>() <= 176);

/// What an immediate receive took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// The message's tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
}

impl Endpoint {
    /// Send-immediate: the message leaves now, or nothing has happened. No request, no copy besides
    /// the one into the slot ("sendi" of the Open MPI sm latency study), and no call: `Rouse` leaves
    /// the waking of a sleeping peer to [`Endpoint::rouse`].
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::SHORT_LIMIT`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    pub unsafe fn send_immediate(
        &mut self,
        key: u64,
        tag: i32,
        data: *const u8,
        len: usize,
    ) -> Post {
        if self.gate != 0 {
            return Post::NoResource;
        }
        let header = Header::new(wire::EAGER, tag as u32, key);
        // SAFETY: the caller's.
        unsafe { self.lane.am_short_known(header, data, len) }
    }

    /// Wakes the peer after [`Post::Rouse`]: `Done`, or `PeerGone`.
    #[cold]
    pub fn rouse(&mut self) -> Post {
        self.lane.rouse()
    }

    /// As [`Endpoint::send_immediate`], for any message that fits one buffer; wakes the peer itself.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::EAGER_LIMIT`].
    #[inline]
    pub unsafe fn send_buffered(
        &mut self,
        key: u64,
        tag: i32,
        data: *const u8,
        len: usize,
        by: CopyLoop,
    ) -> Post {
        if self.gate != 0 {
            return Post::NoResource;
        }
        let header = Header::new(wire::EAGER, tag as u32, key);
        // SAFETY: the caller's; `to` has room for `len` bytes.
        self.post_bcopy(header, len, |to| unsafe { copy_with(by, to, data, len) })
    }

    /// Posts a message of up to one buffer and wakes the peer if it sleeps.
    #[inline]
    pub(crate) fn post_bcopy(
        &mut self,
        header: Header,
        len: usize,
        pack: impl FnOnce(*mut u8),
    ) -> Post {
        match self.lane.am_bcopy(header, len, pack) {
            Post::Rouse => self.lane.rouse(),
            post => post,
        }
    }

    /// Posts a message that fits a slot and wakes the peer if it sleeps.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::SHORT_LIMIT`].
    pub(crate) unsafe fn post_short(
        &mut self,
        header: Header,
        data: *const u8,
        len: usize,
    ) -> Post {
        // SAFETY: the caller's.
        match unsafe { self.lane.am_short(header, data, len) } {
            Post::Rouse => self.lane.rouse(),
            post => post,
        }
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
        &mut self,
        key: u64,
        tag: i32,
        to: *mut u8,
        room: usize,
    ) -> Option<Taken> {
        // SAFETY: the caller's; taken is what was just copied.
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
        &mut self,
        key: u64,
        tag: i32,
        to: *mut u8,
        len: usize,
    ) -> Option<Taken> {
        // SAFETY: the caller's; taken is what was just copied.
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
        &mut self,
        key: u64,
        tag: i32,
        to: *mut u8,
        room: usize,
    ) -> Option<Taken> {
        // SAFETY: the caller's.
        unsafe { self.copy_short_if(key, tag, to, |len| len as isize <= room as isize) }
    }

    /// # Safety
    /// `to` is writable for so many bytes as `fits` allows.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    unsafe fn copy_short_if(
        &mut self,
        key: u64,
        tag: i32,
        to: *mut u8,
        fits: impl FnOnce(usize) -> bool,
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
        Some(Taken {
            tag: header.imm as i32,
            len,
        })
    }

    /// Takes what [`Endpoint::copy_short`] has copied.
    ///
    /// # Safety
    /// It has just copied something.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn take_short(&mut self) {
        // SAFETY: the caller's.
        unsafe { self.lane.take_short() }
    }

    /// Sends a contiguous message of up to [`crate::worker::EARLY_LIMIT`] bytes in parts that follow each other at
    /// once, so that both sides copy at the same time; or does nothing.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub unsafe fn send_parts(
        &mut self,
        key: u64,
        tag: i32,
        data: *const u8,
        len: usize,
        part: usize,
        by: CopyLoop,
    ) -> Post {
        let first = part.min(len);
        // In a slot there is no room for the length of the whole (`Header::aux`).
        if first <= SHORT_LIMIT
            || self.gate != 0
            || !self.lane.has_room(len.div_ceil(part) as u32, part)
        {
            return Post::NoResource;
        }
        let header = Header {
            aux: len as u16,
            ..Header::new(wire::PARTS, tag as u32, key)
        };
        // SAFETY: the caller's; `to` has room for the part.
        let mut post = self.post_bcopy(header, first, |to| unsafe {
            copy_with(by, to, data, first)
        });
        let mut done = first;
        while done < len && post == Post::Done {
            let next = part.min(len - done);
            let header = Header::new(wire::EARLY, 0, 0);
            // SAFETY: as above.
            post = self.post_bcopy(header, next, |to| unsafe {
                copy_with(by, to, data.add(done), next)
            });
            done += next;
        }
        post
    }

    /// Whether anything has arrived from the peer. One load.
    #[inline]
    pub fn has_arrival(&mut self) -> bool {
        self.lane.has_arrival()
    }

    /// See [`Lane::expect_more`].
    #[inline]
    pub fn expect_more(&mut self) {
        self.lane.expect_more();
    }

    /// See [`Lane::begin_wait`].
    #[inline]
    pub fn begin_wait(&mut self) -> bool {
        self.lane.begin_wait()
    }

    /// See [`Lane::warm`].
    #[inline]
    pub fn warm(&mut self) -> bool {
        self.lane.warm()
    }

    /// As [`Endpoint::recv_short`], for a message of any size that lies in one buffer.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline]
    pub unsafe fn recv_immediate(
        &mut self,
        key: u64,
        tag: i32,
        to: *mut u8,
        room: usize,
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
        Some(Taken {
            tag: header.imm as i32,
            len,
        })
    }
}
