//! The first page of the segment: what belongs to the job as a whole.

use super::text::SharedText;
use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, CacheLine, Ordering};

/// First word of every segment: "FASTPATH".
pub const MAGIC: u64 = u64::from_le_bytes(*b"FASTPATH");

/// Version of the layout; launcher and library must agree.
pub const VERSION: u32 = 20;

/// The job's header. All zeros but for the first line when the ranks start.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct JobHeader {
    /// [`MAGIC`]; this line is written by the creator before any rank starts and never again.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Number of ranks that the memory has places for.
    pub ranks: AtomicU32,
    /// Random number that identifies this job.
    pub job_id: AtomicU64,
    /// Process number of the launcher, 0 without one.
    pub launcher: AtomicU32,
    /// Processors worth of time that the ranks of this job have together.
    pub processors: AtomicU32,
    /// 1 when each rank is bound to processors of its own.
    pub bound: AtomicU32,
    /// KiB that each rank may have backed before it asks the system what memory is left.
    pub budget_kib: AtomicU32,
    /// Memory files that the job has, one on each of its nodes; 0 counts as 1.
    pub nodes: AtomicU32,
    /// Ranks of the job that are there so far: those that the job began with, and those that were spawned. It never
    /// falls; only the launcher writes it, after the pages of further ranks are backed.
    pub present: AtomicU32,
    /// Processors of all nodes of the job together, where an agent has said so; 0: those of this one.
    pub universe: AtomicU32,
    /// Ranks that the launcher's command line has started; 0: all that are there.
    pub began_with: AtomicU32,
    /// Number of ranks that the whole job can have; 0 where all of them have a place here.
    pub job_ranks: AtomicU32,
    /// Places that are taken, where not all ranks of the job have one.
    pub here: AtomicU32,
    /// How many ranks are awake: up when a rank attaches or wakes, down when it goes to sleep
    /// or finalizes.
    pub awake: CacheLine<AtomicU32>,
    /// What waking a sleeper costs on this machine in nanoseconds, measured by the first that
    /// needs it; 0 when not measured yet.
    pub wake_cost_ns: CacheLine<AtomicU32>,
    /// Grows by one after a rank's death or an abort was recorded. A rank that wakes up and
    /// finds it changed looks at the states of those it waits for.
    pub events: CacheLine<AtomicU32>,
    /// Bytes for which ranks are asking the kernel at this moment, so that two of them do not
    /// count on the same free memory.
    pub backing: CacheLine<AtomicU64>,
    /// The first failure.
    pub failure: FailureRecord,
    /// The first `MPI_Abort`.
    pub abort: AbortRecord,
    /// How the ranks reach each other.
    pub transports: Agreement,
    /// The secret that proves on a network that a process is of this job: the same in all its memory files, and known
    /// only to its processes. Written before any rank starts.
    secret: [AtomicU64; SECRET_WORDS],
    /// How the ranks reach those that share no memory with them.
    pub outside: Agreement,
    /// Which algorithms of collective calls were named.
    pub collectives: Agreement,
    /// Cards that ranks of other nodes have in common, as many as were written or are being written.
    pub cards: CacheLine<AtomicU32>,
    /// How many first places have regions of pairs that were backed before the ranks started.
    pub ahead: CacheLine<AtomicU32>,
    /// Process that makes room for ranks of another job, where no launcher does; 0: none.
    pub adding: CacheLine<AtomicU32>,
    /// Notices that a rank of this node has printed: a bit for each [`Notice`].
    notices: CacheLine<AtomicU32>,
    /// First places, which belong to the ranks that the node began with and are never reused. Written by the creator.
    pub kept_places: CacheLine<AtomicU32>,
    /// First ranks whose number is their place: all that the job began with, where it has one node. Written by the
    /// creator.
    pub ordered: AtomicU32,
    /// 1 once a rank reaches another one of its node by an adapter, whose connections refer to its page for good: then
    /// no place is reused.
    pub is_pinned: AtomicU32,
}

/// Notices that every rank of a job may have a reason for.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Unexpected messages have reached their bound.
    Flood,
    /// A progress thread cannot be started.
    ProgressThread,
    /// Nothing can be recorded for a trace.
    Trace,
    /// Connections cannot be accepted.
    Connections,
}

/// Words of a job's secret.
const SECRET_WORDS: usize = 4;

impl JobHeader {
    /// Whether the calling rank is the first of its node that has a reason for a notice: it alone prints it, since the
    /// other ranks would repeat it.
    pub fn is_first_notice(&self, notice: Notice) -> bool {
        let bit = 1 << notice as u32;
        self.notices.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The job's secret.
    pub fn secret(&self) -> [u8; 8 * SECRET_WORDS] {
        let mut bytes = [0; 8 * SECRET_WORDS];
        for (chunk, word) in bytes.chunks_mut(8).zip(&self.secret) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// Writes the job's secret; only the creator of the memory calls it, before any rank starts.
    pub fn set_secret(&self, secret: &[u8; 8 * SECRET_WORDS]) {
        for (word, chunk) in self.secret.iter().zip(secret.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
}

#[cfg(not(feature = "loom"))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<JobHeader>() == super::PAGE_BYTES);
    assert!(align_of::<JobHeader>() == super::PAGE_BYTES);
    assert!(offset_of!(JobHeader, job_id) == 16);
    assert!(offset_of!(JobHeader, awake) == 64);
    assert!(offset_of!(JobHeader, wake_cost_ns) == 128);
    assert!(offset_of!(JobHeader, events) == 192);
    assert!(offset_of!(JobHeader, backing) == 256);
    assert!(offset_of!(JobHeader, failure) == 320);
    assert!(offset_of!(JobHeader, abort) == 384);
    assert!(offset_of!(JobHeader, transports) == 1408);
    assert!(offset_of!(JobHeader, secret) == 1472);
    assert!(offset_of!(JobHeader, outside) == 1536);
    assert!(offset_of!(JobHeader, collectives) == 1600);
};

/// How a rank failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Ended by this signal.
    Signal,
    /// Left with this exit code, not 0.
    Exit,
    /// Left with exit code 0 after MPI was initialised and without finalizing it.
    NoFinalize,
    /// Called `MPI_Abort` with this code.
    Abort,
    /// Ended without finalizing MPI, in a way that only its parent knows.
    Gone,
}

/// The first failure of the job. The launcher writes it, or, if it is not ours, the rank that sees another of its node
/// end.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct FailureRecord {
    kind: AtomicU32,
    rank: AtomicU32,
    code: AtomicI32,
}

impl FailureRecord {
    /// Notes a failure if it is the first; returns whether it was.
    pub fn record(&self, kind: FailureKind, rank: usize, code: i32) -> bool {
        let free = self.kind.compare_exchange(0, u32::MAX, Ordering::Relaxed, Ordering::Relaxed);
        if free.is_err() {
            return false;
        }
        self.rank.store(rank as u32, Ordering::Relaxed);
        self.code.store(code, Ordering::Relaxed);
        let kind = match kind {
            FailureKind::Signal => 1,
            FailureKind::Exit => 2,
            FailureKind::NoFinalize => 3,
            FailureKind::Abort => 4,
            FailureKind::Gone => 5,
        };
        // ORDERING: publishes rank and code; partner is the acquire load in `load`.
        self.kind.store(kind, Ordering::Release);
        true
    }

    /// The failure: how, which rank, signal or code.
    pub fn load(&self) -> Option<(FailureKind, usize, i32)> {
        // ORDERING: partner is the release store in `record`.
        let kind = match self.kind.load(Ordering::Acquire) {
            1 => FailureKind::Signal,
            2 => FailureKind::Exit,
            3 => FailureKind::NoFinalize,
            4 => FailureKind::Abort,
            5 => FailureKind::Gone,
            _ => return None,
        };
        Some((kind, self.rank.load(Ordering::Relaxed) as usize, self.code.load(Ordering::Relaxed)))
    }
}

/// The first `MPI_Abort` of the job, written by the rank that called it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct AbortRecord {
    /// 0 free, 1 being written, 2 complete.
    stage: AtomicU32,
    rank: AtomicU32,
    code: AtomicI32,
    _reserved: AtomicU32,
    message: SharedText<120>,
}

impl AbortRecord {
    /// Notes an abort if it is the first; returns whether it was.
    pub fn record(&self, rank: usize, code: i32, message: &str) -> bool {
        if self.stage.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.rank.store(rank as u32, Ordering::Relaxed);
        self.code.store(code, Ordering::Relaxed);
        self.message.store(message);
        // ORDERING: publishes the record; partner is the acquire load in `load`.
        self.stage.store(2, Ordering::Release);
        true
    }

    /// Forgets an abort that has been dealt with; the next one is the first again. Only the launcher calls it.
    pub fn clear(&self) {
        self.stage.store(0, Ordering::Relaxed);
    }

    /// The abort: rank, code, message.
    pub fn load(&self) -> Option<(usize, i32, String)> {
        // ORDERING: partner is the release store in `record`.
        if self.stage.load(Ordering::Acquire) != 2 {
            return None;
        }
        let rank = self.rank.load(Ordering::Relaxed) as usize;
        Some((rank, self.code.load(Ordering::Relaxed), self.message.load_lines()))
    }
}

/// Something that all ranks must have chosen alike. The first to say what it has chosen is compared with.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Agreement {
    /// 0: no choice yet; else the rank plus 1 in the high half, its choice in the low one.
    word: AtomicU64,
}

impl Agreement {
    /// Says what a rank has chosen.
    ///
    /// # Errors
    /// The rank that has chosen something else before.
    pub fn join(&self, rank: usize, choice: u32) -> Result<(), usize> {
        let own = (rank as u64 + 1) << 32 | choice as u64;
        // ORDERING: release: what this rank wrote of its choice before is seen by who is refused for it; acquire is the
        // partner of that.
        let held = self.word.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
        match held {
            Err(first) if first as u32 != choice => Err(((first >> 32) as usize).saturating_sub(1)),
            _ => Ok(()),
        }
    }
}

#[cfg(all(test, feature = "loom"))]
#[allow(non_snake_case)]
mod model {
    use super::*;
    use fastpath_base::sync::explore;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn failure__is_read_whole_or_not_at_all() {
        explore(4, || {
            let record = Arc::new(FailureRecord {
                kind: AtomicU32::new(0),
                rank: AtomicU32::new(0),
                code: AtomicI32::new(0),
            });
            let launcher = {
                let record = record.clone();
                thread::spawn(move || {
                    assert!(record.record(FailureKind::Signal, 3, 11));
                    assert!(!record.record(FailureKind::Exit, 4, 1));
                })
            };
            if let Some(seen) = record.load() {
                assert_eq!(seen, (FailureKind::Signal, 3, 11));
            }
            launcher.join().unwrap();
            assert_eq!(record.load(), Some((FailureKind::Signal, 3, 11)));
        });
    }

    #[test]
    fn abort__of_several_ranks_is_one_of_them_and_whole() {
        explore(2, || {
            let record = Arc::new(AbortRecord {
                stage: AtomicU32::new(0),
                rank: AtomicU32::new(0),
                code: AtomicI32::new(0),
                _reserved: AtomicU32::new(0),
                message: SharedText::new(),
            });
            let texts = ["zero, and more than a word", "one"];
            let ranks = [0, 1].map(|rank| {
                let record = record.clone();
                thread::spawn(move || record.record(rank, rank as i32 + 7, texts[rank]))
            });
            let whole = |seen: (usize, i32, String)| {
                assert_eq!((seen.1, seen.2.as_str()), (seen.0 as i32 + 7, texts[seen.0]));
                seen.0
            };
            let early = record.load().map(whole);
            let won = ranks.map(|rank| rank.join().unwrap());
            assert_eq!(won.iter().filter(|&&won| won).count(), 1);
            let last = whole(record.load().expect("somebody has won"));
            assert!(won[last] && early.is_none_or(|early| early == last));
        });
    }
}
