//! The sender's side.
#![allow(unsafe_code)]

use super::{
    Offer, check_partition, keep_first, offer_route, own_error, refuse_cancel, refuse_free, whole,
};
use crate::buffered;
use crate::channel::{Channel, Ticket};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::p2p::Args;
use crate::p2p_slow::{self as slow, Checked};
use crate::process::Process;
use crate::request::{self, Notice, Operation, Watch, empty_status};
use crate::status::Status;
use fastpath_protocol::buffer::Buffer;

/// A partitioned send.
struct Send {
    checked: Option<Checked>,
    /// Of one partition.
    args: Args,
    offer: Offer,
    /// Whether it was started and is not complete.
    is_active: bool,
    /// Which partitions were marked since it was started.
    ready: Vec<bool>,
    /// How many were not.
    missing: u32,
    under_way: Vec<Ticket>,
    failed: Option<Error>,
}

/// `MPI_Psend_init`: `args` are those of one partition.
///
/// # Errors
/// Those of a send; `MPI_ERR_ARG` for a negative number of partitions.
///
/// # Safety
/// The buffer is that of all partitions, and readable from each start to its completion.
pub unsafe fn make_send(p: &Process, args: Args, partitions: i32) -> Result<usize> {
    let all = whole(args, partitions)?;
    let checked = slow::check_send(p, &all)?;
    let partitions = partitions as u32;
    let mut offer = Offer { partitions, bytes: 0, first: 0 };
    if let Some(checked) = &checked {
        let comm = &checked.comm;
        offer.bytes = checked.buffer.bytes / u64::from(partitions.max(1));
        offer.first = super::take_tags(comm, partitions);
        send_offer(p, checked, &args, offer).map_err(|error| own_error(&args, error))?;
    }
    let send = Send {
        checked,
        args,
        offer,
        is_active: false,
        ready: vec![false; partitions as usize],
        missing: 0,
        under_way: Vec::new(),
        failed: None,
    };
    request::make_persistent_operation(p, Box::new(send))
}

/// Tells the receiver what is going to come. The copy belongs to the library until it has left.
fn send_offer(p: &Process, checked: &Checked, args: &Args, offer: Offer) -> Result {
    let (context, tag) = offer_route(&checked.comm, args.tag);
    let words = offer.to_wire();
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let copy = Box::into_raw(copy.into_boxed_slice());
    let buffer = Buffer::contiguous(copy.cast(), size_of_val(&words) as u64);
    let channel = Channel::in_context(p, &checked.comm, context, tag);
    // SAFETY: the copy lives until its send has ended.
    unsafe {
        let sent = channel.post_send(args.peer as u32, buffer);
        buffered::leave_copy(p, sent, args, copy)
    }
}

impl Send {
    /// The memory of a partition.
    fn buffer(&self, checked: &Checked, partition: u32) -> Buffer {
        let none = Buffer::empty();
        let Some(datatype) = &checked.datatype else {
            return none;
        };
        let count = self.args.count;
        let elements = i64::from(partition) * count;
        let offset = elements.wrapping_mul(datatype.layout().extent());
        let at = self.args.buf.wrapping_offset(offset as isize);
        // The buffer of all partitions was checked.
        datatype.buffer(at, count as u64).unwrap_or(none)
    }

    fn post(&mut self, p: &Process, partition: u32) {
        let Some(checked) = &self.checked else {
            return;
        };
        let channel = Channel::tagged(p, &checked.comm, self.offer.tag(partition));
        let buffer = self.buffer(checked, partition);
        // SAFETY: promised when the request was made.
        match unsafe { channel.post_send(self.args.peer as u32, buffer) } {
            Ok(ticket) if ticket.is_done() => {}
            Ok(ticket) => self.under_way.push(ticket),
            Err(error) => keep_first(&mut self.failed, &self.args, error),
        }
    }

    fn mark(&mut self, p: &Process, low: i32, high: i32) -> Result {
        let low = check_partition(low, self.offer.partitions)?;
        let high = check_partition(high, self.offer.partitions)?;
        if !self.is_active {
            let text = "the request of MPI_Psend_init is not active: start it first";
            return Err(Error::new(MPI_ERR_REQUEST, text));
        }
        for partition in low..=high {
            if std::mem::replace(&mut self.ready[partition as usize], true) {
                let text = format!("partition {partition} was marked before");
                return Err(Error::new(MPI_ERR_ARG, text));
            }
            self.missing -= 1;
            self.post(p, partition);
        }
        Ok(())
    }
}

impl Operation for Send {
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
        if self.missing > 0 {
            return None;
        }
        self.is_active = false;
        Some(match self.failed.take() {
            None => Ok(empty_status()),
            Some(error) => Err(error),
        })
    }

    fn watch(&self) -> Watch {
        match self.under_way.last() {
            Some(ticket) => Watch::Request(ticket.id()),
            None => Watch::Named,
        }
    }

    fn began(&self) -> &'static str {
        "MPI_Psend_init"
    }

    fn comm(&self) -> Option<usize> {
        self.checked.is_some().then_some(self.args.comm)
    }

    fn start(&mut self, p: &Process) -> Result<Option<Result<Status>>> {
        self.ready.fill(false);
        self.missing = self.offer.partitions;
        if self.checked.is_none() {
            // To MPI_PROC_NULL: complete whether marked or not.
            self.is_active = true;
            self.missing = 0;
            return Ok(Some(Ok(empty_status())));
        }
        self.is_active = true;
        Ok(self.poll(p))
    }

    fn cancel(&mut self, _: &Process) -> Result {
        Err(refuse_cancel("MPI_Psend_init"))
    }

    fn check_free(&self) -> Result {
        match self.is_active && self.checked.is_some() {
            true => Err(refuse_free("MPI_Psend_init")),
            false => Ok(()),
        }
    }

    fn notify(&mut self, p: &Process, notice: Notice) -> Result<bool> {
        match notice {
            Notice::Ready(low, high) if self.checked.is_none() => {
                check_partition(low, self.offer.partitions)?;
                check_partition(high, self.offer.partitions)?;
                Ok(true)
            }
            Notice::Ready(low, high) => {
                let marked = self.mark(p, low, high);
                marked.map(|()| true).map_err(|error| own_error(&self.args, error))
            }
            _ => Err(request::not_of_kind("of a partitioned receive")),
        }
    }
}

/// `MPI_Pready` and its like: partitions from the first to the last may leave.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is no active partitioned send, `MPI_ERR_ARG` for a partition that is none or
/// was marked before.
pub fn mark_ready(p: &Process, request: usize, low: i32, high: i32) -> Result {
    request::notify(p, request, Notice::Ready(low, high))?;
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*p.worker()?).wake_sleepers() };
    Ok(())
}
