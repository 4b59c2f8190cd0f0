//! The MPI process: one static that holds every table, and the entry to it.
#![allow(unsafe_code)]

pub(crate) mod background;
pub mod crash;
pub mod errhandler;
pub(crate) mod exhausted;
pub(crate) mod failures;
mod finders;
mod forked;
mod host_groups;
mod immediate;
pub mod memory;
mod session;

use crate::check::{Checks, RECORD_BYTES, threads};
use crate::common::consts::*;
use crate::common::environment::Environment;
use crate::common::error::codes::Codes;
use crate::common::error::handler::Errhandler;
use crate::common::error::{Error, Result};
use crate::common::lock;
use crate::common::spare_blocks::Spare;
use crate::common::table::HandleTable;
use crate::objects::attached::{AttachedBuffer, SpareAttachedBuffers};
use crate::objects::attribute::{Keyval, Keyvals};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::Pool;
use crate::objects::comm::freed::FreedComms;
use crate::objects::datatype::Datatype;
use crate::objects::fortran::Fortran;
use crate::objects::group::Group;
use crate::objects::hot::Allowed;
use crate::objects::info::Info;
use crate::objects::message_copy::StagedRequests;
use crate::objects::op::Op;
use crate::objects::operation::Extras;
use crate::process::background::ProgressThread;
use fastpath_base::config::Config;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::trace;
use fastpath_job::Job;
use fastpath_protocol::Worker;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_int;
use std::ops::Deref;
use std::ptr;
use std::rc::Rc;

pub(crate) use finders::Finders;
pub(crate) use forked::{ForkedChild, watch as watch_forks};
pub use session::Session;
pub(crate) use session::Use;

/// Phase of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPhase {
    /// Before `MPI_Init`.
    Uninitialized,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Running,
    /// After `MPI_Finalize`.
    Finalized,
}

/// All MPI objects of this process.
pub struct Process {
    phase: AtomicU32,
    /// Phase of the world model. `MPI_Init` and `MPI_Finalize` change it, and sessions do not.
    world: AtomicU32,
    /// Thread level granted at initialisation.
    pub thread_level: Cell<i32>,
    /// Token of the thread that initialised MPI.
    pub main_thread: Cell<usize>,
    /// MPI call under way, for messages.
    pub call: Cell<&'static str>,
    /// Communicators.
    pub comms: HandleTable<Comm>,
    /// Communicators that were freed while requests need them.
    pub freed_comms: FreedComms,
    /// Groups.
    pub groups: HandleTable<Group>,
    /// Datatypes.
    pub types: HandleTable<Datatype>,
    /// Reduction operations.
    pub ops: HandleTable<Op>,
    /// Info objects.
    pub infos: HandleTable<Info>,
    /// Error handlers.
    pub errhandlers: HandleTable<Errhandler>,
    /// Attribute keys. Their handles are the keyval numbers.
    pub keyvals: HandleTable<Keyval>,
    /// Context numbers for the communicators that this process leads.
    pub contexts: Pool,
    /// Values of the predefined attributes.
    pub environment: Environment,
    /// Error classes and codes that the user added, and the last error.
    pub codes: Codes,
    /// Functions that find the error handlers of windows and files.
    pub(crate) finders: Cell<Finders>,
    /// Error handler of errors without an open file, and initial handler of files.
    pub file_errhandler: Cell<usize>,
    /// Whether the program has set the error handler of `MPI_COMM_SELF`.
    pub own_handler_is_set: Cell<bool>,
    /// Operations that the MPI layer runs itself behind requests.
    pub extras: Extras<Process>,
    pub(crate) spare_blocks: Spare,
    /// Copies of device memory of outstanding requests.
    pub(crate) staged: StagedRequests,
    /// The buffer of buffered sends.
    pub attached: AttachedBuffer,
    pub(crate) spare_buffers: SpareAttachedBuffers,
    /// Sessions.
    pub sessions: HandleTable<Session>,
    pub(crate) session_use: Use,
    pub(crate) parent: Cell<usize>,
    /// Service names that this process has published, if it has no launcher.
    pub(crate) names: RefCell<fastpath_job::control::ServiceNames>,
    /// Description of the Fortran compiler.
    pub fortran: Fortran,
    /// Job and worker; `None` before `MPI_Init`.
    pub(crate) engine: UnsafeCell<Option<Runtime>>,
    /// Number of threads in [`run_outside`].
    pub(crate) outside: Cell<u32>,
}

// SAFETY: everything but the atomics is used only by the process's one MPI thread or, at MPI_THREAD_MULTIPLE, under
// `lock`. `enter` is the only public way to a reference, and takes the lock.
unsafe impl Sync for Process {}

static PROCESS: Process = Process::new();

/// State of one part of MPI in a process. It is a static in the part's file, and is accessed through the process.
pub struct ProcessPart<T>(T);

// SAFETY: `of` requires a `Process`, and a thread with a reference to a `Process` is alone inside MPI.
unsafe impl<T> Sync for ProcessPart<T> {}

impl<T> ProcessPart<T> {
    /// Makes the state before `MPI_Init`.
    pub const fn new(value: T) -> Self {
        ProcessPart(value)
    }

    /// Returns the state of this part. `p` must be the program's own process: parts are statics that belong to it, and
    /// a process that a test makes has none.
    #[inline]
    pub fn of(&'static self, p: &Process) -> &'static T {
        assert!(ptr::eq(p, &PROCESS), "the process is not the program's own");
        &self.0
    }
}

/// Guard of a call inside MPI. It derefs to [`Process`], and releases the lock when dropped.
pub struct ProcessGuard(());

impl Deref for ProcessGuard {
    type Target = Process;
    fn deref(&self) -> &Process {
        &PROCESS
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        if !lock::get().is_open() {
            end();
        }
    }
}

/// Enters MPI for the call `name`. With `anytime`, the call is allowed before initialisation and after finalisation. At
/// these times, other calls fail with `MPI_ERR_OTHER`.
pub fn enter(name: &'static str, anytime: bool) -> Result<ProcessGuard> {
    if !anytime && phase() != ProcessPhase::Running {
        return Err(refuse_phase());
    }
    if !lock::get().is_open() {
        begin(name, anytime);
    }
    PROCESS.call.set(name);
    Ok(ProcessGuard(()))
}

#[inline(never)]
fn begin(name: &'static str, anytime: bool) {
    if lock::get().watches() {
        let known = threads::ThreadState {
            is_main: PROCESS.is_main_thread(),
            level: PROCESS.thread_level.get(),
            rank: || PROCESS.engine().map_or(0, |engine| engine.job.rank()),
        };
        threads::enter(known, name, anytime);
    }
    lock::get().acquire();
    trace::enter(name);
}

#[inline(never)]
fn end() {
    trace::leave();
    lock::get().release();
    if lock::get().watches() {
        threads::leave();
    }
}

/// Returns the process, for a caller that holds the lock or is the only thread.
///
/// # Safety
/// No other thread may be inside MPI.
pub unsafe fn get_unlocked() -> &'static Process {
    &PROCESS
}

/// Runs `run` outside of MPI, because `run` waits for something else. Other threads may call MPI during the wait. One
/// of them may hold what `run` waits for, such as a lock of the program or its interpreter.
pub(crate) fn run_outside<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread is inside MPI, and uses only its own data while it is not.
    let p = unsafe { get_unlocked() };
    if !p.has_threads() {
        return run();
    }
    let call = p.call.get();
    let (mut run, mut result) = (Some(run), None);
    p.outside.set(p.outside.get() + 1);
    lock::get().release_lock(|| result = run.take().map(|run| run()));
    p.outside.set(p.outside.get() - 1);
    p.call.set(call);
    match result {
        Some(result) => result,
        None => unreachable!("a released lock runs what it is given"),
    }
}

/// Removes a datatype's handle from the table.
pub fn remove_datatype(handle: usize) {
    // SAFETY: the calling thread is inside MPI. This function is called either by the call that frees the type, or at
    // the end of the last call that still needed the type.
    drop(unsafe { get_unlocked() }.types.remove(handle));
}

#[cold]
pub(crate) fn refuse_phase() -> Error {
    if let Some(child) = ForkedChild::find() {
        return child.refuse();
    }
    match phase() {
        ProcessPhase::Uninitialized => {
            Error::new(MPI_ERR_OTHER, "this call was made before MPI_Init: call MPI_Init first")
        }
        _ => Error::new(
            MPI_ERR_OTHER,
            "this call was made after MPI_Finalize: only a few queries such as MPI_Finalized may \
             follow MPI_Finalize",
        ),
    }
}

/// Returns the phase of the process.
#[inline]
pub fn phase() -> ProcessPhase {
    // ORDERING: acquire pairs with the release in `set_phase`.
    phase_of(PROCESS.phase.load(Ordering::Acquire))
}

/// Returns the phase of the world model, for `MPI_Initialized` and `MPI_Finalized`.
pub fn world_phase() -> ProcessPhase {
    // ORDERING: acquire pairs with the release in `set_world_phase`.
    phase_of(PROCESS.world.load(Ordering::Acquire))
}

fn phase_of(number: u32) -> ProcessPhase {
    match number {
        0 => ProcessPhase::Uninitialized,
        1 => ProcessPhase::Running,
        _ => ProcessPhase::Finalized,
    }
}

/// Job and worker of a process between `MPI_Init` and `MPI_Finalize`.
pub struct Runtime {
    /// Job, which lives as long as the process.
    pub job: &'static Job,
    /// Settings from the environment.
    pub config: &'static Config,
    pub(crate) worker: *mut Worker,
    pub(crate) allowed: Allowed,
    /// State of the checks (`FASTPATH_CHECK`), if they are on.
    pub(crate) checks: Option<Box<Checks>>,
    /// Thread that makes progress while the program computes, until `MPI_Finalize`.
    pub(crate) progress: Cell<Option<ProgressThread>>,
}

impl Runtime {
    /// Returns the address of the worker. No reference may last across a wait, because other threads may then enter
    /// MPI.
    #[inline]
    pub fn worker(&self) -> *mut Worker {
        self.worker
    }

    /// Returns the bytes that checks add to a message of the program.
    pub(crate) fn record_bytes(&self) -> u64 {
        match self.checks {
            Some(_) => RECORD_BYTES,
            None => 0,
        }
    }
}

impl Process {
    /// Returns the job and worker; `None` unless MPI is initialised and not finalised.
    #[inline]
    pub fn engine(&self) -> Option<&Runtime> {
        // SAFETY: the engine is set at initialisation and removed at finalisation, under the lock or alone.
        unsafe { (*self.engine.get()).as_ref() }
    }

    /// Returns the job and worker, or the error of a call before initialisation or after finalisation.
    #[inline]
    pub fn running(&self) -> Result<&Runtime> {
        self.engine().ok_or_else(refuse_phase)
    }

    /// Returns the worker of the running process.
    #[inline]
    pub fn worker(&self) -> Result<*mut Worker> {
        Ok(self.running()?.worker)
    }

    /// Returns the state of the checks (`FASTPATH_CHECK`), if they are on.
    #[inline]
    pub fn checks(&self) -> Option<&Checks> {
        self.engine()?.checks.as_deref()
    }

    /// Returns whether more ranks are awake on this node than it has processors.
    pub fn is_crowded(&self) -> bool {
        // SAFETY: the worker lives as long as the engine.
        self.engine().is_some_and(|engine| unsafe { (*engine.worker).is_crowded() })
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    /// Makes a process before `MPI_Init`. A program has one, which [`enter`] returns; tests make others.
    pub const fn new() -> Self {
        Process {
            phase: AtomicU32::new(0),
            world: AtomicU32::new(0),
            thread_level: Cell::new(MPI_THREAD_SINGLE),
            main_thread: Cell::new(0),
            call: Cell::new("MPI"),
            comms: HandleTable::new(),
            freed_comms: FreedComms::new(),
            groups: HandleTable::new(),
            types: HandleTable::new(),
            ops: HandleTable::new(),
            infos: HandleTable::new(),
            errhandlers: HandleTable::new(),
            keyvals: HandleTable::new(),
            contexts: Pool::new(),
            environment: Environment::new(),
            codes: Codes::new(),
            finders: Cell::new(Finders::NONE),
            file_errhandler: Cell::new(MPI_ERRORS_RETURN),
            own_handler_is_set: Cell::new(false),
            extras: Extras::new(),
            spare_blocks: Spare::new(),
            staged: StagedRequests::new(),
            attached: AttachedBuffer::new(),
            spare_buffers: SpareAttachedBuffers::new(),
            sessions: HandleTable::new(),
            session_use: Use::new(),
            parent: Cell::new(MPI_COMM_NULL),
            names: RefCell::new(fastpath_job::control::ServiceNames::new()),
            fortran: Fortran::new(),
            engine: UnsafeCell::new(None),
            outside: Cell::new(0),
        }
    }

    pub(crate) fn set_phase(&self, phase: ProcessPhase) {
        // ORDERING: release pairs with the acquire in `phase`.
        self.phase.store(phase as u32, Ordering::Release);
    }

    pub(crate) fn set_world_phase(&self, phase: ProcessPhase) {
        // ORDERING: release pairs with the acquire in `world_phase`.
        self.world.store(phase as u32, Ordering::Release);
    }

    /// Finds the communicator of a handle.
    pub fn comm(&self, handle: usize) -> Result<Rc<Comm>> {
        match self.comms.get_visible(handle) {
            Some(comm) => Ok(comm),
            None => (self.finders.get().comm)(self, handle),
        }
    }

    /// Finds the communicator that a request was made on, which may have been freed since.
    pub fn comm_of_request(&self, handle: usize) -> Option<Rc<Comm>> {
        let alive = self.comms.get(handle);
        alive.or_else(|| self.freed_comms.find(handle))
    }

    /// Finds the group of a handle.
    pub fn group(&self, handle: usize) -> Result<Rc<Group>> {
        self.groups.find(handle)
    }

    /// Finds the datatype of a handle.
    pub fn datatype(&self, handle: usize) -> Result<Rc<Datatype>> {
        self.types.find(handle)
    }

    /// Finds the operation of a handle.
    pub fn op(&self, handle: usize) -> Result<Rc<Op>> {
        self.ops.find(handle)
    }

    /// Returns whether several threads of the program may be inside MPI.
    pub fn has_threads(&self) -> bool {
        self.thread_level.get() == MPI_THREAD_MULTIPLE
    }

    /// Returns whether the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        self.main_thread.get() == lock::thread_token()
    }
}

impl Keyvals for Process {
    fn keyvals(&self) -> &HandleTable<Keyval> {
        &self.keyvals
    }

    fn predefined(&self, key: i32) -> Option<*mut i32> {
        match key {
            MPI_LASTUSEDCODE => Some(self.codes.last_used_address()),
            _ => self.environment.address(key),
        }
    }

    fn run_outside(&self, function: impl FnOnce() -> c_int) -> c_int {
        run_outside(function)
    }
}
