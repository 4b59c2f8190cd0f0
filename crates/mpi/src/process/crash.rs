//! A crash inside an MPI call says which call it was.
//!
//! The way of a message notes nothing, so the name is found afterwards: a handler of the signals of a crash
//! walks the stack to the frame that the program called. It is installed where the program has none of its
//! own, leaves one line to the launcher, and lets the signal do what it does without a handler.
#![allow(unsafe_code)]

use crate::check::caller::{self, Call};
use crate::common::lock;
use crate::process;
use fastpath_base::sync::{Ordering, StaticU32};
use fastpath_base::tell::Escaped;
use std::ffi::{c_int, c_void};
use std::fmt::Write;

const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Bytes of the stack that the handler runs on; a thread without one of its own may have no room left.
const STACK_BYTES: usize = 64 * 1024;

/// Set by the first thread that crashes: its call is the one that is named.
static CRASHED: StaticU32 = StaticU32::new(0);

/// Installs the handler where the program has left a signal to the kernel.
pub fn install() {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return;
    }
    let mut free = false;
    for signal in SIGNALS {
        // SAFETY: the structures live, and zeros are valid ones.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) != 0
                || old.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = report;
            new.sa_sigaction = action as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            free |= libc::sigaction(signal, &new, std::ptr::null_mut()) == 0;
        }
    }
    if free {
        caller::prepare();
        provide_stack();
    }
}

/// Gives this thread a stack for handlers, if it has none.
fn provide_stack() {
    // SAFETY: the structures live; the memory is never given back.
    unsafe {
        let mut old: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(std::ptr::null(), &mut old) != 0
            || old.ss_flags & libc::SS_DISABLE == 0
        {
            return;
        }
        let Ok(memory) = fastpath_base::memory::reserve(STACK_BYTES) else {
            return;
        };
        let new = libc::stack_t { ss_sp: memory.cast(), ss_flags: 0, ss_size: STACK_BYTES };
        libc::sigaltstack(&new, std::ptr::null_mut());
    }
}

/// The handler. Takes no lock and no memory: it writes atomics of the rank's page.
extern "C" fn report(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // What follows may crash as well, on a stack that is destroyed: then it is the end.
    // SAFETY: the signal's former action; the call may be made in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: the kernel's, valid for the length of the handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let sent = code <= 0;
    if CRASHED.swap(1, Ordering::Relaxed) == 0 && !sent {
        let call = crash_place(context).and_then(|place| Call::find(Some(place)));
        leave_message(call.map(|call| call.name()), address);
    }
    if sent {
        // Somebody sent it: it does not come again by itself.
        // SAFETY: plain; it arrives when the handler has returned.
        unsafe { libc::raise(signal) };
    }
}

/// A line, without memory from the allocator.
struct Line {
    bytes: [u8; 240],
    len: usize,
}

impl Line {
    fn new() -> Line {
        Line { bytes: [0; 240], len: 0 }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("an MPI call")
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len());
        room.ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Names the call, if it was in one, and the thread, if it is another one than the first.
fn leave_message(call: Option<&str>, address: usize) {
    let mut text = Line::new();
    // SAFETY: no arguments; may be called in a handler.
    let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
    // SAFETY: nothing but atomics is touched.
    let process_state = unsafe { process::get_unlocked() };
    let _ = match call {
        Some(call) => write!(text, "in {call}, touching address {address:#x}"),
        // Without other threads the signal says it all.
        None if thread == process && !lock::is_enabled() => return,
        None => write!(text, "outside of MPI, touching address {address:#x}"),
    };
    if thread != process {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes up to 16 bytes, the last of them 0; may be called in a handler.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or("?");
        let _ = write!(text, ", in thread {thread} \"{}\"", Escaped(name));
    } else if lock::is_enabled() {
        let _ = text.write_str(", in thread \"main\"");
    }
    let engine = process_state.engine();
    match engine {
        Some(engine) if engine.job.launcher().is_some() => {
            engine.job.own_page().message.store(text.as_str());
        }
        _ => {
            let _ = text.write_str("\n");
            let parts = ["fastpath: crash ", text.as_str()];
            for part in parts {
                // SAFETY: the bytes of the text; may be called in a handler.
                unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
            }
        }
    }
}

/// Where the program was when the signal came.
fn crash_place(context: *mut c_void) -> Option<usize> {
    // SAFETY: the kernel's context of the handler.
    let _machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return Some(_machine.gregs[libc::REG_RIP as usize] as usize);
    #[cfg(target_arch = "aarch64")]
    return Some(_machine.pc as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}
