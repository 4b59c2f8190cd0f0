//! A job as the command line describes it.

use fastpath_base::topology::{CpuSet, Level};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// A whole job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// Its programs, in order; ranks are numbered across them.
    pub apps: Vec<App>,
    /// Variables set for all ranks.
    pub env: Vec<(OsString, OsString)>,
    /// Variables to be exported that the environment must have; a name may end with `*`.
    pub exported: Vec<OsString>,
    /// Which variables of the environment all ranks get.
    pub inherit: Inherit,
    /// What becomes of the ranks' output.
    pub output: Output,
    /// Who reads standard input.
    pub stdin: Stdin,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// `--kill-after`: grace period of the ranks after SIGTERM or SIGHUP. Zero: no limit. None: the default.
    pub kill_after: Option<Duration>,
    /// Where the ranks run.
    pub placement: Placement,
    /// The processors of the whole job, where they are fewer than allowed.
    pub cpus: Option<CpuSet>,
    /// Say how ranks are bound.
    pub report_bindings: bool,
    /// Say which ranks run what and where.
    pub show_map: bool,
    /// Start nothing.
    pub only_show: bool,
    /// Say how each rank ended.
    pub exit_codes: bool,
    /// Where to write the launcher's process number: `-`, `+` or a file.
    pub report_pid: Option<OsString>,
    /// What is accepted and has no effect, a line each; empty where the user wants no such lines.
    pub notices: Vec<String>,
    /// On which nodes the ranks run.
    pub nodes: Nodes,
    /// Number of processes that can usefully run at once (`MPI_UNIVERSE_SIZE`), where the user gives it by `-usize` or
    /// by slots of hosts.
    pub universe: Option<usize>,
    /// `--engine`: what starts the agents of several nodes.
    pub engine: Option<OsString>,
    /// `--no-agents`: it starts the program itself, one process on each node.
    pub no_agents: bool,
    /// Options that Hydra takes, as typed: how it reaches other nodes.
    pub hydra_words: Vec<OsString>,
}

/// On which nodes the ranks of a job run. Ranks are numbered through, node after node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// All on this one.
    #[default]
    Here,
    /// On several, each with its number of ranks: an engine starts an agent on each.
    Several(Vec<Node>),
    /// This process is the agent of one of them: how many ranks each node has. The engine says which one it is.
    Agent(Vec<usize>),
}

/// A node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// As the user or the batch system names it; empty where the engine knows.
    pub name: String,
    /// How many ranks it gets.
    pub ranks: usize,
}

/// One program of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App {
    /// How many ranks run it.
    pub ranks: usize,
    /// Program and arguments; the program comes first.
    pub argv: Vec<OsString>,
    /// Folder it starts in.
    pub wdir: Option<PathBuf>,
    /// Folders that are searched for the program before those of PATH, separated by `:`.
    pub path: Option<OsString>,
    /// Variables set for its ranks only.
    pub env: Vec<(OsString, OsString)>,
    /// Which variables of the environment its ranks get; none: those of the job.
    pub inherit: Option<Inherit>,
    /// Host that its ranks count as being on; none: the one of all that name none.
    pub virtual_host: Option<OsString>,
}

/// Which variables of the launcher's environment are passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All.
    #[default]
    All,
    /// Only these.
    Only(Vec<OsString>),
    /// All but these.
    Except(Vec<OsString>),
}

/// What becomes of the ranks' output. Patterns are those of `pattern.rs`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Put before each line.
    pub prefix: Vec<u8>,
    /// Standard error goes where standard output goes.
    pub merge: bool,
    /// Files for standard output and standard error.
    pub files: [Option<Vec<u8>>; 2],
    /// What goes to a file is shown as well.
    pub copy: bool,
}

/// Who reads standard input; the others read /dev/null.
#[derive(Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Every rank, a copy each.
    All,
    /// These ranks, a copy each.
    Ranks(Vec<usize>),
}

impl Stdin {
    /// Those of some ranks that read it, in order.
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

/// Where ranks run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `--bind-to`.
    pub bind: Bind,
    /// Places of that kind for each rank; none: 1, or OMP_NUM_THREADS cores.
    pub per_rank: Option<usize>,
    /// The option that says so, as typed, if it is neither `--bind-to` nor `--map-by`.
    pub per_rank_typed: Option<String>,
    /// Hardware threads take the place of cores.
    pub threads: bool,
    /// `--map-by`: ranks go round these places, or round groups of that many of them. None: in order.
    pub map: Option<(Level, usize)>,
    /// So many ranks in a row at each of those places; 0 is 1.
    pub in_a_row: usize,
    /// `--rank-by`.
    pub rank: Rank,
    /// Ranks may share cores.
    pub overload: bool,
    /// No warning where it is not possible.
    pub if_supported: bool,
}

/// `--bind-to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// To cores when more than one rank fits, else not.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// To places of this kind, with a warning when it is not possible.
    To(Level),
    /// To these processors, in turn.
    Cpus(Vec<CpuSet>),
}

/// `--rank-by`: in which order the mapped processes get their ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rank {
    /// As they were mapped.
    #[default]
    Mapped,
    /// All of the first mapped place, then all of the next.
    Fill,
    /// Dealt round the places of this kind; none: those of `--map-by`.
    Round(Option<Level>),
}
