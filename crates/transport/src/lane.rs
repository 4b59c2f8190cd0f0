//! The closed set of endpoints, matched where a message is posted.
//!
//! **BYTES.** What is sent or put is readable and what is received or got writable for its length, until the call
//! returns; what is registered stays mapped until it is deregistered. Each function here asks this of its caller and
//! passes it on to the transport.
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

/// Asks whichever endpoint a lane has; an unconnected one answers `$none`.
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

/// An endpoint of some transport. All bits zero is a valid [`Lane::Unconnected`], so that the
/// endpoints of peers that never talk cost no memory.
#[repr(u8)]
pub enum Lane {
    /// No transport has been chosen for this peer.
    Unconnected = 0,
    /// Shared memory.
    Shm(ShmEndpoint) = 1,
    /// To oneself.
    Loopback(Box<LoopbackEndpoint>) = 2,
    /// The simulated network, in tests.
    #[cfg(any(test, feature = "sim"))]
    Sim(Box<SimEndpoint>) = 3,
    /// A reliable connection of an RDMA adapter.
    Rc(Box<RcEndpoint>) = 4,
    /// Datagrams of an RDMA adapter.
    Ud(Box<UdEndpoint>) = 5,
    /// Datagrams, until a connection takes their place.
    Upgrade(Box<UpgradeEndpoint>) = 6,
    /// A connection of the kernel's network.
    Tcp(Box<TcpEndpoint>) = 7,
}

impl Lane {
    /// What the endpoint can do; `None` while unconnected.
    pub fn capabilities(&self) -> Option<Capabilities> {
        let can = ask!(self, endpoint => endpoint.capabilities(), or return None);
        Some(match self {
            // What a message is received into is not shown to its sender.
            Lane::Rc(_) => Capabilities { put_zcopy: 0, ..can },
            _ => can,
        })
    }

    /// Whether no transport has been chosen for this peer.
    #[inline]
    pub fn is_unconnected(&self) -> bool {
        matches!(self, Lane::Unconnected)
    }

    /// Returns whether the lane uses shared memory.
    pub fn is_ring(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Whether it leads from this process to itself without leaving it.
    #[inline]
    pub fn is_self(&self) -> bool {
        matches!(self, Lane::Loopback(_))
    }

    /// See [`Endpoint::am_short`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        // SAFETY: BYTES.
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
    /// As there.
    #[inline]
    pub unsafe fn am_bulk(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> Option<(Post, usize)> {
        // SAFETY: BYTES.
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
    /// As there.
    pub unsafe fn stream(&mut self, to: *mut u8, room: usize) -> usize {
        // SAFETY: BYTES.
        ask!(self, endpoint => unsafe { endpoint.stream(to, room) }, or 0)
    }

    /// As [`Lane::am_short`], where the room is known and the payload fits the descriptor; anything
    /// else is `NoResource`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    pub unsafe fn am_short_known(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES.
            Lane::Shm(endpoint) => unsafe { endpoint.tx.am_short_known(header, data, len) },
            _ => Post::NoResource,
        }
    }

    /// See [`Endpoint::wake`].
    #[cold]
    pub fn wake(&mut self) -> Post {
        ask!(self, endpoint => endpoint.wake(), or Post::Done)
    }

    /// The next arrival if it is short and has this id, for [`Lane::take_short`]; `None` does not say that there is
    /// none.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub fn look_short(&mut self, id: u8) -> Option<Arrival<'_>> {
        match self {
            Lane::Shm(endpoint) => endpoint.look_short(id),
            _ => None,
        }
    }

    /// Consumes what [`Lane::look_short`] showed.
    ///
    /// # Safety
    /// It has just shown something.
    #[inline(always)] // see `look_short`
    pub unsafe fn take_short(&mut self) {
        // SAFETY: by this function's contract; told as it was asked for.
        unsafe {
            if self.advance_short() {
                self.tell_taken();
            }
        }
    }

    /// The same, but for telling the sender; says whether [`Lane::tell_taken`] must follow.
    ///
    /// # Safety
    /// As [`Lane::take_short`].
    #[inline(always)] // see `look_short`
    #[must_use]
    pub unsafe fn advance_short(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.advance_short(),
            // SAFETY: the others never show anything there.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// Tells the sender how far its messages have been taken.
    ///
    /// # Safety
    /// [`Lane::advance_short`] has just asked for it.
    #[inline]
    pub unsafe fn tell_taken(&mut self) {
        match self {
            Lane::Shm(endpoint) => _ = endpoint.publish_head(),
            // SAFETY: the others never ask for it.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    /// The next arrival if it is longer than a short one and has this id, for [`Lane::take`]; `None` does not say that
    /// there is none.
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

    /// Whether [`Lane::look`] would show something.
    #[inline]
    pub fn has_arrival(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.rx.has_arrival(),
            _ => self.look().is_some(),
        }
    }

    /// The number of polls of this lane that take about as long as `at_memory` polls of memory; at least one.
    #[inline]
    pub fn polls(&self, at_memory: u32) -> u32 {
        match self {
            Lane::Tcp(_) => crate::tcp::polls(at_memory),
            _ => at_memory,
        }
    }

    /// To be called after a short message that others will follow at once.
    #[inline]
    pub fn expect_more(&mut self) {
        if let Lane::Shm(endpoint) = self {
            endpoint.tx.expect_more();
        }
    }

    /// To be called when the owner begins to wait for this peer: does what the next messages would wait for. Says
    /// whether there is more to do, at each look that finds nothing, by [`Lane::warm`].
    #[inline]
    pub fn begin_wait(&mut self) -> bool {
        match self {
            Lane::Shm(endpoint) => endpoint.begin_wait(),
            _ => false,
        }
    }

    /// Prepares a little of the next send; says whether there is more to do.
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

    /// Prepares for a message of `len` bytes, much longer than what one post carries.
    #[inline]
    pub fn prepare_stream(&mut self, len: u64) {
        if let Lane::Shm(endpoint) = self
            && !endpoint.tx.has_whole_area()
        {
            endpoint.tx.prepare_stream(len);
        }
    }

    /// Whether a ring of this host may have room for so many bytes, besides those to other peers.
    #[inline]
    pub fn has_share(&self, bytes: u64) -> bool {
        match self {
            Lane::Shm(endpoint) => bytes <= endpoint.tx.share().into(),
            _ => false,
        }
    }

    /// Largest payload, in bytes, that is faster as one message than as several on any machine; 0 if that depends on
    /// the cost of memory. Leaves room for the upper layer's header.
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
    /// As there.
    pub unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        // SAFETY: BYTES.
        ask!(self, end => unsafe { end.get(to, len, from) }, or Err(RemoteError::Unsupported))
    }

    /// Whether the peer shares this process's clock and memory.
    #[inline]
    pub fn is_same_host(&self) -> bool {
        matches!(self, Lane::Shm(_))
    }

    /// Receiver: claims the announced message of the peer's `request`, to match it; false where the peer has taken it
    /// back. `answered`: the answers to all messages that were claimed before have been posted.
    #[inline]
    pub fn claim(&self, request: u32, answered: bool) -> bool {
        self.received_recalls().is_none_or(|recalls| recalls.claim(request, answered))
    }

    /// Slots of a ring of shared memory that were filled so far.
    pub fn ring_slots_sent(&self) -> u64 {
        match self {
            Lane::Shm(e) => e.slots_sent(),
            _ => 0,
        }
    }

    /// Receiver: what the peer takes back of its messages, where both agree in shared memory.
    #[inline]
    pub fn received_recalls(&self) -> Option<&Recalls> {
        match self {
            Lane::Shm(endpoint) => endpoint.received_recalls(),
            _ => None,
        }
    }

    /// Sender: what is taken back of the messages to the peer, where both agree in shared memory.
    pub fn sent_recalls(&self) -> Option<&Recalls> {
        match self {
            Lane::Shm(endpoint) => endpoint.sent_recalls(),
            _ => None,
        }
    }

    /// Slots of shared memory that this side has filled and emptied so far, modulo 2^32. 0 for other transports.
    pub fn slots_moved(&self) -> u32 {
        match self {
            Lane::Shm(endpoint) => endpoint.slots_moved(),
            _ => 0,
        }
    }

    /// See [`Endpoint::put`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn put(
        &mut self, from: *const u8, len: usize, to: Remote,
    ) -> Result<(), RemoteError> {
        // SAFETY: BYTES.
        ask!(self, end => unsafe { end.put(from, len, to) }, or Err(RemoteError::Unsupported))
    }

    /// Completes puts and gets at the peer: it sees them before anything that comes after. On every
    /// lane so far the bytes are there when [`Lane::put`] returns, so that the order is all that is left.
    #[inline]
    pub fn flush(&mut self) {
        // ORDERING: between the puts and whatever tells the peer about them; its partner is the acquire
        // by which the peer learns of it.
        fence(Ordering::SeqCst);
    }
}

/// The transports that share no memory, out of the way of the one that does; the adapters' are called with nothing
/// saved for the rest.
impl Lane {
    /// # Safety
    /// As [`Endpoint::am_short`].
    #[cold]
    #[inline(never)]
    unsafe fn am_short_other(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES.
            Lane::Rc(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES.
            Lane::Ud(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES.
            Lane::Tcp(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES.
            _ => unsafe { self.am_short_rare(header, data, len) },
        }
    }

    /// # Safety
    /// As [`Endpoint::am_short`].
    #[inline(never)]
    unsafe fn am_short_rare(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        match self {
            // SAFETY: BYTES.
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // SAFETY: BYTES.
            Lane::Upgrade(endpoint) => unsafe { endpoint.am_short(header, data, len) },
            // Served before; a new kind is to be named here.
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
            // Served before; a new kind is to be named here.
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
            // Served before; a new kind is to be named here.
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
                // A busy receiver never reaches the idle path, so switch here too.
                self.settle_upgrade();
            }
            // Served before; a new kind is to be named here.
            Lane::Unconnected | Lane::Shm(_) | Lane::Loopback(_) => {}
            Lane::Rc(_) | Lane::Ud(_) | Lane::Tcp(_) => {}
        }
    }
}
