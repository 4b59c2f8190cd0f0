//! The MPI library of the process, and the functions that this library measures.
#![allow(unsafe_code)]

use fastpath_base::code::find_object;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticPtr};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Constants of the standard ABI.
pub mod consts {
    #![allow(dead_code, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/consts.rs"));
}

/// Kind of the bytes that a function counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteKind {
    /// Data sent.
    Sent,
    /// Data moved to or from windows.
    Window,
    /// Data moved to or from files.
    File,
}

/// A function that this library measures.
#[derive(Debug)]
pub struct MeasuredFunction {
    real_name: &'static CStr,
    /// Kind of the bytes that it counts.
    pub kind: ByteKind,
    real: StaticPtr<c_void>,
}

impl MeasuredFunction {
    /// Makes the entry of a function. `real_name` is the name of the function's `PMPI_X`.
    pub const fn new(real_name: &'static CStr, kind: ByteKind) -> MeasuredFunction {
        MeasuredFunction { real_name, kind, real: StaticPtr::new(null_mut()) }
    }

    /// Returns the name, such as `MPI_Send`.
    pub fn name(&self) -> &'static str {
        self.real_name.to_str().unwrap_or_default().trim_start_matches('P')
    }

    /// Returns the address of `PMPI_X`.
    pub fn real(&self) -> *mut c_void {
        let real = self.real.load(Ordering::Relaxed);
        match real.is_null() {
            false => real,
            true => self.find_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_slow(&self) -> *mut c_void {
        let real = find_function(self.real_name);
        self.real.store(real, Ordering::Relaxed);
        real
    }
}

/// The MPI library of the process.
#[derive(Debug)]
struct MpiLibrary {
    /// Handle for `dlsym`; null, which stands for the global scope, if there is no MPI library.
    handle: *mut c_void,
    has_abi: bool,
}

// SAFETY: the handle is a number for `dlsym`, which any thread may call.
unsafe impl Send for MpiLibrary {}
// SAFETY: see `Send`.
unsafe impl Sync for MpiLibrary {}

/// Part of the file names of MPI libraries with the standard ABI (MPI 5.0, section 20.1).
const ABI_NAME: &[u8] = b"/libmpi_abi.so";

/// Finds the MPI library: the first loaded object that defines `PMPI_Init`. The search covers objects that a module of
/// Python has loaded for itself, which `RTLD_NEXT` does not see.
fn library() -> &'static MpiLibrary {
    static LIBRARY: OnceLock<MpiLibrary> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut objects: Vec<LoadedObject> = Vec::new();
        // SAFETY: `list_object` has the required type, and `objects` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(list_object), (&raw mut objects).cast()) };
        // `dlopen` takes the linker's lock, which `dl_iterate_phdr` holds while it calls `list_object`.
        let found = objects.into_iter().find_map(LoadedObject::open_mpi);
        found.unwrap_or(MpiLibrary { handle: null_mut(), has_abi: false })
    })
}

/// A shared object of the process.
#[derive(Debug)]
struct LoadedObject {
    name: CString,
    base: usize,
}

unsafe extern "C" fn list_object(
    object: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes an object that is valid during the call; `library` passes a list.
    unsafe {
        let (object, objects) = (&*object, &mut *objects.cast::<Vec<LoadedObject>>());
        // The program itself has no name.
        if !object.dlpi_name.is_null() && *object.dlpi_name != 0 {
            let name = CStr::from_ptr(object.dlpi_name).to_owned();
            objects.push(LoadedObject { name, base: object.dlpi_addr as usize });
        }
    }
    0
}

impl LoadedObject {
    /// Returns the library if this object defines `PMPI_Init`.
    fn open_mpi(self) -> Option<MpiLibrary> {
        // SAFETY: name and symbol end in a NUL.
        unsafe {
            let handle = libc::dlopen(self.name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return None;
            }
            let function = libc::dlsym(handle, c"PMPI_Init".as_ptr());
            // `dlsym` also finds functions of objects that this one needs.
            let object = find_object(function.addr());
            if object.is_none_or(|object| object.dli_fbase.addr() != self.base) {
                libc::dlclose(handle);
                return None;
            }
            let mut parts = self.name.to_bytes().windows(ABI_NAME.len());
            Some(MpiLibrary { handle, has_abi: parts.any(|part| part == ABI_NAME) })
        }
    }
}

/// Returns whether the process uses an MPI with the standard ABI. Calls of any other MPI are passed on unmeasured.
pub fn has_abi() -> bool {
    library().has_abi
}

/// Returns the address of a function of the MPI library.
pub fn find_function(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a NUL; a null handle stands for the global scope.
    let found = unsafe { libc::dlsym(library().handle, name.as_ptr()) };
    if found.is_null() {
        fastpath_base::tell!(
            "fastpath: FASTPATH_PROFILE: the program's MPI library has no {}; run without \
             FASTPATH_PROFILE",
            name.to_string_lossy()
        );
        std::process::abort();
    }
    found
}
