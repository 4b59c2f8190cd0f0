//! Environment: versions, time, and the processor's name (MPI 5.0, sections 9.1 and 9.6).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{store, store_text};
use core::ffi::{c_char, c_int};
use fastpath_base::clock;
use fastpath_mpi::comm_creation::split_type::list_resources;
use fastpath_mpi::common::consts::{
    MPI_ABI_SUBVERSION, MPI_ABI_VERSION, MPI_ERR_OTHER, MPI_INFO_NULL,
    MPI_MAX_LIBRARY_VERSION_STRING, MPI_MAX_PROCESSOR_NAME, MPI_SUBVERSION, MPI_VERSION,
};
use fastpath_mpi::objects::info::Info;
use fastpath_mpi::{Error, Process, Result};

pub unsafe fn get_version(version: *mut c_int, subversion: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        store(version, MPI_VERSION)?;
        store(subversion, MPI_SUBVERSION)
    }
}

pub unsafe fn get_library_version(version: *mut c_char, resultlen: *mut c_int) -> Result<()> {
    let text = format!(
        "Fastpath {}, MPI {MPI_VERSION}.{MPI_SUBVERSION}, ABI \
         {MPI_ABI_VERSION}.{MPI_ABI_SUBVERSION}",
        env!("CARGO_PKG_VERSION")
    );
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&text, version, MPI_MAX_LIBRARY_VERSION_STRING as usize, resultlen) }
}

/// Stores the kernel's host name as it is, without name resolution.
pub unsafe fn get_processor_name(name: *mut c_char, resultlen: *mut c_int) -> Result<()> {
    let mut host = [0_u8; MPI_MAX_PROCESSOR_NAME as usize];
    // SAFETY: the buffer has the passed length plus one byte, which stays 0.
    if unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) } != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(Error::new(MPI_ERR_OTHER, format!("gethostname: {cause}")));
    }
    let length = host.iter().position(|byte| *byte == 0).unwrap_or(host.len() - 1);
    let text = String::from_utf8_lossy(&host[..length]);
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&text, name, MPI_MAX_PROCESSOR_NAME as usize, resultlen) }
}

/// Stores the hardware kinds by which `MPI_Comm_split_type` can split. The value of each kind shows whether the process
/// is restricted to one instance of that kind.
pub unsafe fn get_hw_resource_info(p: &Process, hw_info: *mut usize) -> Result<()> {
    let made = Info::from_pairs(list_resources(p));
    // SAFETY: ARGUMENTS.
    unsafe {
        store(hw_info, MPI_INFO_NULL)?;
        store(hw_info, p.infos.publish(made)?)
    }
}

/// Returns the monotonic clock in seconds, which counts from the start of the host.
pub fn wtime() -> f64 {
    clock::now_ns() as f64 * 1e-9
}

/// Returns the resolution of the monotonic clock, in seconds.
pub fn wtick() -> f64 {
    clock::resolution_ns() as f64 * 1e-9
}

/// Does nothing, as the standard requires. Profiling libraries replace this function.
pub fn pcontrol(_level: c_int) -> c_int {
    0
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn time__passes_in_steps_of_the_tick() {
        let start = wtime();
        let end = loop {
            let now = wtime();
            if now != start {
                break now;
            }
        };
        assert!(end > start);
        assert!(wtick() > 0.0 && wtick() < 1e-2);
    }

    #[test]
    fn library_version__names_this_library() {
        let mut text = [0 as c_char; MPI_MAX_LIBRARY_VERSION_STRING as usize];
        let mut length = 0;
        // SAFETY: the buffer has the length that the standard requires.
        unsafe { get_library_version(text.as_mut_ptr(), &mut length) }.unwrap();
        // SAFETY: the call has ended the text with a NUL.
        let text = unsafe { core::ffi::CStr::from_ptr(text.as_ptr()) }.to_str().unwrap();
        assert!(text.starts_with("Fastpath "));
        assert_eq!(text.len(), length as usize);
    }

    #[test]
    fn processor_name__is_the_kernels() {
        let mut text = [1 as c_char; MPI_MAX_PROCESSOR_NAME as usize];
        let mut length = -1;
        // SAFETY: the buffer has the length that the standard requires.
        unsafe { get_processor_name(text.as_mut_ptr(), &mut length) }.unwrap();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        // SAFETY: the call has ended the text with a NUL.
        let text = unsafe { core::ffi::CStr::from_ptr(text.as_ptr()) }.to_str().unwrap();
        assert_eq!(text, kernel.trim_end());
        assert_eq!(text.len(), length as usize);
    }
}
