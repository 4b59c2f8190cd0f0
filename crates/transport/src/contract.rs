//! What every transport promises, and what the protocol layer may ask of it.
//!
//! The split into *short*, *bcopy* and *zcopy* is the field's (UCX's transport layer uses the same
//! words). Calls are dispatched statically: [`crate::Lane`] is a closed enum over the endpoints.
//!
//! **Immediate or nothing.** A call that returns [`Post::NoResource`] has changed nothing that anyone
//! can observe. **Look, then take.** [`Endpoint::look`] shows the next arrival of one peer without a
//! side effect; [`Endpoint::take`] consumes it. A transport knows nothing of MPI matching: header
//! words are opaque to it.

#![allow(unsafe_code)]

use std::marker::PhantomData;

/// What became of a posted operation.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// Done: the caller's buffer may be reused, and nothing will be reported later.
    Done,
    /// Under way: completion is reported by progress; the caller's buffer stays in use until then.
    /// Never the answer to a short or bcopy post, whose payload has been copied.
    InProgress,
    /// No room now. Nothing has changed; try again after progress.
    NoResource,
    /// Done, but the peer may be asleep or gone: [`Endpoint::wake`] must be called now. A value of
    /// its own, so that the hot path contains no call.
    Wake,
    /// The peer has left the job: nobody will ever take this message.
    PeerGone,
}

/// The header of an active message: what the protocol layer needs to know an arrival by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Active message id: which protocol step this is (`protocol::wire` has the list).
    pub id: u8,
    /// Immediate data; the tag of an eager message.
    pub imm: u32,
    /// The match key of an eager message, ids of requests in others.
    pub key: u64,
    /// A further number, which travels with payloads beyond `Capabilities::short` only; 0 with others.
    pub aux: u16,
}

const _: () = assert!(size_of::<Header>() == 16);

impl Header {
    /// A header of these, with `aux` 0.
    #[inline]
    pub fn new(id: u8, imm: u32, key: u64) -> Self {
        Header { id, imm, key, aux: 0 }
    }
}

/// A borrowed view of the next arrival. The bytes lie where the transport received them, often in
/// memory that the peer can still write: copy out, then check the copy.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The header.
    pub header: Header,
    data: *const u8,
    len: usize,
    _borrow: PhantomData<&'a u8>,
}

impl Arrival<'_> {
    /// A view of `len` bytes at `data`.
    #[inline]
    pub fn new(header: Header, data: *const u8, len: usize) -> Self {
        Arrival { header, data, len, _borrow: PhantomData }
    }

    /// First byte of the payload; valid for [`Arrival::len`] bytes until the arrival is taken.
    #[inline]
    pub fn data(&self) -> *const u8 {
        self.data
    }

    /// Number of payload bytes, already checked against the transport's own bounds.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no payload.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What a transport can do. Sizes in bytes; 0 says that the way does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The field's name of the transport, for reports.
    pub name: &'static str,
    /// Largest active message payload that the CPU puts into the descriptor or slot itself.
    pub short: usize,
    /// Largest active message payload that is packed into a transport buffer.
    pub bcopy: usize,
    /// Largest single `get` from remote memory without a copy through transport buffers.
    pub get_zcopy: usize,
    /// Largest single `put` to remote memory.
    pub put_zcopy: usize,
    /// Whether messages arrive once and in the order sent.
    pub reliable: bool,
    /// Whether an endpoint must exchange messages over another one before it carries data.
    pub needs_wireup: bool,
    /// Whether `look` can be directed at one peer at a cost that does not depend on the others.
    pub directed: bool,
}

/// What an operation costs: `overhead + size / bandwidth` on each side, plus `latency`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// CPU time per operation on the sending side, in nanoseconds.
    pub send_overhead_ns: f64,
    /// CPU time per operation on the receiving side, in nanoseconds.
    pub recv_overhead_ns: f64,
    /// Time per byte while both sides work at once, in nanoseconds.
    pub ns_per_byte: f64,
    /// From the send's end until the receiver can see it, in nanoseconds.
    pub latency_ns: f64,
}

impl Cost {
    /// Nanoseconds that do not depend on the size, from the send's begin to the receive's end.
    pub fn fixed_ns(&self) -> f64 {
        self.send_overhead_ns + self.latency_ns + self.recv_overhead_ns
    }

    /// Nanoseconds for `bytes` bytes, from the send's begin to the receive's end.
    pub fn at(&self, bytes: u64) -> f64 {
        self.fixed_ns() + self.ns_per_byte * bytes as f64
    }
}

/// Memory of a peer: where, and what proves the right to it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's address space, or offset, as the transport's key says.
    pub addr: u64,
    /// The transport's key of the region.
    pub rkey: u64,
}

/// Most bytes of an [`Address`].
pub const ADDRESS_BYTES: usize = 63;

/// Where a peer's end of a connection is, as its transport writes it. Opaque to everyone else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    len: u8,
    bytes: [u8; ADDRESS_BYTES],
}

impl Default for Address {
    fn default() -> Self {
        Address { len: 0, bytes: [0; ADDRESS_BYTES] }
    }
}

impl Address {
    /// An address of these bytes, at most [`ADDRESS_BYTES`].
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Address { len: from.len() as u8, bytes })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// Why a transfer from or to remote memory did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteError {
    /// The way does not exist or is not permitted here: use another one.
    Unsupported,
    /// The peer's memory is not there: it lied about an address, or has gone.
    Fault,
}

/// What is asked of a connection beside its messages ([`Endpoint`]): how it comes to be, whether there is room, what
/// the peer knows, how it ends. Each has the answer of a transport where there is nothing of the kind.
pub trait Connection {
    /// Whether addresses must be exchanged before it carries data.
    fn wants_wireup(&self) -> bool {
        false
    }

    /// Where the peer finds this end.
    fn local_address(&self) -> Address {
        Address::default()
    }

    /// Opens it for receiving from a peer whose end is at `address`; false where that is none, or leads nowhere.
    fn open(&mut self, _address: &Address) -> bool {
        false
    }

    /// Opens it for receiving, after its peer has connected.
    fn open_receive(&mut self) {}

    /// Opens it for sending: the peer's end is open.
    fn set_ready(&mut self) {}

    /// Whether `messages` messages of up to `bytes` bytes each would all find room now.
    fn has_room(&mut self, _messages: u32, _bytes: usize) -> bool {
        false
    }

    /// Asks the peer for a wake-up when it has made room; to be called before a sender sleeps.
    fn await_room(&mut self) {}

    /// Whether there is nothing to do for this peer, where the progress of its interface has just looked for all of
    /// them.
    fn is_resting(&self) -> bool {
        false
    }

    /// Nobody looks at the lane any more until its interface tells of the peer once more, as it does of one that has
    /// connected: says that it will. [`Connection::is_resting`] has just said that there is nothing to do.
    fn retire(&mut self) -> bool {
        false
    }

    /// Tells the peer what has been taken, if it does not know.
    fn return_credits(&mut self) {}

    /// Whether the peer has left the job, or cannot be reached any more, and all that it has sent is taken.
    fn peer_has_left(&self) -> bool {
        false
    }

    /// Whether all that was sent has been taken by the peer, or at least by its side.
    fn is_drained(&mut self) -> bool {
        true
    }

    /// Whether the process may end without taking back what it has sent: it lies where the peer finds it.
    fn may_leave(&mut self) -> bool {
        true
    }

    /// Whether the peer can fetch only what was shown to it ([`Connection::register`]).
    fn wants_exposure(&self) -> bool {
        false
    }

    /// Lets the peer fetch `len` bytes at `address` by [`Endpoint::get`], until [`Connection::deregister`]; `None`
    /// where it cannot.
    ///
    /// # Safety
    /// The memory stays mapped until then.
    unsafe fn register(&mut self, _address: *mut u8, _len: usize) -> Option<Remote> {
        None
    }

    /// The peer needs no more what [`Connection::register`] has shown it under this key.
    fn deregister(&mut self, _key: u64) {}

    /// Why nothing is carried to the peer of that rank any more, where that is so: for people, with the rank.
    fn describe_failure(&self, _peer: u32) -> Option<String> {
        None
    }

    /// Where the peer finds this end of the connection that is to take the place of this one.
    fn upgrade_address(&self) -> Address {
        Address::default()
    }

    /// Opens that connection to the peer's end of it; false where it leads nowhere.
    fn open_upgrade(&mut self, _address: &Address) -> bool {
        false
    }

    /// The peer's end of that connection is open: what is sent goes there from now on.
    fn finish_upgrade(&mut self) {}

    /// There will be no such connection.
    fn give_up_upgrade(&mut self) {}

    /// Whether single copies with this peer are known to work, so that both sides can take part in one.
    fn knows_single_copy(&self) -> bool {
        false
    }

    /// Opens a copy of a message to the peer in which both sides take part; `None` where there is none, or too many are
    /// under way.
    fn open_cooperative(&mut self) -> Option<u32> {
        None
    }

    /// Closes what [`Connection::open_cooperative`] has opened.
    fn close_cooperative(&mut self, _index: u32) {}

    /// Claims the next piece of a cooperative copy: how many had been claimed before, by either side.
    fn claim_cooperative(&mut self, _index: u32, _sender: bool) -> u32 {
        u32::MAX
    }
}

/// What carries messages to and from one peer: the hot half of the contract.
pub trait Endpoint: Connection {
    /// What this endpoint can do.
    fn capabilities(&self) -> Capabilities;

    /// Sends `len` bytes at `data`, at most `capabilities().short`, by copying them now.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post;

    /// Sends `len` bytes, at most `capabilities().bcopy`, that `pack` writes into the transport's
    /// buffer. `pack` runs only if there is room, and is given a pointer to `len` writable bytes.
    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post;

    /// Whether [`Endpoint::am_bulk`] does better than other ways.
    fn has_bulk(&self) -> bool {
        false
    }

    /// The message that is posted next goes together with the bulk message that follows it at once.
    fn hold_next(&mut self) {}

    /// As [`Endpoint::am_bcopy`], of bytes that lie in a row and whose receiver has a place for them, of any length;
    /// says how many have gone. They go in the order of calls: while some of a message's have not, no other message
    /// goes, but for a bound of the transport's. `None` where that is no better.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn am_bulk(
        &mut self, _header: Header, _data: *const u8, _len: usize,
    ) -> Option<(Post, usize)> {
        None
    }

    /// A message that [`Endpoint::am_bulk`] has sent and that has not all come, and how many bytes are to come: they
    /// can be taken as they do ([`Endpoint::stream`]), before anything that [`Endpoint::look`] would show.
    fn find_bulk(&self) -> Option<(Header, usize)> {
        None
    }

    /// Takes the next bytes of that message, at most as many as there is room for; how many. The last one ends it.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    unsafe fn stream(&mut self, _to: *mut u8, _room: usize) -> usize {
        0
    }

    /// Wakes the peer after a post that returned [`Post::Wake`]: `Done` or `PeerGone`.
    fn wake(&mut self) -> Post {
        Post::Done
    }

    /// The next arrival from this peer, left where it is.
    fn look(&mut self) -> Option<Arrival<'_>>;

    /// Consumes what [`Endpoint::look`] showed. Called once after a `look` that returned `Some`.
    fn take(&mut self);

    /// Copies `len` bytes from the peer's memory to `to`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError>;

    /// Copies `len` bytes at `from` into the peer's memory.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError>;
}
