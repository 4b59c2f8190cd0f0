//! Endpoint: connection setup, the transport contract, and one-sided operations.
//!
//! **BYTES.** Memory of a send or put is readable. Memory of a get is writable and not accessed otherwise. Each caller
//! guarantees this until the call returns, or until a posted operation is reported.
#![allow(unsafe_code)]

use super::super::shared::SharedCore;
use super::super::stage::Stage;
use super::super::wire::SHORT_LEAST;
use super::connection::Ticket;
use super::core::{Completion, Core};
use super::datapath::INLINE_MOST;
use super::wire::{HEADER, LARGEST, PairAddress};
use crate::contract::*;
use crate::verbs::{Access, Failure, RemoteQp, SendOperation, Sge, VerbsCall, VerbsError};
use fastpath_base::copy::copy;
use std::cell::RefCell;
use std::mem::MaybeUninit;

/// Bit that is set in every key of exposed memory, so that no key is 0.
const EXPOSED: u64 = 1 << 32;
/// Number of polls for a completion before the wait yields the processor.
const POLLS: u32 = 256;
/// Maximum length of one read or write, in bytes; verbs allows 2^31.
pub(super) const ZCOPY_MOST: usize = 1 << 30;

/// Connection to one peer.
pub struct RcEndpoint {
    core: SharedCore<Core>,
    index: usize,
}

impl Drop for RcEndpoint {
    fn drop(&mut self) {
        self.core.borrow_mut().remove_connection(self.index);
    }
}

impl RcEndpoint {
    pub(super) fn new(core: SharedCore<Core>, index: usize) -> Self {
        RcEndpoint { core, index }
    }

    #[inline]
    pub(super) fn core(&mut self) -> (&mut Core, usize) {
        // SAFETY: ONE CALL AT A TIME: callers here and in `remote.rs` drop this reference before they call `pack`, and
        // call `core` again afterwards.
        (unsafe { self.core.core() }, self.index)
    }

    pub(super) fn parts(&self) -> (&RefCell<Core>, usize) {
        (&self.core, self.index)
    }

    /// Inline bytes that the device granted, including the message header.
    pub fn granted_inline(&self) -> usize {
        self.core.borrow_mut().connection(self.index).inline
    }

    /// Cause of the connection's failure; `None` if it has not failed.
    pub fn failure(&self) -> Option<Failure> {
        let stage = self.core.borrow_mut().connection(self.index).stage;
        stage.failure()
    }

    /// Returns all owed credits to the peer.
    pub fn return_all_credits(&mut self) {
        self.core.borrow_mut().return_credits(self.index, 1);
    }

    /// Posts an operation that completes after all earlier operations. At its completion, earlier writes are in the
    /// peer's memory, and earlier reads and atomics have their results. Returns `Done` if nothing is outstanding.
    pub fn flush(&mut self, cookie: u64) -> Post {
        let (core, index) = self.core();
        if !core.connection(index).sends.is_busy() {
            return match core.connection(index).stage {
                Stage::Failed(_) => Post::PeerGone,
                _ => Post::Done,
            };
        }
        match core.admit_remote(index) {
            Post::Done => {}
            refused => return refused,
        }
        if core.connection(index).room() == 0 {
            return Post::NoResource;
        }
        let nothing = SendOperation::Write { address: 0, rkey: 0 };
        let ticket = ticket(cookie);
        // SAFETY: there are no segments, so no memory is accessed.
        unsafe { core.post_remote(index, &nothing, &[], Some(ticket)) }
    }

    /// Writes `len` bytes inline, at most [`RcEndpoint::granted_inline`]. [`RcEndpoint::flush`] reports their arrival.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub unsafe fn put_short(&mut self, from: *const u8, len: usize, to: Remote) -> Post {
        let (core, index) = self.core();
        if let Some(refused) = refuse_remote(core, index) {
            return refused;
        }
        debug_assert!(len <= core.connection(index).inline);
        let write = write_to(to);
        // SAFETY: the call copies inline data, and `from` is readable now by this function's contract.
        unsafe { core.post_remote(index, &write, &[Sge::over(from, len, 0)], None) }
    }

    /// Writes `len` bytes, at most `capabilities().bcopy`, to the peer. `pack` writes them to a transport buffer.
    pub fn put_bcopy(&mut self, len: usize, pack: impl FnOnce(*mut u8), to: Remote) -> Post {
        let (core, index) = self.core();
        if let Some(refused) = refuse_remote(core, index) {
            return refused;
        }
        let Some(slot) = core.take_slot(index, len) else {
            return Post::NoResource;
        };
        let (at, lkey) = core.pool.locate(slot);
        pack(at);
        let (core, index) = self.core();
        let connection = core.connection(index);
        let number = connection.sends.posted;
        connection.slots.push_back((number, slot));
        // SAFETY: the slot belongs to this operation until it completes.
        unsafe { core.post_remote(index, &write_to(to), &[Sge::over(at, len, lkey)], None) }
    }

    /// Writes `len` bytes from the caller's memory into the peer's.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes until the operation is reported.
    pub unsafe fn put_zcopy(
        &mut self, from: *const u8, len: usize, to: Remote, cookie: u64,
    ) -> Post {
        // SAFETY: BYTES: `from` stays readable until the operation is reported, and an RDMA write only reads it.
        unsafe { self.post_zcopy(from.cast_mut(), len, Access::Read, &write_to(to), cookie) }
    }

    /// Reads `len` bytes of the peer's memory into the caller's.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, and not accessed otherwise, until the operation is reported.
    pub unsafe fn get_zcopy(&mut self, to: *mut u8, len: usize, from: Remote, cookie: u64) -> Post {
        let read = SendOperation::Read { address: from.addr, rkey: from.rkey as u32 };
        // SAFETY: BYTES: this function's contract is that of the read.
        unsafe { self.post_zcopy(to, len, Access::Write, &read, cookie) }
    }

    /// Posts a one-sided operation on user memory, reported by `cookie`. If registration fails, returns `NoResource`.
    ///
    /// # Safety
    /// See [`RcEndpoint::put_zcopy`] for a write, [`RcEndpoint::get_zcopy`] for a read.
    unsafe fn post_zcopy(
        &mut self, at: *mut u8, len: usize, access: Access, operation: &SendOperation<'_>,
        cookie: u64,
    ) -> Post {
        // SAFETY: BYTES: the contracts of both functions are equal.
        let posted = unsafe { self.post_registered(at, len, access, operation, cookie) };
        posted.unwrap_or(Post::NoResource)
    }

    /// Posts a one-sided operation on user memory; `None` if the memory cannot be registered.
    ///
    /// # Safety
    /// See [`RcEndpoint::put_zcopy`] for a write, [`RcEndpoint::get_zcopy`] for a read.
    pub(super) unsafe fn post_registered(
        &mut self, at: *mut u8, len: usize, access: Access, operation: &SendOperation<'_>,
        cookie: u64,
    ) -> Option<Post> {
        let (core, index) = self.core();
        if let Some(refused) = refuse_remote(core, index) {
            return Some(refused);
        }
        // SAFETY: the memory and its region stay until the operation is reported, by this function's contract.
        let region = unsafe { core.registrations.register(at, len, access) };
        let region = core.port.note(region)?;
        let list = [Sge::over(at, len, region.lkey())];
        let ticket = Ticket { _region: Some(region), ..ticket(cookie) };
        // SAFETY: BYTES: the memory is valid until the operation is reported. Until then the ticket keeps the region.
        Some(unsafe { core.post_remote(index, operation, &list, Some(ticket)) })
    }

    fn wait_for(&mut self, cookie: u64) -> Completion {
        let mut polls = 0;
        loop {
            let core = &mut *self.core.borrow_mut();
            let found = core.completions.iter().position(|c| c.cookie == cookie);
            if let Some(completion) = found.and_then(|at| core.completions.remove(at)) {
                return completion;
            }
            core.progress();
            polls += 1;
            match polls > POLLS {
                true => fastpath_base::wait::yield_now(),
                false => fastpath_base::sync::spin_loop(),
            }
        }
    }

    fn copy_directly(
        &mut self, len: usize, mut post: impl FnMut(&mut Self, usize, usize, u64) -> Post,
    ) -> Result<(), RemoteError> {
        let mut done = 0;
        while done < len {
            let part = ZCOPY_MOST.min(len - done);
            let cookie = {
                let mut core = self.core.borrow_mut();
                core.next_cookie = core.next_cookie.wrapping_add(1) | 1 << 63;
                core.next_cookie
            };
            match post(self, done, part, cookie) {
                Post::InProgress => {}
                Post::NoResource => {
                    let mut core = self.core.borrow_mut();
                    let ready = core.connection(self.index).stage == Stage::Ready;
                    if !ready || core.connection(self.index).room() > 0 {
                        // The peer is not connected, or the memory cannot be registered.
                        return Err(RemoteError::Unsupported);
                    }
                    core.progress();
                    continue;
                }
                _ => return Err(RemoteError::Fault),
            }
            match self.wait_for(cookie).result {
                Ok(_) => done += part,
                Err(_) => return Err(RemoteError::Fault),
            }
        }
        Ok(())
    }
}

pub(super) fn ticket(cookie: u64) -> Ticket {
    Ticket { cookie, landing: None, _region: None }
}

pub(super) fn write_to(to: Remote) -> SendOperation<'static> {
    SendOperation::Write { address: to.addr, rkey: to.rkey as u32 }
}

pub(super) fn refuse_remote(core: &mut Core, index: usize) -> Option<Post> {
    match core.admit_remote(index) {
        Post::Done if core.connection(index).room() > 0 => None,
        Post::Done => Some(Post::NoResource),
        refused => Some(refused),
    }
}

impl Connection for RcEndpoint {
    fn wants_wireup(&self) -> bool {
        let stage = self.core.borrow_mut().connection(self.index).stage;
        stage.wants_wireup()
    }

    fn local_address(&self) -> Address {
        let core = &mut *self.core.borrow_mut();
        let port = core.port.local.address();
        let connection = core.connection(self.index);
        let address = PairAddress {
            qpn: connection.pair.qpn(),
            psn: connection.psn,
            window: connection.window,
            port,
        };
        address.encode()
    }

    /// Connects to the peer at `address`; returns false if that fails ([`super::RcIface::last_error`]).
    fn open(&mut self, address: &Address) -> bool {
        let core = &mut *self.core.borrow_mut();
        let Some(peer) = PairAddress::decode(address) else {
            core.port.last_error = Some("the peer's address is invalid".to_owned());
            return false;
        };
        let retry_config = core.settings.retry_config;
        let path = core.port.local.path_to(&peer.port);
        let connection = core.connection(self.index);
        let opened = path.and_then(|path| {
            if connection.stage != Stage::Made {
                return Err(VerbsError::call(VerbsCall::ModifyRtr, "", libc::EISCONN));
            }
            let to = RemoteQp { path, qpn: peer.qpn, psn: peer.psn };
            connection.pair.connect(&to, connection.psn, &retry_config)
        });
        if opened.is_ok() {
            connection.stage = Stage::Open;
            connection.credits = peer.window;
        }
        core.port.note(opened).is_some()
    }

    fn set_ready(&mut self) {
        let mut core = self.core.borrow_mut();
        core.connection(self.index).stage.set_ready();
    }

    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        let core = &mut *self.core.borrow_mut();
        let packets = super::wire::packets(bytes).saturating_mul(messages);
        let connection = core.connection(self.index);
        connection.stage == Stage::Ready
            && connection.credits >= packets
            && connection.room() >= packets
            && core.has_slots(messages, bytes)
    }

    fn is_resting(&self) -> bool {
        let mut core = self.core.borrow_mut();
        let connection = core.connection(self.index);
        connection.inbox.is_empty() && connection.owed < connection.worth_telling()
    }

    fn return_credits(&mut self) {
        let mut core = self.core.borrow_mut();
        let connection = core.connection(self.index);
        let worth = connection.worth_telling();
        if connection.owed >= worth {
            core.return_credits(self.index, worth);
        }
    }

    fn peer_has_left(&self) -> bool {
        if self.failure().is_some() {
            return true;
        }
        // Messages that the peer sent before it left must still be taken.
        let core = &mut *self.core.borrow_mut();
        core.connection(self.index).is_said_to_have_left() && {
            core.poll_receives();
            core.connection(self.index).inbox.is_empty()
        }
    }

    fn is_drained(&mut self) -> bool {
        let core = &mut *self.core.borrow_mut();
        let queue = core.connection(self.index).queue;
        if core.connection(self.index).sends.is_busy() {
            core.report_last(self.index);
            core.poll_sends(queue);
        }
        !core.connection(self.index).sends.is_busy()
    }

    unsafe fn register(&mut self, address: *mut u8, len: usize) -> Option<Remote> {
        let core = &mut *self.core.borrow_mut();
        // SAFETY: the memory stays mapped as long as the region, by this function's contract; peers only read it.
        let region = unsafe { core.registrations.register(address, len, Access::Shown) };
        let region = core.port.note(region)?;
        let rkey = EXPOSED | region.rkey() as u64;
        core.connection(self.index).exposed.push(region);
        let addr = address.expose_provenance() as u64;
        Some(Remote { addr, rkey })
    }

    fn deregister(&mut self, rkey: u64) {
        let core = &mut *self.core.borrow_mut();
        let exposed = &mut core.connection(self.index).exposed;
        if let Some(at) = exposed.iter().position(|r| r.rkey() == rkey as u32) {
            exposed.swap_remove(at);
            core.registrations.release_unused();
        }
    }

    fn wants_exposure(&self) -> bool {
        true
    }

    fn may_leave(&mut self) -> bool {
        self.peer_has_left() || self.is_drained()
    }

    fn describe_failure(&self, peer: u32) -> Option<String> {
        self.failure().map(|why| why.describe(peer))
    }
}

impl Endpoint for RcEndpoint {
    fn capabilities(&self) -> Capabilities {
        let inline = self.granted_inline();
        Capabilities {
            name: "rc",
            short: inline.saturating_sub(HEADER).clamp(SHORT_LEAST, LARGEST),
            bcopy: LARGEST,
            get_zcopy: ZCOPY_MOST,
            put_zcopy: ZCOPY_MOST,
            reliable: true,
            needs_wireup: true,
            directed: true,
        }
    }

    #[inline(never)] // see `Lane::am_short_other`
    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        let (core, index) = self.core();
        if HEADER + len <= core.connection(index).inline {
            // SAFETY: `data` is readable for `len` bytes, by the contract of `am_short`.
            return unsafe { core.send_inline(index, header, data, len) };
        }
        // SAFETY: BYTES: `data` is readable for `len` bytes, and `to` has room for them.
        self.am_bcopy(header, len, |to| unsafe { copy(to, data, len) })
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        debug_assert!(len <= LARGEST);
        let (core, index) = self.core();
        match core.reserve(index, len) {
            Ok(Some((slot, to))) => {
                pack(to);
                let (core, index) = self.core();
                core.send_packed(index, header, len, slot)
            }
            Ok(None) => {
                let mut bytes = MaybeUninit::<[u8; INLINE_MOST]>::uninit();
                pack(bytes.as_mut_ptr().cast());
                let (core, index) = self.core();
                // SAFETY: `pack` has written `len` bytes, which live until the call returns.
                unsafe { core.send_inline(index, header, bytes.as_ptr().cast(), len) }
            }
            Err(refused) => refused,
        }
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn look(&mut self) -> Option<Arrival<'_>> {
        let (core, index) = self.core();
        let first = match core.connection(index).inbox.front().copied() {
            Some(first) => first,
            None if core.poll_receives() => *core.connection(index).inbox.front()?,
            None => return None,
        };
        Some(Arrival::new(first.header, first.data, first.len as usize))
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn take(&mut self) {
        let (core, index) = self.core();
        core.take(index);
    }

    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        self.copy_directly(len, |this, done, part, cookie| {
            let from = Remote { addr: from.addr + done as u64, ..from };
            // SAFETY: BYTES: this part lies in the caller's range, which stays valid until the copy has completed.
            unsafe { this.get_zcopy(to.wrapping_add(done), part, from, cookie) }
        })
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        self.copy_directly(len, |this, done, part, cookie| {
            let to = Remote { addr: to.addr + done as u64, ..to };
            // SAFETY: BYTES: this part lies in the caller's range, which stays valid until the copy has completed.
            unsafe { this.put_zcopy(from.wrapping_add(done), part, to, cookie) }
        })
    }
}
