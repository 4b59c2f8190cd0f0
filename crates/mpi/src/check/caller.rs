//! Where the program called MPI: found by a walk up the stack, since the way of a message notes nothing.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

/// Frames that are looked at: a stack that has overflown has hundreds of thousands.
const FRAMES_MAX: u32 = 256;

unsafe extern "C" {
    /// Of the unwinder that every Rust and C++ program links (Itanium C++ ABI, exception handling, 1.6).
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut Walk) -> c_int, walk: *mut Walk,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// A walk up the stack.
#[repr(C)]
struct Walk {
    /// What lies below this frame is not looked at: it is a signal handler's.
    place: usize,
    reached: bool,
    frames: u32,
    /// The frame of this library that is farthest up, of those that follow each other.
    outermost: usize,
    /// Where the program goes on when that frame returns.
    caller: usize,
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
    let inside = if ip == walk.place { ip } else { ip.wrapping_sub(1) };
    if library().contains(&inside) {
        walk.outermost = inside;
    } else if walk.outermost != 0 {
        walk.caller = ip;
        return STOP;
    }
    GO_ON
}

/// The addresses of this library's code. Found once; [`prepare`] does so before a signal handler asks.
fn library() -> &'static Range<usize> {
    static CODE: OnceLock<Range<usize>> = OnceLock::new();
    CODE.get_or_init(|| {
        let mut code = 0..0;
        // SAFETY: `find_own_code` has the form that is asked for, and its argument lives as long as the call.
        unsafe { libc::dl_iterate_phdr(Some(find_own_code), (&raw mut code).cast()) };
        code
    })
}

/// Finds out what a walk in a signal handler needs.
pub(crate) fn prepare() {
    library();
}

/// Sets `code` to the segment that this function lies in.
unsafe extern "C" fn find_own_code(
    object: *mut libc::dl_phdr_info, _: usize, code: *mut c_void,
) -> c_int {
    // SAFETY: the linker's, valid for the length of the call, as is `code`.
    unsafe {
        let (object, code) = (&*object, &mut *code.cast::<Range<usize>>());
        let segments = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        let own = visit as *const () as usize;
        for segment in segments.iter().filter(|s| s.p_type == libc::PT_LOAD) {
            let start = object.dlpi_addr.wrapping_add(segment.p_vaddr) as usize;
            let found = start..start.wrapping_add(segment.p_memsz as usize);
            if found.contains(&own) {
                *code = found;
                return STOP;
            }
        }
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

/// A call of this library.
pub(crate) struct Call {
    outermost: usize,
    caller: usize,
}

impl Call {
    /// The call under way on this thread; with `place` that of the frame which was there when a signal came. `None`
    /// where it was in none. Takes no lock and no memory, so that a handler may ask.
    pub(crate) fn find(place: Option<usize>) -> Option<Call> {
        let mut walk = Walk {
            place: place.unwrap_or_default(),
            reached: place.is_none(),
            frames: 0,
            outermost: 0,
            caller: 0,
        };
        // SAFETY: `visit` has the form that is asked for.
        unsafe { _Unwind_Backtrace(visit, &mut walk) };
        let Walk { outermost, caller, .. } = walk;
        (outermost != 0).then_some(Call { outermost, caller })
    }

    /// The name of the function.
    pub(crate) fn name(&self) -> &'static str {
        // A function that has no name outside was jumped to by one that has, and that has left no frame.
        let text = exported_name(self.outermost)
            .or_else(|| exported_name(called_before(self.caller)?))
            .unwrap_or("an MPI call");
        text.strip_prefix('P').unwrap_or(text)
    }

    /// Where the program goes on after the call.
    pub(crate) fn place(&self) -> CallSite {
        CallSite(self.caller)
    }
}

/// An instruction of the program, behind a call. Written as `addr2line` takes it: the file, and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallSite(usize);

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0.wrapping_sub(1);
        let Some(found) = find_object(call).filter(|found| !found.dli_fname.is_null()) else {
            return write!(f, "{call:#x}");
        };
        // SAFETY: the name of an object that stays loaded while the program is inside of it; it begins with an ELF
        // header.
        let (path, is_fixed) = unsafe {
            let kind = found.dli_fbase.cast::<u16>().add(ELF_TYPE / 2).read();
            (CStr::from_ptr(found.dli_fname), kind == libc::ET_EXEC)
        };
        let path = path.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or_default();
        let base = if is_fixed { 0 } else { found.dli_fbase.addr() };
        write!(f, "{file}+{:#x}", call - base)
    }
}

/// Where an ELF header says what kind of file it is.
const ELF_TYPE: usize = 16;

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
