//! Connecting: the sender backs the pair's region with memory and announces itself.
#![allow(unsafe_code)]

use super::arena::KEY_ARENA;
use super::cma::Permission;
use super::datapath::{DataQueue, Rx, Tx, empty_pair};
use super::direct::{self, Windows};
use super::domain::Domain;
use super::idle::Ahead;
use super::recall::Recalls;
use super::wire::*;
use crate::contract::*;
use fastpath_base::copy::copy;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::{SegmentError, has_left};
use std::ptr;

/// Both directions between this rank and one peer.
#[repr(C)]
pub struct ShmEndpoint {
    /// Towards the peer.
    pub tx: Tx,
    /// From the peer.
    pub rx: Rx,
    pub(super) domain: &'static Domain,
    /// Whether the kernel copies between this process and the peer.
    pub(super) permission: Permission,
    /// Cooperative copies that this side has opened, one bit each.
    cooperative_open: u32,
    /// The peer's memory as far as it was reached directly.
    windows: Option<Box<Windows>>,
}

impl ShmEndpoint {
    /// An endpoint that is not connected in either direction.
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
                pair: super::datapath::empty_pair(),
                head: 0,
                published: 0,
                data_taken: 0,
                owed_max: super::datapath::DATA_OWED_MIN,
                shown: Default::default(),
                taken: 0,
                producer: &raw const **domain.page(peer),
                place: domain.place as u16,
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

    /// Consumes what `look_short` showed; says whether [`Self::publish_head`] must follow.
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

    /// Slots of the ring that this side has filled so far.
    pub fn slots_sent(&self) -> u64 {
        if self.tx.pair.is_null() {
            return 0;
        }
        // SAFETY: mapped, as `pair` is not null; allocated when the ring was connected.
        let (laps, said) = unsafe {
            ((*self.tx.pair).control.laps.load(Ordering::Relaxed), (*self.tx.in_data).said)
        };
        (u64::from(laps) << 32 | u64::from(said)) + u64::from(self.tx.tail.wrapping_sub(said))
    }

    /// Slots of both rings that this side has filled and emptied so far, modulo 2^32.
    pub fn slots_moved(&self) -> u32 {
        self.tx.tail.wrapping_add(self.rx.head)
    }

    /// The peer's world rank.
    pub fn peer(&self) -> u32 {
        self.tx.peer
    }

    /// Opens the ring towards the peer. Fails where there is no memory for it.
    pub fn connect(&mut self, ahead: Ahead) -> Result<(), SegmentError> {
        if !self.tx.pair.is_null() {
            return Ok(());
        }
        let (domain, peer) = (self.domain, self.tx.peer);
        domain.back_pair(peer, 0, PAGE)?;
        let pair = domain.pair(domain.me, peer);
        if pair.is_null() || !domain.announce_ring(peer) {
            return Err(SegmentError::Ranks(peer as usize + 1));
        }
        self.tx.in_data = Box::into_raw(Box::new(DataQueue::new(ahead, 1)));
        self.tx.limit = slots_within(1);
        self.tx.pair = pair;
        // ORDERING: release pairs with the acquire in `Iface::accept`: the bit is set.
        domain.incoming_generation(peer).fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Attaches the ring from the peer, which has announced that it is there.
    pub fn accept(&mut self) {
        self.rx.pair = self.domain.pair(self.tx.peer, self.domain.me);
    }

    /// Never has the kernel copy from or to the peer's memory.
    pub fn refuse_single_copy(&mut self) {
        self.permission = Permission::Refused(0);
    }

    /// What is taken back of the messages to the peer; none where nothing was sent.
    pub fn sent_recalls(&self) -> Option<&Recalls> {
        // SAFETY: mapped for the life of the job where it is not null.
        unsafe { self.tx.pair.as_ref() }.map(|pair| &pair.recalls)
    }

    /// What the peer takes back of its messages; none where nothing has arrived.
    pub fn received_recalls(&self) -> Option<&Recalls> {
        if ptr::eq(self.rx.pair, empty_pair()) {
            return None;
        }
        // SAFETY: mapped for the life of the job.
        Some(unsafe { &(*self.rx.pair).recalls })
    }

    /// Calls `visit` with each stretch of memory that the key names, if this process can reach it by
    /// load and store. Others may write there at any time.
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
        // SAFETY: made in `connect`, and not shared.
        unsafe { DataQueue::free(self.tx.in_data) };
    }
}

impl Connection for ShmEndpoint {
    /// Asks the consumer for a wake-up when it gives back room.
    fn await_room(&mut self) {
        if !self.tx.pair.is_null() {
            // SAFETY: mapped, as it is not null.
            let control = unsafe { &(*self.tx.pair).control };
            control.producer_waits.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the peer has finished or died. What it sent and took before can be seen after an answer of yes.
    #[inline]
    fn peer_has_left(&self) -> bool {
        // ORDERING: acquire pairs with the release of a rank that leaves the job (`Job::set_phase`), and of the
        // launcher that marks it dead. SAFETY: the word lies in the node segment, mapped for the life of the process.
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
        // SAFETY: mapped, as the ring is connected.
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
        // SAFETY: mapped: the RTS that names the copy came through this ring.
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
        match super::iface::wake_peer(self.domain.page(self.tx.peer), self.domain.place as usize) {
            // It has left since, and took this message before.
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
            // SAFETY: `to` is writable for `len` bytes, by the contract of an endpoint.
            return unsafe { super::cma::read(self, to, len, from) };
        }
        let mut done = 0;
        self.visit_shared(from, len, |at, part| {
            // SAFETY: the parts are `len` bytes in all; the peer's memory is no part of `to`, which
            // is this program's own, unless it names one place as both buffers.
            unsafe { copy_or_move(to.add(done), at, part) };
            done += part;
        })
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        if to.rkey & KEY_ARENA == 0 {
            // SAFETY: `from` is readable for `len` bytes, by the contract of an endpoint.
            return unsafe { super::cma::write(self, from, len, to) };
        }
        let mut done = 0;
        self.visit_shared(to, len, |at, part| {
            // SAFETY: as in `get`.
            unsafe { copy_or_move(at, from.add(done), part) };
            done += part;
        })
    }
}

/// Copies between memory that no program should name as both buffers: where one does, the bytes may be any, but no
/// more than that.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
unsafe fn copy_or_move(to: *mut u8, from: *const u8, len: usize) {
    let apart = to.addr().abs_diff(from.addr());
    // SAFETY: by this function's contract; as far apart as they are long, they do not overlap.
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
    use crate::conformance::{Rig, SendForm, Sent, Start, post};
    use crate::shm::testing::ShmPair;
    use fastpath_bootstrap::segment::{STATE_AWAKE, STATE_FINALIZED};

    #[test]
    fn wake__a_peer_that_left_counts_as_gone_only_if_the_message_is_still_there() {
        let mut pair = ShmPair::new(Start::default());
        let state = &pair.domains[0].page(1).state;
        for (taken, answer) in [(true, Post::Done), (false, Post::PeerGone)] {
            assert!(post(&mut pair, SendForm::Short, &Sent::numbered(1, 8)));
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
