//! Inspection of a running job from outside, for `mpiexec --timeout`, deadlocks, crash reports and `fastpath ps`.
//!
//! | module | contents |
//! |---|---|
//! | [`facts`] | state of each rank, from its page and `/proc` |
//! | [`jobs`] | running jobs |
//! | [`metrics`] | metrics as text for monitoring |
//! | [`verdict`] | whether waiting ranks can continue (pure) |
//! | [`cause`] | the verdict, or else the rank for which most ranks wait |
//! | [`describe`] | states and verdicts as sentences |
//! | [`groups`] | ranks that do the same, as one sentence (pure) |
//! | [`report`] | the cause, then each rank or group |

pub mod cause;
pub mod describe;
pub mod facts;
pub mod groups;
pub mod jobs;
pub mod metrics;
pub mod report;
pub mod verdict;

use fastpath_base::sync::Ordering;
use fastpath_segment::{RankPage, STATE_DEAD, Segment};

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Exited with this code.
    Exit(i32),
    /// Ended by this signal; true if the process left a core file.
    Signal(i32, bool),
    /// Ended in a way that only its parent can observe.
    Unknown,
    /// Unknown, because the process is on another host.
    Elsewhere,
}

/// Process of a rank, as its observer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process that the launcher started for the rank; 0 until it is started.
    pub pid: libc::pid_t,
    /// End of the process; `None` while it runs.
    pub end: Option<ProcessEnd>,
}

/// Returns the processes of a job's ranks, read from the job's memory, for an observer that did not start them.
pub fn find_members(segment: &Segment) -> Vec<Member> {
    let find_end = |page: &RankPage| match page.state.load(Ordering::Relaxed) {
        _ if page.elsewhere.load(Ordering::Relaxed) == 1 => Some(ProcessEnd::Elsewhere),
        STATE_DEAD => Some(ProcessEnd::Unknown),
        _ => None,
    };
    let member = |page: &RankPage| Member {
        pid: page.launched_pid.load(Ordering::Relaxed) as libc::pid_t,
        end: find_end(page),
    };
    (0..segment.present()).filter_map(|rank| segment.page(rank).map(member)).collect()
}
