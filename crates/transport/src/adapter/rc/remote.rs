//! One-sided operations: each chooses a method by size. A flush completes them; they have no completions of their own.
//!
//! **BYTES.** Until a flush, memory of a put is readable, and memory of a get is writable and not accessed otherwise.
//! Registered memory stays mapped as long as its registration is kept.
#![allow(unsafe_code)]

use super::super::stage::Stage;
use super::connection::{BounceRead, Ticket, UNREPORTED};
use super::core::Core;
use super::endpoint::{RcEndpoint, ZCOPY_MOST, refuse_remote, ticket, write_to};
use super::iface::RcIface;
use super::registrations::Registrations;
use super::wire::LARGEST;
use crate::contract::{Method, Post, PostOutcome, Remote};
use crate::verbs::{Access, Failure, MemoryRegion, SendOperation, Sge};
use fastpath_base::copy::copy;
use std::sync::Arc;

/// Largest operation on registered memory, in bytes, that goes through a transport buffer. Source: the study of UCX
/// over InfiniBand (CCGRID 2017), which kept all registrations.
const BCOPY_MOST: usize = 8192;
/// Smallest operation, in bytes, that registers user memory for itself: its two system calls cost about as much as a
/// copy of this size.
const REGISTER_LEAST: usize = 64 * 1024;

impl RcIface {
    /// Registers `len` bytes at `address` for reads, writes and atomics of peers. `None` if the device refuses.
    ///
    /// # Safety
    /// The memory stays mapped as long as the region is held.
    pub(crate) unsafe fn register_remote(
        &self, address: *mut u8, len: usize,
    ) -> Option<Arc<MemoryRegion>> {
        // SAFETY: BYTES: the memory stays mapped while the region is held, by this function's contract.
        let register = |registrations: &mut Registrations| unsafe {
            registrations.register(address, len, Access::Remote)
        };
        self.with_registrations(register).ok()
    }

    pub(crate) fn set_tx_gate(&self, on: bool) {
        self.with_core(|core| core.tx_gate = on);
    }

    pub(crate) fn set_repeats(&self, on: bool) {
        self.with_core(|core| core.repeats = on);
    }
}

impl RcEndpoint {
    /// Method of a put of `len` bytes from user memory.
    #[inline]
    pub fn put_method(&self, len: usize) -> Method {
        match len <= self.granted_inline() {
            true => Method::Short,
            false => self.get_method(len),
        }
    }

    /// Method of a get of `len` bytes to user memory.
    #[inline]
    pub fn get_method(&self, len: usize) -> Method {
        match len < REGISTER_LEAST {
            true => Method::Bcopy,
            false => Method::Zcopy,
        }
    }

    #[inline]
    fn is_copied(&self, at: *const u8, len: usize) -> bool {
        len <= BCOPY_MOST || (len < REGISTER_LEAST && !self.is_lasting(at, len))
    }

    #[cold]
    fn is_lasting(&self, at: *const u8, len: usize) -> bool {
        let core = self.parts().0.borrow();
        core.registrations.is_lasting(&(at.addr()..at.addr() + len))
    }

    /// See [`crate::Lane::post_put`].
    ///
    /// # Safety
    /// See [`crate::Lane::post_put`].
    #[inline]
    pub unsafe fn post_put(&mut self, from: *const u8, len: usize, to: Remote) -> PostOutcome {
        let bcopy = |this: &mut Self| {
            let len = len.min(LARGEST);
            // SAFETY: BYTES: `from` is readable for `len` bytes, and `at` has room for them.
            let pack = |at| unsafe { copy(at, from, len) };
            copied(this.put_bcopy(len, pack, to), len)
        };
        match self.put_method(len) {
            // SAFETY: BYTES: `from` is readable for `len` bytes.
            Method::Short => copied(unsafe { self.put_short(from, len, to) }, len),
            _ if self.is_copied(from, len) => bcopy(self),
            _ => {
                let (at, part) = (from.cast_mut(), len.min(ZCOPY_MOST));
                // SAFETY: BYTES: `from` stays readable until the flush, and a write only reads it.
                match unsafe { self.post_silent(at, part, Access::Read, &write_to(to)) } {
                    // The memory cannot be locked, so copy it through a transport buffer.
                    None => bcopy(self),
                    Some(posted) => posted,
                }
            }
        }
    }

    /// See [`crate::Lane::post_get`].
    ///
    /// # Safety
    /// See [`crate::Lane::post_get`].
    #[inline]
    pub unsafe fn post_get(&mut self, to: *mut u8, len: usize, from: Remote) -> PostOutcome {
        let read = SendOperation::Read { address: from.addr, rkey: from.rkey as u32 };
        let posted = match self.is_copied(to, len) {
            true => None,
            // SAFETY: BYTES: `to` is writable until the flush.
            false => unsafe { self.post_silent(to, len.min(ZCOPY_MOST), Access::Write, &read) },
        };
        // SAFETY: BYTES: `to` is writable until the flush.
        posted.unwrap_or_else(|| unsafe { self.get_bcopy(to, len.min(LARGEST), &read) })
    }

    /// Posts an unreported operation on user memory; `None` if the memory cannot be registered.
    ///
    /// # Safety
    /// See [`RcEndpoint::put_zcopy`] and [`RcEndpoint::get_zcopy`].
    unsafe fn post_silent(
        &mut self, at: *mut u8, len: usize, access: Access, operation: &SendOperation<'_>,
    ) -> Option<PostOutcome> {
        // SAFETY: BYTES: the contracts of both functions are equal.
        let posted = unsafe { self.post_registered(at, len, access, operation, UNREPORTED) }?;
        Some(under_way(posted, len))
    }

    unsafe fn get_bcopy(
        &mut self, to: *mut u8, len: usize, read: &SendOperation<'_>,
    ) -> PostOutcome {
        let (core, index) = self.core();
        if let Some(refused) = refuse_remote(core, index) {
            return under_way(refused, 0);
        }
        let Some(slot) = core.take_slot(index, len) else {
            return PostOutcome::NoResource;
        };
        let (at, lkey) = core.pool.locate(slot);
        let ticket = Ticket { landing: Some(BounceRead { slot, to, len }), ..ticket(UNREPORTED) };
        // SAFETY: the slot belongs to this operation until it completes.
        let post =
            unsafe { core.post_remote(index, read, &[Sge::over(at, len, lkey)], Some(ticket)) };
        under_way(post, len)
    }

    /// See [`crate::Lane::progress_flush`]. Polls this connection's send queue while sends are outstanding.
    #[inline]
    pub fn progress_flush(&mut self) -> Post {
        let (core, index) = self.core();
        let connection = core.connection(index);
        if !connection.sends.is_busy() && core.tx_gate {
            return end_of_flush(core, index);
        }
        let queue = core.connection(index).queue;
        core.report_last(index);
        core.poll_sends(queue);
        if core.connection(index).sends.is_busy() && core.connection(index).is_said_to_have_left() {
            // The peer has left; the adapter would retry for seconds. Handle the last completions, then fail the
            // connection.
            core.poll_sends(queue);
            if core.connection(index).sends.is_busy() {
                let text = "the peer has left the job".to_owned();
                core.fail_connection(index, Failure::NoAnswer, text);
            }
        }
        end_of_flush(core, index)
    }
}

fn end_of_flush(core: &mut Core, index: usize) -> Post {
    let connection = core.connection(index);
    match (connection.stage, connection.sends.is_busy()) {
        (Stage::Failed(_), _) => Post::PeerGone,
        (_, true) => Post::InProgress,
        (_, false) => Post::Done,
    }
}

fn under_way(post: Post, len: usize) -> PostOutcome {
    match post {
        Post::NoResource => PostOutcome::NoResource,
        Post::PeerGone => PostOutcome::PeerGone,
        _ => PostOutcome::InProgress(len),
    }
}

#[inline]
fn copied(post: Post, len: usize) -> PostOutcome {
    match post {
        Post::Done | Post::Wake | Post::InProgress => PostOutcome::Done(len),
        Post::NoResource => PostOutcome::NoResource,
        Post::PeerGone => PostOutcome::PeerGone,
    }
}
