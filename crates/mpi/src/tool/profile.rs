//! Profiles (`FASTPATH_PROFILE`): the profiling library writes them; this library only reports that it is missing.
#![allow(unsafe_code)]

use fastpath_base::code::own_file;
use fastpath_base::config::{Config, PROFILE_LIBRARY};
use fastpath_base::tell;
use std::path::{Path, PathBuf};

/// Prints on rank 0 how to load the profiling library, if a profile is requested and the library is not loaded.
/// `mpiexec` loads it; other launchers do not.
pub(crate) fn warn_if_missing(config: &Config, rank: usize) {
    // SAFETY: the name ends in a NUL.
    let symbol = || unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fastpath_profile".as_ptr()) };
    if rank == 0 && config.profile().is_some() && symbol().is_null() {
        let library = find_folder().join(PROFILE_LIBRARY);
        tell!(
            "fastpath: no profile is written for FASTPATH_PROFILE, because the profiling library \
             is not loaded: start with Fastpath's mpiexec, or set LD_PRELOAD={}",
            library.display()
        );
    }
}

/// Returns the folder of this library.
fn find_folder() -> PathBuf {
    let path = own_file().unwrap_or(Path::new(""));
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    path.parent().map(Path::to_owned).unwrap_or_default()
}
