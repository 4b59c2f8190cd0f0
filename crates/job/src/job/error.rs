use crate::detect::{Claim, describe_remedy};
use crate::engine::EngineError;
use crate::identity::JOB_VARIABLE;
use fastpath_base::config::{Key, VARIABLES};
use fastpath_base::host_topology::TopologyFileError;
use fastpath_segment::SegmentError;

/// Error of a process that finds no place in a job.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The launcher's variable is malformed.
    #[error(
        "{JOB_VARIABLE}={0:?} is invalid: only the mpiexec of this library's release may set it"
    )]
    Variable(String),
    /// The job's memory file is neither inherited nor available from the launcher.
    #[error("cannot find the job's memory: {0}")]
    NoSegment(String),
    /// The segment is unusable.
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
        /// Process that claimed the rank.
        owner: u32,
    },
    /// The processes that the launcher started for the rank have ended, and another rank has its place.
    #[error(
        "rank {0} of this job has ended: the process that mpiexec started for that rank is gone, \
         and so is its process group. This process left the group (setsid) and calls MPI_Init too \
         late"
    )]
    RankEnded(usize),
    /// Another launcher has started several processes, which cannot join one job: each would be a job of one rank.
    #[error("{}", describe_launched(.0))]
    Launched(Box<Claim>),
    /// A launcher's variables have not reached this process.
    #[error(
        "{0}: a program between the launcher and this process removed or changed the launcher's \
         variables, so that each process would be rank 0 of 1"
    )]
    Lost(String),
    /// An engine was found, but failed.
    #[error(
        "{variable}={value} shows that this process is {0}, but the process cannot join the job: \
         {1}",
        variable = .0.variable,
        value = .0.value
    )]
    Engine(Box<Claim>, Box<EngineError>),
    /// The ranks of this host, or the hosts, have not found each other.
    #[error("the ranks of the job cannot find each other: {0}")]
    Join(String),
    /// The file of `FASTPATH_TOPOLOGY` is malformed.
    #[error(transparent)]
    Topology(#[from] TopologyFileError),
}

impl BootstrapError {
    /// Returns the remedy, if the message does not contain it.
    pub fn advice(&self) -> Option<String> {
        match self {
            BootstrapError::Launched(claim) | BootstrapError::Engine(claim, _) => {
                Some(describe_remedy(claim))
            }
            BootstrapError::Lost(_) => Some(format!(
                "leave the launcher's variables as they are (or set {}=1 to run each process as \
                 its own job)",
                VARIABLES[Key::Singleton as usize].name
            )),
            _ => None,
        }
    }

    /// Returns whether another rank reports this error in full.
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
        "{}={} shows that {} has started {started}, but this launcher offers neither PMI-1 nor \
         PMIx, one of which Fastpath needs to join the launcher's job: each process would be rank \
         0 of 1",
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
