//! Data that an engine reports about a process.

/// Data that an engine has about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Rank of this process, below `size`.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// The engine's name of the job, equal in all its ranks and unique on this host.
    pub job: String,
    /// Number of the rank's program in the command line, if known.
    pub appnum: Option<usize>,
    /// Largest number of ranks of the job, if known.
    pub universe: Option<usize>,
}
