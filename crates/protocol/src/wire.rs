//! Wire format of the protocols: ids and payloads of active messages.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `EAGER` | tag | match key | the message |
//! | `EAGER_SYNC` | tag | match key | sender's request (8 bytes), then the message |
//! | `ACK` | 0 | sender's request | none: the synchronous message was matched |
//! | `RTS` | tag | match key | [`RtsHeader`], then the first eager bytes of the message, if any |
//! | `EAGER_FIRST` | tag | match key | the first bytes of a message in eager fragments; its length is one more than `header.aux` |
//! | `RTR` | 0 | sender's request | [`Rtr`]: bytes to send in all, and the transfer to use |
//! | `FRAG` | 0 | receiver's request | the next bytes of the message |
//! | `ATS` | 0 | sender's request | none: the receiver needs no more from the sender |
//! | `EAGER_MIDDLE` | 0 | 0 | the next eager bytes of the message announced last |
//! | `ATP` | 0 | receiver's request | none: the sender has written the rest to the address in the `RTR` |
//! | `CANCEL` | 1 if an answer is requested, or 0 | sender's request | none: the announced message is taken back, if it was not matched |
//! | `CANCELLED` | 0 | sender's request | none: the message was taken back |
//! | `DONE` | 0, or 1 for failed | receiver's request | none: the sender has copied its part of a cooperative copy |
//! | `NOTICE` | kind | number | bytes for the layer above, outside of matching |
//! | `ADVICE` | octave, and above it the number of messages per timed message | arm | none: protocol to use (see `learning`) |
//!
//! `rma::message` has the messages of one-sided operations.
#![allow(unsafe_code)]

use fastpath_transport::Remote;

/// Largest payload, in bytes, that an immediate send writes to a slot.
pub const SHORT_LIMIT: usize = 48;
/// Largest payload of one transport buffer, in bytes.
pub const EAGER_LIMIT: usize = 32 * 1024;
/// Maximum number of eager bytes of a message.
pub const EARLY_LIMIT: u64 = 64 * 1024;

/// Whole message of standard mode.
pub const EAGER: u8 = 1;
/// Whole message of synchronous mode.
pub const EAGER_SYNC: u8 = 2;
/// Acknowledgement that a synchronous message was matched.
pub const ACK: u8 = 3;
/// Ready to send (RTS): announces a long message, with its first bytes.
pub const RTS: u8 = 4;
/// Ready to receive (RTR): the long message was matched, and its sender must send the rest.
pub const RTR: u8 = 5;
/// Fragment of a long message.
pub const FRAG: u8 = 6;
/// Acknowledgement to the sender: the receiver has copied the message, or needs no more of it.
pub const ATS: u8 = 7;

/// Further eager part of a long message.
pub const EAGER_MIDDLE: u8 = 8;
/// End of the sender's part of a cooperative copy.
pub const DONE: u8 = 9;
/// Acknowledgement after a put: the sender has written the rest of a message into the receiver's memory.
pub const ATP: u8 = 10;

/// First part of a message in eager fragments, without a request on either side.
pub const EAGER_FIRST: u8 = 11;

/// One-sided put by messages. `rma::message` has the payloads of one-sided operations.
pub const REMOTE_PUT: u8 = 12;
/// One-sided get.
pub const REMOTE_GET: u8 = 13;
/// One-sided atomic.
pub const REMOTE_ATOMIC: u8 = 14;
/// Result of a get or an atomic.
pub const REMOTE_DATA: u8 = 15;
/// Request for an answer when all earlier puts are complete.
pub const REMOTE_FLUSH: u8 = 16;
/// Answer to `REMOTE_FLUSH`.
pub const REMOTE_FLUSHED: u8 = 17;

/// Withdrawal of an announced message by its sender.
pub const CANCEL: u8 = 18;
/// Confirmation that the receiver has dropped a withdrawn message.
pub const CANCELLED: u8 = 19;

/// Receiver's choice of a protocol for messages of a size.
pub const ADVICE: u8 = 20;

/// Small put or get that the peer has written into a slot (`rma::ask`).
pub const REMOTE_ASK: u8 = 21;

/// Change that the owner makes under its own lock word (`rma::message`).
pub const REMOTE_CHANGE: u8 = 22;

/// Put of many short blocks.
pub const REMOTE_PUT_BLOCKS: u8 = 23;
/// Get of many short blocks.
pub const REMOTE_GET_BLOCKS: u8 = 24;

/// Bytes for the layer above, outside of matching ([`crate::notices`]).
pub const NOTICE: u8 = 25;

/// Returns whether a control message only completes an operation. Such a message need not interrupt the program.
pub fn only_completes(id: u8) -> bool {
    matches!(id, ACK | ATS | ATP | CANCELLED | ADVICE | REMOTE_DATA | REMOTE_FLUSHED)
}

/// Bytes before the message in an `EAGER_SYNC`.
pub const SYNC_HEADER: usize = 8;

pub(crate) const NOWHERE: Remote = Remote { addr: 0, rkey: 0 };

/// Transfer that an RTS offers for the bytes that are not eager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Fragments, after an RTR.
    Fragments,
    /// Nothing to transfer: the whole message is eager, and its sender waits for the match.
    Nothing,
    /// Copy by the receiver, from this address in the sender's memory.
    Get(Remote),
    /// Copy by both sides, from this address, in pieces claimed from the counter with this index.
    Cooperative(Remote, u8),
}

/// Contents of an `RTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rts {
    /// Length of the whole message in bytes.
    pub total: u64,
    /// The sender's request.
    pub request: u32,
    /// Eager bytes in all, including those that follow the RTS.
    pub early: u32,
    /// Transfer of the other bytes.
    pub offer: Offer,
}

/// Fields of an RTS that measure the time of its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Time when the send began, in nanoseconds of the host's clock modulo 2^32; 0 if the message is not timed.
    pub sent_ns: u32,
    /// Number of the [`crate::learning::Arm`] of the message.
    pub arm: u8,
}

/// Wire format of an [`Rts`] and its [`Timing`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtsHeader {
    total: u64,
    /// Address and key of the message in the sender's memory; 0 unless the offer is `GET` or `COOPERATIVE`.
    addr: u64,
    rkey: u64,
    request: u32,
    early: u32,
    sent_ns: u32,
    offer: u8,
    index: u8,
    arm: u8,
    unused: u8,
}

const FRAGMENTS: u8 = 0;
const NOTHING: u8 = 1;
const GET: u8 = 2;
const COOPERATIVE: u8 = 3;

impl RtsHeader {
    /// Encodes a message and its timing.
    pub fn pack(rts: &Rts, timing: Timing) -> Self {
        let (offer, Remote { addr, rkey }, index) = match rts.offer {
            Offer::Fragments => (FRAGMENTS, NOWHERE, 0),
            Offer::Nothing => (NOTHING, NOWHERE, 0),
            Offer::Get(from) => (GET, from, 0),
            Offer::Cooperative(from, index) => (COOPERATIVE, from, index),
        };
        RtsHeader {
            total: rts.total,
            addr,
            rkey,
            request: rts.request,
            early: rts.early,
            offer,
            index,
            sent_ns: timing.sent_ns,
            arm: timing.arm,
            unused: 0,
        }
    }

    /// Decodes the header; `None` if it is not valid.
    pub fn unpack(&self) -> Option<(Rts, Timing)> {
        let (early, from) = (self.early as u64, Remote { addr: self.addr, rkey: self.rkey });
        // A message that is copied without the ring has no eager bytes.
        let copied = early == 0 && self.rkey != 0;
        let offer = match self.offer {
            FRAGMENTS => Offer::Fragments,
            NOTHING if early == self.total => Offer::Nothing,
            GET if copied => Offer::Get(from),
            COOPERATIVE if copied => Offer::Cooperative(from, self.index),
            _ => return None,
        };
        let rts = Rts { total: self.total, request: self.request, early: self.early, offer };
        let timing = Timing { sent_ns: self.sent_ns, arm: self.arm };
        (early <= self.total).then_some((rts, timing))
    }
}

/// `Rtr::answer`: send fragments.
pub const SEND: u32 = 0;
/// Low byte of `Rtr::answer`: take part in a cooperative copy. The bits above it are the pages of a piece.
pub const JOIN: u32 = 1;
/// `Rtr::answer`: send fragments for this and all later messages, because single copies are impossible here.
pub const SEND_ALWAYS: u32 = 2;

/// Returns the `Rtr::answer` for a cooperative copy in pieces of `pages` pages, at most 2^24 - 1.
pub fn join(pages: u32) -> u32 {
    JOIN | pages << 8
}

/// Returns the pages of a piece if `answer` requests a cooperative copy.
pub fn joined_pages(answer: u32) -> Option<u32> {
    (answer & 0xff == JOIN).then_some(answer >> 8)
}

/// Contents of an `RTR`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtr {
    /// Bytes of the message that the receiver needs, including those in the RTS.
    pub limit: u64,
    /// Receiver's request, which each fragment names.
    pub request: u32,
    /// [`SEND`], [`JOIN`] with the size of its pieces ([`join`]), or [`SEND_ALWAYS`].
    pub answer: u32,
    /// Address in the receiver's memory, for a cooperative copy or a put. Its key is 0 if there is none.
    pub into: Remote,
}

/// Largest control message in bytes.
pub const CONTROL_MAX: usize = 32;

/// Bytes before the message in an `RTS`: a whole cache line, so that the copy of the payload is aligned.
pub const RTS_HEADER: usize = 64;

impl Rts {
    /// Returns the contents of an `EAGER_FIRST` whose header has `aux`.
    pub fn of_parts(aux: u16) -> Self {
        let total = u32::from(aux) + 1;
        Rts { total: total.into(), request: 0, early: total, offer: Offer::Fragments }
    }

    /// Returns the sender's request, if the sender may withdraw the message. Eager fragments have none.
    pub fn announced_by(&self) -> Option<u32> {
        (self.request != 0).then_some(self.request)
    }
}

const _: () = assert!(size_of::<Rtr>() == 32);
const _: () = assert!(size_of::<RtsHeader>() == 40);

/// Reads a plain structure from the start of an arrival. `None` if the arrival is too short.
///
/// # Safety
/// `data` is readable for `len` bytes; `T` is plain data.
pub unsafe fn read<T: Copy>(data: *const u8, len: usize) -> Option<T> {
    // SAFETY: the length is checked, and one read makes later writes by the peer harmless.
    (len >= size_of::<T>()).then(|| unsafe { data.cast::<T>().read_unaligned() })
}
