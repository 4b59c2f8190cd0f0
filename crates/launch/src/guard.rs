#![allow(unsafe_code)]
//! The guard and its deputy, two small processes that end the ranks if the launcher dies.
//!
//! The kernel kills a rank when the launcher dies, but not the processes that the rank has started, such as a program
//! below a shell script. The guard waits for the end of a pipe, and then kills the ranks' process groups. Only the
//! launcher and its session leader, which ends with it, hold the pipe. The deputy, a child of the guard, waits and
//! kills too, so no rank survives if launcher and guard are killed. The launcher replaces a guard that has ended, and
//! the guard replaces a deputy that has ended.

use crate::limits::{Need, describe_clone, describe_files};
use crate::signals::signal_group;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_job::inspect::ProcessEnd;
use fastpath_job::inspect::describe::describe_end;
use fastpath_segment::Segment;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

/// Maximum number of guards that the launcher replaces, and of deputies that one guard replaces.
const MOST_REPLACED: u32 = 16;
/// Name and command line of guard and deputy, which `pkill -f mpiexec` does not match.
const NAME: &std::ffi::CStr = c"mpi-guard";

#[derive(Debug)]
pub struct GuardProcess {
    /// Process number of the guard; 0 if there is none.
    pid: libc::pid_t,
    /// Number of guards replaced so far.
    replaced: u32,
    /// Write end of the pipe. The kernel closes it when the launcher dies, which wakes guard and deputy.
    alive: OwnedFd,
    /// Read end of the pipe, on which guard and deputy wait.
    ended: OwnedFd,
    /// Memory shared by launcher, guard and deputy: the deputy's process number, or 0. None if it was refused.
    deputy: Option<&'static AtomicU32>,
}

impl GuardProcess {
    /// Starts the guard. Must precede the start of the first rank.
    pub fn start(segment: &Segment, need: Need) -> Result<GuardProcess, String> {
        let (reader, writer) = std::io::pipe().map_err(|e| describe_files("pipe2", &e, need))?;
        let deputy = share_number();
        let mut guard = GuardProcess {
            pid: 0,
            replaced: 0,
            alive: writer.into(),
            ended: reader.into(),
            deputy,
        };
        guard.fork(segment).map_err(|e| describe_clone(&e))?;
        Ok(guard)
    }

    fn fork(&mut self, segment: &Segment) -> io::Result<()> {
        // SAFETY: the launcher has one thread, so the child is a whole copy of it.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                watch_launcher(self.ended.as_raw_fd(), self.alive.as_raw_fd(), self.deputy, segment)
            }
            pid => {
                self.pid = pid;
                Ok(())
            }
        }
    }

    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Replaces the guard if `pid`, a child that was waited for, is the guard. Returns the notice to print.
    pub fn replace(
        &mut self, pid: libc::pid_t, end: ProcessEnd, segment: &Segment,
    ) -> Option<String> {
        if pid != self.pid {
            return None;
        }
        self.pid = 0;
        self.replaced += 1;
        let deputy = self.deputy.map_or(0, |number| number.swap(0, Ordering::Relaxed));
        let outcome = match self.replaced {
            0..=MOST_REPLACED => self.fork(segment).map_err(|e| describe_clone(&e)),
            _ => Err(format!("it was already replaced {MOST_REPLACED} times")),
        };
        let end = describe_end(end);
        Some(match outcome {
            Ok(()) => {
                end_deputy(deputy);
                format!(
                    "mpiexec: the guard process, which ends the job if mpiexec is killed, {end} \
                     and was replaced\n"
                )
            }
            Err(why) => {
                if let Some(number) = self.deputy {
                    number.store(deputy, Ordering::Relaxed);
                }
                format!(
                    "mpiexec: the guard process {end} and cannot be replaced: {why}. If mpiexec is \
                     killed, programs that ranks have started may continue to run\n"
                )
            }
        })
    }

    /// Ends the guard after the job has ended normally and no rank has a process group any more.
    pub fn dismiss(self) {
        let GuardProcess { pid, alive, deputy, .. } = self;
        drop(alive);
        if pid == 0 {
            return end_deputy(deputy.map_or(0, |number| number.load(Ordering::Relaxed)));
        }
        // SAFETY: the guard is an unreaped child, so `pid` is still its number. SIGCONT resumes a stopped guard, which
        // then ends with its deputy.
        unsafe {
            libc::kill(pid, libc::SIGCONT);
            libc::waitpid(pid, null_mut(), 0);
        }
    }
}

/// Allocates a number shared with forked processes; None if memory is refused.
fn share_number() -> Option<&'static AtomicU32> {
    let (bytes, access) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the new mapping consists of zeros, is aligned and large enough, and is never unmapped.
    unsafe {
        let place =
            libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0);
        (place != libc::MAP_FAILED).then(|| &*place.cast::<AtomicU32>())
    }
}

/// Ends the deputy of an ended guard. The deputy has become a child of the launcher.
fn end_deputy(pid: u32) {
    let pid = libc::pid_t::try_from(pid).unwrap_or(0);
    // SAFETY: a running child keeps its number until it is waited for, and waitpid fails for any other number.
    unsafe {
        if pid > 1 && libc::waitpid(pid, null_mut(), libc::WNOHANG) == 0 {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, null_mut(), 0);
        }
    }
}

/// Main function of the guard. `ended` and `alive` are the ends of the launcher's pipe.
fn watch_launcher(ended: RawFd, alive: RawFd, deputy: Option<&AtomicU32>, segment: &Segment) -> ! {
    // SAFETY: the system calls take no pointers, apart from the constant name. The guard leaves the launcher's session
    // to avoid signals of the terminal. It closes all files but its pipe, so that it holds no output open.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::close(alive);
        libc::dup2(ended, 0);
        close_from(1);
    }
    hide_command_line();
    let mut number = 0;
    if let Some(cell) = deputy {
        for _ in 0..=MOST_REPLACED {
            let Some((pid, gone)) = start_deputy(cell, segment) else { break };
            number = pid;
            if !await_deputy(gone) {
                break;
            }
            cell.store(0, Ordering::Relaxed);
            number = 0;
            // SAFETY: the deputy is this process's child and has ended; a null status is allowed.
            unsafe {
                libc::waitpid(pid, null_mut(), 0);
                libc::close(gone);
            }
        }
    }
    await_launcher();
    kill_ranks(segment);
    // SAFETY: the deputy is an unreaped child, so its number is valid. It is reaped before the launcher reaps the
    // guard.
    unsafe {
        if number > 0 {
            libc::kill(number, libc::SIGKILL);
            libc::waitpid(number, null_mut(), 0);
        }
        libc::_exit(0)
    }
}

/// Starts the deputy, which waits as the guard does. Returns its process number and a descriptor that signals its end;
/// None if the system refuses.
fn start_deputy(cell: &AtomicU32, segment: &Segment) -> Option<(libc::pid_t, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors; the guard has one thread, so the child is a whole copy of it.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), 0) != 0 {
            return None;
        }
        let pid = libc::fork();
        if pid == 0 {
            cell.store(libc::getpid() as u32, Ordering::Relaxed);
            libc::close(ends[0]);
            await_launcher();
            kill_ranks(segment);
            libc::_exit(0);
        }
        libc::close(ends[1]);
        if pid < 0 {
            libc::close(ends[0]);
        }
        (pid > 0).then_some((pid, ends[0]))
    }
}

/// Waits for the end of launcher or deputy. Returns whether only the deputy ended.
fn await_deputy(gone: RawFd) -> bool {
    let wait_for = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let mut entries = [wait_for(0), wait_for(gone)];
        // SAFETY: the array has the two entries that are passed.
        let rc = unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
        if rc > 0 {
            return entries[0].revents == 0;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // The system refuses poll, so the deputy cannot be watched.
            return false;
        }
    }
}

/// Waits for the end of the launcher's pipe, at descriptor 0.
fn await_launcher() {
    let mut byte = 0u8;
    // SAFETY: the byte is writable and outlives the call.
    while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } != 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
}

fn kill_ranks(segment: &Segment) {
    for page in segment.node_ranks().filter_map(|rank| segment.page(rank)) {
        let group = page.launched_pid.load(Ordering::Relaxed);
        signal_group(libc::pid_t::try_from(group).unwrap_or(0), libc::SIGKILL);
    }
}

/// Overwrites this process's command line with [`NAME`], unless the kernel hides its address.
fn hide_command_line() {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    // The command's name, which may contain blanks, is the second field and ends with the last parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let mut places =
        after.split_whitespace().skip(45).map(|word| word.parse::<usize>().unwrap_or(0));
    let (Some(start @ 1..), Some(end)) = (places.next(), places.next()) else { return };
    let bytes = end.saturating_sub(start);
    let name = NAME.to_bytes();
    if bytes > name.len() {
        // SAFETY: fields 48 and 49 bound the arguments on this process's writable stack; no code reads them afterwards.
        unsafe {
            std::ptr::write_bytes(start as *mut u8, 0, bytes);
            std::ptr::copy_nonoverlapping(name.as_ptr(), start as *mut u8, name.len());
        }
    }
}

fn close_from(first: u32) {
    // SAFETY: the guard uses no descriptor from `first` on.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) == 0 {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in u64::from(first)..limit.rlim_cur.min(1 << 20) {
            libc::close(fd as libc::c_int);
        }
    }
}
