//! Operations on the peer's memory as the layer above posts them: by size, in silence, completed by a flush.
//!
//! **BYTES.** As in `endpoint`: what is put is readable and what is got writable, and nobody else's, until a flush.
//! What is registered stays mapped as long as its registration is kept.
#![allow(unsafe_code)]

use super::super::stage::Stage;
use super::connection::{Landing, Ticket};
use super::endpoint::{RcEndpoint, ZCOPY_MOST, refuse_remote, ticket, write_to};
use super::iface::{Core, RcIface};
use super::registrations::Registrations;
use super::wire::LARGEST;
use crate::contract::{Post, Remote};
use crate::remote::{Method, Posted};
use crate::verbs::{Access, Failure, MemoryRegion, Operation, Sge};
use fastpath_base::copy::copy;
use std::sync::Arc;

/// The cookie of operations whose completion is reported to nobody.
pub(super) const NOBODY: u64 = 0;

/// Largest operation on registered memory that goes through a buffer of the transport, in bytes. The bound of the study
/// of UCX over InfiniBand (CCGRID 2017), which kept all registrations.
const BCOPY_MOST: usize = 8192;
/// Smallest operation in bytes for which the user's memory is registered, where that ends with it: two system calls,
/// which about so many bytes are copied in.
const REGISTER_LEAST: usize = 64 * 1024;

impl RcIface {
    /// A registration of `len` bytes at `address` that peers may read, write and change.
    ///
    /// # Safety
    /// The memory stays mapped as long as the answer is kept.
    pub(crate) unsafe fn register_remote(
        &self, address: *mut u8, len: usize,
    ) -> Option<Arc<MemoryRegion>> {
        // SAFETY: BYTES.
        let register = |registrations: &mut Registrations| unsafe {
            registrations.register(address, len, Access::Remote)
        };
        self.with_registrations(register).ok()
    }

    /// See [`crate::Interfaces::set_tx_gate`].
    pub(crate) fn set_tx_gate(&self, on: bool) {
        self.with_core(|core| core.tx_gate = on);
    }

    /// See [`crate::Interfaces::set_repeats`].
    pub(crate) fn set_repeats(&self, on: bool) {
        self.with_core(|core| core.repeats = on);
    }
}

impl RcEndpoint {
    /// How a put of `len` bytes goes from memory of the user's own.
    #[inline]
    pub fn put_method(&self, len: usize) -> Method {
        match len <= self.granted_inline() {
            true => Method::Short,
            false => self.get_method(len),
        }
    }

    /// How a get of `len` bytes goes to memory of the user's own.
    #[inline]
    pub fn get_method(&self, len: usize) -> Method {
        match len < REGISTER_LEAST {
            true => Method::Bcopy,
            false => Method::Zcopy,
        }
    }

    /// Whether so much memory of the user's goes through a buffer of the transport.
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
    /// As there.
    #[inline]
    pub unsafe fn post_put(&mut self, from: *const u8, len: usize, to: Remote) -> Posted {
        let bcopy = |this: &mut Self| {
            let len = len.min(LARGEST);
            // SAFETY: BYTES; `at` has room for `len` bytes.
            let pack = |at| unsafe { copy(at, from, len) };
            copied(this.put_bcopy(len, pack, to), len)
        };
        match self.put_method(len) {
            // SAFETY: BYTES.
            Method::Short => copied(unsafe { self.put_short(from, len, to) }, len),
            _ if self.is_copied(from, len) => bcopy(self),
            _ => {
                let (at, part) = (from.cast_mut(), len.min(ZCOPY_MOST));
                // SAFETY: BYTES; a write only reads the bytes.
                match unsafe { self.post_silent(at, part, Access::Read, &write_to(to)) } {
                    // It may not be locked.
                    None => bcopy(self),
                    Some(posted) => posted,
                }
            }
        }
    }

    /// See [`crate::Lane::post_get`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_get(&mut self, to: *mut u8, len: usize, from: Remote) -> Posted {
        let read = Operation::Read { address: from.addr, rkey: from.rkey as u32 };
        let posted = match self.is_copied(to, len) {
            true => None,
            // SAFETY: BYTES.
            false => unsafe { self.post_silent(to, len.min(ZCOPY_MOST), Access::Write, &read) },
        };
        // SAFETY: BYTES.
        posted.unwrap_or_else(|| unsafe { self.get_bcopy(to, len.min(LARGEST), &read) })
    }

    /// Posts an operation between the user's memory and the peer's; `None` where the former cannot be registered.
    ///
    /// # Safety
    /// As [`RcEndpoint::put_zcopy`] and [`RcEndpoint::get_zcopy`].
    unsafe fn post_silent(
        &mut self, at: *mut u8, len: usize, access: Access, operation: &Operation<'_>,
    ) -> Option<Posted> {
        // SAFETY: BYTES.
        let posted = unsafe { self.post_registered(at, len, access, operation, NOBODY) }?;
        Some(under_way(posted, len))
    }

    /// Reads into a buffer of the transport, from which the bytes are copied when they are there.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and nobody else's, until then.
    unsafe fn get_bcopy(&mut self, to: *mut u8, len: usize, read: &Operation<'_>) -> Posted {
        let (core, index) = self.core();
        if let Some(refused) = refuse_remote(core, index) {
            return under_way(refused, 0);
        }
        let Some(slot) = core.take_slot(index, len) else {
            return Posted::NoResource;
        };
        let (at, lkey) = core.pool.locate(slot);
        let ticket = Ticket { landing: Some(Landing { slot, to, len }), ..ticket(NOBODY) };
        // SAFETY: the slot is this operation's until it is done.
        let post =
            unsafe { core.post_remote(index, read, &[Sge::over(at, len, lkey)], Some(ticket)) };
        under_way(post, len)
    }

    /// See [`crate::Lane::progress_flush`]: polls the send queue of this connection, while something is under way.
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
            // The adapter would go on trying for seconds. What it has done until now counts; nothing moves after this.
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

/// What a post of `len` bytes means whose memory stays in use.
fn under_way(post: Post, len: usize) -> Posted {
    match post {
        Post::NoResource => Posted::NoResource,
        Post::PeerGone => Posted::PeerGone,
        _ => Posted::InProgress(len),
    }
}

/// What a post of `len` bytes that were copied means.
#[inline]
fn copied(post: Post, len: usize) -> Posted {
    match post {
        Post::Done | Post::Wake | Post::InProgress => Posted::Done(len),
        Post::NoResource => Posted::NoResource,
        Post::PeerGone => Posted::PeerGone,
    }
}
