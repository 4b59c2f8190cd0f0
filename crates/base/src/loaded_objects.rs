//! Objects that the process has loaded, as the dynamic linker lists them.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ops::{ControlFlow, Range};

/// A library or program that the process has loaded.
pub(crate) struct LoadedObject<'a>(&'a libc::dl_phdr_info);

/// Passes each loaded object to `visit`, until `visit` breaks. The linker holds its lock meanwhile, so `visit` must not
/// load an object.
pub(crate) fn visit_objects<F: FnMut(&LoadedObject<'_>) -> ControlFlow<()>>(mut visit: F) {
    unsafe extern "C" fn pass<F: FnMut(&LoadedObject<'_>) -> ControlFlow<()>>(
        object: *mut libc::dl_phdr_info, _: usize, visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes an object that is valid during the call; `visit_objects` passes its closure.
        unsafe { c_int::from((*visit.cast::<F>())(&LoadedObject(&*object)).is_break()) }
    }
    // SAFETY: `pass` has the required type, and the closure outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(pass::<F>), (&raw mut visit).cast()) };
}

impl LoadedObject<'_> {
    /// Returns the path; empty for the program.
    pub fn path(&self) -> &[u8] {
        match self.0.dlpi_name.is_null() {
            true => b"",
            // SAFETY: the linker's string ends in a NUL, and lives as long as the object.
            false => unsafe { CStr::from_ptr(self.0.dlpi_name) }.to_bytes(),
        }
    }

    /// Returns the difference between the addresses in memory and those in the file.
    pub fn base(&self) -> u64 {
        self.0.dlpi_addr
    }

    /// Returns how many objects the process has loaded in all.
    pub fn loads(&self) -> u64 {
        self.0.dlpi_adds
    }

    /// Returns the program headers.
    pub fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the object has that many headers.
        unsafe { std::slice::from_raw_parts(self.0.dlpi_phdr, self.0.dlpi_phnum.into()) }
    }

    /// Returns the address range of each loaded segment, and whether the segment is code.
    pub fn segments(&self) -> impl Iterator<Item = (Range<usize>, bool)> {
        let loaded = self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded.map(|header| {
            let start = self.base().wrapping_add(header.p_vaddr) as usize;
            let range = start..start.wrapping_add(header.p_memsz as usize);
            (range, header.p_flags & libc::PF_X != 0)
        })
    }

    /// Returns whether an address is in a segment.
    pub fn holds(&self, address: usize) -> bool {
        self.segments().any(|(range, _)| range.contains(&address))
    }
}
