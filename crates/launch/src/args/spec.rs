//! A job as described by the command line.

use fastpath_base::topology::{CpuSet, Level};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Exit code of a job that `--timeout` has ended, equal to that of timeout(1).
pub const TIMEOUT_CODE: i32 = 124;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// Programs in order. Ranks are numbered across them.
    pub apps: Vec<App>,
    pub env: Vec<(OsString, OsString)>,
    /// Names of `-x` without a value: variables to export, which the environment must have. A name may end with `*`.
    pub exported: Vec<OsString>,
    /// Variables of the environment that all ranks get.
    pub inherit: Inherit,
    pub output: Output,
    /// Tools that start the programs of some ranks (`-gtool`).
    pub tools: Vec<RankTool>,
    pub stdin: Stdin,
    pub timeout: Option<Duration>,
    /// Grace period of the ranks after SIGTERM or SIGHUP (`--kill-after`). Zero means no limit, None the default.
    pub kill_after: Option<Duration>,
    pub placement: Placement,
    /// Processors to which the job is restricted; None for all allowed processors.
    pub cpus: Option<CpuSet>,
    pub report_bindings: bool,
    pub show_map: bool,
    pub only_show: bool,
    pub exit_codes: bool,
    /// Target for the launcher's process number: `-`, `+` or a file; None if the number is not written.
    pub report_pid: Option<OsString>,
    /// Lines about options without effect; empty if the user suppresses them.
    pub notices: Vec<String>,
    pub nodes: JobNodes,
    /// Number of processes that can usefully run at once (`MPI_UNIVERSE_SIZE`), from `-usize` or the slots of the
    /// hosts. None if it is the number of processors.
    pub universe: Option<usize>,
    pub engine: Option<OsString>,
    /// `--no-agents`: the engine starts the program itself, one process on each node.
    pub no_agents: bool,
    /// Hydra's options about remote nodes, as typed.
    pub hydra_words: Vec<OsString>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobNodes {
    #[default]
    Here,
    /// Several nodes, with an agent on each, started by an engine.
    Several(Vec<Node>),
    /// This process is the agent of one node, whose number the engine knows. Holds the number of ranks of each node.
    Agent(Vec<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name given by the user or the batch system; empty if only the engine knows it.
    pub name: String,
    pub ranks: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App {
    pub ranks: usize,
    pub argv: Vec<OsString>,
    pub wdir: Option<PathBuf>,
    /// Folders that are searched for the program before PATH, separated by `:`; None for PATH alone.
    pub path: Option<OsString>,
    pub env: Vec<(OsString, OsString)>,
    /// Variables of the environment that this program's ranks get; None for those that the job's ranks get.
    pub inherit: Option<Inherit>,
    /// Virtual host of this program's ranks. All programs with None share one virtual host.
    pub virtual_host: Option<OsString>,
}

/// Variables of the launcher's environment that are passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    #[default]
    All,
    Only(Vec<OsString>),
    Except(Vec<OsString>),
}

/// Options for the ranks' output. Patterns are those of `pattern.rs`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Pattern put before each line.
    pub prefix: Vec<u8>,
    pub merge: bool,
    pub files: [Option<Vec<u8>>; 2],
    /// Whether output to a file is also printed.
    pub copy: bool,
}

/// A command that starts the program of some ranks (`-gtool`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTool {
    /// Name and arguments, to which the program's words are appended.
    pub words: Vec<OsString>,
    /// Ranks that the tool starts; None for all.
    pub ranks: Option<CpuSet>,
}

impl RankTool {
    pub fn has_rank(&self, rank: usize) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank))
    }
}

/// Ranks that read standard input; each gets a copy. Other ranks read /dev/null.
#[derive(Debug, PartialEq, Eq)]
pub enum Stdin {
    All,
    Ranks(Vec<usize>),
}

impl Stdin {
    pub fn among(&self, ranks: Range<usize>) -> Vec<usize> {
        match self {
            Stdin::All => ranks.collect(),
            Stdin::Ranks(list) => list.iter().copied().filter(|r| ranks.contains(r)).collect(),
        }
    }
}

impl Default for Stdin {
    fn default() -> Stdin {
        Stdin::Ranks(vec![0])
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub bind: Bind,
    /// Number of places for each rank. None stands for 1 place, or for OMP_NUM_THREADS cores.
    pub per_rank: Option<usize>,
    /// The option that sets `per_rank`, as typed, if it is neither `--bind-to` nor `--map-by`.
    pub per_rank_typed: Option<String>,
    /// Whether hardware threads count as cores.
    pub threads: bool,
    /// Argument of `--map-by`: kind of place over which ranks are distributed round robin, and number of places in a
    /// group. None keeps the ranks in order.
    pub map: Option<(Level, usize)>,
    /// Number of consecutive ranks at each place of `map`; 0 counts as 1.
    pub in_a_row: usize,
    pub rank: RankOrder,
    pub overload: bool,
    /// Whether the warning about an impossible binding is suppressed.
    pub if_supported: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Bind to cores if more than one rank fits, otherwise leave ranks unbound.
    #[default]
    Auto,
    None,
    /// Bind to places of this kind, with a warning if that is impossible.
    To(Level),
    /// Bind ranks to these processor sets, in turn.
    Cpus(Vec<CpuSet>),
}

/// `--rank-by`: order in which mapped processes get their ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankOrder {
    /// Ranks are numbered in mapping order.
    #[default]
    Mapped,
    /// Number all processes of the first mapped place, then all of the next place.
    Fill,
    /// Number processes round robin over places of this kind. None stands for the places of `--map-by`.
    Round(Option<Level>),
}
