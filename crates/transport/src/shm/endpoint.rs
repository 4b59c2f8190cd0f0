//! Connection setup: the sender backs the pair's region with memory and announces its ring.
//!
//! **CONNECTED.** `tx.pair` is null, or mapped for the life of the job. `tx.in_data` is null, or allocated by `connect`
//! and used only by this process.
#![allow(unsafe_code)]

use super::arena::KEY_ARENA;
use super::cma::{self, Permission};
use super::datapath::{DATA_OWED_MIN, DataQueue, Rx, Tx, empty_pair};
use super::direct::{self, Windows};
use super::domain::Domain;
use super::recall::Recalls;
use super::ring_tuning::RingTuning;
use super::wire::*;
use crate::contract::*;
use fastpath_base::copy::copy;
use fastpath_base::sync::Ordering;
use fastpath_segment::{SegmentError, has_left};
use std::ptr;

/// Both directions between this rank and a peer.
#[repr(C)]
pub struct ShmEndpoint {
    /// Ring to the peer.
    pub tx: Tx,
    /// Ring from the peer.
    pub rx: Rx,
    pub(super) domain: &'static Domain,
    pub(super) permission: Permission,
    cooperative_open: u32,
    windows: Option<Box<Windows>>,
}

impl ShmEndpoint {
    /// Creates an unconnected endpoint.
    pub fn new(domain: &'static Domain, peer: u32) -> Self {
        ShmEndpoint {
            tx: Tx {
                pair: ptr::null(),
                tail: 0,
                limit: 0,
                peer_state: domain.state_word(peer),
                data_tail: 0,
                data_head: 0,
                data_size: 0,
                peer,
                in_data: ptr::null_mut(),
                domain: ptr::from_ref(domain),
                recent: 0,
                warmed: 0,
            },
            rx: Rx {
                pair: empty_pair(),
                head: 0,
                published: 0,
                data_taken: 0,
                owed_max: DATA_OWED_MIN,
                shown: Default::default(),
                taken: 0,
                producer: &raw const **domain.page(peer),
            },
            domain,
            permission: Permission::Unknown,
            cooperative_open: 0,
            windows: None,
        }
    }

    /// See [`Rx::look_short`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    pub fn look_short(&mut self, id: u8) -> Option<Arrival<'_>> {
        self.rx.look_short(id)
    }

    /// Takes the arrival of `look_short`; returns whether [`Self::publish_head`] must follow.
    #[inline(always)] // see `look_short`
    #[must_use]
    pub fn advance_short(&mut self) -> bool {
        self.rx.advance()
    }

    /// See [`Rx::look_long`].
    #[inline]
    pub fn look_long(&mut self, id: u8) -> Option<Arrival<'_>> {
        self.rx.look_long(id, self.tx.own())
    }

    /// Slots that this side has filled so far.
    pub fn slots_sent(&self) -> u64 {
        if self.tx.pair.is_null() {
            return 0;
        }
        // SAFETY: CONNECTED: `pair` is not null.
        let (laps, said) = unsafe {
            ((*self.tx.pair).control.laps.load(Ordering::Relaxed), (*self.tx.in_data).said)
        };
        (u64::from(laps) << 32 | u64::from(said)) + u64::from(self.tx.tail.wrapping_sub(said))
    }

    /// Slots that this side has filled and emptied so far, modulo 2^32.
    pub fn slots_moved(&self) -> u32 {
        self.tx.tail.wrapping_add(self.rx.head)
    }

    /// The peer's world rank.
    pub fn peer(&self) -> u32 {
        self.tx.peer
    }

    /// Opens the ring to the peer. Fails if there is no memory for it.
    pub fn connect(&mut self, tuning: RingTuning) -> Result<(), SegmentError> {
        if !self.tx.pair.is_null() {
            return Ok(());
        }
        let (domain, peer) = (self.domain, self.tx.peer);
        domain.back_pair(peer, 0, PAGE)?;
        let pair = domain.pair(domain.me, peer);
        if pair.is_null() || !domain.announce_ring(peer) {
            return Err(SegmentError::Ranks(peer as usize + 1));
        }
        self.tx.in_data = Box::into_raw(Box::new(DataQueue::new(tuning, 1)));
        self.tx.limit = slots_within(1);
        self.tx.pair = pair;
        // ORDERING: release pairs with the acquire in `Iface::accept`, so that the bit is visible.
        domain.incoming_generation(peer).fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Attaches the ring from the peer, which has announced it.
    pub fn accept(&mut self) {
        self.rx.pair = self.domain.pair(self.tx.peer, self.domain.me);
    }

    /// Disables single copies with the peer permanently.
    pub fn refuse_single_copy(&mut self) {
        self.permission = Permission::Refused(0);
    }

    /// State of recalls of this side's messages to the peer; `None` if not connected.
    pub fn sent_recalls(&self) -> Option<&Recalls> {
        // SAFETY: CONNECTED: the region is mapped for the life of the job if `pair` is not null.
        unsafe { self.tx.pair.as_ref() }.map(|pair| &pair.recalls)
    }

    /// State of recalls of the peer's messages; `None` if the peer has not connected.
    pub fn received_recalls(&self) -> Option<&Recalls> {
        if ptr::eq(self.rx.pair, empty_pair()) {
            return None;
        }
        // SAFETY: the region from the peer is mapped for the life of the job.
        Some(unsafe { &(*self.rx.pair).recalls })
    }

    /// Calls `visit` with each contiguous part of the key's memory, if the key is for load-store memory. Other
    /// processes may write there.
    pub fn visit_shared(
        &mut self, remote: Remote, len: usize, visit: impl FnMut(*mut u8, usize),
    ) -> Result<(), RemoteError> {
        let windows = self.windows.get_or_insert_default();
        direct::visit_stretches(self.domain, windows, remote, len, visit)
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        self.tx.end_stream();
        // SAFETY: CONNECTED: allocated by `connect` and not shared, or null.
        unsafe { DataQueue::free(self.tx.in_data) };
    }
}

impl Connection for ShmEndpoint {
    fn await_room(&mut self) {
        if !self.tx.pair.is_null() {
            // SAFETY: CONNECTED: `pair` is not null.
            let control = unsafe { &(*self.tx.pair).control };
            control.producer_waits.store(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn peer_has_left(&self) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead. SAFETY: the word is in the node segment, mapped for the life of the process.
        has_left(unsafe { (*self.tx.peer_state).load(Ordering::Acquire) })
    }

    fn open_receive(&mut self) {
        self.accept();
    }

    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        self.tx.has_room_for(messages, bytes as u32)
    }

    #[inline]
    fn return_credits(&mut self) {
        self.publish_credits();
    }

    fn is_drained(&mut self) -> bool {
        self.tx.is_drained()
    }

    fn knows_single_copy(&self) -> bool {
        matches!(self.permission, Permission::Granted(_))
    }

    fn open_cooperative(&mut self) -> Option<u32> {
        if self.tx.pair.is_null() {
            return None;
        }
        let index = (!self.cooperative_open).trailing_zeros();
        if index as usize >= COOPERATIVE_COPIES || !self.tx.grow_head() {
            return None;
        }
        self.cooperative_open |= 1 << index;
        // SAFETY: CONNECTED: `pair` is not null.
        let cooperative = unsafe { &(*self.tx.pair).cooperative[index as usize] };
        cooperative.claimed.store(0, Ordering::Relaxed);
        Some(index)
    }

    fn close_cooperative(&mut self, index: u32) {
        self.cooperative_open &= !(1 << (index as usize % COOPERATIVE_COPIES));
    }

    fn claim_cooperative(&mut self, index: u32, sender: bool) -> u32 {
        let pair = if sender { self.tx.pair } else { self.rx.pair };
        let Some(index) = (index as usize).checked_rem(COOPERATIVE_COPIES) else {
            return u32::MAX;
        };
        // SAFETY: the region is mapped: the RTS that names the copy came through this ring.
        let cooperative = unsafe { &(*pair).cooperative[index] };
        cooperative.claimed.fetch_add(1, Ordering::Relaxed)
    }
}

impl Endpoint for ShmEndpoint {
    fn capabilities(&self) -> Capabilities {
        let zcopy = if matches!(self.permission, Permission::Refused(_)) { 0 } else { usize::MAX };
        Capabilities {
            name: "shm",
            short: SLOT_PAYLOAD,
            bcopy: DATA_MESSAGE_MAX,
            get_zcopy: zcopy,
            put_zcopy: zcopy,
            reliable: true,
            needs_wireup: false,
            directed: true,
        }
    }

    #[inline]
    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        // SAFETY: `data` is readable for `len` bytes, by the contract of an endpoint.
        unsafe { self.tx.am_short(header, data, len) }
    }

    #[inline]
    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        self.tx.am_bcopy(header, len, &self.rx.head, pack)
    }

    #[cold]
    fn wake(&mut self) -> Post {
        match super::iface::wake_peer(self.domain.page(self.tx.peer)) {
            // The peer has left after this post, and had taken the message before it left.
            Post::PeerGone if self.tx.is_drained() => Post::Done,
            post => post,
        }
    }

    #[inline]
    fn look(&mut self) -> Option<Arrival<'_>> {
        self.rx.look(self.tx.own())
    }

    #[inline]
    fn take(&mut self) {
        let position = self.rx.head;
        let mut due = self.rx.advance();
        if self.rx.shown.len != 0 {
            due |= self.take_data(position);
        }
        if due {
            self.publish_head();
        }
    }

    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        if from.rkey & KEY_ARENA == 0 {
            let pid = self.permission.find_process(self.domain, self.tx.peer, from)?;
            // SAFETY: `to` is writable for `len` bytes, by the contract of an endpoint; the kernel checks the other
            // side.
            let read = unsafe { cma::read_process(pid, to, len, from.addr) };
            return read.map_err(|errno| self.permission.note_error(errno));
        }
        let mut done = 0;
        self.visit_shared(from, len, |at, part| {
            // SAFETY: the parts are `len` bytes in all. If the program passes the same memory as source and destination
            // of the get, the two overlap, which the copy tolerates.
            unsafe { copy_or_move(to.add(done), at, part) };
            done += part;
        })
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        if to.rkey & KEY_ARENA == 0 {
            let pid = self.permission.find_process(self.domain, self.tx.peer, to)?;
            // SAFETY: `from` is readable for `len` bytes, by the contract of an endpoint; the kernel checks the other
            // side.
            let written = unsafe { cma::write_process(pid, from, len, to.addr) };
            return written.map_err(|errno| self.permission.note_error(errno));
        }
        let mut done = 0;
        self.visit_shared(to, len, |at, part| {
            // SAFETY: the parts are `len` bytes in all; overlap with the peer's memory is tolerated, as in `get`.
            unsafe { copy_or_move(at, from.add(done), part) };
            done += part;
        })
    }

    unsafe fn get_blocks(
        &mut self, to: *mut u8, from: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        if from.rkey & KEY_ARENA != 0 {
            return Err(RemoteError::Unsupported);
        }
        let pid = self.permission.find_process(self.domain, self.tx.peer, from)?;
        // SAFETY: `to` is writable for the bytes of all blocks, by the contract of an endpoint.
        let read = unsafe { cma::read_blocks(pid, to, from.addr, blocks) };
        read.map_err(|errno| self.permission.note_error(errno))
    }

    unsafe fn put_blocks(
        &mut self, from: *const u8, to: Remote, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        if to.rkey & KEY_ARENA != 0 {
            return Err(RemoteError::Unsupported);
        }
        let pid = self.permission.find_process(self.domain, self.tx.peer, to)?;
        // SAFETY: `from` is readable for the bytes of all blocks, by the contract of an endpoint.
        let written = unsafe { cma::write_blocks(pid, from, to.addr, blocks) };
        written.map_err(|errno| self.permission.note_error(errno))
    }
}

/// Copies between buffers that should not overlap. If they overlap, the destination gets unspecified bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
unsafe fn copy_or_move(to: *mut u8, from: *const u8, len: usize) {
    let apart = to.addr().abs_diff(from.addr());
    // SAFETY: this function's contract; buffers at least `len` bytes apart do not overlap.
    unsafe {
        match apart >= len {
            true => copy(to, from, len),
            false => ptr::copy(from, to, len),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::conformance::{Rig, SendForm, SentMessage, Start, post};
    use crate::shm::testing::ShmPair;
    use fastpath_segment::{STATE_AWAKE, STATE_FINALIZED};

    #[test]
    fn wake__a_peer_that_left_counts_as_gone_only_if_the_message_is_still_there() {
        let mut pair = ShmPair::new(Start::default());
        let state = &pair.domains[0].page(1).state;
        for (taken, answer) in [(true, Post::Done), (false, Post::PeerGone)] {
            assert!(post(&mut pair, SendForm::Short, &SentMessage::numbered(1, 8)));
            if taken {
                pair.rx.look().expect("a message");
                Endpoint::take(&mut pair.rx);
                pair.return_credits();
            }
            state.store(STATE_FINALIZED, Ordering::Relaxed);
            assert_eq!(pair.tx.wake(), answer);
            state.store(STATE_AWAKE, Ordering::Relaxed);
        }
    }
}
