//! From words to a job.

use super::hosts::{Host, add_hosts, deal_ranks, read_tasks};
use super::spec::{App, JobSpec, Node, Nodes};
use super::table::{Does, Opt, SECTIONS, Takes};
use super::values::{Triplet, largest};
use super::{Request, Surroundings, UsageError, wrong};
use clap_lex::{OsStrExt, ParsedArg, RawArgs};
use fastpath_base::topology::Level;
use fastpath_bootstrap::segment::{MAX_JOB_RANKS, MAX_RANKS};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The first word of an agent's command line.
pub const AGENT: &str = "--agent";

/// An option as it was typed.
#[derive(Debug)]
pub struct Given {
    /// Its name, with dashes.
    pub name: String,
    /// The words that belong to it.
    pub values: Vec<OsString>,
}

impl Given {
    /// Its first word; empty if it takes none.
    pub fn value(&self) -> &OsStr {
        self.values.first().map_or(OsStr::new(""), |v| v)
    }

    /// Its first word as text.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        self.value().to_string_lossy()
    }

    /// The option whole.
    pub fn typed(&self) -> String {
        let mut text = self.name.clone();
        for value in &self.values {
            text.push(' ');
            text.push_str(&value.to_string_lossy());
        }
        text
    }
}

/// How many ranks run on a node, by `-ppn` and its like.
#[derive(Debug)]
pub struct PerNode {
    /// So many.
    pub ranks: usize,
    /// The option that says so.
    pub typed: String,
    /// More are refused.
    pub strict: bool,
}

/// What says how many ranks a program has, besides `-n`.
#[derive(Debug, Default)]
pub struct Count {
    /// `-ppn` and its like.
    pub per_node: Option<PerNode>,
    /// `-soft`.
    pub soft: Option<Vec<Triplet>>,
    /// Slots of `--host`.
    pub host_slots: usize,
    /// Slots of `--hostfile`.
    pub file_slots: usize,
    /// Hosts of `--host`.
    pub hosts: Vec<Host>,
    /// Hosts of `--hostfile`.
    pub file_hosts: Vec<Host>,
    /// Most ranks that the hosts allow, and the option that says so.
    pub limit: Option<(usize, String)>,
}

/// Options without effect that have one reason in common.
#[derive(Debug)]
struct Idle {
    reason: &'static str,
    typed: Vec<String>,
}

/// Reads the words of a command line.
pub struct Parser<'a> {
    /// The machine.
    pub here: &'a dyn Surroundings,
    /// The job so far.
    pub spec: JobSpec,
    /// The program that is being read.
    pub app: App,
    /// What says how many ranks it has.
    pub count: Count,
    /// Folder and search path for programs that name none.
    pub global: App,
    /// `-configfile` of this program.
    pub config: Option<PathBuf>,
    /// Help or version was asked for.
    pub request: Option<Request>,
    /// No notices.
    pub quiet: bool,
    /// This process is the agent of a node: how many ranks each node has.
    pub agent: Option<Vec<usize>>,
    /// How many ranks each program has, given to an agent: it may see another allocation than the process that counted
    /// them.
    pub told_ranks: Vec<usize>,
    /// More ranks than slots or processors are refused; the option that says so.
    pub no_oversubscribe: Option<String>,
    /// More ranks than slots are nothing to tell of.
    may_oversubscribe: bool,
    /// The words are those of a `-configfile`.
    in_config: bool,
    idle: Vec<Idle>,
    slots: usize,
    /// Some host was named with a number of slots.
    has_slots: bool,
    /// The hosts of all programs, with their slots.
    nodes: Vec<Node>,
    /// Most ranks of a node, by `-ppn` and its like.
    per_node: Option<usize>,
}

/// Reads the words after the launcher's own name.
///
/// # Errors
/// What cannot be understood; nothing was started.
pub fn parse_args<I>(words: I, here: &dyn Surroundings) -> Result<Request, UsageError>
where
    I: IntoIterator<Item = OsString>,
{
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.is_empty() {
        return wrong(
            "no program given; mpiexec -n N PROGRAM [ARGUMENTS] runs it on N ranks".into(),
        );
    }
    if words[0] == AGENT {
        words = super::hosts::read_agent_words(words);
    }
    let mut parser = Parser::new(here);
    parser.read_programs(&words)?;
    match parser.request.take() {
        Some(request) => Ok(request),
        None => Ok(Request::Run(Box::new(parser.finish()?))),
    }
}

impl<'a> Parser<'a> {
    fn new(here: &'a dyn Surroundings) -> Parser<'a> {
        Parser {
            here,
            spec: JobSpec::default(),
            app: App::default(),
            count: Count::default(),
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

    /// Reads programs with `:` between them.
    fn read_programs(&mut self, words: &[OsString]) -> Result<(), UsageError> {
        for part in words.split(|w| w == ":") {
            self.app = App::default();
            // What stands before a file of programs is of its first one.
            self.read_options(part)?;
            if self.request.is_some() {
                return Ok(());
            }
            match self.config.take() {
                Some(path) => self.read_config(path)?,
                None => self.finish_app()?,
            }
        }
        Ok(())
    }

    /// Reads options up to the first word that is none: from there on all is the program's.
    fn read_options(&mut self, words: &[OsString]) -> Result<(), UsageError> {
        let raw = RawArgs::new(words);
        let mut cursor = raw.cursor();
        while let Some(word) = raw.peek(&cursor) {
            if word.is_escape() {
                raw.next_os(&mut cursor);
                break;
            }
            let Some((name, attached)) = split_option(&word) else {
                break;
            };
            raw.next_os(&mut cursor);
            let option = find_option(&name)?;
            let mut values: Vec<OsString> = attached.into_iter().collect();
            if !values.is_empty() && option.takes == Takes::Nothing {
                return wrong(format!("{name} takes no value"));
            }
            while values.len() < words_wanted(option, &values) {
                match raw.peek_os(&cursor) {
                    Some(value) => values.push(value.to_owned()),
                    None => return wrong(format!("{name} needs {}", describe_words(option.takes))),
                }
                raw.next_os(&mut cursor);
            }
            self.apply(option, Given { name, values })?;
            if self.request.is_some() {
                return Ok(());
            }
        }
        self.app.argv = raw.remaining(&mut cursor).map(OsStr::to_owned).collect();
        Ok(())
    }

    fn apply(&mut self, option: &'static Opt, given: Given) -> Result<(), UsageError> {
        match option.does {
            Does::Apply(apply) => apply(self, &given),
            Does::Set(set) => {
                set(self, &given);
                Ok(())
            }
            Does::Always => Ok(()),
            Does::Idle => {
                self.note(option.help, given.typed());
                Ok(())
            }
        }
    }

    /// Notes an option that has no effect.
    pub fn note(&mut self, reason: &'static str, typed: String) {
        match self.idle.iter_mut().find(|idle| idle.reason == reason) {
            Some(idle) if idle.typed.contains(&typed) => {}
            Some(idle) => idle.typed.push(typed),
            None => self.idle.push(Idle { reason, typed: vec![typed] }),
        }
    }

    /// Reads the lines of a `-configfile`, each a program.
    fn read_config(&mut self, path: PathBuf) -> Result<(), UsageError> {
        if std::mem::replace(&mut self.in_config, true) {
            return wrong("a file of programs names no further one".into());
        }
        if self.app != App::default() {
            return wrong(format!(
                "-configfile {}: programs and their options, such as -n, stand in the file",
                path.display()
            ));
        }
        let text = self.here.read(&path).or_else(|e| {
            let path = path.display();
            wrong(format!("-configfile {path}: {e}"))
        })?;
        let place = path.display().to_string();
        let lines = super::config::split_lines(&text, &place)?;
        if lines.is_empty() {
            return wrong(format!("-configfile {place}: it names no program"));
        }
        for (number, words) in lines {
            self.read_programs(&words).or_else(|e| wrong(format!("{place} line {number}: {e}")))?;
        }
        self.in_config = false;
        Ok(())
    }

    fn finish_app(&mut self) -> Result<(), UsageError> {
        if self.app.argv.is_empty() {
            return wrong("no program given (after the options, or beside a `:`)".into());
        }
        let mut count = std::mem::take(&mut self.count);
        if count.hosts.is_empty() {
            count.hosts = std::mem::take(&mut count.file_hosts);
        }
        if count.hosts.is_empty() {
            self.read_allocation(&mut count)?;
        }
        self.has_slots |= count.hosts.iter().any(Host::has_slots);
        add_hosts(&mut self.nodes, &count.hosts);
        self.per_node = self.per_node.or(count.per_node.as_ref().map(|p| p.ranks));
        let slots = match count.host_slots {
            0 => count.file_slots,
            slots => slots,
        };
        self.slots += slots;
        let mut app = std::mem::take(&mut self.app);
        app.ranks = match self.told_ranks.get(self.spec.apps.len()) {
            Some(&ranks) => ranks,
            None => self.count_ranks(app.ranks, slots, &count)?,
        };
        self.spec.apps.push(app);
        Ok(())
    }

    /// The number of ranks of a program: `asked` by -n, 0 where it is missing.
    fn count_ranks(
        &mut self, asked: usize, slots: usize, count: &Count,
    ) -> Result<usize, UsageError> {
        let nodes = self.count_nodes();
        let mut ranks = match (asked, &count.per_node) {
            (0, Some(per_node)) => per_node.ranks * nodes,
            (0, None) if count.soft.is_some() => MAX_RANKS,
            // Like others, a list of hosts with slots says how many ranks there are.
            (0, None) => slots.max(1),
            (n, Some(p)) if n > p.ranks * nodes && p.strict => {
                return wrong(format!(
                    "{n} ranks, but {} allows {} on each of {nodes} nodes: leave it out, ask for \
                     fewer ranks, or name more hosts",
                    p.typed, p.ranks
                ));
            }
            (n, Some(p)) if n > p.ranks && nodes == 1 => {
                self.note("all ranks run on this node", p.typed.clone());
                n
            }
            (n, _) => n,
        };
        if let Some(soft) = &count.soft {
            ranks = largest(soft, ranks).map_or_else(
                || wrong(format!("-soft allows no number of ranks up to {ranks}")),
                Ok,
            )?;
        }
        if let Some((limit, who)) = &count.limit
            && ranks > *limit
        {
            return wrong(format!("{ranks} ranks: {who} allows {limit} (max_slots)"));
        }
        Ok(ranks)
    }

    fn finish(mut self) -> Result<JobSpec, UsageError> {
        let total = self.spec.apps.iter().map(|a| a.ranks).fold(0usize, usize::saturating_add);
        if total > MAX_JOB_RANKS {
            return wrong(format!("{total} ranks: at most {MAX_JOB_RANKS} are possible"));
        }
        if self.told_ranks.is_empty() {
            self.check_room(total)?;
        }
        for app in &mut self.spec.apps {
            app.wdir = app.wdir.take().or_else(|| self.global.wdir.clone());
            app.path = app.path.take().or_else(|| self.global.path.clone());
        }
        if let super::Stdin::Ranks(list) = &self.spec.stdin
            && let Some(rank) = list.iter().find(|&&rank| rank >= total)
        {
            return wrong(format!(
                "standard input for rank {rank}: the job has {total} rank{}",
                if total == 1 { "" } else { "s" }
            ));
        }
        if self.has_slots {
            let slots = self.nodes.iter().map(|node| node.ranks).sum();
            self.spec.universe.get_or_insert(slots);
        }
        self.spec.nodes = self.place(total)?;
        let most = match &self.spec.nodes {
            Nodes::Here => total,
            Nodes::Several(nodes) => nodes.iter().map(|node| node.ranks).max().unwrap_or(0),
            Nodes::Agent(counts) => counts.iter().copied().max().unwrap_or(0),
        };
        if most > MAX_RANKS {
            return wrong(format!("{most} ranks: at most {MAX_RANKS} are possible on one node"));
        }
        if self.spec.nodes == Nodes::Here {
            for pair in std::mem::take(&mut self.spec.hydra_words).chunks(2) {
                let typed: Vec<_> = pair.iter().map(|word| word.to_string_lossy()).collect();
                self.note(super::table::NODES, typed.join(" "));
            }
        }
        if !self.quiet && self.agent.is_none() {
            self.spec.notices = self.idle.iter().map(describe_idle).collect();
            self.spec.notices.extend(self.tell_oversubscription(total));
        }
        Ok(self.spec)
    }

    /// How many nodes there are: all names of this one are one.
    fn count_nodes(&self) -> usize {
        let is_here = |node: &&Node| !node.name.is_empty() && self.here.is_here(&node.name);
        let here = self.nodes.iter().filter(is_here).count();
        (self.nodes.len() - here + here.min(1)).max(1)
    }

    /// On which nodes the ranks run.
    fn place(&mut self, total: usize) -> Result<Nodes, UsageError> {
        if let Some(ranks) = self.agent.take() {
            return match ranks.iter().sum::<usize>() == total {
                true => Ok(Nodes::Agent(ranks)),
                false => wrong(format!("--agent: not the {total} ranks of the job")),
            };
        }
        let nodes = std::mem::take(&mut self.nodes);
        let is_here = |node: &Node| !node.name.is_empty() && self.here.is_here(&node.name);
        let nodes = match nodes.iter().all(is_here) {
            true => Vec::new(),
            false => deal_ranks(nodes, total, self.per_node),
        };
        match nodes.as_slice() {
            [] => Ok(Nodes::Here),
            [one] if is_here(one) => Ok(Nodes::Here),
            _ => Ok(Nodes::Several(nodes)),
        }
    }

    /// The hosts that a batch system has given to this job, where the user names none: several nodes of Slurm, or the
    /// host file of Kubernetes' MPI operator.
    fn read_allocation(&mut self, count: &mut Count) -> Result<(), UsageError> {
        if self.agent.is_some() || !self.nodes.is_empty() {
            return Ok(());
        }
        let variable = |name| self.here.variable(name);
        if let Some(path) = variable("HYDRA_HOST_FILE") {
            let given = Given { name: "HYDRA_HOST_FILE".into(), values: vec![path.into()] };
            super::hosts::take_hostfile(self, &given)?;
            let hosts = std::mem::take(&mut self.count);
            count.hosts = hosts.file_hosts;
            count.file_slots = hosts.file_slots;
            return Ok(());
        }
        let several = variable("SLURM_JOB_NUM_NODES").is_some_and(|n| n.trim() != "1");
        if several
            && let Some(nodes) = variable("SLURM_TASKS_PER_NODE").as_deref().and_then(read_tasks)
        {
            count.file_slots = nodes.iter().map(|node| node.ranks).sum();
            self.nodes = nodes;
        }
        Ok(())
    }

    /// `--oversubscribe`, as other launchers want it.
    pub fn allow_oversubscription(&mut self) {
        (self.no_oversubscribe, self.may_oversubscribe) = (None, true);
    }

    /// The user has said how many ranks the hosts are for, and asks for more.
    fn tell_oversubscription(&self, total: usize) -> Option<String> {
        let slots = self.slots;
        let is_told = self.has_slots && self.per_node.is_none() && !self.may_oversubscribe;
        (is_told && total > slots).then(|| {
            format!(
                "{total} ranks, but the hosts that were named have {slots} slot{}: ranks share \
                 processors (--oversubscribe: without this line; --nooversubscribe: refused)",
                if slots == 1 { "" } else { "s" }
            )
        })
    }

    fn check_room(&self, total: usize) -> Result<(), UsageError> {
        let Some(option) = &self.no_oversubscribe else {
            return Ok(());
        };
        let (room, what) = match self.slots {
            0 => (self.here.count(Level::Thread), "processors"),
            slots => (slots, "slots"),
        };
        if total > room {
            return wrong(format!("{total} ranks, {room} {what}: refused because of {option}"));
        }
        Ok(())
    }
}

fn describe_idle(idle: &Idle) -> String {
    const SHOWN: usize = 4;
    let mut list = idle.typed.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if idle.typed.len() > SHOWN {
        list.push_str(&format!(" and {} more", idle.typed.len() - SHOWN));
    }
    format!("{list}: no effect here: {}", idle.reason)
}

/// Splits an option from the value that is written with `=`. None: the word is no option.
fn split_option(word: &ParsedArg<'_>) -> Option<(String, Option<OsString>)> {
    let text = |name: &OsStr| name.to_string_lossy().into_owned();
    if let Some((name, value)) = word.to_long() {
        let name = name.map_or_else(text, str::to_owned);
        return Some((format!("--{name}"), value.map(OsStr::to_owned)));
    }
    let rest = word.to_short()?.next_value_os()?;
    // `-np=4` is no usual form with one dash, but means one thing only.
    if let Some((name, value)) = rest.split_once("=")
        && let Some(option) = lookup(&text(name))
        && option.takes != Takes::Nothing
    {
        return Some((format!("-{}", text(name)), Some(value.to_owned())));
    }
    Some((format!("-{}", text(rest)), None))
}

/// How many words the option has in all; `values` are there already.
fn words_wanted(option: &Opt, values: &[OsString]) -> usize {
    match option.takes {
        Takes::Nothing => 0,
        Takes::One(_) => 1,
        Takes::Two(..) => 2,
        Takes::Pair => match values.first() {
            // NAME=VALUE; without a name it is no pair, which `apply` says.
            Some(first) if OsStrExt::contains(first.as_os_str(), "=") || first.is_empty() => 1,
            _ => 2,
        },
    }
}

fn describe_words(takes: Takes) -> &'static str {
    match takes {
        Takes::Pair => "a name and a value",
        Takes::Two(..) => "two values after it",
        Takes::Nothing | Takes::One(_) => "a value after it",
    }
}

fn options() -> impl Iterator<Item = &'static Opt> {
    SECTIONS.iter().flat_map(|section| section.options)
}

fn lookup(bare: &str) -> Option<&'static Opt> {
    options().find(|option| {
        let mut names = option.names.split(' ');
        names.any(|name| name.trim_start_matches('-') == bare)
    })
}

fn find_option(name: &str) -> Result<&'static Opt, UsageError> {
    let bare = name.trim_start_matches('-');
    if let Some(option) = lookup(bare) {
        return Ok(option);
    }
    let unknown = format!("unknown option {name}");
    let letters = bare.trim_end_matches(|c: char| c.is_ascii_digit());
    if letters != bare && lookup(letters).is_some_and(|o| matches!(o.takes, Takes::One(_))) {
        let number = &bare[letters.len()..];
        return wrong(format!("{unknown}; is -{letters} {number} meant?"));
    }
    let near = options()
        .flat_map(|option| option.names.split(' '))
        .map(|shown| (shown.trim_start_matches('-'), shown))
        // The distance is at least that of the lengths.
        .filter(|(n, _)| n.len() > 2 && n.len().abs_diff(bare.len()) <= n.len() / 3)
        .map(|(n, shown)| (strsim::damerau_levenshtein(n, bare), n.len() / 3, shown))
        .filter(|(distance, most, _)| distance <= most)
        .min();
    match near {
        Some((.., near)) => {
            wrong(format!("{unknown}; is {near} meant? (mpiexec --help lists all)"))
        }
        None => wrong(format!("{unknown} (mpiexec --help lists all)")),
    }
}
