//! Contract between the transports and the protocol layer.
//!
//! The split into *short*, *bcopy* and *zcopy* is that of UCX's transport layer. Calls are dispatched statically:
//! [`crate::Lane`] is a closed enum of endpoints.
//!
//! **Immediate or nothing.** A call that returns [`Post::NoResource`] has had no observable effect. **Look, then
//! take.** [`Endpoint::look`] returns the next arrival of one peer without a side effect; [`Endpoint::take`] consumes
//! it. Transports know no MPI matching and do not interpret header words.

#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Outcome of a post.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// Complete: the caller's buffer may be reused, and no completion is reported later.
    Done,
    /// The caller's buffer stays in use until progress reports completion. Short and bcopy posts never return this
    /// value.
    InProgress,
    /// No room now, and no effect. Retry after progress.
    NoResource,
    /// Complete, but the peer may sleep or be gone: call [`Endpoint::wake`]. This value keeps the call that wakes the
    /// peer off the hot path.
    Wake,
    /// The peer has left the job and will never take this message.
    PeerGone,
}

/// Header of an active message, by which the protocol layer identifies an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Active message id: a protocol step, listed in `protocol::wire`.
    pub id: u8,
    /// Immediate data; the tag of an eager message.
    pub imm: u32,
    /// Match key of an eager message; request ids in other messages.
    pub key: u64,
    /// Additional number, sent only with payloads longer than `Capabilities::short`; otherwise 0.
    pub aux: u16,
}

const _: () = assert!(size_of::<Header>() == 16);

impl Header {
    /// Creates a header with `aux` 0.
    #[inline]
    pub fn new(id: u8, imm: u32, key: u64) -> Self {
        Header { id, imm, key, aux: 0 }
    }
}

/// Borrowed view of the next arrival. On some transports the peer can still write these bytes: copy them out, then
/// check the copy.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Message header.
    pub header: Header,
    data: *const u8,
    len: usize,
    _borrow: PhantomData<&'a u8>,
}

impl Arrival<'_> {
    /// Creates a view of `len` bytes at `data`.
    #[inline]
    pub fn new(header: Header, data: *const u8, len: usize) -> Self {
        Arrival { header, data, len, _borrow: PhantomData }
    }

    /// Address of the payload; valid for [`Arrival::len`] bytes until the arrival is taken.
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

/// Limits of a transport, in bytes; 0 if an operation is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the transport, for reports.
    pub name: &'static str,
    /// Largest active message payload that the CPU writes to the descriptor or slot itself.
    pub short: usize,
    /// Largest active message payload that is packed into a transport buffer.
    pub bcopy: usize,
    /// Largest single `get` without a copy through transport buffers.
    pub get_zcopy: usize,
    /// Largest single `put` to remote memory.
    pub put_zcopy: usize,
    /// Whether messages arrive once and in order.
    pub reliable: bool,
    /// Whether addresses must be exchanged over another endpoint before this one carries data.
    pub needs_wireup: bool,
    /// Whether the cost of `look` at one peer does not depend on the number of other peers.
    pub directed: bool,
}

/// Cost model of an operation: `overhead + size / bandwidth` on each side, plus `latency`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// CPU time per operation on the sending side, in nanoseconds.
    pub send_overhead_ns: f64,
    /// CPU time per operation on the receiving side, in nanoseconds.
    pub recv_overhead_ns: f64,
    /// Time per byte while both sides work concurrently, in nanoseconds.
    pub ns_per_byte: f64,
    /// Time from the end of the send until the receiver sees the message, in nanoseconds.
    pub latency_ns: f64,
}

impl Cost {
    /// Time that does not depend on the size, from the start of the send to the end of the receive, in nanoseconds.
    pub fn fixed_ns(&self) -> f64 {
        self.send_overhead_ns + self.latency_ns + self.recv_overhead_ns
    }

    /// Time for `bytes` bytes, from the start of the send to the end of the receive, in nanoseconds.
    pub fn at(&self, bytes: u64) -> f64 {
        self.fixed_ns() + self.ns_per_byte * bytes as f64
    }
}

/// Memory of a peer: address and access key.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's address space, or an offset in the key's region, as the key determines.
    pub addr: u64,
    /// Key of the region, defined by the transport.
    pub rkey: u64,
}

/// Consecutive bytes in a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteBlock {
    /// Bytes from the address of a [`Remote`], or from the start of a region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl RemoteBlock {
    /// Returns the number of bytes in `blocks`.
    pub fn total(blocks: &[RemoteBlock]) -> u64 {
        blocks.iter().map(|block| block.len).sum()
    }
}

/// Most bytes of an [`Address`].
pub const ADDRESS_BYTES: usize = 63;

/// Address of an endpoint. Only its transport interprets the bytes.
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
    /// Creates an address; `None` if it exceeds [`ADDRESS_BYTES`] bytes.
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Address { len: from.len() as u8, bytes })
    }

    /// Bytes of the address.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// Cause of a failed one-sided transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteError {
    /// Not supported or not permitted: the caller must use another protocol.
    Unsupported,
    /// The peer's memory is not mapped: the address was wrong, or the peer has left.
    Fault,
}

/// Method of a one-sided operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The descriptor holds the bytes of the operation.
    Short,
    /// The bytes go through a transport buffer.
    Bcopy,
    /// The adapter moves the bytes between the memories of the two processes.
    Zcopy,
}

impl Method {
    /// Name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Method::Short => "short",
            Method::Bcopy => "bcopy",
            Method::Zcopy => "zcopy",
        }
    }
}

/// Outcome of posting a one-sided operation.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostOutcome {
    /// Number of leading bytes in progress; their buffer may be reused.
    Done(usize),
    /// Number of leading bytes in progress; their buffer stays in use until a flush.
    InProgress(usize),
    /// No room now, or not yet connected. No effect.
    NoResource,
    /// The peer is unreachable permanently.
    PeerGone,
}

/// Operations other than messages ([`Endpoint`]): setup, room, credits, end. The default methods are for transports
/// that lack the operation.
pub trait Connection {
    /// Whether addresses must be exchanged before the endpoint carries data.
    fn wants_wireup(&self) -> bool {
        false
    }

    /// Address of this end, for the peer.
    fn local_address(&self) -> Address {
        Address::default()
    }

    /// Opens the endpoint for receiving from `_address`; returns false for an invalid or unreachable address.
    fn open(&mut self, _address: &Address) -> bool {
        false
    }

    /// Opens the endpoint for receiving, after its peer has connected.
    fn open_receive(&mut self) {}

    /// Opens the endpoint for sending, after the peer has opened its end.
    fn set_ready(&mut self) {}

    /// Whether there is room now for `_messages` messages of up to `_bytes` bytes each.
    fn has_room(&mut self, _messages: u32, _bytes: usize) -> bool {
        false
    }

    /// Requests a wake-up when the peer has made room. Call it before a sender sleeps.
    fn await_room(&mut self) {}

    /// Whether there is no work for this peer. Valid right after progress of the lane's interface, which checks all
    /// peers.
    fn is_resting(&self) -> bool {
        false
    }

    /// Stops polling this lane until its interface reports the peer again, like a new connection. Returns whether the
    /// interface will report it. Call it right after [`Connection::is_resting`] returned true.
    fn retire(&mut self) -> bool {
        false
    }

    /// Returns owed credits to the peer, if there are enough for a message of their own.
    fn return_credits(&mut self) {}

    /// Whether the peer has left the job or is unreachable, and everything it sent has been taken.
    fn peer_has_left(&self) -> bool {
        false
    }

    /// Whether everything sent has been received by the peer, its adapter or its kernel.
    fn is_drained(&mut self) -> bool {
        true
    }

    /// Whether the process may end without losing what it has sent.
    fn may_leave(&mut self) -> bool {
        true
    }

    /// Whether the peer reads only memory registered by [`Connection::register`].
    fn wants_exposure(&self) -> bool {
        false
    }

    /// Lets the peer [`Endpoint::get`] `_len` bytes at `_address`. `None` if the memory cannot be registered.
    ///
    /// # Safety
    /// The memory stays mapped until [`Connection::deregister`].
    unsafe fn register(&mut self, _address: *mut u8, _len: usize) -> Option<Remote> {
        None
    }

    /// Ends the access granted by [`Connection::register`] under `_key`.
    fn deregister(&mut self, _key: u64) {}

    /// Cause of the connection's failure, if it has failed, as a message that names rank `_peer`.
    fn describe_failure(&self, _peer: u32) -> Option<String> {
        None
    }

    /// Address of this end of the connection that will replace this endpoint.
    fn upgrade_address(&self) -> Address {
        Address::default()
    }

    /// Opens the replacing connection to the peer's end; returns false for an unreachable address.
    fn open_upgrade(&mut self, _address: &Address) -> bool {
        false
    }

    /// Directs sends to the replacing connection, after the peer has opened its end.
    fn finish_upgrade(&mut self) {}

    /// Abandons the replacing connection permanently.
    fn give_up_upgrade(&mut self) {}

    /// Whether single copies with this peer are known to work, so that both sides can share the copying.
    fn knows_single_copy(&self) -> bool {
        false
    }

    /// Opens a copy shared by sender and receiver; returns its index. `None` if unsupported, or too many copies are
    /// open.
    fn open_cooperative(&mut self) -> Option<u32> {
        None
    }

    /// Closes a copy opened by [`Connection::open_cooperative`].
    fn close_cooperative(&mut self, _index: u32) {}

    /// Claims the next piece of a shared copy; returns the number of pieces that both sides had claimed before.
    fn claim_cooperative(&mut self, _index: u32, _sender: bool) -> u32 {
        u32::MAX
    }
}

/// Messages to and from one peer: the hot half of the contract.
pub trait Endpoint: Connection {
    /// Limits of this endpoint.
    fn capabilities(&self) -> Capabilities;

    /// Sends `len` bytes at `data`, at most `capabilities().short`, by copying them now.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post;

    /// Sends `len` bytes, at most `capabilities().bcopy`, that `pack` writes to the transport's buffer. `pack` runs
    /// only if there is room; its argument points to `len` writable bytes.
    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post;

    /// Whether [`Endpoint::am_bulk`] is faster than other methods.
    fn has_bulk(&self) -> bool {
        false
    }

    /// Holds the next message back and sends it together with the bulk message that must follow at once.
    fn hold_next(&mut self) {}

    /// Sends contiguous bytes of any length, for which the receiver has a buffer; returns the number of bytes sent.
    ///
    /// Bytes are sent in the order of calls, in frames whose length the transport bounds. While a frame is sent in
    /// part, no other message is sent. Returns `None` if [`Endpoint::am_bcopy`] is no slower.
    ///
    /// # Safety
    /// `_data` is readable for `_len` bytes.
    unsafe fn am_bulk(
        &mut self, _header: Header, _data: *const u8, _len: usize,
    ) -> Option<(Post, usize)> {
        None
    }

    /// Header and missing bytes of a message by [`Endpoint::am_bulk`] that has arrived in part. Take them by
    /// [`Endpoint::stream`] before anything that [`Endpoint::look`] returns.
    fn find_bulk(&self) -> Option<(Header, usize)> {
        None
    }

    /// Takes at most `_room` next bytes of a message by [`Endpoint::am_bulk`]; returns their number. The message ends
    /// with its last byte.
    ///
    /// # Safety
    /// `_to` is writable for `_room` bytes.
    unsafe fn stream(&mut self, _to: *mut u8, _room: usize) -> usize {
        0
    }

    /// Wakes the peer after a post that returned [`Post::Wake`]. Returns `Done` or `PeerGone`.
    fn wake(&mut self) -> Post {
        Post::Done
    }

    /// Next arrival from this peer; it stays until [`Endpoint::take`].
    fn look(&mut self) -> Option<Arrival<'_>>;

    /// Takes the arrival. Call it once after [`Endpoint::look`] returned `Some`.
    fn take(&mut self);

    /// Copies `_len` bytes of the peer's memory to `_to`.
    ///
    /// # Safety
    /// `_to` is writable for `_len` bytes.
    unsafe fn get(&mut self, _to: *mut u8, _len: usize, _from: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }

    /// Copies `_len` bytes at `_from` to the peer's memory.
    ///
    /// # Safety
    /// `_from` is readable for `_len` bytes.
    unsafe fn put(
        &mut self, _from: *const u8, _len: usize, _to: Remote,
    ) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }

    /// Copies blocks of the peer's memory to `to`, one after the other. After an error, some may have been copied.
    ///
    /// # Safety
    /// `to` is writable for the bytes of all blocks.
    unsafe fn get_blocks(
        &mut self, to: *mut u8, from: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        let mut done = 0;
        for block in blocks {
            let from = Remote { addr: from.addr.wrapping_add(block.offset), ..from };
            // SAFETY: `to` has space for the bytes of all blocks, by this function's contract.
            unsafe { self.get(to.wrapping_add(done), block.len as usize, from)? };
            done += block.len as usize;
        }
        Ok(())
    }

    /// Copies the bytes at `from` to blocks of the peer's memory, one after the other. After an error, some may have
    /// been copied.
    ///
    /// # Safety
    /// `from` is readable for the bytes of all blocks.
    unsafe fn put_blocks(
        &mut self, from: *const u8, to: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        let mut done = 0;
        for block in blocks {
            let to = Remote { addr: to.addr.wrapping_add(block.offset), ..to };
            // SAFETY: `from` holds the bytes of all blocks, by this function's contract.
            unsafe { self.put(from.wrapping_add(done), block.len as usize, to)? };
            done += block.len as usize;
        }
        Ok(())
    }
}
