//! Requests: operations that outlive the call that started them.
//!
//! They lie in one reserved stretch of address space, so that a handle's index is an address by one
//! multiplication, an address never moves, and memory is used only as far as requests were ever
//! alive at once.
#![allow(unsafe_code)]

mod further;

pub use further::place_of;

use crate::buffer::Buffer;
use crate::layout::Layout;
use crate::learning::Arm;
use crate::matching::Link;
use crate::wire::Timing;
use fastpath_base::copy::{CopyLoop, copy, copy_with};
use fastpath_base::memory;
use fastpath_transport::Remote;
use std::sync::Arc;

/// Index of a request in its pool; 0 is none.
pub type RequestId = u32;

/// What kind of operation a request is.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
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
    /// Not in use. Zero, as untouched memory is.
    Free,
    /// Under way.
    Active,
    /// Done; its result waits to be read.
    Complete,
}

/// How far the message of a send or receive has come.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Sends: nothing has left. Receives: matched, and its bytes come, or none is there yet.
    Begun,
    /// Receives: it waits in the matcher.
    Posted,
    /// Sends: the receiver knows of it and has not answered; what goes eagerly may still have to leave.
    Announced,
    /// Both sides copy.
    Cooperating,
    /// Sends: the receiver has asked for fragments.
    Pushing,
    /// Sends: the receiver needs no more, but what goes eagerly must still leave, since it counts on that.
    Ending,
    /// Receives: the copy by both sides was given up. Fragments come instead.
    FellBack,
    /// Receives: matched, and the copy is left to whoever makes progress.
    Deferred,
}

/// Why an operation failed.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It did not.
    None,
    /// The message was longer than the receive buffer; what fits is there.
    Truncated,
    /// The peer has left the job, and takes nothing any more.
    PeerGone,
    /// Whoever could have sent the message has left the job.
    SourceGone,
    /// There was no memory for the connection.
    NoMemory,
    /// The peer sent what no healthy peer sends.
    Protocol,
}

/// One operation.
#[repr(C, align(64))]
pub struct Request {
    /// While posted the next one of its list, while free the next free one.
    pub next: *mut Request,
    /// While posted: the place that points here.
    pub link: Link,
    /// The handle that names it in the layer above; while free, the next one.
    pub handle: u32,
    /// World rank of the other side, or `ANY_PEER`.
    pub peer: u32,
    /// Kind of operation.
    pub kind: RequestKind,
    /// Where it is in its life.
    pub state: State,
    /// How it failed, if it did.
    pub fault: Fault,
    /// Cancelled before it matched.
    pub cancelled: bool,
    /// How far its message has come.
    pub phase: Phase,
    /// Sends: completes only when the receive has matched.
    pub synchronous: bool,
    /// The buffer belongs to the library (buffered mode).
    pub owned: bool,
    /// The request's owner has let it go: freed as soon as it completes.
    pub detached: bool,
    /// Match key.
    pub key: u64,
    /// First byte or origin of the buffer.
    pub ptr: *mut u8,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// Tag asked for or sent.
    pub tag: i32,
    /// Sends: the way of the message, a number of [`crate::learning::Arm`]. Receives that are timed: the same.
    pub arm: u8,
    /// Where the buffer is the library's: it counts against the buffer that the program attached.
    pub charged: bool,
    /// Announced sends: the counter of pieces that was opened for a copy by both sides.
    pub counter: Option<u8>,
    // Second line: results, and what only long or typed messages need.
    /// Order of posting, against receives from any source.
    pub order: u64,
    /// A word for the layer above.
    pub user: usize,
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
    // Third line: long messages alone.
    /// The peer's request.
    pub remote: u32,
    /// Where the message is timed: when its send began, in nanoseconds modulo 2^32; else 0.
    pub sent_ns: u32,
    /// Sends: bytes that go without being asked for.
    pub early: u32,
    /// Receives: length of the whole message as announced.
    pub announced_bytes: u64,
    /// The message in its sender's memory. Receives: where both sides copy. Announced sends: where an adapter shows it
    /// to the receiver; else the key is 0.
    pub memory: Remote,
    /// Posted receives of a long list: the next one of its chain in the index, and the one before.
    pub chain_next: *mut Request,
    /// See there.
    pub chain_prev: *mut Request,
    /// Place of a posted receive among those of its index; 0 while it is in none.
    pub place: u64,
}

const _: () = assert!(size_of::<Request>() == 192);
const _: () = assert!(
    std::mem::offset_of!(Request, order) == 64 && std::mem::offset_of!(Request, remote) == 128
);

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
        Buffer { ptr: self.ptr, bytes: self.bytes, layout, count: self.count }
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

    /// How a send's bytes are copied into transport buffers.
    fn copy_loop(&self) -> CopyLoop {
        Arm::of(self.arm).map_or(CopyLoop::Vector, Arm::copy_loop)
    }

    /// Receives: how the message that was announced is timed.
    pub(crate) fn time(&mut self, timing: Timing) {
        (self.arm, self.sent_ns) = (timing.arm, timing.sent_ns);
    }

    /// Packs bytes `from..from + len` of the message into `to`.
    ///
    /// # Safety
    /// The buffer is readable as its layout says, and `to` writable for `len` bytes.
    pub unsafe fn pack(&self, from: u64, to: *mut u8, len: usize) {
        // SAFETY: the buffer is readable as its layout says and `to` writable for `len` bytes, by this function's
        // contract; `layout` is owned by the request.
        unsafe {
            match self.layout.as_ref() {
                None => copy_with(self.copy_loop(), to, self.ptr.add(from as usize), len),
                Some(layout) => {
                    layout.pack_to(self.ptr, self.count, from, to, len);
                }
            }
        }
    }

    /// Unpacks `len` bytes to position `at` of the message.
    ///
    /// # Safety
    /// The buffer is writable as its layout says, and `from` readable for `len` bytes.
    pub unsafe fn unpack(&self, at: u64, from: *const u8, len: usize) {
        // SAFETY: the buffer is writable as its layout says and `from` readable for `len` bytes, by this function's
        // contract; `layout` is owned by the request.
        unsafe {
            match self.layout.as_ref() {
                None => copy(self.ptr.add(at as usize), from, len),
                Some(layout) => {
                    layout.unpack_from(self.ptr, self.count, at, from, len);
                }
            }
        }
    }

    /// Where byte `at` of a message that lies in a row is.
    pub fn place(&self, at: u64) -> Option<*mut u8> {
        // Not beyond the buffer: whoever uses it has compared with its length.
        let place = self.ptr.wrapping_add(at as usize);
        self.is_contiguous().then_some(place)
    }

    /// Whether it is a receive that waits in the matcher.
    #[inline]
    pub fn is_posted(&self) -> bool {
        self.phase == Phase::Posted
    }

    /// Whether it is a send that its receiver knows of and may not have matched.
    pub fn is_unmatched_send(&self) -> bool {
        self.kind == RequestKind::Send && self.phase == Phase::Announced
    }

    /// Sends: whether something must still leave that the receiver does not ask for.
    pub(crate) fn has_unsent(&self) -> bool {
        self.phase == Phase::Begun || self.moved < self.early as u64
    }

    /// Whether it is a send whose receiver does not say that it has matched: all of it comes by itself.
    pub fn is_unanswered(&self) -> bool {
        self.early as u64 == self.bytes && !self.synchronous
    }

    /// Whether it is a send or receive that has ended, without fault and not cancelled: one comparison.
    #[inline]
    pub fn ended_well(&self) -> bool {
        const _: () = assert!(RequestKind::Send as u32 == 0 && RequestKind::Recv as u32 == 1);
        // SAFETY: kind, state, fault and whether cancelled: four fields of one byte each, in this order.
        let word = unsafe {
            (&raw const *self).byte_add(std::mem::offset_of!(Request, kind)).cast::<u32>().read()
        };
        word & !1 == (State::Complete as u32) << 8
    }

    /// Whether it is a receive that waits in the matcher and nothing more: one comparison.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
    fn is_posted_recv(&self) -> bool {
        // SAFETY: eight fields of one byte each, as `begin` writes them.
        let word = unsafe {
            (&raw const *self).byte_add(std::mem::offset_of!(Request, kind)).cast::<u64>().read()
        };
        word == first_word(RequestKind::Recv, State::Active, Phase::Posted)
    }

    /// Its index in its pool.
    #[inline]
    pub fn id(&self) -> RequestId {
        self.handle & (CAPACITY - 1)
    }

    /// Sets kind, state and phase, and what lies beside them to nothing: one store, which the compiler does not make of
    /// eight.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    fn begin(&mut self, kind: RequestKind, state: State, phase: Phase) {
        let word = first_word(kind, state, phase);
        // SAFETY: eight fields of one byte each, in this order (see the assertion); each value is one of its type.
        unsafe {
            (&raw mut *self)
                .byte_add(std::mem::offset_of!(Request, kind))
                .cast::<u64>()
                .write(word);
        }
    }

    /// As a request is while it is free; a fresh one is so by its zeros.
    #[inline]
    fn end(&mut self) {
        self.drop_layout();
        self.state = State::Free;
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

/// Kind, state and phase as they lie in a request that has neither failed nor anything set beside them.
const fn first_word(kind: RequestKind, state: State, phase: Phase) -> u64 {
    const _: () = assert!(cfg!(target_endian = "little"));
    kind as u64 | (state as u64) << 8 | (phase as u64) << 32
}

/// Bits of a handle that hold the index.
const INDEX_BITS: u32 = 22;
/// Largest number of requests.
const CAPACITY: u32 = 1 << INDEX_BITS;
/// Fewest that address space is reserved for, where it is limited.
const CAPACITY_MIN: u32 = 1 << 14;
/// A pool reserves at most this share of the address space that the process may have: the rest is the program's.
const SHARE_OF_LIMIT: u64 = 16;
/// Bit that marks a handle made at run time (the layer above uses the same for all its objects). Between it and the
/// index lies the generation, which counts how often the request was freed.
const USER_BIT: u32 = 1 << 30;
/// The handle after this one of the same request: the generation wraps below the bits above it.
#[inline]
fn next_handle(handle: u32) -> u32 {
    handle.wrapping_add(1 << INDEX_BITS) & (USER_BIT - 1) | USER_BIT
}
/// The first index in use; indices below would collide with predefined handles.
const FIRST: u32 = 4096;

/// All requests of a worker.
pub struct RequestPool {
    /// Where the request of index 0 would lie.
    base: *mut Request,
    free: *mut Request,
    /// The indices that it may give out, and the first that it has not given out yet.
    first: u32,
    end: u32,
    fresh: u32,
    /// One less than how many indices there may be, which is a power of two.
    mask: u32,
}

impl Drop for RequestPool {
    fn drop(&mut self) {
        for id in self.first..self.fresh {
            self.get_mut(id).drop_layout();
        }
        let (start, indices) = match self.first {
            FIRST => (self.base, self.mask + 1),
            first => (self.address(first), further::CAPACITY_EACH),
        };
        // SAFETY: the reservation of `new` or `further`; requests are not used beyond their pool.
        unsafe { memory::release(start.cast(), reserved_bytes(indices)) };
    }
}

fn reserved_bytes(capacity: u32) -> usize {
    capacity as usize * size_of::<Request>()
}

/// The number of requests to reserve address space for where a process may have so much of it.
fn capacity_within(limit: Option<u64>) -> u32 {
    let share = limit.map_or(u64::MAX, |bytes| bytes / SHARE_OF_LIMIT);
    let mut capacity = CAPACITY;
    while capacity > CAPACITY_MIN && reserved_bytes(capacity) as u64 > share {
        capacity /= 2;
    }
    capacity
}

impl RequestPool {
    /// Reserves address space for the pool, less where it is limited; no memory is used yet.
    ///
    /// # Errors
    /// There is no address space for [`CAPACITY_MIN`] requests.
    pub fn new() -> std::io::Result<Self> {
        let mut capacity = capacity_within(memory::address_limit());
        let base = loop {
            match memory::reserve(reserved_bytes(capacity)) {
                // Used up, or counted as memory (vm.overcommit_memory=2).
                Err(_) if capacity > CAPACITY_MIN => capacity /= 2,
                other => break other?,
            }
        };
        Ok(RequestPool {
            base: base.cast(),
            free: std::ptr::null_mut(),
            first: FIRST,
            end: capacity,
            fresh: FIRST,
            mask: capacity - 1,
        })
    }

    /// A request in state `Active` with its handle set, or `None` when all are in use.
    #[inline]
    pub fn allocate(&mut self, kind: RequestKind) -> Option<RequestId> {
        if self.free.is_null() {
            self.allocate_fresh()?;
        }
        // SAFETY: there is one, as just seen to.
        unsafe {
            let request = self.take_free(kind, State::Active, Phase::Begun);
            Some((*request).id())
        }
    }

    /// As [`RequestPool::allocate`], from those used before, by address.
    ///
    /// # Safety
    /// There is one ([`RequestPool::has_free`]). One in phase `Posted` must be posted next.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn take_free(
        &mut self, kind: RequestKind, state: State, phase: Phase,
    ) -> *mut Request {
        let request = self.free;
        // SAFETY: what the free list names lies in the pool, and nobody else uses it.
        unsafe {
            self.free = (*request).next;
            (*request).begin(kind, state, phase);
        }
        request
    }

    /// Where its first request, the index of that, and the index that follows the last one used lie, for those who look
    /// from outside.
    pub(crate) fn shown(&self) -> (*const Request, u32, *const u32) {
        (self.address(self.first), self.first, &raw const self.fresh)
    }

    /// Most requests at once.
    pub fn capacity(&self) -> u32 {
        self.end - self.first
    }

    /// Whether there is address space for fewer than there could be.
    pub fn is_limited(&self) -> bool {
        self.mask + 1 < CAPACITY
    }

    /// Whether a request is free that has been used before.
    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_null()
    }

    /// Whether [`RequestPool::allocate`] would find one.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.has_free() || self.fresh < self.end
    }

    #[cold]
    #[inline(never)]
    fn allocate_fresh(&mut self) -> Option<()> {
        if self.fresh >= self.end {
            return None;
        }
        let request = self.address(self.fresh);
        // SAFETY: inside the reservation, which reads as zeros.
        unsafe { (*request).handle = USER_BIT | self.fresh };
        self.fresh += 1;
        self.free = request;
        Some(())
    }

    /// Frees a request.
    #[inline]
    pub fn free(&mut self, id: RequestId) {
        // SAFETY: an id that was given out.
        unsafe { self.free_at(self.address(id)) };
    }

    /// As [`RequestPool::free`], by address.
    ///
    /// # Safety
    /// The request is one of this pool and in use.
    #[inline]
    pub unsafe fn free_at(&mut self, request: *mut Request) {
        let free = self.free;
        // SAFETY: the request is one of this pool and in use, by this function's contract: nobody else looks at it.
        unsafe {
            (*request).end();
            (*request).handle = next_handle((*request).handle);
            (*request).next = free;
        }
        self.free = request;
    }

    /// Where the request of an id that this pool gave out lies: for who keeps it, and goes there while nothing of the
    /// pool is borrowed.
    #[inline]
    pub fn address(&self, id: RequestId) -> *mut Request {
        self.base.wrapping_add((id & (CAPACITY - 1)) as usize)
    }

    /// The request of an id that this pool gave out.
    #[inline]
    pub fn get(&self, id: RequestId) -> &Request {
        debug_assert!((self.first..self.fresh).contains(&id));
        // SAFETY: inside the reservation, as every id that was given out; what holds an address makes no reference
        // beside this one (`RequestPool::address`).
        unsafe { &*self.address(id) }
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut(&mut self, id: RequestId) -> &mut Request {
        debug_assert!((self.first..self.fresh).contains(&id));
        // SAFETY: as in `get`; `self` is borrowed for as long.
        unsafe { &mut *self.address(id) }
    }

    /// Two requests of ids that this pool gave out.
    ///
    /// # Panics
    /// They are one.
    pub(crate) fn pair(&mut self, first: RequestId, second: RequestId) -> [&mut Request; 2] {
        assert!(first != second);
        // SAFETY: as in `get_mut`; they are two.
        unsafe { [&mut *self.address(first), &mut *self.address(second)] }
    }

    /// The id behind a handle, or `None` where it is stale or garbage. One load.
    #[inline]
    pub fn find(&self, handle: u64) -> Option<RequestId> {
        let id = handle as u32 & self.mask;
        // SAFETY: every index lies inside the reservation, whose untouched pages read as zero; a pool of a further
        // worker is asked for its own alone ([`place_of`]).
        let found = unsafe { &*self.base.wrapping_add(id as usize) };
        (found.handle as u64 == handle && found.state != State::Free).then_some(id)
    }

    /// The receive behind a handle, if it waits in the matcher and nothing more.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
    pub fn find_posted_recv(&self, handle: u64) -> Option<*mut Request> {
        let request = self.address(handle as u32 & self.mask);
        // SAFETY: as in `find`.
        let found = unsafe { &*request };
        (found.handle as u64 == handle && found.is_posted_recv()).then_some(request)
    }

    /// All requests that are under way. Slow: for the end of a job.
    pub fn active(&self) -> impl Iterator<Item = &Request> {
        self.in_use().filter(|request| request.state == State::Active)
    }

    /// Number of receives that wait in the matcher; walks the pool.
    pub fn posted(&self) -> u64 {
        self.active().filter(|request| request.is_posted()).count() as u64
    }

    /// All requests that have not been freed; walks the pool.
    pub fn in_use(&self) -> impl Iterator<Item = &Request> {
        let all = (self.first..self.fresh).map(|id| self.get(id));
        all.filter(|request| request.state != State::Free)
    }

    /// Number of requests in use; walks the pool.
    pub fn alive(&self) -> u32 {
        self.in_use().count() as u32
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn capacity__follows_a_limit_on_address_space() {
        assert_eq!(capacity_within(None), CAPACITY);
        assert_eq!(capacity_within(Some(u64::MAX - 1)), CAPACITY);
        assert_eq!(capacity_within(Some(1 << 20)), CAPACITY_MIN);
        let some = capacity_within(Some(4 << 30));
        let bytes = reserved_bytes(some) as u64 * SHARE_OF_LIMIT;
        assert!(bytes <= 4 << 30 && 2 * bytes > 4 << 30, "{some}");
    }

    #[test]
    fn pool__of_any_size_ends_with_its_last_request_and_refuses_garbage() {
        let mut pool = RequestPool::new().expect("address space");
        // As if address space were limited; what is reserved beyond it stays unused.
        let whole = std::mem::replace(&mut pool.mask, CAPACITY_MIN - 1);
        pool.end = CAPACITY_MIN;
        let got = std::iter::from_fn(|| pool.allocate(RequestKind::Send)).count();
        assert_eq!(got, pool.capacity() as usize);
        assert_eq!(got, (CAPACITY_MIN - FIRST) as usize);
        assert!(!pool.has_room() && pool.is_limited());
        for handle in
            [0, u64::MAX, (USER_BIT | CAPACITY_MIN) as u64, (USER_BIT | (CAPACITY - 1)) as u64]
        {
            assert_eq!(pool.find(handle), None, "{handle:#x}");
        }
        pool.mask = whole;
    }

    #[test]
    fn handles__of_freed_requests_name_nothing_until_they_come_round() {
        let mut pool = RequestPool::new().expect("address space");
        let first = pool.allocate(RequestKind::Send).expect("a request");
        let handle = pool.get(first).handle as u64;
        for round in 1..=256 {
            pool.free(first);
            assert_eq!(pool.find(handle), None);
            assert_eq!(pool.allocate(RequestKind::Recv), Some(first));
            assert_eq!(pool.find(handle).is_some(), round == 256);
            assert_eq!(pool.get(first).handle >> 30, 1);
        }
        assert_eq!(pool.alive(), 1);
    }
}
