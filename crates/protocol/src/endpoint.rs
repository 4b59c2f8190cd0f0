//! The endpoint: one peer as the protocol layer sees it, and the immediate path.
#![allow(unsafe_code)]

use crate::tag::tag_matches;
use crate::wire;
use fastpath_base::copy::{copy, copy_small};
use fastpath_transport::{Header, Lane, Post};
use std::collections::VecDeque;

/// A message that waits for room: what is left to do with it.
pub(crate) enum Pending {
    /// An eager message or RTS of a request.
    Start(u32),
    /// A control message.
    Control(Header, [u8; 16], u8),
}

/// One peer. All bits zero is a valid endpoint to a peer that has not been talked to.
#[repr(C)]
pub struct Endpoint {
    /// How bytes get there.
    pub(crate) lane: Lane,
    /// Not 0 while something must go before the next message: immediate sends are off.
    pub(crate) gate: u32,
    /// What waits for room, in order.
    pub(crate) pending: Option<Box<VecDeque<Pending>>>,
}

// An endpoint per rank of the job: it must stay small.
const _: () = assert!(size_of::<Endpoint>() <= 192);

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
    /// the one into the slot ("sendi" of the Open MPI sm latency study).
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline]
    pub unsafe fn send_immediate(&mut self, key: u64, tag: i32, data: *const u8, len: usize) -> Post {
        if self.gate != 0 {
            return Post::NoResource;
        }
        let header = Header { id: wire::EAGER, imm: tag as u32, key };
        // SAFETY: the caller's; the caller has checked `len` against `short_max`.
        unsafe { self.lane.am_short(header, data, len) }
    }

    /// As [`Endpoint::send_immediate`], for a message that does not fit a slot but one buffer.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`crate::worker::EAGER_LIMIT`].
    #[inline]
    pub unsafe fn send_buffered(&mut self, key: u64, tag: i32, data: *const u8, len: usize) -> Post {
        if self.gate != 0 {
            return Post::NoResource;
        }
        let header = Header { id: wire::EAGER, imm: tag as u32, key };
        // SAFETY: the caller's; `to` has room for `len` bytes.
        self.lane.am_bcopy(header, len, |to| unsafe { copy(to, data, len) })
    }

    /// Receive-immediate: if the peer's next arrival is the wanted message and fits, it is copied
    /// straight into the user's buffer; otherwise nothing has happened. The caller has made sure
    /// that no earlier receive or message stands before it (`Matcher::is_quiet`).
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline]
    pub unsafe fn recv_immediate(&mut self, key: u64, tag: i32, to: *mut u8, room: usize) -> Option<Taken> {
        let arrival = self.lane.look()?;
        let header = arrival.header;
        let (from, len) = (arrival.data(), arrival.len());
        let matches = header.id == wire::EAGER && header.key == key && tag_matches(tag, header.imm as i32);
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
