//! Small operations on memory that only the kernel reaches: puts, gets, and changes of the layer above. The owner
//! performs them while it is inside MPI.
//!
//! A message and a flag in return take a fraction of the time of a system call. So the origin writes its request into a
//! slot of shared memory, sends the owner a message without payload, and waits briefly. An owner that has not begun by
//! then is probably computing. The origin takes the slot back, and the kernel copies. So no operation depends on the
//! owner's progress. After a failed wait the next operations do not wait; each further failure doubles their number.
//!
//! | state of a slot | next state, and its writer |
//! |---|---|
//! | `FREE` | `HELD`, by any origin |
//! | `HELD` | `POSTED` or `FREE`, by the origin that has it |
//! | `POSTED` | `SERVING`, by the owner; `HELD`, by the origin that takes it back |
//! | `SERVING` | `DONE` or `REFUSED`, by the owner |
//! | `DONE`, `REFUSED` | `FREE`, by the origin |
//!
//! The word of the state also counts how often the slot was held. The message has that number, so that a late message
//! has no effect, and operations are performed in the order of their requests.
#![allow(unsafe_code)]

use crate::rma::ask::{
    ASK_MOST, Ask, AskSlot, DONE, NAMED, POSTED, REFUSED, SERVING, SLOT_BYTES, SLOT_HEAD,
    SLOTS_BYTES, STATE, Slots, TargetRequest, use_of,
};
use crate::rma::blocks::{self, WORD};
use crate::rma::error::RmaError::{self, PeerGone, Withdrawn};
use crate::rma::key::PackedKey;
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::wire;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::copy::copy;
use fastpath_base::sync::Ordering;
use fastpath_segment::{STATE_AWAKE, SegmentError};
use fastpath_transport::{Header, Post, RemoteBlock};

const LINE: u32 = 64;
/// Most bytes of a put or get. For more, one copy by the kernel is faster than two copies.
const MOVE_MOST: usize = 4096;
/// Most bytes of a change. More than [`MOVE_MOST`], because the kernel would have to copy the bytes of a change twice.
const CHANGE_MOST: usize = 1 << 17;
const AHEAD: usize = 2;
/// Flags in [`AskSlot`]'s `asked`, beside the number of bytes.
const PUT: u32 = 1 << 31;
const CHANGE: u32 = 1 << 30;
/// The slot has a word for each block ([`blocks`]), then the bytes to write. `change` is the number of blocks.
const BLOCKS: u32 = 1 << 29;
const KINDS: u32 = PUT | CHANGE | BLOCKS;

/// Largest block, in bytes, that the owner writes. To copy a longer one twice costs more than a system call.
const ASKED_MAX: u64 = 1024;

/// Nanoseconds, for each block, that an origin waits for an owner that sleeps inside MPI, and the largest wait. The
/// kernel takes 300 to 1,000 ns to write a short block.
const BLOCK_NS: u64 = 250;
const WAKE_MAX_NS: u64 = 200_000;

/// Nanoseconds that an origin waits for the owner to begin: less than a system call takes.
const WAIT_NS: u64 = 1_000;
/// Polls of the slot per poll of messages. They make a round; the clock is read every [`ROUNDS`] rounds.
const POLLS: u32 = 8;
const ROUNDS: u32 = 8;

impl Worker {
    /// Returns the key of the slots in which peers request small operations of this process. The first call creates the
    /// slots; all windows share them, and they are never freed.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn expose_slots(&mut self) -> Result<PackedKey, SegmentError> {
        if let Some(key) = self.rma.slots {
            return Ok(key);
        }
        let memory = self.allocate_memory(SLOTS_BYTES, align_of::<AskSlot>())?.as_ptr();
        // SAFETY: the memory was just allocated, and is never freed. Only the head of a slot must be zero.
        let exposed = unsafe {
            for slot in (0..SLOTS_BYTES).step_by(SLOT_BYTES) {
                memory.add(slot).write_bytes(0, SLOT_HEAD);
            }
            self.expose_memory(memory, SLOTS_BYTES)
        };
        self.rma.slots = Some(exposed.key);
        Ok(exposed.key)
    }

    /// Returns the slots at `offset` of their owner's region. `None` if they are not mapped or not entirely inside.
    pub fn find_slots(&self, key: &RemoteKey, offset: u32) -> Option<Slots> {
        let first = key.base.wrapping_add(offset as usize);
        let fits = key.way == AccessPath::LoadStore
            && key.peer != self.rank
            && key.holds(offset.into(), SLOTS_BYTES)
            && offset.is_multiple_of(LINE)
            && offset / LINE + (SLOTS_BYTES as u32) / LINE <= u32::MAX / (NAMED + 1)
            && first.addr().is_multiple_of(align_of::<AskSlot>());
        fits.then_some(Slots {
            first: first.cast_const().cast(),
            region: key.described.region,
            offset,
        })
    }

    /// Lets the owner perform a small operation, or the first part of one. Returns the number of bytes done; the others
    /// are unchanged. Returns 0 if no request was made, or the owner did not begin in time.
    ///
    /// # Errors
    /// `OutOfBounds`; `Withdrawn` if the owner does not expose the bytes or does not know the change; `PeerGone`.
    ///
    /// # Safety
    /// The given bytes are readable, and the destination of the answer is writable. In an operation of more than
    /// [`ASK_MOST`] bytes, the given bytes and the answer are each empty or as long as the operation. The slots are
    /// mapped: the key with which they were found still exists.
    pub unsafe fn ask_owner(
        &mut self, key: &mut RemoteKey, slots: &Slots, asking: &TargetRequest,
    ) -> Result<usize, RmaError> {
        self.admit(key, asking.offset, asking.len)?;
        let most = match asking.ask {
            Ask::Change(_) => CHANGE_MOST,
            Ask::Put | Ask::Get => MOVE_MOST,
        };
        let fits = key.way == AccessPath::Kernel && (1..=most).contains(&asking.len);
        let writes = asking.ask != Ask::Get;
        if !fits || (writes && !key.asked.is_writable) || !self.may_ask(key, slots) {
            return Ok(0);
        }
        let pieces = asking.len.div_ceil(ASK_MOST);
        let (mut posted, mut done, mut begun) = (0, 0, true);
        while done < pieces {
            while begun && posted < pieces.min(done + AHEAD) {
                // SAFETY: the contract of `post_piece` on memory and slots is this function's.
                if !unsafe { self.post_piece(key, slots, asking, posted) } {
                    break;
                }
                posted += 1;
            }
            if posted == done {
                break;
            }
            let slot = slots.slot(self.rank, done);
            if begun && !self.await_owner(slot, key.peer, WAIT_NS) {
                // Take back the last piece first, because the owner begins with the first.
                begun = false;
                while posted > done && slots.slot(self.rank, posted - 1).take_back() {
                    posted -= 1;
                }
                continue;
            }
            // SAFETY: the contract of `end_piece` on memory and slots is this function's.
            if !unsafe { self.end_piece(slot, key.peer, asking, done)? } {
                for later in done + 1..posted {
                    let slot = slots.slot(self.rank, later);
                    if !slot.take_back() {
                        self.await_end(slot, key.peer)?;
                        slot.leave();
                    }
                }
                return Err(Withdrawn);
            }
            done += 1;
        }
        // If no piece could be posted, nothing was learnt about the owner.
        if done != 0 || !begun {
            key.asked.note(begun);
        }
        Ok((done * ASK_MOST).min(asking.len))
    }

    /// Lets the owner write blocks of bytes that follow each other at `from`. Returns the number of blocks written.
    ///
    /// # Errors
    /// `Withdrawn` if the owner does not expose a block; `PeerGone`.
    ///
    /// # Safety
    /// `from` is readable for the bytes of all blocks. The slots are mapped, as for [`Worker::ask_owner`].
    pub(super) unsafe fn ask_to_put_blocks(
        &mut self, key: &mut RemoteKey, slots: &Slots, mut from: *const u8, blocks: &[RemoteBlock],
    ) -> Result<usize, RmaError> {
        let fits = blocks.iter().all(|block| blocks::fits_word(block) && block.len <= ASKED_MAX);
        if !fits || !key.asked.is_writable || self.is_crowded() || self.connect(key.peer).is_err() {
            return Ok(0);
        }
        let awake = self.owner_is_awake(key.peer);
        // A sleeping owner needs a processor: without a free one, its wake-up costs more than the system call.
        if !key.asked.is_due() || (!awake && !self.has_free_processor()) {
            return Ok(0);
        }
        let mut wait_ns = match awake {
            true => WAIT_NS,
            false => (blocks.len() as u64 * BLOCK_NS).min(WAKE_MAX_NS),
        };
        let mut done = 0;
        while done < blocks.len() {
            let slot = slots.slot(self.rank, 0);
            let Some(held) = slot.hold() else {
                break;
            };
            let (count, words, bytes) = blocks::fit(&blocks[done..], ASK_MOST);
            for (index, block) in blocks[done..done + count].iter().enumerate() {
                let word = slot.data().wrapping_add(index * WORD).cast::<u64>();
                // SAFETY: this process holds the slot, whose data has space for the words and bytes.
                unsafe { word.write_unaligned(blocks::pack_word(block)) };
            }
            // SAFETY: as above. `from` is readable for the bytes of all blocks.
            unsafe { copy(slot.data().wrapping_add(words), from, bytes) };
            slot.asked.store((words + bytes) as u32 | BLOCKS, Ordering::Relaxed);
            slot.change.store(count as u64, Ordering::Relaxed);
            slot.region.store(key.described.region, Ordering::Relaxed);
            slot.post(held);
            let index = slots.index(self.rank, 0);
            let told = self.tell_owner(key.peer, slots, index, use_of(held));
            if !(told && self.await_owner(slot, key.peer, wait_ns)) && slot.take_back() {
                if told {
                    key.asked.note(false);
                }
                return Ok(done);
            }
            wait_ns = WAIT_NS;
            let written = self.await_end(slot, key.peer)?;
            slot.leave();
            if !written {
                return Err(Withdrawn);
            }
            (done, from) = (done + count, from.wrapping_add(bytes));
        }
        if done != 0 {
            key.asked.note(true);
        }
        Ok(done)
    }

    fn owner_is_awake(&self, peer: u32) -> bool {
        let page = self.job.rank_page(peer as usize);
        page.is_some_and(|page| page.state.load(Ordering::Relaxed) == STATE_AWAKE)
    }

    fn may_ask(&mut self, key: &mut RemoteKey, slots: &Slots) -> bool {
        let peer = key.peer;
        let awake = self.owner_is_awake(peer);
        if (awake && !key.asked.is_due()) || self.is_crowded() || self.connect(peer).is_err() {
            return false;
        }
        if !awake && key.asked.note_asleep() {
            // This message only wakes the owner: it has an old use count, so the owner finds no request.
            let old = slots.slot(0, 0).word.load(Ordering::Relaxed);
            _ = self.tell_owner(peer, slots, 0, use_of(old) ^ (NAMED / 2 + 1));
        }
        awake
    }

    /// Requests a piece of an operation. Returns false if its slot is in use, or there is no space for the message.
    ///
    /// # Safety
    /// See [`Worker::ask_owner`].
    unsafe fn post_piece(
        &mut self, key: &RemoteKey, slots: &Slots, asking: &TargetRequest, piece: usize,
    ) -> bool {
        let slot = slots.slot(self.rank, piece);
        let Some(held) = slot.hold() else {
            return false;
        };
        let (kind, change) = match asking.ask {
            Ask::Put => (PUT, 0),
            Ask::Get => (0, 0),
            Ask::Change(change) => (CHANGE, change),
        };
        let start = piece * ASK_MOST;
        let len = (asking.len - start).min(ASK_MOST);
        slot.asked.store(len as u32 | kind, Ordering::Relaxed);
        slot.change.store(change, Ordering::Relaxed);
        let region = key.described.region;
        slot.region.store(region, Ordering::Relaxed);
        slot.offset.store(asking.offset + start as u64, Ordering::Relaxed);
        let given = (asking.given.1 - start.min(asking.given.1)).min(ASK_MOST);
        if given != 0 {
            let from = asking.given.0.wrapping_add(start);
            // SAFETY: this process holds the slot, and the given bytes are readable, by this function's contract.
            unsafe { copy(slot.data(), from, given) };
        }
        slot.post(held);
        let index = slots.index(self.rank, piece);
        self.tell_owner(key.peer, slots, index, use_of(held)) || !slot.take_back()
    }

    /// Ends a piece that the owner has begun. Returns whether the owner has performed it.
    ///
    /// # Safety
    /// See [`Worker::ask_owner`].
    unsafe fn end_piece(
        &mut self, slot: &AskSlot, peer: u32, asking: &TargetRequest, piece: usize,
    ) -> Result<bool, RmaError> {
        let done = self.await_end(slot, peer)?;
        let start = piece * ASK_MOST;
        let taken = (asking.taken.1 - start.min(asking.taken.1)).min(ASK_MOST);
        if done && taken != 0 {
            // SAFETY: the destination is writable, by this function's contract, and the slot has as many bytes.
            unsafe { copy(asking.taken.0.wrapping_add(start), slot.data(), taken) };
        }
        slot.leave();
        Ok(done)
    }

    /// Waits until the owner has copied the few bytes of a piece. Returns whether the owner performed the request. If
    /// the owner has begun only a later piece, the owner takes this piece next.
    fn await_end(&mut self, slot: &AskSlot, peer: u32) -> Result<bool, RmaError> {
        loop {
            // ORDERING: acquire: the bytes of the answer are visible; partner: the release in `AskSlot::end`.
            match slot.word.load(Ordering::Acquire) & STATE {
                POSTED | SERVING if self.peer_has_left(peer) => return Err(PeerGone),
                POSTED => _ = self.progress_peer(peer),
                SERVING => {}
                state => return Ok(state == DONE),
            }
        }
    }

    /// Sends the owner the message for a slot, and wakes it if it sleeps. Returns false if there is no space.
    fn tell_owner(&mut self, peer: u32, slots: &Slots, index: usize, named: u32) -> bool {
        let line = (slots.offset + (index * SLOT_BYTES) as u32) / LINE;
        let header = Header::new(wire::REMOTE_ASK, line * (NAMED + 1) + named, slots.region);
        let post = self.endpoints[peer].post_signal(header);
        !matches!(post, Post::NoResource | Post::PeerGone)
    }

    /// Waits for at most `wait_ns` nanoseconds, and handles arrivals meanwhile. Returns whether the owner has begun.
    fn await_owner(&mut self, slot: &AskSlot, peer: u32, wait_ns: u64) -> bool {
        let mut until = None;
        loop {
            for _ in 0..ROUNDS {
                for _ in 0..POLLS {
                    if slot.word.load(Ordering::Relaxed) & STATE != POSTED {
                        return true;
                    }
                }
                self.progress_peer(peer);
            }
            let now = clock::now_ns();
            if *until.get_or_insert(now + wait_ns) <= now {
                return false;
            }
            self.progress();
        }
    }

    pub(super) fn serve_ask(&mut self, header: Header) -> Option<()> {
        let regions = &self.rma.regions;
        let (line, named) = (header.imm / (NAMED + 1), header.imm & NAMED);
        let offset = u64::from(line) * u64::from(LINE);
        let slots = regions.locate(header.key, offset, SLOT_BYTES as u64);
        let Some(at) = slots.and_then(|bytes| bytes.address()) else {
            return Some(()); // the slots were freed meanwhile
        };
        if !at.addr().is_multiple_of(align_of::<AskSlot>()) {
            return None;
        }
        // SAFETY: aligned and inside exposed memory; every field is atomic or raw bytes, which others may write.
        let slot = unsafe { &*at.cast_const().cast::<AskSlot>() };
        let Some(serving) = slot.begin(named) else {
            return Some(());
        };
        // Read each field once, because the peer may still write the fields.
        let asked = slot.asked.load(Ordering::Relaxed);
        let len = (asked & !KINDS) as usize;
        let change = slot.change.load(Ordering::Relaxed);
        let place = (slot.region.load(Ordering::Relaxed), slot.offset.load(Ordering::Relaxed));
        if asked & KINDS == BLOCKS {
            // SAFETY: the slot's data has `ASK_MOST` bytes.
            let written = len <= ASK_MOST
                && unsafe { self.write_blocks(place.0, change as usize, slot.data(), len, 0) };
            self.rma.counters.served += 1;
            slot.end(serving, if written { DONE } else { REFUSED });
            return Some(());
        }
        let found = match len <= ASK_MOST {
            true if asked & KINDS == 0 => regions.locate(place.0, place.1, len as u64),
            true => regions.locate_to_write(place.0, place.1, len as u64),
            false => None,
        };
        let data = slot.data();
        let done = found.is_some_and(|memory| {
            // SAFETY: `memory` is inside exposed memory, which its owner keeps mapped, and `data` is the slot's.
            unsafe {
                match asked & KINDS {
                    0 => memory.read(data, len),
                    PUT => memory.write(data, len),
                    _ => memory.change(self.rma.change, change, data, len),
                }
            }
        });
        self.rma.counters.served += 1;
        slot.end(serving, if done { DONE } else { REFUSED });
        Some(())
    }
}
