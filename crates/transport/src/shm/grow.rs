//! Memory of a pair's region: the sender backs each part when it first reaches that part.
//!
//! The first page holds the control line, the recalls and the first slots. In the first lap of the ring, the producer's
//! limit is one slot before the first unbacked slot. The reason is that the consumer also reads the slot after the last
//! message. The data area starts empty and grows when it is full.
//!
//! **OWN QUEUE.** `in_data` is null or a queue that only this process uses, under the lock of its worker; `connect`
//! allocates it. `pair` is mapped as long as the job. No reference to either lives across statements.
//!
//! **DOMAIN.** `domain` is set when the endpoint is made, and a domain lives as long as the process.
#![allow(unsafe_code)]

use super::data_area::RecycledSpace;
use super::datapath::{DataQueue, Tx};
use super::ring_tuning::RingTuning;
use super::wire::*;
use fastpath_base::sync::{AtomicU32, Ordering};
use std::ptr;

fn next_size(size: u32) -> u32 {
    let step = match size < DATA_BYTES_STREAM {
        true => DATA_STEP,
        false => DATA_STEP_STREAM,
    };
    (size.saturating_mul(step)).clamp(DATA_BYTES_FIRST, DATA_BYTES)
}

impl DataQueue {
    pub fn new(tuning: RingTuning, head_pages: u32) -> Self {
        DataQueue {
            first: 0,
            next: 0,
            mark: (0, 0),
            tuning,
            said: 0,
            head_pages,
            made: 0,
            earned_at: 0,
            starved: false,
            kept: RecycledSpace::NOTHING,
            back_start: 0,
            back_end: 0,
            disordered: false,
            entries: ptr::null_mut(),
        }
    }

    #[cfg(test)]
    pub fn whole(start: u32) -> Self {
        let mut queue = DataQueue::new(RingTuning::default(), HEAD_PAGES);
        queue.said = start;
        queue.make_entries();
        queue
    }

    fn make_entries(&mut self) {
        if self.entries.is_null() {
            self.entries = Box::into_raw(Box::new([(0, 0); SLOTS as usize]));
        }
    }

    /// Frees a queue, unless it is null.
    ///
    /// # Safety
    /// `queue` is null, or was made by `Box::into_raw` and has no other user.
    pub unsafe fn free(queue: *mut DataQueue) {
        if queue.is_null() {
            return;
        }
        // SAFETY: `queue` was made by `Box::into_raw` and has no other user, by this function's contract.
        // `make_entries` made the entries the same way.
        unsafe {
            let queue = Box::from_raw(queue);
            if !queue.entries.is_null() {
                drop(Box::from_raw(queue.entries));
            }
        }
    }
}

impl Tx {
    /// Whether the last refused message lacked memory.
    pub fn is_starved(&self) -> bool {
        // SAFETY: OWN QUEUE: `in_data` is null, or allocated by `connect`.
        unsafe { self.in_data.as_ref() }.is_some_and(|queue| queue.starved)
    }

    fn back(&mut self, start: usize, len: usize) -> bool {
        // SAFETY: DOMAIN: the domain lives as long as the process.
        let domain = unsafe { &*self.domain };
        let backed = domain.back_pair(self.peer, start, len);
        if let Err(error) = &backed {
            let text = format!("sending to rank {}: {error}", self.peer);
            domain.page(domain.me).message.store(&text);
        }
        self.note_starved(backed.is_err());
        backed.is_ok()
    }

    fn note_starved(&mut self, starved: bool) {
        // SAFETY: OWN QUEUE: `connect` allocated the queue.
        unsafe { (*self.in_data).starved = starved };
    }

    /// Backs more slots of a ring in its first lap: the first call backs one page, the second all others.
    pub(super) fn grow_ring(&mut self) -> bool {
        // SAFETY: OWN QUEUE: `connect` allocated the queue.
        match unsafe { (*self.in_data).head_pages } {
            1 => self.grow_head_to(2),
            _ => self.grow_head_to(HEAD_PAGES),
        }
    }

    /// Backs everything before the data area. Callers can go on without it, so a shortage is not recorded.
    pub(super) fn grow_head(&mut self) -> bool {
        let grown = self.grow_head_to(HEAD_PAGES);
        self.note_starved(false);
        grown
    }

    fn grow_head_to(&mut self, pages: u32) -> bool {
        // SAFETY: OWN QUEUE: `connect` allocated the queue.
        let queue = unsafe { &*self.in_data };
        let (have, said) = (queue.head_pages, queue.said);
        if have >= pages {
            return true;
        }
        if !self.back(have as usize * PAGE, (pages - have) as usize * PAGE) {
            return false;
        }
        // SAFETY: OWN QUEUE: no other reference to the queue lives now.
        unsafe { (*self.in_data).head_pages = pages };
        self.limit = match pages {
            HEAD_PAGES => said.wrapping_add(SLOTS),
            pages => slots_within(pages),
        };
        true
    }

    /// Backs memory for `messages` messages of `bytes` data bytes in all. The memory is optional, so no shortage is
    /// recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn grow_for(&mut self, messages: u32, bytes: u32) -> bool {
        if self.pair.is_null() {
            return false;
        }
        let slots = self.limit.wrapping_sub(self.tail);
        if slots < messages && !self.grow_head() {
            return false;
        }
        let used = self.data_tail.wrapping_sub(self.data_head);
        let room = self.data_size.saturating_sub(used);
        let grown = room >= bytes || self.grow_toward(used.saturating_add(bytes));
        self.note_starved(false);
        grown
    }

    /// Enlarges the data area; returns whether there is more room. Messages in it stay where they are.
    #[cold]
    #[inline(never)]
    pub(super) fn grow_data(&mut self, len: u32) -> bool {
        // An area of twice the message's length has room for the message at any offset.
        let needed = len.saturating_mul(2);
        let suffices = self.data_size >= needed;
        let grown = self.grow_toward(needed);
        // If the area is long enough but full, the message can wait until it is emptied, so lack of memory is no
        // shortage. In an area that is too small, the message would wait forever.
        if suffices && !grown {
            self.note_starved(false);
        }
        grown
    }

    /// Prepares for a stream: a message of many parts, `len` bytes long. The area gets `2 * len` bytes, within this
    /// process's share, so that the message need not wait until the previous message has been taken.
    ///
    /// In an area of `len` bytes, the first part of an announced message would leave no space for its rest.
    #[cold]
    #[inline(never)]
    pub fn prepare_stream(&mut self, len: u64) {
        let twice = len.saturating_mul(2).min(DATA_BYTES.into()) as u32;
        let wanted = twice.next_power_of_two().clamp(DATA_BYTES_STREAM, self.share());
        let old = self.data_size;
        if old >= wanted {
            self.make_more();
        } else if self.grow_data_to(wanted) {
            self.populate(old, self.data_size - old);
        } else {
            self.note_starved(false);
        }
    }

    /// Enlarges the data area: a small one at once, to `needed` bytes; a large one in proportion to bytes sent.
    fn grow_toward(&mut self, needed: u32) -> bool {
        match self.data_size < DATA_BYTES_STREAM {
            true => self.grow_data_to(needed),
            false => self.make_more(),
        }
    }

    /// Backs part of the data area's next step; returns whether the area has grown. A shortage is not recorded.
    ///
    /// A large area is fastest: when its lines are reused, they have left the reader's caches. New memory costs more
    /// than a copy, so it is backed in small parts, in proportion to bytes sent. All areas of a process should stay in
    /// its cache together, so they share the best size of one area.
    fn make_more(&mut self) -> bool {
        // SAFETY: OWN QUEUE: `connect` allocated the queue.
        let queue = unsafe { &*self.in_data };
        let made = self.data_size + queue.made;
        let next = next_size(self.data_size);
        if next > self.share() {
            self.note_starved(false);
            return false;
        }
        let price = data_price(self.data_size);
        let pages = self.data_tail.wrapping_sub(queue.earned_at) / (PAGE as u32 * price);
        let len = (pages * PAGE as u32).min(next - made);
        if len < DATA_PART.min(next - made) || !self.back(HEAD_BYTES + made as usize, len as usize)
        {
            self.note_starved(false);
            return false;
        }
        self.populate(made, len);
        // SAFETY: OWN QUEUE: no other reference to the queue lives now.
        let queue = unsafe { &mut *self.in_data };
        queue.made += len;
        queue.earned_at = queue.earned_at.wrapping_add(len * price);
        made + len == next && self.grow_data_to(next)
    }

    /// Largest area of a stream, in bytes, so that the areas of all peers fit a cache together.
    pub fn share(&self) -> u32 {
        let streams = self.streams().load(Ordering::Relaxed).max(1);
        (DATA_BYTES / streams).max(DATA_BYTES_STREAM)
    }

    fn streams(&self) -> &'static AtomicU32 {
        // SAFETY: DOMAIN: the domain lives as long as the process.
        unsafe { (*self.domain).streams }
    }

    pub(super) fn end_stream(&self) {
        if self.data_size >= DATA_BYTES_STREAM {
            self.streams().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Maps backed pages of the data area by one system call, instead of a page fault for each.
    fn populate(&mut self, offset: u32, len: u32) {
        // SAFETY: DOMAIN: the domain lives as long as the process.
        let ahead = unsafe { (*self.domain).bytes_ahead(self.peer) };
        let advice = match HEAD_BYTES + (offset + len) as usize <= ahead {
            // A read fault on a zeroed page maps its neighbours too.
            true => libc::MADV_POPULATE_READ,
            false => libc::MADV_POPULATE_WRITE,
        };
        // SAFETY: the range is inside the mapped data area; the kernel fills the page table and changes nothing else.
        unsafe {
            let start = (*self.pair).data.get().cast::<u8>().add(offset as usize);
            libc::madvise(start.cast(), len as usize, advice);
        }
    }

    fn grow_data_to(&mut self, needed: u32) -> bool {
        let old = self.data_size;
        if old == DATA_BYTES || self.pair.is_null() {
            return false;
        }
        let mut size = next_size(old);
        while size < needed.min(DATA_BYTES) {
            size = next_size(size);
        }
        // SAFETY: OWN QUEUE: `connect` allocated the queue.
        let have = old + unsafe { (*self.in_data).made };
        if have < size && !self.back(HEAD_BYTES + have as usize, (size - have) as usize) {
            return false;
        }
        // SAFETY: OWN QUEUE: no other reference to the queue lives now.
        unsafe {
            (*self.in_data).make_entries();
            (*self.in_data).made = have.saturating_sub(size);
        }
        if old != 0 {
            self.rename_positions();
        }
        self.data_size = size;
        if old < DATA_BYTES_STREAM && size >= DATA_BYTES_STREAM {
            self.streams().fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: OWN QUEUE: the region is mapped, and no reference to the queue lives now.
        unsafe {
            (*self.pair).control.data_size.store(size, Ordering::Relaxed);
            (*self.in_data).earned_at = self.data_tail;
            // No message ends at this position, because messages are whole lines.
            (*self.in_data).back_end = self.data_tail.wrapping_sub(1);
        }
        true
    }

    /// Renumbers the data positions, so that they give the same offsets in the larger area as in the old one. If
    /// messages wrap around the end of the old area, room before the wrap is freed only with the last message.
    fn rename_positions(&mut self) {
        let size = self.data_size;
        let (used, offset) =
            (self.data_tail.wrapping_sub(self.data_head), self.data_head & (size - 1));
        let round = offset + used > size;
        let start = self.data_head.wrapping_sub(offset);
        // SAFETY: OWN QUEUE: `connect` allocated the queue, and `make_entries` its entries.
        let (queue, entries) = unsafe { (&mut *self.in_data, &mut *(*self.in_data).entries) };
        queue.disordered |= round;
        let mut index = queue.first;
        while index != queue.next {
            let end = &mut entries[(index & SLOT_MASK) as usize].1;
            *end = end.wrapping_sub(start);
            if round {
                *end = end.saturating_sub(size);
            }
            index = index.wrapping_add(1);
            if round && index == queue.next {
                *end = size;
            }
        }
        (self.data_head, self.data_tail) = if round { (0, size) } else { (offset, offset + used) };
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::conformance::{Rig, SendForm, SentMessage, Start, look, post};
    use crate::contract::Endpoint;
    use crate::shm::ShmEndpoint;
    use crate::shm::testing::ShmPair;

    #[test]
    fn data_area__grows_when_it_is_full_without_touching_what_lies_there() {
        for start in [0, 64, 20_000, u32::MAX - 30_000] {
            for len in [100, 6000, DATA_MESSAGE_MAX] {
                let mut pair = ShmPair::new(Start { messages: 0, bytes: start });
                assert!(pair.tx.tx.data_size <= DATA_BYTES_FIRST);
                let (mut sent, mut taken) = (0, 0);
                for _ in 0..2 * (DATA_PRICE_MAX * DATA_BYTES) as usize / len {
                    while post(&mut pair, SendForm::Bcopy, &SentMessage::numbered(sent, len)) {
                        sent += 1;
                    }
                    assert!(
                        look(&mut pair) == Some(SentMessage::numbered(taken, len)),
                        "message {taken} of {len}"
                    );
                    pair.rx().take();
                    pair.return_credits();
                    taken += 1;
                }
                if len == 100 {
                    // The ring is full before the data area is.
                    assert!(sent - taken + 1 >= SLOTS - 1);
                    continue;
                }
                assert_eq!(pair.tx.tx.data_size, DATA_BYTES);
                // The area is full, except the bytes skipped at its end and the message just taken.
                assert!(
                    (sent - taken + 2) as usize * len >= DATA_BYTES as usize,
                    "{} of {len}",
                    sent - taken
                );
            }
        }
    }

    /// Returns an endpoint between two ranks that other tests do not use, so that this test backs all their memory.
    fn fresh_pair() -> (ShmEndpoint, impl Fn() -> u64) {
        use fastpath_job::Job;
        let jobs: &'static [Job] = Job::in_process(2).expect("memory for two ranks").leak();
        let domain: &_ = Box::leak(Box::new(crate::shm::Domain::new(&jobs[0])));
        let used = || jobs[0].segment().used_bytes().expect("the kernel says so");
        let before = used();
        let mut tx = ShmEndpoint::new(domain, 1);
        tx.connect(RingTuning::default()).expect("memory for a page");
        (tx, move || used() - before)
    }

    #[test]
    fn pair__has_memory_for_what_it_sends_alone() {
        let (mut tx, used) = fresh_pair();
        let header = crate::contract::Header::new(1, 2, 3);
        let mut send = |len: usize| {
            // SAFETY: `to` has room for `len` bytes.
            let posted = tx.am_bcopy(header, len, |to| unsafe { to.write_bytes(7, len) });
            matches!(posted, crate::contract::Post::Done)
        };
        let page = PAGE as u64;
        assert!(send(8) && used() == page);
        assert!(send(100) && used() == 2 * page);
        assert!((2..slots_within(1)).all(|_| send(0)) && used() == 2 * page);
        assert!(send(0) && used() == 3 * page, "the next page of slots");
        assert!((slots_within(1) + 1..SLOTS).all(|_| send(0)));
        assert_eq!(used(), (HEAD_PAGES as u64 + 1) * page);
        assert!(!send(0), "the ring is full");
    }

    #[test]
    fn data_area__grows_in_steps_that_the_longest_message_skips() {
        let (mut tx, used) = fresh_pair();
        let header = crate::contract::Header::new(1, 2, 3);
        // SAFETY: `to` has room for `len` bytes.
        let mut send =
            |len: usize| tx.am_bcopy(header, len, |to| unsafe { to.write_bytes(7, len) });
        let _ = send(DATA_MESSAGE_MAX);
        assert_eq!(used(), PAGE as u64 + 64 * 1024);
    }

    #[test]
    fn data_areas__of_one_process_share_the_room_of_a_cache() {
        use fastpath_job::Job;
        let jobs: &'static [Job] = Job::in_process(7).expect("memory for seven ranks").leak();
        let domain: &_ = Box::leak(Box::new(crate::shm::Domain::new(&jobs[0])));
        let mut ends: Vec<_> = (1..7).map(|peer| ShmEndpoint::new(domain, peer)).collect();
        for end in &mut ends {
            end.connect(RingTuning::default()).expect("memory for a page");
            end.tx.prepare_stream(1);
            assert_eq!(end.tx.data_size, DATA_BYTES_STREAM);
            // Set the state that a ring has after 64 MiB were sent and taken.
            (end.tx.data_head, end.tx.data_tail) = (64 << 20, 64 << 20);
        }
        for (streams, share) in [(6, DATA_BYTES / 8), (4, DATA_BYTES / 4), (1, DATA_BYTES)] {
            ends.truncate(streams);
            for _ in 0..4 {
                ends[0].tx.prepare_stream(1);
                let tx = &mut ends[0].tx;
                tx.data_tail = tx.data_tail.wrapping_add(64 << 20);
                tx.data_head = tx.data_tail;
            }
            assert_eq!(ends[0].tx.data_size, share, "{streams} streams");
        }
    }

    #[test]
    fn room__for_a_message_in_parts_is_made() {
        let (mut tx, used) = fresh_pair();
        assert!(tx.tx.has_room_for(8, 4096));
        assert_eq!(used(), PAGE as u64 + 64 * 1024);
        assert!(tx.tx.has_room_for(slots_within(1) + 1, 64));
        assert_eq!(used(), HEAD_BYTES as u64 + 64 * 1024);
        assert!(!tx.tx.has_room_for(SLOTS + 1, 64) && !tx.tx.is_starved());
    }
}
