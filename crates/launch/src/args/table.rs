//! Every option: how people write it, what it does, what the help says of it.

mod idle;

pub use idle::{BY_HAND, NODES};

use super::output::{check_display, prefix, read_pattern, take_directory, take_list};
use super::parse::{AGENT, Given, Parser, PerNode};
use super::spec::{Bind, Inherit};
use super::values::{
    read_pair, read_ranks, read_seconds, read_stdin, read_timeout, read_triplets, read_universe,
    split_names, split_pair,
};
use super::{Request, UsageError, hosts, place, wrong};
use fastpath_base::topology::Level;
use std::path::PathBuf;

/// One option.
pub struct Opt {
    /// Its names with blanks between them, each with one dash or two as its users write it; both are accepted.
    pub names: &'static str,
    /// The words that follow.
    pub takes: Takes,
    /// What it does.
    pub does: Does,
    /// Its line in the help; of an option without effect, why it has none.
    pub help: &'static str,
}

/// The words that follow an option, by the names that the help gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// None.
    Nothing,
    /// One.
    One(&'static str),
    /// Two.
    Two(&'static str, &'static str),
    /// A name and a value, as two words or as NAME=VALUE.
    Pair,
}

type Apply = fn(&mut Parser<'_>, &Given) -> Result<(), UsageError>;
type Set = fn(&mut Parser<'_>, &Given);

/// What an option does.
#[derive(Clone, Copy)]
pub enum Does {
    /// This, which can fail.
    Apply(Apply),
    /// This, which cannot.
    Set(Set),
    /// Nothing, because it is always so.
    Always,
    /// Nothing on one node, which is said in a line.
    Idle,
}

/// Options of one subject.
pub struct Section {
    /// The subject.
    pub title: &'static str,
    /// What the help says below them.
    pub note: &'static str,
    /// The options.
    pub options: &'static [Opt],
}

use Takes::{Nothing, One, Pair};

const fn row(names: &'static str, takes: Takes, does: Does, help: &'static str) -> Opt {
    Opt { names, takes, does, help }
}

const fn opt(names: &'static str, takes: Takes, apply: Apply, help: &'static str) -> Opt {
    row(names, takes, Does::Apply(apply), help)
}

const fn set(names: &'static str, takes: Takes, set: Set, help: &'static str) -> Opt {
    row(names, takes, Does::Set(set), help)
}

/// All options.
pub const SECTIONS: &[Section] = &[
    Section { title: "Which and how many", note: "", options: RANKS },
    Section {
        title: "What they get",
        note: "FASTPATH_RANK and FASTPATH_SIZE tell scripts which rank they are. Variables whose \
            names \
               begin with FASTPATH_ are always passed on.",
        options: RECEIVED,
    },
    Section {
        title: "Output",
        note: "PATTERN: %r is the rank, %h the node, %t the time in seconds, %g and %p are 0, %% \
            is a %.",
        options: OUTPUT,
    },
    Section {
        title: "Processors",
        note: "PLACE: hwthread, core, l1cache, l2cache, l3cache, numa, socket (or package), node \
            (or \
               machine, board).",
        options: PROCESSORS,
    },
    Section { title: "What is said, and the end", note: "", options: SAID },
    Section { title: "Accepted, and always so", note: "", options: idle::ALWAYS },
    Section {
        title: "Accepted, without effect on one node; one line says so",
        note: "",
        options: idle::IDLE,
    },
];

const RANKS: &[Opt] = &[
    opt(
        "-n -np -c",
        One("N"),
        |p, g| read_ranks(g).map(|n| p.app.ranks = n),
        "number of ranks of the program that follows (1)",
    ),
    opt(
        "-ppn -perhost -grr",
        One("N"),
        |p, g| per_node(p, g, false),
        "number of ranks on each host",
    ),
    opt(
        "-N --npernode",
        One("N"),
        |p, g| per_node(p, g, true),
        "the same, but -n may not ask for more",
    ),
    opt(
        "--pernode",
        Nothing,
        |p, g| {
            p.count.per_node = Some(PerNode { ranks: 1, typed: g.typed(), strict: true });
            Ok(())
        },
        "one rank",
    ),
    opt("--npersocket", One("N"), place::take_per_socket, "N ranks for each socket"),
    opt("--ppr", One("N:PLACE"), place::take_ppr, "N ranks for each place, see --map-by"),
    opt(
        "-soft",
        One("LIST"),
        |p, g| read_triplets(g).map(|t| p.count.soft = Some(t)),
        "allowed numbers of ranks, as 2:8:2 (from, to, step) or 1,4; the largest up to \
         -n is taken",
    ),
    opt(
        "--host -H -hosts -hostlist -machines -machinelist",
        One("NAME[:N],..."),
        hosts::take_hosts,
        "the hosts of the job; the sum of N is the number of ranks where -n is missing. For \
         others than this node an engine starts the ranks: srun, mpiexec.hydra, prterun or flux",
    ),
    opt(
        "--hostfile -f -machinefile -machine --default-hostfile",
        One("FILE"),
        hosts::take_hostfile,
        "the same from a file, a line each: NAME, NAME:N or NAME slots=N max_slots=N",
    ),
    opt(
        "-usize",
        One("N"),
        |p, g| read_universe(g).map(|size| p.spec.universe = size),
        "MPI_UNIVERSE_SIZE: N processes, SYSTEM (the slots of the hosts if they are given, \
         otherwise the processors) or INFINITE (as many as can be spawned)",
    ),
    set(
        "--engine",
        One("NAME"),
        |p, g| p.spec.engine = Some(g.value().to_owned()),
        "what starts ranks on other hosts: slurm, flux, hydra or prrte; by default the first of \
         these that is installed (slurm and flux only in an allocation)",
    ),
    set(
        "-launcher -bootstrap -launcher-exec -bootstrap-exec",
        One("WORD"),
        |p, g| p.spec.hydra_words.extend([g.name.as_str().into(), g.value().to_owned()]),
        "passed on to Hydra: how it reaches other hosts (ssh, rsh, slurm and others), and by which \
         program",
    ),
    set(
        "--no-agents",
        Nothing,
        |p, _| p.spec.no_agents = true,
        "the engine starts the program itself, one process on each of several hosts: then the \
         engine handles output, binding and the end of the job",
    ),
    opt(
        AGENT,
        One("N,...[/N,...]"),
        hosts::take_agent,
        "used by engines, not by people: this process starts the ranks of one host; number of \
         ranks on each host, then of each program",
    ),
    set(
        "-configfile",
        One("FILE"),
        |p, g| p.config = Some(PathBuf::from(g.value())),
        "read the programs and their options from a file, one program on each line",
    ),
];

const RECEIVED: &[Opt] = &[
    set(
        "-wdir -wd",
        One("DIR"),
        |p, g| p.app.wdir = Some(PathBuf::from(g.value())),
        "folder to start in, for the program that follows",
    ),
    set(
        "-gwdir",
        One("DIR"),
        |p, g| p.global.wdir = Some(PathBuf::from(g.value())),
        "the same for all programs",
    ),
    set(
        "-path",
        One("DIRS"),
        |p, g| p.app.path = Some(g.value().to_owned()),
        "folders with : between them where the program is looked for before PATH",
    ),
    set(
        "-gpath",
        One("DIRS"),
        |p, g| p.global.path = Some(g.value().to_owned()),
        "the same for all programs",
    ),
    opt(
        "-x --set-env",
        One("NAME[=VALUE]"),
        |p, g| {
            match split_pair(g.value()) {
                Some(pair) => p.spec.env.push(pair),
                None => p.spec.exported.push(g.value().to_owned()),
            }
            Ok(())
        },
        "set or pass on a variable for all ranks",
    ),
    opt(
        "-genv",
        Pair,
        |p, g| read_pair(g).map(|pair| p.spec.env.push(pair)),
        "set a variable for all ranks",
    ),
    opt(
        "-env",
        Pair,
        |p, g| read_pair(g).map(|pair| p.app.env.push(pair)),
        "set a variable for the program that follows",
    ),
    set(
        "-genvlist",
        One("NAME,..."),
        |p, g| inherit(p, Inherit::Only(split_names(g.value()))),
        "pass on only these variables of the environment",
    ),
    set("-genvnone", Nothing, |p, _| inherit(p, Inherit::Only(Vec::new())), "pass on none of them"),
    set(
        "-genvexcl --unset-env",
        One("NAME,..."),
        |p, g| inherit(p, Inherit::Except(split_names(g.value()))),
        "pass on all but these",
    ),
    set(
        "-genvall -genvuser",
        Nothing,
        |p, _| inherit(p, Inherit::All),
        "pass on all (the default)",
    ),
    set(
        "-envlist",
        One("NAME,..."),
        |p, g| inherit_app(p, Inherit::Only(split_names(g.value()))),
        "as -genvlist, for the program that follows",
    ),
    set(
        "-envnone",
        Nothing,
        |p, _| inherit_app(p, Inherit::Only(Vec::new())),
        "as -genvnone, for the program that follows",
    ),
    set(
        "-envexcl",
        One("NAME,..."),
        |p, g| inherit_app(p, Inherit::Except(split_names(g.value()))),
        "as -genvexcl, for the program that follows",
    ),
    set(
        "-envall -envuser",
        Nothing,
        |p, _| inherit_app(p, Inherit::All),
        "as -genvall, for the program that follows",
    ),
    opt(
        "--stdin -s",
        One("WHO"),
        |p, g| read_stdin(g).map(|who| p.spec.stdin = who),
        "who reads standard input: all, none, or ranks such as 1,4-6 (0); the others read \
         /dev/null",
    ),
    opt(
        "--virtual-host",
        One("NAME"),
        |p, g| {
            if g.value().is_empty() {
                return wrong(format!("{} needs a name", g.name));
            }
            p.app.virtual_host = Some(g.value().to_owned());
            Ok(())
        },
        "the ranks of the program that follows count as being on a host of this name: they share \
         memory with ranks of the same name only, and reach others by an adapter or TCP. They \
         start here; a program that enters a namespace may stand before theirs",
    ),
];

const OUTPUT: &[Opt] = &[
    set(
        "-l --tag-output -prepend-rank",
        Nothing,
        |p, _| prefix(p, b"[%r] "),
        "put [RANK] before each line; lines are never torn",
    ),
    set(
        "--timestamp-output -prepend-timestamp",
        Nothing,
        |p, _| prefix(p, b"%T "),
        "put date and time before each line",
    ),
    opt(
        "-prepend-pattern",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| prefix(p, &pattern)),
        "put this before each line",
    ),
    set(
        "--merge-stderr-to-stdout",
        Nothing,
        |p, _| p.spec.output.merge = true,
        "standard error goes where standard output goes",
    ),
    opt(
        "-outfile-pattern -outfile",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| p.spec.output.files[0] = Some(pattern)),
        "standard output goes to the file of this name, in place of the terminal",
    ),
    opt(
        "-errfile-pattern -errfile",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| p.spec.output.files[1] = Some(pattern)),
        "the same for standard error",
    ),
    opt(
        "--output-filename --output-directory",
        One("DIR[:nocopy,nojobid]"),
        |p, g| take_directory(p, &g.text()),
        "output goes to DIR/1/rank.R/stdout and stderr as well; nocopy: only there; nojobid: \
         without /1",
    ),
    opt(
        "--output",
        One("LIST"),
        take_list,
        "any of tag, timestamp, merge, dir=DIR, file=NAME (NAME.R.out and NAME.R.err), with \
         :nocopy",
    ),
];

const PROCESSORS: &[Opt] = &[
    opt(
        "--bind-to -binding",
        One("PLACE[:N]"),
        place::take_bind,
        "bind each rank to a place, or to N of them; none: to nothing; user:0+2,1,4-7: to these \
         processors in \
         turn. Without it each rank is bound to a core of its own when there are several ranks \
         and enough \
         cores that no other job has bound to, and floats otherwise; OMP_NUM_THREADS cores a \
         rank, if set. \
         :overload-allowed lets ranks share cores",
    ),
    opt(
        "--map-by",
        One("PLACE"),
        place::take_map,
        "distribute the ranks over these places in turn; slot, core, hwthread and node leave them \
         in order. \
         ppr:N:PLACE: N \
         ranks for each place. Then :pe=N (N cores for each rank), :oversubscribe, \
         :nooversubscribe, :hwtcpus",
    ),
    opt(
        "--rank-by",
        One("ORDER"),
        place::take_rank,
        "how the mapped processes are numbered: fill, slot or core place by place, span or PLACE \
         round the places",
    ),
    opt("--cpus-per-proc --cpus-per-rank", One("N"), place::take_per_rank, "N cores for each rank"),
    set(
        "--use-hwthread-cpus",
        Nothing,
        |p, _| p.spec.placement.threads = true,
        "bind to hardware threads instead of cores",
    ),
    opt(
        "--cpu-set --cpu-list --slot-list",
        One("LIST"),
        place::take_cpus,
        "the job uses only these processors, as 0-3,8",
    ),
    set("--bind-to-core", Nothing, |p, _| bind(p, Bind::To(Level::Core)), "--bind-to core"),
    set("--bind-to-socket", Nothing, |p, _| bind(p, Bind::To(Level::Package)), "--bind-to socket"),
    set("--bind-to-none", Nothing, |p, _| bind(p, Bind::None), "--bind-to none"),
    set(
        "--bysocket",
        Nothing,
        |p, _| p.spec.placement.map = Some((Level::Package, 1)),
        "--map-by socket",
    ),
    set(
        "--nooversubscribe",
        Nothing,
        |p, g| p.no_oversubscribe = Some(g.typed()),
        "refuse more ranks than slots of the hosts that were named, or than processors",
    ),
    set(
        "--oversubscribe",
        Nothing,
        |p, _| p.allow_oversubscription(),
        "allow more ranks (the default)",
    ),
    set(
        "--report-bindings",
        Nothing,
        |p, _| p.spec.report_bindings = true,
        "say how ranks are bound",
    ),
];

const SAID: &[Opt] = &[
    set(
        "-v --verbose --display-map -print-rank-map --display-allocation --display-devel-map \
         --display-topo",
        Nothing,
        |p, _| show_map(p),
        "say which ranks run what, where, and how they are bound",
    ),
    opt(
        "--display",
        One("LIST"),
        |p, g| check_display(g).map(|()| show_map(p)),
        "the same for each of map, bindings, allocation in the list",
    ),
    set(
        "--do-not-launch",
        Nothing,
        |p, _| p.spec.only_show = true,
        "check the command line, say what was asked for, start nothing",
    ),
    set("-q -quiet", Nothing, |p, _| p.quiet = true, "do not say which options have no effect"),
    set(
        "-print-all-exitcodes",
        Nothing,
        |p, _| p.spec.exit_codes = true,
        "say how each rank ended",
    ),
    set(
        "--report-pid",
        One("WHERE"),
        |p, g| p.spec.report_pid = Some(g.value().to_owned()),
        "write the process number of mpiexec to standard output (-), standard error (+) or a file",
    ),
    opt(
        "--timeout",
        One("SECONDS"),
        |p, g| read_timeout(g).map(|t| p.spec.timeout = Some(t)),
        "end the job after this time, say what each rank was doing, exit 124; also said when \
         SIGTERM ends the job",
    ),
    opt(
        "--kill-after",
        One("SECONDS"),
        |p, g| read_seconds(g).map(|t| p.spec.kill_after = Some(t)),
        "kill ranks that still run this time after SIGTERM or SIGHUP was passed on to them (10); \
         0: never",
    ),
    set(
        "--version -V -info",
        Nothing,
        |p, _| p.request = Some(Request::Version),
        "say the version",
    ),
    set("--help -h", Nothing, |p, _| p.request = Some(Request::Help), "print this"),
];

fn per_node(parser: &mut Parser<'_>, given: &Given, strict: bool) -> Result<(), UsageError> {
    parser.count.per_node =
        Some(PerNode { ranks: read_ranks(given)?, typed: given.typed(), strict });
    Ok(())
}

fn inherit(parser: &mut Parser<'_>, what: Inherit) {
    add(&mut parser.spec.inherit, what);
}

fn inherit_app(parser: &mut Parser<'_>, what: Inherit) {
    add(parser.app.inherit.get_or_insert_default(), what);
}

/// Lists of the same kind are joined; else the last option counts.
fn add(old: &mut Inherit, new: Inherit) {
    match (old, new) {
        (Inherit::Only(names), Inherit::Only(more))
        | (Inherit::Except(names), Inherit::Except(more)) => names.extend(more),
        (old, new) => *old = new,
    }
}

fn bind(parser: &mut Parser<'_>, to: Bind) {
    parser.spec.placement.bind = to;
}

fn show_map(parser: &mut Parser<'_>) {
    parser.spec.show_map = true;
}
