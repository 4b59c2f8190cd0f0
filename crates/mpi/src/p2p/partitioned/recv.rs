//! Receiver's side of partitioned communication.
#![allow(unsafe_code)]

use super::{
    Offer, PartitionedOffer, check_partition, keep_first, offer_route, own_error, refuse_cancel,
    refuse_free, whole,
};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::objects::arguments::CheckedArguments;
use crate::p2p::channel::{Channel, Ticket};
use crate::p2p::request::{self, Notice, Operation, PollCondition};
use crate::p2p::slow;
use crate::p2p::staged;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;
use std::borrow::Cow;

const GIVE_ENOUGH: &str = "pass at least as many bytes to MPI_Precv_init as to MPI_Psend_init";

struct ReceivePart {
    ticket: Ticket,
    /// Temporary buffer; `None` unless the partition begins or ends inside a noncontiguous element.
    aside: Option<Box<[u8]>>,
}

struct Recv {
    checked: Option<CheckedArguments>,
    /// Arguments of one partition.
    args: Args,
    partitions: u32,
    /// Receive of the sender's offer, with its buffer; `None` once the offer has arrived.
    awaited: Option<(Ticket, Box<PartitionedOffer>)>,
    /// MPI call that made the request, with its call site, if checks are on.
    made: String,
    offer: Option<Offer>,
    is_active: bool,
    /// Receives of the sender's partitions in this start; `None` for a partition that has arrived.
    parts: Vec<Option<ReceivePart>>,
    /// Index of the first partition that is not known to have arrived.
    next: usize,
    failed: Option<Error>,
}

/// `MPI_Precv_init`: `args` are those of one partition. Errors: those of a receive; `MPI_ERR_ARG` for negative
/// `partitions`, `MPI_ERR_RANK` and `MPI_ERR_TAG` for wildcards.
///
/// # Safety
/// The buffer must have all partitions, and be writable from each start to its completion.
pub unsafe fn make_recv(p: &Process, args: Args, partitions: i32) -> Result<usize> {
    let all = whole(args, partitions)?;
    if args.peer == MPI_ANY_SOURCE {
        let text = "the source is MPI_ANY_SOURCE, which a partitioned receive does not allow";
        let advice = "pass the rank of the source";
        return Err(Error::new(MPI_ERR_RANK, text).with_advice(Some(advice)));
    }
    if args.tag == MPI_ANY_TAG {
        let text = "the tag is MPI_ANY_TAG, which a partitioned receive does not allow";
        let advice = "pass a tag of 0 or more";
        return Err(Error::new(MPI_ERR_TAG, text).with_advice(Some(advice)));
    }
    let mut checked = slow::check_recv(p, &all)?;
    let mut awaited = None;
    if let Some(checked) = &mut checked {
        staged::stage_whole(checked)?;
        let (context, tag) = offer_route(&checked.comm, args.tag);
        let mut letter = Box::new(PartitionedOffer::NONE);
        let buffer =
            Buffer::contiguous((&raw mut *letter).cast(), PartitionedOffer::bytes(p) as u64);
        let channel = Channel::in_context(p, &checked.comm, context, tag);
        // SAFETY: the letter lives until the receive has ended: it is dropped with the operation, or leaked by `free`.
        let posted = unsafe { channel.post_recv(args.peer as u32, buffer) };
        awaited = Some((posted.map_err(|error| own_error(&args, error))?, letter));
    }
    let recv = Recv {
        checked,
        args,
        partitions: partitions as u32,
        awaited,
        made: p.checks().map(|checks| checks.name(p.call.get())).unwrap_or_default(),
        offer: None,
        is_active: false,
        parts: Vec::new(),
        next: 0,
        failed: None,
    };
    request::make_persistent_operation(p, Box::new(recv))
}

impl Recv {
    /// Bytes of one of the receiver's partitions.
    fn bytes(&self) -> u64 {
        let all = self.checked.as_ref().map_or(0, |checked| checked.buffer.bytes);
        all / u64::from(self.partitions.max(1))
    }

    /// Reads the sender's offer if it has arrived. Returns whether the offer is known.
    fn take_offer(&mut self, p: &Process) -> Result<bool> {
        let Some(checked) = &self.checked else {
            return Ok(true);
        };
        let Some((ticket, _)) = &self.awaited else {
            return Ok(true);
        };
        let (context, tag) = offer_route(&checked.comm, self.args.tag);
        let channel = Channel::in_context(p, &checked.comm, context, tag);
        if !channel.has_ended(ticket)? {
            return Ok(false);
        }
        let Some((ticket, letter)) = self.awaited.take() else {
            return Ok(true);
        };
        channel.finish(ticket)?;
        if let (Some(checks), Some(datatype)) = (p.checks(), &checked.datatype) {
            checks.compare((&self.made, datatype), &letter.record, (self.args.peer, self.args.tag));
        }
        let garbage =
            || Error::new(MPI_ERR_OTHER, "the sender's description of its partitions is invalid");
        let offer = Offer::from_wire(letter.words);
        self.offer = Some(offer.unwrap_or(Offer::NONE));
        let offer = offer.ok_or_else(garbage)?;
        let (sent, room) = (offer.total().unwrap_or(0), checked.buffer.bytes);
        // The receive buffer may be longer than the sender's data.
        match sent <= room {
            true => Ok(true),
            false => Err(Error::new(
                MPI_ERR_TRUNCATE,
                format!(
                    "the sender's {} partitions have {sent} bytes in all, but the receiver's {} \
                     partitions have {room}",
                    offer.partitions, self.partitions
                ),
            )
            .with_advice(Some(GIVE_ENOUGH))),
        }
    }

    /// Returns the buffer for a partition of the sender: a part of the user's buffer, or a temporary one. With device
    /// memory, the buffer is part of the copy, and an empty temporary one marks that it has to be stored.
    fn buffer(
        checked: &CheckedArguments, offer: Offer, partition: u32,
    ) -> (Buffer, Option<Box<[u8]>>) {
        let from = u64::from(partition) * offer.bytes;
        let all = &checked.buffer;
        if let Some(staging) = staged::whole(checked) {
            return (staged::part(staging, from, offer.bytes), Some(Box::default()));
        }
        let Some(layout) = &all.layout else {
            let at = all.ptr.wrapping_add(from as usize);
            return (Buffer::contiguous(at, offer.bytes), None);
        };
        let size = layout.size();
        if let Some(datatype) = &checked.datatype
            && size > 0
            && from.is_multiple_of(size)
            && offer.bytes.is_multiple_of(size)
        {
            let offset = ((from / size) as i64).wrapping_mul(layout.extent());
            let at = all.ptr.wrapping_offset(offset as isize);
            if let Some(buffer) = datatype.buffer(at, offer.bytes / size) {
                return (buffer, None);
            }
        }
        let mut aside = vec![0; offer.bytes as usize].into_boxed_slice();
        let buffer = Buffer::contiguous(aside.as_mut_ptr(), offer.bytes);
        (buffer, Some(aside))
    }

    fn post(&mut self, p: &Process) {
        let (Some(checked), Some(offer)) = (&self.checked, self.offer) else {
            return;
        };
        self.next = 0;
        self.parts.clear();
        let mut failed = None;
        let mut channel = Channel::tagged(p, &checked.comm, offer.tag(0));
        for partition in 0..offer.partitions {
            channel.tag = offer.tag(partition);
            let (buffer, aside) = Recv::buffer(checked, offer, partition);
            // SAFETY: the contract of `make_recv` gives a writable buffer, and the temporary one lives with its part.
            match unsafe { channel.post_recv(self.args.peer as u32, buffer) } {
                Ok(ticket) => self.parts.push(Some(ReceivePart { ticket, aside })),
                Err(error) => {
                    self.parts.push(None);
                    failed = failed.or(Some(error));
                }
            }
        }
        if let Some(error) = failed {
            keep_first(&mut self.failed, &self.args, error);
        }
    }

    /// Returns whether a partition of the sender has arrived, and completes it.
    #[inline]
    fn take_part(&mut self, p: &Process, partition: usize) -> bool {
        let Some(Some(part)) = self.parts.get_mut(partition) else {
            return true;
        };
        if part.aside.is_none() && part.ticket.finish_whole(p) {
            self.parts[partition] = None;
            return true;
        }
        self.take_part_slow(p, partition)
    }

    /// Completes a partition that may be outstanding, failed, or in a temporary buffer. Returns whether it has arrived.
    #[inline(never)]
    fn take_part_slow(&mut self, p: &Process, partition: usize) -> bool {
        let (Some(checked), Some(offer)) = (&self.checked, self.offer) else {
            return true;
        };
        let Some(slot) = self.parts.get_mut(partition) else {
            return true;
        };
        let Some(part) = slot.take() else {
            return true;
        };
        let channel = Channel::tagged(p, &checked.comm, offer.tag(partition as u32));
        let mut result = match channel.has_ended(&part.ticket) {
            Ok(false) => {
                *slot = Some(part);
                return false;
            }
            Ok(true) => channel.finish(part.ticket),
            Err(error) => Err(error),
        };
        if let (Ok(()), Some(staging)) = (&result, staged::whole(checked)) {
            result = staging.store_range(partition as u64 * offer.bytes, offer.bytes);
        }
        if result.is_ok()
            && let (Some(aside), Some(layout)) = (&part.aside, &checked.buffer.layout)
        {
            let from = partition as u64 * offer.bytes;
            // SAFETY: the contract of `make_recv` gives a writable buffer, and the range is within its data.
            unsafe { layout.unpack(checked.buffer.ptr, checked.buffer.count, from, aside) };
        }
        if let Err(error) = result {
            keep_first(&mut self.failed, &self.args, error);
        }
        true
    }

    fn has_arrived(&mut self, p: &Process, partition: i32) -> Result<bool> {
        let partition = check_partition(partition, self.partitions)?;
        if !self.is_active {
            return Ok(true);
        }
        self.go_on(p);
        let Some(offer) = self.offer else {
            return Ok(false);
        };
        let bytes = self.bytes();
        if offer.bytes == 0 || bytes == 0 {
            return Ok((0..self.parts.len()).all(|part| self.take_part(p, part)));
        }
        let (from, to) = (u64::from(partition) * bytes, (u64::from(partition) + 1) * bytes);
        let parts = (from / offer.bytes) as usize..to.div_ceil(offer.bytes) as usize;
        Ok(parts.into_iter().all(|part| self.take_part(p, part)))
    }

    fn go_on(&mut self, p: &Process) {
        if self.offer.is_none() && self.failed.is_none() {
            match self.take_offer(p) {
                Ok(false) => return,
                Ok(true) => self.post(p),
                Err(error) => {
                    keep_first(&mut self.failed, &self.args, error);
                    return;
                }
            }
        }
        while self.next < self.parts.len() && self.take_part(p, self.next) {
            self.next += 1;
        }
    }
}

impl Operation<Process> for Recv {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        self.go_on(p);
        let is_known = self.offer.is_some() || self.failed.is_some();
        if !is_known || self.next < self.parts.len() {
            return None;
        }
        self.is_active = false;
        Some(match self.failed.take() {
            Some(error) => Err(error),
            None => {
                let bytes = self.offer.and_then(Offer::total).unwrap_or(0);
                let (source, tag) = (self.args.peer, self.args.tag);
                Ok(Status::new(source, tag, MPI_SUCCESS, bytes as i64))
            }
        })
    }

    fn watch(&self) -> PollCondition {
        let of_part = || self.parts.get(self.next)?.as_ref().map(|part| &part.ticket);
        let ticket = match &self.awaited {
            Some((ticket, _)) => Some(ticket),
            None => of_part(),
        };
        match ticket.map_or(0, Ticket::id) {
            0 => PollCondition::Named,
            id => PollCondition::Request(id),
        }
    }

    fn state(&self) -> Cow<'static, str> {
        let Args { peer, tag, .. } = self.args;
        let what = match self.offer {
            None => "the receive has not matched an MPI_Psend_init",
            Some(_) => "the receive waits for partitions",
        };
        format!("{what} from rank {peer} with tag {tag}").into()
    }

    fn began(&self) -> &'static str {
        "MPI_Precv_init"
    }

    fn comm(&self) -> Option<usize> {
        self.checked.is_some().then_some(self.args.comm)
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        if self.checked.is_none() {
            return Ok(Some(Ok(Status::new(MPI_PROC_NULL, MPI_ANY_TAG, MPI_SUCCESS, 0))));
        }
        self.is_active = true;
        self.failed = self.disagreement();
        if self.offer.is_some() && self.failed.is_none() {
            self.post(p);
        }
        Ok(self.poll(p))
    }

    fn cancel(&mut self, _: &Process) -> Result {
        Err(refuse_cancel("MPI_Precv_init"))
    }

    fn check_free(&self) -> Result {
        match self.is_active {
            true => Err(refuse_free("MPI_Precv_init")),
            false => Ok(()),
        }
    }

    fn notify(&mut self, p: &Process, notice: Notice) -> Result<bool> {
        match notice {
            Notice::Arrived(partition) => {
                let arrived = self.has_arrived(p, partition);
                arrived.map_err(|error| own_error(&self.args, error))
            }
            _ => Err(request::not_of_kind("of a partitioned send")),
        }
    }

    fn free(&mut self, p: &Process) -> Result {
        match self.awaited.take() {
            Some((ticket, letter)) => super::detach_offer(p, self.args.comm, ticket, letter),
            None => Ok(()),
        }
    }
}

impl Recv {
    /// Returns the error that every start raises if the sender's partitions exceed the receive buffer.
    fn disagreement(&self) -> Option<Error> {
        let (offer, checked) = (self.offer?, self.checked.as_ref()?);
        (offer.total()? > checked.buffer.bytes).then(|| {
            let text = "the sender's partitions have more bytes in all than the receiver's";
            let error = Error::new(MPI_ERR_TRUNCATE, text).with_advice(Some(GIVE_ENOUGH));
            error.on_comm(self.args.comm)
        })
    }
}

/// `MPI_Parrived`; true for `MPI_REQUEST_NULL` and inactive requests (MPI-5.0 section 4.2.2). Errors: `MPI_ERR_REQUEST`
/// for a request that is not a partitioned receive, `MPI_ERR_ARG` for an invalid partition.
pub fn has_arrived(p: &Process, request: usize, partition: i32) -> Result<bool> {
    if request == MPI_REQUEST_NULL || request::notify(p, request, Notice::Arrived(partition))? {
        return Ok(true);
    }
    request::progress(p)?;
    let arrived = request::notify(p, request, Notice::Arrived(partition))?;
    if !arrived {
        request::note_miss(p)?;
    }
    Ok(arrived)
}
