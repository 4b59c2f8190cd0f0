//! Parser from command-line words to a job.

use super::generate::GENERATE;
use super::hosts::{add_hosts, deal_ranks, read_tasks};
use super::parser_state::{AGENT, HostSpec, IdleOption, Parser, RankCount};
use super::spec::{App, JobNodes, JobSpec, Node};
use super::table::{Opt, OptionArguments, OptionEffect, SECTIONS};
use super::values::{GivenOption, largest, read_timeout};
use super::{CommandRequest, Surroundings, UsageError, refuse_rank, wrong};
use clap_lex::{OsStrExt, ParsedArg, RawArgs};
use fastpath_base::tell;
use fastpath_base::topology::Level;
use fastpath_segment::{MAX_JOB_RANKS, MAX_RANKS};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Variable with the default of `--timeout`, as in MPICH and Open MPI.
const TIMEOUT_VARIABLE: &str = "MPIEXEC_TIMEOUT";

/// Parses the words after the launcher's own name.
pub fn parse_args<I>(words: I, here: &dyn Surroundings) -> Result<CommandRequest, UsageError>
where
    I: IntoIterator<Item = OsString>,
{
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.is_empty() {
        return wrong(
            "no program given; start a program on N ranks with mpiexec -n N PROGRAM [ARGUMENTS]"
                .into(),
        );
    }
    if let [first, folder] = words.as_slice()
        && first == GENERATE
    {
        return Ok(CommandRequest::Generate(folder.into()));
    }
    if words[0] == AGENT {
        words = super::hosts::read_agent_words(words);
    }
    let mut parser = Parser::new(here);
    parser.read_programs(&words)?;
    match parser.request.take() {
        Some(request) => Ok(request),
        None => Ok(CommandRequest::Run(Box::new(parser.finish()?))),
    }
}

impl Parser<'_> {
    fn read_programs(&mut self, words: &[OsString]) -> Result<(), UsageError> {
        for part in words.split(|w| w == ":") {
            self.app = App::default();
            // Options before a file of programs apply to the file's first program.
            let last_value = self.read_options(part)?;
            if self.request.is_some() {
                return Ok(());
            }
            match self.config.take() {
                Some(path) => self.read_config(path)?,
                None if self.app.argv.is_empty() => {
                    return refuse_missing_program(last_value, words.iter().any(|w| w == ":"));
                }
                None => self.finish_app()?,
            }
        }
        Ok(())
    }

    /// Reads options up to the first other word, which starts the program's command line. Returns the last option
    /// with its value, if the value is a separate word (`-n 4`, not `-n=4`).
    fn read_options(
        &mut self, words: &[OsString],
    ) -> Result<Option<(String, OsString)>, UsageError> {
        let raw = RawArgs::new(words);
        let mut cursor = raw.cursor();
        let mut last_value = None;
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
            last_value = None;
            if !values.is_empty() && option.takes == OptionArguments::Nothing {
                return wrong(format!("{name} takes no value"));
            }
            while values.len() < words_wanted(option, &values) {
                match raw.peek_os(&cursor) {
                    Some(value) => {
                        values.push(value.to_owned());
                        last_value = Some((name.clone(), value.to_owned()));
                    }
                    None => return wrong(format!("{name} needs {}", describe_words(option.takes))),
                }
                raw.next_os(&mut cursor);
            }
            self.apply(option, GivenOption { name, values })?;
            if self.request.is_some() {
                return Ok(None);
            }
        }
        self.app.argv = raw.remaining(&mut cursor).map(OsStr::to_owned).collect();
        Ok(last_value)
    }

    fn apply(&mut self, option: &'static Opt, given: GivenOption) -> Result<(), UsageError> {
        match option.does {
            OptionEffect::Apply(apply) => apply(self, &given),
            OptionEffect::Set(set) => {
                set(self, &given);
                Ok(())
            }
            OptionEffect::Always => Ok(()),
            OptionEffect::Idle => {
                self.note(option.help, given.typed());
                Ok(())
            }
        }
    }

    fn read_config(&mut self, path: PathBuf) -> Result<(), UsageError> {
        if std::mem::replace(&mut self.in_config, true) {
            return wrong(
                "-configfile is not allowed in a file of programs; list all programs in one file"
                    .into(),
            );
        }
        if self.app != App::default() {
            return wrong(format!(
                "-configfile {}: programs and their options, such as -n, must be in the file, not \
                 on the command line",
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
            return wrong(format!(
                "-configfile {place}: the file contains no program; write one program per line"
            ));
        }
        for (number, words) in lines {
            self.read_programs(&words).or_else(|e| wrong(format!("{place} line {number}: {e}")))?;
        }
        self.in_config = false;
        Ok(())
    }

    fn finish_app(&mut self) -> Result<(), UsageError> {
        let mut count = std::mem::take(&mut self.count);
        if count.hosts.is_empty() {
            count.hosts = std::mem::take(&mut count.file_hosts);
        }
        if count.hosts.is_empty() {
            self.read_allocation(&mut count)?;
        }
        self.has_slots |= count.hosts.iter().any(HostSpec::has_slots);
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

    /// Returns the number of ranks of a program. `asked` is the argument of `-n`; 0 if there is none.
    fn count_ranks(
        &mut self, asked: usize, slots: usize, count: &RankCount,
    ) -> Result<usize, UsageError> {
        let nodes = self.count_nodes();
        let mut ranks = match (asked, &count.per_node) {
            (0, Some(per_node)) => per_node.ranks * nodes,
            (0, None) if count.soft.is_some() => MAX_RANKS,
            // Without `-n`, the slots of a host list determine the number of ranks, as in other launchers.
            (0, None) => slots.max(1),
            (n, Some(p)) if n > p.ranks * nodes && p.strict => {
                let plural = if nodes == 1 { "" } else { "s" };
                return wrong(format!(
                    "-n {n} is too many ranks: {0} allows {1} on each of {nodes} host{plural}; \
                     omit {0}, lower -n, or add hosts",
                    p.typed, p.ranks
                ));
            }
            (n, Some(p)) if n > p.ranks && nodes == 1 => {
                self.note("all ranks run on one host", p.typed.clone());
                n
            }
            (n, _) => n,
        };
        if let Some(soft) = &count.soft {
            ranks = largest(soft, ranks).map_or_else(
                || {
                    wrong(format!(
                        "-soft permits no number of ranks up to {ranks}; add a smaller number, or \
                         raise -n"
                    ))
                },
                Ok,
            )?;
        }
        if let Some((limit, who)) = &count.limit
            && ranks > *limit
        {
            return wrong(format!(
                "{ranks} ranks are too many: {who} allows {limit} (max_slots); lower -n, or raise \
                 max_slots"
            ));
        }
        Ok(ranks)
    }

    fn finish(mut self) -> Result<JobSpec, UsageError> {
        let total = self.spec.apps.iter().map(|a| a.ranks).fold(0usize, usize::saturating_add);
        if total > MAX_JOB_RANKS {
            return wrong(format!("{total} ranks are too many: a job has at most {MAX_JOB_RANKS}"));
        }
        if self.told_ranks.is_empty() {
            self.check_room(total)?;
        }
        self.take_default_timeout()?;
        for app in &mut self.spec.apps {
            app.wdir = app.wdir.take().or_else(|| self.global.wdir.clone());
            app.path = app.path.take().or_else(|| self.global.path.clone());
        }
        if let super::Stdin::Ranks(list) = &self.spec.stdin
            && let Some(rank) = list.iter().find(|&&rank| rank >= total)
        {
            return refuse_rank("--stdin", *rank, total);
        }
        super::tool::check_tools(&self.spec.tools, total)?;
        if self.has_slots {
            let slots = self.nodes.iter().map(|node| node.ranks).sum();
            self.spec.universe.get_or_insert(slots);
        }
        self.spec.nodes = self.place(total)?;
        let most = match &self.spec.nodes {
            JobNodes::Here => total,
            JobNodes::Several(nodes) => nodes.iter().map(|node| node.ranks).max().unwrap_or(0),
            JobNodes::Agent(counts) => counts.iter().copied().max().unwrap_or(0),
        };
        if most > MAX_RANKS {
            return wrong(format!(
                "{most} ranks on one host are too many: a host has at most {MAX_RANKS}"
            ));
        }
        if self.spec.nodes == JobNodes::Here {
            for pair in std::mem::take(&mut self.spec.hydra_words).chunks(2) {
                let typed: Vec<_> = pair.iter().map(|word| word.to_string_lossy()).collect();
                self.note("all ranks run on this host", typed.join(" "));
            }
        }
        if !self.quiet && self.agent.is_none() {
            self.spec.notices = self.idle.iter().map(describe_idle).collect();
            self.spec.notices.extend(self.tell_oversubscription(total));
        }
        Ok(self.spec)
    }

    /// Sets the timeout from [`TIMEOUT_VARIABLE`] if no option gave one. An agent gets its timeout from the launcher.
    fn take_default_timeout(&mut self) -> Result<(), UsageError> {
        let is_open = self.spec.timeout.is_none() && self.agent.is_none();
        if let Some(text) = self.here.variable(TIMEOUT_VARIABLE).filter(|_| is_open) {
            let given = GivenOption { name: TIMEOUT_VARIABLE.into(), values: vec![text.into()] };
            self.spec.timeout = Some(read_timeout(&given)?);
        }
        Ok(())
    }

    fn count_nodes(&self) -> usize {
        let is_here = |node: &&Node| !node.name.is_empty() && self.here.is_here(&node.name);
        let here = self.nodes.iter().filter(is_here).count();
        (self.nodes.len() - here + here.min(1)).max(1)
    }

    /// Decides on which nodes the ranks run.
    fn place(&mut self, total: usize) -> Result<JobNodes, UsageError> {
        if let Some(ranks) = self.agent.take() {
            return match ranks.iter().sum::<usize>() {
                sum if sum == total => Ok(JobNodes::Agent(ranks)),
                sum => wrong(format!(
                    "--agent: the ranks of all hosts are {sum}, but the job has {total} ranks"
                )),
            };
        }
        let nodes = std::mem::take(&mut self.nodes);
        let is_here = |node: &Node| !node.name.is_empty() && self.here.is_here(&node.name);
        let nodes = match nodes.iter().all(is_here) {
            true => Vec::new(),
            false => deal_ranks(nodes, total, self.per_node),
        };
        match nodes.as_slice() {
            [] => Ok(JobNodes::Here),
            [one] if is_here(one) => Ok(JobNodes::Here),
            _ => Ok(JobNodes::Several(nodes)),
        }
    }

    /// Reads the hosts from the batch system if the user names none: several nodes of Slurm, or the host file of
    /// Kubernetes' MPI operator.
    fn read_allocation(&mut self, count: &mut RankCount) -> Result<(), UsageError> {
        if self.agent.is_some() || !self.nodes.is_empty() {
            return Ok(());
        }
        let variable = |name| self.here.variable(name);
        if let Some(path) = variable("HYDRA_HOST_FILE") {
            let given = GivenOption { name: "HYDRA_HOST_FILE".into(), values: vec![path.into()] };
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

    /// Returns the notice for more ranks than the slots that the user has given.
    fn tell_oversubscription(&self, total: usize) -> Option<String> {
        let slots = self.slots;
        let is_told = self.has_slots && self.per_node.is_none() && !self.may_oversubscribe;
        (is_told && total > slots).then(|| {
            format!(
                "the job has {total} ranks, but its hosts have {slots} slot{}, so ranks share \
                 processors. --oversubscribe suppresses this notice; --nooversubscribe makes it \
                 an error",
                if slots == 1 { "" } else { "s" }
            )
        })
    }

    fn check_room(&self, total: usize) -> Result<(), UsageError> {
        let Some(option) = &self.no_oversubscribe else {
            return Ok(());
        };
        let (room, what) = match self.slots {
            0 => (self.here.count(Level::Thread), "processor"),
            slots => (slots, "slot"),
        };
        if total > room {
            return wrong(format!(
                "{option}: {total} ranks are more than {}; use fewer ranks, or omit {option}",
                tell::count(room as u64, what)
            ));
        }
        Ok(())
    }
}

/// Returns the error of a command line without a program. `last_value` is the last option and its value, which may be
/// the intended program.
fn refuse_missing_program(
    last_value: Option<(String, OsString)>, has_colon: bool,
) -> Result<(), UsageError> {
    let places = if has_colon { ", on both sides of each `:`" } else { "" };
    let remedy = format!("add a program after the options{places}");
    let last_value = last_value.map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    match last_value.filter(|(_, value)| value.parse::<f64>().is_err()) {
        Some((name, value)) => {
            wrong(format!("no program given: {value} is the value of {name}; {remedy}"))
        }
        None => wrong(format!("no program given; {remedy}")),
    }
}

fn describe_idle(idle: &IdleOption) -> String {
    const SHOWN: usize = 4;
    let mut list = idle.typed.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if idle.typed.len() > SHOWN {
        list.push_str(&format!(" and {} more", idle.typed.len() - SHOWN));
    }
    format!("{list}: no effect ({})", idle.reason)
}

/// Splits an option from a value after `=`. None if the word is not an option.
fn split_option(word: &ParsedArg<'_>) -> Option<(String, Option<OsString>)> {
    let text = |name: &OsStr| name.to_string_lossy().into_owned();
    if let Some((name, value)) = word.to_long() {
        let name = name.map_or_else(text, str::to_owned);
        return Some((format!("--{name}"), value.map(OsStr::to_owned)));
    }
    let rest = word.to_short()?.next_value_os()?;
    // Accept `-np=4`, which is unusual with one dash, but unambiguous.
    if let Some((name, value)) = rest.split_once("=")
        && let Some(option) = lookup(&text(name))
        && option.takes != OptionArguments::Nothing
    {
        return Some((format!("-{}", text(name)), Some(value.to_owned())));
    }
    Some((format!("-{}", text(rest)), None))
}

/// Returns the total number of arguments of an option. `values` holds those read so far.
fn words_wanted(option: &Opt, values: &[OsString]) -> usize {
    match option.takes {
        OptionArguments::Nothing => 0,
        OptionArguments::One(_) => 1,
        OptionArguments::Two(..) => 2,
        OptionArguments::Pair => match values.first() {
            // A pair written as NAME=VALUE is one word. If NAME is empty, `apply` reports it.
            Some(first) if OsStrExt::contains(first.as_os_str(), "=") || first.is_empty() => 1,
            _ => 2,
        },
    }
}

fn describe_words(takes: OptionArguments) -> &'static str {
    match takes {
        OptionArguments::Pair => "a name and a value after it",
        OptionArguments::Two(..) => "two values after it",
        OptionArguments::Nothing | OptionArguments::One(_) => "a value after it",
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
    if letters != bare
        && lookup(letters).is_some_and(|o| matches!(o.takes, OptionArguments::One(_)))
    {
        let number = &bare[letters.len()..];
        return wrong(format!("{unknown}; did you mean -{letters} {number}?"));
    }
    let near = options()
        .flat_map(|option| option.names.split(' '))
        .map(|shown| (shown.trim_start_matches('-'), shown))
        // Skip names that differ too much in length: the edit distance is at least that difference.
        .filter(|(n, _)| n.len() > 2 && n.len().abs_diff(bare.len()) <= n.len() / 3)
        .map(|(n, shown)| (strsim::damerau_levenshtein(n, bare), n.len() / 3, shown))
        .filter(|(distance, most, _)| distance <= most)
        .min();
    match near {
        Some((.., near)) => {
            wrong(format!("{unknown}; did you mean {near}? (mpiexec --help lists all options)"))
        }
        None => wrong(format!("{unknown} (mpiexec --help lists all options)")),
    }
}
