//! Requests: operations that outlive the call that started them.
//!
//! All requests are in one reserved range of address space. One multiplication turns an index into an address, and
//! addresses never change. The pool takes memory for the largest number of requests that existed at the same time.
//!
//! **GIVEN OUT.** An id that the pool gave out is an index inside the reservation. Code that holds an address makes no
//! reference while one from `get` or `get_mut` lives (`RequestPool::address`).
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::layout::Layout;
use crate::learning::Arm;
use crate::wire::Timing;
use fastpath_base::copy::{CopyLoop, copy, copy_with};
use fastpath_base::memory;
use fastpath_transport::Remote;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

/// Index of a request in its pool; 0 is none.
pub type RequestId = u32;

/// Kind of operation of a request.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// An operation of the layer above, which completes the request.
    Foreign,
}

/// State of a request.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    /// Not in use. The value is zero, as in untouched memory.
    Free,
    /// Under way.
    Active,
    /// Complete, with a result that can be read.
    Complete,
}

/// Phase of the message of a send or receive.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePhase {
    /// Sends: no byte has left. Receives: matched, before or while its bytes arrive.
    Begun,
    /// Receives: posted in the matcher.
    Posted,
    /// Sends: announced but not answered; some eager bytes may not have left.
    Announced,
    /// Both sides copy.
    Cooperating,
    /// Sends: the receiver has requested fragments.
    Pushing,
    /// Sends: the receiver needs nothing else, but still expects the remaining eager bytes.
    Ending,
    /// Receives: the cooperative copy was given up. Fragments follow.
    FellBack,
    /// Receives: matched; the next progress makes the copy.
    Deferred,
}

/// Failure of an operation.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No failure.
    None,
    /// The message was longer than the receive buffer, which holds the part that fits.
    Truncated,
    /// The peer has left the job.
    PeerGone,
    /// Every rank that could send the message has left the job.
    SourceGone,
    /// A collective operation cannot complete, because a member of its communicator has died.
    MemberDied,
    /// The communicator was revoked.
    Revoked,
    /// There was no memory for the connection.
    NoMemory,
    /// The peer violated the protocol.
    Protocol,
}

/// Location of a pointer to a posted receive: a list's `first`, or the `next` of a receive in the list. It is stored as
/// the distance from `first`. An empty list thus has 0, and posting needs no branch for it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveLink(pub(crate) usize);

impl ReceiveLink {
    /// Returns the location of the `next` field of a receive.
    #[inline(always)] // see `append`
    pub(crate) fn behind<List>(list: *mut List, request: *mut Request) -> ReceiveLink {
        let next = request.expose_provenance() + offset_of!(Request, next);
        ReceiveLink(next.wrapping_sub(list.addr()))
    }

    /// Returns the pointer to the location. `Matcher::new` exposed the list's provenance, and `behind` a receive's.
    #[inline(always)] // see `append`
    pub(crate) fn place<List>(self, list: *mut List) -> *mut *mut Request {
        ptr::with_exposed_provenance_mut(list.addr().wrapping_add(self.0))
    }
}

/// One operation.
#[repr(C, align(64))]
pub struct Request {
    /// Next posted request of its list, or next free request.
    pub next: *mut Request,
    /// Location of the pointer to this request while it is posted.
    pub link: ReceiveLink,
    /// Handle in the layer above. A free request has the handle of its next use.
    pub handle: u32,
    /// World rank of the peer, or `ANY_PEER` for a receive from any source.
    pub peer: u32,
    /// Kind.
    pub kind: RequestKind,
    /// State.
    pub state: RequestState,
    /// Failure, if the operation failed.
    pub fault: Fault,
    /// Whether the request was cancelled before it matched.
    pub cancelled: bool,
    /// Phase of the message.
    pub phase: MessagePhase,
    /// Whether a send completes only when the receive has matched.
    pub synchronous: bool,
    /// Whether the library owns the buffer (buffered mode).
    pub owned: bool,
    /// Whether the request is freed as soon as it completes.
    pub detached: bool,
    /// Match key.
    pub key: u64,
    /// First byte or origin of the buffer.
    pub ptr: *mut u8,
    /// Length of the buffer in bytes.
    pub bytes: u64,
    /// Tag requested or sent.
    pub tag: i32,
    /// Number of the message's [`crate::learning::Arm`], for sends and timed receives.
    pub arm: u8,
    /// Whether an owned buffer takes space of the buffer that the program has attached.
    pub charged: bool,
    /// Announced sends: index of the counter of claimed pieces, for a cooperative copy.
    pub counter: Option<u8>,
    // Second cache line: results, and fields of long or typed messages.
    /// Order of posting, which decides between this receive and receives from any source.
    pub order: u64,
    /// Word for the layer above.
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
    /// `Arc` of the layout as a raw pointer; null if contiguous.
    layout: *const Layout,
    count: u64,
    // Third cache line: long messages only.
    /// Request of the peer.
    pub remote: u32,
    /// Time when the send began, in nanoseconds modulo 2^32; 0 if the message is not timed.
    pub sent_ns: u32,
    /// Sends: number of eager bytes.
    pub early: u32,
    /// Receives: announced length of the whole message.
    pub announced_bytes: u64,
    /// Message in the sender's memory, for cooperative copies and sends that an adapter exposes; key 0 without one.
    pub memory: Remote,
    /// Next receive of the same chain of an index.
    pub chain_next: *mut Request,
    /// Previous receive of the same chain of an index.
    pub chain_prev: *mut Request,
    /// Place of a posted receive in its index; 0 without one.
    pub place: u64,
}

const _: () = assert!(size_of::<Request>() == 192);
const _: () = assert!(offset_of!(Request, order) == 64 && offset_of!(Request, remote) == 128);

impl Request {
    /// Returns the request's buffer.
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
        self.layout = buffer.layout.map_or(ptr::null(), Arc::into_raw);
    }

    /// Returns whether the buffer is contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_null()
    }

    fn copy_loop(&self) -> CopyLoop {
        Arm::of(self.arm).map_or(CopyLoop::Vector, Arm::copy_loop)
    }

    pub(crate) fn time(&mut self, timing: Timing) {
        (self.arm, self.sent_ns) = (timing.arm, timing.sent_ns);
    }

    /// Packs bytes `from..from + len` of the message into `to`.
    ///
    /// # Safety
    /// The buffer is readable as its layout says, and `to` writable for `len` bytes.
    pub unsafe fn pack(&self, from: u64, to: *mut u8, len: usize) {
        // SAFETY: the buffer and `to` are valid by this function's contract, and the request owns `layout`.
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
        // SAFETY: the buffer and `from` are valid by this function's contract, and the request owns `layout`.
        unsafe {
            match self.layout.as_ref() {
                None => copy(self.ptr.add(at as usize), from, len),
                Some(layout) => {
                    layout.unpack_from(self.ptr, self.count, at, from, len);
                }
            }
        }
    }

    /// Returns the address of byte `at` of a contiguous message; `None` if it is not contiguous.
    pub fn place(&self, at: u64) -> Option<*mut u8> {
        // Inside the buffer, because callers compare `at` with its length.
        let place = self.ptr.wrapping_add(at as usize);
        self.is_contiguous().then_some(place)
    }

    /// Returns whether the request is a posted receive.
    #[inline]
    pub fn is_posted(&self) -> bool {
        self.phase == MessagePhase::Posted
    }

    /// Returns whether the request is an announced send that may not have been matched.
    pub fn is_unmatched_send(&self) -> bool {
        self.kind == RequestKind::Send && self.phase == MessagePhase::Announced
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.phase == MessagePhase::Begun || self.moved < self.early as u64
    }

    /// Returns whether the request is a send without an acknowledgement: the whole message is eager.
    pub fn is_unanswered(&self) -> bool {
        self.early as u64 == self.bytes && !self.synchronous
    }

    /// Returns whether a send or receive has completed without failure or cancellation. Costs one comparison.
    #[inline]
    pub fn ended_well(&self) -> bool {
        const _: () = assert!(RequestKind::Send as u32 == 0 && RequestKind::Recv as u32 == 1);
        // SAFETY: `kind`, `state`, `fault` and `cancelled` are four adjacent fields of one byte each.
        let word =
            unsafe { (&raw const *self).byte_add(offset_of!(Request, kind)).cast::<u32>().read() };
        word & !1 == (RequestState::Complete as u32) << 8
    }

    /// Returns whether the request is a posted receive without other flags. Costs one comparison.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
    fn is_posted_recv(&self) -> bool {
        // SAFETY: the word is eight adjacent fields of one byte each, all of which `begin` writes.
        let word =
            unsafe { (&raw const *self).byte_add(offset_of!(Request, kind)).cast::<u64>().read() };
        word == first_word(RequestKind::Recv, RequestState::Active, MessagePhase::Posted)
    }

    /// Returns the index in the pool.
    #[inline]
    pub fn id(&self) -> RequestId {
        self.handle & (CAPACITY - 1)
    }

    /// Sets kind, state and phase, and clears the flags, by one store. The compiler would not merge eight assignments.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    fn begin(&mut self, kind: RequestKind, state: RequestState, phase: MessagePhase) {
        let word = first_word(kind, state, phase);
        // SAFETY: the word is eight one-byte fields in this order (see the assertion), with a valid value for each.
        unsafe {
            (&raw mut *self).byte_add(offset_of!(Request, kind)).cast::<u64>().write(word);
        }
    }

    /// Drops the request's layout, and marks the request as free.
    #[inline]
    fn end(&mut self) {
        self.drop_layout();
        self.state = RequestState::Free;
    }

    #[inline]
    fn drop_layout(&mut self) {
        if !self.layout.is_null() {
            // SAFETY: `set_buffer` stored the pointer from `Arc::into_raw`.
            drop(unsafe { Arc::from_raw(self.layout) });
            self.layout = ptr::null();
        }
    }
}

/// Returns the word of eight one-byte fields that `begin` writes: these three values, no failure and no flags.
const fn first_word(kind: RequestKind, state: RequestState, phase: MessagePhase) -> u64 {
    const _: () = assert!(cfg!(target_endian = "little"));
    kind as u64 | (state as u64) << 8 | (phase as u64) << 32
}

const INDEX_BITS: u32 = 22;
const CAPACITY: u32 = 1 << INDEX_BITS;
/// Minimum number of requests for which address space is reserved, if address space is limited.
const CAPACITY_MIN: u32 = 1 << 14;
/// A pool reserves at most 1/`SHARE_OF_LIMIT` of the process's address space, and leaves the rest to the program.
const SHARE_OF_LIMIT: u64 = 16;
/// Bit that all handles made at run time have, also those of other objects of the layer above. The bits between it and
/// the index are the generation: the number of times that the request was freed.
const USER_BIT: u32 = 1 << 30;
#[inline]
fn next_handle(handle: u32) -> u32 {
    handle.wrapping_add(1 << INDEX_BITS) & (USER_BIT - 1) | USER_BIT
}
/// First index in use. Lower indices would collide with predefined handles.
pub(crate) const FIRST: u32 = 4096;

/// All requests of a worker.
pub struct RequestPool {
    base: *mut Request,
    free: *mut Request,
    fresh: u32,
    /// Capacity minus one. The capacity is a power of two.
    mask: u32,
}

impl Drop for RequestPool {
    fn drop(&mut self) {
        for id in FIRST..self.fresh {
            self.get_mut(id).drop_layout();
        }
        // SAFETY: `new` made the reservation, and requests are not used after their pool.
        unsafe { memory::release(self.base.cast(), reserved_bytes(self.mask + 1)) };
    }
}

fn reserved_bytes(capacity: u32) -> usize {
    capacity as usize * size_of::<Request>()
}

fn capacity_within(limit: Option<u64>) -> u32 {
    let share = limit.map_or(u64::MAX, |bytes| bytes / SHARE_OF_LIMIT);
    let mut capacity = CAPACITY;
    while capacity > CAPACITY_MIN && reserved_bytes(capacity) as u64 > share {
        capacity /= 2;
    }
    capacity
}

impl RequestPool {
    /// Reserves address space for the pool, and less of it if address space is limited. Takes no memory yet.
    ///
    /// # Errors
    /// There is no address space for [`CAPACITY_MIN`] requests.
    pub fn new() -> std::io::Result<Self> {
        let mut capacity = capacity_within(memory::address_limit());
        let base = loop {
            match memory::reserve(reserved_bytes(capacity)) {
                // Address space is used up, or is counted as memory (vm.overcommit_memory=2).
                Err(_) if capacity > CAPACITY_MIN => capacity /= 2,
                other => break other?,
            }
        };
        Ok(RequestPool {
            base: base.cast(),
            free: ptr::null_mut(),
            fresh: FIRST,
            mask: capacity - 1,
        })
    }

    /// Returns an active request with its handle set, or `None` if all are in use.
    #[inline]
    pub fn allocate(&mut self, kind: RequestKind) -> Option<RequestId> {
        if self.free.is_null() {
            self.allocate_fresh()?;
        }
        // SAFETY: the free list is not empty, by the check above.
        unsafe {
            let request = self.take_free(kind, RequestState::Active, MessagePhase::Begun);
            Some((*request).id())
        }
    }

    /// Takes a used request from the free list, by address.
    ///
    /// # Safety
    /// The list is not empty ([`RequestPool::has_free`]). A request in phase `Posted` must be posted next.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn take_free(
        &mut self, kind: RequestKind, state: RequestState, phase: MessagePhase,
    ) -> *mut Request {
        let request = self.free;
        // SAFETY: requests of the free list lie in the pool, and have no other user.
        unsafe {
            self.free = (*request).next;
            (*request).begin(kind, state, phase);
        }
        request
    }

    /// Returns the addresses of request [`FIRST`] and of the first index never given out, for other processes to read.
    pub(crate) fn shown(&self) -> (*const Request, *const u32) {
        (self.address(FIRST), &raw const self.fresh)
    }

    /// Returns the largest number of requests that can be in use at once.
    pub fn capacity(&self) -> u32 {
        self.mask + 1 - FIRST
    }

    /// Returns whether address space limits the pool.
    pub fn is_limited(&self) -> bool {
        self.mask + 1 < CAPACITY
    }

    /// Returns whether the free list has a request.
    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_null()
    }

    /// Returns whether [`RequestPool::allocate`] would succeed.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.has_free() || self.fresh <= self.mask
    }

    #[cold]
    #[inline(never)]
    fn allocate_fresh(&mut self) -> Option<()> {
        if self.fresh > self.mask {
            return None;
        }
        let request = self.address(self.fresh);
        // SAFETY: the index is inside the reservation, which reads as zeros.
        unsafe { (*request).handle = USER_BIT | self.fresh };
        self.fresh += 1;
        self.free = request;
        Some(())
    }

    /// Frees a request.
    #[inline]
    pub fn free(&mut self, id: RequestId) {
        // SAFETY: the id was given out by this pool (GIVEN OUT).
        unsafe { self.free_at(self.address(id)) };
    }

    /// Frees a request by address.
    ///
    /// # Safety
    /// The request is one of this pool and in use.
    #[inline]
    pub unsafe fn free_at(&mut self, request: *mut Request) {
        let free = self.free;
        // SAFETY: the request is one of this pool and in use, by the contract, so that no reference to it lives.
        unsafe {
            (*request).end();
            (*request).handle = next_handle((*request).handle);
            (*request).next = free;
        }
        self.free = request;
    }

    /// Returns the address of a request. It may be dereferenced while no reference to a request lives.
    #[inline]
    pub fn address(&self, id: RequestId) -> *mut Request {
        self.base.wrapping_add((id & (CAPACITY - 1)) as usize)
    }

    /// Returns the request of an id that this pool gave out.
    #[inline]
    pub fn get(&self, id: RequestId) -> &Request {
        debug_assert!((FIRST..self.fresh).contains(&id));
        // SAFETY: GIVEN OUT: the id is inside the reservation, and `self` is borrowed.
        unsafe { &*self.address(id) }
    }

    /// Returns the request of an id that this pool gave out, mutably.
    #[inline]
    pub fn get_mut(&mut self, id: RequestId) -> &mut Request {
        debug_assert!((FIRST..self.fresh).contains(&id));
        // SAFETY: GIVEN OUT: the id is inside the reservation, and `self` is borrowed mutably.
        unsafe { &mut *self.address(id) }
    }

    /// Returns two requests of ids that this pool gave out.
    ///
    /// # Panics
    /// The ids are equal.
    pub(crate) fn pair(&mut self, first: RequestId, second: RequestId) -> [&mut Request; 2] {
        assert!(first != second);
        // SAFETY: GIVEN OUT: both ids lie inside the reservation, and they differ.
        unsafe { [&mut *self.address(first), &mut *self.address(second)] }
    }

    /// Returns the id of a handle, or `None` if the handle is stale or invalid. Costs one load.
    #[inline]
    pub fn find(&self, handle: u64) -> Option<RequestId> {
        let id = handle as u32 & self.mask;
        // SAFETY: every index is inside the reservation, whose untouched pages read as zero.
        let found = unsafe { &*self.base.wrapping_add(id as usize) };
        (found.handle as u64 == handle && found.state != RequestState::Free).then_some(id)
    }

    /// Returns the send or receive of a handle, if it has completed without failure or cancellation.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Wait_isend
    pub fn find_ended_well(&self, handle: u64) -> Option<*mut Request> {
        let request = self.address(handle as u32 & self.mask);
        // SAFETY: every index is inside the reservation, whose untouched pages read as zero.
        let found = unsafe { &*request };
        (found.handle as u64 == handle && found.ended_well()).then_some(request)
    }

    /// Returns the receive of a handle, if it is posted and has no other flags.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_Wait_posted
    pub fn find_posted_recv(&self, handle: u64) -> Option<*mut Request> {
        let request = self.address(handle as u32 & self.mask);
        // SAFETY: every index is inside the reservation, whose untouched pages read as zero.
        let found = unsafe { &*request };
        (found.handle as u64 == handle && found.is_posted_recv()).then_some(request)
    }

    /// Returns all active requests. Slow, because it visits the whole pool.
    pub fn active(&self) -> impl Iterator<Item = &Request> {
        self.in_use().filter(|request| request.state == RequestState::Active)
    }

    /// Returns the number of posted receives. Slow: walks the pool.
    pub fn posted(&self) -> u64 {
        self.active().filter(|request| request.is_posted()).count() as u64
    }

    /// Returns all requests in use. Slow: walks the pool.
    pub fn in_use(&self) -> impl Iterator<Item = &Request> {
        let all = (FIRST..self.fresh).map(|id| self.get(id));
        all.filter(|request| request.state != RequestState::Free)
    }

    /// Returns the number of requests in use. Slow: walks the pool.
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
        // Simulate limited address space. Space reserved beyond the limit stays unused.
        let whole = std::mem::replace(&mut pool.mask, CAPACITY_MIN - 1);
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
