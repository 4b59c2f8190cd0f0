//! A crash inside an MPI call says which call it was.
//!
//! The way of a message notes nothing, so the name is found afterwards: a handler of the signals of a crash
//! walks the stack to the frame that the program called. It is installed where the program has none of its
//! own, leaves one line to the launcher, and lets the signal do what it does without a handler.
#![allow(unsafe_code)]

use crate::process;
use fastpath_base::sync::{Ordering, StaticU32};
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write;
use std::mem::MaybeUninit;

const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Frames that are looked at: a stack that has overflown has hundreds of thousands.
const FRAMES_MAX: u32 = 256;

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
        let new = libc::stack_t {
            ss_sp: memory.cast(),
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
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
    if CRASHED.swap(1, Ordering::Relaxed) == 0
        && !sent
        && let Some(name) = crash_place(context).and_then(find_call)
    {
        leave_message(&name, address);
    }
    if sent {
        // Somebody sent it: it does not come again by itself.
        // SAFETY: plain; it arrives when the handler has returned.
        unsafe { libc::raise(signal) };
    }
}

/// A call's name, without memory from the allocator.
struct Name {
    bytes: [u8; 240],
    len: usize,
}

impl Name {
    fn new() -> Name {
        Name {
            bytes: [0; 240],
            len: 0,
        }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("an MPI call")
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len());
        room.ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

fn leave_message(call: &Name, address: usize) {
    let mut text = Name::new();
    let _ = write!(text, "in {}, touching address {address:#x}", call.as_str());
    // SAFETY: nothing but atomics of the page is touched.
    let engine = unsafe { process::get_unlocked() }.engine();
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

unsafe extern "C" {
    /// Of the unwinder that every Rust and C++ program links (Itanium C++ ABI, exception handling, 1.6).
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut Walk) -> c_int,
        walk: *mut Walk,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// A walk up the stack.
#[repr(C)]
struct Walk {
    /// Where the program was: what lies below is the handler's.
    place: usize,
    reached: bool,
    frames: u32,
    /// The frame of this library that is farthest up, of those that follow each other.
    outermost: usize,
    /// Where the program goes on when that frame returns.
    caller: usize,
    library: usize,
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

extern "C" fn visit(context: *mut c_void, walk: *mut Walk) -> c_int {
    // SAFETY: both are valid for the length of the call.
    let (ip, walk) = unsafe { (_Unwind_GetIP(context), &mut *walk) };
    walk.frames += 1;
    walk.reached |= ip == walk.place;
    if walk.frames > FRAMES_MAX {
        return STOP;
    }
    if !walk.reached {
        return GO_ON;
    }
    // A return address may be the first of what follows the function that was called last.
    let inside = if ip == walk.place {
        ip
    } else {
        ip.wrapping_sub(1)
    };
    match find_object(inside) {
        Some(found) if found.dli_fbase.addr() == walk.library => walk.outermost = inside,
        _ if walk.outermost != 0 => {
            walk.caller = ip;
            return STOP;
        }
        _ => {}
    }
    GO_ON
}

fn find_object(address: usize) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; zeros are valid, and written where it is found.
    unsafe {
        let found = libc::dladdr(std::ptr::without_provenance(address), info.as_mut_ptr());
        (found != 0).then(|| info.assume_init())
    }
}

/// The MPI call that the program was in at `place`; `None` where it was in none.
fn find_call(place: usize) -> Option<Name> {
    let mut walk = Walk {
        place,
        reached: false,
        frames: 0,
        outermost: 0,
        caller: 0,
        library: find_object(install as fn() as usize)?.dli_fbase.addr(),
    };
    // SAFETY: `visit` has the form that is asked for.
    unsafe { _Unwind_Backtrace(visit, &mut walk) };
    if walk.outermost == 0 {
        return None;
    }
    let mut name = Name::new();
    // A function that has no name outside was jumped to by one that has, and that has left no frame.
    let text = exported_name(walk.outermost)
        .or_else(|| exported_name(called_before(walk.caller)?))
        .unwrap_or("an MPI call");
    name.write_str(text.strip_prefix('P').unwrap_or(text))
        .ok()?;
    Some(name)
}

/// The name of the function around an address, if it is one that others can call.
fn exported_name(address: usize) -> Option<&'static str> {
    let symbol = find_object(address)?.dli_sname;
    if symbol.is_null() {
        return None;
    }
    // SAFETY: a name in the table of an object that stays loaded while the program is inside of it.
    unsafe { CStr::from_ptr(symbol) }.to_str().ok()
}

/// What was called by the instruction before the address `next`: through the table of the linker, straight
/// or by one of its stubs, as compilers call a function of a shared library.
#[cfg(target_arch = "x86_64")]
fn called_before(next: usize) -> Option<usize> {
    let at = |address: usize| std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: code around a return address can be read; a table that its instruction names, too.
    unsafe {
        let offset = |address: usize| at(address).cast::<i32>().read_unaligned() as isize;
        let target = next.wrapping_add_signed(offset(next - 4));
        let table = if *at(next - 6) == 0xff && *at(next - 5) == 0x15 {
            target
        } else if *at(next - 5) == 0xe8 {
            // The stub may begin with a landing mark (endbr64) and a prefix.
            let mut stub = target;
            if at(stub).cast::<u32>().read_unaligned() == 0xfa1e_0ff3 {
                stub += 4;
            }
            stub += usize::from(*at(stub) == 0xf2);
            if *at(stub) != 0xff || *at(stub + 1) != 0x25 {
                return Some(target);
            }
            (stub + 6).wrapping_add_signed(offset(stub + 2))
        } else {
            return None;
        };
        Some(at(table).cast::<usize>().read_unaligned())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn called_before(_: usize) -> Option<usize> {
    None
}
