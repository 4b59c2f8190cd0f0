//! Why a process has no place in a job.

use super::detect::Claim;
use super::{JOB_VARIABLE, environment};
use crate::engine::EngineError;
use crate::segment::SegmentError;
use std::fmt;

/// Why a process could not find its place in a job.
#[derive(Debug)]
pub enum BootstrapError {
    /// The launcher's variable is malformed.
    Variable(String),
    /// The job's memory file is neither inherited nor to be had from the launcher.
    NoSegment(String),
    /// The segment cannot be used.
    Segment(SegmentError),
    /// Another process is, or was, this rank.
    RankTaken {
        /// The rank.
        rank: usize,
        /// The process that took it.
        owner: u32,
    },
    /// Another launcher has started several processes, which would each be alone.
    Launched(Claim),
    /// The launcher is one that can be talked to, and that failed.
    Engine(Claim, Box<EngineError>),
    /// The ranks of this host, or the hosts, have not found each other.
    Join(String),
}

impl BootstrapError {
    /// What to do, where that is more than what the message says.
    pub fn advice(&self) -> Option<String> {
        match self {
            BootstrapError::Launched(claim) | BootstrapError::Engine(claim, _) => {
                Some(environment::describe_remedy(claim))
            }
            _ => None,
        }
    }

    /// Whether another rank meets the same error and tells it in full.
    pub fn is_told_elsewhere(&self) -> bool {
        matches!(
            self,
            BootstrapError::Launched(Claim {
                rank: Some(1..),
                ..
            }) | BootstrapError::Engine(
                Claim {
                    rank: Some(1..),
                    ..
                },
                _
            )
        )
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootstrapError::Variable(text) => write!(
                f,
                "{JOB_VARIABLE}={text:?} cannot be understood: it is set by mpiexec and must be \
                 left alone (is mpiexec of another release?)"
            ),
            BootstrapError::NoSegment(why) => write!(f, "cannot find the job's memory: {why}"),
            BootstrapError::Segment(e) => write!(f, "cannot use the job's memory: {e}"),
            BootstrapError::RankTaken { rank, owner } => write!(
                f,
                "process {owner} has been rank {rank} of this job already: each process that \
                 mpiexec starts may run one MPI program, once"
            ),
            BootstrapError::Engine(claim, why) => write!(
                f,
                "{}={} says that this process is {claim}, which does not let it join: {why}",
                claim.variable, claim.value
            ),
            BootstrapError::Join(why) => write!(f, "the job's ranks do not meet: {why}"),
            BootstrapError::Launched(claim) => write!(
                f,
                "{}={} says that {} has started {}, and it offers neither PMI-1 nor PMIx, by which \
                 Fastpath could take part in its job: each process would be rank 0 of 1",
                claim.variable,
                claim.value,
                claim.launcher,
                match claim.size {
                    Some(_) => "several processes",
                    None => "this process and perhaps others",
                }
            ),
        }
    }
}

impl std::error::Error for BootstrapError {}

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
