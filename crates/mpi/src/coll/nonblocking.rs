//! Nonblocking collective calls: a fabric that posts operations, and a request that advances an algorithm. FABRIC is
//! defined in `coll.rs`.
#![allow(unsafe_code)]

mod persistent;

pub(super) use persistent::{prepare, prepare_checked};

use super::agreement::refuse_call;
use super::arguments::Collective;
use super::choose::JobProcessors;
use super::choose::NodeMap;
use super::fabric::{CallFabric, Fabric};
use super::lines::outstanding::OutstandingCall;
use super::lines::{self, Lines};
use super::nodes::room_of;
use super::scratch::InState;
use crate::common::consts::MPI_ERR_REQUEST;
use crate::common::error::{COMPLETE_FIRST, COMPLETE_IT, Error, Result};
use crate::common::spare_blocks::{FutureBlock, Spare};
use crate::common::status::Status;
use crate::objects::comm::Comm;
use crate::objects::operation::AWAITS_MEMORY;
use crate::objects::shared_lines::{PersistentLines, first_call_of};
use crate::p2p::channel::{Channel, Ticket};
use crate::p2p::request::{self, Operation, PollCondition};
use crate::process::{self, Process};
use fastpath_protocol::RequestId;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::tag::key_context;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Fabric of a nonblocking call. It keeps the communicator, which the program may free meanwhile.
pub struct NonblockingFabric {
    channel: Channel<'static>,
    comm: Rc<Comm>,
    /// Memory that earlier starts of a persistent call have released, for reuse; `None` if the call is not persistent.
    memory: Option<RefCell<Vec<SpareMemory>>>,
    /// Lines of a persistent call, if it has some.
    lines: Option<&'static PersistentLines>,
    only_checks: Cell<bool>,
}

type SpareMemory = (NonNull<u8>, Layout);

impl Drop for NonblockingFabric {
    fn drop(&mut self) {
        if let Some(lines) = self.lines {
            lines.is_held.set(false);
        }
        for (at, layout) in self.memory.take().map(RefCell::into_inner).into_iter().flatten() {
            // SAFETY: `release` has stored the memory with its layout.
            unsafe { dealloc(at.as_ptr(), layout) };
        }
    }
}

impl NonblockingFabric {
    /// Makes the fabric of the next collective call on a communicator.
    fn next(comm: Rc<Comm>) -> Self {
        NonblockingFabric::tagged(comm, Channel::take_tag)
    }

    /// Makes the fabric of a persistent call. The fabric takes its tag here, not at a start: all members make their
    /// persistent calls in one order, but may start them in different orders.
    fn persistent(comm: Rc<Comm>) -> Self {
        let number = comm.persistent_sequence.get();
        let mut persistent = NonblockingFabric::tagged(comm, Channel::take_persistent_tag);
        persistent.memory = Some(RefCell::default());
        persistent.lines = lines::mapped::hold_persistent(&persistent.channel, number);
        persistent
    }

    fn tagged(comm: Rc<Comm>, take_tag: fn(&Comm) -> i32) -> Self {
        let outstanding = NonblockingFabric::with(comm, take_tag);
        outstanding.begin();
        outstanding
    }

    fn with(comm: Rc<Comm>, take_tag: impl FnOnce(&Comm) -> i32) -> Self {
        // SAFETY: the caller is inside MPI, and so is every later poll.
        let process = unsafe { process::get_unlocked() };
        // SAFETY: the communicator does not move, and the `Rc` in this object keeps it alive.
        let lasting: &'static Comm = unsafe { &*Rc::as_ptr(&comm) };
        NonblockingFabric {
            channel: Channel::tagged(process, lasting, take_tag(&comm)),
            comm,
            memory: None,
            lines: None,
            only_checks: Cell::new(false),
        }
    }

    /// Begins a start. All members start a persistent call equally often, so the numbers of its starts agree.
    fn begin(&self) {
        if let Some(lines) = self.lines {
            lines.begin();
        }
        let is_unchecked = self.channel.process.checks().is_some() && !self.comm.is_inter();
        self.channel.refuse.set(is_unchecked.then_some(refuse_call));
    }

    fn spare(&self) -> &'static Spare {
        &self.channel.process.spare_blocks
    }

    fn way(&self) -> (Rc<Comm>, i32) {
        (self.comm.clone(), self.channel.tag)
    }

    /// Returns a future that is ready when the operation has ended.
    fn end(&self, started: Result<Ticket>) -> TicketEnd<'_> {
        let channel = &self.channel;
        TicketEnd { channel, started: Some(started) }
    }
}

/// Part of an algorithm, stored in memory that later calls reuse.
struct SeparateFuture<F>(FutureBlock<F>);

impl<F: Future> Future for SeparateFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // `get` never returns `None` here, because `apart` filled the block before it made this future.
        self.0.get().map_or(Poll::Pending, |algorithm| algorithm.poll(context))
    }
}

struct TicketEnd<'a> {
    channel: &'a Channel<'static>,
    started: Option<Result<Ticket>>,
}

impl Future for TicketEnd<'_> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result> {
        let ticket = match self.started.take() {
            None => return Poll::Ready(Ok(())),
            Some(Err(error)) => return Poll::Ready(Err(error)),
            Some(Ok(ticket)) => ticket,
        };
        match self.channel.has_ended(&ticket) {
            Ok(true) => Poll::Ready(self.channel.finish(ticket)),
            Ok(false) => {
                self.channel.process.extras.note_awaited(ticket.id());
                self.started = Some(Ok(ticket));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl CallFabric for NonblockingFabric {
    fn channel(&self) -> &Channel<'_> {
        &self.channel
    }

    fn beside(&self) -> Result<Self> {
        let local = self.comm.find_local()?.clone();
        let tag = self.channel.tag;
        Ok(NonblockingFabric::with(local, |_| tag))
    }

    fn only_checks(&self) -> bool {
        self.only_checks.get()
    }
}

impl Fabric for NonblockingFabric {
    type Ticket = Ticket;
    type Near = InState;

    fn rank(&self) -> u32 {
        self.comm.rank
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn room(&self) -> JobProcessors<'_> {
        room_of(self.channel.process, &self.comm)
    }

    fn nodes(&self) -> Option<&NodeMap> {
        self.comm.nodes(self.channel.process)
    }

    fn may_line(&self) -> bool {
        match self.memory.is_none() {
            true => lines::mapped::outstanding(&self.channel).is_some(),
            false => self.lines.is_some(),
        }
    }

    fn lines(&self) -> Result<Option<impl Lines>> {
        let channel = &self.channel;
        let found = match (&self.memory, self.lines) {
            (None, _) => lines::mapped::outstanding(channel)
                .map(|queue| (queue, first_call_of(channel.sequence()))),
            (Some(_), lines) => lines.map(|lines| (&lines.queue, lines.call())),
        };
        Ok(found.map(|(queue, call)| OutstandingCall::new(queue, channel, call)))
    }

    unsafe fn send(&self, to: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        self.end(unsafe { self.channel.post_send(to, data) })
    }

    unsafe fn recv(&self, from: u32, data: Buffer) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        let started = unsafe { self.channel.post_recv(from, data) };
        async move { self.put_off(self.end(started).await) }
    }

    unsafe fn exchange(
        &self, to: u32, out: Buffer, from: u32, into: Buffer,
    ) -> impl Future<Output = Result> {
        // SAFETY: FABRIC.
        let (received, sent) = unsafe { self.channel.post_exchange(to, out, from, into) };
        async move {
            let sent = self.end(sent).await;
            self.put_off(self.end(received).await.and(sent))
        }
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.channel.post_send(to, data) }
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: FABRIC.
        unsafe { self.channel.post_recv(from, data) }
    }

    async fn wait(&self, ticket: Ticket) -> Result {
        self.put_off(self.end(Ok(ticket)).await)
    }

    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        let mut block = FutureBlock::new(self.spare());
        block.fill(|| algorithm);
        SeparateFuture(block)
    }

    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        let fits = |kept: &SpareMemory| kept.1 == layout;
        if let Some(mut memory) = self.memory.as_ref().map(RefCell::borrow_mut)
            && let Some(at) = memory.iter().position(fits)
        {
            return memory.swap_remove(at).0.as_ptr();
        }
        // SAFETY: FABRIC; the size is above 0.
        unsafe { alloc(layout) }
    }

    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        match &self.memory {
            Some(memory) => memory.borrow_mut().push((at, layout)),
            // SAFETY: FABRIC; the memory is from `allocate`, with this layout.
            None => unsafe { dealloc(at.as_ptr(), layout) },
        }
    }

    fn put_off(&self, result: Result) -> Result {
        self.channel.put_off(result)
    }
}

pub(crate) trait CollResult {
    fn status(self) -> Status;
}

impl CollResult for () {
    fn status(self) -> Status {
        request::empty_status()
    }
}

impl CollResult for Status {
    fn status(self) -> Status {
        self
    }
}

/// Outstanding call, or an inactive persistent one.
struct NonblockingCall<F, M> {
    algorithm: FutureBlock<F>,
    /// Function that begins a persistent call again; `None` for a nonblocking call.
    make: Option<M>,
    starts: u64,
    call: &'static str,
    comm: usize,
    /// Communicator and tag of the call's messages.
    way: (Rc<Comm>, i32),
    calls_back: bool,
    awaited: RequestId,
}

impl<F, M> NonblockingCall<F, M> {
    fn new(p: &Process, f: &NonblockingFabric, calls_back: bool, make: Option<M>) -> Self {
        NonblockingCall {
            algorithm: FutureBlock::new(f.spare()),
            starts: u64::from(make.is_none()),
            make,
            call: p.call.get(),
            comm: f.comm.handle.get(),
            way: f.way(),
            calls_back,
            awaited: 0,
        }
    }
}

impl<F> NonblockingCall<F, fn() -> F> {
    fn once(
        p: &Process, f: NonblockingFabric, calls_back: bool,
        call: impl FnOnce(NonblockingFabric) -> F,
    ) -> Self {
        let mut running = NonblockingCall::new(p, &f, calls_back, None);
        running.algorithm.fill(|| call(f));
        running
    }
}

impl<F, M, T> Operation<Process> for NonblockingCall<F, M>
where
    F: Future<Output = Result<T>>,
    M: Fn() -> F,
    T: CollResult,
{
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        let Some(algorithm) = self.algorithm.get() else {
            return Some(Ok(request::empty_status()));
        };
        let outer = p.call.replace(self.call);
        let polled = algorithm.poll(&mut Context::from_waker(Waker::noop()));
        p.call.set(outer);
        match polled {
            Poll::Pending => {
                self.awaited = p.extras.awaited();
                None
            }
            Poll::Ready(result) => {
                self.algorithm.clear();
                self.awaited = 0;
                Some(match result {
                    Ok(outcome) => Ok(outcome.status()),
                    Err(error) if error.file().is_some() => Err(error),
                    Err(error) => Err(error.on_comm(self.comm)),
                })
            }
        }
    }

    fn watch(&self) -> PollCondition {
        match self.awaited {
            0 => PollCondition::Named,
            AWAITS_MEMORY => PollCondition::Always,
            id => PollCondition::Request(id),
        }
    }

    fn calls_back(&self) -> bool {
        self.calls_back
    }

    fn began(&self) -> &'static str {
        self.call
    }

    fn is_collective(&self) -> bool {
        true
    }

    fn starts(&self) -> u64 {
        self.starts
    }

    fn carries(&self, context: u64, tag: i32) -> bool {
        let (comm, own) = &self.way;
        let is_of = |comm: &Comm| key_context(comm.context.collective().key(0)) == context;
        // Messages of an intercommunicator are also sent within its local group.
        *own == tag && (is_of(comm) || comm.find_local().is_ok_and(|local| is_of(local)))
    }

    fn comm(&self) -> Option<usize> {
        Some(self.comm)
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        if let Some(make) = &self.make {
            self.algorithm.fill(make);
            self.starts += 1;
        }
        Ok(self.poll(p))
    }

    fn cancel(&mut self, _: &Process) -> Result {
        let text = format!("a request of {} cannot be cancelled", self.call);
        Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_IT)))
    }

    fn check_free(&self) -> Result {
        match self.algorithm.is_full() {
            false => Ok(()),
            true => {
                let text = format!(
                    "the request of {} is active and cannot be freed before it is complete",
                    self.call
                );
                Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST)))
            }
        }
    }
}

/// Begins a call and returns its request. Errors: those of `read`, and those that the call detects at once.
///
/// # Safety
/// See [`Collective::run`].
pub(super) unsafe fn start<C: Collective + 'static>(
    p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
) -> Result<usize> {
    let f = NonblockingFabric::next(comm);
    let call = read(&f.comm)?;
    let calls_back = call.calls_back();
    let running = NonblockingCall::once(p, f, calls_back, |f| async move {
        // SAFETY: the buffers are valid until the request has completed, by this function's contract.
        unsafe { call.run(&f).await }
    });
    begin(p, running)
}

/// Continues a call whose message was sent under `tag`, and returns its request. The call runs no functions of the
/// program. Errors: those that the call detects at once.
pub(super) fn go_on<F>(
    p: &Process, comm: usize, tag: i32, rest: impl FnOnce(NonblockingFabric) -> F,
) -> Result<usize>
where
    F: Future<Output = Result> + 'static,
{
    let f = NonblockingFabric::with(p.comm(comm)?, |_| tag);
    begin(p, NonblockingCall::once(p, f, false, rest))
}

/// Begins a library call, and returns its request, which has a status. `calls_back` tells whether the call runs
/// functions of the program. Errors: `MPI_ERR_OTHER` if no request is left.
pub(crate) fn start_status<F>(
    p: &Process, comm: Rc<Comm>, calls_back: bool, call: impl FnOnce(NonblockingFabric) -> F,
) -> Result<usize>
where
    F: Future<Output = Result<Status>> + 'static,
{
    let f = NonblockingFabric::with(comm, Channel::take_tag);
    let mut running = NonblockingCall::once(p, f, calls_back, call);
    let ended = running.poll(p);
    request::make_operation(p, Box::new(PolledCall { running, ended }))
}

/// Call that has been polled once, and may have ended.
struct PolledCall<R> {
    running: R,
    ended: Option<Result<Status>>,
}

impl<R: Operation<Process>> Operation<Process> for PolledCall<R> {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        self.ended.take().or_else(|| self.running.poll(p))
    }

    fn watch(&self) -> PollCondition {
        self.running.watch()
    }

    fn calls_back(&self) -> bool {
        self.running.calls_back()
    }

    fn began(&self) -> &'static str {
        self.running.began()
    }

    fn is_collective(&self) -> bool {
        true
    }

    fn carries(&self, context: u64, tag: i32) -> bool {
        self.running.carries(context, tag)
    }

    fn comm(&self) -> Option<usize> {
        self.running.comm()
    }

    fn cancel(&mut self, p: &Process) -> Result {
        self.running.cancel(p)
    }

    fn check_free(&self) -> Result {
        self.running.check_free()
    }
}

/// Polls a call for the first time. If it ends at once, it needs no separate request.
fn begin<F: Future<Output = Result> + 'static>(
    p: &Process, mut running: NonblockingCall<F, fn() -> F>,
) -> Result<usize> {
    match running.poll(p) {
        Some(result) => result.and_then(|_| request::completed_request(p)),
        None => request::make_operation(p, Box::new(running)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
