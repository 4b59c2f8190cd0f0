//! Call sites: the places of the program that call MPI.
#![allow(unsafe_code)]

use fastpath_base::code::{self, code_ranges};
#[cfg(target_arch = "x86_64")]
use std::arch::global_asm;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    /// Stack walk of the unwinder (Itanium C++ ABI, exception handling, 1.6).
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut usize) -> c_int, found: *mut usize,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

// A variable of each thread in the initial-exec model, which a preloaded library may use.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl fastpath_profile_caller",
    ".hidden fastpath_profile_caller",
    ".type fastpath_profile_caller, @object",
    ".size fastpath_profile_caller, 8",
    ".balign 8",
    "fastpath_profile_caller: .zero 8",
    ".text",
);

/// Returns the return address that `enter` has stored; 0 where there is none.
fn caller() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let address: usize;
        // SAFETY: reads the thread's own variable.
        unsafe {
            std::arch::asm!(
                "mov {0}, [rip + fastpath_profile_caller@GOTTPOFF]",
                "mov {0}, fs:[{0}]",
                out(reg) address,
                options(nostack, preserves_flags)
            );
        }
        address
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Returns the return address of the present MPI call in the program. The Fortran entry points are not the program.
pub(crate) fn find_site() -> usize {
    let address = caller();
    match address == 0 || code_ranges().fortran.contains(&address) {
        false => address,
        true => walk(),
    }
}

#[cold]
fn walk() -> usize {
    let mut found = 0;
    // SAFETY: `visit` has the required type, and `found` outlives the call.
    unsafe { _Unwind_Backtrace(visit, &mut found) };
    found
}

extern "C" fn visit(context: *mut c_void, found: *mut usize) -> c_int {
    // SAFETY: the unwinder passes a context and the variable, both valid during the call.
    unsafe {
        let address = _Unwind_GetIP(context);
        if code_ranges().own.contains(&address) || code_ranges().fortran.contains(&address) {
            return GO_ON;
        }
        *found = address;
    }
    STOP
}

/// Returns the file of a call site, and the address of the call in that file. Without a file the path is empty.
pub(crate) fn locate(site: usize) -> (String, u64) {
    // The byte before the return address is inside the calling function.
    let call = site.wrapping_sub(1);
    // SAFETY: the object stays loaded while the program runs code in it.
    let Some((path, address)) = (unsafe { code::locate(call) }) else {
        return (String::new(), call as u64);
    };
    // The name of the program is that of the command line, which may be relative.
    let path = std::fs::canonicalize(path)
        .or_else(|_| std::env::current_exe())
        .unwrap_or_else(|_| path.to_owned());
    (path.to_string_lossy().into_owned(), address as u64)
}
