#![allow(unsafe_code)]
//! The installed MPI library, opened to ask what it says it is.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

const MAX_LIBRARY_VERSION_STRING: usize = 8192;

type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// A library whose version can be asked for.
pub struct MpiLibrary {
    library_version: Version,
    /// Keeps the code behind the pointer mapped.
    _library: Library,
}

/// Why a library cannot be asked: where it was looked for, what the loader said, what it lacks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

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
            "no MPI library: neither {} nor {} is there (install it)",
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
    /// Opens a library and finds the call.
    ///
    /// # Errors
    /// The loader's message, or the name of the call that the library lacks.
    pub fn open(path: &Path) -> Result<MpiLibrary, OpenError> {
        // SAFETY: opening runs the library's initialisers; the caller names an MPI library, which
        // is made to be loaded. It stays loaded as long as the pointer taken from it.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| OpenError(format!("cannot open {}: {}", path.display(), describe(&e))))?;
        let name = "MPI_Get_library_version";
        // SAFETY: the type is that which the MPI standard gives this function.
        let symbol = unsafe { library.get::<Version>(name.as_bytes()) };
        let library_version =
            *symbol.map_err(|e| OpenError(format!("{name}: {}", describe(&e))))?;
        Ok(MpiLibrary {
            library_version,
            _library: library,
        })
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
        assert!(e.to_string().contains("MPI_Get_library_version"), "{e}");
    }
}
