//! Code of the process: the loaded object at an address, and the address ranges of this library.
#![allow(unsafe_code)]

use crate::loaded_objects::visit_objects;
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Address ranges of code.
#[derive(Debug)]
pub struct CodeRanges {
    /// The library or program that contains this crate.
    pub own: Range<usize>,
    /// The Fortran entry points, `libmpifort_abi`; empty without them.
    pub fortran: Range<usize>,
}

const FORTRAN_LIBRARY: &[u8] = b"/libmpifort_abi.so";

/// Returns the address ranges. The first call takes the linker's lock, so it must precede calls by signal handlers.
pub fn code_ranges() -> &'static CodeRanges {
    static CODE: OnceLock<CodeRanges> = OnceLock::new();
    CODE.get_or_init(|| {
        let mut code = CodeRanges { own: 0..0, fortran: 0..0 };
        let own = code_ranges as *const () as usize;
        visit_objects(|object| {
            let is_fortran =
                object.path().windows(FORTRAN_LIBRARY.len()).any(|part| part == FORTRAN_LIBRARY);
            for (found, is_code) in object.segments() {
                if found.contains(&own) {
                    code.own = found;
                } else if is_fortran && is_code {
                    code.fortran = found;
                }
            }
            ControlFlow::Continue(())
        });
        code
    })
}

/// Returns the loaded object, and the exported symbol, that contain an address.
pub fn find_object(address: usize) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts every address. Zeros are a valid `Dl_info`, which `dladdr` fills if it finds the
    // address.
    unsafe {
        let found = libc::dladdr(std::ptr::without_provenance(address), info.as_mut_ptr());
        (found != 0).then(|| info.assume_init())
    }
}

/// Returns the path by which the library or program that contains this crate was loaded.
pub fn own_file() -> Option<&'static Path> {
    let file = find_object(own_file as *const () as usize)?.dli_fname;
    // SAFETY: the name ends in a zero byte, and lives as long as this code is loaded.
    let file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) })?;
    Some(Path::new(OsStr::from_bytes(file.to_bytes())))
}

/// Offset of the file type in an ELF header.
const ELF_TYPE: usize = 16;

/// Returns the path of the object that contains an address, and the address as that file numbers it.
///
/// # Safety
/// The object that contains `address` stays loaded for `'a`.
pub unsafe fn locate<'a>(address: usize) -> Option<(&'a Path, usize)> {
    let found = find_object(address).filter(|found| !found.dli_fname.is_null())?;
    // SAFETY: a loaded object begins with an ELF header and has a name, by this function's contract.
    let (path, kind) = unsafe {
        let kind = found.dli_fbase.cast::<u16>().add(ELF_TYPE / 2).read();
        (CStr::from_ptr(found.dli_fname), kind)
    };
    let base = if kind == libc::ET_EXEC { 0 } else { found.dli_fbase.addr() };
    Some((Path::new(OsStr::from_bytes(path.to_bytes())), address - base))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn own_code__is_in_the_own_file() {
        let address = own_file as *const () as usize;
        assert!(code_ranges().own.contains(&address) && code_ranges().fortran.is_empty());
        let own = std::fs::canonicalize(own_file().unwrap()).unwrap();
        assert_eq!(own, std::env::current_exe().unwrap());
        // SAFETY: the test's own program stays loaded.
        let (path, place) = unsafe { locate(address) }.unwrap();
        assert_eq!(path, own_file().unwrap());
        assert!(place > 0 && place < code_ranges().own.end);
        // SAFETY: no object contains the address.
        assert!(unsafe { locate(8) }.is_none());
    }
}
