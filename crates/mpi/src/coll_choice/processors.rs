//! How the ranks of a job share processors.

use super::{Allgather, FEW_RANKS, FLAT_ALLREDUCE, Placement, Size};
use fastpath_job::Job;

const FEW_PROCESSORS: usize = 4;
/// Maximum bytes of a call that goes through one rank where ranks share processors.
const FLAT_BYTES: u64 = 8 << 10;
/// Maximum total bytes of an allgather through one rank.
const FLAT_ALLGATHER: u64 = 16 << 10;
/// Maximum total bytes of an allgather through one rank, from [`MANY_RANKS`] ranks on. Sending all blocks at once would
/// open a pair for any two ranks, which costs more.
const FLAT_ALLGATHER_MANY: u64 = 512 << 10;
const MANY_RANKS: u32 = 16;
/// Maximum total bytes of [`Allgather::Together`] where ranks share processors: up to [`FEW_RANKS`] ranks, and above.
const TOGETHER_FEW: u64 = 128 << 10;
const TOGETHER_MORE: u64 = 2 << 20;
/// Minimum bytes of an allreduce through shared buffers where ranks share processors, for few and for many ranks.
const SHARED_ALLREDUCE: u64 = FLAT_ALLREDUCE + 1;
const SHARED_ALLREDUCE_MANY: u64 = 16 << 10;
/// Minimum total bytes of an allgather through shared buffers where ranks share processors, for few ranks and for more.
const SHARED_ALLGATHER: u64 = 32 << 10;
const SHARED_ALLGATHER_MORE: u64 = 8 << 10;

/// What the ranks of a call share. Equal on all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPlace<'a> {
    pub(crate) room: JobProcessors<'a>,
    /// Whether shared buffers may be used; false for fewer than 3 ranks.
    pub(crate) may_share: bool,
    /// Whether shared lines may be used; false for fewer than 3 ranks.
    pub(crate) may_line: bool,
}

impl<'a> CallPlace<'a> {
    /// Returns the place of ranks that have only messages.
    pub(crate) fn messages(room: JobProcessors<'a>) -> CallPlace<'a> {
        CallPlace { room, may_share: false, may_line: false }
    }

    /// Returns whether calls use lines by default.
    pub(super) fn uses_lines(self) -> bool {
        self.may_line && self.room == JobProcessors::Own
    }

    /// Returns whether calls use shared buffers, synchronized by lines, by default.
    pub(super) fn shares_by_lines(self) -> bool {
        self.may_share && self.uses_lines()
    }
}

/// Whether the job has a processor for each of its ranks, awake or asleep. Constant, and equal on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobProcessors<'a> {
    /// One processor for each rank.
    Own,
    /// Fewer processors than ranks.
    Shared,
    /// Fewer processors than ranks, and at most [`FEW_PROCESSORS`].
    Tight,
    /// The ranks are on several hosts.
    Hosts(&'a Placement),
}

impl JobProcessors<'_> {
    #[inline]
    pub(crate) fn on_host(job: &Job) -> JobProcessors<'static> {
        // Later spawns and the member's node must not change the value: all members of a communicator need one value.
        if job.nodes() > 1 || job.began_with() <= job.processors() {
            JobProcessors::Own
        } else if job.processors() > FEW_PROCESSORS {
            JobProcessors::Shared
        } else {
            JobProcessors::Tight
        }
    }

    pub(super) fn is_shared(self) -> bool {
        matches!(self, JobProcessors::Shared | JobProcessors::Tight)
    }

    /// Returns whether there are several hosts, and one of them has several of the ranks.
    pub(super) fn has_levels(self) -> bool {
        matches!(self, JobProcessors::Hosts(on) if on.spread.has_levels())
    }

    /// Returns whether an algorithm that the user named may combine operands within hosts first. If the operation does
    /// not commute, each host must have consecutive ranks, which keeps the order of operands.
    pub(super) fn may_combine(self, size: Size) -> bool {
        matches!(self, JobProcessors::Hosts(on) if on.spread.has_levels()
            && (size.commutes || on.spread.in_blocks))
    }

    /// Returns the algorithm of an allgather of ranks that share processors; `None` if sharing does not change the
    /// choice.
    pub(super) fn allgather(self, total: u64, ranks: u32) -> Option<Allgather> {
        let (flat, together) = match ranks {
            0..=FEW_RANKS => (0, TOGETHER_FEW),
            MANY_RANKS => (FLAT_ALLGATHER_MANY, TOGETHER_MORE),
            _ if ranks > MANY_RANKS => (FLAT_ALLGATHER_MANY, 0),
            _ => (FLAT_ALLGATHER, TOGETHER_MORE),
        };
        match self {
            JobProcessors::Own | JobProcessors::Hosts(_) => None,
            _ if self.is_flat(total, flat) && flat != 0 => Some(Allgather::Flat),
            _ if total <= together => Some(Allgather::Together),
            _ if ranks <= FEW_RANKS => Some(Allgather::Ring),
            _ => None,
        }
    }

    pub(super) fn shares_allgather(self, total: u64, ranks: u32) -> bool {
        let from = match ranks <= FEW_RANKS {
            true => SHARED_ALLGATHER,
            false => SHARED_ALLGATHER_MORE,
        };
        self.is_shared() && total >= from
    }

    pub(super) fn shares_allreduce(self, bytes: u64, ranks: u32) -> bool {
        let from = match ranks < MANY_RANKS {
            true => SHARED_ALLREDUCE,
            false => SHARED_ALLREDUCE_MANY,
        };
        self.is_shared() && bytes >= from
    }

    /// Returns whether a call of `bytes` bytes goes through one rank. `tight` is the limit for
    /// [`JobProcessors::Tight`].
    #[inline]
    pub(super) fn is_flat(self, bytes: u64, tight: u64) -> bool {
        match self {
            JobProcessors::Own | JobProcessors::Hosts(_) => false,
            JobProcessors::Shared => bytes <= FLAT_BYTES,
            JobProcessors::Tight => bytes <= tight,
        }
    }
}
