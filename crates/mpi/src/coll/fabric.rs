//! What an algorithm talks through.
#![allow(unsafe_code)]

use super::choose::Nodes;
use super::choose::Room;
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

/// The members of one collective call. Messages of a pair arrive in the order they were sent.
///
/// What an algorithm awaits is ready at once where the call blocks ([`Channel`]), and when a request has ended where it
/// does not ([`super::nonblocking::Outstanding`]).
pub trait Fabric {
    /// A started operation.
    type Ticket;
    /// Memory that an algorithm has without asking.
    type Near: NearMemory;

    /// The calling member.
    fn rank(&self) -> u32;
    /// Number of members.
    fn size(&self) -> u32;
    /// How many processors the ranks have. The same on all members.
    fn room(&self) -> Room<'_>;
    /// Which members share a host, where they are on several.
    fn nodes(&self) -> Option<&Nodes>;

    /// Whether [`Fabric::shared`] may have buffers. The same on all members.
    #[inline]
    fn may_share(&self) -> bool {
        false
    }

    /// The shared buffers of the members, which all of them ask for in the same call; None without any.
    fn shared(&self) -> Result<Option<&SharedBuffers>> {
        Ok(None)
    }

    /// Sends; ready when the buffer may be reused, perhaps only when the receiver has come.
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
    /// As for both; the buffers do not overlap.
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
    /// Waits for one.
    fn wait(&self, ticket: Self::Ticket) -> impl Future<Output = Result>;

    /// An algorithm of long messages, or of many ranks: where the state of short calls is kept, it is kept apart.
    #[inline(always)] // without a copy, as `drive`
    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        algorithm
    }

    /// Memory for the length of the call; null if there is too little.
    ///
    /// # Safety
    /// The size is above 0.
    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        // SAFETY: FABRIC: the size is above 0.
        unsafe { alloc(layout) }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// It is from [`Fabric::allocate`], with that layout.
    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: FABRIC: from `allocate`, with this layout.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    /// Puts an error of lengths that do not agree off to the end of the call: this rank goes on, since others wait for
    /// its messages. Receiving does so by itself.
    #[inline]
    fn put_off(&self, result: Result) -> Result {
        result
    }
}

/// A fabric of a communicator, as the calls of the standard need it beside the messages.
pub trait Call: Fabric + Sized {
    /// Communicator, tag, and what has still to be compared or sent.
    fn channel(&self) -> &Channel<'_>;

    /// The fabric of the same call among the local group of its intercommunicator.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` on an intracommunicator.
    fn beside(&self) -> Result<Self>;

    /// Whether the call is to end where its arguments have been checked ([`checked`]).
    #[inline]
    fn only_checks(&self) -> bool {
        false
    }
}

/// Where the arguments of a call have been checked, and before anything else happens: a call that only checks them
/// goes no further.
#[inline]
pub(super) async fn checked<C: Call>(f: &C) {
    if f.only_checks() {
        std::future::pending().await
    }
}

impl Call for Channel<'_> {
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
    fn room(&self) -> Room<'_> {
        room_of(self.process, self.comm)
    }

    #[inline]
    fn nodes(&self) -> Option<&Nodes> {
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

/// What the choice of an algorithm asks of the members' place.
pub(super) fn place<F: Fabric>(f: &F) -> (Room<'_>, bool) {
    (f.room(), f.may_share())
}

/// Runs an algorithm whose fabric blocks: it never has to wait for anything else.
// The state machine goes where it is made: `fastpath bench instructions` counts MPI_Barrier.
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

/// Sends and receives at the same time, without a message where there are no bytes: both sides know that.
///
/// # Safety
/// `out` is readable, `into` writable; they do not overlap.
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

/// Bytes of a message up to which messages to or from many ranks go in turn, because a send ends at once; longer
/// ones are under way together.
pub(super) const IN_TURN_BYTES: u64 = 1024;

/// Sends the same data to all other ranks.
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

/// Operations under way together. Whatever fails, all have ended when [`Batch::finish`] returns.
pub(crate) struct Batch<'f, F: Fabric> {
    fabric: &'f F,
    /// The first of them, and the others: few need no allocation.
    first: [Option<F::Ticket>; FEW],
    others: Vec<F::Ticket>,
    result: Result,
}

/// Operations that a batch has room for by itself.
const FEW: usize = 8;

impl<'f, F: Fabric> Batch<'f, F> {
    /// None yet.
    pub(crate) fn new(fabric: &'f F) -> Self {
        Batch { fabric, first: [const { None }; FEW], others: Vec::new(), result: Ok(()) }
    }

    /// Starts a send unless it has no bytes or an earlier operation failed.
    ///
    /// # Safety
    /// The data is readable and unchanged until [`Batch::finish`] has returned.
    pub(crate) unsafe fn send(&mut self, to: u32, data: Vector<'_>) {
        if data.bytes() > 0 && self.result.is_ok() {
            // SAFETY: VECTORS, until `finish` has returned.
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
            // SAFETY: VECTORS, until `finish` has returned.
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

    /// Waits for all; returns the first error.
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
