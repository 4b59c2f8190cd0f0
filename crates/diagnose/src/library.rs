#![allow(unsafe_code)]
//! Access to the installed MPI library, to read its version.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

const MAX_LIBRARY_VERSION_STRING: usize = 8192;

type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// Finds the library installed with this program: `../lib/libmpi_abi.so.1` beside its `bin` folder, or in the program's
/// own folder (an uninstalled build).
pub fn find_library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [
        folder.join("../lib/libmpi_abi.so.1"),
        folder.join("libmpi_abi.so.1"),
        folder.join("libmpi_abi.so"),
    ];
    let found = candidates.iter().find(|c| c.exists()).cloned();
    found.with_context(|| {
        format!(
            "no MPI library: neither {} nor {} exists; run `make install`",
            candidates[0].display(),
            candidates[1].display()
        )
    })
}

/// Returns the loader's message, which is the source of the error; without a source, the error's own text.
fn describe(e: &libloading::Error) -> String {
    use std::error::Error;
    e.source().map_or_else(|| e.to_string(), |s| s.to_string())
}

/// Opens an MPI library. The error has the loader's message.
pub fn open_library(path: &Path) -> Result<Library> {
    // SAFETY: opening runs the library's initialisers. The caller names an MPI library, which is meant to be loaded.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|e| anyhow!("cannot open {}: {}", path.display(), describe(&e)))
}

/// Finds a function of a library.
///
/// # Errors
/// The library lacks it.
///
/// # Safety
/// The function has that type, and is called while the library is open.
pub unsafe fn find<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: the function has the type `T`, as the caller promises.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    Ok(*symbol.map_err(|e| anyhow!("{name}: {}", describe(&e)))?)
}

/// First line of a library's version string. Fails if the file cannot be opened or is no MPI library.
pub fn ask_version(path: &Path) -> Result<String> {
    let library = open_library(path)?;
    let mut text = vec![0u8; MAX_LIBRARY_VERSION_STRING + 1];
    let mut length = 0;
    // SAFETY: the type is that of this function in the MPI standard, and the buffer has the required size.
    unsafe {
        let version = find::<Version>(&library, "MPI_Get_library_version")?;
        version(text.as_mut_ptr().cast(), &mut length);
    }
    text.truncate(usize::try_from(length).unwrap_or(0).min(text.len()));
    let text = String::from_utf8_lossy(&text);
    let first = text.trim_matches('\0').lines().next().unwrap_or("");
    Ok(first.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn open__of_a_file_that_is_not_there_says_so() {
        let Err(e) = ask_version(Path::new("/proc/none/libmpi_abi.so.1")) else {
            panic!("opened a file that is not there");
        };
        assert!(e.to_string().contains("/proc/none/libmpi_abi.so.1"), "{e}");
    }

    #[test]
    fn open__of_a_library_that_is_not_mpi_names_the_missing_call() {
        let Err(e) = ask_version(Path::new("libc.so.6")) else {
            panic!("took the C library for MPI");
        };
        assert!(e.to_string().contains("MPI_Get_library_version"), "{e}");
    }
}
