//! Notes on a rank's page of what its threads wait for.

use crate::text::SharedText;
use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

/// Start of [`WaitNote::comm`] for a window's communicator; the window's title follows.
pub const OF_WINDOW: &str = "of the window ";

/// Note of a waiting thread in shared memory, written before the thread sleeps. A wait whose message has already
/// arrived writes no note.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Status {
    /// Odd while the note is being written; even numbers mark a whole note.
    sequence: AtomicU32,
    /// 1 while the note is valid.
    waiting: AtomicU32,
    peer: AtomicI32,
    tag: AtomicI32,
    bytes: AtomicU64,
    since_ns: AtomicU64,
    call: SharedText<9>,
    comm: SharedText<8>,
    /// 1 if other threads of the process may call MPI during the wait.
    multiple: AtomicU32,
    awaited: AtomicU32,
    awaited_ranks: [AtomicU32; AWAITED_MOST],
    thread: AtomicU32,
    /// 1 if the thread waits for a lock that one of the awaited ranks holds.
    locks: AtomicU32,
}

#[cfg(not(feature = "loom"))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Status>() == 256);
    // Read by tests/jobs/verdicts.py.
    assert!(offset_of!(Status, waiting) == 4);
    assert!(offset_of!(Status, since_ns) == 24);
};

/// Largest number of ranks that an [`AwaitedRanks`] names.
const AWAITED_MOST: usize = 14;

/// Set of the ranks of the job that could end a wait; each of them could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedRanks {
    /// Number of named ranks. 0 means that the ranks are unknown, and a number above [`AWAITED_MOST`] any rank of the
    /// job.
    count: u32,
    ranks: [u32; AWAITED_MOST],
    holds: bool,
}

impl AwaitedRanks {
    /// Unknown ranks.
    pub const UNKNOWN: AwaitedRanks =
        AwaitedRanks { count: 0, ranks: [0; AWAITED_MOST], holds: false };

    /// Any rank of the job.
    pub const ANY: AwaitedRanks =
        AwaitedRanks { count: u32::MAX, ranks: [0; AWAITED_MOST], holds: false };

    /// Makes the set of the ranks in `ranks`. If `ranks` has more entries than fit, the set is any rank of the job; if
    /// it is empty, the set is unknown.
    pub fn of(ranks: &[u32]) -> AwaitedRanks {
        let mut awaited = AwaitedRanks::UNKNOWN;
        match awaited.ranks.get_mut(..ranks.len()) {
            Some(room) => room.copy_from_slice(ranks),
            None => return AwaitedRanks::ANY,
        }
        awaited.count = ranks.len() as u32;
        awaited
    }

    /// Returns the set of `ranks` ([`AwaitedRanks::of`]) for a wait for a lock of window memory that one of them holds.
    pub fn holding(ranks: &[u32]) -> AwaitedRanks {
        AwaitedRanks { holds: true, ..AwaitedRanks::of(ranks) }
    }

    /// Returns whether the wait is for a lock.
    pub fn is_for_lock(&self) -> bool {
        self.holds
    }

    /// Adds the ranks awaited by another part of the wait. Unknown ranks add nothing.
    pub fn add(&mut self, other: AwaitedRanks) {
        for &rank in other.named() {
            if self.named().contains(&rank) {
                continue;
            }
            match self.ranks.get_mut(self.count as usize) {
                Some(room) => *room = rank,
                None => return *self = AwaitedRanks::ANY,
            }
            self.count += 1;
        }
        if other.is_any() {
            *self = AwaitedRanks::ANY;
        }
    }

    /// Returns the union of both sets; unknown if either is unknown.
    pub fn or(mut self, other: AwaitedRanks) -> AwaitedRanks {
        if !self.is_known() || !other.is_known() {
            return AwaitedRanks::UNKNOWN;
        }
        self.add(other);
        self
    }

    /// Returns the named ranks; empty if any rank is possible or none is known.
    pub fn named(&self) -> &[u32] {
        self.ranks.get(..self.count as usize).unwrap_or(&[])
    }

    /// Returns whether any rank of the job could end the wait.
    pub fn is_any(&self) -> bool {
        self.count as usize > AWAITED_MOST
    }

    /// Returns whether the ranks are known.
    pub fn is_known(&self) -> bool {
        self.count != 0
    }
}

impl Status {
    fn load_awaited(&self) -> AwaitedRanks {
        let ranks = self.awaited_ranks.each_ref();
        let ranks = ranks.map(|rank| rank.load(Ordering::Relaxed));
        let count = self.awaited.load(Ordering::Relaxed) as usize;
        AwaitedRanks {
            holds: self.locks.load(Ordering::Relaxed) != 0,
            ..ranks.get(..count).map_or(AwaitedRanks::ANY, AwaitedRanks::of)
        }
    }
}

/// Wait of one thread of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitNote {
    /// Name of the MPI call, and of the call that started the awaited operation.
    pub call: String,
    /// Rank of the peer in the communicator; negative for any or none.
    pub peer: i32,
    /// Tag; negative for any or none.
    pub tag: i32,
    /// Title of the communicator; empty for none.
    pub comm: String,
    /// Bytes of the message, or of the buffer.
    pub bytes: u64,
    /// Start of the wait, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// Ranks that could end the wait.
    pub awaited: AwaitedRanks,
    /// Whether other threads of the process may call MPI during the wait.
    pub multiple: bool,
    /// Kernel's id of the thread, in the rank's process id namespace; 0 unless several threads may call MPI.
    pub thread: u32,
    /// Number that changes with each note. If two observations find the same number, the thread was not woken in
    /// between.
    pub sequence: u64,
}

impl Status {
    /// Makes a note as it is when the ranks start, for the model checker.
    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn fresh() -> Self {
        let word = || AtomicU32::new(0);
        let long = || AtomicU64::new(0);
        Status {
            sequence: word(),
            waiting: word(),
            peer: AtomicI32::new(0),
            tag: AtomicI32::new(0),
            bytes: long(),
            since_ns: long(),
            call: SharedText::new(),
            comm: SharedText::new(),
            multiple: word(),
            awaited: word(),
            awaited_ranks: std::array::from_fn(|_| word()),
            thread: word(),
            locks: word(),
        }
    }

    pub(crate) fn store(&self, note: WaitNoteRef<'_>) {
        self.begin();
        self.peer.store(note.peer, Ordering::Relaxed);
        self.tag.store(note.tag, Ordering::Relaxed);
        self.bytes.store(note.bytes, Ordering::Relaxed);
        self.since_ns.store(note.since_ns, Ordering::Relaxed);
        self.call.store(note.call);
        self.comm.store(note.comm);
        self.multiple.store(note.multiple.into(), Ordering::Relaxed);
        self.awaited.store(note.awaited.count, Ordering::Relaxed);
        for (word, &rank) in self.awaited_ranks.iter().zip(note.awaited.named()) {
            word.store(rank, Ordering::Relaxed);
        }
        self.thread.store(note.thread, Ordering::Relaxed);
        self.locks.store(note.awaited.holds.into(), Ordering::Relaxed);
        self.waiting.store(1, Ordering::Relaxed);
        self.end();
    }

    pub(crate) fn clear(&self) {
        self.begin();
        self.waiting.store(0, Ordering::Relaxed);
        self.end();
    }

    /// Returns the note; `None` if there is none, or if it changes during every attempt to read it.
    pub(crate) fn load(&self, place: usize) -> Option<WaitNote> {
        for _ in 0..1000 {
            // ORDERING: partner is the release store in `end`.
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let waiting = self.waiting.load(Ordering::Relaxed) == 1;
                let note = WaitNote {
                    call: self.call.load(),
                    peer: self.peer.load(Ordering::Relaxed),
                    tag: self.tag.load(Ordering::Relaxed),
                    comm: self.comm.load(),
                    bytes: self.bytes.load(Ordering::Relaxed),
                    since_ns: self.since_ns.load(Ordering::Relaxed),
                    awaited: self.load_awaited(),
                    multiple: self.multiple.load(Ordering::Relaxed) != 0,
                    thread: self.thread.load(Ordering::Relaxed),
                    sequence: (place as u64) << 32 | u64::from(before),
                };
                // ORDERING: acquire: the fields are read before the second read of the sequence; partner is the fence
                // in `begin`.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return waiting.then_some(note);
                }
            }
            fastpath_base::sync::spin_loop();
        }
        None
    }

    fn begin(&self) {
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        // ORDERING: release: the odd number is visible before any later field; partner is the fence in `load`.
        fence(Ordering::Release);
    }

    fn end(&self) {
        let odd = self.sequence.load(Ordering::Relaxed);
        // ORDERING: publishes the fields; partner is the acquire load in `load`.
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// Borrowed form of a [`WaitNote`], which the waiting thread passes to be stored.
#[derive(Clone, Copy, Debug)]
pub struct WaitNoteRef<'a> {
    /// Name of the MPI call; at most 72 bytes are kept.
    pub call: &'a str,
    /// See [`WaitNote::peer`].
    pub peer: i32,
    /// See [`WaitNote::tag`].
    pub tag: i32,
    /// See [`WaitNote::comm`]; at most 64 bytes are kept.
    pub comm: &'a str,
    /// See [`WaitNote::bytes`].
    pub bytes: u64,
    /// See [`WaitNote::since_ns`].
    pub since_ns: u64,
    /// See [`WaitNote::awaited`].
    pub awaited: AwaitedRanks,
    /// See [`WaitNote::multiple`].
    pub multiple: bool,
    /// See [`WaitNote::thread`].
    pub thread: u32,
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn awaited__is_any_rank_where_there_are_too_many_to_name() {
        let most: Vec<u32> = (0..AWAITED_MOST as u32).collect();
        let mut awaited = AwaitedRanks::of(&most);
        assert_eq!(awaited.named(), most);
        awaited.add(AwaitedRanks::of(&most));
        assert!(awaited.is_known() && !awaited.is_any());
        awaited.add(AwaitedRanks::of(&[99]));
        assert!(awaited.is_any() && awaited.is_known() && awaited.named().is_empty());
        assert_eq!(AwaitedRanks::of(&[0; AWAITED_MOST + 1]), AwaitedRanks::ANY);
        assert!(!AwaitedRanks::of(&[]).is_known());
        let (one, two) = (AwaitedRanks::of(&[1]), AwaitedRanks::of(&[2]));
        assert_eq!(one.or(two), AwaitedRanks::of(&[1, 2]));
        assert_eq!(one.or(AwaitedRanks::UNKNOWN), AwaitedRanks::UNKNOWN);
        assert_eq!(AwaitedRanks::UNKNOWN.or(one), AwaitedRanks::UNKNOWN);
        let mut awaited = AwaitedRanks::of(&[3]);
        awaited.add(AwaitedRanks::ANY);
        assert_eq!(awaited, AwaitedRanks::ANY);
        awaited.add(AwaitedRanks::of(&[4]));
        assert_eq!(awaited, AwaitedRanks::ANY);
    }
}
