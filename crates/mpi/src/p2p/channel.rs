//! Messages of collective calls and of the creation of communicators. They are in the communicator's collective
//! context, match no receive of the user, and bypass the profiling interface.
//!
//! They use the communicator's collective context, never match a user's receive, and bypass the profiling interface.
//!
//! **BUFFERS.** Send buffers are readable and receive buffers writable for their layout. They stay so until the call
//! returns, or until the ticket of a started operation has been waited for. The two do not overlap.

#![allow(unsafe_code)]

pub(crate) mod deadlock;

use crate::common::consts::MPI_ERR_TRUNCATE;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::objects::arguments::Args;
use crate::objects::comm::{Comm, FIRST_TAG};
use crate::p2p::fault;
use crate::process::Process;
use fastpath_base::trace::{self, Point};
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::endpoint::ImmediateReceive;
use fastpath_protocol::matching::MatchCriteria;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::{Note, spin};
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, Fault, RequestId, RequestState, SendArgs, StartOutcome};
use fastpath_segment::AwaitedRanks;
use fastpath_transport::Post;
use std::cell::Cell;

/// Started send or receive, which must be waited for.
#[must_use]
#[derive(Debug)]
pub struct Ticket(u32);

impl Ticket {
    /// Returns whether the operation had ended when it was started.
    pub(crate) fn is_done(&self) -> bool {
        self.0 == 0
    }

    /// Frees an operation that has ended without fault and, if it is a receive, with all its bytes. Returns whether it
    /// was freed. If so, the ticket must not be used again.
    #[inline]
    pub(crate) fn finish_whole(&mut self, p: &Process) -> bool {
        if self.0 == 0 {
            return true;
        }
        let Ok(worker) = p.worker() else { return false };
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        let requests = unsafe { &mut (*worker).requests };
        let request = requests.get(self.0);
        let is_whole = request.kind == RequestKind::Send || request.received == request.bytes;
        if !request.ended_well() || !is_whole {
            return false;
        }
        requests.free(self.0);
        self.0 = 0;
        true
    }

    /// Returns the request; 0 if the operation has ended already.
    pub(crate) fn id(&self) -> RequestId {
        self.0
    }
}

/// Number of calls before tags repeat.
const TAGS: u32 = 1 << 24;
/// Internal tag of the first persistent collective call. Tags of later calls are below it.
const FIRST_PERSISTENT_TAG: i32 = FIRST_TAG - TAGS as i32;

/// Connection to the other members of one communicator, for one collective call.
pub struct Channel<'a> {
    /// The process.
    pub process: &'a Process,
    /// The communicator.
    pub comm: &'a Comm,
    /// Internal tag of this call's messages, below 0.
    pub tag: i32,
    context: Context,
    /// First error that [`Channel::put_off`] has deferred: a message had an unexpected length.
    disagreement: Cell<Option<Error>>,
    /// With checks, the function that notifies the other ranks if this rank refuses its own arguments. While the ranks
    /// compare their arguments, the function does nothing. Afterwards the field is `None`.
    pub(crate) refuse: Cell<Option<fn(&Channel<'_>)>>,
}

impl Drop for Channel<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(refuse) = self.refuse.get() {
            refuse(self);
        }
    }
}

impl<'a> Channel<'a> {
    /// Returns the channel of the next collective call on `comm`. All members make these calls in the same order.
    #[inline]
    pub fn next(process: &'a Process, comm: &'a Comm) -> Self {
        Channel::tagged(process, comm, Channel::take_tag(comm))
    }

    /// Returns the tag of the next collective call on `comm`, and counts the call.
    #[inline]
    pub(crate) fn take_tag(comm: &Comm) -> i32 {
        let tag = Channel::next_tag(comm);
        Channel::advance(comm);
        tag
    }

    /// Returns the tag of the next persistent collective call on `comm`. A persistent call keeps its tag for all
    /// starts, because members may start persistent calls in any order.
    pub(crate) fn take_persistent_tag(comm: &Comm) -> i32 {
        let tag = Channel::next_persistent_tag(comm);
        comm.persistent_sequence.set(comm.persistent_sequence.get().wrapping_add(1));
        tag
    }

    fn next_persistent_tag(comm: &Comm) -> i32 {
        FIRST_PERSISTENT_TAG - (comm.persistent_sequence.get() % u64::from(TAGS)) as i32
    }

    /// Returns the tag of the next collective call on `comm`. Does not count the call; see [`Channel::advance`].
    #[inline]
    pub(crate) fn next_tag(comm: &Comm) -> i32 {
        FIRST_TAG - (comm.collective_sequence.get() % u64::from(TAGS)) as i32
    }

    /// Returns the number of this call among all collective calls on its communicator, including refused calls. Not for
    /// persistent calls.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        let begun = self.comm.collective_sequence.get();
        begun - begun.wrapping_sub((FIRST_TAG - self.tag) as u64) % u64::from(TAGS)
    }

    #[inline]
    pub(crate) fn advance(comm: &Comm) {
        comm.collective_sequence.set(comm.collective_sequence.get().wrapping_add(1));
    }

    /// Removes this call from the count of collective calls. The call must not have sent any message.
    pub(crate) fn take_back(&self) {
        // A start of a persistent call is never undone: its arguments were checked when the request was made.
        if self.tag > FIRST_PERSISTENT_TAG {
            let sequence = &self.comm.collective_sequence;
            sequence.set(sequence.get().wrapping_sub(1));
        } else {
            let sequence = &self.comm.persistent_sequence;
            sequence.set(sequence.get().wrapping_sub(1));
        }
        self.refuse.set(None);
    }

    /// Returns a channel with a given tag. Calls that only some members make (`MPI_Comm_create_group`) use 0 or more.
    #[inline]
    pub fn tagged(process: &'a Process, comm: &'a Comm, tag: i32) -> Self {
        Channel::in_context(process, comm, comm.context.collective(), tag)
    }

    /// Returns a channel in a context of the communicator; see [`Channel::tagged`].
    #[inline]
    pub(crate) fn in_context(
        process: &'a Process, comm: &'a Comm, context: Context, tag: i32,
    ) -> Self {
        Channel {
            process,
            comm,
            tag,
            context,
            disagreement: Cell::new(None),
            refuse: Cell::new(None),
        }
    }

    /// Defers an error of unequal lengths to the end of the call, because other ranks wait for this rank's messages.
    #[inline]
    pub(crate) fn put_off(&self, result: Result) -> Result {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.put_off_slow(error),
        }
    }

    #[cold]
    #[inline(never)]
    fn put_off_slow(&self, error: Error) -> Result {
        if error.code() != MPI_ERR_TRUNCATE {
            return Err(error);
        }
        let first = self.disagreement.take().unwrap_or(error);
        self.disagreement.set(Some(first));
        Ok(())
    }

    /// Returns the deferred error of unequal lengths if there is one, otherwise `result`.
    #[inline]
    pub(crate) fn conclude(&self, result: Result) -> Result {
        match self.disagreement.take() {
            None => result,
            Some(error) => Err(error),
        }
    }

    /// Sends to member `to`. Returns when the buffer may be reused.
    ///
    /// # Safety
    /// See BUFFERS.
    #[inline]
    pub unsafe fn send(&self, to: u32, data: Buffer) -> Result {
        // SAFETY: BUFFERS.
        unsafe {
            if self.try_send(to, &data) {
                return Ok(());
            }
            let ticket = self.start_send(to, data)?;
            self.wait(ticket)
        }
    }

    /// Receives from member `from`. Returns when the data has arrived. A message of another length is an error.
    ///
    /// # Safety
    /// See BUFFERS.
    #[inline]
    pub unsafe fn recv(&self, from: u32, data: Buffer) -> Result {
        // SAFETY: BUFFERS.
        unsafe {
            if let Some(taken) = self.spin_recv(from, &data) {
                return self.check_taken(from, &data, taken);
            }
            let ticket = self.start_recv(from, data)?;
            self.wait(ticket)
        }
    }

    /// Sends to one member and receives from another at the same time, without deadlock.
    ///
    /// # Safety
    /// See BUFFERS.
    #[inline]
    pub unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, into: Buffer) -> Result {
        // SAFETY: BUFFERS.
        unsafe {
            if self.try_send(to, &out) {
                return self.recv(from, into);
            }
            let receiving = self.start_recv(from, into)?;
            let sending = self.start_send(to, out)?;
            let sent = self.wait(sending);
            self.wait(receiving).and(sent)
        }
    }

    /// Starts a send.
    ///
    /// # Safety
    /// See BUFFERS.
    pub unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        let args = self.args(to, &data);
        let bytes = data.bytes;
        let send = SendArgs {
            peer: self.world_rank(to),
            key: self.context().key(self.comm.rank),
            tag: self.tag,
            buffer: data,
            synchronous: false,
        };
        // SAFETY: BUFFERS; the worker lives while MPI runs.
        match unsafe { (*self.process.worker()?).start_send(send) } {
            Ok(StartOutcome::Done) => Ok(Ticket(0)),
            Ok(StartOutcome::Request(id)) => Ok(Ticket(id)),
            Err(fault) => Err(fault::explain(fault, &args, bytes, 0)),
        }
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// See BUFFERS.
    pub unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        let args = self.args(from, &data);
        let bytes = data.bytes;
        let want = self.want(from);
        // SAFETY: BUFFERS; the worker lives while MPI runs.
        match unsafe { (*self.process.worker()?).start_recv(want, data) } {
            Ok(id) => Ok(Ticket(id)),
            Err(fault) => Err(fault::explain(fault, &args, bytes, 0)),
        }
    }

    /// Returns whether an operation has ended. Its ticket must still be waited for.
    pub fn is_done(&self, ticket: &Ticket) -> Result<bool> {
        // SAFETY: the worker lives while MPI runs.
        Ok(ticket.0 == 0
            || unsafe {
                (*self.process.worker()?).requests.get(ticket.0).state == RequestState::Complete
            })
    }

    /// Returns whether an operation has ended. A receive also ends when its sender has left the job.
    pub(crate) fn has_ended(&self, ticket: &Ticket) -> Result<bool> {
        if self.is_done(ticket)? {
            return Ok(true);
        }
        // SAFETY: the worker lives while MPI runs.
        let worker = unsafe { &mut *self.process.worker()? };
        let peer = worker.requests.get(ticket.0).peer;
        Ok(worker.give_up(ticket.0, peer))
    }

    /// Sends immediately or starts a send, and notifies the peer's progress thread. Safety: see BUFFERS.
    pub(crate) unsafe fn post_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: BUFFERS.
        let started = unsafe {
            match self.try_send(to, &data) {
                true => Ok(Ticket(0)),
                false => self.start_send(to, data),
            }
        };
        // SAFETY: the worker lives while MPI runs.
        unsafe { (*self.process.worker()?).call_peer(self.world_rank(to)) };
        started
    }

    /// Takes a message that has arrived, or starts a receive. Safety: see BUFFERS.
    pub(crate) unsafe fn post_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        // SAFETY: BUFFERS.
        unsafe {
            match self.try_recv(from, &data) {
                Some(taken) => self.check_taken(from, &data, taken).map(|()| Ticket(0)),
                None => self.queue_recv(from, data),
            }
        }
    }

    /// Starts a receive whose message has not arrived. Safety: see BUFFERS.
    #[inline]
    unsafe fn queue_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        let worker = self.process.worker()?;
        let want = self.want(from);
        // SAFETY: BUFFERS; the worker lives while MPI runs.
        unsafe {
            if data.layout.is_none() && (*worker).must_post(&want) {
                let request = (*worker).post_plain(want, data.ptr, data.bytes);
                return Ok(Ticket((*request).id()));
            }
            self.start_recv(from, data)
        }
    }

    /// Starts a receive and a send, and returns their tickets in this order. Safety: see BUFFERS.
    pub(crate) unsafe fn post_exchange(
        &self, to: u32, out: Buffer, from: u32, into: Buffer,
    ) -> (Result<Ticket>, Result<Ticket>) {
        // SAFETY: BUFFERS.
        unsafe {
            if out.bytes <= SHORT_LIMIT as u64 {
                let sent = self.post_send(to, out);
                return (self.post_recv(from, into), sent);
            }
            // The receive is posted first, so that a message that arrives during the send matches it.
            let received = self.post_recv(from, into);
            (received, self.post_send(to, out))
        }
    }

    /// Waits until a started operation has ended, and frees it.
    pub fn wait(&self, ticket: Ticket) -> Result {
        if ticket.0 == 0 {
            return Ok(());
        }
        let worker = self.process.worker()?;
        // SAFETY: the worker lives while MPI runs.
        unsafe {
            let request = (*worker).requests.get(ticket.0);
            if request.state != RequestState::Complete {
                let note = Note {
                    call: self.process.call.get(),
                    peer: self.comm.peer_rank(request.peer),
                    tag: -1,
                    comm: self.comm.handle.get(),
                    bytes: self.user_bytes(request.bytes),
                    awaited: AwaitedRanks::UNKNOWN,
                    naps: false,
                };
                deadlock::wait_step(self, worker, ticket.0, &note);
            }
        }
        self.finish(ticket)
    }

    /// Returns the bytes that a report of a wait names: `bytes`, or during a comparison those of the compared call.
    fn user_bytes(&self, bytes: u64) -> u64 {
        match (self.process.checks(), self.refuse.get()) {
            (Some(checks), Some(_)) => checks.compared_bytes.get(),
            _ => bytes,
        }
    }

    /// Frees an operation that has ended, and returns its result.
    pub(crate) fn finish(&self, ticket: Ticket) -> Result {
        if ticket.0 == 0 {
            return Ok(());
        }
        let worker = self.process.worker()?;
        // SAFETY: the worker lives while MPI runs.
        unsafe {
            let request = (*worker).requests.get(ticket.0);
            let (fault, bytes, sent, peer) =
                (request.fault, request.bytes, request.limit, request.peer);
            let short = (request.kind == RequestKind::Recv && request.received < bytes)
                .then_some(request.received);
            if fault != Fault::None {
                (*worker).free_failed(ticket.0);
                let args =
                    Args { peer: self.comm.peer_rank(peer), ..self.args(0, &Buffer::empty()) };
                return Err(fault::explain(fault, &args, bytes, sent));
            }
            (*worker).requests.free(ticket.0);
            match short {
                None => Ok(()),
                Some(received) => {
                    Err(self.refuse_length(self.comm.peer_rank(peer) as u32, bytes, received))
                }
            }
        }
    }

    /// Sends a contiguous message if it can leave immediately. Returns whether it was sent.
    #[inline]
    unsafe fn try_send(&self, to: u32, data: &Buffer) -> bool {
        let Some(&endpoint) = self.comm.endpoints.get(to as usize) else {
            return false;
        };
        if data.layout.is_some() {
            return false;
        }
        let key = self.context().key(self.comm.rank);
        if data.bytes > SHORT_LIMIT as u64 {
            // SAFETY: BUFFERS; the endpoint lives as long as the worker, and the lock is held.
            return unsafe { self.try_send_eager(endpoint, key, to, data) };
        }
        // SAFETY: BUFFERS; the endpoint lives as long as the worker, and the lock is held.
        unsafe {
            let post = (*endpoint).send_immediate(key, self.tag, data.ptr, data.bytes as usize);
            if lock::get().records() && matches!(post, Post::Done | Post::Wake) {
                trace::record(Point::PostShort, self.world_rank(to), self.tag, data.bytes);
            }
            match post {
                Post::Wake => (*endpoint).wake() == Post::Done,
                post => post == Post::Done,
            }
        }
    }

    /// Sends a message that does not fit a slot, if the receiver is on this host. To another host it sends nothing:
    /// during such a send, an adapter may deliver another message before that message's receive is posted.
    unsafe fn try_send_eager(
        &self, endpoint: *mut Endpoint, key: u64, to: u32, data: &Buffer,
    ) -> bool {
        let Ok(worker) = self.process.worker() else {
            return false;
        };
        // SAFETY: BUFFERS; worker and endpoint live while MPI runs.
        unsafe {
            if !(*endpoint).is_same_host() || lock::get().records() {
                return false;
            }
            let peer = self.world_rank(to);
            (*worker).send_now(peer, key, self.tag, data.ptr, data.bytes) == Post::Done
        }
    }

    #[inline]
    fn check_taken(&self, from: u32, data: &Buffer, taken: ImmediateReceive) -> Result {
        match taken.len as u64 == data.bytes {
            true => Ok(()),
            false => Err(self.refuse_length(from, data.bytes, taken.len as u64)),
        }
    }

    /// Returns the error of a message that is shorter than expected. The layer below detects messages that are longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_length(&self, from: u32, expected: u64, sent: u64) -> Error {
        let args = self.args(from, &Buffer::empty());
        fault::explain_disagreement(MPI_ERR_TRUNCATE, &args, expected, sent)
    }

    /// Polls only this peer for a limited time, and receives its next arrival. Returns `None` if nothing was received.
    #[inline]
    unsafe fn spin_recv(&self, from: u32, data: &Buffer) -> Option<ImmediateReceive> {
        let &endpoint = self.comm.endpoints.get(from as usize)?;
        let worker = self.process.worker().ok()?;
        if data.layout.is_some() || lock::get().records() {
            return None;
        }
        let peer = self.world_rank(from);
        let key = self.context().key(from);
        // SAFETY: BUFFERS; the endpoint lives as long as the worker, and the lock is held.
        unsafe {
            if !(*worker).may_watch(peer) || !(*worker).wait.directed {
                return None;
            }
            let has_arrival = |_| (*endpoint).has_arrival().then_some(());
            let is_needed = || lock::get().is_wanted() || (*worker).wants_attention(peer);
            spin((*endpoint).spin_polls(), has_arrival, is_needed)?;
            (*endpoint).recv_immediate(key, self.tag, data.ptr, data.bytes as usize)
        }
    }

    /// Takes the message if it is the peer's next arrival. Returns `None`, without effect, if it is not.
    #[inline]
    unsafe fn try_recv(&self, from: u32, data: &Buffer) -> Option<ImmediateReceive> {
        let &endpoint = self.comm.endpoints.get(from as usize)?;
        let worker = self.process.worker().ok()?;
        if data.layout.is_some() || lock::get().records() {
            return None;
        }
        // SAFETY: BUFFERS; the endpoint lives as long as the worker, and the lock is held.
        unsafe {
            if !(*worker).may_watch(self.world_rank(from)) || !(*endpoint).has_arrival() {
                return None;
            }
            let key = self.context().key(from);
            (*endpoint).recv_immediate(key, self.tag, data.ptr, data.bytes as usize)
        }
    }

    #[inline]
    fn context(&self) -> Context {
        self.context
    }

    #[inline]
    pub(crate) fn world_rank(&self, rank: u32) -> u32 {
        self.comm.peer_group().world_ranks()[rank as usize]
    }

    fn want(&self, from: u32) -> MatchCriteria {
        MatchCriteria { peer: self.world_rank(from), tag: self.tag, key: self.context().key(from) }
    }

    pub(crate) fn args(&self, peer: u32, data: &Buffer) -> Args {
        let comm = self.comm.handle.get();
        Args { buf: data.ptr, count: 0, datatype: 0, peer: peer as i32, tag: self.tag, comm }
    }
}
