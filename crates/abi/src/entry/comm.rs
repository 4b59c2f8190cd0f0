//! Communicators (MPI 5.0, sections 7.4 and 7.8).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::group::insert_group;
use super::info::insert_info;
use super::{answer, load, read_text, store, store_text};
use core::ffi::{c_char, c_int};
use fastpath_mpi::comm_creation::{create, disconnect_comm, free_comm, inter, split_type};
use fastpath_mpi::common::consts::{MPI_COMM_NULL, MPI_MAX_OBJECT_NAME};
use fastpath_mpi::objects::comm::hints;
use fastpath_mpi::objects::hot;
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::p2p::request::completed_request;
use fastpath_mpi::{Process, Result};

/// Immediate path of `MPI_Comm_size`.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn comm_size_quick(comm: usize, size: *mut c_int) -> bool {
    match hot::rank_and_size(comm) {
        // SAFETY: ARGUMENTS.
        Some((_, ranks)) => unsafe { answer(size, ranks) },
        None => false,
    }
}

pub fn comm_size(p: &Process, comm: usize) -> Result<c_int> {
    Ok(p.comm(comm)?.size() as c_int)
}

/// Immediate path of `MPI_Comm_rank`.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn comm_rank_quick(comm: usize, rank: *mut c_int) -> bool {
    match hot::rank_and_size(comm) {
        // SAFETY: ARGUMENTS.
        Some((own, _)) => unsafe { answer(rank, own) },
        None => false,
    }
}

pub fn comm_rank(p: &Process, comm: usize) -> Result<c_int> {
    Ok(p.comm(comm)?.rank as c_int)
}

pub fn comm_remote_size(p: &Process, comm: usize) -> Result<c_int> {
    Ok(p.comm(comm)?.remote()?.size() as c_int)
}

pub fn comm_test_inter(p: &Process, comm: usize) -> Result<c_int> {
    Ok(p.comm(comm)?.is_inter().into())
}

pub fn comm_compare(p: &Process, comm1: usize, comm2: usize) -> Result<c_int> {
    Ok(p.comm(comm1)?.compare(&*p.comm(comm2)?))
}

pub fn comm_group(p: &Process, comm: usize) -> Result<usize> {
    insert_group(p, p.comm(comm)?.group.clone())
}

pub fn comm_remote_group(p: &Process, comm: usize) -> Result<usize> {
    insert_group(p, p.comm(comm)?.remote()?.clone())
}

pub fn comm_dup(p: &Process, comm: usize) -> Result<usize> {
    create::duplicate(p, &*p.comm(comm)?)
}

pub fn comm_dup_with_info(p: &Process, comm: usize, info: usize) -> Result<usize> {
    create::duplicate_with(p, &*p.comm(comm)?, find_hints(&p.infos, info)?)
}

/// Duplicates a communicator, without messages and at once while the members have spare contexts. Several calls without
/// an `MPI_Comm_dup` in between use up these contexts. The next call then blocks until rank 0 of the communicator has
/// made that call too.
pub unsafe fn comm_idup(
    p: &Process, comm: usize, newcomm: *mut usize, request: *mut usize,
) -> Result<()> {
    let hints = p.comm(comm)?.hints.borrow().clone();
    // SAFETY: ARGUMENTS.
    unsafe { idup(p, comm, hints, newcomm, request) }
}

/// Duplicates a communicator with the hints of `info`; see [`comm_idup`].
pub unsafe fn comm_idup_with_info(
    p: &Process, comm: usize, info: usize, newcomm: *mut usize, request: *mut usize,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { idup(p, comm, find_hints(&p.infos, info)?, newcomm, request) }
}

/// Duplicates a communicator, and stores it with a completed request.
unsafe fn idup(
    p: &Process, comm: usize, hints: Vec<(String, String)>, newcomm: *mut usize,
    request: *mut usize,
) -> Result<()> {
    let made = create::duplicate_early(p, &*p.comm(comm)?, hints)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(newcomm, made)?;
        store(request, completed_request(p)?)
    }
}

pub fn comm_create(p: &Process, comm: usize, group: usize) -> Result<usize> {
    create::create(p, &*p.comm(comm)?, &p.group(group)?)
}

pub fn comm_create_group(p: &Process, comm: usize, group: usize, tag: c_int) -> Result<usize> {
    create::create_group(p, &*p.comm(comm)?, &p.group(group)?, tag)
}

pub fn comm_split(p: &Process, comm: usize, color: c_int, key: c_int) -> Result<usize> {
    create::split(p, &*p.comm(comm)?, color, key)
}

pub fn comm_split_type(
    p: &Process, comm: usize, split_type: c_int, key: c_int, info: usize,
) -> Result<usize> {
    split_type::split_type(p, &*p.comm(comm)?, split_type, key, &find_hints(&p.infos, info)?)
}

pub unsafe fn comm_free(p: &Process, comm: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free_comm(p, load(comm)?)?;
        store(comm, MPI_COMM_NULL)
    }
}

pub unsafe fn comm_disconnect(p: &Process, comm: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        disconnect_comm(p, load(comm)?)?;
        store(comm, MPI_COMM_NULL)
    }
}

pub unsafe fn comm_set_name(p: &Process, comm: usize, comm_name: *const c_char) -> Result<()> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    let name = unsafe { read_text("comm_name", comm_name, MPI_MAX_OBJECT_NAME as usize - 1) }?;
    comm.set_name(name);
    Ok(())
}

pub unsafe fn comm_get_name(
    p: &Process, comm: usize, comm_name: *mut c_char, resultlen: *mut c_int,
) -> Result<()> {
    let name = match comm {
        MPI_COMM_NULL => "MPI_COMM_NULL".to_string(),
        _ => p.comm(comm)?.name.borrow().clone(),
    };
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&name, comm_name, MPI_MAX_OBJECT_NAME as usize, resultlen) }
}

pub fn comm_set_info(p: &Process, comm: usize, info: usize) -> Result<()> {
    let comm = p.comm(comm)?;
    comm.set_hints(find_hints(&p.infos, info)?);
    Ok(())
}

pub fn comm_get_info(p: &Process, comm: usize) -> Result<usize> {
    let info = hints::describe(&p.comm(comm)?.hints.borrow());
    insert_info(p, info)
}

pub fn intercomm_create(
    p: &Process, local_comm: usize, local_leader: c_int, peer_comm: usize, remote_leader: c_int,
    tag: c_int,
) -> Result<usize> {
    let local = p.comm(local_comm)?;
    inter::create_inter(p, &local, local_leader, peer_comm, remote_leader, tag)
}

pub fn intercomm_merge(p: &Process, intercomm: usize, high: c_int) -> Result<usize> {
    inter::merge(p, &*p.comm(intercomm)?, high != 0)
}
