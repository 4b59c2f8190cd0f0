//! Policy of waits, and state learnt from earlier waits.

mod census;
mod oversubscription;
mod poll_yields;
mod spin_budget;

pub use census::Census;
pub(crate) use census::WakeEvents;
pub use oversubscription::Oversubscription;
pub use poll_yields::PollYields;
pub(crate) use spin_budget::SPIN_NS;
pub use spin_budget::SpinBudget;

use fastpath_base::config::{Config, Key, WaitMode};
use fastpath_base::sleepers::Sleepers;
use fastpath_base::tell::FixedString;
use fastpath_base::topology::CpuSet;
use fastpath_base::{clock, wait};

/// While other threads wait, a thread makes only 1/`COMPANY_SHARE` of its polls: the others may need its processor.
const COMPANY_SHARE: u32 = 4;

/// Description of a wait by the layer above.
#[derive(Debug, Default)]
pub struct Title {
    /// Name of the communicator for the user; empty for none.
    pub comm: FixedString<64>,
    /// Call that began the awaited operation; empty if the waiting call began it.
    pub began: &'static str,
    /// Rank of the peer in the communicator, if [`crate::waiting::Note::peer`] does not have it.
    pub peer: Option<i32>,
    /// Bytes of each message that the library adds to the program's data.
    pub added: u64,
}

/// Function that lets other threads of the process enter MPI while its argument runs.
pub type ReleaseLock = fn(&mut dyn FnMut());

/// Policy and state of this process's waits.
pub struct WaitPolicy {
    /// Mode that the user chose.
    pub mode: WaitMode,
    /// Processors that the ranks of this node may use.
    pub processors: u32,
    /// Nanoseconds that a rank with its own processor spins before it yields; `None` if not configured.
    pub spin_ns: Option<u64>,
    /// Whether a receive that names its source polls only that source.
    pub directed: bool,
    /// Function that releases the lock, if threads need one: at `MPI_THREAD_MULTIPLE`, or with a progress thread.
    pub release_lock: Option<ReleaseLock>,
    /// Whether other threads of the program may call MPI: at `MPI_THREAD_MULTIPLE`.
    pub multiple: bool,
    /// Returns whether another thread tries to enter MPI.
    pub wanted: fn() -> bool,
    /// Sleeping threads.
    pub census: Census,
    /// Number of threads that wait in this worker, awake or asleep.
    pub waiting: u32,
    /// Sleeping threads that this process has not woken.
    pub sleepers: Sleepers<WakeEvents>,
    /// Arrivals may take the fast path (`drain_next`) if this many threads sleep: 0, or `u32::MAX` for never.
    pub drain_at: u32,
    /// Number of calls, such as tests, that returned "not yet", modulo 256.
    pub misses: u8,
    /// Decides which unsuccessful polls yield if ranks share processors.
    pub poll_yields: PollYields,
    /// Time when this process last moved to another processor, in nanoseconds.
    pub moved_ns: u64,
    /// Time of the next scan of the other ranks' processors, in nanoseconds.
    pub spread_ns: u64,
    /// Result of the last scan; its memory is reused.
    pub seen: RankScan,
    /// State of waits on an oversubscribed node.
    pub oversubscription: Oversubscription,
    /// Polling time before a sleep that an adapter ends.
    pub spin_budget: SpinBudget,
}

impl WaitPolicy {
    /// Returns the policy of a configuration, for a node whose ranks may use `processors` processors.
    pub fn of(config: &Config, processors: u32, release_lock: Option<ReleaseLock>) -> Self {
        WaitPolicy {
            mode: config.wait_mode(),
            processors,
            spin_ns: config.number(Key::Spin),
            directed: !config.is_disabled("directed"),
            release_lock,
            multiple: release_lock.is_some(),
            wanted: || false,
            census: Census::default(),
            waiting: 0,
            sleepers: Sleepers::default(),
            drain_at: match config.is_disabled("drain") {
                true => u32::MAX,
                false => 0,
            },
            misses: 0,
            poll_yields: PollYields::default(),
            moved_ns: 0,
            spread_ns: 0,
            seen: RankScan::default(),
            oversubscription: Oversubscription::of(!config.is_disabled("oversubscription")),
            spin_budget: SpinBudget::of(!config.is_disabled("spin-budget")),
        }
    }

    /// Returns whether another thread tries to enter MPI.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.release_lock.is_some() && (self.wanted)()
    }

    pub(crate) fn has_company(&self) -> bool {
        self.waiting - self.sleepers.count() > 1
    }

    /// Returns how many of `polls` polls a thread makes before it waits: fewer if other threads wait.
    #[inline]
    pub fn spin_polls(&self, polls: u32) -> u32 {
        match self.waiting == self.sleepers.count() {
            true => polls,
            false => polls / COMPANY_SHARE,
        }
    }

    /// Returns a copy of the lock's release function, usable while other threads use the worker.
    pub(crate) fn door(&self) -> LockYield {
        LockYield(self.release_lock)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LockYield(Option<ReleaseLock>);

impl LockYield {
    /// Runs `pause` while other threads may enter MPI.
    pub fn outside(self, pause: &mut dyn FnMut()) {
        match self.0 {
            Some(release_lock) => release_lock(pause),
            None => pause(),
        }
    }

    /// Yields the processor and the lock. Returns the times, in nanoseconds, when the yield of the processor began and
    /// ended.
    pub fn yield_timed(self) -> (u64, u64) {
        let (mut began, mut ended) = (0, 0);
        self.outside(&mut || {
            began = clock::now_ns();
            wait::yield_now();
            ended = clock::now_ns();
        });
        (began, ended)
    }
}

/// Processor of an awake rank, and whether the rank waits.
pub(crate) type AwakeRank = (usize, bool);

/// Result of a scan of the other ranks.
#[derive(Debug, Clone, Default)]
pub struct RankScan {
    pub(crate) places: Vec<AwakeRank>,
    pub(crate) allowed: CpuSet,
}
