//! Call sites: the places of the program that call MPI.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

unsafe extern "C" {
    /// Stack walk of the unwinder (Itanium C++ ABI, exception handling, 1.6).
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut usize) -> c_int, found: *mut usize,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;
const FORTRAN_LIBRARY: &[u8] = b"/libmpifort_abi.so";

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

/// Address ranges of code.
#[derive(Debug, Default)]
struct CodeRanges {
    own: Range<usize>,
    /// The Fortran entry points; empty without them.
    fortran: Range<usize>,
}

fn code_ranges() -> &'static CodeRanges {
    static CODE: OnceLock<CodeRanges> = OnceLock::new();
    CODE.get_or_init(|| {
        let mut code = CodeRanges::default();
        // SAFETY: `find_code` has the required type, and `code` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(find_code), (&raw mut code).cast()) };
        code
    })
}

/// Stores the code of this library and of the Fortran entry points.
unsafe extern "C" fn find_code(
    object: *mut libc::dl_phdr_info, _: usize, code: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes an object that is valid during the call; `code_ranges` passes a valid `code`.
    unsafe {
        let (object, code) = (&*object, &mut *code.cast::<CodeRanges>());
        let segments = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        let is_fortran = !object.dlpi_name.is_null()
            && CStr::from_ptr(object.dlpi_name)
                .to_bytes()
                .windows(FORTRAN_LIBRARY.len())
                .any(|part| part == FORTRAN_LIBRARY);
        let own = visit as *const () as usize;
        let loads = segments.iter().filter(|s| s.p_type == libc::PT_LOAD);
        for segment in loads.filter(|s| s.p_flags & libc::PF_X != 0) {
            let start = object.dlpi_addr.wrapping_add(segment.p_vaddr) as usize;
            let found = start..start.wrapping_add(segment.p_memsz as usize);
            if found.contains(&own) {
                code.own = found;
            } else if is_fortran {
                code.fortran = found;
            }
        }
    }
    GO_ON
}

/// Offset of the file type in an ELF header.
const ELF_TYPE: usize = 16;

/// Returns the file of a call site, and the address of the call in that file. Without a file the path is empty.
pub(crate) fn locate(site: usize) -> (String, u64) {
    // The byte before the return address is inside the calling function.
    let call = site.wrapping_sub(1);
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts every address. Zeros are a valid `Dl_info`, which `dladdr` fills if it finds the
    // address. The object stays loaded while the program runs code in it, and begins with an ELF header.
    unsafe {
        if libc::dladdr(std::ptr::without_provenance(call), info.as_mut_ptr()) == 0 {
            return (String::new(), call as u64);
        }
        let info = info.assume_init();
        let is_fixed = info.dli_fbase.cast::<u16>().add(ELF_TYPE / 2).read() == libc::ET_EXEC;
        let path = CStr::from_ptr(info.dli_fname).to_string_lossy();
        let base = if is_fixed { 0 } else { info.dli_fbase.addr() };
        // The name of the program is that of the command line, which may be relative.
        let path = std::fs::canonicalize(&*path)
            .or_else(|_| std::env::current_exe())
            .map_or_else(|_| path.into_owned(), |path| path.to_string_lossy().into_owned());
        (path, (call - base) as u64)
    }
}
