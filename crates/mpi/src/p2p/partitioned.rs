//! Partitioned communication (MPI-5.0 chapter 4): a message in parts, each of which travels when it is ready.
//!
//! Each partition of the sender is a message of its own in the communicator's collective context. Its tag is that of
//! the request, from a range that the sender takes for it, plus its number. The sender says so when its request is
//! made: how many partitions, how long each is, and the first tag ([`Offer`]). That message is matched as the standard
//! has it for the two requests, by communicator, ranks, tag and the order in which they were made. The receiver then
//! receives partitions of the sender's; one of its own has arrived when those that it overlaps have.
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
use fastpath_protocol::State;
use fastpath_protocol::tag::Context;

/// The first tag of partitions; those of collective calls are above. The others are below, down to the least `i32`.
pub(crate) const FIRST_TAG: i32 = -(1 << 26);
/// How many there are.
const TAGS: u32 = (1 << 31) - (1 << 26);

/// What a sender tells its receiver once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    /// Number of partitions.
    partitions: u32,
    /// Bytes of each.
    bytes: u64,
    /// The number of the first tag.
    first: u32,
}

/// An offer on its way; where mistakes are looked for, with a record of the call and its data.
#[repr(C)]
struct Letter {
    words: [u64; 2],
    record: Record,
}

impl Letter {
    /// Room for one.
    const NONE: Letter = Letter { words: [0; 2], record: Record::NONE };

    /// How many bytes of it travel.
    fn bytes(p: &Process) -> usize {
        match p.checks() {
            None => size_of::<[u64; 2]>(),
            Some(_) => size_of::<Letter>(),
        }
    }
}

impl Offer {
    /// Nothing at all.
    const NONE: Offer = Offer { partitions: 0, bytes: 0, first: 0 };

    fn to_wire(self) -> [u64; 2] {
        [u64::from(self.partitions) << 32 | u64::from(self.first), self.bytes]
    }

    /// An offer that a peer wrote; none where it makes no sense.
    fn from_wire(words: [u64; 2]) -> Option<Offer> {
        let offer =
            Offer { partitions: (words[0] >> 32) as u32, bytes: words[1], first: words[0] as u32 };
        offer.total()?;
        (offer.partitions <= i32::MAX as u32 && offer.first < TAGS).then_some(offer)
    }

    /// Bytes of all partitions.
    fn total(self) -> Option<u64> {
        self.bytes.checked_mul(self.partitions.into())
    }

    /// The tag of a partition.
    fn tag(self, partition: u32) -> i32 {
        let number = (u64::from(self.first) + u64::from(partition)) % u64::from(TAGS);
        FIRST_TAG - number as i32
    }
}

/// Where the offer of a request with a tag of the program travels: a context and a tag below 0, which no receive of
/// the program asks for.
fn offer_route(comm: &Comm, tag: i32) -> (Context, i32) {
    match !tag {
        // The complement of 1 is `MPI_ANY_TAG`. Of collective calls none has this one.
        MPI_ANY_TAG => (comm.context.collective(), -3),
        tag => (comm.context, tag),
    }
}

/// Checks the number of a partition.
fn check_partition(partition: i32, partitions: u32) -> Result<u32> {
    let known = u32::try_from(partition).ok().filter(|&n| n < partitions);
    known.ok_or_else(|| {
        let text = format!(
            "there is no partition {partition}: the request has {partitions}, numbered from \
             0"
        );
        Error::new(MPI_ERR_ARG, text)
    })
}

/// Checks the numbers of the first and the last partition that are marked.
fn check_range(low: i32, high: i32, partitions: u32) -> Result<(u32, u32)> {
    let range = (check_partition(low, partitions)?, check_partition(high, partitions)?);
    if low > high {
        let text = format!("the range of partitions begins at {low} and ends before it, at {high}");
        let advice = "give the lower partition first, and mark none by not calling this";
        return Err(Error::new(MPI_ERR_ARG, text).with_advice(Some(advice)));
    }
    Ok(range)
}

/// The arguments of all partitions as those of one message.
fn whole(args: Args, partitions: i32) -> Result<Args> {
    if partitions < 0 {
        let text = format!("the number of partitions is {partitions}: it must be 0 or more");
        return Err(Error::new(MPI_ERR_ARG, text));
    }
    if args.count < 0 {
        let text = format!("the count {} is negative", args.count);
        return Err(Error::new(MPI_ERR_COUNT, text));
    }
    let count = args.count.checked_mul(partitions.into());
    let count = count.ok_or_else(|| {
        let text = "the elements of all partitions are more than 64 bits can count";
        Error::new(MPI_ERR_COUNT, text)
    })?;
    Ok(Args { count, ..args })
}

/// Keeps the first error of a request.
fn keep_first(failed: &mut Option<Error>, args: &Args, error: Error) {
    failed.get_or_insert_with(|| own_error(args, error));
}

/// An error as one of the request: on its communicator, with its tag, not that of a message of ours.
fn own_error(args: &Args, error: Error) -> Error {
    let error = match error.about() {
        Some((peer, _, bytes)) => error.about_message(peer, args.tag, bytes),
        None => error,
    };
    error.on_comm(args.comm)
}

fn refuse_free(call: &str) -> Error {
    let text = format!("the request of {call} is active: it can be freed when it is complete");
    Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST))
}

fn refuse_cancel(call: &str) -> Error {
    let text = format!("a request of {call} cannot be cancelled");
    Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_IT))
}

/// Detaches the receive of an offer whose request is freed. It stays posted, because the offer that it matches must not
/// match a later request. The communicator lives until then.
fn detach_offer(p: &Process, comm: usize, ticket: Ticket, letter: Box<Letter>) -> Result {
    let id = ticket.id();
    if id == 0 {
        return Ok(());
    }
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    let worker = unsafe { &mut *p.worker()? };
    let request = worker.requests.get_mut(id);
    request.user = comm;
    if request.is_posted() || request.state == State::Complete {
        worker.drop_recv(id);
    } else {
        // Fragments are still written to the letter.
        request.detached = true;
        Box::leak(letter);
    }
    Ok(())
}

/// The first of as many tags as a request has partitions. After 2^31 of a communicator they come round.
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
