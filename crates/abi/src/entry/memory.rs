//! Memory allocation (MPI 5.0, section 9.2).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::store;
use core::ffi::{c_int, c_void};
use fastpath_base::device;
use fastpath_mpi::process::memory;
use fastpath_mpi::{Process, Result};

pub unsafe fn alloc_mem(p: &Process, size: isize, info: usize, baseptr: *mut c_void) -> Result<()> {
    let to: *mut *mut c_void = baseptr.cast();
    // SAFETY: ARGUMENTS.
    unsafe {
        store(to, core::ptr::null_mut())?;
        store(to, memory::allocate(p, size as i64, info)?.as_ptr().cast())
    }
}

/// # Safety
/// The program no longer uses the memory.
pub unsafe fn free_mem(p: &Process, base: *mut c_void) -> Result<()> {
    memory::free(p, base.addr())
}

/// Returns 1 if the process has loaded the CUDA driver and calls accept device memory, otherwise 0.
pub fn query_cuda_support() -> c_int {
    device::has_cuda().into()
}
