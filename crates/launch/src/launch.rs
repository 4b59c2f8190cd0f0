#![allow(unsafe_code)]
//! Starts the ranks of a job, from the command line on.

use crate::agent::{Agent, end_job};
use crate::args::{App, JobNodes, JobSpec, Stdin};
use crate::binding::{BindingPlan, describe_plan, plan_binding};
use crate::claims::{Pick, claim_processors};
use crate::control::ControlServer;
use crate::engine::hand_over;
use crate::environment::find_missing;
use crate::guard::GuardProcess;
use crate::input::{copy_above, meet_agents, open_inputs, open_null};
use crate::limits::{Need, check_calls, describe_files, limit_files};
use crate::metrics::MetricsFile;
use crate::mpir;
use crate::output::Outputs;
use crate::own_process::prepare_itself;
use crate::placing::NodeProcessors;
use crate::poll::{INPUT, Poller, SINKS};
use crate::ranks::{Ranks, list_children};
use crate::screen;
use crate::show::describe_map;
use crate::signals::Signals;
use crate::singletons::SingletonWatch;
use crate::start::{NewRank, PreparedProgram, RankStarter, Refusal, StartContext};
use crate::tools::Programs;
use crate::watch::{JobWatch, Rounds};
use fastpath_base::config::{Config, Key, shorten};
use fastpath_base::host_topology::{HostTopology, RankDomains};
use fastpath_base::refusal::{describe_call, read_limit};
use fastpath_base::sync::Ordering;
use fastpath_base::tell;
use fastpath_base::topology::{self, CpuSet};
use fastpath_job::trace::prepare_file;
use fastpath_job::{ForeignNumbers, describe_copies, random_job_id};
use fastpath_segment::{MAX_RANKS, Segment, SegmentLayout, SpareRanks};
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Number of the segment's descriptor in ranks. Scripts do not usually use this number.
const SEGMENT_FD: i32 = 60;

/// If the address space is limited, the job's memory for spawned ranks may take at most 1/`LIMITED_SHARE` of it.
const LIMITED_SHARE: u64 = 8;

/// Runs the job to its end; returns the launcher's exit code. `words`: the command line.
pub fn run_job(spec: &JobSpec, words: &[OsString]) -> i32 {
    let started = Instant::now();
    for notice in &spec.notices {
        screen::tell(notice);
    }
    for name in find_missing(std::env::vars_os, spec) {
        tell!(
            "mpiexec: -x {}: the variable is not set, so ranks do not get it; set it, or use -x \
             NAME=VALUE",
            name.display()
        );
    }
    if let Err(refusal) = prepare_itself(spec) {
        return refuse(spec, refusal);
    }
    if spec.nodes == JobNodes::Here
        && let Some(text) = describe_copies()
    {
        tell!("mpiexec: {text}");
    }
    if let JobNodes::Several(_) = spec.nodes {
        let (code, text) = hand_over(spec, words);
        screen::tell(&text);
        return code;
    }
    match start_job(spec) {
        Ok(StartOutcome::Shown) => 0,
        Ok(StartOutcome::Running(watch)) => watch.run(started),
        Ok(StartOutcome::Broken(watch, (code, text))) => {
            watch.abandon(code, &format!("mpiexec: {}\n", tell::escape(&text)))
        }
        Err(refusal) => refuse(spec, refusal),
    }
}

fn refuse(spec: &JobSpec, (code, text): Refusal) -> i32 {
    match &spec.nodes {
        JobNodes::Agent(_) => {
            tell!("mpiexec: on {}: {text}", topology::host_name());
            end_job(code);
        }
        _ => screen::tell(&text),
    }
    code
}

enum StartOutcome<'a> {
    Running(Box<JobWatch<'a>>),
    Shown,
    /// Some ranks run, but one could not be started, for the given reason.
    Broken(Box<JobWatch<'a>>, Refusal),
}

fn start_job(spec: &JobSpec) -> Result<StartOutcome<'_>, Refusal> {
    check_calls().map_err(|text| (1, text))?;
    let (signals, inherited) = Signals::take_over()
        .map_err(|text| (1, format!("cannot install the signal handling of mpiexec: {text}")))?;
    let agent = match &spec.nodes {
        JobNodes::Agent(counts) => {
            let (config, here) = (own_config(spec), read_machine().processors);
            Some(Agent::join(counts, here, &config, spec.timeout).map_err(|text| (1, text))?)
        }
        _ => None,
    };
    // Check the programs only after the agent has joined: an engine may leave processes behind if a job fails at its
    // very start.
    let programs = Programs::prepare(spec).map_err(|e| (e.code, e.text))?;
    let (apps, app_of) = (&programs.apps, &programs.app_of);
    if !apps.windows(2).all(|two| two[0].checks == two[1].checks) {
        let text = "the programs have different values of FASTPATH_CHECK; set one value for all, \
            with -x or in the environment of mpiexec";
        return Err((2, text.to_string()));
    }
    let trace = apps.iter().find_map(|app| app.trace.clone());
    if let Some(path) = &trace {
        prepare_file(path).map_err(|e| {
            (2, format!("FASTPATH_TRACE={}: {e}", shorten(&path.to_string_lossy())))
        })?;
    }
    let node = agent.as_ref().map_or(0, Agent::node);
    let metrics = apps.iter().find_map(|app| app.metrics.as_ref());
    let metrics = metrics.map(|path| MetricsFile::new(path, node));
    let local = agent.as_ref().map_or(0..app_of.len(), Agent::local);
    let need = Need { ranks: local.len(), files: count_files(spec, local.len()) };
    limit_files(need, &inherited).map_err(|text| (1, text))?;

    let machine = read_machine();
    let plan = plan_for(spec, local.len(), &machine);
    let host: &str = Box::leak(topology::host_name().into_boxed_str());
    let topology = HostTopology::current(&own_config(spec), &machine.cores);
    let topology = topology.map_err(|e| (2, e.to_string()))?;
    let places = place_ranks(local.len(), &plan, &machine, &topology);
    let shown = describe_start(spec, apps, &plan, host, &machine, &places);
    if spec.only_show {
        tell::lines(&shown);
        return Ok(StartOutcome::Shown);
    }
    let mut outputs = Outputs::new(&spec.output, host, app_of.len(), SINKS);
    let opened = outputs.open_files(0..app_of.len(), |rank| local.contains(&rank));
    opened.map_err(|text| (2, text))?;
    let (segment, keep) = make_segment(spec, app_of, &machine, &plan, need, agent.as_ref())?;
    for (rank, &place) in segment.node_ranks().zip(&places) {
        if let Some(page) = segment.page(rank) {
            page.set_domains(place);
        }
    }
    let poller = Poller::new(signals.mask()).map_err(|e| (1, describe_call("ppoll", &e)))?;
    let spared = list_children();
    adopt_orphans();
    let guard = GuardProcess::start(segment, need).map_err(|e| {
        (1, format!("cannot start the guard process, which ends the job if mpiexec is killed: {e}"))
    })?;
    let starter = RankStarter::new(inherited, segment, keep.as_raw_fd(), need)?;
    let job_id = segment.header().job_id.load(Ordering::Relaxed);
    let no_input = open_null().map_err(|e| (1, describe_files("open", &e, need)))?;
    let names = app_of.iter().map(|&app| name_program(&spec.apps[app]));
    let mut watch = Box::new(JobWatch {
        spec,
        host,
        segment,
        ranks: Ranks::new(names),
        outputs,
        input: None,
        no_input,
        control: ControlServer::listen(job_id, &poller),
        starter,
        began_with: app_of.len(),
        poller,
        signals,
        guard,
        spared,
        trace,
        metrics,
        agent,
        pending: None,
        foreign: ForeignNumbers::default(),
        orders: Vec::new(),
        rounds: Rounds::default(),
        singletons: SingletonWatch::new(),
        topology,
    });
    if let Some(door) = watch.agent.as_mut().and_then(Agent::take_door) {
        watch.control.open_door(door, &watch.poller);
    }
    let tolerates = segment.header().tolerates_failures.load(Ordering::Relaxed);
    watch.ranks.tolerate_failures(tolerates != 0);
    watch.outputs.say(&shown);
    let done = start_ranks(&mut watch, &programs, local, &plan, need);
    // The claims on processors and the segment's descriptor must live as long as this process.
    std::mem::forget((plan, keep));
    Ok(match done {
        Ok(()) => StartOutcome::Running(watch),
        Err(refusal) => StartOutcome::Broken(watch, refusal),
    })
}

fn describe_start(
    spec: &JobSpec, apps: &[PreparedProgram], plan: &BindingPlan, host: &str,
    machine: &NodeProcessors, places: &[RankDomains],
) -> String {
    let mut text = String::new();
    if let Some(warning) = &plan.warning {
        text = format!("mpiexec: {}\n", tell::escape(warning));
    }
    if spec.show_map {
        let paths: Vec<&Path> = apps.iter().map(|a| a.path.as_path()).collect();
        text += &describe_map(spec, &paths, host, machine.processors);
    }
    if spec.show_map || spec.report_bindings {
        let ranks = spec.apps.iter().map(|a| a.ranks).sum();
        text += &describe_plan(plan, ranks, machine, places);
    }
    text
}

/// Starts the `local` ranks, in order.
fn start_ranks(
    watch: &mut JobWatch<'_>, programs: &Programs, local: Range<usize>, plan: &BindingPlan,
    need: Need,
) -> Result<(), Refusal> {
    let has_all_ranks = watch.agent.is_none();
    if has_all_ranks && mpir::is_debugged() {
        mpir::hold_ranks(watch.segment);
    }
    let files = |e: std::io::Error| (1, describe_files("fcntl or pipe2", &e, need));
    let who = &watch.spec.stdin;
    let others = watch.agent.as_mut().map(|agent| meet_agents(agent, who));
    let others = others.transpose().map_err(files)?.unwrap_or(0);
    let inputs = open_inputs(&watch.poller, INPUT, who, local.clone(), others);
    let (inputs, forward) = inputs.map_err(files)?;
    watch.input = forward;
    for (index, rank) in local.enumerate() {
        let listener = watch.agent.as_mut().and_then(Agent::take_listener);
        let new = NewRank {
            rank,
            world: (rank, programs.app_of.len()),
            app: programs.of_rank(watch.spec, rank),
            input: inputs.of(rank),
            cpus: plan.sets.get(index),
            listener: listener.as_ref(),
        };
        let mut at = StartContext {
            segment: watch.segment,
            ranks: &mut watch.ranks,
            outputs: &mut watch.outputs,
            poller: &watch.poller,
        };
        watch.starter.start(&new, &mut at)?;
    }
    if has_all_ranks {
        let pids: Vec<_> = watch.ranks.list().iter().map(|rank| rank.pid).collect();
        let path = |rank| programs.of_rank(watch.spec, rank).path.as_path();
        mpir::publish_ranks(watch.segment, watch.host, &pids, path);
    }
    Ok(())
}

/// Counts the launcher's files: two pipes per rank for output, two per reader of copied input, and output files.
fn count_files(spec: &JobSpec, ranks: usize) -> u64 {
    let copies = match &spec.stdin {
        Stdin::All => ranks,
        Stdin::Ranks(list) => list.len(),
    };
    let files = spec.output.files.iter().flatten().count() * ranks;
    (2 * ranks + 2 * copies + files) as u64
}

/// Returns the settings of the launcher: those of its environment, and those given to all ranks by options.
fn own_config(spec: &JobSpec) -> Config {
    let set = std::env::vars_os().chain(spec.env.iter().cloned());
    Config::from_pairs(set).unwrap_or_else(|_| Config::defaults())
}

fn read_machine() -> NodeProcessors {
    let allowed = topology::affinity();
    let processors = topology::limit_by_quota(allowed.len(), topology::cpu_quota());
    NodeProcessors {
        cores: topology::list_cores(&allowed),
        processors,
        read: topology::read_system,
    }
}

fn plan_for(spec: &JobSpec, ranks: usize, machine: &NodeProcessors) -> BindingPlan {
    let lookup = |name: &str| {
        let set = spec.env.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        set.or_else(|| std::env::var_os(name))
    };
    // In a list such as "4,2", the later numbers are for nested parallel regions.
    let threads = lookup("OMP_NUM_THREADS").and_then(|t| {
        t.to_string_lossy().split(',').next().and_then(|n| n.trim().parse::<usize>().ok())
    });
    let per_rank = threads.unwrap_or(1).max(1);
    let config = Config::from_env().unwrap_or_else(|_| Config::defaults());
    let folder = Path::new(config.text(Key::InternalClaims));
    let mut claim = |pick: Pick<'_>| claim_processors(folder, pick);
    plan_binding(&spec.placement, ranks, per_rank, machine, &mut claim)
}

/// Creates the job's segment and fills it. The segment lives as long as the launcher.
fn make_segment(
    spec: &JobSpec, app_of: &[usize], machine: &NodeProcessors, plan: &BindingPlan, need: Need,
    agent: Option<&Agent>,
) -> Result<(&'static Segment, OwnedFd), Refusal> {
    let ranks = app_of.len();
    let refuse = |e| (1, format!("cannot create the shared memory of the job: {e}"));
    let segment = match agent {
        Some(agent) => agent.make_memory(count_spares(agent.most_ranks())),
        None => {
            let spare = SpareRanks { ranks: count_spares(ranks), foreign: 0 };
            let here: Vec<usize> = (0..ranks).collect();
            Segment::create_for_node(&here, ranks, spare, random_job_id())
        }
    };
    let segment = segment.map_err(refuse)?;
    let segment: &'static Segment = Box::leak(Box::new(segment));
    let header = segment.header();
    header.launcher.store(std::process::id(), Ordering::Relaxed);
    header.processors.store(machine.processors as u32, Ordering::Relaxed);
    header.bound.store(u32::from(plan.exclusive), Ordering::Relaxed);
    let tolerates = own_config(spec).flag(Key::FaultTolerance);
    header.tolerates_failures.store(tolerates.into(), Ordering::Relaxed);
    header.began_with.store(ranks as u32, Ordering::Relaxed);
    for rank in segment.node_ranks() {
        let app = app_of[rank];
        if let Some(page) = segment.page(rank) {
            page.app.store(app as u32, Ordering::Relaxed);
            page.host.store(number_host(spec, app), Ordering::Relaxed);
            page.app_ranks.store(spec.apps[app].ranks as u32, Ordering::Relaxed);
            page.bound.store(u32::from(plan.exclusive), Ordering::Relaxed);
            page.world_ranks.store(ranks as u32, Ordering::Relaxed);
        }
    }
    if let Some(agent) = agent {
        agent.fill(segment).map_err(refuse)?;
    }
    if let Some(size) = spec.universe {
        header.universe.store(u32::try_from(size).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    segment.back_pairs_ahead();
    // If the limit on open files excludes `SEGMENT_FD`, use any number.
    let copy = |least| copy_above(segment.file()?, least);
    let keep = copy(SEGMENT_FD).or_else(|_| copy(3));
    let keep = keep.map_err(|e| (1, describe_files("fcntl (F_DUPFD_CLOEXEC)", &e, need)))?;
    Ok((segment, keep))
}

/// Returns the core, L3 cache, NUMA node and socket of each of the `ranks` ranks of this host.
fn place_ranks(
    ranks: usize, plan: &BindingPlan, machine: &NodeProcessors, topology: &HostTopology,
) -> Vec<RankDomains> {
    let all: CpuSet = machine.cores.iter().flat_map(|core| core.threads.iter().copied()).collect();
    let place = |index| {
        let bound = plan.sets.get(index);
        topology.place_rank(index, bound.unwrap_or(&all), bound.is_some())
    };
    (0..ranks).map(place).collect()
}

fn name_program(app: &App) -> String {
    let name = app.argv.first();
    name.map_or(String::new(), |name| tell::escape(&name.to_string_lossy()).into_owned())
}

/// Returns the number of ranks that may be spawned later. They need address space, so a limit on the address space may
/// lower this number.
fn count_spares(ranks: usize) -> usize {
    let config = Config::from_env().unwrap_or_else(|_| Config::defaults());
    let wanted = config.number(Key::SpawnMax).unwrap_or_default() as usize;
    let wanted = wanted.min(MAX_RANKS.saturating_sub(ranks));
    match read_limit(libc::RLIMIT_AS) {
        Some(limit) => count_fitting_spares(ranks, wanted, limit / LIMITED_SHARE),
        None => wanted,
    }
}

/// Returns the largest number of spare ranks, up to `wanted`, with which a rank maps at most `bytes` of the segment.
fn count_fitting_spares(ranks: usize, wanted: usize, bytes: u64) -> usize {
    let fits = |spares: &usize| {
        SegmentLayout::new(ranks + spares).is_some_and(|layout| layout.mapped_bytes() <= bytes)
    };
    (1..=wanted).rev().find(fits).unwrap_or(0)
}

/// Returns the number of the host that a program's ranks are treated as being on. It is 1 plus the index of the first
/// program that names this host, or 0 if the program names no host.
fn number_host(spec: &JobSpec, app: usize) -> u32 {
    let host = &spec.apps[app].virtual_host;
    let first = spec.apps.iter().position(|other| other.virtual_host == *host);
    match (host, first) {
        (Some(_), Some(first)) => first as u32 + 1,
        _ => 0,
    }
}

/// Makes orphans of ranks children of the launcher, so that it can end them.
fn adopt_orphans() {
    // SAFETY: prctl takes no pointers here. If it is missing, orphans go to init.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}
