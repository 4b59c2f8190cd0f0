#![allow(unsafe_code)]
//! An MPI library of the standard ABI, opened at run time and called as a C program calls it.
//!
//! What is measured through it includes the C entry point, as an application sees it. Any
//! library of the ABI can be opened, so that two can be compared by the same code.
//!
//! Errors inside MPI are fatal to the job (the initial error handler), so return codes are not
//! looked at in the measured calls.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// A handle of the ABI: a value of pointer size.
type Handle = usize;

/// Values of the standard ABI (MPI 5.0, Appendix A).
const COMM_WORLD: Handle = 257;
const BYTE: Handle = 583;
const DOUBLE: Handle = 532;
const SUM: Handle = 33;
const REQUEST_NULL: Handle = 384;
/// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
const STATUS_IGNORE: *mut c_void = ptr::null_mut();
const MAX_LIBRARY_VERSION_STRING: usize = 8192;

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Plain = unsafe extern "C" fn() -> c_int;
type CommInt = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
type Recv =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
type Isend =
    unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Irecv =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Waitall = unsafe extern "C" fn(c_int, *mut Handle, *mut c_void) -> c_int;
type Barrier = unsafe extern "C" fn(Handle) -> c_int;
type Allreduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
type Bcast = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle) -> c_int;

/// The calls a benchmark makes, on `MPI_COMM_WORLD`.
pub struct MpiLibrary {
    init: Init,
    finalize: Plain,
    comm_rank: CommInt,
    comm_size: CommInt,
    library_version: Version,
    send: Send,
    recv: Recv,
    isend: Isend,
    irecv: Irecv,
    waitall: Waitall,
    barrier: Barrier,
    allreduce: Allreduce,
    bcast: Bcast,
    /// Keeps the code behind the pointers mapped.
    _library: Library,
}

/// Why a library cannot be measured: where it was looked for, what the loader said, what it lacks.
#[derive(Debug)]
pub struct OpenError(pub String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// The library installed with this program: `../lib/libmpi_abi.so.1` beside its `bin` folder, or
/// in the program's own folder (a build that is not installed).
///
/// # Errors
/// Neither is there.
pub fn find_library() -> Result<PathBuf, OpenError> {
    let own = std::env::current_exe().map_err(|e| OpenError(format!("own path: {e}")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [
        folder.join("../lib/libmpi_abi.so.1"),
        folder.join("libmpi_abi.so.1"),
        folder.join("libmpi_abi.so"),
    ];
    let found = candidates.iter().find(|c| c.exists()).cloned();
    found.ok_or_else(|| {
        OpenError(format!(
            "no MPI library: neither {} nor {} is there (install it, or name one with --library)",
            candidates[0].display(),
            candidates[1].display()
        ))
    })
}

/// An error with what the loader said, which the crate keeps as its source.
fn describe(e: &libloading::Error) -> String {
    use std::error::Error;
    e.source().map_or_else(|| e.to_string(), |s| s.to_string())
}

impl MpiLibrary {
    /// Opens a library and finds every call in it.
    ///
    /// # Errors
    /// The loader's message, or the name of a call that the library lacks.
    pub fn open(path: &Path) -> Result<MpiLibrary, OpenError> {
        // SAFETY: opening runs the library's initialisers; the caller names an MPI library, which
        // is made to be loaded. It stays loaded as long as the pointers taken from it.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }
            .map_err(|e| OpenError(format!("cannot open {}: {}", path.display(), describe(&e))))?;
        /// One call of the library as a function pointer of the type wanted.
        fn find<T: Copy>(library: &Library, name: &str) -> Result<T, OpenError> {
            // SAFETY: the type is that which the MPI standard gives this function; the names and
            // types stand side by side in `open`.
            let symbol = unsafe { library.get::<T>(name.as_bytes()) };
            symbol
                .map(|s| *s)
                .map_err(|e| OpenError(format!("{name}: {}", describe(&e))))
        }
        Ok(MpiLibrary {
            init: find(&library, "MPI_Init")?,
            finalize: find(&library, "MPI_Finalize")?,
            comm_rank: find(&library, "MPI_Comm_rank")?,
            comm_size: find(&library, "MPI_Comm_size")?,
            library_version: find(&library, "MPI_Get_library_version")?,
            send: find(&library, "MPI_Send")?,
            recv: find(&library, "MPI_Recv")?,
            isend: find(&library, "MPI_Isend")?,
            irecv: find(&library, "MPI_Irecv")?,
            waitall: find(&library, "MPI_Waitall")?,
            barrier: find(&library, "MPI_Barrier")?,
            allreduce: find(&library, "MPI_Allreduce")?,
            bcast: find(&library, "MPI_Bcast")?,
            _library: library,
        })
    }

    /// `MPI_Init` without arguments.
    ///
    /// # Errors
    /// The code that came back.
    pub fn initialize(&self) -> Result<(), OpenError> {
        // SAFETY: null pointers are allowed (MPI 5.0, 11.2.1).
        match unsafe { (self.init)(ptr::null_mut(), ptr::null_mut()) } {
            0 => Ok(()),
            code => Err(OpenError(format!("MPI_Init returned {code}"))),
        }
    }

    /// `MPI_Finalize`.
    pub fn finalize(&self) {
        // SAFETY: takes no arguments; called once, after `initialize`.
        unsafe { (self.finalize)() };
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.comm_int(self.comm_rank)
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.comm_int(self.comm_size)
    }

    fn comm_int(&self, call: CommInt) -> usize {
        let mut value = 0;
        // SAFETY: a predefined communicator and a valid place for the result.
        unsafe { call(COMM_WORLD, &mut value) };
        usize::try_from(value).unwrap_or(0)
    }

    /// First line of what the library says it is.
    pub fn version(&self) -> String {
        let mut text = vec![0u8; MAX_LIBRARY_VERSION_STRING + 1];
        let mut length = 0;
        // SAFETY: the buffer has the size the standard asks for.
        unsafe { (self.library_version)(text.as_mut_ptr().cast(), &mut length) };
        text.truncate(usize::try_from(length).unwrap_or(0).min(text.len()));
        let text = String::from_utf8_lossy(&text);
        let first = text.trim_matches('\0').lines().next().unwrap_or("");
        first.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// `MPI_Send` of bytes.
    #[inline]
    pub fn send(&self, buffer: &[u8], to: usize, tag: c_int) {
        // SAFETY: the buffer is valid for its length, and the call returns when it may be reused.
        unsafe {
            (self.send)(
                buffer.as_ptr().cast(),
                buffer.len() as c_int,
                BYTE,
                to as c_int,
                tag,
                COMM_WORLD,
            )
        };
    }

    /// `MPI_Recv` of at most the buffer's bytes.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8], from: usize, tag: c_int) {
        // SAFETY: the buffer is valid for its length and not otherwise used during the call.
        unsafe {
            (self.recv)(
                buffer.as_mut_ptr().cast(),
                buffer.len() as c_int,
                BYTE,
                from as c_int,
                tag,
                COMM_WORLD,
                STATUS_IGNORE,
            )
        };
    }

    /// `window` times `MPI_Isend` of the same bytes, then `MPI_Waitall`.
    #[inline]
    pub fn send_window(&self, buffer: &[u8], to: usize, tag: c_int, requests: &mut [Handle]) {
        let count = buffer.len() as c_int;
        for request in requests.iter_mut() {
            // SAFETY: the buffer outlives the request, which `wait_all` below completes.
            unsafe {
                (self.isend)(
                    buffer.as_ptr().cast(),
                    count,
                    BYTE,
                    to as c_int,
                    tag,
                    COMM_WORLD,
                    request,
                )
            };
        }
        self.wait_all(requests);
    }

    /// `window` times `MPI_Irecv` into the same bytes, then `MPI_Waitall`. (The standard wants
    /// buffers of pending receives disjoint; benchmarks share one, as their values are unused.)
    #[inline]
    pub fn receive_window(
        &self,
        buffer: &mut [u8],
        from: usize,
        tag: c_int,
        requests: &mut [Handle],
    ) {
        let count = buffer.len() as c_int;
        let start: *mut u8 = buffer.as_mut_ptr();
        for request in requests.iter_mut() {
            // SAFETY: the buffer outlives the request, which `wait_all` below completes.
            unsafe {
                (self.irecv)(
                    start.cast(),
                    count,
                    BYTE,
                    from as c_int,
                    tag,
                    COMM_WORLD,
                    request,
                )
            };
        }
        self.wait_all(requests);
    }

    #[inline]
    fn wait_all(&self, requests: &mut [Handle]) {
        // SAFETY: `requests` are live handles, each completed exactly here.
        unsafe {
            (self.waitall)(
                requests.len() as c_int,
                requests.as_mut_ptr(),
                STATUS_IGNORE,
            )
        };
    }

    /// Room for the requests of a window.
    pub fn make_requests(&self, window: usize) -> Vec<Handle> {
        vec![REQUEST_NULL; window]
    }

    /// `MPI_Barrier`.
    #[inline]
    pub fn barrier(&self) {
        // SAFETY: a predefined communicator.
        unsafe { (self.barrier)(COMM_WORLD) };
    }

    /// `MPI_Allreduce`, sum of doubles.
    #[inline]
    pub fn allreduce(&self, from: &[f64], to: &mut [f64]) {
        let count = from.len().min(to.len()) as c_int;
        // SAFETY: both buffers hold `count` doubles and are distinct.
        unsafe {
            (self.allreduce)(
                from.as_ptr().cast(),
                to.as_mut_ptr().cast(),
                count,
                DOUBLE,
                SUM,
                COMM_WORLD,
            )
        };
    }

    /// `MPI_Bcast` of bytes from rank 0.
    pub fn broadcast(&self, buffer: &mut [u8]) {
        // SAFETY: the buffer is valid for its length and not otherwise used during the call.
        unsafe {
            (self.bcast)(
                buffer.as_mut_ptr().cast(),
                buffer.len() as c_int,
                BYTE,
                0,
                COMM_WORLD,
            )
        };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn open__of_a_file_that_is_not_there_says_so() {
        let Err(e) = MpiLibrary::open(Path::new("/nonexistent/libmpi_abi.so.1")) else {
            panic!("opened a file that is not there");
        };
        assert!(
            e.to_string().contains("/nonexistent/libmpi_abi.so.1"),
            "{e}"
        );
    }

    #[test]
    fn open__of_a_library_that_is_not_mpi_names_the_missing_call() {
        let Err(e) = MpiLibrary::open(Path::new("libc.so.6")) else {
            panic!("took the C library for MPI");
        };
        assert!(e.to_string().contains("MPI_Init"), "{e}");
    }
}
