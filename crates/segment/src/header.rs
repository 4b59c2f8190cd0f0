//! The first page of the segment: state of the whole job.

use crate::text::SharedText;
use fastpath_base::sync::{AtomicI32, AtomicU32, AtomicU64, CacheLine, Ordering};

/// First word of every segment: "FASTPATH".
pub const MAGIC: u64 = u64::from_le_bytes(*b"FASTPATH");

/// Version of the layout, equal in launcher and library.
pub const VERSION: u32 = 23;

/// The job's header. All fields after the first cache line are zero when the ranks start.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct JobHeader {
    /// [`MAGIC`]. The creator writes this line before any rank starts, and it never changes.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Number of places: ranks that can have a page in this memory.
    pub ranks: AtomicU32,
    /// Random number that identifies this job.
    pub job_id: AtomicU64,
    /// Process number of the launcher; 0 without one.
    pub launcher: AtomicU32,
    /// Number of processors that the ranks of this job use together.
    pub processors: AtomicU32,
    /// 1 if each rank is bound to its own processors.
    pub bound: AtomicU32,
    /// KiB that each rank may back with memory before it checks how much memory is available.
    pub budget_kib: AtomicU32,
    /// Number of memory files of the job, one on each node; 0 counts as 1.
    pub nodes: AtomicU32,
    /// Number of ranks of the job so far, including spawned and ended ranks. It never falls. Only the launcher writes
    /// it, after the pages of new ranks are backed.
    pub present: AtomicU32,
    /// Number of processors of all nodes of the job, as reported by agents; 0 if only this node's are known.
    pub universe: AtomicU32,
    /// Number of ranks started by the launcher's command line; 0 if these are all ranks.
    pub began_with: AtomicU32,
    /// Largest number of ranks of the whole job; 0 if all of them have a place here.
    pub job_ranks: AtomicU32,
    /// Number of taken places, if not all ranks of the job have one.
    pub here: AtomicU32,
    /// Number of awake ranks: incremented when a rank attaches or wakes, decremented when it sleeps or finalizes.
    pub awake: CacheLine<AtomicU32>,
    /// Nanoseconds that waking a sleeper costs on this machine, measured by the first rank that needs it; 0 until then.
    pub wake_cost_ns: CacheLine<AtomicU32>,
    /// Incremented after a rank's death or an abort was recorded. A rank that wakes and finds it changed checks the
    /// states of the ranks it waits for.
    pub events: CacheLine<AtomicU32>,
    /// Bytes that ranks are requesting from the kernel now, so that two ranks do not rely on the same free memory.
    pub backing: CacheLine<AtomicU64>,
    /// The first failure.
    pub failure: FailureRecord,
    /// The first `MPI_Abort`.
    pub abort: AbortRecord,
    /// Choice of transports, which must be equal on all ranks.
    pub transports: Agreement,
    /// Secret by which a process proves on a network that it belongs to this job. It is equal in all memory files of
    /// the job, and known only to the job's processes. Written before any rank starts.
    secret: [AtomicU64; SECRET_WORDS],
    /// Choice of transports to ranks without common memory, which must be equal on all ranks.
    pub outside: Agreement,
    /// Choice of named algorithms of collective calls, which must be equal on all ranks.
    pub collectives: Agreement,
    /// Number of stored address cards of ranks of other nodes, including a card that is being written. Ranks whose
    /// addresses differ only in the port can use the same card.
    pub cards: CacheLine<AtomicU32>,
    /// Number of leading places whose pair regions were backed before the ranks started.
    pub ahead: CacheLine<AtomicU32>,
    /// Process number of the rank that is adding ranks of another job, if no launcher adds them; 0 if no rank is adding
    /// any.
    pub adding: CacheLine<AtomicU32>,
    /// Bit set of the [`Notice`]s that a rank of this node has printed.
    notices: CacheLine<AtomicU32>,
    /// Number of leading places that are never reused: those of the node's first ranks. Written by the creator.
    pub kept_places: CacheLine<AtomicU32>,
    /// Number of first ranks whose place equals their rank number. In a job on one node, all first ranks have such a
    /// place. Written by the creator.
    pub ordered: AtomicU32,
    /// 1 once a rank reaches another rank of its node by an adapter. No place is reused then, because such connections
    /// keep referring to the rank's page.
    pub is_pinned: AtomicU32,
    /// 1 while ranks wait in `MPI_Init` because a debugger is about to attach. Only the launcher writes it.
    pub is_held: AtomicU32,
    /// 1 if the job continues after ranks have died (`FASTPATH_FT`). Written by the launcher, and by ranks.
    pub tolerates_failures: AtomicU32,
}

/// Notices that every rank of a job may have to print.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Unexpected messages have reached their bound.
    Flood,
    /// A progress thread cannot be started.
    ProgressThread,
    /// A trace cannot be recorded.
    Trace,
    /// Connections cannot be accepted.
    Connections,
}

const SECRET_WORDS: usize = 4;

impl JobHeader {
    /// Returns whether the calling rank is the first of its node with this notice. Only that rank prints it.
    pub fn is_first_notice(&self, notice: Notice) -> bool {
        let bit = 1 << notice as u32;
        self.notices.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Returns the job's secret.
    pub fn secret(&self) -> [u8; 8 * SECRET_WORDS] {
        let mut bytes = [0; 8 * SECRET_WORDS];
        for (chunk, word) in bytes.chunks_mut(8).zip(&self.secret) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// Writes the job's secret. Only the creator of the memory calls it, before any rank starts.
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
    assert!(size_of::<JobHeader>() == crate::layout::PAGE_BYTES);
    assert!(align_of::<JobHeader>() == crate::layout::PAGE_BYTES);
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

/// Kind of a rank's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Ended by this signal.
    Signal,
    /// Exited with this code, not 0.
    Exit,
    /// Exited with code 0 after initialising MPI and without finalizing it.
    NoFinalize,
    /// Called `MPI_Abort` with this code.
    Abort,
    /// Ended without finalizing MPI, in a way that only its parent can observe.
    Gone,
}

/// First failure of the job. The launcher writes it or, without our launcher, the rank that watches the node.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct FailureRecord {
    kind: AtomicU32,
    rank: AtomicU32,
    code: AtomicI32,
}

impl FailureRecord {
    /// Records a failure if none is recorded yet. Returns whether it was recorded.
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

    /// Returns the failure: kind, rank, and signal or code.
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
    /// Records an abort if none is recorded yet. Returns whether it was recorded.
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

    /// Clears a handled abort, so that the next abort is recorded. Only the launcher calls this function.
    pub fn clear(&self) {
        self.stage.store(0, Ordering::Relaxed);
    }

    /// Returns the abort: rank, code, message.
    pub fn load(&self) -> Option<(usize, i32, String)> {
        // ORDERING: partner is the release store in `record`.
        if self.stage.load(Ordering::Acquire) != 2 {
            return None;
        }
        let rank = self.rank.load(Ordering::Relaxed) as usize;
        Some((rank, self.code.load(Ordering::Relaxed), self.message.load_lines()))
    }
}

/// A choice that must be equal on all ranks. Every rank's choice is compared with the first one.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Agreement {
    /// 0 before the first choice; then the first rank plus 1 in the high half, and its choice in the low half.
    word: AtomicU64,
}

impl Agreement {
    /// Records a rank's choice, or compares it with the first one.
    ///
    /// # Errors
    /// The rank that recorded another choice first.
    pub fn join(&self, rank: usize, choice: u32) -> Result<(), usize> {
        let own = (rank as u64 + 1) << 32 | choice as u64;
        // ORDERING: release: a rank whose choice is refused sees what this rank wrote about its choice. Partner is the
        // acquire of the same exchange.
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
