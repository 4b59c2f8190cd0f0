//! State of the parser, which options change.

use super::spec::{App, JobSpec, Node};
use super::values::Triplet;
use super::{CommandRequest, Surroundings};
use std::path::PathBuf;

/// First word of an agent's command line.
pub const AGENT: &str = "--agent";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    pub name: String,
    pub slots: Option<usize>,
    pub most: Option<usize>,
}

impl HostSpec {
    /// Whether a number of ranks was given for the host.
    pub fn has_slots(&self) -> bool {
        self.slots.or(self.most).is_some()
    }
}

/// Number of ranks per node, as given by `-ppn` or a similar option.
#[derive(Debug)]
pub struct PerNode {
    pub ranks: usize,
    pub typed: String,
    /// Whether more ranks per node than `ranks` are an error.
    pub strict: bool,
}

/// Sources of a program's number of ranks, besides `-n`.
#[derive(Debug, Default)]
pub struct RankCount {
    pub per_node: Option<PerNode>,
    pub soft: Option<Vec<Triplet>>,
    pub host_slots: usize,
    pub file_slots: usize,
    pub hosts: Vec<HostSpec>,
    pub file_hosts: Vec<HostSpec>,
    /// Maximum number of ranks that the hosts allow, and the option that sets it; None if there is no limit.
    pub limit: Option<(usize, String)>,
}

#[derive(Debug)]
pub struct IdleOption {
    pub reason: &'static str,
    pub typed: Vec<String>,
}

pub struct Parser<'a> {
    pub here: &'a dyn Surroundings,
    pub spec: JobSpec,
    pub app: App,
    /// Sources of the current program's number of ranks.
    pub count: RankCount,
    /// Working directory and search path for programs without their own.
    pub global: App,
    /// File of `-configfile` for the current program, if given.
    pub config: Option<PathBuf>,
    /// Request of an option such as `--help` or `--version`; None if a job is to be started.
    pub request: Option<CommandRequest>,
    pub quiet: bool,
    /// In an agent: number of ranks of each node; None in the launcher.
    pub agent: Option<Vec<usize>>,
    /// In an agent: number of ranks of each program, counted before the agent started.
    pub told_ranks: Vec<usize>,
    /// The option that forbids more ranks than slots or processors, as typed; None if it is not given.
    pub no_oversubscribe: Option<String>,
    /// Whether the notice about more ranks than slots is suppressed.
    pub may_oversubscribe: bool,
    /// Whether the words are from a `-configfile`.
    pub in_config: bool,
    pub idle: Vec<IdleOption>,
    pub slots: usize,
    /// Whether a host was named with a number of slots.
    pub has_slots: bool,
    /// Hosts of all programs, with their slots.
    pub nodes: Vec<Node>,
    /// Maximum number of ranks on a node, from `-ppn` or a similar option; None without such an option.
    pub per_node: Option<usize>,
}

impl<'a> Parser<'a> {
    pub fn new(here: &'a dyn Surroundings) -> Parser<'a> {
        Parser {
            here,
            spec: JobSpec::default(),
            app: App::default(),
            count: RankCount::default(),
            global: App::default(),
            config: None,
            request: None,
            quiet: false,
            agent: None,
            told_ranks: Vec::new(),
            no_oversubscribe: None,
            may_oversubscribe: false,
            in_config: false,
            idle: Vec::new(),
            slots: 0,
            has_slots: false,
            nodes: Vec::new(),
            per_node: None,
        }
    }

    pub fn note(&mut self, reason: &'static str, typed: String) {
        match self.idle.iter_mut().find(|idle| idle.reason == reason) {
            Some(idle) if idle.typed.contains(&typed) => {}
            Some(idle) => idle.typed.push(typed),
            None => self.idle.push(IdleOption { reason, typed: vec![typed] }),
        }
    }

    /// Sets `--oversubscribe`, which other launchers require for more ranks than slots.
    pub fn allow_oversubscription(&mut self) {
        (self.no_oversubscribe, self.may_oversubscribe) = (None, true);
    }
}
