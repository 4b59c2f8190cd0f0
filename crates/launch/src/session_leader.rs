#![allow(unsafe_code)]
//! A process that leads the session of a job's ranks without dedicated processors
//! (`docs/decisions/0089-sessions-of-ranks.md`).
//!
//! A process can join another session only at its start. So a leader clones these ranks, with the launcher as their
//! parent. The leader shares the launcher's memory, descriptors and thread-local storage, so it executes only system
//! calls and atomic operations. It writes `errno` only while the launcher waits for it, and the launcher writes none
//! during that wait: neither is disturbed by the other.

use fastpath_base::refusal::describe_mapping;
use fastpath_base::sync::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use fastpath_base::wait::{Wake, futex_wait, futex_wake};
use std::io;
use std::ptr::{from_ref, null_mut};

const NAME: &std::ffi::CStr = c"mpi-session";

/// Function of a child of `clone`.
pub type ChildEntry = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Flags of a clone that shares this process's memory until it executes its program, like `vfork`.
pub const LIKE_VFORK: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;

/// State of a [`CloneRequest`] whose leader has ended. The kernel stores it then (CLONE_CHILD_CLEARTID).
const ENDED: u32 = 0;
/// State of a [`CloneRequest`] without work for the leader: no clone was requested yet, or the last one is done.
const IDLE: u32 = 1;
/// State of a [`CloneRequest`] that the leader has to carry out.
const REQUESTED: u32 = 2;

/// A clone that the leader makes for the launcher.
struct CloneRequest {
    /// [`ENDED`], [`IDLE`] or [`REQUESTED`].
    state: AtomicU32,
    entry: ChildEntry,
    /// End of the child's stack.
    stack: AtomicPtr<libc::c_void>,
    argument: AtomicPtr<libc::c_void>,
    /// The child's process number, or 0. The kernel stores it before the child runs (CLONE_PARENT_SETTID).
    child: AtomicI32,
    launcher: libc::pid_t,
}

/// The leader of a session. It ends when this is dropped, or when the launcher ends.
pub struct SessionLeader {
    pid: libc::pid_t,
    /// Used by the leader until it has ended.
    request: Box<CloneRequest>,
    _stack: ChildStack,
}

/// Memory for the stack of a child.
pub struct ChildStack(*mut libc::c_void);

impl ChildStack {
    const BYTES: usize = 64 * 1024;

    /// Maps a stack of [`ChildStack::BYTES`] bytes. An error names this size.
    pub fn new() -> io::Result<ChildStack> {
        // SAFETY: a new private mapping affects no other memory.
        let stack = unsafe {
            libc::mmap(
                null_mut(),
                ChildStack::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            return Err(describe_mapping(ChildStack::BYTES as u64, &io::Error::last_os_error()));
        }
        Ok(ChildStack(stack))
    }

    /// End of the stack, where a child begins.
    pub fn end(&self) -> *mut libc::c_void {
        self.0.wrapping_byte_add(ChildStack::BYTES)
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping made in `new`. No child runs on it any more.
        unsafe { libc::munmap(self.0, ChildStack::BYTES) };
    }
}

impl SessionLeader {
    /// Starts a leader that clones children with `entry`. All signals must be blocked in the caller. None if the system
    /// refuses.
    pub fn start(entry: ChildEntry, launcher: libc::pid_t) -> Option<SessionLeader> {
        let request = Box::new(CloneRequest {
            state: AtomicU32::new(IDLE),
            entry,
            stack: AtomicPtr::new(null_mut()),
            argument: AtomicPtr::new(null_mut()),
            child: AtomicI32::new(0),
            launcher,
        });
        let stack = ChildStack::new().ok()?;
        // SAFETY: stack and request stay in place until the leader has ended (`drop`, or the end of the launcher), and
        // `run_leader` takes a CloneRequest. The leader shares the launcher's descriptors, because ranks inherit ones
        // that are opened later.
        let pid = unsafe {
            libc::clone(
                run_leader,
                stack.end(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD,
                from_ref(&*request).cast_mut().cast(),
                null_mut::<libc::pid_t>(),
                null_mut::<libc::c_void>(),
                request.state.as_ptr(),
            )
        };
        // A SessionLeader exists only for a running process, because its drop sends SIGKILL to that number.
        if pid <= 0 {
            return None;
        }
        Some(SessionLeader { pid, request, _stack: stack })
    }

    /// Clones a child in the leader's session, which calls the entry with `argument` on a stack that ends at `stack`.
    /// Returns the child's process number when the child has left this memory. If that fails, returns None, and no
    /// child exists.
    ///
    /// # Safety
    /// See `clone` with [`LIKE_VFORK`].
    pub unsafe fn clone_child(
        &self, stack: *mut libc::c_void, argument: *mut libc::c_void,
    ) -> Option<libc::pid_t> {
        let request = &*self.request;
        request.stack.store(stack, Ordering::Relaxed);
        request.argument.store(argument, Ordering::Relaxed);
        request.child.store(0, Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `run_leader`, which reads the fields above and the launcher's memory.
        let start =
            request.state.compare_exchange(IDLE, REQUESTED, Ordering::Release, Ordering::Relaxed);
        start.ok()?;
        futex_wake(&request.state, 1);
        let state = loop {
            // ORDERING: pairs with the release in `run_leader`, which the child's writes precede.
            match request.state.load(Ordering::Acquire) {
                REQUESTED => futex_wait(&request.state, REQUESTED, None),
                state => break state,
            };
        };
        let child = Some(request.child.load(Ordering::Relaxed)).filter(|&child| child > 0)?;
        if state == ENDED {
            // The leader was killed, and the child may still use this memory.
            // SAFETY: the child is an unreaped one of this process; a null status is allowed.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, null_mut(), 0);
            }
            return None;
        }
        Some(child)
    }

    pub fn is_running(&self) -> bool {
        self.request.state.load(Ordering::Relaxed) != ENDED
    }
}

impl Drop for SessionLeader {
    fn drop(&mut self) {
        while self.is_running() {
            // SAFETY: the leader has not ended, so `pid` is still its number. The launcher reaps it with its ranks.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            futex_wait(&self.request.state, IDLE, None);
        }
    }
}

/// Main function of the leader. The leader exits at once if the system refuses to end it with the launcher, or to let
/// it sleep.
extern "C" fn run_leader(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a CloneRequest that outlives this process.
    let request = unsafe { &*argument.cast::<CloneRequest>() };
    let can_sleep = futex_wait(&request.state, u32::MAX, None) == Wake::Changed;
    // SAFETY: the system calls take no pointers, apart from the constant name.
    unsafe {
        let ends_with_launcher = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
            && libc::getppid() == request.launcher;
        if !can_sleep || !ends_with_launcher || libc::setsid() == -1 {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
    }
    loop {
        // ORDERING: pairs with the release in `clone_child`.
        if request.state.load(Ordering::Acquire) != REQUESTED {
            futex_wait(&request.state, IDLE, None);
            continue;
        }
        // SAFETY: the launcher has met `clone_child`'s contract. By CLONE_PARENT the child is the launcher's.
        unsafe {
            libc::clone(
                request.entry,
                request.stack.load(Ordering::Relaxed),
                LIKE_VFORK | libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID,
                request.argument.load(Ordering::Relaxed),
                request.child.as_ptr(),
            )
        };
        // ORDERING: pairs with the acquire in `clone_child`.
        request.state.store(IDLE, Ordering::Release);
        futex_wake(&request.state, 1);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::ptr::from_mut;

    #[derive(Default)]
    struct ChildFacts {
        session: libc::pid_t,
        group: libc::pid_t,
        parent: libc::pid_t,
    }

    extern "C" fn note_facts(facts: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the tests pass ChildFacts that outlive the child; the calls take no pointers.
        unsafe {
            *facts.cast() = ChildFacts {
                session: libc::getsid(0),
                group: libc::getpgid(0),
                parent: libc::getppid(),
            };
            libc::_exit(7)
        }
    }

    fn start_leader() -> SessionLeader {
        // SAFETY: the set is writable, and the calls have no other pointers. Only this thread's mask changes.
        unsafe {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, null_mut());
            SessionLeader::start(note_facts, libc::getpid()).unwrap()
        }
    }

    #[test]
    fn leader__clones_children_of_the_launcher_in_its_session() {
        let (leader, stack) = (start_leader(), ChildStack::new().unwrap());
        for _ in 0..3 {
            let mut facts = ChildFacts::default();
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
        let (leader, stack) = (start_leader(), ChildStack::new().unwrap());
        // SAFETY: the leader is an unreaped child.
        unsafe { libc::kill(leader.pid, libc::SIGKILL) };
        while leader.is_running() {
            std::thread::yield_now();
        }
        // SAFETY: no child is started.
        assert_eq!(unsafe { leader.clone_child(stack.end(), null_mut()) }, None);
    }

    extern "C" fn kill_leader(leader: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the test passes the leader's number, which is valid while its child runs. The child ends by a signal.
        unsafe {
            libc::kill(*leader.cast(), libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }

    #[test]
    fn leader__killed_while_its_child_starts__leaves_no_child() {
        let (mut leader, stack) = (start_leader(), ChildStack::new().unwrap());
        leader.request.entry = kill_leader;
        let mut pid = leader.pid;
        // SAFETY: the stack is idle, and the number outlives the child.
        let child = unsafe { leader.clone_child(stack.end(), from_mut(&mut pid).cast()) };
        assert_eq!(child, None);
        assert!(!leader.is_running());
        let child = leader.request.child.load(Ordering::Relaxed);
        assert!(child > 0);
        // SAFETY: a null status is allowed.
        assert_eq!(unsafe { libc::waitpid(child, null_mut(), libc::WNOHANG) }, -1);
    }
}
