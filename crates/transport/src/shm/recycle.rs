//! Replies in place: a consumer keeps the last bytes that it has taken from the peer's data area, and its next messages
//! to the peer go there instead of to its own area.
//!
//! A line that goes to and fro is moved once for each message. A line that only ever goes one way is moved twice: its
//! producer must first take it away from the consumer that has read it last. (Free lists that hand a message's buffer
//! to its receiver, as in the queues of Nemesis, do the same for whole cells.)
//!
//! ```text
//! A: message in A's area, slot p        B: takes it, keeps its bytes: does not say that it has taken slot p
//! A: takes the reply, has the bytes  <- B: writes its reply there, slot q names the place
//!    back; all free: starts there anew
//! A: next message, same bytes, "taken up to q"  -> B: the bytes are A's again
//! ```
//!
//! Bytes that are lent hold back what B says of its progress (`Control::head`) until B knows that A has taken slot q:
//! from the next message of A in its data area ([`DataRef::taken`]), or from [`Control::taken`].
#![allow(unsafe_code)]

use super::ShmEndpoint;
use super::datapath::{DataQueue, Rx, Tx};
use super::wire::*;
use crate::contract::Connection;
use fastpath_base::sync::Ordering;
use std::ptr;

/// Looks in vain at a peer before what is kept of its data area is given back, if it can be.
const QUIET_MOST: u32 = 64;
/// Shortest message whose bytes are kept: of shorter ones a stream does better in a few lines of its own.
const KEEP_MIN: u32 = 2048;

/// Lengths in the data area are multiples of a line.
pub(super) const fn whole_lines(len: u32) -> u32 {
    (len + 63) & !63
}

/// Bytes of the peer's data area that its consumer has taken and not given back.
#[derive(Debug)]
pub(super) struct Kept {
    /// The region they lie in.
    pub(super) area: *const PairRegion,
    /// Offsets of the first byte, of the first that was not lent to a message, and of the end.
    start: u32,
    next: u32,
    end: u32,
    /// Position of the first message whose bytes these are.
    from: u32,
    /// Position, in the other direction's ring, of the last message that lies there.
    last: u32,
    /// Looks in vain since.
    quiet: u32,
}

impl Kept {
    pub(super) const NOTHING: Kept =
        Kept { area: ptr::null(), start: 0, next: 0, end: 0, from: 0, last: 0, quiet: 0 };

    /// Whether messages lie there that the peer may not have taken.
    fn is_lent(&self) -> bool {
        self.next != self.start
    }

    /// Whether a peer that has taken everything before the position `taken` has taken all that lies there. Its word is
    /// not trusted: if it lies, it loses what it has not read.
    fn is_returned(&self, taken: u32) -> bool {
        taken.wrapping_sub(self.last) as i32 > 0
    }

    /// Keeps the bytes of a message that was just taken at a position of the ring.
    fn keep(&mut self, area: *const PairRegion, (offset, len): (u32, u32), position: u32) {
        self.quiet = 0;
        if self.end != 0 && offset == self.end && !self.is_lent() {
            self.end = offset + whole_lines(len);
            return;
        }
        (self.area, self.from) = (area, position);
        (self.start, self.next, self.end) = (offset, offset, offset + whole_lines(len));
    }

    /// Whether there is room for a message.
    #[inline]
    pub(super) fn has_room(&self, len: u32) -> bool {
        self.end - self.next >= len
    }

    /// Lends room for the message at a position of the other ring: where it begins.
    #[inline(never)]
    pub(super) fn lend(&mut self, len: u32, position: u32) -> u32 {
        let offset = self.next;
        self.next += whole_lines(len);
        self.last = position;
        offset | RECYCLED
    }
}

/// What a consumer needs of its own data area, in which the peer's messages may lie.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub pair: *const PairRegion,
    pub size: u32,
}

impl Own {
    /// Of a consumer that sends nothing.
    #[cfg(test)]
    pub const NOTHING: Own = Own { pair: ptr::null(), size: 0 };
}

impl Tx {
    #[inline]
    pub(super) fn own(&self) -> Own {
        Own { pair: self.pair, size: self.data_size }
    }

    /// Has bytes of the data area back: a reply that lay there was taken. All messages before it were taken by the
    /// peer before it wrote there.
    fn take_back(&mut self, offset: u32, len: u32) {
        // SAFETY: made when the ring was connected; a reply in this area was shown, so there is one.
        let queue = unsafe { &mut *self.in_data };
        queue.disordered &= queue.first != queue.next;
        if queue.disordered {
            return; // the peer gives it back with the others
        }
        let mask = self.data_size.wrapping_sub(1);
        let begin = offset.wrapping_sub(self.data_head) & mask;
        let end = begin + whole_lines(len);
        if end > self.data_tail.wrapping_sub(self.data_head) {
            return; // nothing lies there: the peer has given it back before
        }
        let end = self.data_head.wrapping_add(end);
        if queue.back_end != end.wrapping_sub(whole_lines(len)) {
            queue.back_start = self.data_head.wrapping_add(begin);
        }
        queue.back_end = end;
        let free = end.wrapping_sub(self.data_head);
        while queue.first != queue.next {
            // SAFETY: there has been a message in the data area.
            let (_, its_end) = unsafe { (*queue.entries)[(queue.first & SLOT_MASK) as usize] };
            if its_end.wrapping_sub(self.data_head) > free {
                break;
            }
            queue.first = queue.first.wrapping_add(1);
        }
        self.data_head = end;
        if queue.first == queue.next {
            // All is free: the next message goes where the lines are. What was sent still counts for more memory.
            let skipped = self.data_tail.wrapping_sub(queue.back_start);
            queue.earned_at = queue.earned_at.wrapping_sub(skipped);
            (self.data_head, self.data_tail) = (queue.back_start, queue.back_start);
            queue.back_end = queue.back_start.wrapping_sub(1);
        }
    }
}

impl DataQueue {
    /// The peer has said, with a message, how far it has come.
    fn note_taken(&mut self, taken: u32) {
        if self.kept.is_lent() && self.kept.is_returned(taken) {
            self.kept = Kept::NOTHING;
        }
    }
}

impl ShmEndpoint {
    /// What [`crate::contract::Endpoint::take`] does besides for a message in a data area; says whether the peer is to
    /// be told.
    #[inline(never)]
    pub(super) fn take_data(&mut self, position: u32) -> bool {
        let Rx { shown, taken, .. } = self.rx;
        if shown.offset & RECYCLED != 0 {
            self.tx.take_back(shown.offset & !RECYCLED, shown.len);
            // The peer may need to know: what it has lent holds back its own word.
            return true;
        }
        self.rx.data_taken += shown.len;
        // SAFETY: made when the ring was connected, or null.
        if let Some(queue) = unsafe { self.tx.in_data.as_mut() } {
            queue.note_taken(taken);
            let is_kept = queue.ahead.recycles && shown.len >= KEEP_MIN;
            if is_kept && !queue.kept.is_lent() {
                queue.kept.keep(self.rx.pair, (shown.offset, shown.len), position);
            }
        }
        self.rx.data_taken >= self.rx.owed_max
    }

    /// Tells the producer what has been taken, but for what is lent; says whether that is all.
    #[cold]
    #[inline(never)]
    pub fn publish_head(&mut self) -> bool {
        if let Some(kept) = self.kept() {
            if kept.is_lent() {
                let from = kept.from;
                // ORDERING: acquire pairs with the release in `Rx::publish_to`: the peer has read what lies there.
                // SAFETY: mapped, as the ring is connected.
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

    /// What is kept, if anything is.
    #[inline]
    fn kept(&mut self) -> Option<&mut Kept> {
        // SAFETY: made when the ring was connected, or null.
        let queue = unsafe { self.tx.in_data.as_mut() }?;
        (queue.kept.end != 0).then_some(&mut queue.kept)
    }

    fn drop_kept(&mut self) {
        if let Some(kept) = self.kept() {
            *kept = Kept::NOTHING;
        }
    }

    /// Tells the producer before this side sleeps; what is lent follows when the peer has taken it, which wakes.
    pub(super) fn publish_credits(&mut self) {
        if self.rx.owes_credits() && !self.publish_head() {
            self.await_room();
        }
    }

    /// Tells the producer where nothing is kept; else only now and then, since a reply may follow, or the peer may not
    /// have read it yet.
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
    use crate::contract::{Connection, Endpoint, Header, Post};
    use proptest::prelude::*;

    /// Two ranks that send to each other.
    struct Both {
        ends: [ShmEndpoint; 2],
        sent: [u32; 2],
        taken: [u32; 2],
    }

    fn byte(end: usize, number: u32, at: usize) -> u8 {
        (number.wrapping_mul(31) as usize + at * 7 + end) as u8
    }

    impl Both {
        fn new() -> Both {
            let domains = domains();
            let mut ends = [0, 1].map(|me: usize| {
                let peer = 1 - me;
                domains[me]
                    .back_pair(peer as u32, 0, size_of::<PairRegion>())
                    .expect("memory for a pair");
                let region = domains[me].pair(me as u32, peer as u32).cast_mut();
                // SAFETY: backed; the endpoints of the test before are gone.
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
            Both { ends, sent: [0; 2], taken: [0; 2] }
        }

        fn send(&mut self, me: usize, len: usize) -> bool {
            let number = self.sent[me];
            let header = Header::new(1, number, len as u64);
            let post = self.ends[me].am_bcopy(header, len, |to| {
                // SAFETY: `to` has room for `len` bytes.
                (0..len).for_each(|at| unsafe { to.add(at).write(byte(me, number, at)) })
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
            // SAFETY: valid until it is taken.
            let seen = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
            let wrong = (0..seen.len()).find(|&at| seen[at] != byte(1 - me, number, at));
            assert_eq!(wrong, None, "message {number} of {} bytes", seen.len());
            self.ends[me].take();
            self.taken[me] += 1;
            true
        }

        /// What `MPI_Finalize` does, more than once, while messages still come.
        fn leave(&mut self, me: usize) {
            self.ends[me].return_credits();
            assert!(self.ends[me].may_leave());
        }

        /// Both sides take all there is and give back what they can, as ranks that sleep do.
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
    enum Deed {
        Send(usize, usize, u32),
        Take(usize, u32),
        Stream(usize, u32),
        Quiet(usize),
        Leave(usize),
        Settle,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let len = prop_oneof![
            1_usize..100,
            100_usize..5000,
            Just(4096),
            Just(DATA_MESSAGE_MAX / 2),
            Just(DATA_MESSAGE_MAX)
        ];
        prop_oneof![
            4 => (0_usize..2, len, 1_u32..12).prop_map(|(me, len, times)| Deed::Send(me, len, times)),
            4 => (0_usize..2, 1_u32..12).prop_map(|(me, times)| Deed::Take(me, times)),
            1 => (0_usize..2, 1_u32..600).prop_map(|(me, messages)| Deed::Stream(me, messages)),
            1 => (0_usize..2).prop_map(Deed::Quiet),
            1 => (0_usize..2).prop_map(Deed::Leave),
            1 => Just(Deed::Settle),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn messages__of_both_directions_stay_whole_and_find_room(deeds in prop::collection::vec(deed(), 0..200)) {
            let mut both = Both::new();
            for deed in deeds {
                match deed {
                    Deed::Send(me, len, times) => {
                        let _ = (0..times).all(|_| both.send(me, len));
                    }
                    Deed::Take(me, times) => {
                        let _ = (0..times).all(|_| both.take(me));
                    }
                    // One side sends, the other takes, and sends nothing.
                    Deed::Stream(me, messages) => {
                        while both.take(1 - me) {}
                        for _ in 0..messages {
                            if both.send(me, 8) {
                                prop_assert!(both.take(1 - me));
                            }
                        }
                    }
                    Deed::Quiet(me) => (0..QUIET_MOST + 1).for_each(|_| both.ends[me].offer_credits()),
                    Deed::Leave(me) => both.leave(me),
                    Deed::Settle => {
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

        /// A slot that names any place, also in the area of the other direction.
        #[test]
        fn replies__at_any_place_are_inside_or_refused(
            places in prop::collection::vec((any::<bool>(), 0..2 * DATA_BYTES, any::<u16>(), any::<u32>()), 1..50),
        ) {
            let mut both = Both::new();
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
                // SAFETY: made when the ring was connected.
                let queue = unsafe { &*tx.in_data };
                prop_assert!(queue.next.wrapping_sub(queue.first) <= SLOTS);
            }
        }
    }

    #[test]
    fn replies__stay_where_they_are_when_their_sender_leaves() {
        let mut both = Both::new();
        assert!(both.send(0, 4096) && both.take(1));
        assert!(both.send(1, 4096), "it lies in the area of rank 0");
        both.leave(1);
        assert!(both.ends[0].is_drained(), "all that rank 0 sent was taken");
        while both.send(0, 4096) {}
        assert!(both.take(0));
        both.settle();
    }

    /// Where the messages of a ping-pong lie, as offsets in memory.
    #[test]
    fn replies__go_where_the_message_was() {
        let mut both = Both::new();
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
