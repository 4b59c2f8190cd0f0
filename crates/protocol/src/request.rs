//! Requests: operations that outlive the call that started them.
//!
//! They lie in one reserved stretch of address space, so that a handle's index is an address by one
//! multiplication, an address never moves, and memory is used only as far as requests were ever
//! alive at once.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::layout::Layout;
use crate::matching::NodeId;
use std::sync::Arc;

/// Index of a request in its pool; 0 is none.
pub type RequestId = u32;

/// What kind of operation a request is.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// An operation of the layer above, which completes it itself.
    Foreign,
}

/// Where a request is in its life.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not in use.
    Free,
    /// Under way.
    Active,
    /// Done; its result waits to be read.
    Complete,
}

/// Why an operation failed.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It did not.
    None,
    /// The message was longer than the receive buffer; what fits is there.
    Truncated,
    /// The peer has left the job.
    PeerGone,
    /// There was no memory for the connection.
    NoMemory,
    /// The peer sent what no healthy peer sends.
    Protocol,
}

/// One operation.
#[repr(C, align(64))]
pub struct Request {
    /// The handle that names it in the layer above; while free, the next one, with `FREE_BIT`.
    pub handle: u32,
    /// Next free request while free.
    pub next: RequestId,
    /// Kind of operation.
    pub kind: Kind,
    /// Where it is in its life.
    pub state: State,
    /// How it failed, if it did.
    pub fault: Fault,
    /// Receives: cancelled before a message matched.
    pub cancelled: bool,
    /// Sends: completes only when the receive has matched.
    pub synchronous: bool,
    /// Sends: the receiver has matched.
    pub matched: bool,
    /// Sends: the announcement has left. Receives: the message is a joint copy's.
    pub announced: bool,
    /// Sends: the receiver has said that it needs no more.
    pub finished: bool,
    /// The buffer belongs to the library (buffered mode).
    pub owned: bool,
    /// The request's owner has let it go: freed as soon as it completes.
    pub detached: bool,
    /// World rank of the other side, or `ANY_PEER`.
    pub peer: u32,
    /// Tag asked for or sent.
    pub tag: i32,
    /// Match key.
    pub key: u64,
    /// First byte or origin of the buffer.
    pub ptr: *mut u8,
    /// Bytes of the buffer.
    pub bytes: u64,
    // Second line: results, and what only long or typed messages need.
    /// Source rank in the communicator, once received.
    pub source: i32,
    /// Tag, once received.
    pub received_tag: i32,
    /// Bytes received.
    pub received: u64,
    /// Bytes moved so far.
    pub moved: u64,
    /// Bytes to move in all.
    pub limit: u64,
    /// `Arc` of the layout as a raw pointer; null where contiguous.
    layout: *const Layout,
    /// Elements of the layout.
    count: u64,
    /// The peer's request.
    pub remote: u32,
    /// Entry in the matcher while posted.
    pub node: NodeId,
    /// A word for the layer above.
    pub user: usize,
    // Third line: long messages alone.
    /// Sends: bytes that go without being asked for.
    pub early: u64,
    /// Receives: length of the whole message as announced.
    pub announced_bytes: u64,
    /// Receives: where the sender's message lies, during a joint copy.
    pub rest_addr: u64,
    /// Receives: key of that memory.
    pub rest_rkey: u64,
}

const _: () = assert!(size_of::<Request>() == 192);

impl Request {
    /// The request's buffer.
    pub fn buffer(&self) -> Buffer {
        let layout = (!self.layout.is_null()).then(|| {
            // SAFETY: `set_buffer` stored a pointer from `Arc::into_raw`, which stays owned by the request.
            unsafe {
                Arc::increment_strong_count(self.layout);
                Arc::from_raw(self.layout)
            }
        });
        Buffer {
            ptr: self.ptr,
            bytes: self.bytes,
            layout,
            count: self.count,
        }
    }

    /// Sets the buffer.
    #[inline]
    pub fn set_buffer(&mut self, buffer: Buffer) {
        self.drop_layout();
        self.ptr = buffer.ptr;
        self.bytes = buffer.bytes;
        self.count = buffer.count;
        self.layout = buffer.layout.map_or(std::ptr::null(), Arc::into_raw);
    }

    /// Whether the buffer is contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_null()
    }

    /// Packs bytes `from..from + len` of the message into `to`.
    ///
    /// # Safety
    /// The buffer is readable as its layout says, and `to` writable for `len` bytes.
    pub unsafe fn pack(&self, from: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's; `layout` is owned by the request.
        unsafe {
            match self.layout.as_ref() {
                None => fastpath_base::copy::copy(to, self.ptr.add(from as usize), len),
                Some(layout) => {
                    layout.pack(
                        self.ptr,
                        self.count,
                        from,
                        std::slice::from_raw_parts_mut(to, len),
                    );
                }
            }
        }
    }

    /// Unpacks `len` bytes to position `at` of the message.
    ///
    /// # Safety
    /// The buffer is writable as its layout says, and `from` readable for `len` bytes.
    pub unsafe fn unpack(&self, at: u64, from: *const u8, len: usize) {
        // SAFETY: the caller's; `layout` is owned by the request.
        unsafe {
            match self.layout.as_ref() {
                None => fastpath_base::copy::copy(self.ptr.add(at as usize), from, len),
                Some(layout) => {
                    layout.unpack(
                        self.ptr,
                        self.count,
                        at,
                        std::slice::from_raw_parts(from, len),
                    );
                }
            }
        }
    }

    /// The state of a request that has just been taken from the free list.
    #[inline(always)] // see `RequestPool::take_free`
    fn begin(&mut self, kind: Kind) {
        self.handle &= !FREE_BIT;
        self.kind = kind;
        self.state = State::Active;
    }

    /// As a request is while it is free; a fresh one is so by its zeros.
    #[inline]
    fn end(&mut self) {
        self.drop_layout();
        self.state = State::Free;
        self.fault = Fault::None;
        self.cancelled = false;
        self.synchronous = false;
        self.matched = false;
        self.detached = false;
        self.owned = false;
        self.announced = false;
        self.finished = false;
        self.node = 0;
    }

    #[inline]
    fn drop_layout(&mut self) {
        if !self.layout.is_null() {
            // SAFETY: stored by `set_buffer` from `Arc::into_raw`.
            drop(unsafe { Arc::from_raw(self.layout) });
            self.layout = std::ptr::null();
        }
    }
}

/// Bits of a handle that hold the index.
const INDEX_BITS: u32 = 22;
/// Largest number of requests.
const CAPACITY: u32 = 1 << INDEX_BITS;
/// Bit of a free request's `handle`: what the layer above holds never has it.
const FREE_BIT: u32 = 1 << 31;
/// Bits of a handle that hold the generation.
const GENERATION_MASK: u32 = 0xff << INDEX_BITS;
/// Bit that marks a handle made at run time (the layer above uses the same for all its objects).
const USER_BIT: u32 = 1 << 30;
/// The first index in use; indices below would collide with predefined handles.
const FIRST: u32 = 4096;

/// All requests of a worker.
pub struct RequestPool {
    base: *mut Request,
    free: RequestId,
    fresh: u32,
}

impl Drop for RequestPool {
    fn drop(&mut self) {
        for id in FIRST..self.fresh {
            self.get(id).drop_layout();
        }
        // SAFETY: the reservation of `new`; requests are not used beyond their pool.
        unsafe {
            fastpath_base::memory::release(
                self.base.cast(),
                CAPACITY as usize * size_of::<Request>(),
            )
        };
    }
}

impl RequestPool {
    /// Reserves address space for the pool; no memory is used yet.
    pub fn new() -> std::io::Result<Self> {
        let bytes = CAPACITY as usize * size_of::<Request>();
        let base = fastpath_base::memory::reserve(bytes)?;
        Ok(RequestPool {
            base: base.cast(),
            free: 0,
            fresh: FIRST,
        })
    }

    /// A request in state `Active` with its handle set, or `None` when all are in use.
    #[inline]
    pub fn allocate(&mut self, kind: Kind) -> Option<RequestId> {
        let id = match self.free {
            0 => self.allocate_fresh()?,
            id => id,
        };
        // SAFETY: an id from the free list or fresh, both inside the reservation.
        let request = unsafe { &mut *self.base.add(id as usize) };
        self.free = request.next;
        request.begin(kind);
        Some(id)
    }

    /// As [`RequestPool::allocate`], from those used before, with its id.
    #[inline(always)] // `bench/instructions` counts MPI_Irecv
    pub fn take_free(&mut self, kind: Kind) -> Option<(RequestId, &mut Request)> {
        let id = self.free;
        if id == 0 {
            return None;
        }
        // SAFETY: an id from the free list lies inside the reservation.
        let request = unsafe { &mut *self.base.add(id as usize) };
        self.free = request.next;
        request.begin(kind);
        Some((id, request))
    }

    /// Whether a request is free that has been used before.
    #[inline]
    pub fn has_free(&self) -> bool {
        self.free != 0
    }

    #[cold]
    #[inline(never)]
    fn allocate_fresh(&mut self) -> Option<RequestId> {
        if self.fresh == CAPACITY {
            return None;
        }
        let id = self.fresh;
        self.fresh += 1;
        // SAFETY: inside the reservation.
        let request = unsafe { &mut *self.base.add(id as usize) };
        request.handle = FREE_BIT | USER_BIT | id;
        request.next = 0;
        Some(id)
    }

    /// Frees a request.
    #[inline]
    pub fn free(&mut self, id: RequestId) {
        let free = self.free;
        let request = self.get(id);
        request.end();
        let generation = request.handle.wrapping_add(1 << INDEX_BITS) & GENERATION_MASK;
        request.handle = request.handle & !GENERATION_MASK | generation | FREE_BIT;
        request.next = free;
        self.free = id;
    }

    /// The request of an id that this pool gave out.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub fn get(&self, id: RequestId) -> &mut Request {
        debug_assert!((FIRST..self.fresh).contains(&id));
        // SAFETY: inside the reservation; a worker belongs to one thread at a time, and callers do
        // not hold two references to one request.
        unsafe { &mut *self.base.add((id & (CAPACITY - 1)) as usize) }
    }

    /// The id behind a handle, or `None` where it is stale or garbage. One load.
    #[inline]
    pub fn find(&self, handle: u64) -> Option<RequestId> {
        let id = handle as u32 & (CAPACITY - 1);
        // SAFETY: every index lies inside the reservation, whose untouched pages read as zero.
        let found = unsafe { (*self.base.add(id as usize)).handle };
        (found as u64 == handle && found != 0).then_some(id)
    }

    /// All requests that are under way. Slow: for the end of a job.
    pub fn active(&self) -> impl Iterator<Item = &Request> {
        let all = (FIRST..self.fresh).map(|id| &*self.get(id));
        all.filter(|request| request.state == State::Active)
    }

    /// Number of requests in use; walks the pool.
    pub fn alive(&self) -> u32 {
        let in_use = |&id: &u32| self.get(id).state != State::Free;
        (FIRST..self.fresh).filter(in_use).count() as u32
    }
}
