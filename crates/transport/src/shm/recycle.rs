//! Replies in place: a consumer keeps the last bytes taken from the peer's data area for its next messages.
//!
//! A cache line that both ranks write in turn moves once for each message. A line that carries messages in only one
//! direction moves twice for each message: its producer must first take it away from its last reader. (Free lists that
//! give a message's buffer to its receiver, as in Nemesis, do the same for whole cells.)
//!
//! ```text
//! A: message in A's area, slot p        B: takes it, keeps its bytes, does not publish that slot p is taken
//! A: takes the reply, has the bytes  <- B: writes its reply there; slot q names the place
//!    back; if all are free, starts there
//! A: next message, same bytes, "taken up to q"  -> B: the bytes are A's again
//! ```
//!
//! While bytes are lent, B does not publish its progress beyond them (`RingControl::head`). B waits until A has taken
//! slot q: it learns that from A's next message in its data area ([`DataRef::taken`]), or from [`RingControl::taken`].
#![allow(unsafe_code)]

use super::data_area::{LocalDataArea, RecycledSpace, whole_lines};
use super::datapath::{DataQueue, Rx, Tx};
use super::endpoint::ShmEndpoint;
use super::wire::*;
use crate::contract::Connection;
use fastpath_base::sync::Ordering;

/// Kept bytes are returned after this many polls without an arrival, if no reply in them is unread.
const QUIET_MOST: u32 = 64;
/// Shortest message, in bytes, whose space is kept. Shorter messages are exchanged faster in a few lines of their own
/// area (`docs/performance.md`, *Large messages*).
const KEEP_MIN: u32 = 512;

impl Tx {
    #[inline]
    pub(super) fn own(&self) -> LocalDataArea {
        LocalDataArea { pair: self.pair, size: self.data_size }
    }

    /// Frees the bytes of a taken reply in this side's data area, and all bytes before them. The peer took the messages
    /// in those bytes before it replied.
    fn take_back(&mut self, offset: u32, len: u32) {
        // SAFETY: `look` has returned a reply in this side's data area, so `connect` has allocated the queue.
        let queue = unsafe { &mut *self.in_data };
        queue.disordered &= queue.first != queue.next;
        if queue.disordered {
            return; // the peer returns these bytes with the others
        }
        let mask = self.data_size.wrapping_sub(1);
        let begin = offset.wrapping_sub(self.data_head) & mask;
        let end = begin + whole_lines(len);
        if end > self.data_tail.wrapping_sub(self.data_head) {
            return; // the peer has returned these bytes before
        }
        let end = self.data_head.wrapping_add(end);
        if queue.back_end != end.wrapping_sub(whole_lines(len)) {
            queue.back_start = self.data_head.wrapping_add(begin);
        }
        queue.back_end = end;
        let free = end.wrapping_sub(self.data_head);
        while queue.first != queue.next {
            // SAFETY: there has been a message in the data area, so the entries exist.
            let (_, its_end) = unsafe { (*queue.entries)[(queue.first & SLOT_MASK) as usize] };
            if its_end.wrapping_sub(self.data_head) > free {
                break;
            }
            queue.first = queue.first.wrapping_add(1);
        }
        self.data_head = end;
        if queue.first == queue.next {
            // All bytes are free, so the next message reuses these lines. `earned_at` moves back with the tail, so that
            // the bytes already sent still count when `grow` decides whether to back more memory.
            let skipped = self.data_tail.wrapping_sub(queue.back_start);
            queue.earned_at = queue.earned_at.wrapping_sub(skipped);
            (self.data_head, self.data_tail) = (queue.back_start, queue.back_start);
            queue.back_end = queue.back_start.wrapping_sub(1);
        }
    }
}

impl DataQueue {
    fn note_taken(&mut self, taken: u32) {
        if self.kept.is_lent() && self.kept.is_returned(taken) {
            self.kept = RecycledSpace::NOTHING;
        }
    }
}

impl ShmEndpoint {
    #[inline(never)]
    pub(super) fn take_data(&mut self, position: u32) -> bool {
        let Rx { shown, taken, .. } = self.rx;
        if shown.offset & RECYCLED != 0 {
            self.tx.take_back(shown.offset & !RECYCLED, shown.len);
            // Publish now: the peer cannot return the bytes that it lent to the reply before it knows that the reply
            // was taken.
            return true;
        }
        self.rx.data_taken += shown.len;
        // SAFETY: `in_data` is null, or allocated by `connect` and used only by this process.
        if let Some(queue) = unsafe { self.tx.in_data.as_mut() } {
            queue.note_taken(taken);
            let is_kept = queue.tuning.recycles && shown.len >= KEEP_MIN;
            if is_kept && !queue.kept.is_lent() {
                queue.kept.keep(self.rx.pair, (shown.offset, shown.len), position);
            }
        }
        self.rx.data_taken >= self.rx.owed_max
    }

    /// Publishes which messages were taken, except those whose bytes are lent; returns whether all were published.
    #[cold]
    #[inline(never)]
    pub fn publish_head(&mut self) -> bool {
        if let Some(kept) = self.kept() {
            if kept.is_lent() {
                let from = kept.from;
                // ORDERING: acquire pairs with the release in `Rx::publish_to`: the peer has read the lent bytes.
                // SAFETY: the region is mapped, as the ring is connected.
                let taken = unsafe { (*self.tx.pair).control.taken.load(Ordering::Acquire) };
                if !self.kept().is_some_and(|kept| kept.is_returned(taken)) {
                    self.rx.publish_to(from);
                    return false;
                }
            }
            self.drop_kept();
        }
        self.rx.publish_to(self.rx.head);
        true
    }

    #[inline]
    fn kept(&mut self) -> Option<&mut RecycledSpace> {
        // SAFETY: `in_data` is null, or allocated by `connect` and used only by this process.
        let queue = unsafe { self.tx.in_data.as_mut() }?;
        (queue.kept.end != 0).then_some(&mut queue.kept)
    }

    fn drop_kept(&mut self) {
        if let Some(kept) = self.kept() {
            *kept = RecycledSpace::NOTHING;
        }
    }

    /// Publishes what was taken, before this side sleeps. Bytes lent to replies that the peer has not taken are not
    /// published yet. In that case, asks the peer to wake this side when it has taken replies, so that these bytes can
    /// then be published.
    pub(super) fn publish_credits(&mut self) {
        if self.rx.owes_credits() && !self.publish_head() {
            self.await_room();
        }
    }

    /// Publishes what messages were taken: at once if no bytes are kept, otherwise at every `QUIET_MOST`-th call. Kept
    /// bytes are not returned earlier, because this side may still write a reply there, or the peer may not have read
    /// the reply.
    #[inline]
    pub fn offer_credits(&mut self) {
        if self.rx.owes_credits() {
            self.offer_credits_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn offer_credits_slow(&mut self) {
        if let Some(kept) = self.kept() {
            kept.quiet = kept.quiet.wrapping_add(1);
            if !kept.quiet.is_multiple_of(QUIET_MOST) {
                return;
            }
        }
        self.publish_head();
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::super::Iface;
    use super::super::testing::domains;
    use super::*;
    use crate::conformance::SentMessage;
    use crate::contract::{Connection, Endpoint, Header, Post};
    use proptest::prelude::*;

    struct EndpointPair {
        ends: [ShmEndpoint; 2],
        sent: [u32; 2],
        taken: [u32; 2],
    }

    /// Returns the contents of a message, which depend on the sender and the number.
    fn contents(sender: usize, number: u32, len: usize) -> Vec<u8> {
        SentMessage::numbered(2 * number + sender as u32, len).data
    }

    impl EndpointPair {
        fn new() -> EndpointPair {
            let domains = domains();
            let mut ends = [0, 1].map(|me: usize| {
                let peer = 1 - me;
                domains[me]
                    .back_pair(peer as u32, 0, size_of::<PairRegion>())
                    .expect("memory for a pair");
                let region = domains[me].pair(me as u32, peer as u32).cast_mut();
                // SAFETY: the region is backed, and the endpoints of the previous test are gone.
                unsafe { region.cast::<u8>().write_bytes(0, size_of::<PairRegion>()) };
                ShmEndpoint::new(domains[me], peer as u32)
            });
            for (me, end) in ends.iter_mut().enumerate() {
                domains[me].incoming_word(1 - me as u32, 0).store(0, Ordering::Relaxed);
                end.connect(Default::default()).expect("memory for a pair");
            }
            for (me, end) in ends.iter_mut().enumerate() {
                Iface::new(domains[me]).accept(|_| {});
                end.accept();
            }
            EndpointPair { ends, sent: [0; 2], taken: [0; 2] }
        }

        fn send(&mut self, me: usize, len: usize) -> bool {
            let number = self.sent[me];
            let header = Header::new(1, number, len as u64);
            let data = contents(me, number, len);
            let post = self.ends[me].am_bcopy(header, len, |to| {
                // SAFETY: `to` has room for `len` bytes, the length of `data`.
                unsafe { to.copy_from_nonoverlapping(data.as_ptr(), len) }
            });
            self.sent[me] += u32::from(post == Post::Done);
            post == Post::Done
        }

        fn take(&mut self, me: usize) -> bool {
            let Some(arrival) = self.ends[me].look() else {
                return false;
            };
            let number = self.taken[me];
            assert_eq!((arrival.header.imm, arrival.header.key), (number, arrival.len() as u64));
            // SAFETY: an arrival is valid until it is taken.
            let seen = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
            let is_whole = seen == contents(1 - me, number, seen.len());
            assert!(is_whole, "message {number} of {} bytes", seen.len());
            self.ends[me].take();
            self.taken[me] += 1;
            true
        }

        /// Does what `MPI_Finalize` does repeatedly while messages still arrive.
        fn leave(&mut self, me: usize) {
            self.ends[me].return_credits();
            assert!(self.ends[me].may_leave());
        }

        /// Both sides take all messages and return all credits they can, as ranks do before they sleep.
        fn settle(&mut self) {
            for _ in 0..3 {
                for me in [0, 1] {
                    while self.take(me) {}
                    self.ends[me].return_credits();
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    enum RecycleAction {
        Send(usize, usize, u32),
        Take(usize, u32),
        Stream(usize, u32),
        Quiet(usize),
        Leave(usize),
        Settle,
    }

    fn action() -> impl Strategy<Value = RecycleAction> {
        let len = prop_oneof![
            1_usize..100,
            100_usize..5000,
            Just(4096),
            Just(DATA_MESSAGE_MAX / 2),
            Just(DATA_MESSAGE_MAX)
        ];
        prop_oneof![
            4 => (0_usize..2, len, 1_u32..12).prop_map(|(me, len, times)| RecycleAction::Send(me, len, times)),
            4 => (0_usize..2, 1_u32..12).prop_map(|(me, times)| RecycleAction::Take(me, times)),
            1 => (0_usize..2, 1_u32..600).prop_map(|(me, messages)| RecycleAction::Stream(me, messages)),
            1 => (0_usize..2).prop_map(RecycleAction::Quiet),
            1 => (0_usize..2).prop_map(RecycleAction::Leave),
            1 => Just(RecycleAction::Settle),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn messages__of_both_directions_stay_whole_and_find_room(actions in prop::collection::vec(action(), 0..200)) {
            let mut both = EndpointPair::new();
            for action in actions {
                match action {
                    RecycleAction::Send(me, len, times) => {
                        let _ = (0..times).all(|_| both.send(me, len));
                    }
                    RecycleAction::Take(me, times) => {
                        let _ = (0..times).all(|_| both.take(me));
                    }
                    // One side sends; the other takes and sends nothing.
                    RecycleAction::Stream(me, messages) => {
                        while both.take(1 - me) {}
                        for _ in 0..messages {
                            if both.send(me, 8) {
                                prop_assert!(both.take(1 - me));
                            }
                        }
                    }
                    RecycleAction::Quiet(me) => (0..QUIET_MOST + 1).for_each(|_| both.ends[me].offer_credits()),
                    RecycleAction::Leave(me) => both.leave(me),
                    RecycleAction::Settle => {
                        both.settle();
                        for me in [0, 1] {
                            prop_assert!(both.ends[me].tx.is_drained(), "all was taken");
                            prop_assert!(both.send(me, DATA_MESSAGE_MAX), "all is free");
                        }
                    }
                }
            }
            both.settle();
            prop_assert!(both.sent[0] == both.taken[1] && both.sent[1] == both.taken[0]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Property: for slots with arbitrary references into either data area, arrivals are inside an area or refused.
        #[test]
        fn replies__at_any_place_are_inside_or_refused(
            places in prop::collection::vec((any::<bool>(), 0..2 * DATA_BYTES, any::<u16>(), any::<u32>()), 1..50),
        ) {
            let mut both = EndpointPair::new();
            for (number, (recycled, offset, len, taken)) in places.into_iter().enumerate() {
                both.send(0, 1 + number * 997 % DATA_MESSAGE_MAX);
                let end = &mut both.ends[0];
                let place = match recycled {
                    true => offset | RECYCLED,
                    false => offset,
                };
                let head = end.rx.head;
                // SAFETY: the region is backed, and only this test uses it.
                unsafe {
                    let slot = &(*end.rx.pair).slots[(head & SLOT_MASK) as usize];
                    slot.payload.get().cast::<DataRef>().write(DataRef::new(place, len, 0, taken));
                    slot.word0.store(encode_word0(head, 1, LEN_IN_DATA, 0), Ordering::Relaxed);
                }
                let (own, peers) = (end.tx.pair as usize, end.rx.pair as usize);
                let Some(arrival) = end.look() else { continue };
                let (at, len) = (arrival.data() as usize, arrival.len());
                let is_inside = |region: usize| at >= region && at + len <= region + size_of::<PairRegion>();
                prop_assert!(len == 0 || is_inside(own) || is_inside(peers), "{len} bytes at \
                    {at:#x}");
                end.take();
                let tx = &end.tx;
                prop_assert!(tx.data_tail.wrapping_sub(tx.data_head) <= tx.data_size);
                // SAFETY: `connect` allocated the queue, and no other reference to it lives now.
                let queue = unsafe { &*tx.in_data };
                prop_assert!(queue.next.wrapping_sub(queue.first) <= SLOTS);
            }
        }
    }

    #[test]
    fn replies__stay_where_they_are_when_their_sender_leaves() {
        let mut both = EndpointPair::new();
        assert!(both.send(0, 4096) && both.take(1));
        assert!(both.send(1, 4096), "it lies in the area of rank 0");
        both.leave(1);
        assert!(both.ends[0].is_drained(), "all that rank 0 sent was taken");
        while both.send(0, 4096) {}
        assert!(both.take(0));
        both.settle();
    }

    /// Checks the offsets in the data areas at which the messages of a ping-pong lie.
    #[test]
    fn replies__go_where_the_message_was() {
        let mut both = EndpointPair::new();
        let mut places = Vec::new();
        for _ in 0..50 {
            for me in [0, 1] {
                (0..4).for_each(|_| assert!(both.send(me, 4096)));
                let other = 1 - me;
                for _ in 0..4 {
                    places.push(
                        both.ends[other].look().expect("a message").data().addr() % (64 << 20),
                    );
                    assert!(both.take(other));
                }
            }
        }
        let pages = |range: &[usize]| {
            let mut pages: Vec<usize> = range.iter().map(|at| at / PAGE).collect();
            pages.sort_unstable();
            pages.dedup();
            pages.len()
        };
        assert!(pages(&places[16..]) <= 16, "{} pages", pages(&places[16..]));
    }
}
