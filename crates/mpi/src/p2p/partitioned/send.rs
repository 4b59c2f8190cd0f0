//! Sender's side of partitioned communication.
#![allow(unsafe_code)]

use super::{
    Offer, PartitionedOffer, check_range, keep_first, offer_route, own_error, refuse_cancel,
    refuse_free, whole,
};
use crate::check::Record;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::objects::arguments::CheckedArguments;
use crate::objects::datatype::Datatype;
use crate::p2p::channel::{Channel, Ticket};
use crate::p2p::request::{self, MarkedRequest, Notice, Operation, PollCondition, empty_status};
use crate::p2p::slow;
use crate::p2p::staged;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, Worker};
use fastpath_transport::Post;
use std::borrow::Cow;
use std::ptr::NonNull;

struct Send {
    checked: Option<CheckedArguments>,
    /// Arguments of one partition.
    args: Args,
    offer: Offer,
    marks: SendMarks,
    under_way: Vec<Ticket>,
    failed: Option<Error>,
}

/// Marks of a started send's partitions, and the data for their messages.
///
/// **MARKS.** The marks live as long as their send, and code that accesses them holds the lock. No reference to them
/// outlives a call of the functions here. None of these functions calls another of them, or the program.
struct Marks {
    /// Whether the send was started and is not complete.
    is_active: bool,
    ready: Box<[bool]>,
    /// Number of partitions that are not marked yet.
    missing: u32,
    way: Option<PartitionPath>,
    offer: Offer,
}

/// Endpoint, peer, key and addresses for the messages of all partitions. Exists only if the data of each partition is
/// contiguous and not empty.
struct PartitionPath {
    endpoint: *mut Endpoint,
    peer: u32,
    key: u64,
    at: *mut u8,
    /// Bytes from one partition to the next.
    stride: isize,
    bytes: u64,
}

/// Owner of the memory of a send's marks. [`MarkedRequest`] also points to it.
struct SendMarks(NonNull<Marks>);

impl SendMarks {
    fn new(marks: Marks) -> Self {
        SendMarks(NonNull::from(Box::leak(Box::new(marks))))
    }

    fn get(&mut self) -> &mut Marks {
        // SAFETY: MARKS.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for SendMarks {
    fn drop(&mut self) {
        // SAFETY: the memory is that of a box. The pointer in `MarkedRequest` was cleared when the request was freed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// `MPI_Psend_init`: `args` are those of one partition. Errors: those of a send; `MPI_ERR_ARG` for negative
/// `partitions`.
///
/// # Safety
/// The buffer must have all partitions, and be readable from each start to its completion.
pub unsafe fn make_send(p: &Process, args: Args, partitions: i32) -> Result<usize> {
    let all = whole(args, partitions)?;
    let mut checked = slow::check_send(p, &all)?;
    let partitions = partitions as u32;
    let mut offer = Offer { partitions, bytes: 0, first: 0 };
    if let Some(checked) = &mut checked {
        staged::stage_whole(checked)?;
        let comm = &checked.comm;
        offer.bytes = checked.buffer.bytes / u64::from(partitions.max(1));
        offer.first = super::take_tags(comm, partitions);
        send_offer(p, checked, &all, offer).map_err(|error| own_error(&args, error))?;
    }
    let way = checked.as_ref().and_then(|checked| find_way(checked, &args));
    let ready = vec![false; partitions as usize].into();
    let send = Send {
        checked,
        args,
        offer,
        marks: SendMarks::new(Marks { is_active: false, ready, missing: 0, way, offer }),
        under_way: Vec::new(),
        failed: None,
    };
    request::make_persistent_operation(p, Box::new(send))
}

/// Sends the offer to the receiver. `args` are those of all partitions. The library owns the copy until it has left.
fn send_offer(p: &Process, checked: &CheckedArguments, args: &Args, offer: Offer) -> Result {
    let (context, tag) = offer_route(&checked.comm, args.tag);
    let words = offer.to_wire();
    let mut copy: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if let (Some(checks), Some(datatype)) = (p.checks(), &checked.datatype) {
        let record = Record::of_call(p.call.get(), &checks.place());
        copy.extend_from_slice(record.with_data(datatype, args.count as u64).as_bytes());
    }
    copy.resize(PartitionedOffer::bytes(p), 0);
    let bytes = copy.len() as u64;
    let copy = Box::into_raw(copy.into_boxed_slice());
    let buffer = Buffer::contiguous(copy.cast(), bytes);
    let channel = Channel::in_context(p, &checked.comm, context, tag);
    // SAFETY: `leave_copy` keeps the copy until its send has ended.
    unsafe {
        let sent = channel.post_send(args.peer as u32, buffer);
        slow::leave_copy(p, sent.map(|ticket| ticket.id()), args, copy)
    }
}

/// Returns the buffer of a partition; `args` are those of one partition.
fn buffer(checked: &CheckedArguments, args: &Args, partition: u32) -> Buffer {
    let none = Buffer::empty();
    let Some(datatype) = &checked.datatype else {
        return none;
    };
    let offset = i64::from(partition).wrapping_mul(stride(datatype, args));
    let at = args.buf.wrapping_offset(offset as isize);
    // `unwrap_or` is never used, because the buffer of all partitions together was checked.
    datatype.buffer(at, args.count as u64).unwrap_or(none)
}

fn stride(datatype: &Datatype, args: &Args) -> i64 {
    args.count.wrapping_mul(datatype.layout().extent())
}

/// Returns the data that the messages of all partitions share; `None` if a partition is empty, has gaps, or is in
/// device memory.
fn find_way(checked: &CheckedArguments, args: &Args) -> Option<PartitionPath> {
    if checked.staging.is_some() {
        return None;
    }
    let (comm, first) = (&checked.comm, buffer(checked, args, 0));
    let datatype = checked.datatype.as_ref()?;
    let is_plain = first.layout.is_none() && first.bytes > 0;
    is_plain.then_some(PartitionPath {
        endpoint: *comm.endpoints.get(args.peer as usize)?,
        peer: comm.peer_group().world_ranks()[args.peer as usize],
        key: comm.context.collective().key(comm.rank),
        at: first.ptr,
        stride: stride(datatype, args) as isize,
        bytes: first.bytes,
    })
}

impl Marks {
    /// Marks a partition and sends its message, if the message can leave immediately. Otherwise has no effect. Returns
    /// whether the partition was marked. Safety: the send's request is not freed, and the caller is inside MPI.
    #[inline]
    unsafe fn try_mark(&mut self, worker: *mut Worker, partition: i32) -> bool {
        let (Some(way), Some(ready)) = (&self.way, self.ready.get_mut(partition as usize)) else {
            return false;
        };
        if *ready || !self.is_active || lock::get().records() {
            return false;
        }
        let at = way.at.wrapping_offset(way.stride.wrapping_mul(partition as isize));
        let tag = self.offer.tag(partition as u32);
        // SAFETY: the contract of `make_send` gives a readable buffer. Endpoint and worker live as long as the
        // communicator, which the request needs. Longer messages are sent only within a host, because an adapter may
        // deliver another message during the send.
        let is_sent = unsafe {
            match way.bytes <= SHORT_LIMIT as u64 {
                true => {
                    let endpoint = &mut *way.endpoint;
                    match endpoint.send_immediate(way.key, tag, at, way.bytes as usize) {
                        Post::Wake => endpoint.wake() == Post::Done,
                        post => post == Post::Done,
                    }
                }
                false => {
                    (*way.endpoint).is_same_host()
                        && (*worker).send_now(way.peer, way.key, tag, at, way.bytes) == Post::Done
                }
            }
        };
        if is_sent {
            *ready = true;
            self.missing -= 1;
            // SAFETY: the worker lives while MPI runs.
            unsafe { (*worker).call_peer(way.peer) };
        }
        is_sent
    }
}

impl Send {
    fn post(&mut self, p: &Process, partition: u32) {
        let Some(checked) = &self.checked else {
            return;
        };
        let channel = Channel::tagged(p, &checked.comm, self.offer.tag(partition));
        let (from, bytes) = (u64::from(partition) * self.offer.bytes, self.offer.bytes);
        let buffer = match staged::whole(checked) {
            None => buffer(checked, &self.args, partition),
            Some(staging) => {
                if let Err(error) = staging.load_range(from, bytes) {
                    keep_first(&mut self.failed, &self.args, error);
                }
                staged::part(staging, from, bytes)
            }
        };
        // SAFETY: the contract of `make_send` gives a readable buffer.
        match unsafe { channel.post_send(self.args.peer as u32, buffer) } {
            Ok(ticket) if ticket.is_done() => {}
            Ok(ticket) => self.under_way.push(ticket),
            Err(error) => keep_first(&mut self.failed, &self.args, error),
        }
    }

    fn mark(&mut self, p: &Process, low: i32, high: i32) -> Result {
        let (low, high) = check_range(low, high, self.offer.partitions)?;
        if !self.marks.get().is_active {
            let text = "the request of MPI_Psend_init is not active: call MPI_Start first";
            return Err(Error::new(MPI_ERR_REQUEST, text));
        }
        for partition in low..=high {
            let marks = self.marks.get();
            if std::mem::replace(&mut marks.ready[partition as usize], true) {
                let text = format!(
                    "partition {partition} is marked as ready already: mark each partition once"
                );
                return Err(Error::new(MPI_ERR_ARG, text));
            }
            marks.missing -= 1;
            self.post(p, partition);
        }
        Ok(())
    }
}

impl Operation<Process> for Send {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        while let Some(ticket) = self.under_way.pop() {
            let Some(checked) = &self.checked else { break };
            let channel = Channel::tagged(p, &checked.comm, super::FIRST_TAG);
            match channel.has_ended(&ticket) {
                Ok(false) => {
                    self.under_way.push(ticket);
                    return None;
                }
                Ok(true) => {
                    if let Err(error) = channel.finish(ticket) {
                        keep_first(&mut self.failed, &self.args, error);
                    }
                }
                Err(error) => keep_first(&mut self.failed, &self.args, error),
            }
        }
        let marks = self.marks.get();
        if marks.missing > 0 {
            return None;
        }
        marks.is_active = false;
        Some(match self.failed.take() {
            None => Ok(empty_status()),
            Some(error) => Err(error),
        })
    }

    fn watch(&self) -> PollCondition {
        match self.under_way.last() {
            Some(ticket) => PollCondition::Request(ticket.id()),
            None => PollCondition::Named,
        }
    }

    fn began(&self) -> &'static str {
        "MPI_Psend_init"
    }

    fn state(&self) -> Cow<'static, str> {
        let Args { peer, tag, .. } = self.args;
        // SAFETY: MARKS.
        let (missing, all) = (unsafe { self.marks.0.as_ref().missing }, self.offer.partitions);
        let ready = all - missing;
        format!(
            "{ready} of the {all} partitions are ready to be sent to rank {peer} with tag {tag}"
        )
        .into()
    }

    fn comm(&self) -> Option<usize> {
        self.checked.is_some().then_some(self.args.comm)
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        let marks = self.marks.get();
        marks.ready.fill(false);
        marks.missing = self.offer.partitions;
        marks.is_active = true;
        if self.checked.is_none() {
            // A send to MPI_PROC_NULL is complete without marks.
            marks.missing = 0;
            return Ok(Some(Ok(empty_status())));
        }
        Ok(self.poll(p))
    }

    fn cancel(&mut self, _: &Process) -> Result {
        Err(refuse_cancel("MPI_Psend_init"))
    }

    fn free(&mut self, p: &Process) -> Result {
        p.extras.marked.set(MarkedRequest::NONE);
        Ok(())
    }

    fn check_free(&self) -> Result {
        // SAFETY: MARKS.
        let is_active = unsafe { self.marks.0.as_ref().is_active };
        match is_active && self.checked.is_some() {
            true => Err(refuse_free("MPI_Psend_init")),
            false => Ok(()),
        }
    }

    fn notify(&mut self, p: &Process, notice: Notice) -> Result<bool> {
        match notice {
            Notice::Ready(low, high) if self.checked.is_none() => {
                check_range(low, high, self.offer.partitions).map(|_| true)
            }
            Notice::Ready(low, high) => {
                let marked = self.mark(p, low, high);
                if marked.is_ok() {
                    let marks = Some(self.marks.0.cast());
                    p.extras.marked.set(MarkedRequest { request: MPI_REQUEST_NULL, marks });
                }
                marked.map(|()| true).map_err(|error| own_error(&self.args, error))
            }
            _ => Err(request::not_of_kind("of a partitioned receive")),
        }
    }
}

/// `MPI_Pready` and similar calls: marks the partitions from `low` to `high` as ready. Errors: `MPI_ERR_REQUEST` for a
/// request that is not an active partitioned send, `MPI_ERR_ARG` for an invalid or marked partition.
#[inline]
pub fn mark_ready(p: &Process, request: usize, low: i32, high: i32) -> Result {
    let worker = p.worker()?;
    let marked = p.extras.marked.get();
    if let Some(marks) = marked.marks
        && marked.request == request
        && low == high
        // SAFETY: MARKS; the marks are those of a partitioned send whose request was not freed.
        && unsafe { marks.cast::<Marks>().as_mut().try_mark(worker, low) }
    {
        // SAFETY: the worker lives while MPI runs, and the caller is inside.
        unsafe { (*worker).wake_sleepers() };
        return Ok(());
    }
    mark_ready_slow(p, request, low, high)
}

#[cold]
#[inline(never)]
fn mark_ready_slow(p: &Process, request: usize, low: i32, high: i32) -> Result {
    p.extras.marked.set(MarkedRequest::NONE);
    request::notify(p, request, Notice::Ready(low, high))?;
    let marked = p.extras.marked.get();
    p.extras.marked.set(MarkedRequest { request, ..marked });
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*p.worker()?).wake_sleepers() };
    Ok(())
}
