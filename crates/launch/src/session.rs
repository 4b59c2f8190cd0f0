#![allow(unsafe_code)]
//! A process that leads the session of a job's ranks without dedicated processors
//! (`docs/decisions/0089-sessions-of-ranks.md`).
//!
//! A process can join another session only at its start. So a leader clones these ranks, with the launcher as their
//! parent. The
//! leader shares the launcher's memory, descriptors and thread-local storage, so it executes only system calls and
//! atomic operations. While the launcher waits for its answer, both may write `errno`, which neither then relies on.

use fastpath_base::sync::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use fastpath_base::wait::{futex_wait, futex_wake};
use std::io;
use std::ptr::{from_ref, null_mut};
use std::time::Duration;

const NAME: &std::ffi::CStr = c"mpi-session";

/// Time between checks whether the leader is alive while the launcher waits for it.
const CHECK_AFTER: Duration = Duration::from_millis(100);

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;

/// Function of a child of `clone`.
pub type Entry = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Flags of a clone that shares this process's memory until it executes its program, like `vfork`.
pub const LIKE_VFORK: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;

/// A clone that the leader makes for the launcher. `state` says whose turn it is.
struct Request {
    state: AtomicU32,
    entry: Entry,
    /// End of the child's stack.
    stack: AtomicPtr<libc::c_void>,
    argument: AtomicPtr<libc::c_void>,
    /// The child's process number, or a negative `errno`.
    result: AtomicI32,
    launcher: libc::pid_t,
}

/// The leader of a session. It ends when this is dropped, or when the launcher ends.
pub struct SessionLeader {
    pid: libc::pid_t,
    /// Read by the leader until it has ended.
    request: Box<Request>,
    _stack: Stack,
}

/// Memory for the stack of a child.
pub struct Stack(*mut libc::c_void);

impl Stack {
    const BYTES: usize = 64 * 1024;

    /// # Errors
    /// The system's error, with the bytes.
    pub fn new() -> io::Result<Stack> {
        // SAFETY: a new private mapping affects no other memory.
        let stack = unsafe {
            libc::mmap(
                null_mut(),
                Stack::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(fastpath_base::refusal::describe_mapping(Stack::BYTES as u64, &error));
        }
        Ok(Stack(stack))
    }

    /// End of the stack, where a child begins.
    pub fn end(&self) -> *mut libc::c_void {
        self.0.wrapping_byte_add(Stack::BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`. No child runs on it any more.
        unsafe { libc::munmap(self.0, Stack::BYTES) };
    }
}

impl SessionLeader {
    /// Starts a leader that clones children with `entry`. All signals must be blocked in the caller. None if the system
    /// refuses.
    pub fn start(entry: Entry, launcher: libc::pid_t) -> Option<SessionLeader> {
        let request = Box::new(Request {
            state: AtomicU32::new(IDLE),
            entry,
            stack: AtomicPtr::new(null_mut()),
            argument: AtomicPtr::new(null_mut()),
            result: AtomicI32::new(0),
            launcher,
        });
        let stack = Stack::new().ok()?;
        // SAFETY: stack and request stay in place until the leader has ended (`drop`, or the end of the launcher), and
        // `lead` takes a Request. It shares the descriptors, so that it holds none open that the launcher has closed.
        let pid = unsafe {
            libc::clone(
                lead,
                stack.end(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
                from_ref(&*request).cast_mut().cast(),
            )
        };
        (pid > 0).then_some(SessionLeader { pid, request, _stack: stack })
    }

    /// Clones a child in the leader's session, which calls the entry with `argument` on a stack that ends at `stack`.
    /// Returns like `clone`, with the negative `errno` as an error. None if the leader ended earlier.
    ///
    /// # Safety
    /// See `clone` with [`LIKE_VFORK`].
    pub unsafe fn clone_child(
        &self, stack: *mut libc::c_void, argument: *mut libc::c_void,
    ) -> Option<libc::pid_t> {
        let request = &*self.request;
        if !self.is_alive() {
            return None;
        }
        request.stack.store(stack, Ordering::Relaxed);
        request.argument.store(argument, Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `lead`; the leader reads the fields above, and the launcher's memory.
        request.state.store(ASKED, Ordering::Release);
        futex_wake(&request.state, 1);
        // ORDERING: pairs with the release in `lead`; the child's writes precede it.
        while request.state.load(Ordering::Acquire) != DONE {
            futex_wait(&request.state, ASKED, Some(CHECK_AFTER));
            // ORDERING: as above.
            if !self.is_alive() && request.state.load(Ordering::Acquire) != DONE {
                // A child may have begun on the stack.
                return Some(-libc::ECHILD);
            }
        }
        Some(request.result.load(Ordering::Relaxed))
    }

    /// Returns whether the leader is a running child of this process.
    fn is_alive(&self) -> bool {
        // SAFETY: all zeros is a valid siginfo_t, which is writable and outlives the call. WNOWAIT leaves the child to
        // the launcher's other waits.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, flags) == 0
                && info.si_pid() == 0
        }
    }
}

impl Drop for SessionLeader {
    fn drop(&mut self) {
        if self.is_alive() {
            // SAFETY: a running child keeps its number until it is waited for; a null status is allowed.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, null_mut(), 0);
            }
        }
    }
}

/// Main function of the leader.
extern "C" fn lead(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a Request that outlives this process.
    let request = unsafe { &*argument.cast::<Request>() };
    // SAFETY: system calls without pointers, apart from the constant name.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != request.launcher {
            libc::_exit(0);
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
    }
    loop {
        // ORDERING: pairs with the release in `clone_child`.
        match request.state.load(Ordering::Acquire) {
            ASKED => {}
            state => {
                futex_wait(&request.state, state, None);
                continue;
            }
        }
        // SAFETY: the contract of `clone_child`. CLONE_PARENT makes the child one of the launcher.
        let pid = unsafe {
            libc::clone(
                request.entry,
                request.stack.load(Ordering::Relaxed),
                LIKE_VFORK | libc::CLONE_PARENT,
                request.argument.load(Ordering::Relaxed),
            )
        };
        // SAFETY: `errno` of the failed call.
        let result = if pid < 0 { -unsafe { *libc::__errno_location() } } else { pid };
        request.result.store(result, Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `clone_child`.
        request.state.store(DONE, Ordering::Release);
        futex_wake(&request.state, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::from_mut;

    #[derive(Default)]
    struct Facts {
        session: libc::pid_t,
        group: libc::pid_t,
        parent: libc::pid_t,
    }

    extern "C" fn note_facts(facts: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the tests pass Facts that outlive the child; the calls take no pointers.
        unsafe {
            *facts.cast() = Facts {
                session: libc::getsid(0),
                group: libc::getpgid(0),
                parent: libc::getppid(),
            };
            libc::_exit(7)
        }
    }

    fn start_leader() -> SessionLeader {
        // SAFETY: getpid cannot fail.
        SessionLeader::start(note_facts, unsafe { libc::getpid() }).unwrap()
    }

    #[test]
    fn leader__clones_children_of_the_launcher_in_its_session() {
        let (leader, stack) = (start_leader(), Stack::new().unwrap());
        for _ in 0..3 {
            let mut facts = Facts::default();
            let mut status = 0;
            // SAFETY: the stack is idle, and the facts outlive the child.
            let pid = unsafe {
                let pid = leader.clone_child(stack.end(), from_mut(&mut facts).cast()).unwrap();
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                pid
            };
            assert_ne!(pid, leader.pid);
            assert_eq!(libc::WEXITSTATUS(status), 7);
            // SAFETY: getpid cannot fail.
            assert_eq!(facts.parent, unsafe { libc::getpid() });
            assert_eq!((facts.session, facts.group), (leader.pid, leader.pid));
        }
    }

    #[test]
    fn killed_leader__clones_no_child() {
        let (leader, stack) = (start_leader(), Stack::new().unwrap());
        // SAFETY: the leader is an unreaped child.
        unsafe { libc::kill(leader.pid, libc::SIGKILL) };
        while leader.is_alive() {
            std::thread::yield_now();
        }
        // SAFETY: no child is started.
        assert_eq!(unsafe { leader.clone_child(stack.end(), null_mut()) }, None);
    }
}
