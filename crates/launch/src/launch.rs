#![allow(unsafe_code)]
//! From a command line to running ranks.

use crate::args::{App, JobSpec, Stdin};
use crate::binding::{Machine, Plan, describe_plan, plan_binding};
use crate::claims::{Pick, claim_processors};
use crate::environment::{find_missing, select_variables};
use crate::guard::Guard;
use crate::input::{copy_above, open_inputs};
use crate::limits::{Need, check_calls, describe_clone, describe_files, limit_files};
use crate::output::Outputs;
use crate::poll::{Poller, make_pipe};
use crate::program::{
    ProgramError, c_pair, c_string, check_wdir, describe_exec_error, find_program,
};
use crate::ranks::{Ranks, list_children};
use crate::show::describe_map;
use crate::signals::{Inherited, Signals};
use crate::spawn::{RankStart, SpawnError, Spawner, Step};
use crate::watch::{INPUT, SINKS, STREAMS, Watch};
use fastpath_base::config::{Config, Key, shorten};
use fastpath_base::refusal::describe_call;
use fastpath_base::sync::Ordering;
use fastpath_base::topology;
use fastpath_bootstrap::job::{Identity, JOB_VARIABLE, describe_copies, random_job_id};
use fastpath_bootstrap::segment::Segment;
use fastpath_bootstrap::trace::prepare_file;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The job's memory is inherited under a number that scripts do not use themselves.
const SEGMENT_FD: i32 = 60;

/// Why a job did not start: exit code and text.
type Refusal = (i32, String);

/// An app with everything looked up.
struct Prepared {
    program: CString,
    path: PathBuf,
    argv: Vec<CString>,
    env: Vec<CString>,
    wdir: Option<CString>,
    /// Whether its ranks look for mistakes.
    checks: bool,
    /// The file for a trace.
    trace: Option<PathBuf>,
}

/// Runs the job to its end; returns the launcher's exit code.
pub fn run_job(spec: &JobSpec) -> i32 {
    let started = Instant::now();
    for notice in &spec.notices {
        eprintln!("mpiexec: {notice}");
    }
    for name in find_missing(std::env::vars_os, spec) {
        eprintln!(
            "mpiexec: -x {}: not set in the environment, not passed on",
            name.display()
        );
    }
    if let Some(place) = &spec.report_pid
        && let Err(e) = report_pid(place)
    {
        eprintln!("mpiexec: --report-pid {}: {e}", place.display());
        return 2;
    }
    if let Some(set) = &spec.cpus
        && let Err(e) = topology::set_affinity(set)
    {
        let there = topology::affinity();
        eprintln!("mpiexec: --cpu-set {set}: {e}; processors {there} may be used here");
        return 2;
    }
    if let Some(text) = describe_copies() {
        eprintln!("mpiexec: {text}");
    }
    match start_job(spec) {
        Ok(Started::Shown) => 0,
        Ok(Started::Running(watch)) => watch.run(started),
        Ok(Started::Broken(watch, (code, text))) => {
            watch.abandon(code, &format!("mpiexec: {text}\n"))
        }
        Err((code, text)) => {
            eprintln!("mpiexec: {text}");
            code
        }
    }
}

/// Writes our process number to standard output (`-`), standard error (`+`) or a file.
fn report_pid(place: &OsStr) -> std::io::Result<()> {
    let line = format!("{}\n", std::process::id());
    match place.to_str() {
        Some("-") => std::io::stdout().write_all(line.as_bytes()),
        Some("+") => std::io::stderr().write_all(line.as_bytes()),
        _ => std::fs::write(place, line),
    }
}

enum Started<'a> {
    Running(Box<Watch<'a>>),
    /// Nothing was to be started.
    Shown,
    /// Some ranks run, and another could not be started.
    Broken(Box<Watch<'a>>, Refusal),
}

fn start_job(spec: &JobSpec) -> Result<Started<'_>, Refusal> {
    let apps = spec
        .apps
        .iter()
        .map(|a| prepare_app(a, spec))
        .collect::<Result<Vec<_>, _>>();
    let apps = apps.map_err(|e: ProgramError| (e.code, e.text))?;
    if !apps.windows(2).all(|two| two[0].checks == two[1].checks) {
        let text = "FASTPATH_CHECK differs among the programs: set it for all of them, with -x or \
            before mpiexec";
        return Err((2, text.to_string()));
    }
    let app_of: Vec<usize> = spec
        .apps
        .iter()
        .enumerate()
        .flat_map(|(i, a)| vec![i; a.ranks])
        .collect();
    let trace = apps.iter().find_map(|app| app.trace.clone());
    if let Some(path) = &trace {
        prepare_file(path).map_err(|e| {
            (
                2,
                format!("FASTPATH_TRACE={}: {e}", shorten(&path.to_string_lossy())),
            )
        })?;
    }
    check_calls().map_err(|text| (1, text))?;
    let (signals, inherited) =
        Signals::take_over().map_err(|text| (1, format!("cannot take over signals: {text}")))?;
    let need = Need {
        ranks: app_of.len(),
        files: count_files(spec, app_of.len()),
    };
    limit_files(need, &inherited).map_err(|text| (1, text))?;

    let machine = read_machine();
    let plan = plan_for(spec, app_of.len(), &machine);
    let host: &str = Box::leak(topology::host_name().into_boxed_str());
    let shown = describe_start(spec, &apps, &plan, host, &machine);
    if spec.only_show {
        eprint!("{shown}");
        return Ok(Started::Shown);
    }
    let mut outputs = Outputs::new(&spec.output, host, app_of.len(), SINKS);
    outputs.open_files().map_err(|text| (2, text))?;
    let (segment, keep) = make_segment(spec, &app_of, &machine, &plan, need)?;
    let poller = Poller::new(signals.mask()).map_err(|e| (1, describe_call("ppoll", &e)))?;
    let mut spared = list_children();
    adopt_orphans();
    let guard = Guard::start(segment, need).map_err(|e| {
        (
            1,
            format!("cannot start the process that guards the job: {e}"),
        )
    })?;
    spared.push(guard.pid());
    let mut watch = Box::new(Watch {
        spec,
        host,
        segment,
        ranks: Ranks::new(&app_of),
        outputs,
        input: None,
        poller,
        signals,
        guard,
        spared,
        trace,
    });
    watch.outputs.say(&shown);
    let done = start_ranks(
        &mut watch,
        &apps,
        &app_of,
        &plan,
        &inherited,
        need,
        keep.as_raw_fd(),
    );
    // The claims on processors and the segment's inherited number last as long as we do.
    std::mem::forget((plan, keep));
    Ok(match done {
        Ok(()) => Started::Running(watch),
        Err(refusal) => Started::Broken(watch, refusal),
    })
}

/// What is said before the ranks start: that they are not bound as wanted, what runs where, how it is bound.
fn describe_start(
    spec: &JobSpec,
    apps: &[Prepared],
    plan: &Plan,
    host: &str,
    machine: &Machine,
) -> String {
    let mut text = String::new();
    if let Some(warning) = &plan.warning {
        text = format!("mpiexec: {warning}\n");
    }
    if spec.show_map {
        let paths: Vec<&Path> = apps.iter().map(|a| a.path.as_path()).collect();
        text += &describe_map(spec, &paths, host, machine.processors);
    }
    if spec.show_map || spec.report_bindings {
        let ranks = spec.apps.iter().map(|a| a.ranks).sum();
        text += &describe_plan(plan, ranks, machine);
    }
    text
}

/// Starts all ranks, in order.
fn start_ranks(
    watch: &mut Watch<'_>,
    apps: &[Prepared],
    app_of: &[usize],
    plan: &Plan,
    inherited: &Inherited,
    need: Need,
    keep: i32,
) -> Result<(), Refusal> {
    let files = |call: &str, e: std::io::Error| (1, describe_files(call, &e, need));
    let mut spawner =
        Spawner::new(*inherited).map_err(|e| (1, format!("no memory to start ranks: {e}")))?;
    let (inputs, forward) = open_inputs(&watch.poller, INPUT, &watch.spec.stdin, app_of.len())
        .map_err(|e| files("fcntl or pipe2", e))?;
    watch.input = forward;
    let mut identity = Identity {
        fd: keep,
        rank: 0,
        launcher: std::process::id(),
        job_id: watch.segment.header().job_id.load(Ordering::Relaxed),
        listener: None,
    };
    let size = c_pair("FASTPATH_SIZE".as_ref(), app_of.len().to_string().as_ref());
    for (rank, &app) in app_of.iter().enumerate() {
        let prepared = &apps[app];
        identity.rank = rank;
        let own = [
            c_pair(JOB_VARIABLE.as_ref(), identity.to_string().as_ref()),
            c_pair("FASTPATH_RANK".as_ref(), rank.to_string().as_ref()),
            size.clone(),
        ];
        let (out_reader, out) = make_pipe().map_err(|e| files("pipe2", e))?;
        let (err_reader, err) = make_pipe().map_err(|e| files("pipe2", e))?;
        let Some(page) = watch.segment.page(rank) else {
            continue;
        };
        let pid = spawner
            .spawn(&RankStart {
                program: &prepared.program,
                argv: &prepared.argv,
                env: [&prepared.env, &own],
                wdir: prepared.wdir.as_ref(),
                stdio: [inputs.of(rank), out.as_raw_fd(), err.as_raw_fd()],
                keep,
                cpus: plan.sets.get(rank),
                pid_cell: &page.launched_pid,
            })
            .map_err(|e| describe_spawn_error(&e, rank, prepared))?;
        watch.ranks.started(rank, pid);
        for (which, reader) in [(0, out_reader), (1, err_reader)] {
            let outputs = &mut watch.outputs;
            outputs.add_stream(&watch.poller, STREAMS, rank, which, reader);
        }
    }
    Ok(())
}

fn describe_spawn_error(error: &SpawnError, rank: usize, app: &Prepared) -> Refusal {
    let cause = std::io::Error::from_raw_os_error(error.errno);
    match error.step {
        Step::Exec => {
            let e = describe_exec_error(&app.path, error.errno);
            (e.code, e.text)
        }
        Step::Chdir => (2, format!("-wdir: {cause}")),
        Step::Clone => {
            let why = describe_clone(&cause);
            (1, format!("rank {rank} cannot be started: {why}"))
        }
        Step::Setup(call) => {
            let why = describe_call(call, &cause);
            (1, format!("rank {rank} cannot be started: {why}"))
        }
    }
}

fn prepare_app(app: &App, spec: &JobSpec) -> Result<Prepared, ProgramError> {
    check_wdir(app)?;
    let mut env: BTreeMap<OsString, OsString> = select_variables(std::env::vars_os(), spec, app);
    if let Some(dir) = app.wdir.as_ref().and_then(|d| std::path::absolute(d).ok()) {
        env.insert("PWD".into(), dir.into());
    }
    env.extend(spec.env.iter().cloned());
    env.extend(app.env.iter().cloned());
    let pairs = env.iter().map(|(n, v)| (n.clone(), v.clone()));
    let config = Config::from_pairs(pairs).map_err(|e| ProgramError {
        code: 2,
        text: e.to_string(),
    })?;
    let trace = config.text(Key::Trace);
    let trace = (!trace.is_empty()).then(|| PathBuf::from(trace));
    let found = find_program(app, search_path(app, &env).as_deref())?;
    let path = std::path::absolute(&found).unwrap_or(found);
    Ok(Prepared {
        program: c_string(path.as_os_str()),
        path,
        argv: app.argv.iter().map(|a| c_string(a)).collect(),
        env: env.iter().map(|(n, v)| c_pair(n, v)).collect(),
        wdir: app.wdir.as_ref().map(|d| c_string(d.as_os_str())),
        checks: config.flag(Key::Check),
        trace,
    })
}

/// Where programs are looked for: folders of `-path`, then PATH, the launcher's own where the ranks get none.
fn search_path(app: &App, env: &BTreeMap<OsString, OsString>) -> Option<OsString> {
    let path = env.get(OsStr::new("PATH")).cloned();
    let path = path.or_else(|| std::env::var_os("PATH"));
    match (&app.path, path) {
        (Some(first), Some(path)) => Some([first, OsStr::new(":"), &path].into_iter().collect()),
        (first, path) => path.or_else(|| first.clone()),
    }
}

/// Pipes and files of all ranks that the launcher holds: two for output; two where each gets its own copy of the input;
/// two for files.
fn count_files(spec: &JobSpec, ranks: usize) -> u64 {
    let copies = match &spec.stdin {
        Stdin::All => ranks,
        Stdin::Ranks(list) => list.len(),
    };
    let files = spec.output.files.iter().flatten().count() * ranks;
    (2 * ranks + 2 * copies + files) as u64
}

fn read_machine() -> Machine {
    let allowed = topology::affinity();
    let processors = topology::limit_by_quota(allowed.len(), topology::cpu_quota());
    Machine {
        cores: topology::list_cores(&allowed),
        processors,
        read: topology::read_system,
    }
}

fn plan_for(spec: &JobSpec, ranks: usize, machine: &Machine) -> Plan {
    let lookup = |name: &str| {
        let set = spec
            .env
            .iter()
            .rev()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.clone());
        set.or_else(|| std::env::var_os(name))
    };
    // "4" or "4,2" for nested regions: the first counts.
    let threads = lookup("OMP_NUM_THREADS").and_then(|t| {
        t.to_string_lossy()
            .split(',')
            .next()
            .and_then(|n| n.trim().parse::<usize>().ok())
    });
    let per_rank = threads.unwrap_or(1).max(1);
    let config = Config::from_env().unwrap_or_else(|_| Config::defaults());
    let folder = Path::new(config.text(Key::InternalClaims));
    let mut claim = |pick: Pick<'_>| claim_processors(folder, pick);
    plan_binding(&spec.placement, ranks, per_rank, machine, &mut claim)
}

/// Makes the job's memory and fills in what the ranks find there. The segment lives as long
/// as the launcher.
fn make_segment(
    spec: &JobSpec,
    app_of: &[usize],
    machine: &Machine,
    plan: &Plan,
    need: Need,
) -> Result<(&'static Segment, OwnedFd), Refusal> {
    let segment = Segment::create(app_of.len(), random_job_id())
        .map_err(|e| (1, format!("cannot make the job's memory: {e}")))?;
    let segment: &'static Segment = Box::leak(Box::new(segment));
    let header = segment.header();
    header.launcher.store(std::process::id(), Ordering::Relaxed);
    header
        .processors
        .store(machine.processors as u32, Ordering::Relaxed);
    header
        .bound
        .store(u32::from(plan.exclusive), Ordering::Relaxed);
    for (rank, &app) in app_of.iter().enumerate() {
        if let Some(page) = segment.page(rank) {
            page.app.store(app as u32, Ordering::Relaxed);
            page.host.store(number_host(spec, app), Ordering::Relaxed);
            page.app_ranks
                .store(spec.apps[app].ranks as u32, Ordering::Relaxed);
            page.bound
                .store(u32::from(plan.exclusive), Ordering::Relaxed);
        }
    }
    // Few files may be allowed: then any number must do.
    let keep = copy_above(segment.file(), SEGMENT_FD).or_else(|_| copy_above(segment.file(), 3));
    let keep = keep.map_err(|e| (1, describe_files("fcntl (F_DUPFD_CLOEXEC)", &e, need)))?;
    Ok((segment, keep))
}

/// Number of the host that an app's ranks count as being on: that of the first app that names it, plus one.
fn number_host(spec: &JobSpec, app: usize) -> u32 {
    let host = &spec.apps[app].virtual_host;
    let first = spec
        .apps
        .iter()
        .position(|other| other.virtual_host == *host);
    match (host, first) {
        (Some(_), Some(first)) => first as u32 + 1,
        _ => 0,
    }
}

/// What ranks leave behind becomes the launcher's child, so that it can be ended too.
fn adopt_orphans() {
    // SAFETY: plain prctl; where it is missing, orphans go elsewhere as usual.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}
