//! Interface by which an algorithm sends messages between members of a call. VECTORS and FABRIC are defined in
//! `coll.rs`.
#![allow(unsafe_code)]

use super::choose::NodeMap;
use super::choose::{CallPlace, JobProcessors};
use super::lines::{self, Lines, NoLines};
use super::nodes::room_of;
use super::scratch::{NearMemory, OnStack};
use super::shared::{SharedBuffers, mapped};
use super::vector::Vector;
use crate::common::error::Result;
use crate::p2p::channel::{Channel, Ticket};
use fastpath_protocol::buffer::Buffer;
use std::alloc::{Layout, alloc, dealloc};
use std::future::ready;
use std::pin::pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

/// Members of one collective call. Messages of a pair arrive in the order in which they were sent.
///
/// The futures are ready at once on a blocking fabric ([`Channel`]). On [`super::nonblocking::NonblockingFabric`] they
/// become ready when a request has ended.
pub trait Fabric {
    /// Handle of a started operation.
    type Ticket;
    /// Memory that needs no allocation.
    type Near: NearMemory;

    /// Returns the rank of the calling member.
    fn rank(&self) -> u32;
    /// Returns the number of members.
    fn size(&self) -> u32;
    /// Returns how the ranks share processors, equal on all members.
    fn room(&self) -> JobProcessors<'_>;
    /// Returns the distribution over hosts; `None` if all members are on one host.
    fn nodes(&self) -> Option<&NodeMap>;

    /// Returns whether [`Fabric::shared`] may return buffers. The value is equal on all members.
    #[inline]
    fn may_share(&self) -> bool {
        false
    }

    /// Returns the shared buffers of the members, if any. All members make this call in the same collective call.
    fn shared(&self) -> Result<Option<&SharedBuffers>> {
        Ok(None)
    }

    /// Returns whether [`Fabric::lines`] may begin a call. The value is equal on all members.
    #[inline]
    fn may_line(&self) -> bool {
        false
    }

    /// Returns whether the members have shared lines already. The value is equal on all members.
    #[inline]
    fn has_lines(&self) -> bool {
        false
    }

    /// Begins a call through the shared lines of the members, if there are any. All members make this call in the same
    /// collective call.
    fn lines(&self) -> Result<Option<impl Lines>> {
        Ok(None::<NoLines>)
    }

    /// Sends. The future is ready when the buffer may be reused, possibly only after the receive is posted.
    ///
    /// # Safety
    /// The buffer is readable.
    unsafe fn send(&self, to: u32, data: Buffer) -> impl Future<Output = Result>;
    /// Receives.
    ///
    /// # Safety
    /// The buffer is writable.
    unsafe fn recv(&self, from: u32, data: Buffer) -> impl Future<Output = Result>;
    /// Sends and receives at the same time.
    ///
    /// # Safety
    /// `out` is readable and `into` writable. They do not overlap.
    unsafe fn exchange(
        &self, to: u32, out: Buffer, from: u32, into: Buffer,
    ) -> impl Future<Output = Result>;
    /// Starts a send.
    ///
    /// # Safety
    /// The buffer is readable and unchanged until the ticket has been waited for.
    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Self::Ticket>;
    /// Starts a receive.
    ///
    /// # Safety
    /// The buffer is writable and unused until the ticket has been waited for.
    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Self::Ticket>;
    /// Waits for an operation.
    fn wait(&self, ticket: Self::Ticket) -> impl Future<Output = Result>;

    /// Runs an algorithm for long messages or many ranks. A nonblocking call stores the algorithm's state in a separate
    /// block, so that the state of the call itself stays small.
    #[inline(always)] // avoids a copy, see `drive`
    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        algorithm
    }

    /// Allocates memory for the duration of the call; null if there is too little.
    ///
    /// # Safety
    /// The size must be above 0.
    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        // SAFETY: FABRIC; the size is above 0.
        unsafe { alloc(layout) }
    }

    /// Frees memory of [`Fabric::allocate`].
    ///
    /// # Safety
    /// The memory is from [`Fabric::allocate`], with the same `layout`.
    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: FABRIC; the memory is from `allocate`, with this layout.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    /// Defers an error of unequal lengths to the end of the call, because other ranks wait for this rank's messages.
    /// Receives defer such errors themselves.
    #[inline]
    fn put_off(&self, result: Result) -> Result {
        result
    }
}

/// Fabric of a communicator, with the state that MPI calls need besides messages.
pub trait CallFabric: Fabric + Sized {
    /// Returns the channel: communicator, tag, and state of the checks.
    fn channel(&self) -> &Channel<'_>;

    /// Returns the fabric of the local group of the call's intercommunicator. Errors: `MPI_ERR_COMM` on an
    /// intracommunicator.
    fn beside(&self) -> Result<Self>;

    /// Returns whether the call only checks its arguments, and must stop at [`checked`].
    #[inline]
    fn only_checks(&self) -> bool {
        false
    }
}

/// Marks the point between the checks of the arguments and the first message. A call that only checks stops here.
#[inline]
pub(super) async fn checked<C: CallFabric>(f: &C) {
    if f.only_checks() {
        std::future::pending().await
    }
}

impl CallFabric for Channel<'_> {
    #[inline]
    fn channel(&self) -> &Channel<'_> {
        self
    }

    fn beside(&self) -> Result<Self> {
        let local = self.comm.find_local()?;
        Ok(Channel::tagged(self.process, local, self.tag))
    }
}

impl Fabric for Channel<'_> {
    type Ticket = Ticket;
    type Near = OnStack;

    #[inline]
    fn rank(&self) -> u32 {
        self.comm.rank
    }

    #[inline]
    fn size(&self) -> u32 {
        self.comm.size()
    }

    #[inline]
    fn room(&self) -> JobProcessors<'_> {
        room_of(self.process, self.comm)
    }

    #[inline]
    fn nodes(&self) -> Option<&NodeMap> {
        self.comm.nodes(self.process)
    }

    #[inline]
    fn may_share(&self) -> bool {
        mapped::may_be_there(self)
    }

    fn shared(&self) -> Result<Option<&SharedBuffers>> {
        mapped::buffers(self)
    }

    #[inline]
    fn may_line(&self) -> bool {
        lines::mapped::may_be_there(self)
    }

    #[inline]
    fn has_lines(&self) -> bool {
        lines::mapped::are_there(self)
    }

    #[inline]
    fn lines(&self) -> Result<Option<impl Lines>> {
        lines::mapped::begin(self)
    }

    #[inline]
    unsafe fn send(&self, to: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        ready(unsafe { Channel::send(self, to, data) })
    }

    #[inline]
    unsafe fn recv(&self, from: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        ready(unsafe { self.put_off(Channel::recv(self, from, data)) })
    }

    #[inline]
    unsafe fn exchange(
        &self, to: u32, out: Buffer, from: u32, into: Buffer,
    ) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        ready(unsafe { self.put_off(Channel::exchange(self, to, out, from, into)) })
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: FABRIC.
        unsafe { Channel::start_send(self, to, data) }
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: FABRIC.
        unsafe { Channel::start_recv(self, from, data) }
    }

    fn wait(&self, ticket: Ticket) -> impl Future<Output = Result> {
        ready(self.put_off(Channel::wait(self, ticket)))
    }

    #[inline]
    fn put_off(&self, result: Result) -> Result {
        Channel::put_off(self, result)
    }
}

/// Returns what the members share. The choice of an algorithm needs it.
pub(super) fn place<F: Fabric>(f: &F) -> CallPlace<'_> {
    CallPlace { room: f.room(), may_share: f.may_share(), may_line: f.may_line() }
}

/// Runs an algorithm on a blocking fabric, whose futures are always ready.
// Always inlined, so that the state machine is not copied: `fastpath bench instructions` counts MPI_Barrier.
#[inline(always)]
pub fn drive<T>(algorithm: impl Future<Output = T>) -> T {
    let mut algorithm = pin!(algorithm);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = algorithm.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Sends and receives at the same time. A side without bytes has no message, because both ranks know the lengths.
///
/// # Safety
/// `out` is readable and `into` writable. They do not overlap.
#[inline]
pub(super) async unsafe fn trade<F: Fabric>(
    f: &F, to: u32, out: Vector<'_>, from: u32, into: Vector<'_>,
) -> Result {
    // SAFETY: VECTORS.
    unsafe {
        match (out.bytes() > 0, into.bytes() > 0) {
            (true, true) => f.exchange(to, out.buffer(), from, into.buffer()).await,
            (true, false) => f.send(to, out.buffer()).await,
            (false, true) => f.recv(from, into.buffer()).await,
            (false, false) => Ok(()),
        }
    }
}

/// Largest message, in bytes, whose send ends immediately, so that messages can go one by one. Longer messages overlap.
pub(super) const IN_TURN_BYTES: u64 = 1024;

/// Sends the data to all other ranks.
///
/// # Safety
/// The data is readable.
pub(super) async unsafe fn send_to_all<F: Fabric>(f: &F, data: Vector<'_>) -> Result {
    let others = (0..f.size()).filter(|&r| r != f.rank());
    // SAFETY: VECTORS; the data is only read until all sends have ended.
    unsafe {
        if data.bytes() <= IN_TURN_BYTES || f.size() == 2 {
            let mut result = Ok(());
            for rank in others {
                result = result.and(f.send(rank, data.buffer()).await);
            }
            return result;
        }
        let mut batch = Batch::new(f);
        others.for_each(|rank| batch.send(rank, data));
        batch.finish().await
    }
}

/// Concurrent operations. Every one of them has ended when [`Batch::finish`] returns, even after an error.
pub(crate) struct Batch<'f, F: Fabric> {
    fabric: &'f F,
    /// The first operations, which need no allocation.
    first: [Option<F::Ticket>; FEW],
    others: Vec<F::Ticket>,
    result: Result,
}

const FEW: usize = 8;

impl<'f, F: Fabric> Batch<'f, F> {
    pub(crate) fn new(fabric: &'f F) -> Self {
        Batch { fabric, first: [const { None }; FEW], others: Vec::new(), result: Ok(()) }
    }

    /// Starts a send unless it has no bytes or an earlier operation failed.
    ///
    /// # Safety
    /// The data is readable and unchanged until [`Batch::finish`] has returned.
    pub(crate) unsafe fn send(&mut self, to: u32, data: Vector<'_>) {
        if data.bytes() > 0 && self.result.is_ok() {
            // SAFETY: VECTORS: the memory stays valid until `finish` has returned.
            let started = unsafe { self.fabric.start_send(to, data.buffer()) };
            self.add(started);
        }
    }

    /// Starts a receive unless it has no bytes or an earlier operation failed.
    ///
    /// # Safety
    /// The memory is writable and unused until [`Batch::finish`] has returned.
    pub(crate) unsafe fn recv(&mut self, from: u32, data: Vector<'_>) {
        if data.bytes() > 0 && self.result.is_ok() {
            // SAFETY: VECTORS: the memory stays valid until `finish` has returned.
            let started = unsafe { self.fabric.start_recv(from, data.buffer()) };
            self.add(started);
        }
    }

    fn add(&mut self, started: Result<F::Ticket>) {
        match started {
            Ok(ticket) => match self.first.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some(ticket),
                None => self.others.push(ticket),
            },
            Err(e) => self.result = Err(e),
        }
    }

    /// Waits for all operations, and returns the first error.
    #[must_use = "an operation may have failed"]
    pub(crate) async fn finish(&mut self) -> Result {
        let mut waited = Ok(());
        for index in 0..FEW {
            if let Some(ticket) = self.first[index].take() {
                waited = waited.and(self.fabric.wait(ticket).await);
            }
        }
        while let Some(ticket) = self.others.pop() {
            waited = waited.and(self.fabric.wait(ticket).await);
        }
        std::mem::replace(&mut self.result, Ok(())).and(waited)
    }
}
