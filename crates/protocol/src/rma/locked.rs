//! Changes that the owner makes under a lock word of its own, where that word is reached by messages alone: one
//! question in place of four, which take the lock, read, write and give the lock back. An adapter could read and write,
//! but the word needs the owner in any case.
//!
//! The owner does not wait for the word: where it is taken, the answer says that nothing was changed, and the origin
//! goes the longer way.
#![allow(unsafe_code)]

use super::ask::{ASK_MOST, Ask, Asking};
use super::error::RmaError;
use super::message::{LockedChange, RegionOffset};
use super::queue::{Operation, OperationKind};
use super::resolve::{AccessPath, RemoteKey};
use crate::waiting::try_briefly;
use crate::wire::{self, CONTROL_MAX};
use crate::worker::{EAGER_LIMIT, Worker};
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_transport::Header;

/// Bytes of an answer before what was there: a word of this host, 0 if nothing was changed.
pub const ANSWER_HEAD: usize = 8;
/// Most bytes of an answer.
pub const ANSWER_MOST: usize = CONTROL_MAX;

/// A word at its owner: 0, or 1 while somebody has it.
pub struct HeldWord<'a> {
    /// Its region.
    pub key: &'a RemoteKey,
    /// Its offset there, a multiple of 8.
    pub offset: u64,
}

/// What a change is asked for with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Locked {
    pub lock: RegionOffset,
    pub change: u64,
    /// Bytes that are changed.
    pub len: usize,
    /// Bytes that go with it.
    pub given: (*const u8, usize),
}

impl Locked {
    /// In the header, for an answer of so many bytes.
    pub fn sizes(&self, answer: usize) -> u32 {
        self.len as u32 | (answer as u32) << 16
    }
}

/// Takes the word, if that is possible soon.
fn take(word: &AtomicU64) -> bool {
    // ORDERING: acquire: what the last one has changed is seen; partner: the release in `make_locked`, and that of the
    // ranks that reach the word by load and store.
    let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
    try_briefly(|| word.compare_exchange(0, 1, taken, not).is_ok())
}

impl Worker {
    /// Asks the owner to make a change under a lock word: whether it was asked. A flush then brings the answer: 8 bytes
    /// that are 0 if the word was taken, and so nothing was changed, and the bytes that are taken.
    ///
    /// # Errors
    /// As [`Worker::put_nbi`]; the flush's is `Withdrawn` also where the owner does not understand the change.
    ///
    /// # Safety
    /// What is given is readable, and `answer` writable for 8 bytes more than are taken, until the flush.
    pub unsafe fn change_nbi(
        &mut self, key: &mut RemoteKey, lock: &HeldWord, asking: &Asking, answer: *mut u8,
    ) -> Result<bool, RmaError> {
        self.admit(key, asking.offset, asking.len)?;
        let Ask::Change(change) = asking.ask else {
            return Ok(false);
        };
        let bytes = ANSWER_HEAD + asking.taken.1;
        let message = size_of::<LockedChange>() + asking.given.1;
        let lane = &self.endpoints[key.peer].lane;
        let most = lane.capabilities().map_or(0, |c| c.bcopy).min(EAGER_LIMIT);
        let fits = (1..=ASK_MOST).contains(&asking.len)
            && asking.given.1 <= ASK_MOST
            && bytes <= ANSWER_MOST
            && message <= most;
        let helps =
            matches!(key.way, AccessPath::Messages | AccessPath::Adapter) && key.peer != self.rank;
        if !helps || !fits {
            return Ok(false);
        }
        let asked = Locked {
            lock: RegionOffset { region: lock.key.described.region, offset: lock.offset },
            change,
            len: asking.len,
            given: asking.given,
        };
        let (kind, generation) = (OperationKind::Change(asked), self.rma.generation);
        let mut operation = Operation::new(key, kind, asking.offset, answer, bytes, generation);
        operation.way = AccessPath::Messages;
        self.start_operation(key.peer, operation).map(|_| true)
    }

    /// A peer asks for a change.
    pub(super) fn serve_change(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) -> Option<()> {
        // SAFETY: `data` holds `len` bytes.
        let asked = unsafe { wire::read::<LockedChange>(data, len) }?;
        let given = len - size_of::<LockedChange>();
        let (span, bytes) = (header.imm as usize & 0xffff, header.imm as usize >> 16);
        if given > ASK_MOST || span > ASK_MOST || !(ANSWER_HEAD..=ANSWER_MOST).contains(&bytes) {
            return None;
        }
        let mut operand = [0; ASK_MOST];
        // SAFETY: the arrival has as many bytes behind its head, and the array has room.
        unsafe { copy(operand.as_mut_ptr(), data.add(size_of::<LockedChange>()), given) };
        let made = self.make_locked(&asked, span, &mut operand);
        self.rma.counters.served += 1;
        let mut answer = [0; ANSWER_MOST];
        answer[..ANSWER_HEAD].copy_from_slice(&u64::from(made == Some(true)).to_ne_bytes());
        answer[ANSWER_HEAD..bytes].copy_from_slice(&operand[..bytes - ANSWER_HEAD]);
        let reply = Header::new(wire::REMOTE_DATA, u32::from(made.is_none()), header.key);
        let bytes = if made.is_some() { bytes } else { 0 };
        self.send_control(peer, reply, &answer[..bytes]);
        Some(())
    }

    /// Makes a change if its word is free; none where there is no such word, memory or change.
    fn make_locked(
        &self, asked: &LockedChange, span: usize, operand: &mut [u8; ASK_MOST],
    ) -> Option<bool> {
        let regions = &self.rma.regions;
        let word = regions.locate(asked.lock.region, asked.lock.offset, 8)?;
        let place = asked.place;
        let memory = regions.locate_to_write(place.region, place.offset, span as u64)?;
        if !word.addr().is_multiple_of(8) {
            return None;
        }
        // SAFETY: inside exposed memory, aligned: it is there. A peer that names a word of the program's, or one that
        // it has changed, changes what it may write anyway.
        let word = unsafe { &*word.cast_const().cast::<AtomicU64>() };
        if !take(word) {
            return Some(false);
        }
        // SAFETY: the operand has as many bytes as a change may have, and the memory is exposed with `span` bytes.
        let made = unsafe { (self.rma.change)(asked.change, operand.as_mut_ptr(), memory, span) };
        // ORDERING: release: partner: the acquire in `take`.
        word.store(0, Ordering::Release);
        made.then_some(true)
    }
}
