//! The steps of the protocols as they travel: ids of active messages and what they carry.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `EAGER` | tag | match key | the message |
//! | `EAGER_SYNC` | tag | match key | sender's request (8 bytes), then the message |
//! | `ACK` | 0 | sender's request | none: the synchronous message was matched |
//! | `RTS` | tag | match key | [`RtsHeader`], then the first bytes of the message, or nothing where none come by themselves |
//! | `EAGER_FIRST` | tag | match key | the first bytes of a message that comes all by itself; its length is one more than `header.aux` |
//! | `RTR` | 0 | sender's request | [`Rtr`]: go on, so many bytes in all |
//! | `FRAG` | 0 | receiver's request | the next bytes of the message |
//! | `ATS` | 0 | sender's request | none: the receiver needs no more from the sender |
//! | `EAGER_MIDDLE` | 0 | 0 | the next bytes of the message announced last, sent without being asked |
//! | `ATP` | 0 | receiver's request | none: the sender has written the rest where the `RTR` said |
//! | `CANCEL` | 1 where an answer is asked for, or 0 | sender's request | none: the announced message is taken back, if it was not matched |
//! | `CANCELLED` | 0 | sender's request | none: it was taken back |
//! | `DONE` | 0, or 1 for failed | receiver's request | none: the sender has copied its part of a cooperative copy |
//! | `ADVICE` | octave, and of how many messages one is to be timed | arm | none: which way to go (see `learning`) |
//!
//! Those of one-sided operations stand in `rma::message`.
#![allow(unsafe_code)]

use fastpath_transport::Remote;

/// A whole message of standard mode.
pub const EAGER: u8 = 1;
/// A whole message of synchronous mode.
pub const EAGER_SYNC: u8 = 2;
/// A synchronous message was matched.
pub const ACK: u8 = 3;
/// Ready to send (RTS): a long message, with its first bytes.
pub const RTS: u8 = 4;
/// Ready to receive: the long message was matched; send the rest.
pub const RTR: u8 = 5;
/// A fragment of a long message.
pub const FRAG: u8 = 6;
/// The receiver has fetched the long message by itself, or wants no more of it.
pub const ATS: u8 = 7;

/// A further part of a message that its sender did not wait with.
pub const EAGER_MIDDLE: u8 = 8;
/// The sender's part of a cooperative copy is done.
pub const DONE: u8 = 9;
/// The sender has written the rest of a message into the receiver's memory.
pub const ATP: u8 = 10;

/// The first part of a message that comes all by itself, without a request on either side.
pub const EAGER_FIRST: u8 = 11;

/// One-sided operations by messages (`rma::message` says what they carry): a put.
pub const REMOTE_PUT: u8 = 12;
/// A get.
pub const REMOTE_GET: u8 = 13;
/// An atomic.
pub const REMOTE_ATOMIC: u8 = 14;
/// What a get or an atomic found.
pub const REMOTE_DATA: u8 = 15;
/// The question when the puts so far have been carried out.
pub const REMOTE_FLUSH: u8 = 16;
/// The answer to it.
pub const REMOTE_FLUSHED: u8 = 17;

/// The sender takes back an announced message.
pub const CANCEL: u8 = 18;
/// The receiver has given it back.
pub const CANCELLED: u8 = 19;

/// The receiver says which way messages of a size should go.
pub const ADVICE: u8 = 20;

/// A peer asks for a small put or get that it has written into a slot (`rma::ask`).
pub const REMOTE_ASK: u8 = 21;

/// A change that the owner makes under a lock word of its own (`rma::message`).
pub const REMOTE_CHANGE: u8 = 22;

/// Whether a control message does nothing but complete an operation of its receiver: a program learns of it soon enough
/// when it asks.
pub fn only_completes(id: u8) -> bool {
    matches!(id, ACK | ATS | ATP | CANCELLED | ADVICE | REMOTE_DATA | REMOTE_FLUSHED)
}

/// Bytes before the message in an `EAGER_SYNC`.
pub const SYNC_HEADER: usize = 8;

/// Names no memory.
pub(crate) const NOWHERE: Remote = Remote { addr: 0, rkey: 0 };

/// What an RTS offers beside the bytes that come by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Fragments, for an answer that asks for them.
    Fragments,
    /// Nothing: all of the message comes by itself, and its sender waits to hear that it was matched.
    Nothing,
    /// The message where it lies in the sender's memory: the receiver may copy it.
    Get(Remote),
    /// The same, and this counter of pieces, by which both sides may copy it.
    Cooperative(Remote, u8),
}

/// What an `RTS` says of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rts {
    /// Length of the whole message in bytes.
    pub total: u64,
    /// The sender's request.
    pub request: u32,
    /// Bytes that come without being asked for, those behind the RTS included.
    pub early: u32,
    /// How the rest may come.
    pub offer: Offer,
}

/// What an RTS says for the learning of ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// When the send began, in nanoseconds modulo 2^32 of the host's clock; 0 where that is not to be timed.
    pub sent_ns: u32,
    /// The way that the message goes: the number of a [`crate::learning::Arm`].
    pub arm: u8,
}

/// An [`Rts`] and its [`Timing`] as they travel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtsHeader {
    total: u64,
    /// Where the message lies in the sender's memory, and the key of that (see `transport::Remote`); 0 where the offer
    /// is neither `GET` nor `COOPERATIVE`.
    addr: u64,
    rkey: u64,
    request: u32,
    early: u32,
    sent_ns: u32,
    /// `FRAGMENTS`, `NOTHING`, `GET` or `COOPERATIVE`.
    offer: u8,
    /// Number of the counter of pieces; 0 where there is none.
    index: u8,
    arm: u8,
    unused: u8,
}

/// Values of `RtsHeader::offer`, in the order of [`Offer`].
const FRAGMENTS: u8 = 0;
const NOTHING: u8 = 1;
const GET: u8 = 2;
const COOPERATIVE: u8 = 3;

impl RtsHeader {
    /// What a message and its timing look like on their way.
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

    /// What a peer has announced; `None` where nobody announces that.
    pub fn unpack(&self) -> Option<(Rts, Timing)> {
        let (early, from) = (self.early as u64, Remote { addr: self.addr, rkey: self.rkey });
        // A message that is copied comes by the copy alone.
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
/// Low byte of `Rtr::answer`: take part in a cooperative copy. Above it: pages of a piece.
pub const JOIN: u32 = 1;
/// `Rtr::answer`: send fragments, of the next messages too: single copies are not possible here.
pub const SEND_ALWAYS: u32 = 2;

/// `Rtr::answer` that asks for a cooperative copy in pieces of `pages` pages, at most 2^24 - 1.
pub fn join(pages: u32) -> u32 {
    JOIN | pages << 8
}

/// The pages of a piece where `answer` asks for a cooperative copy.
pub fn joined_pages(answer: u32) -> Option<u32> {
    (answer & 0xff == JOIN).then_some(answer >> 8)
}

/// What an `RTR` says.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtr {
    /// How many bytes of the message the receiver wants in all, those of the RTS included.
    pub limit: u64,
    /// The receiver's request, to be named by each fragment.
    pub request: u32,
    /// [`SEND`], [`JOIN`] with the size of its pieces (`join`), or [`SEND_ALWAYS`].
    pub answer: u32,
    /// Where the message goes in the receiver's memory: for a cooperative copy, or to be written there
    /// instead of fragments. Key 0: nowhere.
    pub into: Remote,
}

/// Largest control message in bytes.
pub const CONTROL_MAX: usize = 32;

/// Bytes before the message in an `RTS`:
/// a whole cache line, so that the copy of what follows is aligned.
pub const RTS_HEADER: usize = 64;

impl Rts {
    /// What an `EAGER_FIRST` with a length of `total` bytes says in these terms.
    pub fn of_parts(aux: u16) -> Self {
        let total = u32::from(aux) + 1;
        Rts { total: total.into(), request: 0, early: total, offer: Offer::Fragments }
    }

    /// The sender's request where it may take the message back: one in parts without a request it may not.
    pub fn announced_by(&self) -> Option<u32> {
        (self.request != 0).then_some(self.request)
    }
}

const _: () = assert!(size_of::<Rtr>() == 32);
const _: () = assert!(size_of::<RtsHeader>() == 40);

/// Reads a plain structure from the start of an arrival, or `None` where it is too short.
///
/// # Safety
/// `data` is readable for `len` bytes; `T` is plain data.
pub unsafe fn read<T: Copy>(data: *const u8, len: usize) -> Option<T> {
    // SAFETY: length checked; read once, so that a peer that writes meanwhile changes nothing.
    (len >= size_of::<T>()).then(|| unsafe { data.cast::<T>().read_unaligned() })
}
