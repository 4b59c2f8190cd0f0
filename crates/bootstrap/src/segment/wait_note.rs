//! What a thread of a rank waits for, as its page says it.

use super::text::SharedText;
use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

/// What a thread of a rank waits for. Written before it sleeps, so never on the path of a message that is
/// there already.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Status {
    /// Odd while being written; 0 and every even number mark a whole note.
    sequence: AtomicU32,
    /// 1 while the note holds.
    waiting: AtomicU32,
    peer: AtomicI32,
    tag: AtomicI32,
    bytes: AtomicU64,
    since_ns: AtomicU64,
    call: SharedText<9>,
    comm: SharedText<8>,
    /// 1 where other threads of the process may call MPI meanwhile.
    multiple: AtomicU32,
    /// See [`Awaited`].
    awaited: AtomicU32,
    awaited_ranks: [AtomicU32; AWAITED_MOST],
    thread: AtomicU32,
    /// 1 where those awaited hold a lock.
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

/// Ranks that an [`Awaited`] can name.
const AWAITED_MOST: usize = 14;

/// Ranks of the job, each of which could end a wait: the one that a receive names, or any of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// How many are named; 0: nothing is known; above [`AWAITED_MOST`]: it may be any rank of the job.
    count: u32,
    ranks: [u32; AWAITED_MOST],
    /// See [`Awaited::holding`].
    holds: bool,
}

impl Awaited {
    /// Nothing is known.
    pub const UNKNOWN: Awaited = Awaited { count: 0, ranks: [0; AWAITED_MOST], holds: false };

    /// Any rank of the job.
    pub const ANY: Awaited = Awaited { count: u32::MAX, ranks: [0; AWAITED_MOST], holds: false };

    /// Any of these; where they are too many to be named, any rank of the job. No rank: nothing is known.
    pub fn of(ranks: &[u32]) -> Awaited {
        let mut awaited = Awaited::UNKNOWN;
        match awaited.ranks.get_mut(..ranks.len()) {
            Some(room) => room.copy_from_slice(ranks),
            None => return Awaited::ANY,
        }
        awaited.count = ranks.len() as u32;
        awaited
    }

    /// As [`Awaited::of`], for a lock of window memory: one of these holds it.
    pub fn holding(ranks: &[u32]) -> Awaited {
        Awaited { holds: true, ..Awaited::of(ranks) }
    }

    /// Whether a lock is waited for.
    pub fn is_for_lock(&self) -> bool {
        self.holds
    }

    /// Adds what another part of the same wait waits for.
    pub fn add(&mut self, other: Awaited) {
        for &rank in other.named() {
            if self.named().contains(&rank) {
                continue;
            }
            match self.ranks.get_mut(self.count as usize) {
                Some(room) => *room = rank,
                None => return *self = Awaited::ANY,
            }
            self.count += 1;
        }
        if other.is_any() {
            *self = Awaited::ANY;
        }
    }

    /// Any of these or of those; where one of the two is not known, neither is this.
    pub fn or(mut self, other: Awaited) -> Awaited {
        if !self.is_known() || !other.is_known() {
            return Awaited::UNKNOWN;
        }
        self.add(other);
        self
    }

    /// The ranks by name; none where it may be any rank or nothing is known.
    pub fn named(&self) -> &[u32] {
        self.ranks.get(..self.count as usize).unwrap_or(&[])
    }

    /// Whether it may be any rank of the job.
    pub fn is_any(&self) -> bool {
        self.count as usize > AWAITED_MOST
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        self.count != 0
    }
}

impl Status {
    fn load_awaited(&self) -> Awaited {
        let ranks = self.awaited_ranks.each_ref();
        let ranks = ranks.map(|rank| rank.load(Ordering::Relaxed));
        let count = self.awaited.load(Ordering::Relaxed) as usize;
        Awaited {
            holds: self.locks.load(Ordering::Relaxed) != 0,
            ..ranks.get(..count).map_or(Awaited::ANY, Awaited::of)
        }
    }
}

/// What a thread of a rank was waiting for when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitNote {
    /// Name of the MPI call, and of the one that began the operation that it waits for.
    pub call: String,
    /// Rank of the peer in the communicator, negative for any or none.
    pub peer: i32,
    /// Tag, negative for any or none.
    pub tag: i32,
    /// What a person calls the communicator; empty for none.
    pub comm: String,
    /// Bytes of the message or room for it.
    pub bytes: u64,
    /// When it began, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// Who could end it.
    pub awaited: Awaited,
    /// Whether other threads of the process may call MPI meanwhile.
    pub multiple: bool,
    /// The thread's number in the kernel, as the rank sees it.
    pub thread: u32,
    /// Changes with each note: while it stays the same, the thread was not woken.
    pub sequence: u64,
}

impl Status {
    /// As it is when the ranks start, for the model checker.
    #[cfg(all(test, feature = "loom"))]
    pub(super) fn fresh() -> Self {
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

    pub(super) fn store(&self, note: WaitNoteRef<'_>) {
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

    pub(super) fn clear(&self) {
        self.begin();
        self.waiting.store(0, Ordering::Relaxed);
        self.end();
    }

    /// The note; None if there is none, or it is being written all the time.
    pub(super) fn load(&self, place: usize) -> Option<WaitNote> {
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
                // ORDERING: the fields are read before the second look at the sequence;
                // partner is the fence in `begin`.
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
        // ORDERING: the odd number is seen before any field that follows; partner is the
        // fence in `load`.
        fence(Ordering::Release);
    }

    fn end(&self) {
        let odd = self.sequence.load(Ordering::Relaxed);
        // ORDERING: publishes the fields; partner is the acquire load in `load`.
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// A note as its writer has it; the fields are those of [`WaitNote`].
#[derive(Clone, Copy, Debug)]
pub struct WaitNoteRef<'a> {
    /// Name of the MPI call, at most 72 bytes of it are kept.
    pub call: &'a str,
    /// See [`WaitNote::peer`].
    pub peer: i32,
    /// See [`WaitNote::tag`].
    pub tag: i32,
    /// See [`WaitNote::comm`]; at most 64 bytes of it are kept.
    pub comm: &'a str,
    /// See [`WaitNote::bytes`].
    pub bytes: u64,
    /// See [`WaitNote::since_ns`].
    pub since_ns: u64,
    /// See [`WaitNote::awaited`].
    pub awaited: Awaited,
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
        let mut awaited = Awaited::of(&most);
        assert_eq!(awaited.named(), most);
        awaited.add(Awaited::of(&most));
        assert!(awaited.is_known() && !awaited.is_any());
        awaited.add(Awaited::of(&[99]));
        assert!(awaited.is_any() && awaited.is_known() && awaited.named().is_empty());
        assert_eq!(Awaited::of(&[0; AWAITED_MOST + 1]), Awaited::ANY);
        assert!(!Awaited::of(&[]).is_known());
        let (one, two) = (Awaited::of(&[1]), Awaited::of(&[2]));
        assert_eq!(one.or(two), Awaited::of(&[1, 2]));
        assert_eq!(one.or(Awaited::UNKNOWN), Awaited::UNKNOWN);
        assert_eq!(Awaited::UNKNOWN.or(one), Awaited::UNKNOWN);
        let mut awaited = Awaited::of(&[3]);
        awaited.add(Awaited::ANY);
        assert_eq!(awaited, Awaited::ANY);
        awaited.add(Awaited::of(&[4]));
        assert_eq!(awaited, Awaited::ANY);
    }
}
