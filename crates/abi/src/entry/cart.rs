//! Cartesian topologies (MPI 5.0, section 8.5).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{read_array, store};
use core::ffi::c_int;
use fastpath_mpi::comm_creation::topology::{create_cart, create_sub, map_cart};
use fastpath_mpi::common::consts::{MPI_ERR_ARG, MPI_ERR_DIMS, MPI_ERR_RANK};
use fastpath_mpi::objects::comm::Comm;
use fastpath_mpi::objects::topology::create_dims;
use fastpath_mpi::{Error, Process, Result};

pub fn topo_test(p: &Process, comm: usize) -> Result<c_int> {
    Ok(p.comm(comm)?.topology_kind())
}

pub unsafe fn dims_create(
    _p: &Process, nnodes: c_int, ndims: c_int, dims: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let mut found = unsafe { read_dims(dims, ndims) }?.to_vec();
    create_dims(nnodes, &mut found)?;
    // SAFETY: ARGUMENTS.
    unsafe { write_array(&found, dims, ndims) }
}

pub unsafe fn cart_create(
    p: &Process, comm_old: usize, ndims: c_int, dims: *const c_int, periods: *const c_int,
    _reorder: c_int,
) -> Result<usize> {
    let comm = p.comm(comm_old)?;
    // SAFETY: ARGUMENTS.
    unsafe { create_cart(p, &comm, read_dims(dims, ndims)?, &read_flags(periods, ndims)?) }
}

pub unsafe fn cart_map(
    p: &Process, comm: usize, ndims: c_int, dims: *const c_int, periods: *const c_int,
) -> Result<c_int> {
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS.
    unsafe { map_cart(&comm, read_dims(dims, ndims)?, &read_flags(periods, ndims)?) }
}

pub fn cartdim_get(p: &Process, comm: usize) -> Result<c_int> {
    let topology = p.comm(comm)?.find_topology()?;
    Ok(topology.cart()?.dims().len() as c_int)
}

pub unsafe fn cart_get(
    p: &Process, comm: usize, maxdims: c_int, dims: *mut c_int, periods: *mut c_int,
    coords: *mut c_int,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let topology = comm.find_topology()?;
    let cart = topology.cart()?;
    let flags: Vec<c_int> = cart.periods().iter().map(|&periodic| periodic.into()).collect();
    // SAFETY: ARGUMENTS.
    unsafe {
        write_array(cart.dims(), dims, maxdims)?;
        write_array(&flags, periods, maxdims)?;
        write_array(&cart.coords(comm.rank), coords, maxdims)
    }
}

pub unsafe fn cart_coords(
    p: &Process, comm: usize, rank: c_int, maxdims: c_int, coords: *mut c_int,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let topology = comm.find_topology()?;
    let found = topology.cart()?.coords(check_rank(&comm, rank)?);
    // SAFETY: ARGUMENTS.
    unsafe { write_array(&found, coords, maxdims) }
}

pub unsafe fn cart_rank(p: &Process, comm: usize, coords: *const c_int) -> Result<c_int> {
    let topology = p.comm(comm)?.find_topology()?;
    let cart = topology.cart()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let found = cart.rank(read_array(coords, cart.dims().len() as c_int)?)?;
        Ok(found as c_int)
    }
}

pub unsafe fn cart_shift(
    p: &Process, comm: usize, direction: c_int, disp: c_int, rank_source: *mut c_int,
    rank_dest: *mut c_int,
) -> Result<()> {
    let comm = p.comm(comm)?;
    let (source, dest) = comm.find_topology()?.cart()?.shift(comm.rank, direction, disp)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(rank_source, source)?;
        store(rank_dest, dest)
    }
}

pub unsafe fn cart_sub(p: &Process, comm: usize, remain_dims: *const c_int) -> Result<usize> {
    let comm = p.comm(comm)?;
    let topology = comm.find_topology()?;
    let cart = topology.cart()?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let remain = read_flags(remain_dims, cart.dims().len() as c_int)?;
        create_sub(p, &comm, cart, &remain)
    }
}

pub(crate) fn check_rank(comm: &Comm, rank: c_int) -> Result<u32> {
    u32::try_from(rank).ok().filter(|&rank| rank < comm.size()).ok_or_else(|| {
        let last = comm.size() - 1;
        let message =
            format!("rank {rank} is not in the communicator, which has ranks 0 to {last}");
        Error::new(MPI_ERR_RANK, message)
    })
}

unsafe fn read_dims<'a>(dims: *const c_int, ndims: c_int) -> Result<&'a [c_int]> {
    if ndims < 0 {
        return Err(Error::new(
            MPI_ERR_DIMS,
            format!("the number of dimensions is {ndims}: pass 0 or more"),
        ));
    }
    // SAFETY: ARGUMENTS.
    unsafe { read_array(dims, ndims) }
}

unsafe fn read_flags(flags: *const c_int, count: c_int) -> Result<Vec<bool>> {
    // SAFETY: ARGUMENTS.
    Ok(unsafe { read_array(flags, count) }?.iter().map(|&flag| flag != 0).collect())
}

/// Fills a caller's array of `room` elements. Errors: `MPI_ERR_ARG` if the array is too small for all values.
///
/// # Safety
/// `to` is null or has `room` elements.
pub(crate) unsafe fn write_array(values: &[c_int], to: *mut c_int, room: c_int) -> Result<()> {
    if i64::from(room) < values.len() as i64 {
        let message = format!(
            "the array for the result has room for {room} elements, but {} are needed: pass a \
             larger array",
            values.len()
        );
        return Err(Error::new(MPI_ERR_ARG, message));
    }
    if values.is_empty() {
        return Ok(());
    }
    if to.is_null() {
        return Err(Error::new(MPI_ERR_ARG, "the array for the result is NULL: pass an array"));
    }
    // SAFETY: `to` is not null, and so has `room` elements by this function's contract.
    unsafe { to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    Ok(())
}
