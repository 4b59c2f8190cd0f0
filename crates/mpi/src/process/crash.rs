//! Crash reports: a crash inside an MPI call names the call.
//!
//! The message path records nothing, so the name is found after the crash: a signal handler walks the stack to the
//! frame that the program called. The handler is installed for crash signals for which the program has no handler. It
//! leaves one line to the launcher, and then lets the signal take its default action.
#![allow(unsafe_code)]

use crate::check::caller::{self, CallFrames};
use crate::common::lock;
use crate::process;
use fastpath_base::sync::{Ordering, StaticU32};
use fastpath_base::tell::{EscapedText, FixedString};
use fastpath_base::topology::thread_number;
use std::ffi::{c_int, c_void};
use std::fmt::Write;

const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Size in bytes of the handler's own stack, which is needed because the thread's stack may have overflowed.
const STACK_BYTES: usize = 64 * 1024;

/// 1 after a thread has crashed. Only the call of the first thread that crashes is reported.
static CRASHED: StaticU32 = StaticU32::new(0);

/// Installs the handler for signals with the default action.
pub fn install() {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return;
    }
    let mut free = false;
    for signal in SIGNALS {
        // SAFETY: the structures outlive the calls, and all zeros is valid for them.
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

fn provide_stack() {
    // SAFETY: the structures outlive the calls, and the memory is never freed.
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

/// Signal handler. It takes no lock and allocates nothing: it writes atomics of the rank's page.
extern "C" fn report(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // The code below may crash too, on a damaged stack. The default action then ends the process.
    // SAFETY: the default action is valid, and `signal` may be called in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: the kernel passes the structure, which is valid during the handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let sent = code <= 0;
    if CRASHED.swap(1, Ordering::Relaxed) == 0 && !sent {
        let call = crash_place(context).and_then(|place| CallFrames::find(Some(place)));
        leave_message(call.map(|call| call.name()), address);
    }
    if sent {
        // A signal that a process sent does not recur when the handler returns, so the handler raises it again. SAFETY:
        // `raise` has no precondition, and the signal arrives when the handler has returned.
        unsafe { libc::raise(signal) };
    }
}

/// Leaves a message for the launcher: the call, if there is one, and the thread, if it is not the first.
fn leave_message(call: Option<&str>, address: usize) {
    let mut text = FixedString::<240>::default();
    // SAFETY: the function has no arguments. It and `thread_number`, a system call, may be called in a handler.
    let (thread, process) = unsafe { (thread_number() as libc::pid_t, libc::getpid()) };
    // SAFETY: only atomics are accessed, and the engine, which changes only at initialisation and finalisation.
    let process_state = unsafe { process::get_unlocked() };
    let _ = match call {
        Some(call) => write!(text, "in {call}, touching address {address:#x}"),
        // Without other threads, the report of the signal is sufficient.
        None if thread == process && !lock::is_enabled() => return,
        None => write!(text, "outside of MPI, touching address {address:#x}"),
    };
    if thread != process {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes up to 16 bytes, the last of them 0; may be called in a handler.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or("?");
        let _ = write!(text, ", in thread {thread} \"{}\"", EscapedText(name));
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
                // SAFETY: the bytes are those of the text, and `write` may be called in a handler.
                unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
            }
        }
    }
}

/// Returns the instruction that the signal interrupted.
fn crash_place(context: *mut c_void) -> Option<usize> {
    // SAFETY: the kernel passes the handler a context, valid during the handler.
    let _machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return Some(_machine.gregs[libc::REG_RIP as usize] as usize);
    #[cfg(target_arch = "aarch64")]
    return Some(_machine.pc as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}
