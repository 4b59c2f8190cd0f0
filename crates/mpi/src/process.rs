//! The process as MPI sees it: one static that holds every table, and the way in.
#![allow(unsafe_code)]

pub(crate) mod background;
pub mod crash;
pub mod errhandler;
pub(crate) mod exhausted;
mod finders;
mod forked;
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
use crate::common::places;
use crate::common::spare_blocks::Spare;
use crate::common::table::Table;
use crate::objects::attached::{Attached, Spares};
use crate::objects::attribute::{Keyval, Keyvals};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::Pool;
use crate::objects::comm::freed::Freed;
use crate::objects::datatype::Datatype;
use crate::objects::fortran::Fortran;
use crate::objects::group::Group;
use crate::objects::hot::Allowed;
use crate::objects::info::Info;
use crate::objects::op::Op;
use crate::objects::operation::Extras;
use crate::process::background::ProgressThread;
use fastpath_base::config::Config;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::trace;
use fastpath_bootstrap::job::Job;
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

/// Where the process is in its MPI life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
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
    /// The same for only the world model: between `MPI_Init` and `MPI_Finalize`, whatever sessions there are.
    world: AtomicU32,
    /// The level granted at initialisation.
    pub thread_level: Cell<i32>,
    /// Token of the thread that initialised MPI.
    pub main_thread: Cell<usize>,
    /// Name of the MPI call under way, for messages.
    pub call: Cell<&'static str>,
    /// Communicators.
    pub comms: Table<Comm>,
    /// Communicators that were freed while requests need them.
    pub freed_comms: Freed,
    /// Groups.
    pub groups: Table<Group>,
    /// Datatypes.
    pub types: Table<Datatype>,
    /// Reduction operations.
    pub ops: Table<Op>,
    /// Info objects.
    pub infos: Table<Info>,
    /// Error handlers.
    pub errhandlers: Table<Errhandler>,
    /// Attribute keys. Their "handles" are the keyval numbers.
    pub keyvals: Table<Keyval>,
    /// Context numbers for the communicators this process leads.
    pub contexts: Pool,
    /// Values of the predefined attributes.
    pub environment: Environment,
    /// Error classes and codes that the user added, and the last error.
    pub codes: Codes,
    /// Find the error handlers of objects that only others know.
    pub(crate) finders: Cell<Finders>,
    /// Error handler of errors on no open file, and of files when they are opened.
    pub file_errhandler: Cell<usize>,
    /// Whether the program has set the error handler of `MPI_COMM_SELF`.
    pub own_handler_is_set: Cell<bool>,
    /// Requests of this layer.
    pub extras: Extras<Process>,
    /// Memory for outstanding collective calls.
    pub(crate) spare_blocks: Spare,
    /// The buffer of buffered sends.
    pub attached: Attached,
    /// Buffers of communicators and sessions that are gone.
    pub(crate) spare_buffers: Spares,
    /// Sessions.
    pub sessions: Table<Session>,
    /// What sessions have done to the process.
    pub(crate) session_use: Use,
    /// What `MPI_Comm_get_parent` gives.
    pub(crate) parent: Cell<usize>,
    /// The services that this process has published, where it has no launcher.
    pub(crate) names: RefCell<fastpath_bootstrap::control::Names>,
    /// What Fortran support said about its compiler.
    pub fortran: Fortran,
    /// What the process knows of the job and how it talks to the others; `None` before `MPI_Init`.
    pub(crate) engine: UnsafeCell<Option<Engine>>,
}

// SAFETY: everything but the atomics is touched by the process's only MPI thread or, at
// MPI_THREAD_MULTIPLE, under `lock`; `enter` is the only public way to a reference and takes it.
unsafe impl Sync for Process {}

static PROCESS: Process = Process::new();

/// What a subject keeps in the process that the process need not know. It is a static beside that subject, reached with
/// the process.
pub struct ProcessPart<T>(T);

// SAFETY: as for `Process`: `of` asks for it, and whoever has it is alone inside MPI.
unsafe impl<T> Sync for ProcessPart<T> {}

impl<T> ProcessPart<T> {
    /// As it is before `MPI_Init`.
    pub const fn new(value: T) -> Self {
        ProcessPart(value)
    }

    /// The part of this process, which is the program's own: tests that make another have no parts.
    #[inline]
    pub fn of(&'static self, p: &Process) -> &'static T {
        assert!(ptr::eq(p, &PROCESS), "the process is not the program's own");
        &self.0
    }
}

/// The process, entered: derefs to [`Process`], and gives up the lock when dropped.
pub struct Guard(());

impl Deref for Guard {
    type Target = Process;
    fn deref(&self) -> &Process {
        &PROCESS
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !lock::first().is_open() {
            end();
        }
    }
}

/// Enters MPI for the call `name`. `anytime` calls are allowed before initialisation and after
/// finalisation; any other then fails with `MPI_ERR_OTHER`.
pub fn enter(name: &'static str, anytime: bool) -> Result<Guard> {
    if !anytime && phase() != Phase::Running {
        return Err(refuse_phase());
    }
    if !lock::first().is_open() {
        begin(name, anytime);
    }
    PROCESS.call.set(name);
    Ok(Guard(()))
}

#[inline(never)]
fn begin(name: &'static str, anytime: bool) {
    if lock::first().watches() {
        let known = threads::Known {
            is_main: PROCESS.is_main_thread(),
            level: PROCESS.thread_level.get(),
            rank: || PROCESS.engine().map_or(0, |engine| engine.job.rank()),
        };
        threads::enter(known, name, anytime);
    }
    lock::first().acquire();
    trace::enter(name);
}

#[inline(never)]
fn end() {
    trace::leave();
    lock::first().release();
    if lock::first().watches() {
        threads::leave();
    }
}

/// The process, for a caller that holds the lock or runs while there is no other thread.
///
/// # Safety
/// No other thread may be inside MPI.
pub unsafe fn get_unlocked() -> &'static Process {
    &PROCESS
}

/// Runs what waits for something outside of MPI: other threads may call MPI meanwhile, and one of them may hold what it
/// waits for (a lock of the program, or of its interpreter).
pub(crate) fn run_outside<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread is inside MPI; what it looks at while it is not, it owns.
    let p = unsafe { get_unlocked() };
    if !p.has_threads() {
        return run();
    }
    let call = p.call.get();
    let (mut run, mut result) = (Some(run), None);
    places::release_lock(&mut || result = run.take().map(|run| run()));
    p.call.set(call);
    match result {
        Some(result) => result,
        None => unreachable!("a released lock runs what it is given"),
    }
}

/// Takes a datatype's handle from the table.
pub fn remove_datatype(handle: usize) {
    // SAFETY: types are freed, and calls that kept one end, inside MPI.
    drop(unsafe { get_unlocked() }.types.remove(handle));
}

#[cold]
pub(crate) fn refuse_phase() -> Error {
    if let Some(child) = ForkedChild::find() {
        return child.refuse();
    }
    match phase() {
        Phase::Uninitialized => {
            Error::new(MPI_ERR_OTHER, "called before MPI_Init: call MPI_Init first")
        }
        _ => Error::new(
            MPI_ERR_OTHER,
            "called after MPI_Finalize: no MPI call may follow it but a few queries",
        ),
    }
}

/// Where the process is in its MPI life.
#[inline]
pub fn phase() -> Phase {
    // ORDERING: acquire pairs with the release in `set_phase`.
    phase_of(PROCESS.phase.load(Ordering::Acquire))
}

/// Where the process is in the world model: what `MPI_Initialized` and `MPI_Finalized` ask.
pub fn world_phase() -> Phase {
    // ORDERING: acquire pairs with the release in `set_world_phase`.
    phase_of(PROCESS.world.load(Ordering::Acquire))
}

fn phase_of(number: u32) -> Phase {
    match number {
        0 => Phase::Uninitialized,
        1 => Phase::Running,
        _ => Phase::Finalized,
    }
}

/// The job and the worker of a process between `MPI_Init` and `MPI_Finalize`.
pub struct Engine {
    /// The job; lives as long as the process.
    pub job: &'static Job,
    /// What the environment says.
    pub config: &'static Config,
    pub(crate) worker: *mut Worker,
    pub(crate) allowed: Allowed,
    /// What looks for mistakes of the program.
    pub(crate) checks: Option<Box<Checks>>,
    /// What makes progress while the program computes, until `MPI_Finalize`.
    pub(crate) progress: Cell<Option<ProgressThread>>,
}

impl Engine {
    /// The worker, by address: a wait may let other threads use it meanwhile.
    #[inline]
    pub fn worker(&self) -> *mut Worker {
        self.worker
    }

    /// Bytes that a message of the program is longer by, on its way.
    pub(crate) fn record_bytes(&self) -> u64 {
        match self.checks {
            Some(_) => RECORD_BYTES,
            None => 0,
        }
    }
}

impl Process {
    /// The engine, while MPI is initialised.
    #[inline]
    pub fn engine(&self) -> Option<&Engine> {
        // SAFETY: set once at initialisation and taken at finalisation, under the lock or alone.
        unsafe { (*self.engine.get()).as_ref() }
    }

    /// The engine, or the error of a call outside initialisation and finalisation.
    #[inline]
    pub fn running(&self) -> Result<&Engine> {
        self.engine().ok_or_else(refuse_phase)
    }

    /// The worker of the running process.
    #[inline]
    pub fn worker(&self) -> Result<*mut Worker> {
        Ok(self.running()?.worker)
    }

    /// What looks for mistakes of the program, where that is asked for (`FASTPATH_CHECK`).
    #[inline]
    pub fn checks(&self) -> Option<&Checks> {
        self.engine()?.checks.as_deref()
    }

    /// Whether more ranks are awake on this node than it has processors.
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
    /// A process before `MPI_Init`, without any object. Every program has one, which [`enter`]
    /// gives; tests make their own.
    pub const fn new() -> Self {
        Process {
            phase: AtomicU32::new(0),
            world: AtomicU32::new(0),
            thread_level: Cell::new(MPI_THREAD_SINGLE),
            main_thread: Cell::new(0),
            call: Cell::new("MPI"),
            comms: Table::new(),
            freed_comms: Freed::new(),
            groups: Table::new(),
            types: Table::new(),
            ops: Table::new(),
            infos: Table::new(),
            errhandlers: Table::new(),
            keyvals: Table::new(),
            contexts: Pool::new(),
            environment: Environment::new(),
            codes: Codes::new(),
            finders: Cell::new(Finders::NONE),
            file_errhandler: Cell::new(MPI_ERRORS_RETURN),
            own_handler_is_set: Cell::new(false),
            extras: Extras::new(),
            spare_blocks: Spare::new(),
            attached: Attached::new(),
            spare_buffers: Spares::new(),
            sessions: Table::new(),
            session_use: Use::new(),
            parent: Cell::new(MPI_COMM_NULL),
            names: RefCell::new(fastpath_bootstrap::control::Names::new()),
            fortran: Fortran::new(),
            engine: UnsafeCell::new(None),
        }
    }

    /// Moves to the next phase.
    pub(crate) fn set_phase(&self, phase: Phase) {
        // ORDERING: release pairs with the acquire in `phase`.
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// Moves to the next phase of the world model.
    pub(crate) fn set_world_phase(&self, phase: Phase) {
        // ORDERING: release pairs with the acquire in `world_phase`.
        self.world.store(phase as u32, Ordering::Release);
    }

    /// The communicator behind a handle, or the right error.
    pub fn comm(&self, handle: usize) -> Result<Rc<Comm>> {
        self.comms.find(handle)
    }

    /// The communicator that a request was made on, which may have been freed since.
    pub fn comm_of_request(&self, handle: usize) -> Option<Rc<Comm>> {
        let alive = self.comms.get(handle);
        alive.or_else(|| self.freed_comms.find(handle))
    }

    /// The group behind a handle, or the right error.
    pub fn group(&self, handle: usize) -> Result<Rc<Group>> {
        self.groups.find(handle)
    }

    /// The datatype behind a handle, or the right error.
    pub fn datatype(&self, handle: usize) -> Result<Rc<Datatype>> {
        self.types.find(handle)
    }

    /// The operation behind a handle, or the right error.
    pub fn op(&self, handle: usize) -> Result<Rc<Op>> {
        self.ops.find(handle)
    }

    /// Whether several threads of the program may be inside MPI.
    pub fn has_threads(&self) -> bool {
        self.thread_level.get() == MPI_THREAD_MULTIPLE
    }

    /// Whether the calling thread is the one that initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        self.main_thread.get() == lock::thread_token()
    }
}

impl Keyvals for Process {
    fn keyvals(&self) -> &Table<Keyval> {
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
