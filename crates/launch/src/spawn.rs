#![allow(unsafe_code)]
//! Starting one rank: `clone` in the manner of `vfork`, then exec.
//!
//! The child shares the launcher's memory until it has executed its program, so nothing is
//! copied and a rank costs a few hundred microseconds whatever the launcher holds. In return
//! the child may do nothing but system calls: no allocation, no lock, no formatting.

use crate::signals::{Inherited, members};
use fastpath_base::refusal::describe_mapping;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::topology::CpuSet;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{from_mut, from_ref, null, null_mut};

const STACK_BYTES: usize = 64 * 1024;

/// What one rank is started with.
#[derive(Debug)]
pub struct RankStart<'a> {
    /// File to execute, absolute.
    pub program: &'a CString,
    /// Arguments, the program's name first.
    pub argv: &'a [CString],
    /// The whole environment as `NAME=VALUE`, in pieces that follow each other.
    pub env: [&'a [CString]; 2],
    /// Folder to start in.
    pub wdir: Option<&'a CString>,
    /// Standard input, output and error; each above 2.
    pub stdio: [RawFd; 3],
    /// Descriptor that stays open across the exec.
    pub keep: RawFd,
    /// Processors to be bound to.
    pub cpus: Option<&'a CpuSet>,
    /// Where the child leaves its process number once it has a group of its own. The guard
    /// reads it, so it must be there before the program can start anything itself.
    pub pid_cell: &'a AtomicU32,
}

/// What all ranks of the job have in common.
pub struct Spawner {
    stack: *mut libc::c_void,
    launcher: libc::pid_t,
    inherited: Inherited,
}

/// At which step a child gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// The new process itself.
    Clone,
    /// Its folder.
    Chdir,
    /// This system call: for descriptors, the process group and the like.
    Setup(&'static str),
    /// The program.
    Exec,
}

/// A rank that could not be started.
#[derive(Debug)]
pub struct SpawnError {
    /// Where.
    pub step: StartStep,
    /// Why.
    pub errno: i32,
}

/// What the child sees of its parent's memory, and where it leaves its error.
struct Child {
    program: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    wdir: *const libc::c_char,
    stdio: [RawFd; 3],
    keep: RawFd,
    cpus: *const u64,
    cpu_bytes: usize,
    pid_cell: *const AtomicU32,
    launcher: libc::pid_t,
    inherited: *const Inherited,
    failed: Option<(StartStep, i32)>,
}

impl Spawner {
    /// `inherited` is what the launcher itself was started with; ranks get it back.
    ///
    /// # Errors
    /// No memory for the child's stack.
    pub fn new(inherited: Inherited) -> io::Result<Spawner> {
        // SAFETY: a new private mapping.
        let stack = unsafe {
            libc::mmap(
                null_mut(),
                STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            return Err(describe_mapping(STACK_BYTES as u64, &io::Error::last_os_error()));
        }
        // SAFETY: no arguments.
        let launcher = unsafe { libc::getpid() };
        Ok(Spawner { stack, launcher, inherited })
    }

    /// Starts one rank in a process group of its own; returns its process number, which is the
    /// group's too. All signals must be blocked in the caller.
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
            pid_cell: from_ref(start.pid_cell),
            launcher: self.launcher,
            inherited: from_ref(&self.inherited),
            failed: None,
        };
        // SAFETY: the stack is ours, idle (CLONE_VFORK suspends this thread until the child has
        // left our memory) and large enough for `enter_child`; `child` and all it points to
        // live on this suspended frame.
        let pid = unsafe {
            libc::clone(
                enter_child,
                self.stack.byte_add(STACK_BYTES),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                from_mut(&mut child).cast(),
            )
        };
        if pid < 0 {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(SpawnError { step: StartStep::Clone, errno });
        }
        // SAFETY: the child wrote through the pointer it was given; read it from memory.
        match unsafe { from_ref(&child.failed).read_volatile() } {
            None => Ok(pid),
            Some((step, errno)) => {
                start.pid_cell.store(0, Ordering::Relaxed);
                // SAFETY: our own child, which has ended.
                unsafe { libc::waitpid(pid, null_mut(), 0) };
                Err(SpawnError { step, errno })
            }
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no child runs on it any more.
        unsafe { libc::munmap(self.stack, STACK_BYTES) };
    }
}

/// The child's whole life in our memory: system calls only.
extern "C" fn enter_child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a Child that outlives this function; nobody else looks at it
    // meanwhile.
    let child = unsafe { &mut *argument.cast::<Child>() };
    // SAFETY: plain system calls on values and pointers that `spawn` has prepared.
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

/// # Safety
/// To be called in the child of `spawn` only.
unsafe fn prepare_child(child: &Child) -> Result<(), StartStep> {
    let check = |call, rc: libc::c_int| match rc {
        -1 => Err(StartStep::Setup(call)),
        _ => Ok(()),
    };
    // SAFETY: plain system calls; pointers are valid or null as `spawn` has made them.
    unsafe {
        // Where it is refused, the guard ends what the launcher leaves behind.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != child.launcher {
            // The launcher died before the call above: nobody would end us.
            libc::_exit(127);
        }
        check("setpgid", libc::setpgid(0, 0))?;
        (*child.pid_cell).store(libc::getpid() as u32, Ordering::Relaxed);
        for (target, &fd) in child.stdio.iter().enumerate() {
            check("dup2", libc::dup2(fd, target as libc::c_int))?;
        }
        check("fcntl", libc::fcntl(child.keep, libc::F_SETFD, 0))?;
        if !child.wdir.is_null() && libc::chdir(child.wdir) != 0 {
            return Err(StartStep::Chdir);
        }
        if !child.cpus.is_null() {
            // A mask that went stale (processors taken offline) is no reason to fail.
            libc::sched_setaffinity(0, child.cpu_bytes, child.cpus.cast());
        }
        let inherited = &*child.inherited;
        if let Some(files) = &inherited.files {
            libc::setrlimit(libc::RLIMIT_NOFILE, files);
        }
        // A handler would write to the launcher's memory.
        for signal in members(&inherited.handled).chain([libc::SIGPIPE]) {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mask = &inherited.mask;
        check("rt_sigprocmask", libc::sigprocmask(libc::SIG_SETMASK, mask, null_mut()))?;
    }
    Ok(())
}
