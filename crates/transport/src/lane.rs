//! Closed set of endpoints, matched where a message is posted.
//!
//! **BYTES.** Memory that is sent or put is readable, and memory that is received or got is writable, until the call
//! returns. Registered memory stays mapped until it is deregistered. Each function here requires these conditions of
//! its caller, and passes them on to the transport.
#![allow(unsafe_code)]

use crate::adapter::rc::RcEndpoint;
use crate::adapter::ud::UdEndpoint;
use crate::adapter::upgrade::UpgradeEndpoint;
use crate::contract::*;
use crate::loopback::LoopbackEndpoint;
use crate::shm::ShmEndpoint;
use crate::shm::recall::Recalls;
#[cfg(any(test, feature = "sim"))]
use crate::sim::SimEndpoint;
use crate::tcp::TcpEndpoint;
use fastpath_base::sync::{Ordering, fence};

macro_rules! ask {
    ($lane:expr, $endpoint:ident => $answer:expr, or $none:expr) => {
        match $lane {
            Lane::Unconnected => $none,
            Lane::Shm($endpoint) => $answer,
            Lane::Loopback($endpoint) => $answer,
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim($endpoint) => $answer,
            Lane::Rc($endpoint) => $answer,
            Lane::Ud($endpoint) => $answer,
            Lane::Upgrade($endpoint) => $answer,
            Lane::Tcp($endpoint) => $answer,
        }
    };
}

mod connection;

/// Endpoint of one transport. [`Lane::Unconnected`] is all zero bits, so unused endpoints take no memory.
#[repr(u8)]
pub enum Lane {
    /// No transport chosen yet.
    Unconnected = 0,
    /// Shared memory.
    Shm(ShmEndpoint) = 1,
    /// A rank to itself.
    Loopback(Box<LoopbackEndpoint>) = 2,
    /// Simulated network, in tests.
    #[cfg(any(test, feature = "sim"))]
    Sim(Box<SimEndpoint>) = 3,
    /// A reliable connection of an RDMA adapter.
    Rc(Box<RcEndpoint>) = 4,
    /// Datagrams of an RDMA adapter.
    Ud(Box<UdEndpoint>) = 5,
    /// Datagrams, until a connection replaces them.
    Upgrade(Box<UpgradeEndpoint>) = 6,
    /// Socket.
    Tcp(Box<TcpEndpoint>) = 7,
}

impl Lane {
    /// Limits of the endpoint; `None` while unconnected.
    pub fn capabilities(&self) -> Option<Capabilities> {
        let can = ask!(self, endpoint => endpoint.capabilities(), or return None);
        Some(match self {
            // A receiver's memory is not registered for puts: [`Connection::register`] lets the peer only read it.
            Lane::Rc(_) => Capabilities { put_zcopy: 0, ..can },
            _ => can,
        })
    }

    /// Whether no transport has been chosen for this peer.
    #[inline]
    pub fn is_unconnected(&self) -> bool {
        matches!(self, Lane::Unconnected)
    }

    /// Whether the lane uses shared memory.
    pub fn is_ring(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Whether the lane leads from this process to itself.
    #[inline]
    pub fn is_self(&self) -> bool {
        matches!(self, Lane::Loopback(_))
    }

    /// See [`Endpoint::am_short`].
    ///
    /// # Safety
    /// See [`Endpoint::am_short`].
    #[inline]
    pub unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        // SAFETY: BYTES: `data` is readable for `len` bytes.
        unsafe {
            match self {
                Lane::Shm(endpoint) => endpoint.am_short(header, data, len),
                Lane::Loopback(endpoint) => endpoint.am_short(header, data, len),
                _ => self.am_short_other(header, data, len),
            }
        }
    }

    /// See [`Endpoint::am_bcopy`].
    #[inline]
    pub fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        match self {
            Lane::Shm(endpoint) => endpoint.am_bcopy(header, len, pack),
            Lane::Loopback(endpoint) => endpoint.am_bcopy(header, len, pack),
            _ => self.am_bcopy_other(header, len, pack),
        }
    }

    /// See [`Endpoint::has_bulk`].
    #[inline]
    pub fn has_bulk(&self) -> bool {
        ask!(self, endpoint => endpoint.has_bulk(), or false)
    }

    /// See [`Endpoint::hold_next`].
    pub fn hold_next(&mut self) {
        ask!(self, endpoint => endpoint.hold_next(), or ())
    }

    /// See [`Endpoint::am_bulk`].
    ///
    /// # Safety
    /// See [`Endpoint::am_bulk`].
    #[inline]
    pub unsafe fn am_bulk(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> Option<(Post, usize)> {
        // SAFETY: BYTES: `data` is readable for `len` bytes.
        ask!(self, endpoint => unsafe { endpoint.am_bulk(header, data, len) }, or None)
    }

    /// See [`Endpoint::find_bulk`].
    #[inline]
    pub fn find_bulk(&self) -> Option<(Header, usize)> {
        ask!(self, endpoint => endpoint.find_bulk(), or None)
    }

    /// See [`Endpoint::stream`].
    ///
    /// # Safety
    /// See [`Endpoint::stream`].
    pub unsafe fn stream(&mut self, to: *mut u8, room: usize) -> usize {
        // SAFETY: BYTES: `to` is writable for `room` bytes.
        ask!(self, endpoint => unsafe { endpoint.stream(to, room) }, or 0)
    }

    /// Sends like [`Lane::am_short`], if room is known and the payload fits the slot; otherwise returns `NoResource`.
    ///
    /// # Safety
    /// See [`Endpoint::am_short`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    pub unsafe fn am_short_known(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            Lane::Shm(endpoint) => unsafe { endpoint.tx.am_short_known(header, data, len) },
            _ => Post::NoResource,
        }
    }

    /// See [`Endpoint::wake`].
    #[cold]
    pub fn wake(&mut self) -> Post {
        ask!(self, endpoint => endpoint.wake(), or Post::Done)
    }

    /// Next arrival, for [`Lane::take_short`], if it is short and has this id. `None` if there is no such arrival.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub fn look_short(&mut self, id: u8) -> Option<Arrival<'_>> {
        match self {
            Lane::Shm(endpoint) => endpoint.look_short(id),
            _ => None,
        }
    }

    /// Takes the arrival that [`Lane::look_short`] has just returned.
    ///
    /// # Safety
    /// [`Lane::look_short`] has just returned an arrival.
    #[inline(always)] // see `look_short`
    pub unsafe fn take_short(&mut self) {
        // SAFETY: this function's contract is that of `advance_short`. Its result decides whether `tell_taken` is
        // called.
        unsafe {
            if self.advance_short() {
                self.tell_taken();
            }
        }
    }

    /// Takes like [`Lane::take_short`], but returns no credits. Returns whether [`Lane::tell_taken`] must follow.
    ///
    /// # Safety
    /// See [`Lane::take_short`].
    #[inline(always)] // see `look_short`
    #[must_use]
    pub unsafe fn advance_short(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.advance_short(),
            // SAFETY: `look_short` returns arrivals of shared memory only.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Returns credits to the sender, after [`Lane::advance_short`].
    ///
    /// # Safety
    /// [`Lane::advance_short`] has just returned true.
    #[inline]
    pub unsafe fn tell_taken(&mut self) {
        match self {
            Lane::Shm(endpoint) => _ = endpoint.publish_head(),
            // SAFETY: `advance_short` returns true for shared memory only.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Next arrival, for [`Lane::take`], if it is not short and has this id. `None` if there is no such arrival.
    #[inline]
    pub fn look_long(&mut self, id: u8) -> Option<Arrival<'_>> {
        match self {
            Lane::Shm(endpoint) => endpoint.look_long(id),
            _ => None,
        }
    }

    /// See [`Endpoint::look`].
    #[inline]
    pub fn look(&mut self) -> Option<Arrival<'_>> {
        match self {
            Lane::Shm(endpoint) => endpoint.look(),
            Lane::Loopback(endpoint) => endpoint.look(),
            _ => self.look_other(),
        }
    }

    /// Whether [`Lane::look`] would return an arrival.
    #[inline]
    pub fn has_arrival(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.rx.has_arrival(),
            _ => self.look().is_some(),
        }
    }

    /// Number of polls of this lane that take about as long as `at_memory` polls of memory; at least one.
    #[inline]
    pub fn polls(&self, at_memory: u32) -> u32 {
        match self {
            Lane::Tcp(_) => crate::tcp::polls(at_memory),
            _ => at_memory,
        }
    }

    /// Announces further short messages. Call this after a short message if further short messages follow at once.
    #[inline]
    pub fn expect_more(&mut self) {
        if let Lane::Shm(endpoint) = self {
            endpoint.tx.expect_more();
        }
    }

    /// Prepares the lane for a wait for this peer, so that the next messages of both sides are not delayed. Returns
    /// whether work is left, for [`Lane::warm`] at each poll without an arrival.
    #[inline]
    pub fn begin_wait(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.begin_wait(),
            _ => false,
        }
    }

    /// Does part of the preparation of the next send; returns whether work is left.
    #[inline]
    pub fn warm(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => {
                endpoint.tx.warm();
                endpoint.tx.is_cold()
            }
            _ => false,
        }
    }

    /// Prepares the lane for a message of `len` bytes, which is much longer than one post can carry.
    #[inline]
    pub fn prepare_stream(&mut self, len: u64) {
        if let Lane::Shm(endpoint) = self
            && !endpoint.tx.has_whole_area()
        {
            endpoint.tx.prepare_stream(len);
        }
    }

    /// Whether `bytes` is at most this ring's share of the memory for all data areas; false without a ring.
    #[inline]
    pub fn has_share(&self, bytes: u64) -> bool {
        match self {
            Lane::Shm(endpoint) => bytes <= endpoint.tx.share().into(),
            _ => false,
        }
    }

    /// Largest payload, in bytes, that is faster as one message than as several on any machine. 0 if this size depends
    /// on the machine's cost of memory. With the upper layer's header, the payload still fits one message.
    #[inline]
    pub fn max_single(&self) -> usize {
        match self {
            Lane::Rc(_) => crate::adapter::rc::MAX_SINGLE,
            Lane::Tcp(_) => crate::tcp::MAX_SINGLE,
            _ => 0,
        }
    }

    /// See [`Endpoint::take`].
    #[inline]
    pub fn take(&mut self) {
        match self {
            Lane::Shm(endpoint) => endpoint.take(),
            Lane::Loopback(endpoint) => endpoint.take(),
            _ => self.take_other(),
        }
    }

    /// See [`Endpoint::get`].
    ///
    /// # Safety
    /// See [`Endpoint::get`].
    pub unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        // SAFETY: BYTES: `to` is writable for `len` bytes.
        ask!(self, end => unsafe { end.get(to, len, from) }, or Err(RemoteError::Unsupported))
    }

    /// Whether the peer is on this process's host, and shares its clock and memory.
    #[inline]
    pub fn is_same_host(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Claims the announced message of the peer's `request`, to match it. Called by the receiver. Returns false if the
    /// peer has recalled the message. `answered`: whether the answers to all earlier claims have been posted.
    #[inline]
    pub fn claim(&self, request: u32, answered: bool) -> bool {
        self.received_recalls().is_none_or(|recalls| recalls.claim(request, answered))
    }

    /// Slots filled so far in a shared-memory ring; 0 for other transports.
    pub fn ring_slots_sent(&self) -> u64 {
        match self {
            Lane::Shm(e) => e.slots_sent(),
            _ => 0,
        }
    }

    /// State of recalls of messages from the peer; `None` without shared memory. Called by the receiver.
    #[inline]
    pub fn received_recalls(&self) -> Option<&Recalls> {
        match self {
            Lane::Shm(endpoint) => endpoint.received_recalls(),
            _ => None,
        }
    }

    /// State of recalls of messages to the peer; `None` without shared memory. Called by the sender.
    pub fn sent_recalls(&self) -> Option<&Recalls> {
        match self {
            Lane::Shm(endpoint) => endpoint.sent_recalls(),
            _ => None,
        }
    }

    /// Slots of shared memory that this side has filled and emptied so far, modulo 2^32; 0 for other transports.
    pub fn slots_moved(&self) -> u32 {
        match self {
            Lane::Shm(endpoint) => endpoint.slots_moved(),
            _ => 0,
        }
    }

    /// See [`Endpoint::put`].
    ///
    /// # Safety
    /// See [`Endpoint::put`].
    pub unsafe fn put(
        &mut self, from: *const u8, len: usize, to: Remote,
    ) -> Result<(), RemoteError> {
        // SAFETY: BYTES: `from` is readable for `len` bytes.
        ask!(self, end => unsafe { end.put(from, len, to) }, or Err(RemoteError::Unsupported))
    }

    /// See [`Endpoint::get_blocks`].
    ///
    /// # Safety
    /// See [`Endpoint::get_blocks`].
    pub unsafe fn get_blocks(
        &mut self, to: *mut u8, from: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        let refused = Err(RemoteError::Unsupported);
        // SAFETY: BYTES: `to` is writable for the bytes of all blocks.
        ask!(self, end => unsafe { end.get_blocks(to, from, blocks) }, or refused)
    }

    /// See [`Endpoint::put_blocks`].
    ///
    /// # Safety
    /// See [`Endpoint::put_blocks`].
    pub unsafe fn put_blocks(
        &mut self, from: *const u8, to: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        let refused = Err(RemoteError::Unsupported);
        // SAFETY: BYTES: `from` is readable for the bytes of all blocks.
        ask!(self, end => unsafe { end.put_blocks(from, to, blocks) }, or refused)
    }

    /// Orders earlier puts and gets, which are complete on these lanes, before later messages to the peer.
    #[inline]
    pub fn flush(&mut self) {
        // ORDERING: this fence orders the puts before the later notification of the peer. Partner: the acquire load by
        // which the peer sees that notification.
        fence(Ordering::SeqCst);
    }
}

/// Lanes without shared memory. Their functions are separate, so that the path of shared memory saves no registers for
/// them.
impl Lane {
    /// # Safety
    /// See [`Endpoint::am_short`].
    #[cold]
    #[inline(never)]
    unsafe fn am_short_other(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            Lane::Rc(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            Lane::Ud(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            Lane::Tcp(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            _ => unsafe { self.am_short_rare(header, data, len) },
        }
    }

    /// # Safety
    /// See [`Endpoint::am_short`].
    #[inline(never)]
    unsafe fn am_short_rare(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES: `data` is readable for `len` bytes.
            Lane::Upgrade(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // Unreachable: callers handle these lanes. Without `_`, a new transport is a compile error.
            Lane::Unconnected | Lane::Shm(_) | Lane::Loopback(_) => Post::NoResource,
            Lane::Rc(_) | Lane::Ud(_) | Lane::Tcp(_) => Post::NoResource,
        }
    }

    #[cold]
    #[inline(never)]
    fn am_bcopy_other(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        match self {
            Lane::Rc(endpoint) => endpoint.am_bcopy(header, len, pack),
            Lane::Ud(endpoint) => endpoint.am_bcopy(header, len, pack),
            Lane::Tcp(endpoint) => endpoint.am_bcopy(header, len, pack),
            _ => self.am_bcopy_rare(header, len, pack),
        }
    }

    #[inline(never)]
    fn am_bcopy_rare(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        match self {
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => endpoint.am_bcopy(header, len, pack),
            Lane::Upgrade(endpoint) => endpoint.am_bcopy(header, len, pack),
            // Unreachable: callers handle these lanes. Without `_`, a new transport is a compile error.
            Lane::Unconnected | Lane::Shm(_) | Lane::Loopback(_) => Post::NoResource,
            Lane::Rc(_) | Lane::Ud(_) | Lane::Tcp(_) => Post::NoResource,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_other(&mut self) -> Option<Arrival<'_>> {
        match self {
            Lane::Rc(endpoint) => endpoint.look(),
            Lane::Ud(endpoint) => endpoint.look(),
            Lane::Tcp(endpoint) => endpoint.look(),
            _ => self.look_rare(),
        }
    }

    #[inline(never)]
    fn look_rare(&mut self) -> Option<Arrival<'_>> {
        match self {
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => endpoint.look(),
            Lane::Upgrade(endpoint) => endpoint.look(),
            // Unreachable: callers handle these lanes. Without `_`, a new transport is a compile error.
            Lane::Unconnected | Lane::Shm(_) | Lane::Loopback(_) => None,
            Lane::Rc(_) | Lane::Ud(_) | Lane::Tcp(_) => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn take_other(&mut self) {
        match self {
            Lane::Rc(endpoint) => endpoint.take(),
            Lane::Ud(endpoint) => endpoint.take(),
            Lane::Tcp(endpoint) => endpoint.take(),
            _ => self.take_rare(),
        }
    }

    #[inline(never)]
    fn take_rare(&mut self) {
        match self {
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => endpoint.take(),
            Lane::Upgrade(endpoint) => {
                endpoint.take();
                // Finish the upgrade here too: a busy receiver never makes the idle look that otherwise finishes it.
                self.settle_upgrade();
            }
            // Unreachable: callers handle these lanes. Without `_`, a new transport is a compile error.
            Lane::Unconnected | Lane::Shm(_) | Lane::Loopback(_) => {}
            Lane::Rc(_) | Lane::Ud(_) | Lane::Tcp(_) => {}
        }
    }
}
