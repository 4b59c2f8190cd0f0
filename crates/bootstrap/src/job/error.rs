//! Why a process has no place in a job.

use super::detect::Claim;
use super::{JOB_VARIABLE, environment};
use crate::engine::EngineError;
use crate::segment::SegmentError;
use fastpath_base::config::{Key, VARIABLES};

/// Why a process could not find its place in a job.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The launcher's variable is malformed.
    #[error(
        "{JOB_VARIABLE}={0:?} cannot be understood: it is set by mpiexec and must be left alone \
         (is mpiexec of another release?)"
    )]
    Variable(String),
    /// The job's memory file is neither inherited nor to be had from the launcher.
    #[error("cannot find the job's memory: {0}")]
    NoSegment(String),
    /// The segment cannot be used.
    #[error("cannot use the job's memory: {0}")]
    Segment(SegmentError),
    /// Another process is, or was, this rank.
    #[error(
        "process {owner} has been rank {rank} of this job already: each process that mpiexec \
         starts may run one MPI program, once"
    )]
    RankTaken {
        /// The rank.
        rank: usize,
        /// The process that took it.
        owner: u32,
    },
    /// The processes that the launcher had started for the rank have ended, and its place is another rank's.
    #[error(
        "rank {0} of this job has ended: the process that mpiexec started for it, and its process \
         group, are gone, and this one has left that group (setsid) and initializes MPI too late"
    )]
    RankEnded(usize),
    /// Another launcher has started several processes, which would each be alone.
    #[error("{}", describe_launched(.0))]
    Launched(Box<Claim>),
    /// What a launcher has told its processes has not come as far as this one.
    #[error(
        "{0}: a program on the way to this process has removed or changed what the launcher has \
         told it, and each process would be rank 0 of 1"
    )]
    Lost(String),
    /// The launcher is one that can be talked to, and that failed.
    #[error(
        "{variable}={value} says that this process is {0}, which does not let it join: {1}",
        variable = .0.variable,
        value = .0.value
    )]
    Engine(Box<Claim>, Box<EngineError>),
    /// The ranks of this host, or the hosts, have not found each other.
    #[error("the job's ranks do not meet: {0}")]
    Join(String),
}

impl BootstrapError {
    /// What to do, where that is more than what the message says.
    pub fn advice(&self) -> Option<String> {
        match self {
            BootstrapError::Launched(claim) | BootstrapError::Engine(claim, _) => {
                Some(environment::describe_remedy(claim))
            }
            BootstrapError::Lost(_) => Some(format!(
                "leave the launcher's variables as they are (or set {}=1 if each process is to be \
                 a job of its own)",
                VARIABLES[Key::Singleton as usize].name
            )),
            _ => None,
        }
    }

    /// Whether another rank meets the same error and reports it in full.
    pub fn is_told_elsewhere(&self) -> bool {
        match self {
            BootstrapError::Launched(claim) | BootstrapError::Engine(claim, _) => {
                claim.rank.is_some_and(|rank| rank > 0)
            }
            _ => false,
        }
    }
}

fn describe_launched(claim: &Claim) -> String {
    let started = match claim.size {
        Some(_) => "several processes",
        None => "this process and perhaps others",
    };
    format!(
        "{}={} says that {} has started {started}, and it offers neither PMI-1 nor PMIx, by which \
         Fastpath could take part in its job: each process would be rank 0 of 1",
        claim.variable, claim.value, claim.launcher
    )
}

impl From<EngineError> for BootstrapError {
    fn from(e: EngineError) -> BootstrapError {
        BootstrapError::Join(e.to_string())
    }
}

impl From<SegmentError> for BootstrapError {
    fn from(e: SegmentError) -> BootstrapError {
        BootstrapError::Segment(e)
    }
}
