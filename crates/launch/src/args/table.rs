//! Table of all options: names, arguments, effect, help.

mod idle;

use super::output::{check_display, prefix, read_pattern, take_directory, take_list};
use super::parser_state::{AGENT, Parser, PerNode};
use super::spec::{Bind, Inherit};
use super::values::{
    GivenOption, read_pair, read_ranks, read_seconds, read_stdin, read_timeout, read_triplets,
    read_universe, split_names, split_pair,
};
use super::{CommandRequest, UsageError, failures, hosts, place, tool, wrong};
use fastpath_base::topology::Level;
use std::path::PathBuf;

pub struct Opt {
    /// Names separated by blanks, each with its usual one or two dashes. The parser accepts either number of dashes.
    pub names: &'static str,
    pub takes: OptionArguments,
    pub does: OptionEffect,
    /// Help line; for an option without effect, the reason.
    pub help: &'static str,
}

/// Arguments of an option, by their names in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionArguments {
    Nothing,
    One(&'static str),
    Two(&'static str, &'static str),
    /// A name and a value, as two words or as NAME=VALUE.
    Pair,
}

type Apply = fn(&mut Parser<'_>, &GivenOption) -> Result<(), UsageError>;
type Set = fn(&mut Parser<'_>, &GivenOption);

#[derive(Clone, Copy)]
pub enum OptionEffect {
    Apply(Apply),
    Set(Set),
    /// No effect: the option requests what is always done.
    Always,
    /// No effect; a notice is printed.
    Idle,
}

pub struct Section {
    pub title: &'static str,
    /// Text after the options.
    pub note: &'static str,
    pub options: &'static [Opt],
}

use OptionArguments::{Nothing, One, Pair};

const fn row(
    names: &'static str, takes: OptionArguments, does: OptionEffect, help: &'static str,
) -> Opt {
    Opt { names, takes, does, help }
}

const fn opt(names: &'static str, takes: OptionArguments, apply: Apply, help: &'static str) -> Opt {
    row(names, takes, OptionEffect::Apply(apply), help)
}

const fn set(names: &'static str, takes: OptionArguments, set: Set, help: &'static str) -> Opt {
    row(names, takes, OptionEffect::Set(set), help)
}

pub const SECTIONS: &[Section] = &[
    Section { title: "Ranks", note: "", options: RANKS },
    Section { title: "Hosts", note: "", options: HOSTS },
    Section {
        title: "Environment",
        note: "Each rank has FASTPATH_RANK and FASTPATH_SIZE in its environment. Variables whose \
               names start with FASTPATH_ are always exported.",
        options: ENVIRONMENT,
    },
    Section {
        title: "Output",
        note: "PATTERN: %r rank, %R rank with leading zeros, %h host, %t seconds since 1970, %T \
               date and time, %g and %p always 0, %% percent sign. Missing folders of files are \
               created.",
        options: OUTPUT,
    },
    Section { title: "Binding", note: concat!("PLACE: ", place::levels!(), "."), options: BINDING },
    Section {
        title: "Diagnostics",
        note: "TIME: seconds, or a number with a unit: ms, s, m (minutes), h.",
        options: DIAGNOSTICS,
    },
    Section {
        title: "Accepted for compatibility; always in effect",
        note: "",
        options: idle::ALWAYS,
    },
    Section {
        title: "Accepted for compatibility; no effect (mpiexec prints a notice)",
        note: "",
        options: idle::IDLE,
    },
    Section { title: "Engines (internal)", note: "", options: ENGINES },
];

const RANKS: &[Opt] = &[
    opt(
        "-n -np -c",
        One("N"),
        |p, g| read_ranks(g).map(|n| p.app.ranks = n),
        "number of ranks of the program that follows (default: 1, or the slots of the hosts)",
    ),
    opt("-ppn -perhost -grr", One("N"), |p, g| per_node(p, g, false), "ranks per host"),
    opt(
        "-N --npernode",
        One("N"),
        |p, g| per_node(p, g, true),
        "ranks per host; error if -n exceeds N times the number of hosts",
    ),
    opt(
        "--pernode",
        Nothing,
        |p, g| {
            p.count.per_node = Some(PerNode { ranks: 1, typed: g.typed(), strict: true });
            Ok(())
        },
        "one rank per host; error if -n exceeds the number of hosts",
    ),
    opt("--npersocket", One("N"), place::take_per_socket, "ranks per socket"),
    opt(
        "--ppr",
        One("N:PLACE"),
        place::take_ppr,
        "ranks per place, such as 2:numa for two per NUMA node (see Binding)",
    ),
    opt(
        "-soft",
        One("LIST"),
        |p, g| read_triplets(g).map(|t| p.count.soft = Some(t)),
        "permitted numbers of ranks, such as 2:8:2 (first:last:step) or 1,4; mpiexec uses the \
         largest number up to -n",
    ),
    opt(
        "-usize",
        One("SIZE"),
        |p, g| read_universe(g).map(|size| p.spec.universe = size),
        "value of MPI_UNIVERSE_SIZE: a number of processes, SYSTEM (slots of the hosts if given, \
         otherwise processors) or INFINITE (as many as can be spawned)",
    ),
    set(
        "-configfile",
        One("FILE"),
        |p, g| p.config = Some(PathBuf::from(g.value())),
        "read programs and their options from a file, one program per line",
    ),
];

const HOSTS: &[Opt] = &[
    opt(
        "--host -H -hosts -hostlist -machines -machinelist",
        One("HOST[:SLOTS],..."),
        hosts::take_hosts,
        "hosts of the job; without -n, the sum of the slots is the number of ranks. Remote hosts \
         need a launch engine: srun, flux, mpiexec.hydra or prterun",
    ),
    opt(
        "--hostfile -f -machinefile -machine --default-hostfile",
        One("FILE"),
        hosts::take_hostfile,
        "read hosts from a file, one per line: HOST, HOST:SLOTS or HOST slots=N max_slots=N",
    ),
    set(
        "--engine",
        One("ENGINE"),
        |p, g| p.spec.engine = Some(g.value().to_owned()),
        "launch engine for remote hosts: slurm, flux, hydra or prrte (default: the first one \
         installed; slurm and flux only inside an allocation)",
    ),
    set(
        "-launcher -bootstrap",
        One("LAUNCHER"),
        add_hydra_words,
        "how Hydra reaches remote hosts: ssh, rsh, slurm and others",
    ),
    set(
        "-launcher-exec -bootstrap-exec",
        One("FILE"),
        add_hydra_words,
        "program that Hydra runs to reach remote hosts",
    ),
    set(
        "--no-agents",
        Nothing,
        |p, _| p.spec.no_agents = true,
        "let the launch engine start the program directly, one process per host; the engine then \
         handles output, binding and cleanup",
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
        "simulate several hosts on this one: ranks of the program that follows count as running \
         on host NAME. They share memory only with ranks of the same NAME and reach other ranks \
         through an RDMA adapter or TCP. A command that enters a network namespace may precede \
         the program",
    ),
];

const ENVIRONMENT: &[Opt] = &[
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
        "set or export a variable for all ranks",
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
        "export only these variables to all ranks",
    ),
    set(
        "-genvnone",
        Nothing,
        |p, _| inherit(p, Inherit::Only(Vec::new())),
        "export no variables to any rank, except those that start with FASTPATH_",
    ),
    set(
        "-genvexcl --unset-env",
        One("NAME,..."),
        |p, g| inherit(p, Inherit::Except(split_names(g.value()))),
        "export all variables except these to all ranks",
    ),
    set(
        "-genvall -genvuser",
        Nothing,
        |p, _| inherit(p, Inherit::All),
        "export all variables to all ranks (default)",
    ),
    set(
        "-envlist",
        One("NAME,..."),
        |p, g| inherit_app(p, Inherit::Only(split_names(g.value()))),
        "export only these variables to the program that follows",
    ),
    set(
        "-envnone",
        Nothing,
        |p, _| inherit_app(p, Inherit::Only(Vec::new())),
        "export no variables to the program that follows, except those that start with FASTPATH_",
    ),
    set(
        "-envexcl",
        One("NAME,..."),
        |p, g| inherit_app(p, Inherit::Except(split_names(g.value()))),
        "export all variables except these to the program that follows",
    ),
    set(
        "-envall -envuser",
        Nothing,
        |p, _| inherit_app(p, Inherit::All),
        "export all variables to the program that follows",
    ),
    set(
        "-wdir -wd",
        One("DIR"),
        |p, g| p.app.wdir = Some(PathBuf::from(g.value())),
        "working directory of the program that follows",
    ),
    set(
        "-gwdir",
        One("DIR"),
        |p, g| p.global.wdir = Some(PathBuf::from(g.value())),
        "working directory of all programs",
    ),
    set(
        "-path",
        One("DIR:..."),
        |p, g| p.app.path = Some(g.value().to_owned()),
        "directories searched before PATH for the program that follows",
    ),
    set(
        "-gpath",
        One("DIR:..."),
        |p, g| p.global.path = Some(g.value().to_owned()),
        "directories searched before PATH for all programs",
    ),
];

const OUTPUT: &[Opt] = &[
    set(
        "-l --tag-output -prepend-rank",
        Nothing,
        |p, _| prefix(p, b"[%r] "),
        "prefix each line with [RANK]; lines of different ranks never mix",
    ),
    set(
        "--timestamp-output -prepend-timestamp",
        Nothing,
        |p, _| prefix(p, b"%T "),
        "prefix each line with date and time",
    ),
    opt(
        "-prepend-pattern",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| prefix(p, &pattern)),
        "prefix each line with PATTERN",
    ),
    set(
        "--merge-stderr-to-stdout",
        Nothing,
        |p, _| p.spec.output.merge = true,
        "redirect standard error to standard output",
    ),
    opt(
        "-outfile-pattern -outfile",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| p.spec.output.files[0] = Some(pattern)),
        "redirect standard output to files named by PATTERN",
    ),
    opt(
        "-errfile-pattern -errfile",
        One("PATTERN"),
        |p, g| read_pattern(g).map(|pattern| p.spec.output.files[1] = Some(pattern)),
        "redirect standard error to files named by PATTERN",
    ),
    opt(
        "--output-filename --output-directory",
        One("DIR[:nocopy,nojobid]"),
        |p, g| take_directory(p, &g.text()),
        "also write output to the files stdout and stderr in DIR/1/rank.RANK; nocopy: write only \
         to these files; nojobid: omit /1",
    ),
    opt(
        "--output",
        One("FORMAT,..."),
        take_list,
        "output options: tag, timestamp, merge, dir=DIR, file=NAME (files NAME.RANK.out and \
         NAME.RANK.err); append :nocopy to write only to the files",
    ),
    opt(
        "--stdin -s",
        One("RANKS"),
        |p, g| read_stdin(g).map(|stdin| p.spec.stdin = stdin),
        "ranks that read standard input: all, none, or numbers such as 1,4-6 (default: 0); other \
         ranks read /dev/null",
    ),
];

const BINDING: &[Opt] = &[
    opt(
        "--bind-to -binding",
        One("PLACE[:N]"),
        place::take_bind,
        "bind each rank to a place, or to N places; none disables binding; user:0+2,1,4-7 binds \
         ranks in turn to these sets of processors; append :overload-allowed to let ranks share \
         cores. Default: one core per rank, or OMP_NUM_THREADS cores. Ranks are not bound if the \
         job has one rank, or if other jobs leave too few cores",
    ),
    opt(
        "--map-by",
        One("PLACE[:MODIFIER]..."),
        place::take_map,
        "distribute ranks round-robin over places; slot, core, hwthread and node keep ranks in \
         order. ppr:N:PLACE puts N ranks on each place. Modifiers: pe=N (cores per rank), \
         oversubscribe, nooversubscribe, hwtcpus",
    ),
    opt(
        "--rank-by",
        One("ORDER"),
        place::take_rank,
        "order of rank numbers: fill, slot or core (place by place), span or PLACE (round-robin \
         over places)",
    ),
    opt("--cpus-per-proc --cpus-per-rank", One("N"), place::take_per_rank, "cores per rank"),
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
        "restrict the job to these processors, such as 0-3,8",
    ),
    set(
        "--bind-to-core",
        Nothing,
        |p, _| bind(p, Bind::To(Level::Core)),
        "equivalent to --bind-to core",
    ),
    set(
        "--bind-to-socket",
        Nothing,
        |p, _| bind(p, Bind::To(Level::Package)),
        "equivalent to --bind-to socket",
    ),
    set("--bind-to-none", Nothing, |p, _| bind(p, Bind::None), "equivalent to --bind-to none"),
    set(
        "--bysocket",
        Nothing,
        |p, _| p.spec.placement.map = Some((Level::Package, 1)),
        "equivalent to --map-by socket",
    ),
    set(
        "--nooversubscribe",
        Nothing,
        |p, g| p.no_oversubscribe = Some(g.typed()),
        "error if the job has more ranks than slots, or than processors if no slots are given",
    ),
    set(
        "--oversubscribe",
        Nothing,
        |p, _| p.allow_oversubscription(),
        "allow more ranks than slots or processors, as by default, but without a notice",
    ),
    set(
        "--report-bindings",
        Nothing,
        |p, _| p.spec.report_bindings = true,
        "print the binding of each rank",
    ),
];

const DIAGNOSTICS: &[Opt] = &[
    set(
        "-v --verbose --display-map -print-rank-map --display-allocation --display-devel-map \
         --display-topo",
        Nothing,
        |p, _| show_map(p),
        "print the rank map: program, host, binding",
    ),
    opt(
        "--display",
        One("KIND,..."),
        |p, g| check_display(g).map(|()| show_map(p)),
        "print the rank map; KIND is map, bindings or allocation",
    ),
    set(
        "--do-not-launch",
        Nothing,
        |p, _| p.spec.only_show = true,
        "check the command line and print what -v and --report-bindings request; start no rank",
    ),
    set(
        "-q -quiet",
        Nothing,
        |p, _| p.quiet = true,
        "suppress the notices about options without effect",
    ),
    set(
        "-print-all-exitcodes",
        Nothing,
        |p, _| p.spec.exit_codes = true,
        "print the exit code of each rank",
    ),
    set(
        "--report-pid",
        One("FILE"),
        |p, g| p.spec.report_pid = Some(g.value().to_owned()),
        "write the process ID of mpiexec to a file, or to standard output (-) or standard error \
         (+)",
    ),
    opt(
        "--timeout",
        One("TIME"),
        |p, g| read_timeout(g).map(|t| p.spec.timeout = Some(t)),
        "end the job after this time, print the state of each rank and exit with code 124 \
         (default: the value of the variable MPIEXEC_TIMEOUT). The states are also printed when \
         SIGTERM ends the job",
    ),
    opt(
        "--kill-after",
        One("TIME"),
        |p, g| read_seconds(g).map(|t| p.spec.kill_after = Some(t)),
        "kill ranks that still run this long after SIGTERM or SIGHUP (default: 10; 0: never)",
    ),
    opt(
        "--with-ft",
        One("KIND"),
        failures::set_fault_tolerance,
        "ulfm (or mpi): the job continues after ranks have died (FASTPATH_FT=1); none: the death \
         of a rank ends the job",
    ),
    set(
        "--enable-recovery --continuous -disable-auto-cleanup -dac",
        Nothing,
        |p, _| failures::tolerate_failures(p, true),
        "equals --with-ft ulfm",
    ),
    set(
        "-enable-auto-cleanup --disable-recovery -cleanup",
        Nothing,
        |p, _| failures::tolerate_failures(p, false),
        "equals --with-ft none, the default",
    ),
    set(
        "-gdb",
        Nothing,
        |p, _| tool::take_gdb(p),
        "start every rank in gdb; all ranks read standard input, and each line of output has its \
         rank. Debuggers that attach by themselves need no option: mpiexec has the MPIR symbols",
    ),
    opt(
        "-gtool",
        One("TOOL:RANKS;..."),
        tool::take_tools,
        "start ranks in a tool, such as gdb:0 or \"valgrind -q:1,4-6\" or \"perf record:all\"",
    ),
    opt(
        "-gtoolfile",
        One("FILE"),
        tool::take_file,
        "read values of -gtool from a file, one per line",
    ),
    set(
        "--version -V -info",
        Nothing,
        |p, _| p.request = Some(CommandRequest::Version),
        "print the version",
    ),
    set("--help -h", Nothing, |p, _| p.request = Some(CommandRequest::Help), "print this help"),
];

const ENGINES: &[Opt] = &[opt(
    AGENT,
    One("N,...[/N,...]"),
    hosts::take_agent,
    "internal: the launch engine starts mpiexec with this option on each host. The value lists \
     the ranks of each host, then those of each program",
)];

fn add_hydra_words(parser: &mut Parser<'_>, given: &GivenOption) {
    parser.spec.hydra_words.extend([given.name.as_str().into(), given.value().to_owned()]);
}

fn per_node(parser: &mut Parser<'_>, given: &GivenOption, strict: bool) -> Result<(), UsageError> {
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
