#![allow(unsafe_code)]
//! Starts one rank: `clone` with the semantics of `vfork`, then exec.
//!
//! The child shares the launcher's memory until it executes its program. Nothing is copied, so a rank costs a few
//! hundred microseconds whatever the size of the launcher. In return the child may only execute system calls: no
//! allocation, no lock, no formatting.

use crate::session_leader::{ChildStack, LIKE_VFORK, SessionLeader};
use crate::signals::{InheritedSignals, members};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::topology::CpuSet;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{from_mut, from_ref, null, null_mut};

#[derive(Debug)]
pub struct RankStart<'a> {
    pub program: &'a CString,
    pub argv: &'a [CString],
    /// The whole environment as `NAME=VALUE`, in two consecutive parts.
    pub env: [&'a [CString]; 2],
    pub wdir: Option<&'a CString>,
    /// Standard input, output and error; each above 2.
    pub stdio: [RawFd; 3],
    /// Descriptor that stays open across the exec.
    pub keep: RawFd,
    pub cpus: Option<&'a CpuSet>,
    pub session: RankSession,
    /// Cell to which the child writes its process number once it leads a process group. The guard reads it, so it must
    /// be written before the program can start other processes.
    pub pid_cell: &'a AtomicU32,
}

/// Session of a rank, which leads a process group in any case (docs/decisions/0089-sessions-of-ranks.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankSession {
    /// A session of its own.
    Own,
    /// One session for the ranks of this launcher.
    Job,
    /// The launcher's session.
    Launcher,
}

pub struct Spawner {
    stack: ChildStack,
    /// Leader of the job's session; None before a rank is started in it, or if the system refuses.
    leader: Option<SessionLeader>,
    launcher: libc::pid_t,
    inherited: InheritedSignals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    Clone,
    Chdir,
    /// A system call of the setup: descriptors, process group and so on.
    Setup(&'static str),
    Exec,
}

#[derive(Debug)]
pub struct SpawnError {
    pub step: StartStep,
    pub errno: i32,
}

/// Data that the child reads from its parent's memory, and the field for its error.
struct Child {
    program: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    wdir: *const libc::c_char,
    stdio: [RawFd; 3],
    keep: RawFd,
    cpus: *const u64,
    cpu_bytes: usize,
    has_own_session: bool,
    pid_cell: *const AtomicU32,
    launcher: libc::pid_t,
    inherited: *const InheritedSignals,
    failed: Option<(StartStep, i32)>,
}

impl Spawner {
    /// Makes a spawner. `inherited` is the state that the launcher was started with, which is restored in each rank.
    pub fn new(inherited: InheritedSignals) -> io::Result<Spawner> {
        // SAFETY: getpid has no arguments and cannot fail.
        let launcher = unsafe { libc::getpid() };
        Ok(Spawner { stack: ChildStack::new()?, leader: None, launcher, inherited })
    }

    /// Starts one rank in its own process group. Returns its process number, which is also the group's. All signals
    /// must be blocked in the caller.
    ///
    /// # Errors
    /// The step that failed. No process is left behind.
    pub fn spawn(&mut self, start: &RankStart<'_>) -> Result<libc::pid_t, SpawnError> {
        let pointers = |texts: &[CString]| texts.iter().map(|t| t.as_ptr()).collect::<Vec<_>>();
        let mut argv = pointers(start.argv);
        argv.push(null());
        let mut envp = pointers(start.env[0]);
        envp.extend(pointers(start.env[1]));
        envp.push(null());
        let words = start.cpus.map(CpuSet::words);
        let mut child = Child {
            program: start.program.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            wdir: start.wdir.map_or(null(), |d| d.as_ptr()),
            stdio: start.stdio,
            keep: start.keep,
            cpus: words.map_or(null(), <[u64]>::as_ptr),
            cpu_bytes: words.map_or(0, |w| w.len() * 8),
            has_own_session: start.session == RankSession::Own,
            pid_cell: from_ref(start.pid_cell),
            launcher: self.launcher,
            inherited: from_ref(&self.inherited),
            failed: None,
        };
        let argument = from_mut(&mut child).cast();
        // SAFETY: this Spawner owns the stack, which is idle and large enough for `enter_child`. The call returns when
        // the child has left this memory. `child` and all it points to live on this frame.
        let pid = unsafe { self.clone_child(start.session, argument) };
        if pid < 0 {
            return Err(SpawnError { step: StartStep::Clone, errno: -pid });
        }
        // SAFETY: the child wrote through the pointer it was given; the volatile read gets that value from memory.
        match unsafe { from_ref(&child.failed).read_volatile() } {
            None => Ok(pid),
            Some((step, errno)) => {
                start.pid_cell.store(0, Ordering::Relaxed);
                // SAFETY: the process is an unreaped child that has ended; a null status is allowed.
                unsafe { libc::waitpid(pid, null_mut(), 0) };
                Err(SpawnError { step, errno })
            }
        }
    }

    /// Clones a child that calls [`enter_child`]. Returns its process number or the negative `errno`. Without a leader
    /// the child is in the launcher's session.
    ///
    /// # Safety
    /// `child` points to a [`Child`] that is valid until this returns.
    unsafe fn clone_child(
        &mut self, session: RankSession, child: *mut libc::c_void,
    ) -> libc::pid_t {
        if session == RankSession::Job {
            if !self.leader.as_ref().is_some_and(SessionLeader::is_running) {
                self.leader = SessionLeader::start(enter_child, self.launcher);
            }
            if let Some(leader) = &self.leader
                // SAFETY: `child` is valid by this function's contract, and the stack is idle.
                && let Some(pid) = unsafe { leader.clone_child(self.stack.end(), child) }
            {
                return pid;
            }
        }
        // SAFETY: `child` is valid by contract. CLONE_VFORK suspends this thread until the child leaves this memory.
        match unsafe { libc::clone(enter_child, self.stack.end(), LIKE_VFORK, child) } {
            -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            pid => pid,
        }
    }
}

extern "C" fn enter_child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a Child that outlives this function, and accesses it only afterwards.
    let child = unsafe { &mut *argument.cast::<Child>() };
    // SAFETY: the pointers are those that `spawn` has prepared, valid for the calls.
    unsafe {
        let failed = match prepare_child(child) {
            Err(step) => step,
            Ok(()) => {
                libc::execve(child.program, child.argv, child.envp);
                StartStep::Exec
            }
        };
        child.failed = Some((failed, *libc::__errno_location()));
        libc::_exit(127)
    }
}

/// Prepares the rank's process for its program. Safety: the caller is the child of `spawn`.
unsafe fn prepare_child(child: &Child) -> Result<(), StartStep> {
    let check = |call, rc: libc::c_int| match rc {
        -1 => Err(StartStep::Setup(call)),
        _ => Ok(()),
    };
    // SAFETY: the pointers are valid or null as `spawn` has set them, and the calls allow that.
    unsafe {
        // If `prctl` is refused, the guard ends the ranks when the launcher dies.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != child.launcher {
            // The launcher died before the call above, so its end will not end this child.
            libc::_exit(127);
        }
        // A rank that needs or gets no session of its own leads at least a process group.
        if !child.has_own_session || libc::setsid() == -1 {
            check("setpgid", libc::setpgid(0, 0))?;
        }
        (*child.pid_cell).store(libc::getpid() as u32, Ordering::Relaxed);
        for (target, &fd) in child.stdio.iter().enumerate() {
            check("dup2", libc::dup2(fd, target as libc::c_int))?;
        }
        check("fcntl", libc::fcntl(child.keep, libc::F_SETFD, 0))?;
        if !child.wdir.is_null() && libc::chdir(child.wdir) != 0 {
            return Err(StartStep::Chdir);
        }
        if !child.cpus.is_null() {
            // A stale mask (processors taken offline) is not an error.
            libc::sched_setaffinity(0, child.cpu_bytes, child.cpus.cast());
        }
        let inherited = &*child.inherited;
        if let Some(files) = &inherited.files {
            libc::setrlimit(libc::RLIMIT_NOFILE, files);
        }
        // Remove the launcher's handlers: run in this process, they would write to the launcher's memory.
        for signal in members(&inherited.handled).chain([libc::SIGPIPE]) {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mask = &inherited.mask;
        check("rt_sigprocmask", libc::sigprocmask(libc::SIG_SETMASK, mask, null_mut()))?;
    }
    Ok(())
}
