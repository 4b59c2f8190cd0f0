//! Collective calls that do not block: the fabric that posts and returns, and the request that goes on with an
//! algorithm.
#![allow(unsafe_code)]

use super::agreement::{compare_call, refuse_call};
use super::arguments::Collective;
use super::choose::Nodes;
use super::choose::Room;
use super::fabric::{Call, Fabric, drive};
use super::nodes::room_of;
use super::scratch::InState;
use crate::common::consts::MPI_ERR_REQUEST;
use crate::common::error::{COMPLETE_FIRST, COMPLETE_IT, Error, Result};
use crate::common::spare_blocks::{Block, Spare};
use crate::common::status::Status;
use crate::objects::comm::Comm;
use crate::p2p::channel::{Channel, Ticket};
use crate::p2p::request::{self, Operation, Watch};
use crate::process::{self, Process};
use fastpath_protocol::RequestId;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::tag::key_context;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The fabric of a call that does not block, with the communicator, which may be freed meanwhile.
pub struct Outstanding {
    channel: Channel<'static>,
    comm: Rc<Comm>,
    /// Memory of earlier starts; none where there are no others.
    memory: Option<RefCell<Vec<Kept>>>,
    only_checks: Cell<bool>,
}

/// Memory, and how it was allocated.
type Kept = (NonNull<u8>, Layout);

impl Drop for Outstanding {
    fn drop(&mut self) {
        for (at, layout) in self.memory.take().map(RefCell::into_inner).into_iter().flatten() {
            // SAFETY: `release` has kept it, with its layout.
            unsafe { dealloc(at.as_ptr(), layout) };
        }
    }
}

impl Outstanding {
    /// Of the next collective call on a communicator.
    fn next(comm: Rc<Comm>) -> Self {
        Outstanding::tagged(comm, Channel::take_tag)
    }

    /// Of a persistent call: the members make them in the same order, but may start them in any.
    fn persistent(comm: Rc<Comm>) -> Self {
        let mut persistent = Outstanding::tagged(comm, Channel::take_persistent_tag);
        persistent.memory = Some(RefCell::default());
        persistent
    }

    fn tagged(comm: Rc<Comm>, take_tag: fn(&Comm) -> i32) -> Self {
        let outstanding = Outstanding::with(comm, take_tag);
        outstanding.begin();
        outstanding
    }

    fn with(comm: Rc<Comm>, take_tag: impl FnOnce(&Comm) -> i32) -> Self {
        // SAFETY: the caller is inside MPI, as whoever polls is.
        let process = unsafe { process::get_unlocked() };
        // SAFETY: what the `Rc` of this object points to does not move, and lives as long as the object.
        let lasting: &'static Comm = unsafe { &*Rc::as_ptr(&comm) };
        Outstanding {
            channel: Channel::tagged(process, lasting, take_tag(&comm)),
            comm,
            memory: None,
            only_checks: Cell::new(false),
        }
    }

    /// Begins the call, perhaps again.
    fn begin(&self) {
        let is_unchecked = self.channel.process.checks().is_some() && !self.comm.is_inter();
        self.channel.refuse.set(is_unchecked.then_some(refuse_call));
    }

    /// Where the state of the call may lie.
    fn spare(&self) -> &'static Spare {
        &self.channel.process.spare_blocks
    }

    /// Where its messages travel, and their tag.
    fn way(&self) -> (Rc<Comm>, i32) {
        (self.comm.clone(), self.channel.tag)
    }

    /// What becomes ready when the operation has ended.
    fn end(&self, started: Result<Ticket>) -> Ended<'_> {
        let channel = &self.channel;
        Ended { channel, started: Some(started) }
    }
}

/// A part of an algorithm in memory of its own, which later calls use again.
struct Apart<F>(Block<F>);

impl<F: Future> Future for Apart<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // It is filled where it is made.
        self.0.get().map_or(Poll::Pending, |algorithm| algorithm.poll(context))
    }
}

/// The end of an operation that was started.
struct Ended<'a> {
    channel: &'a Channel<'static>,
    started: Option<Result<Ticket>>,
}

impl Future for Ended<'_> {
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

impl Call for Outstanding {
    fn channel(&self) -> &Channel<'_> {
        &self.channel
    }

    fn beside(&self) -> Result<Self> {
        let local = self.comm.find_local()?.clone();
        let tag = self.channel.tag;
        Ok(Outstanding::with(local, |_| tag))
    }

    fn only_checks(&self) -> bool {
        self.only_checks.get()
    }
}

impl Fabric for Outstanding {
    type Ticket = Ticket;
    type Near = InState;

    fn rank(&self) -> u32 {
        self.comm.rank
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn room(&self) -> Room<'_> {
        room_of(self.channel.process, &self.comm)
    }

    fn nodes(&self) -> Option<&Nodes> {
        self.comm.nodes(self.channel.process)
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
        let mut block = Block::new(self.spare());
        block.fill(|| algorithm);
        Apart(block)
    }

    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        let fits = |kept: &Kept| kept.1 == layout;
        if let Some(mut memory) = self.memory.as_ref().map(RefCell::borrow_mut)
            && let Some(at) = memory.iter().position(fits)
        {
            return memory.swap_remove(at).0.as_ptr();
        }
        // SAFETY: FABRIC: the size is above 0.
        unsafe { alloc(layout) }
    }

    unsafe fn release(&self, at: NonNull<u8>, layout: Layout) {
        match &self.memory {
            Some(memory) => memory.borrow_mut().push((at, layout)),
            // SAFETY: FABRIC: from `allocate`, with this layout.
            None => unsafe { dealloc(at.as_ptr(), layout) },
        }
    }

    fn put_off(&self, result: Result) -> Result {
        self.channel.put_off(result)
    }
}

/// What a call ends with.
pub(crate) trait CollResult {
    /// The status of its request.
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

/// A call under way, or a persistent one between two.
struct Running<F, M> {
    algorithm: Block<F>,
    /// Begins it again; none for a call that is made once.
    make: Option<M>,
    /// Name of the MPI call, for messages and checks.
    call: &'static str,
    comm: usize,
    /// Where its messages travel, and their tag.
    way: (Rc<Comm>, i32),
    calls_back: bool,
    awaited: RequestId,
}

impl<F, M> Running<F, M> {
    fn new(p: &Process, f: &Outstanding, calls_back: bool, make: Option<M>) -> Self {
        Running {
            algorithm: Block::new(f.spare()),
            make,
            call: p.call.get(),
            comm: f.comm.handle.get(),
            way: f.way(),
            calls_back,
            awaited: 0,
        }
    }
}

impl<F> Running<F, fn() -> F> {
    /// Of a call that is made once.
    fn once(
        p: &Process, f: Outstanding, calls_back: bool, call: impl FnOnce(Outstanding) -> F,
    ) -> Self {
        let mut running = Running::new(p, &f, calls_back, None);
        running.algorithm.fill(|| call(f));
        running
    }
}

impl<F, M, T> Operation<Process> for Running<F, M>
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

    fn watch(&self) -> Watch {
        match self.awaited {
            0 => Watch::Named,
            id => Watch::Request(id),
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

    fn carries(&self, context: u64, tag: i32) -> bool {
        let (comm, own) = &self.way;
        let is_of = |comm: &Comm| key_context(comm.context.collective().key(0)) == context;
        // Those of an intercommunicator travel within its local group, too.
        *own == tag && (is_of(comm) || comm.find_local().is_ok_and(|local| is_of(local)))
    }

    fn comm(&self) -> Option<usize> {
        Some(self.comm)
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        if let Some(make) = &self.make {
            self.algorithm.fill(make);
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
                    "the request of {} is active: it can be freed when it is complete",
                    self.call
                );
                Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST)))
            }
        }
    }
}

/// Begins a call; returns its request.
///
/// # Errors
/// What `read` returns, and what the call finds at once.
///
/// # Safety
/// As [`Collective::run`].
pub(super) unsafe fn start<C: Collective + 'static>(
    p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
) -> Result<usize> {
    let f = Outstanding::next(comm);
    let call = read(&f.comm)?;
    let calls_back = call.calls_back();
    let running = Running::once(p, f, calls_back, |f| async move {
        // SAFETY: the buffers are as `Collective::run` wants them until the request has completed, by this function's
        // contract.
        unsafe { call.run(&f).await }
    });
    begin(p, running)
}

/// Goes on with a call whose messages have this tag, and which runs no functions of the program; returns its request.
///
/// # Errors
/// What the call finds at once.
pub(super) fn go_on<F>(
    p: &Process, comm: usize, tag: i32, rest: impl FnOnce(Outstanding) -> F,
) -> Result<usize>
where
    F: Future<Output = Result> + 'static,
{
    let f = Outstanding::with(p.comm(comm)?, |_| tag);
    begin(p, Running::once(p, f, false, rest))
}

/// Begins a call of this library on a communicator, whose request has a status, and which may run functions of the
/// program; returns its request.
///
/// # Errors
/// `MPI_ERR_OTHER` where there are no more requests.
pub(crate) fn start_status<F>(
    p: &Process, comm: Rc<Comm>, calls_back: bool, call: impl FnOnce(Outstanding) -> F,
) -> Result<usize>
where
    F: Future<Output = Result<Status>> + 'static,
{
    let f = Outstanding::with(comm, Channel::take_tag);
    let mut running = Running::once(p, f, calls_back, call);
    let ended = running.poll(p);
    request::make_operation(p, Box::new(Begun { running, ended }))
}

/// A call that has been polled once, and may have ended.
struct Begun<R> {
    running: R,
    ended: Option<Result<Status>>,
}

impl<R: Operation<Process>> Operation<Process> for Begun<R> {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        self.ended.take().or_else(|| self.running.poll(p))
    }

    fn watch(&self) -> Watch {
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

/// Polls a call for the first time. It may end at once; then it needs no request of its own.
fn begin<F: Future<Output = Result> + 'static>(
    p: &Process, mut running: Running<F, fn() -> F>,
) -> Result<usize> {
    match running.poll(p) {
        Some(result) => result.and_then(|_| request::completed_request(p)),
        None => request::make_operation(p, Box::new(running)),
    }
}

/// Makes a persistent request of a call, to be started.
///
/// # Errors
/// What `read` returns, and what the call refuses before its first message.
///
/// # Safety
/// As [`Collective::run`], from each start to its completion.
pub(super) unsafe fn prepare<C: Collective + 'static>(
    p: &Process, comm: Rc<Comm>, read: impl FnOnce(&Comm) -> Result<C>,
) -> Result<usize> {
    let f = Outstanding::persistent(comm);
    let call = {
        // The messages of its starts meet those of no other call: so it is compared here.
        let meeting = f.channel.refuse.get().map(|refuse| {
            let meeting = Channel::next(p, &f.comm);
            meeting.refuse.set(Some(refuse));
            meeting
        });
        let read = read(&f.comm).and_then(|call| check(&f, &call).map(|()| call));
        // One side tells the others of a refusal. A call that was taken back is none: they are to hear nothing.
        let was_taken_back = read.is_err() && f.channel.refuse.get().is_none();
        f.channel.refuse.set(None);
        if was_taken_back && let Some(meeting) = &meeting {
            meeting.take_back();
        }
        let call = read?;
        // Other threads may make calls meanwhile.
        let name = p.call.get();
        let compared = meeting.as_ref().map_or(Ok(()), |meeting| drive(compare_call(meeting)));
        p.call.set(name);
        compared?;
        call
    };
    let calls_back = call.calls_back();
    let kept = Rc::new((f, call));
    let own = kept.clone();
    let running = Running::new(
        p,
        &kept.0,
        calls_back,
        Some(move || {
            let kept = own.clone();
            async move {
                let (f, call) = &*kept;
                f.begin();
                // SAFETY: the buffers are as `Collective::run` wants them from each start to its completion, by this
                // function's contract.
                unsafe { call.run(f).await }
            }
        }),
    );
    request::make_persistent_operation(p, Box::new(running))
}

/// Makes a persistent request of a call whose arguments need neither checks nor comparison, and which runs no functions
/// of the program.
///
/// # Errors
/// `MPI_ERR_COMM`; `MPI_ERR_OTHER` where there are no more requests.
pub(super) fn prepare_checked<F>(
    p: &Process, comm: usize, call: impl Fn(Rc<Outstanding>) -> F + 'static,
) -> Result<usize>
where
    F: Future<Output = Result> + 'static,
{
    let f = Rc::new(Outstanding::persistent(p.comm(comm)?));
    let own = f.clone();
    let running = Running::new(p, &f, false, Some(move || call(own.clone())));
    request::make_persistent_operation(p, Box::new(running))
}

/// Checks the arguments of a call as the call does, without carrying it out.
fn check<C: Collective>(f: &Outstanding, call: &C) -> Result {
    f.only_checks.set(true);
    // SAFETY: it ends before it touches a buffer.
    let checks = pin!(unsafe { call.run(f) });
    let polled = checks.poll(&mut Context::from_waker(Waker::noop()));
    f.only_checks.set(false);
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Ok(()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::*;
    use super::*;

    /// Bytes of what a request of the call keeps, beside its data.
    fn size_of_running<C: Collective + 'static>() -> usize {
        fn of<F, M: Fn(Outstanding, C) -> F, C>(_: M) -> usize {
            size_of::<F>() + size_of::<Running<F, fn() -> F>>()
        }
        // SAFETY: never run.
        of(|f: Outstanding, call: C| async move { unsafe { call.run(&f).await } })
    }

    #[test]
    fn request__takes_at_most_2_kib() {
        let sizes = [
            ("barrier", size_of_running::<Barrier>()),
            ("bcast", size_of_running::<Bcast>()),
            ("gather", size_of_running::<Gather>()),
            ("gatherv", size_of_running::<Gatherv>()),
            ("scatter", size_of_running::<Scatter>()),
            ("scatterv", size_of_running::<Scatterv>()),
            ("allgather", size_of_running::<Allgather>()),
            ("allgatherv", size_of_running::<Allgatherv>()),
            ("alltoall", size_of_running::<Alltoall>()),
            ("alltoallv", size_of_running::<Alltoallv>()),
            ("alltoallw", size_of_running::<Alltoallw>()),
            ("reduce", size_of_running::<Reduce>()),
            ("allreduce", size_of_running::<Allreduce>()),
            ("reduce_scatter", size_of_running::<ReduceScatter>()),
            ("reduce_scatter_block", size_of_running::<ReduceScatterBlock>()),
            ("scan", size_of_running::<Scan>()),
            ("exscan", size_of_running::<Exscan>()),
            ("neighbor_alltoallw", size_of_running::<NeighborAlltoallw>()),
        ];
        for (name, bytes) in sizes {
            eprintln!("{name} {bytes}");
            assert!(bytes <= 2048, "{name} takes {bytes} bytes");
        }
    }
}
