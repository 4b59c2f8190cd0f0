//! Why a process has no place in a job.

use super::detect::Claim;
use super::{JOB_VARIABLE, environment};
use crate::engine::EngineError;
use crate::segment::SegmentError;

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
    /// Another launcher has started several processes, which would each be alone.
    #[error("{}", describe_launched(.0))]
    Launched(Claim),
    /// The launcher is one that can be talked to, and that failed.
    #[error(
        "{variable}={value} says that this process is {0}, which does not let it join: {1}",
        variable = .0.variable,
        value = .0.value
    )]
    Engine(Claim, Box<EngineError>),
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
            _ => None,
        }
    }

    /// Whether another rank meets the same error and reports it in full.
    pub fn is_told_elsewhere(&self) -> bool {
        matches!(
            self,
            BootstrapError::Launched(Claim { rank: Some(1..), .. })
                | BootstrapError::Engine(Claim { rank: Some(1..), .. }, _)
        )
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
