//! The steps of the protocols as they travel: ids of active messages and what they carry.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `EAGER` | tag | match key | the message |
//! | `EAGER_SYNC` | tag | match key | sender's request (8 bytes), then the message |
//! | `ACK` | 0 | sender's request | none: the synchronous message was matched |
//! | `RTS` | tag | match key | [`Announcement`], then the first bytes of the message, or nothing where none come by themselves |
//! | `PARTS` | tag | match key | the first bytes of a message that comes all by itself; its length is `header.aux` |
//! | `RTR` | 0 | sender's request | [`Rtr`]: go on, so many bytes in all |
//! | `FRAG` | 0 | receiver's request | the next bytes of the message |
//! | `FIN` | 0 | sender's request | none: the receiver needs no more from the sender |
//! | `EARLY` | 0 | 0 | the next bytes of the message announced last, sent without being asked |
//! | `PUT` | 0 | receiver's request | none: the sender has written the rest where the `RTR` said |
//! | `CANCEL` | 1 where an answer is asked for, or 0 | sender's request | none: the announced message is taken back, if it was not matched |
//! | `CANCELLED` | 0 | sender's request | none: it was taken back |
//! | `DONE` | 0, or 1 for failed | receiver's request | none: the sender has copied its part of a joint copy |
//! | `ADVICE` | octave, and of how many messages one is to be timed | arm | none: which way to go (see `learning`) |
//!
//! Those of one-sided operations stand in `rma::message`.
#![allow(unsafe_code)]

/// A whole message of standard mode.
pub const EAGER: u8 = 1;
/// A whole message of synchronous mode.
pub const EAGER_SYNC: u8 = 2;
/// A synchronous message was matched.
pub const ACK: u8 = 3;
/// Ready to send: the announcement of a long message, with its first bytes.
pub const RTS: u8 = 4;
/// Ready to receive: the long message was matched; send the rest.
pub const RTR: u8 = 5;
/// A fragment of a long message.
pub const FRAG: u8 = 6;
/// The receiver has fetched the long message by itself, or wants no more of it.
pub const FIN: u8 = 7;

/// A further part of a message that its sender did not wait with.
pub const EARLY: u8 = 8;
/// The sender's part of a joint copy is done.
pub const DONE: u8 = 9;
/// The sender has written the rest of a message into the receiver's memory.
pub const PUT: u8 = 10;

/// The first part of a message that comes all by itself, without a request on either side.
pub const PARTS: u8 = 11;

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

/// `Rts::joint` of a message that only the receiver may copy.
pub const NO_JOINT: u16 = u16::MAX;

/// `Rts::joint` of a message that comes all by itself, whose sender waits to hear that it was matched.
pub const ANSWER_ASKED: u16 = u16::MAX - 1;

/// Bytes before the message in an `EAGER_SYNC`.
pub const SYNC_HEADER: usize = 8;

/// What an `RTS` says of its message.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rts {
    /// Length of the whole message in bytes.
    pub total: u64,
    /// Where it lies in the sender's memory; 0 where it is not contiguous.
    pub addr: u64,
    /// Key of that memory (see `transport::Remote`).
    pub rkey: u64,
    /// The sender's request.
    pub request: u32,
    /// Bytes that come without being asked for, those behind this header included.
    pub early: u16,
    /// Number of the joint copy that the sender has opened, or [`NO_JOINT`] or [`ANSWER_ASKED`].
    pub joint: u16,
}

/// What follows an [`Rts`]: for the learning of ways.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// When the send began, in nanoseconds modulo 2^32 of the host's clock; 0 where that is not to be timed.
    pub sent_ns: u32,
    /// The way that the message goes: the number of a [`crate::learning::Arm`].
    pub arm: u8,
    /// Nothing.
    pub unused: [u8; 3],
}

/// An `RTS` as it travels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// What it says of its message.
    pub rts: Rts,
    /// For the learning of ways.
    pub timing: Timing,
}

/// `Rtr::answer`: send fragments.
pub const SEND: u32 = 0;
/// Low byte of `Rtr::answer`: take part in a joint copy. Above it: pages of a piece.
pub const JOIN: u32 = 1;
/// `Rtr::answer`: send fragments, of the next messages too: single copies are not possible here.
pub const SEND_ALWAYS: u32 = 2;

/// `Rtr::answer` that asks for a joint copy in pieces of `pages` pages, at most 2^24 - 1.
pub fn join(pages: u32) -> u32 {
    JOIN | pages << 8
}

/// The pages of a piece where `answer` asks for a joint copy.
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
    /// Where the message goes in the receiver's memory: for a joint copy, or to be written there
    /// instead of fragments.
    pub addr: u64,
    /// Key of that memory.
    pub rkey: u64,
}

/// Largest control message in bytes.
pub const CONTROL_MAX: usize = 32;

/// Bytes before the message in an `RTS`:
/// a whole cache line, so that the copy of what follows is aligned.
pub const RTS_HEADER: usize = 64;

impl Rts {
    /// What a `PARTS` with a length of `total` bytes says in these terms.
    pub fn of_parts(total: u16) -> Self {
        Rts {
            total: total as u64,
            addr: 0,
            rkey: 0,
            request: 0,
            early: total,
            joint: NO_JOINT,
        }
    }

    /// The sender's request where it may take the message back: one in parts without a request it may not.
    pub fn announced_by(&self) -> Option<u32> {
        (self.request != 0).then_some(self.request)
    }

    /// Whether the sender has opened a joint copy for the message.
    pub fn is_joint(&self) -> bool {
        self.joint < ANSWER_ASKED
    }
}

const _: () = assert!(size_of::<Rts>() == 32 && size_of::<Rtr>() == 32);
const _: () = assert!(size_of::<Announcement>() == 40);

/// Reads a plain structure from the start of an arrival, or `None` where it is too short.
///
/// # Safety
/// `data` is readable for `len` bytes; `T` is plain data.
pub unsafe fn read<T: Copy>(data: *const u8, len: usize) -> Option<T> {
    // SAFETY: length checked; read once, so that a peer that writes meanwhile changes nothing.
    (len >= size_of::<T>()).then(|| unsafe { data.cast::<T>().read_unaligned() })
}
