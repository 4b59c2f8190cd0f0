//! Construction, commit and release of datatypes (MPI 5.0, section 5.1).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Count, Width, load, read_counts, store};
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::error::NOT_TO_BE_FREED;
use fastpath_mpi::objects::attribute;
use fastpath_mpi::objects::datatype::{self, Datatype, DistributedArray};
use fastpath_mpi::{Error, Process, Result, process};
use std::rc::Rc;

fn form_of<C: Count>() -> Width {
    if C::LARGE { Width::Large } else { Width::Small }
}

/// Inserts a datatype into the table and, if it is suitable, into the immediate path's table.
pub(crate) fn insert(p: &Process, datatype: Datatype) -> Result<usize> {
    let size = datatype.immediate_size();
    let handle = p.types.publish(datatype)?;
    if let Some(size) = size {
        p.hot_type_set(handle, size);
    }
    Ok(handle)
}

/// Deletes the attributes of a datatype, then removes it from the table.
pub(crate) fn remove(p: &Process, handle: usize, datatype: &Datatype) -> Result<()> {
    attribute::delete_attributes(p, datatype.holder(handle))?;
    p.hot_type_clear(handle);
    datatype.free_handle(handle, process::remove_datatype);
    Ok(())
}

pub fn type_contiguous(p: &Process, width: Width, count: i64, oldtype: usize) -> Result<usize> {
    insert(p, Datatype::contiguous(count, &p.datatype(oldtype)?, width)?)
}

pub fn type_vector(
    p: &Process, width: Width, count: i64, blocklength: i64, stride: i64, oldtype: usize,
) -> Result<usize> {
    let made = Datatype::vector(count, blocklength, stride, &p.datatype(oldtype)?, width);
    insert(p, made?)
}

pub fn type_create_hvector(
    p: &Process, width: Width, count: i64, blocklength: i64, stride: i64, oldtype: usize,
) -> Result<usize> {
    let made = Datatype::hvector(count, blocklength, stride, &p.datatype(oldtype)?, width);
    insert(p, made?)
}

/// Makes a datatype of blocks and inserts it into the table.
unsafe fn insert_blocks<C: Count, D: Count>(
    p: &Process, count: i64, lengths: *const C, displacements: *const D, oldtype: usize,
    make: impl FnOnce(&[i64], &[i64], &Rc<Datatype>, Width) -> datatype::Result<Datatype>,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    let (lengths, displacements) = unsafe {
        (
            read_counts("array_of_blocklengths", lengths, count)?,
            read_counts("array_of_displacements", displacements, count)?,
        )
    };
    insert(p, make(&lengths, &displacements, &p.datatype(oldtype)?, form_of::<C>())?)
}

/// Makes a datatype of equal blocks and inserts it into the table.
unsafe fn insert_equal_blocks<D: Count>(
    p: &Process, count: i64, displacements: *const D, oldtype: usize,
    make: impl FnOnce(&[i64], &Rc<Datatype>, Width) -> datatype::Result<Datatype>,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    let displacements = unsafe { read_counts("array_of_displacements", displacements, count)? };
    insert(p, make(&displacements, &p.datatype(oldtype)?, form_of::<D>())?)
}

pub unsafe fn type_indexed<C: Count>(
    p: &Process, count: i64, array_of_blocklengths: *const C, array_of_displacements: *const C,
    oldtype: usize,
) -> Result<usize> {
    let (lengths, displacements) = (array_of_blocklengths, array_of_displacements);
    // SAFETY: ARGUMENTS.
    unsafe { insert_blocks(p, count, lengths, displacements, oldtype, Datatype::indexed) }
}

pub unsafe fn type_create_hindexed<C: Count, D: Count>(
    p: &Process, count: i64, array_of_blocklengths: *const C, array_of_displacements: *const D,
    oldtype: usize,
) -> Result<usize> {
    let (lengths, displacements) = (array_of_blocklengths, array_of_displacements);
    // SAFETY: ARGUMENTS.
    unsafe { insert_blocks(p, count, lengths, displacements, oldtype, Datatype::hindexed) }
}

pub unsafe fn type_create_indexed_block<C: Count>(
    p: &Process, count: i64, blocklength: i64, array_of_displacements: *const C, oldtype: usize,
) -> Result<usize> {
    let make = |at: &[i64], old: &_, form| Datatype::indexed_block(blocklength, at, old, form);
    // SAFETY: ARGUMENTS.
    unsafe { insert_equal_blocks(p, count, array_of_displacements, oldtype, make) }
}

pub unsafe fn type_create_hindexed_block<D: Count>(
    p: &Process, count: i64, blocklength: i64, array_of_displacements: *const D, oldtype: usize,
) -> Result<usize> {
    let make = |at: &[i64], old: &_, form| Datatype::hindexed_block(blocklength, at, old, form);
    // SAFETY: ARGUMENTS.
    unsafe { insert_equal_blocks(p, count, array_of_displacements, oldtype, make) }
}

pub unsafe fn type_create_struct<C: Count, D: Count>(
    p: &Process, count: i64, array_of_blocklengths: *const C, array_of_displacements: *const D,
    array_of_types: *const usize,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let lengths = read_counts("array_of_blocklengths", array_of_blocklengths, count)?;
        let displacements = read_counts("array_of_displacements", array_of_displacements, count)?;
        if array_of_types.is_null() && count > 0 {
            return Err(Error::new(MPI_ERR_ARG, "array_of_types is NULL: pass an array"));
        }
        let types = (0..lengths.len()).map(|i| p.datatype(array_of_types.add(i).read()));
        let types = types.collect::<Result<Vec<Rc<Datatype>>>>()?;
        insert(p, Datatype::structure(&lengths, &displacements, types, form_of::<C>())?)
    }
}

pub unsafe fn type_create_subarray<C: Count>(
    p: &Process, ndims: c_int, array_of_sizes: *const C, array_of_subsizes: *const C,
    array_of_starts: *const C, order: c_int, oldtype: usize,
) -> Result<usize> {
    let ndims = check_dimensions(ndims)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let sizes = read_counts("array_of_sizes", array_of_sizes, ndims)?;
        let subsizes = read_counts("array_of_subsizes", array_of_subsizes, ndims)?;
        let starts = read_counts("array_of_starts", array_of_starts, ndims)?;
        let old = p.datatype(oldtype)?;
        insert(p, Datatype::subarray(&sizes, &subsizes, &starts, order, &old, form_of::<C>())?)
    }
}

pub unsafe fn type_create_darray<C: Count>(
    p: &Process, size: c_int, rank: c_int, ndims: c_int, array_of_gsizes: *const C,
    array_of_distribs: *const c_int, array_of_dargs: *const c_int, array_of_psizes: *const c_int,
    order: c_int, oldtype: usize,
) -> Result<usize> {
    let ndims = check_dimensions(ndims)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let array = DistributedArray {
            size: size.into(),
            rank: rank.into(),
            gsizes: &read_counts("array_of_gsizes", array_of_gsizes, ndims)?,
            distribs: &read_counts("array_of_distribs", array_of_distribs, ndims)?,
            dargs: &read_counts("array_of_dargs", array_of_dargs, ndims)?,
            psizes: &read_counts("array_of_psizes", array_of_psizes, ndims)?,
            order,
        };
        insert(p, Datatype::darray(&array, &p.datatype(oldtype)?, form_of::<C>())?)
    }
}

fn check_dimensions(ndims: c_int) -> Result<i64> {
    match ndims {
        1.. => Ok(ndims.into()),
        _ => Err(Error::new(MPI_ERR_ARG, format!("ndims is {ndims}: pass 1 or more"))),
    }
}

pub fn type_create_resized(
    p: &Process, width: Width, oldtype: usize, lb: i64, extent: i64,
) -> Result<usize> {
    insert(p, Datatype::resized(&p.datatype(oldtype)?, lb, extent, width)?)
}

/// Copies the datatype, and its attributes by the user's copy functions.
pub fn type_dup(p: &Process, oldtype: usize) -> Result<usize> {
    let old = p.datatype(oldtype)?;
    let handle = insert(p, Datatype::duplicate(&old))?;
    let new = p.datatype(handle)?;
    let copied = attribute::copy_attributes(p, old.holder(oldtype), new.holder(handle).attributes);
    if copied.is_err() {
        // Ignore an error of the removal, because the error of the copy functions is reported.
        let _ = remove(p, handle, &new);
    }
    copied.map(|()| handle)
}

/// Returns the datatype's handle, which is the same for equal arguments.
pub fn type_create_f90_real(p: &Process, precision: c_int, range: c_int) -> Result<usize> {
    find_or_insert(p, Datatype::fortran_real(precision, range, false)?)
}

/// Returns the datatype's handle, which is the same for equal arguments.
pub fn type_create_f90_complex(p: &Process, precision: c_int, range: c_int) -> Result<usize> {
    find_or_insert(p, Datatype::fortran_real(precision, range, true)?)
}

/// Returns the datatype's handle, which is the same for equal arguments.
pub fn type_create_f90_integer(p: &Process, range: c_int) -> Result<usize> {
    find_or_insert(p, Datatype::fortran_integer(range)?)
}

fn find_or_insert(p: &Process, made: Datatype) -> Result<usize> {
    let is_same = |handle: &usize| {
        let other = p.types.get(*handle);
        other.is_some_and(|other| other.is_same_kind(&made))
    };
    match p.types.handles().into_iter().find(is_same) {
        Some(handle) => Ok(handle),
        None => insert(p, made),
    }
}

pub unsafe fn type_commit(p: &Process, datatype: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let handle = unsafe { load(datatype) }?;
    let object = p.datatype(handle)?;
    object.commit();
    if let Some(size) = object.immediate_size() {
        p.hot_type_set(handle, size);
    }
    Ok(())
}

/// Frees the handle and sets `datatype` to `MPI_DATATYPE_NULL`. Objects that use the datatype keep it alive.
pub unsafe fn type_free(p: &Process, datatype: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let handle = unsafe { load(datatype) }?;
    let object = p.datatype(handle)?;
    if object.is_predefined() {
        let text = format!("{} is predefined and cannot be freed", object.name());
        return Err(Error::new(MPI_ERR_TYPE, text).with_advice(Some(NOT_TO_BE_FREED)));
    }
    if object.is_freed() {
        return Err(Error::new(
            MPI_ERR_TYPE,
            "the datatype has been freed already: free each datatype once",
        ));
    }
    remove(p, handle, &object)?;
    // SAFETY: ARGUMENTS.
    unsafe { store(datatype, MPI_DATATYPE_NULL) }
}
