//! Cache lines that the members of a communicator share for collective calls, as mapped into one process.
//!
//! The memory of a member has its progress, then lines, then areas. Step s of call n uses line s of set n modulo
//! [`LINE_SETS`], or area n modulo [`AREAS`] from s times [`STEP_AREA`] on. Both start with a header: the number of the
//! call and the bytes of the data, which follows. Only the owner writes.
//!
//! The number of a call has two parts: the number of the collective call on its communicator and, in the [`PART_BITS`]
//! low bits, the number of the part. A long collective call has several parts. All members count each collective call,
//! so the numbers agree even after one member has refused a call or has used messages. The n of the layout is the sum
//! of both.
//!
//! Pages of new memory are zero and take memory only when they are used, so nothing clears them.
#![allow(unsafe_code)]

use super::shared_buffers::LocalRegion;
use crate::coll_choice::line_plan::{LinePlan, MAX_ROUNDS, Readers, STEP_BYTES, TREE_STEPS};
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_protocol::rma::RemoteKey;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

/// Maximum bytes of data in the line of a header.
pub(crate) const LINE_BYTES: usize = 56;
const HEADER: usize = 8;
const LINE: usize = 64;
const LINE_SETS: u64 = 16;
const AREAS: u64 = 3;
const STEP_AREA: usize = STEP_BYTES + HEADER;
const AREA: usize = MAX_ROUNDS * STEP_AREA;
const LINES_AT: usize = LINE;
const AREAS_AT: usize = LINES_AT + LINE_SETS as usize * MAX_ROUNDS * LINE;
/// Bytes of the lines and areas of a member.
pub(crate) const BYTES: usize = AREAS_AT + AREAS as usize * AREA;
/// Number of persistent calls of a communicator that have lines.
pub(crate) const PERSISTENT_CALLS: usize = 8;
/// Number of line sets of a persistent call. They share a page with its progress.
const PERSISTENT_SETS: u64 = 4;
const PAGE: usize = 4096;
const PERSISTENT_AT: usize = (2 * BYTES).next_multiple_of(PAGE);
/// Bytes of the lines of a persistent call, which uses only the first area.
const PERSISTENT_BYTES: usize = (AREAS_AT + AREA).next_multiple_of(PAGE);
/// Bytes of memory for each member: lines of blocking calls, of nonblocking calls, and of persistent calls.
pub(crate) const MEMBER_BYTES: usize = PERSISTENT_AT + PERSISTENT_CALLS * PERSISTENT_BYTES;
/// Number of low bits of a header that hold the bytes. The number of the call is above them.
const LENGTH_BITS: u32 = 11;
/// Number of low bits of a call's number that count the parts of one collective call.
const PART_BITS: u32 = 20;
/// Largest number of a part.
const LAST_PART: u64 = (1 << PART_BITS) - 1;
/// Number of low bits of the part that a header has. Parts that use the same lines are fewer than 2^8 apart.
const HEADER_PART_BITS: u32 = 8;

const _: () = assert!(BYTES <= 64 << 10 && STEP_BYTES < 1 << LENGTH_BITS);
const _: () = assert!(LINES_AT + PERSISTENT_SETS as usize * MAX_ROUNDS * LINE <= PAGE);

/// Last use of a line, or of a step's part of an area: the call, and the readers.
type LastUse = Cell<Option<(u64, Readers)>>;

/// Lines of all members of a communicator, mapped into this process.
pub struct SharedLines {
    firsts: Box<[*mut u8]>,
    pub(crate) plan: Rc<LinePlan>,
    /// Number of the last call that this member has begun.
    call: Cell<u64>,
    /// Last call that each member is known to have ended.
    ended: Box<[Cell<u64>]>,
    /// Last call that all members are known to have ended.
    all_ended: Cell<u64>,
    line_uses: [[LastUse; MAX_ROUNDS]; LINE_SETS as usize],
    area_uses: [[LastUse; MAX_ROUNDS]; AREAS as usize],
    /// Members whose progress this member has read.
    #[cfg(test)]
    pub(crate) progress_reads: std::cell::RefCell<Vec<u32>>,
}

/// Lines for nonblocking calls. Calls use them one after another, in the order of their starts, which is equal on all
/// members.
pub struct OutstandingLines {
    pub(crate) lines: SharedLines,
    /// Number of calls of this member that have begun to use or to wait for the lines.
    joined: Cell<u64>,
    /// Number of calls that have ended.
    left: Cell<u64>,
    /// Members whose memory this member has read in the current call. The list is kept, so calls allocate nothing.
    pub(crate) owners: RefCell<Vec<u32>>,
}

impl OutstandingLines {
    /// Makes the lines of no call.
    pub(crate) fn new(lines: SharedLines) -> OutstandingLines {
        OutstandingLines {
            lines,
            joined: Cell::new(0),
            left: Cell::new(0),
            owners: RefCell::default(),
        }
    }

    /// Adds a call to the queue, and returns its position.
    pub(crate) fn join(&self) -> u64 {
        self.joined.replace(self.joined.get() + 1)
    }

    /// Returns whether all calls before a position have ended.
    pub(crate) fn is_turn(&self, position: u64) -> bool {
        self.left.get() == position
    }

    /// Removes the first call, which has ended, from the queue.
    pub(crate) fn leave(&self) {
        self.left.set(self.left.get() + 1);
    }

    /// Returns whether no call is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.left.get() == self.joined.get()
    }
}

/// Lines of one persistent call. Its starts use them one after another, whatever the order in which members start
/// several calls.
pub struct PersistentLines {
    pub(crate) queue: OutstandingLines,
    starts: Cell<u64>,
    /// Whether the request exists. It may start its call even after its communicator was freed.
    pub(crate) is_held: Cell<bool>,
}

impl PersistentLines {
    /// Makes the lines of the persistent call `index` from the memory of each member.
    fn new(firsts: &[*mut u8], index: usize, plan: Rc<LinePlan>) -> PersistentLines {
        let at = PERSISTENT_AT + index * PERSISTENT_BYTES;
        let firsts = firsts.iter().map(|first| first.wrapping_add(at)).collect();
        PersistentLines {
            queue: OutstandingLines::new(SharedLines::new(firsts, plan)),
            starts: Cell::new(0),
            is_held: Cell::new(false),
        }
    }

    /// Begins the next start.
    pub(crate) fn begin(&self) {
        self.starts.set(self.starts.get() + 1);
    }

    /// Returns the number of the last start, which is equal on all members.
    pub(crate) fn call(&self) -> u64 {
        call_of_start(self.starts.get())
    }
}

/// Returns the number of a start of a persistent call. The numbers grow, and select the first line sets and area.
fn call_of_start(start: u64) -> u64 {
    // Selects the next line set and the first area.
    const STEP: u64 = 2 * LINE_SETS + 1;
    const _: () = assert!(STEP.is_multiple_of(AREAS));
    let cycle = (STEP * PERSISTENT_SETS).next_multiple_of(LINE_SETS * AREAS);
    first_call_of(start / PERSISTENT_SETS * cycle + start % PERSISTENT_SETS * STEP)
}

/// Lines of a communicator, and the memory behind them.
pub struct MappedLines {
    pub(crate) lines: SharedLines,
    pub(crate) outstanding: OutstandingLines,
    /// Number of the collective call that made the lines. Nonblocking calls after it use them.
    pub(crate) since: u64,
    /// Lines of the first persistent calls from number `persistent_since` on.
    pub(crate) persistent: [OnceCell<PersistentLines>; PERSISTENT_CALLS],
    pub(crate) persistent_since: u64,
    pub(crate) own: LocalRegion,
    /// Keys that keep the memory of the other members mapped.
    pub(crate) _keys: Vec<RemoteKey>,
}

impl MappedLines {
    /// Makes the lines of all calls from the memory of each member, the own region, and the keys of the others. `since`
    /// is the number of the collective call, and `persistent_since` that of the next persistent call.
    pub(crate) fn new(
        firsts: Box<[*mut u8]>, (own, keys): (LocalRegion, Vec<RemoteKey>), plan: LinePlan,
        (since, persistent_since): (u64, u64),
    ) -> MappedLines {
        let plan = Rc::new(plan);
        let others = firsts.iter().map(|first| first.wrapping_add(BYTES)).collect();
        MappedLines {
            outstanding: OutstandingLines::new(SharedLines::new(others, plan.clone())),
            lines: SharedLines::new(firsts, plan),
            since,
            persistent: Default::default(),
            persistent_since,
            own,
            _keys: keys,
        }
    }

    /// Returns the lines of the persistent call `number`, if it has some. Equal on all members.
    pub(crate) fn hold_persistent(&self, number: u64) -> Option<&PersistentLines> {
        let index = usize::try_from(number.checked_sub(self.persistent_since)?).ok()?;
        let make = || PersistentLines::new(&self.lines.firsts, index, self.lines.plan.clone());
        let lines = self.persistent.get(index)?.get_or_init(make);
        lines.is_held.set(true);
        Some(lines)
    }

    /// Returns whether a persistent request of this member may use its lines again.
    pub(crate) fn is_held(&self) -> bool {
        self.persistent.iter().filter_map(OnceCell::get).any(|lines| lines.is_held.get())
    }
}

impl SharedLines {
    /// Makes the lines from the memory of each member, which is zero.
    pub(crate) fn new(firsts: Box<[*mut u8]>, plan: Rc<LinePlan>) -> SharedLines {
        SharedLines {
            ended: firsts.iter().map(|_| Cell::new(0)).collect(),
            firsts,
            plan,
            call: Cell::new(0),
            all_ended: Cell::new(0),
            line_uses: Default::default(),
            area_uses: Default::default(),
            #[cfg(test)]
            progress_reads: Default::default(),
        }
    }

    /// Begins the next part of the collective call `sequence`, at least 1, and returns its number.
    #[inline]
    pub(crate) fn begin(&self, sequence: u64) -> u64 {
        self.call.set((self.call.get() + 1).max(first_call_of(sequence)));
        self.call.get()
    }

    /// Publishes that this member has ended a call, and reads no line of it any more.
    #[inline]
    pub(crate) fn end(&self, call: u64) {
        // ORDERING: release, after the reads of the call; partner is the acquire load in `has_ended`.
        self.progress(self.plan.rank()).store(call, Ordering::Release);
    }

    /// Publishes that this member takes no part any more in the collective call of `call`.
    pub(crate) fn give_up(&self, call: u64) {
        self.end(call | LAST_PART);
    }

    #[inline]
    fn progress(&self, rank: u32) -> &AtomicU64 {
        // SAFETY: the memory is mapped as long as this object lives, aligned, and used for this word atomically.
        unsafe { AtomicU64::from_ptr(self.firsts[rank as usize].cast()) }
    }

    /// Records that all members have begun a call: this member has data of all. Members begin calls one after another,
    /// so they have ended the call before.
    #[inline]
    pub(crate) fn note_all_began(&self, call: u64) {
        self.all_ended.set(call - 1);
    }

    /// Records that a member has begun a call, and so has ended the call before.
    #[inline]
    pub(crate) fn note_began(&self, rank: u32, call: u64) {
        self.ended[rank as usize].set(call - 1);
    }

    /// Reads the progress of the readers of the lines that the next broadcast uses, so that it need not wait for it.
    pub(crate) fn look_ahead(&self) {
        let next = (self.call.get() | LAST_PART) + 1;
        for used in &self.line_uses[(position(next) % LINE_SETS) as usize][..TREE_STEPS] {
            self.find_late(used, next);
        }
    }

    /// Returns whether a member has ended a call, and reads no line and no buffer of it any more.
    #[inline]
    pub(crate) fn has_ended(&self, rank: u32, call: u64) -> bool {
        // ORDERING: the data of all members was acquired, and they stored it after their reads of the earlier call.
        if self.all_ended.get() >= call {
            return true;
        }
        let ended = &self.ended[rank as usize];
        if ended.get() < call {
            // ORDERING: acquire, before this member writes what `rank` has read; partner: the store in `end`.
            ended.set(self.progress(rank).load(Ordering::Acquire));
            #[cfg(test)]
            self.progress_reads.borrow_mut().push(rank);
        }
        ended.get() >= call
    }

    /// Returns the first reader of earlier data in the memory of a step that has not ended the call of that data.
    pub(crate) fn find_late_reader(&self, call: u64, step: u32, bytes: usize) -> Option<u32> {
        self.find_late(self.last_use(call, step, bytes), call)
    }

    #[inline]
    fn last_use(&self, call: u64, step: u32, bytes: usize) -> &LastUse {
        match bytes <= LINE_BYTES {
            true => &self.line_uses[(position(call) % LINE_SETS) as usize][step as usize],
            false => &self.area_uses[(position(call) % AREAS) as usize][step as usize],
        }
    }

    #[inline]
    fn find_late(&self, used: &LastUse, call: u64) -> Option<u32> {
        let (before, readers) = used.get().filter(|&(before, _)| before != call)?;
        let mut late = None;
        self.plan.each_reader(readers, |rank| {
            if !self.has_ended(rank, before) {
                late = Some(rank);
            }
        });
        if late.is_none() {
            used.set(None);
        }
        late
    }

    /// Publishes data of a step, which `fill` writes.
    ///
    /// # Safety
    /// [`SharedLines::find_late_reader`] has returned `None` for this step. `fill` writes at most `bytes` bytes, which
    /// fit the step.
    #[inline]
    pub(crate) unsafe fn publish(
        &self, call: u64, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) {
        self.last_use(call, step, bytes).set(Some((call, readers)));
        let at = self.address(self.plan.rank(), call, step, bytes);
        fill(at.wrapping_add(HEADER));
        // SAFETY: the memory is mapped as long as this object lives, aligned, and used for this word atomically.
        let header = unsafe { AtomicU64::from_ptr(at.cast()) };
        // ORDERING: release, after the data; partner is the acquire load in `find`.
        header.store(header_of(call) | bytes as u64, Ordering::Release);
    }

    /// Returns the length and the address of a member's data of a step, if it is there. `bytes` is the expected length.
    /// The length is not trusted: it is below 2^11.
    #[inline]
    pub(crate) fn find(
        &self, rank: u32, call: u64, step: u32, bytes: usize,
    ) -> Option<(usize, *const u8)> {
        let at = self.address(rank, call, step, bytes);
        // SAFETY: the memory is mapped as long as this object lives, aligned, and used for this word atomically.
        let header = unsafe { AtomicU64::from_ptr(at.cast()) };
        // ORDERING: acquire, before the data; partner is the release store in `publish`.
        let header = header.load(Ordering::Acquire);
        let length = header ^ header_of(call);
        let is_there = length < 1 << LENGTH_BITS;
        is_there.then_some((length as usize, at.wrapping_add(HEADER).cast_const()))
    }

    #[inline]
    fn address(&self, rank: u32, call: u64, step: u32, bytes: usize) -> *mut u8 {
        let (n, step) = (position(call), step as usize);
        let offset = match bytes <= LINE_BYTES {
            true => LINES_AT + ((n % LINE_SETS) as usize * MAX_ROUNDS + step) * LINE,
            false => AREAS_AT + (n % AREAS) as usize * AREA + step * STEP_AREA,
        };
        self.firsts[rank as usize].wrapping_add(offset)
    }
}

/// Returns the number of the collective call that a call is a part of.
#[inline]
pub(crate) fn sequence_of(call: u64) -> u64 {
    call >> PART_BITS
}

/// Returns the number of the first part of a collective call.
#[inline]
pub(crate) fn first_call_of(sequence: u64) -> u64 {
    sequence << PART_BITS
}

/// Returns the number that selects the memory of a call. Parts of one collective call, and consecutive collective
/// calls, use different memory.
#[inline]
fn position(call: u64) -> u64 {
    (call >> PART_BITS) + (call & LAST_PART)
}

/// Returns the header of data of 0 bytes. Repeats after 2^45 collective calls.
#[inline]
fn header_of(call: u64) -> u64 {
    let part = call & ((1 << HEADER_PART_BITS) - 1);
    ((call >> PART_BITS) << HEADER_PART_BITS | part) << LENGTH_BITS
}

#[cfg(test)]
impl SharedLines {
    /// Begins the next collective call.
    pub(crate) fn begin_next(&self) -> u64 {
        self.begin(sequence_of(self.call.get()) + 1)
    }

    /// Returns the address of a member's data of a step.
    pub(crate) fn data_address(&self, rank: u32, call: u64, step: u32, bytes: usize) -> usize {
        self.address(rank, call, step, bytes).addr() + HEADER
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_a_persistent_call__use_the_first_sets_and_one_area() {
        let mut before = 0;
        for start in 1..100 {
            let call = call_of_start(start);
            assert!(call > before && call & LAST_PART == 0);
            assert_eq!(position(call) % LINE_SETS, start % PERSISTENT_SETS);
            assert_eq!(position(call) % AREAS, 0);
            before = call;
        }
    }

    #[test]
    fn lines_before_long_data__take_at_most_64_kib_of_a_member() {
        // The lines of nonblocking calls do not begin at a page.
        const LINES: usize = 2 * AREAS_AT.next_multiple_of(PAGE) + PAGE + PERSISTENT_CALLS * PAGE;
        const { assert!(LINES <= 64 << 10) };
        const { assert!(MEMBER_BYTES + super::super::shared_buffers::BYTES <= 1 << 20) };
    }
}
