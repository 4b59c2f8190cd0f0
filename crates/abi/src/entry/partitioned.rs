//! Partitioned communication (MPI 5.0, chapter 4).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::arguments::SendArguments;
use super::read_array;
use core::ffi::c_int;
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::p2p::partitioned::{has_arrived, make_recv, make_send, mark_ready};
use fastpath_mpi::{Process, Result};

pub unsafe fn psend_init(
    p: &Process, message: SendArguments, partitions: c_int, info: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    unsafe { make_send(p, message.into(), partitions) }
}

/// Makes a partitioned receive. The standard names its source argument `dest`.
pub unsafe fn precv_init(
    p: &Process, message: SendArguments, partitions: c_int, info: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    unsafe { make_recv(p, message.into(), partitions) }
}

pub fn pready(p: &Process, partition: c_int, request: usize) -> Result<()> {
    mark_ready(p, request, partition, partition)
}

pub fn pready_range(p: &Process, low: c_int, high: c_int, request: usize) -> Result<()> {
    mark_ready(p, request, low, high)
}

pub unsafe fn pready_list(
    p: &Process, length: c_int, array_of_partitions: *const c_int, request: usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let partitions = unsafe { read_array(array_of_partitions, length) }?;
    partitions.iter().try_for_each(|&partition| mark_ready(p, request, partition, partition))
}

pub fn parrived(p: &Process, request: usize, partition: c_int) -> Result<c_int> {
    Ok(has_arrived(p, request, partition)?.into())
}
