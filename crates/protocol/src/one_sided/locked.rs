//! Changes that the owner makes under its own lock word, for ranks that reach the word only by messages. One request
//! replaces the four requests lock, read, write and unlock. An adapter could read and write the memory, but not change
//! the lock word: only processors perform atomics.
//!
//! The owner does not wait for the word. If it is taken, nothing is changed, and the origin uses the four requests.
#![allow(unsafe_code)]

use crate::rma::ask::{ASK_MOST, Ask, TargetRequest};
use crate::rma::error::RmaError;
use crate::rma::locked::{ANSWER_HEAD, ANSWER_MOST, HeldWord, LockedOperation};
use crate::rma::message::{LockedChange, RegionOffset};
use crate::rma::queue::{OperationKind, RmaOperation};
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::waiting::try_briefly;
use crate::wire::{self, EAGER_LIMIT};
use crate::worker::Worker;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_transport::Header;

fn take(word: &AtomicU64) -> bool {
    // ORDERING: acquire: changes of the last holder are visible. Partner: the release in `make_locked`, and the release
    // of ranks that reach the word by load and store.
    let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
    try_briefly(|| word.compare_exchange(0, 1, taken, not).is_ok())
}

impl Worker {
    /// Requests that the owner make a change under a lock word. Returns whether the request was posted. A flush then
    /// brings the answer: a word of 8 bytes, then the previous bytes. The word is 0 if the lock was taken and nothing
    /// changed.
    ///
    /// # Errors
    /// See [`Worker::put_nbi`]. The flush returns `Withdrawn` also if the owner does not know the change.
    ///
    /// # Safety
    /// The given bytes are readable until the flush. `answer` is writable for 8 bytes more than the answer's length.
    pub unsafe fn change_nbi(
        &mut self, key: &mut RemoteKey, lock: &HeldWord, asking: &TargetRequest, answer: *mut u8,
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
        let asked = LockedOperation {
            lock: RegionOffset { region: lock.key.described.region, offset: lock.offset },
            change,
            len: asking.len,
            given: asking.given,
        };
        let (kind, generation) = (OperationKind::Change(asked), self.rma.generation);
        let mut operation = RmaOperation::new(key, kind, asking.offset, answer, bytes, generation);
        operation.way = AccessPath::Messages;
        self.start_operation(key.peer, operation).map(|_| true)
    }

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
        // SAFETY: the arrival has `given` bytes behind its head, and the array has space for them.
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

    /// Makes a change if the lock word is free. `None` if there is no such word, memory or change.
    fn make_locked(
        &self, asked: &LockedChange, span: usize, operand: &mut [u8; ASK_MOST],
    ) -> Option<bool> {
        let regions = &self.rma.regions;
        let word = regions.locate(asked.lock.region, asked.lock.offset, 8)?.address()?;
        let place = asked.place;
        let memory = regions.locate_to_write(place.region, place.offset, span as u64)?;
        if !word.addr().is_multiple_of(8) {
            return None;
        }
        // SAFETY: the word is aligned and inside exposed memory, and so mapped. A peer that names a wrong word, or has
        // changed it, changes only memory that it may write anyway.
        let word = unsafe { &*word.cast_const().cast::<AtomicU64>() };
        if !take(word) {
            return Some(false);
        }
        // SAFETY: `operand` has `ASK_MOST` bytes, and the exposed memory has `span` bytes.
        let made =
            unsafe { memory.change(self.rma.change, asked.change, operand.as_mut_ptr(), span) };
        // ORDERING: release: partner: the acquire in `take`.
        word.store(0, Ordering::Release);
        made.then_some(true)
    }
}
