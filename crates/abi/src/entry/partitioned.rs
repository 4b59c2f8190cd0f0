//! Partitioned communication (MPI 5.0, chapter 4).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::arguments::Sent;
use super::read_array;
use core::ffi::c_int;
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::p2p::partitioned::{has_arrived, make_recv, make_send, mark_ready};
use fastpath_mpi::{Process, Result};

/// `MPI_Psend_init`
///
/// # Safety
/// The standard's.
pub unsafe fn psend_init(
    p: &Process, message: Sent, partitions: c_int, info: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    unsafe { make_send(p, message.into(), partitions) }
}

/// `MPI_Precv_init`; the standard calls the source `dest` here.
///
/// # Safety
/// The standard's.
pub unsafe fn precv_init(
    p: &Process, message: Sent, partitions: c_int, info: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    unsafe { make_recv(p, message.into(), partitions) }
}

/// `MPI_Pready`
pub fn pready(p: &Process, partition: c_int, request: usize) -> Result<()> {
    mark_ready(p, request, partition, partition)
}

/// `MPI_Pready_range`
pub fn pready_range(p: &Process, low: c_int, high: c_int, request: usize) -> Result<()> {
    mark_ready(p, request, low, high)
}

/// `MPI_Pready_list`
///
/// # Safety
/// The array has `length` elements.
pub unsafe fn pready_list(
    p: &Process, length: c_int, array_of_partitions: *const c_int, request: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let partitions = unsafe { read_array(array_of_partitions, length) }?;
    partitions.iter().try_for_each(|&partition| mark_ready(p, request, partition, partition))
}

/// `MPI_Parrived`
pub fn parrived(p: &Process, request: usize, partition: c_int) -> Result<c_int> {
    Ok(has_arrived(p, request, partition)?.into())
}
