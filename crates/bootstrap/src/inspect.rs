//! What can be seen of a running job from outside, and what it means: `mpiexec --timeout`, crash reports and
//! `fastpath ps` say the same.
//!
//! | module | holds |
//! |---|---|
//! | [`facts`] | what pages and `/proc` say of each rank |
//! | [`jobs`] | which jobs run |
//! | [`verdict`] | whether ranks that wait can still go on (pure) |
//! | [`describe`] | both as sentences |

pub mod describe;
pub mod facts;
pub mod jobs;
pub mod verdict;

use crate::segment::{RankPage, STATE_DEAD, Segment};
use fastpath_base::sync::Ordering;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal; true when it left a core file.
    Signal(i32, bool),
    /// It is gone; only its parent knows how.
    Unknown,
    /// None that is known here: it is on another host.
    Elsewhere,
}

/// One rank's process as its observer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process that the launcher started for it; 0 before that.
    pub pid: libc::pid_t,
    /// How it ended; None while it runs.
    pub end: Option<ProcessEnd>,
}

/// The members of a job as its memory names them, for an observer that did not start them.
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
