//! Initialisation: the job, the worker and the predefined objects.
#![allow(unsafe_code)]

use crate::check::Checks;
use crate::common::consts::*;
use crate::common::debugger;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::objects::comm::Comm;
use crate::objects::group::Group;
use crate::objects::hot::{self, Allowed};
use crate::p2p::request;
use crate::process::background::ProgressThread;
use crate::process::errhandler::abort;
use crate::process::{self, Finders, ForkedChild, Process, ProcessPhase, Runtime, failures};
use fastpath_base::config::{Config, Key};
use fastpath_base::device;
use fastpath_base::exit;
use fastpath_base::float;
use fastpath_base::race_detector;
use fastpath_base::tell;
use fastpath_base::tell::count;
use fastpath_base::topology;
use fastpath_base::wait;
use fastpath_job::Job;
use fastpath_protocol::Worker;
use fastpath_protocol::flood::FloodWarning;
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::{ReleaseLock, WaitPolicy};
use fastpath_segment::{Notice, RankPhase};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;

/// Longest time, in nanoseconds, that a report waits for another rank to start, to test copies from that rank's memory.
const REPORT_TIMEOUT_NS: u64 = 1_000_000_000;

/// Initialises the world model at thread level `required`. Returns the provided level, which is that of an earlier
/// session if there was one. Errors: `MPI_ERR_OTHER` if called a second time, or if the job cannot be joined.
pub fn init(required: i32) -> Result<i32> {
    // SAFETY: MPI lets one thread initialise. Another thread can be inside MPI only in a session.
    let p = unsafe { process::get_unlocked() };
    match process::world_phase() {
        ProcessPhase::Uninitialized => {}
        ProcessPhase::Running => {
            return Err(Error::new(
                MPI_ERR_OTHER,
                "MPI is initialised already: call MPI_Init once",
            ));
        }
        ProcessPhase::Finalized => {
            return Err(ForkedChild::find().map_or_else(
                || {
                    let text =
                        "MPI was finalized and cannot be initialised again. Call MPI_Init only \
                         once";
                    Error::new(MPI_ERR_OTHER, text)
                },
                ForkedChild::refuse,
            ));
        }
    }
    let level = start(p, required)?;
    let _inside = process::enter(p.call.get(), true)?;
    p.main_thread.set(lock::thread_token());
    let job = p.running()?.job;
    make_world(p, job);
    p.set_world_phase(ProcessPhase::Running);
    p.set_phase(ProcessPhase::Running);
    let met = crate::dynamic::meet_parent(p);
    if let (Err(error), true) = (&met, failures::is_on()) {
        // The program cannot have set an error handler yet, and the survivors go on without this process.
        abort::end_this_process(&format!(
            "fastpath: MPI_Init ends spawned rank {} of the job: {error}\n",
            job.rank()
        ));
    }
    met.map(|()| level)
}

/// Joins the job at thread level `required`, if this process has not joined yet. Returns the provided level. Errors:
/// `MPI_ERR_OTHER` if the job cannot be joined.
pub(crate) fn start(p: &Process, required: i32) -> Result<i32> {
    if p.engine().is_some() {
        return Ok(p.thread_level.get());
    }
    // Selection computes costs in floating point, isolated from the program's settings.
    float::isolated(|| join_job(p, required))
}

fn join_job(p: &Process, required: i32) -> Result<i32> {
    if let Some(child) = ForkedChild::find() {
        return Err(child.refuse());
    }
    let levels =
        [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE];
    let level = levels.into_iter().find(|&level| required <= level).unwrap_or(MPI_THREAD_MULTIPLE);
    let config = Config::from_env().map_err(|e| Error::new(MPI_ERR_OTHER, e.to_string()))?;
    let config = exit::store(config);
    debugger::publish_library();
    let job = Job::attach().map_err(|e| {
        Error::new(MPI_ERR_OTHER, e.to_string())
            .with_advice(e.advice())
            .told_elsewhere(e.is_told_elsewhere())
    })?;
    let job = store_job(job);
    if job.rank() == 0 {
        config.warnings().iter().for_each(|warning| tell!("fastpath: {warning}"));
    }
    wait::register_membarrier();
    let serves = config.choice(Key::Progress) == "thread";
    let threads = level == MPI_THREAD_MULTIPLE || serves;
    let release_lock = threads.then_some(release_lock as ReleaseLock);
    // The immediate path and a bias enter the lock without telling a race detector.
    let annotated = threads && race_detector::find();
    if annotated || config.is_disabled("bias") {
        wait::refuse_own_membarrier();
    }
    job.watch().map_err(|e| {
        let text = format!(
            "the thread that watches the ranks of this node cannot be started: {e}; raise `ulimit \
             -u`"
        );
        Error::new(MPI_ERR_OTHER, text)
    })?;
    let (ranks_here, before) = job.node_place();
    if ranks_here > job.processors() && !job.is_bound() {
        // One process started all ranks. The kernel may leave ranks on that process's processor, because ranks that
        // yield look busy to the kernel.
        topology::start_on(before);
    }
    let mut policy = WaitPolicy::of(config, job.processors() as u32, release_lock);
    policy.wanted = || lock::get().is_wanted();
    policy.multiple = level == MPI_THREAD_MULTIPLE;
    let mut worker = Worker::new(job, policy).map_err(|e| {
        Error::new(MPI_ERR_NO_MEM, format!("no address space for the queues of this rank: {e}"))
    })?;
    worker.configure(config).map_err(|e| Error::new(MPI_ERR_OTHER, e.why).with_advice(e.advice))?;
    let (warnings, choice) = crate::coll::ask(config, job.rank());
    job.agree_on_collectives(choice).map_err(|other| {
        let rank = job.rank();
        let text = format!(
            "rank {rank} and rank {other} have different values of FASTPATH_COLL: the ranks would \
             wait for each other for ever"
        );
        Error::new(MPI_ERR_OTHER, text)
            .with_advice(Some("set FASTPATH_COLL to the same value on all ranks of a job"))
    })?;
    if job.rank() == 0 {
        for warning in warnings {
            tell!("fastpath: FASTPATH_COLL: {warning}");
        }
        print_selection(&mut worker, config, job);
    }
    crate::tool::profile::warn_if_missing(config, job.rank());
    worker.hooks.name_wait = request::name_wait;
    worker.hooks.moved_by = request::moved_by;
    worker.hooks.on_ends = Some(crate::comm_creation::departed::release_after_ends);
    let tolerates = config.flag(Key::FaultTolerance);
    crate::recovery::start(p, &mut worker, tolerates, crate::rma::window::hide_broken);
    worker.rma.change = crate::rma::change::make;
    p.finders.set(Finders {
        win: crate::rma::window::find_handler,
        file: crate::io::find_handler,
        comm: failures::find_broken,
    });
    worker.flood.bound = config.number(Key::UnexpectedMax).unwrap_or(u64::MAX);
    worker.flood.on_reached = Some(tell_flood);
    worker.hooks.on_no_answer = Some(crate::p2p::fault::end_without_answer);
    let worker = exit::store_mut(worker);
    let check = config.flag(Key::Check);
    device::detect_freed(check);
    let devices = device::start(match config.choice(Key::Gpu) {
        "on" => device::Setting::On,
        "off" => device::Setting::Off,
        _ => device::Setting::Auto,
    });
    // The immediate path can neither check a call, nor recognise device memory, nor report its lock to a tool.
    let immediate = !check && !annotated && !devices;
    let allowed = Allowed {
        send: immediate && !config.is_disabled("sendi"),
        recv: immediate && !config.is_disabled("recvi"),
        datatype: immediate && !config.is_disabled("immediate-datatype"),
        collective: !crate::coll::counts(),
        traced: crate::tool::traced::start(config, job, threads),
    };
    if allowed.traced {
        // SAFETY: the worker was made above, and no other reference to it exists.
        unsafe { (*worker).record_arrivals() };
        lock::get().record_calls();
    }
    // SAFETY: the worker was made above, and its address never changes.
    let shown = unsafe { (*worker).show() };
    debugger::publish_queues(shown);
    // SAFETY: the worker was made above, and no other reference to it exists.
    crate::p2p::request::make_done_request(unsafe { &mut *worker });
    // SAFETY: no other thread is inside MPI.
    unsafe {
        *p.engine.get() = Some(Runtime {
            job,
            config,
            worker,
            allowed,
            checks: check.then(|| Box::new(Checks::new(job.rank()))),
            progress: Cell::default(),
        })
    };
    let known = match !immediate || (threads && allowed.traced) {
        true => std::ptr::null_mut(),
        false => worker,
    };
    hot::set_worker(known, threads || allowed.traced);
    p.thread_level.set(level);
    p.main_thread.set(lock::thread_token());
    if threads {
        lock::get().enable();
    } else if check {
        lock::get().watch_threads();
    }
    p.environment.appnum.set(job.appnum().map(|number| number as i32));
    p.environment.universe_size.set(Some(job.universe_size() as i32));
    let has_one_clock = (0..job.present()).all(|rank| job.is_node_peer(rank));
    p.environment.wtime_is_global.set(i32::from(has_one_clock));
    register_predefined(p);
    describe_job(p, job, level)?;
    crate::p2p::slow::install(p);
    crate::process::crash::install();
    crate::process::exhausted::install();
    process::watch_forks(job.rank(), crate::rma::hot::clear_all)
        .map_err(|e| Error::new(MPI_ERR_NO_MEM, format!("pthread_atfork: {e}")))?;
    job.set_phase(RankPhase::Initialized);
    p.hot_named_set_all();
    if serves {
        start_progress(p, job, worker);
    }
    Ok(level)
}

/// Stores the job until the process exits. Threads that watch the job's other ranks use a linked job until the process
/// has ended, so that one is never dropped.
fn store_job(job: Job) -> &'static Job {
    static LINKED: OnceLock<Job> = OnceLock::new();
    match job.is_linked() {
        true => LINKED.get_or_init(|| job),
        false => exit::store(job),
    }
}

/// Starts the progress thread. On failure it prints the reason, and the program runs without the thread.
#[cold]
fn start_progress(p: &Process, job: &'static Job, worker: *mut Worker) {
    let Some(engine) = p.engine() else { return };
    match ProgressThread::start(job, worker) {
        Ok(thread) => engine.progress.set(Some(thread)),
        Err(e) if job.header().is_first_notice(Notice::ProgressThread) => tell!(
            "fastpath: rank {} has no progress thread, although FASTPATH_PROGRESS=thread is set: \
             {e}",
            job.rank()
        ),
        Err(_) => {}
    }
}

/// Prints warnings about stored constants and, if `FASTPATH_REPORT` is set, the starter of the job and the selected
/// protocols with reasons.
fn print_selection(worker: &mut Worker, config: &Config, job: &Job) {
    for warning in worker.selection_warnings() {
        tell!("fastpath: FASTPATH_TUNING: {warning}");
    }
    let json = matches!(config.choice(Key::Report), "json" | "selection");
    if !json && !config.flag(Key::Report) {
        return;
    }
    let mut report = worker.report(REPORT_TIMEOUT_NS);
    report.started = job.started().to_owned();
    match json {
        true => tell!("{}", report.to_json()),
        false => {
            let text = report.to_string();
            let lines: Vec<String> = text.lines().map(|l| format!("fastpath: {l}\n")).collect();
            tell::lines(&lines.concat());
        }
    }
}

/// Reports, once on a node, that unexpected messages have reached the limit, so that senders wait from now on.
#[cold]
fn tell_flood(worker: &Worker, reached: &FloodWarning) {
    if !worker.job.header().is_first_notice(Notice::Flood) {
        return;
    }
    let (rank, host) = (worker.rank, topology::host_name());
    let FloodWarning { peer, messages, bytes, bound } = reached;
    tell!(
        "fastpath: rank {rank} on {host} holds {} of {bytes} bytes, the limit of \
         FASTPATH_UNEXPECTED_MAX={bound}. Rank {peer} and other senders wait until some of these \
         messages are received. No message is lost. Receive earlier, or raise \
         FASTPATH_UNEXPECTED_MAX",
        count(*messages, "unexpected message")
    );
}

fn register_predefined(p: &Process) {
    for (handle, datatype) in crate::objects::datatype::Datatype::all_named() {
        if datatype.is_supported() && datatype.layout().is_contiguous() {
            p.hot_type_set(handle, datatype.layout().size());
        }
        p.types.insert_predefined(handle, datatype);
    }
    crate::objects::op::register_predefined(&p.ops);
    crate::process::errhandler::register_predefined(p);
    crate::objects::info::register_predefined(&p.infos);
    crate::objects::group::register_predefined(&p.groups);
}

pub(crate) fn name_level(level: i32) -> &'static str {
    match level {
        MPI_THREAD_SINGLE => "MPI_THREAD_SINGLE",
        MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        _ => "MPI_THREAD_MULTIPLE",
    }
}

/// Adds to `MPI_INFO_ENV` the values that are known only after the process has joined the job.
fn describe_job(p: &Process, job: &Job, level: i32) -> Result {
    crate::objects::info::extend_environment(&p.infos, "thread_level", name_level(level))?;
    let ft = if failures::is_on() { "1" } else { "0" };
    crate::objects::info::extend_environment(&p.infos, "mpix_ft", ft)?;
    crate::objects::info::extend_environment(&p.infos, "maxprocs", &job.app_size().to_string())
}

fn make_world(p: &Process, job: &Job) {
    let (me, ranks) = (job.rank() as u32, job.world());
    let (first, end) = (ranks.start as u32, ranks.end as u32);
    let world = Rc::new(Group::new((first..end).collect(), me));
    let own = Rc::new(Group::new(vec![me], me));
    add_predefined_comm(p, MPI_COMM_WORLD, Context::WORLD, world, me - first, "MPI_COMM_WORLD");
    add_predefined_comm(p, MPI_COMM_SELF, Context::SELF, own, 0, "MPI_COMM_SELF");
}

fn add_predefined_comm(
    p: &Process, handle: usize, context: Context, group: Rc<Group>, rank: u32, name: &str,
) {
    let comm = Comm::new(p, context, group, None, rank);
    comm.handle.set(handle);
    *comm.name.borrow_mut() = name.to_string();
    comm.errhandler.set(MPI_ERRORS_ARE_FATAL);
    comm.list();
    p.comms.insert_predefined(handle, comm);
    if let Some(comm) = p.comms.get(handle) {
        p.hot_comm_set(handle, &comm);
        failures::note_new_comm(p, &comm);
    }
}

/// Lets other threads into MPI while `pause` runs.
fn release_lock(pause: &mut dyn FnMut()) {
    lock::get().release_lock(pause);
}
