#![allow(unsafe_code)]
//! From a command line to running ranks.

use crate::args::{App, JobSpec};
use crate::binding::{Machine, Plan, claim_processors, describe_plan, plan_binding};
use crate::guard::Guard;
use crate::input::{TerminalInput, open_input, open_null};
use crate::output::Outputs;
use crate::poll::{Poller, make_pipe};
use crate::program::{
    ProgramError, c_pair, c_string, check_wdir, describe_exec_error, find_program,
};
use crate::ranks::{Ranks, list_children};
use crate::signals::{Inherited, Signals, raise_file_limit};
use crate::spawn::{RankStart, SpawnError, Spawner, Step};
use crate::watch::{INPUT, SINKS, STREAMS, Watch};
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use fastpath_base::topology;
use fastpath_bootstrap::job::{Identity, JOB_VARIABLE, random_job_id};
use fastpath_bootstrap::segment::Segment;
use fastpath_bootstrap::trace::prepare_file;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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
    /// The file for a trace.
    trace: Option<PathBuf>,
}

/// Runs the job to its end; returns the launcher's exit code.
pub fn run_job(spec: &JobSpec) -> i32 {
    let started = Instant::now();
    for name in spec
        .exported
        .iter()
        .filter(|n| std::env::var_os(n).is_none())
    {
        eprintln!(
            "mpiexec: -x {}: not set in the environment, not passed on",
            name.display()
        );
    }
    match start_job(spec) {
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

enum Started<'a> {
    Running(Box<Watch<'a>>),
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
    let app_of: Vec<usize> = spec
        .apps
        .iter()
        .enumerate()
        .flat_map(|(i, a)| vec![i; a.ranks])
        .collect();
    let trace = apps.iter().find_map(|app| app.trace.clone());
    if let Some(path) = &trace {
        prepare_file(path).map_err(|e| (2, format!("FASTPATH_TRACE={}: {e}", path.display())))?;
    }
    let (signals, inherited) =
        Signals::take_over().map_err(|e| (1, format!("cannot take over signals: {e}")))?;
    limit_files(app_of.len(), &inherited)?;

    let machine = read_machine();
    let plan = plan_for(spec, app_of.len(), &machine);
    let (segment, keep) = make_segment(spec, &app_of, &machine, &plan)?;
    let poller = Poller::new().map_err(|e| (1, format!("cannot make an event queue: {e}")))?;
    let mut spared = list_children();
    adopt_orphans();
    let guard = Guard::start(segment).map_err(|e| {
        (
            1,
            format!("cannot start the process that guards the job: {e}"),
        )
    })?;
    spared.push(guard.pid());
    let mut watch = Box::new(Watch {
        spec,
        host: Box::leak(topology::host_name().into_boxed_str()),
        segment,
        ranks: Ranks::new(&app_of),
        outputs: Outputs::new(spec.tag_output, SINKS),
        input: None,
        poller,
        signals,
        guard,
        spared,
        trace,
    });
    if let Some(warning) = &plan.warning {
        watch.outputs.say(&format!("mpiexec: {warning}\n"));
    }
    if spec.report_bindings {
        watch
            .outputs
            .say(&describe_plan(&plan, app_of.len(), &machine));
    }
    let done = start_ranks(
        &mut watch,
        &apps,
        &app_of,
        &plan,
        &inherited,
        keep.as_raw_fd(),
    );
    // The claims on processors and the segment's inherited number last as long as we do.
    std::mem::forget((plan, keep));
    Ok(match done {
        Ok(()) => Started::Running(watch),
        Err(refusal) => Started::Broken(watch, refusal),
    })
}

/// Starts all ranks, in order.
fn start_ranks(
    watch: &mut Watch<'_>,
    apps: &[Prepared],
    app_of: &[usize],
    plan: &Plan,
    inherited: &Inherited,
    keep: i32,
) -> Result<(), Refusal> {
    let system = |what: &str, e: std::io::Error| (1, format!("{what}: {e}"));
    let mut spawner = Spawner::new(inherited.mask, inherited.files)
        .map_err(|e| system("no memory to start ranks", e))?;
    let null = open_null().map_err(|e| system("/dev/null", e))?;
    let (input, terminal): (OwnedFd, Option<TerminalInput>) =
        open_input(&watch.poller, INPUT).map_err(|e| system("standard input", e))?;
    watch.input = terminal;
    let mut identity = Identity {
        fd: keep,
        rank: 0,
        launcher: std::process::id(),
        job_id: watch.segment.header().job_id.load(Ordering::Relaxed),
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
        let (out_reader, out) =
            make_pipe().map_err(|e| system("pipes for the ranks' output", e))?;
        let (err_reader, err) =
            make_pipe().map_err(|e| system("pipes for the ranks' output", e))?;
        let stdin = if rank == 0 { &input } else { &null };
        let Some(page) = watch.segment.page(rank) else {
            continue;
        };
        let pid = spawner
            .spawn(&RankStart {
                program: &prepared.program,
                argv: &prepared.argv,
                env: [&prepared.env, &own],
                wdir: prepared.wdir.as_ref(),
                stdio: [stdin.as_raw_fd(), out.as_raw_fd(), err.as_raw_fd()],
                keep,
                cpus: plan.sets.get(rank),
                pid_cell: &page.launched_pid,
            })
            .map_err(|e| describe_spawn_error(&e, rank, prepared))?;
        watch.ranks.started(rank, pid);
        for (which, reader) in [(0, out_reader), (1, err_reader)] {
            watch
                .outputs
                .add_stream(&watch.poller, STREAMS, rank, which, reader)
                .map_err(|e| system("cannot watch the ranks' output", e))?;
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
        Step::Clone if error.errno == libc::EAGAIN => (
            1,
            format!(
                "rank {rank} cannot be started: {cause}; the number of processes is limited \
                 (`ulimit -u`, or the control group's pids.max)"
            ),
        ),
        Step::Clone | Step::Setup => (1, format!("rank {rank} cannot be started: {cause}")),
    }
}

fn prepare_app(app: &App, spec: &JobSpec) -> Result<Prepared, ProgramError> {
    check_wdir(app)?;
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for own in [JOB_VARIABLE, "FASTPATH_RANK", "FASTPATH_SIZE"] {
        env.remove(std::ffi::OsStr::new(own));
    }
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
    let found = find_program(
        app,
        env.get(std::ffi::OsStr::new("PATH")).map(|p| p.as_os_str()),
    )?;
    let path = std::path::absolute(&found).unwrap_or(found);
    Ok(Prepared {
        program: c_string(path.as_os_str()),
        path,
        argv: app.argv.iter().map(|a| c_string(a)).collect(),
        env: env.iter().map(|(n, v)| c_pair(n, v)).collect(),
        wdir: app.wdir.as_ref().map(|d| c_string(d.as_os_str())),
        trace,
    })
}

/// Two pipes a rank, of which both ends are open while it starts, and some more.
fn limit_files(ranks: usize, inherited: &Inherited) -> Result<(), Refusal> {
    let need = 2 * ranks as u64 + 128;
    if raise_file_limit(inherited, need) {
        return Ok(());
    }
    Err((
        1,
        format!(
            "{ranks} ranks need {need} open files in the launcher, allowed are {} (`ulimit -Hn`)",
            inherited.files.rlim_max
        ),
    ))
}

fn read_machine() -> Machine {
    let allowed = topology::affinity();
    let processors = topology::limit_by_quota(allowed.len(), topology::cpu_quota());
    Machine {
        cores: topology::list_cores(&allowed),
        processors,
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
    let mut claim = |cpus: &[usize]| claim_processors(folder, cpus);
    plan_binding(spec.bind, ranks, per_rank, machine, &mut claim)
}

/// Makes the job's memory and fills in what the ranks find there. The segment lives as long
/// as the launcher.
fn make_segment(
    spec: &JobSpec,
    app_of: &[usize],
    machine: &Machine,
    plan: &Plan,
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
    // SAFETY: plain fcntl; the copy is new and nobody else's.
    let keep = unsafe {
        let fd = libc::fcntl(
            segment.file().as_raw_fd(),
            libc::F_DUPFD_CLOEXEC,
            SEGMENT_FD,
        );
        if fd < 0 {
            let cause = std::io::Error::last_os_error();
            return Err((1, format!("cannot hand on the job's memory: {cause}")));
        }
        OwnedFd::from_raw_fd(fd)
    };
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
