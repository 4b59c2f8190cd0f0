//! Sessions (MPI 5.0, section 11.3): MPI without `MPI_COMM_WORLD`, initialised any number of times.
//!
//! The first session or `MPI_Init` joins the job. The process stays in it until it exits, since another session may
//! follow. Groups come from process sets by name, and communicators from groups. Members of such a group share no
//! communicator yet, so they meet in a separate context ([`Context::SESSIONS`]). Their tag is derived from the group
//! and the program's string.
#![allow(unsafe_code)]

pub use crate::comm_creation::meeting::{create_from_group, create_inter_from_groups};

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::lifecycle::finalize;
use crate::lifecycle::init;
use crate::objects::group::Group;
use crate::objects::info::{Info, memory_kinds};
use crate::p2p::buffered;
use crate::process::errhandler::{self, HandlerKind, check_errhandler};
use crate::process::{self, ForkedChild, Process, ProcessPhase, Session};
use fastpath_base::sync::Ordering;
use fastpath_base::tell::count;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, OnceLock, PoisonError};

const PROCESS_SETS: [&str; 3] = ["mpi://WORLD", "mpi://SELF", "mpi://SHARED"];

/// Process sets of the engine that started this job: name and ranks in the job's world.
static ENGINE_SETS: OnceLock<Vec<(String, Vec<usize>)>> = OnceLock::new();

/// Requests the engine's sets once, so that the number of a set never changes.
fn engine_sets(p: &Process) -> Result<&'static [(String, Vec<usize>)]> {
    let job = p.running()?.job;
    let ask = || {
        let sets = job.ask_engine(|engine| engine.process_sets()).unwrap_or_default();
        let is_other = |name: &str| PROCESS_SETS.iter().all(|set| !set.eq_ignore_ascii_case(name));
        let fits = |name: &str| name.len() < MPI_MAX_PSET_NAME_LEN as usize;
        sets.into_iter().filter(|(name, _)| is_other(name) && fits(name)).collect()
    };
    Ok(ENGINE_SETS.get_or_init(ask))
}

const LEVELS: [(&str, i32); 4] = [
    ("MPI_THREAD_SINGLE", MPI_THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE),
];

/// Serializes initialisation and finalisation of sessions, which several threads may perform at every thread level.
static TURN: Mutex<()> = Mutex::new(());

/// `MPI_Session_init`. Returns the session's handle. Errors: `MPI_ERR_ERRHANDLER`, `MPI_ERR_INFO`, `MPI_ERR_ARG` for an
/// unknown thread level, `MPI_ERR_OTHER` if the job can no longer be joined.
pub fn init(hints: Result<Vec<(String, String)>>, errhandler: usize) -> Result<usize> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: only tables of the process are used. Another thread inside MPI holds the lock, taken below.
    let p = unsafe { process::get_unlocked() };
    check_errhandler(p, HandlerKind::Session, errhandler)?;
    begin(p, hints, errhandler)
}

fn begin(p: &Process, hints: Result<Vec<(String, String)>>, errhandler: usize) -> Result<usize> {
    let required = find_level(&hints?)?;
    if let Some(child) = ForkedChild::find() {
        return Err(child.refuse());
    }
    if process::world_phase() == ProcessPhase::Finalized && !p.session_use.is_begun() {
        let text = "MPI was finalized, and this process has left its job: initialise the first \
            session before MPI_Finalize";
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let is_first = p.engine().is_none();
    let level = init::start(p, required)?;
    let _inside = process::enter("MPI_Session_init", true)?;
    if is_first {
        p.main_thread.set(lock::thread_token());
    }
    if !p.session_use.is_begun() {
        // SAFETY: `leave_at_exit` has no arguments, and lives as long as the library.
        unsafe { libc::atexit(leave_at_exit) };
        let own = std::process::id();
        p.session_use.begun_by.store(own, Ordering::Relaxed);
    }
    let session = Session { errhandler: Cell::new(errhandler), level, buffer: Cell::new(None) };
    let handle = p.sessions.publish(session)?;
    errhandler::attach(p, errhandler);
    p.session_use.open.fetch_add(1, Ordering::Relaxed);
    p.set_phase(ProcessPhase::Running);
    Ok(handle)
}

fn find_level(hints: &[(String, String)]) -> Result<i32> {
    let Some((_, wanted)) = hints.iter().find(|(key, _)| key == "thread_level") else {
        return Ok(MPI_THREAD_SINGLE);
    };
    let found = LEVELS.iter().find(|(name, _)| name == wanted);
    found.map(|&(_, level)| level).ok_or_else(|| {
        let text = format!(
            "the info key thread_level is {wanted:?}: pass the name of a level, such as \
             MPI_THREAD_MULTIPLE"
        );
        Error::new(MPI_ERR_ARG, text)
    })
}

/// `MPI_Session_finalize`. Waits until the session's messages have left. Errors: `MPI_ERR_SESSION`.
pub fn finalize(p: &Process, handle: usize) -> Result {
    let session = p.sessions.find(handle)?;
    buffered::drain_place(p, &session.buffer)?;
    let is_last = p.session_use.open() == 1 && process::world_phase() != ProcessPhase::Running;
    if is_last {
        finalize::deliver(p, true)?;
    }
    p.spare_buffers.put(&session.buffer);
    errhandler::detach(p, session.errhandler.get());
    p.sessions.remove(handle);
    p.session_use.open.fetch_sub(1, Ordering::Relaxed);
    if is_last {
        p.set_phase(process::world_phase());
    }
    Ok(())
}

/// Leaves the job at the exit of a process that has finalised all its sessions, and also its world model if it had one.
/// For other processes, the launcher reports what was not finalised.
extern "C" fn leave_at_exit() {
    // SAFETY: only atomics and the engine are read, since another thread may be inside MPI and stay there.
    let p = unsafe { process::get_unlocked() };
    let used = &p.session_use;
    let is_own = used.begun_by.load(Ordering::Relaxed) == std::process::id();
    if !is_own || process::world_phase() == ProcessPhase::Running {
        return;
    }
    if used.open() != 0 {
        if let Some(engine) = p.engine() {
            let open = count(used.open(), "session");
            let text = format!("MPI_Session_finalize was not called for {open}");
            engine.job.own_page().message.store(&text);
        }
        return;
    }
    if let Ok(p) = process::enter("exit", true) {
        // There is no caller left to report an error to.
        let _ = finalize::leave(&p);
    }
}

/// `MPI_Session_get_num_psets`. Errors: `MPI_ERR_SESSION` for an invalid handle.
pub fn count_sets(p: &Process, session: usize) -> Result<i32> {
    p.sessions.find(session)?;
    Ok((PROCESS_SETS.len() + engine_sets(p)?.len()) as i32)
}

/// `MPI_Session_get_nth_pset`. Returns the name. Errors: `MPI_ERR_SESSION`, `MPI_ERR_ARG` for an invalid number.
pub fn name_of_set(p: &Process, session: usize, n: i32) -> Result<&'static str> {
    p.sessions.find(session)?;
    let further = engine_sets(p)?;
    let mut names = PROCESS_SETS.into_iter().chain(further.iter().map(|(name, _)| name.as_str()));
    usize::try_from(n).ok().and_then(|n| names.nth(n)).ok_or_else(|| {
        let last = PROCESS_SETS.len() + further.len() - 1;
        Error::new(
            MPI_ERR_ARG,
            format!(
                "there is no process set number {n}: the process sets are numbered 0 to {last}"
            ),
        )
    })
}

fn members_of(p: &Process, name: &str) -> Result<Vec<u32>> {
    let job = p.running()?.job;
    let world = job.world();
    let all = world.start as u32..world.end as u32;
    let own_host = job.host(job.rank());
    match PROCESS_SETS.iter().position(|set| set.eq_ignore_ascii_case(name)) {
        Some(0) => Ok(all.collect()),
        Some(1) => Ok(vec![job.rank() as u32]),
        Some(_) => Ok(all.filter(|&rank| job.host(rank as usize) == own_host).collect()),
        None => {
            let further = engine_sets(p)?;
            if let Some((_, ranks)) = further.iter().find(|(set, _)| set == name) {
                return Ok(ranks.iter().map(|&rank| (world.start + rank) as u32).collect());
            }
            let names = further.iter().map(|(name, _)| name.as_str());
            let known: Vec<_> = PROCESS_SETS.into_iter().chain(names).collect();
            let known = known.join(", ");
            let text = format!("there is no process set {name:?}: use one of {known}");
            Err(Error::new(MPI_ERR_ARG, text))
        }
    }
}

/// `MPI_Session_get_pset_info`. Errors: `MPI_ERR_SESSION`, `MPI_ERR_ARG` for an unknown name.
pub fn describe_set(p: &Process, session: usize, name: &str) -> Result<Info> {
    p.sessions.find(session)?;
    let size = members_of(p, name)?.len().to_string();
    Ok(Info::from_pairs([("mpi_size", size)]))
}

/// `MPI_Session_get_info`. Errors: `MPI_ERR_SESSION` for an invalid handle.
pub fn describe(p: &Process, session: usize) -> Result<Info> {
    let level = p.sessions.find(session)?.level;
    let name = LEVELS.iter().find(|&&(_, number)| number == level);
    let name = name.map_or("MPI_THREAD_SINGLE", |&(name, _)| name);
    Ok(Info::from_pairs([("thread_level", name), ("mpi_memory_alloc_kinds", memory_kinds())]))
}

/// `MPI_Group_from_session_pset`. Errors: `MPI_ERR_SESSION`, `MPI_ERR_ARG` for an unknown name.
pub fn group_of_set(p: &Process, session: usize, name: &str) -> Result<Rc<Group>> {
    p.sessions.find(session)?;
    let me = p.running()?.job.rank() as u32;
    let group = Rc::new(Group::new(members_of(p, name)?, me));
    Ok(group.of_session(session))
}
