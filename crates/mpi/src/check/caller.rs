//! Call sites of MPI calls, found by walking up the stack, because the message path records nothing.
#![allow(unsafe_code)]

use fastpath_base::code::{code_ranges, find_object, locate};
use std::ffi::{CStr, c_int, c_void};
use std::fmt;

/// Maximum number of frames that a walk visits. A stack that has overflowed has hundreds of thousands of frames.
const FRAMES_MAX: u32 = 256;

unsafe extern "C" {
    /// Stack walk of the unwinder that every Rust and C++ program links (Itanium C++ ABI, exception handling, 1.6).
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut Walk) -> c_int, walk: *mut Walk,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

#[repr(C)]
struct Walk {
    /// Address that a signal interrupted. The walk skips earlier frames, which belong to the signal handler.
    place: usize,
    reached: bool,
    frames: u32,
    /// Address in the outermost of the consecutive frames in this library; 0 before the first such frame.
    outermost: usize,
    /// Return address of the outermost frame in this library.
    caller: usize,
    /// Return address of the outermost frame in this library or in the Fortran entry points: the place in the program
    /// that made the call.
    program: usize,
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

extern "C" fn visit(context: *mut c_void, walk: *mut Walk) -> c_int {
    // SAFETY: the unwinder passes a context and the walk, both valid during the call.
    let (ip, walk) = unsafe { (_Unwind_GetIP(context), &mut *walk) };
    walk.frames += 1;
    walk.reached |= ip == walk.place;
    if walk.frames > FRAMES_MAX {
        return STOP;
    }
    if !walk.reached {
        return GO_ON;
    }
    // A return address may be the first byte after the calling function. The byte before the return address is inside
    // the calling function.
    let inside = if ip == walk.place { ip } else { ip.wrapping_sub(1) };
    if walk.caller == 0 && code_ranges().own.contains(&inside) {
        walk.outermost = inside;
    } else if walk.outermost != 0 {
        walk.caller = if walk.caller == 0 { ip } else { walk.caller };
        if !code_ranges().fortran.contains(&inside) {
            walk.program = ip;
            return STOP;
        }
    }
    GO_ON
}

/// Finds the address ranges before a signal handler needs them.
pub(crate) fn prepare() {
    code_ranges();
}

pub(crate) struct CallFrames {
    outermost: usize,
    caller: usize,
    program: usize,
}

impl CallFrames {
    /// Finds the MPI call of this thread; `None` outside MPI. `place` is the address that a signal interrupted, if any.
    /// Takes no lock and allocates nothing, so that a signal handler may call it.
    pub(crate) fn find(place: Option<usize>) -> Option<CallFrames> {
        let mut walk = Walk {
            place: place.unwrap_or_default(),
            reached: place.is_none(),
            frames: 0,
            outermost: 0,
            caller: 0,
            program: 0,
        };
        // SAFETY: `visit` has the required type, and `walk` outlives the call.
        unsafe { _Unwind_Backtrace(visit, &mut walk) };
        let Walk { outermost, caller, program, .. } = walk;
        (outermost != 0).then_some(CallFrames { outermost, caller, program })
    }

    pub(crate) fn name(&self) -> &'static str {
        // If the outermost function has no exported name, the program called an exported function that jumped to it.
        // The jump left no frame, so the name is read from the call instruction.
        let text = exported_name(self.outermost)
            .or_else(|| exported_name(called_before(self.caller)?))
            .unwrap_or("an MPI call");
        text.strip_prefix('P').unwrap_or(text)
    }

    pub(crate) fn place(&self) -> CallSite {
        CallSite(self.program)
    }
}

/// Return address of a call in the program. Displayed for `addr2line`, as object file and offset in that file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallSite(usize);

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0.wrapping_sub(1);
        // SAFETY: the object stays loaded while the program runs code in it.
        let Some((path, address)) = (unsafe { locate(call) }) else {
            return write!(f, "{call:#x}");
        };
        let path = path.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or_default();
        write!(f, "{file}+{address:#x}")
    }
}

/// Returns the name of the exported function at an address.
fn exported_name(address: usize) -> Option<&'static str> {
    let symbol = find_object(address)?.dli_sname;
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the name is in the table of an object that stays loaded while the program runs code in it.
    unsafe { CStr::from_ptr(symbol) }.to_str().ok()
}

/// Returns the function that the instruction before address `next` calls. Compilers call functions of a shared library
/// through the linker's table, directly or by a stub.
#[cfg(target_arch = "x86_64")]
fn called_before(next: usize) -> Option<usize> {
    let at = |address: usize| std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: code around a return address is readable, and so is a table that its instruction names.
    unsafe {
        let offset = |address: usize| at(address).cast::<i32>().read_unaligned() as isize;
        let target = next.wrapping_add_signed(offset(next - 4));
        let table = if *at(next - 6) == 0xff && *at(next - 5) == 0x15 {
            target
        } else if *at(next - 5) == 0xe8 {
            // The stub may begin with `endbr64` and a prefix.
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
