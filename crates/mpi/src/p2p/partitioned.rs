//! Partitioned communication (MPI-5.0 chapter 4): a message in parts, each of which is sent as soon as it is ready.
//!
//! Each partition of the sender is a separate message in the communicator's collective context. The tag of a partition
//! is the request's first tag, from a range that the sender reserves, plus its number. When its request is made, the
//! sender sends an [`Offer`]: number and length of the partitions, and the first tag. The offer is matched as the
//! standard matches the two requests: by communicator, ranks, tag and order. The receiver then receives the sender's
//! partitions. A partition of the receiver has arrived when all partitions of the sender that overlap it have arrived.
#![allow(unsafe_code)]

mod recv;
mod send;

pub use recv::{has_arrived, make_recv};
pub use send::{make_send, mark_ready};

use crate::check::Record;
use crate::common::consts::*;
use crate::common::error::{COMPLETE_FIRST, COMPLETE_IT, Error, Result};
use crate::objects::arguments::Args;
use crate::objects::comm::Comm;
use crate::p2p::channel::Ticket;
use crate::process::Process;
use fastpath_protocol::RequestState;
use fastpath_protocol::tag::Context;

/// Tag of the first partition. Tags of collective calls are above it, those of partitions below it, down to `i32::MIN`.
pub(crate) const FIRST_TAG: i32 = -(1 << 26);
const TAGS: u32 = (1 << 31) - (1 << 26);

/// Description of a partitioned send, sent to its receiver once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    partitions: u32,
    bytes: u64,
    /// Distance of the first tag below [`FIRST_TAG`].
    first: u32,
}

/// Message with an offer; with checks, also with a record of the call and its data.
#[repr(C)]
struct PartitionedOffer {
    words: [u64; 2],
    record: Record,
}

impl PartitionedOffer {
    const NONE: PartitionedOffer = PartitionedOffer { words: [0; 2], record: Record::NONE };

    fn bytes(p: &Process) -> usize {
        match p.checks() {
            None => size_of::<[u64; 2]>(),
            Some(_) => size_of::<PartitionedOffer>(),
        }
    }
}

impl Offer {
    const NONE: Offer = Offer { partitions: 0, bytes: 0, first: 0 };

    fn to_wire(self) -> [u64; 2] {
        [u64::from(self.partitions) << 32 | u64::from(self.first), self.bytes]
    }

    /// Decodes an offer of a peer; `None` if it is invalid.
    fn from_wire(words: [u64; 2]) -> Option<Offer> {
        let offer =
            Offer { partitions: (words[0] >> 32) as u32, bytes: words[1], first: words[0] as u32 };
        offer.total()?;
        (offer.partitions <= i32::MAX as u32 && offer.first < TAGS).then_some(offer)
    }

    fn total(self) -> Option<u64> {
        self.bytes.checked_mul(self.partitions.into())
    }

    fn tag(self, partition: u32) -> i32 {
        let number = (u64::from(self.first) + u64::from(partition)) % u64::from(TAGS);
        FIRST_TAG - number as i32
    }
}

/// Returns context and tag of the offer for a request with `tag`. The tag is below 0, so no user receive matches it.
fn offer_route(comm: &Comm, tag: i32) -> (Context, i32) {
    match !tag {
        // The complement of tag 1 is `MPI_ANY_TAG`, which no message may have. The offer for tag 1 uses the collective
        // context, in which no call has the tag -3.
        MPI_ANY_TAG => (comm.context.collective(), -3),
        tag => (comm.context, tag),
    }
}

fn check_partition(partition: i32, partitions: u32) -> Result<u32> {
    let known = u32::try_from(partition).ok().filter(|&n| n < partitions);
    known.ok_or_else(|| {
        let text = format!(
            "there is no partition {partition}: the request has {partitions} partitions, numbered \
             from 0"
        );
        Error::new(MPI_ERR_ARG, text)
    })
}

fn check_range(low: i32, high: i32, partitions: u32) -> Result<(u32, u32)> {
    let range = (check_partition(low, partitions)?, check_partition(high, partitions)?);
    if low > high {
        let text = format!("the range of partitions begins at {low}, but ends at {high}");
        let advice = "pass the lower partition first; to mark no partition, leave out this call";
        return Err(Error::new(MPI_ERR_ARG, text).with_advice(Some(advice)));
    }
    Ok(range)
}

/// Returns the arguments of one message that contains all partitions. `args` are those of one partition.
fn whole(args: Args, partitions: i32) -> Result<Args> {
    if partitions < 0 {
        let text = format!("the number of partitions is {partitions}: pass 0 or more");
        return Err(Error::new(MPI_ERR_ARG, text));
    }
    if args.count < 0 {
        let text = format!("the count {} is negative", args.count);
        return Err(Error::new(MPI_ERR_COUNT, text));
    }
    let count = args.count.checked_mul(partitions.into());
    let count = count.ok_or_else(|| {
        let text = "all partitions together have more elements than 64 bits can count";
        Error::new(MPI_ERR_COUNT, text)
    })?;
    Ok(Args { count, ..args })
}

fn keep_first(failed: &mut Option<Error>, args: &Args, error: Error) {
    failed.get_or_insert_with(|| own_error(args, error));
}

/// Replaces the internal communicator and tag in an error by those of the request.
fn own_error(args: &Args, error: Error) -> Error {
    let error = match error.about() {
        Some((peer, _, bytes)) => error.about_message(peer, args.tag, bytes),
        None => error,
    };
    error.on_comm(args.comm)
}

fn refuse_free(call: &str) -> Error {
    let text = format!("the request of {call} is active and cannot be freed before it is complete");
    Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST))
}

fn refuse_cancel(call: &str) -> Error {
    let text = format!("a request of {call} cannot be cancelled");
    Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_IT))
}

/// Detaches the receive of an offer whose request is freed. The receive stays posted, because its offer must not match
/// a later request. The communicator lives until the receive has ended.
fn detach_offer(p: &Process, comm: usize, ticket: Ticket, letter: Box<PartitionedOffer>) -> Result {
    let id = ticket.id();
    if id == 0 {
        return Ok(());
    }
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    let worker = unsafe { &mut *p.worker()? };
    let request = worker.requests.get_mut(id);
    request.user = comm;
    if request.is_posted() || request.state == RequestState::Complete {
        worker.drop_recv(id);
    } else {
        // The offer is arriving: further fragments will be written to the buffer, so it must stay.
        request.detached = true;
        Box::leak(letter);
    }
    Ok(())
}

/// Reserves a tag for each partition, and returns the first. Tags of a communicator repeat after 2^31.
fn take_tags(comm: &Comm, partitions: u32) -> u32 {
    let first = comm.partition_tags.get();
    let next = (u64::from(first) + u64::from(partitions)) % u64::from(TAGS);
    comm.partition_tags.set(next as u32);
    first
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn offer__travels_as_words() {
        let offer = Offer { partitions: 7, bytes: 1 << 40, first: TAGS - 2 };
        assert_eq!(Offer::from_wire(offer.to_wire()), Some(offer));
        for garbage in [[u64::MAX, 0], [2 << 32, u64::MAX], [u64::from(TAGS), 1]] {
            assert_eq!(Offer::from_wire(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn tags__stay_below_those_of_collective_calls_and_come_round() {
        let offer = Offer { partitions: 3, bytes: 1, first: TAGS - 1 };
        assert_eq!(offer.tag(0), i32::MIN + 1);
        assert_eq!(offer.tag(1), FIRST_TAG);
        assert_eq!(offer.tag(2), FIRST_TAG - 1);
    }
}
