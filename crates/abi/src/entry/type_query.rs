//! Queries of datatypes: size, extent, name, elements received (MPI 5.0, sections 5.1.5 to 5.1.11, 7.8, 19.1.9).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{Count, answer, read_text, store, store_text};
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::datatype::{self, Basic, TypeClass};
use fastpath_mpi::objects::hot::{self, NamedType};
use fastpath_mpi::{Error, Process, Result};

/// Returns a length of a predefined type as the integer type of the caller: `int`, `MPI_Aint` or `MPI_Count`.
#[inline(always)] // `fastpath bench instructions` counts the queries that use it
fn widen<C: Count>(length: u16) -> C {
    C::from_i64_or_undefined(length.into())
}

/// Immediate path of `MPI_Type_size` and `MPI_Type_size_c`, for a predefined type.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn type_size_quick<C: Count>(datatype: usize, size: *mut C) -> bool {
    match hot::named_type(datatype) {
        // SAFETY: ARGUMENTS.
        Some(named) => unsafe { answer(size, widen(named.size)) },
        None => false,
    }
}

/// Returns the size. `MPI_UNDEFINED` if the size does not fit, or if the optional type is not supported.
pub fn type_size<C: Count>(p: &Process, datatype: usize) -> Result<C> {
    let value = p.datatype(datatype)?.size().unwrap_or(MPI_UNDEFINED.into());
    Ok(C::from_i64_or_undefined(value))
}

/// Stores a lower bound of 0 and the length that `length` selects, if the type is predefined.
#[inline(always)] // `fastpath bench instructions` counts the queries that use it
unsafe fn answer_range<D: Count>(
    datatype: usize, lb: *mut D, extent: *mut D, length: fn(&NamedType) -> u16,
) -> bool {
    match hot::named_type(datatype) {
        // SAFETY: ARGUMENTS.
        Some(named) if !lb.is_null() => unsafe {
            answer(extent, widen(length(&named))) && answer(lb, widen(0))
        },
        _ => false,
    }
}

/// Immediate path of `MPI_Type_get_extent` and `MPI_Type_get_extent_c`, for a predefined type.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn type_get_extent_quick<D: Count>(datatype: usize, lb: *mut D, extent: *mut D) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { answer_range(datatype, lb, extent, |named| named.extent) }
}

pub unsafe fn type_get_extent<D: Count>(
    p: &Process, datatype: usize, lb: *mut D, extent: *mut D,
) -> Result<()> {
    let (low, length) = p.datatype(datatype)?.extent();
    // SAFETY: ARGUMENTS.
    unsafe {
        store(lb, D::from_i64_or_undefined(low))?;
        store(extent, D::from_i64_or_undefined(length))
    }
}

/// Immediate path of `MPI_Type_get_true_extent` and `MPI_Type_get_true_extent_c`, for a predefined type.
#[inline(always)] // see `type_get_extent_quick`
pub unsafe fn type_get_true_extent_quick<D: Count>(
    datatype: usize, true_lb: *mut D, true_extent: *mut D,
) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { answer_range(datatype, true_lb, true_extent, |named| named.true_extent) }
}

pub unsafe fn type_get_true_extent<D: Count>(
    p: &Process, datatype: usize, true_lb: *mut D, true_extent: *mut D,
) -> Result<()> {
    let (low, length) = p.datatype(datatype)?.true_extent();
    // SAFETY: ARGUMENTS.
    unsafe {
        store(true_lb, D::from_i64_or_undefined(low))?;
        store(true_extent, D::from_i64_or_undefined(length))
    }
}

/// Stores the name; `MPI_DATATYPE_NULL` has a name too.
pub unsafe fn type_get_name(
    p: &Process, datatype: usize, type_name: *mut c_char, resultlen: *mut c_int,
) -> Result<()> {
    let name = match datatype {
        MPI_DATATYPE_NULL => "MPI_DATATYPE_NULL".to_string(),
        _ => p.datatype(datatype)?.name(),
    };
    // SAFETY: ARGUMENTS.
    unsafe { store_text(&name, type_name, MPI_MAX_OBJECT_NAME as usize, resultlen) }
}

/// Sets the name; a long one is cut.
pub unsafe fn type_set_name(p: &Process, datatype: usize, type_name: *const c_char) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let name = unsafe { read_text("type_name", type_name, MPI_MAX_OBJECT_NAME as usize - 1) }?;
    p.datatype(datatype)?.set_name(&name);
    Ok(())
}

pub unsafe fn type_match_size(
    _p: &Process, typeclass: c_int, size: c_int, datatype: *mut usize,
) -> Result<()> {
    let class = match typeclass {
        MPI_TYPECLASS_REAL => TypeClass::Real,
        MPI_TYPECLASS_INTEGER => TypeClass::Integer,
        MPI_TYPECLASS_COMPLEX => TypeClass::Complex,
        MPIX_TYPECLASS_LOGICAL => TypeClass::Logical,
        _ => {
            return Err(Error::new(
                MPI_ERR_ARG,
                format!("{typeclass} is not an MPI_TYPECLASS_ constant"),
            ));
        }
    };
    let Some(found) = datatype::match_size(class, size.into()) else {
        return Err(Error::new(MPI_ERR_ARG, format!("no datatype of this class has {size} bytes")));
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(datatype, found.handle.into()) }
}

pub fn type_get_value_index(p: &Process, value_type: usize, index_type: usize) -> Result<usize> {
    let (value, index) = (p.datatype(value_type)?, p.datatype(index_type)?);
    let pair = value.basic().zip(index.basic()).and_then(|(v, i)| datatype::value_index_pair(v, i));
    Ok(pair.map_or(MPI_DATATYPE_NULL, |pair: Basic| pair.handle.into()))
}

/// Immediate path of `MPI_Get_elements` and `MPI_Get_elements_c`, for whole elements of a predefined type.
#[inline(always)] // see `get_count_quick`
pub unsafe fn get_elements_quick<C: Count>(
    status: *const Status, datatype: usize, count: *mut C,
) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { answer_count(status, datatype, count, |named| named.elements) }
}

pub unsafe fn get_elements<C: Count>(
    p: &Process, status: *const Status, datatype: usize,
) -> Result<C> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let elements =
            received_bytes(status)?.and_then(|bytes| datatype.elements_from_bytes(bytes));
        Ok(C::from_i64_or_undefined(elements.unwrap_or(MPI_UNDEFINED.into())))
    }
}

/// Returns the number of received bytes in a status; `None` if the number is negative.
///
/// # Safety
/// `status` is null or a status.
unsafe fn received_bytes(status: *const Status) -> Result<Option<u64>> {
    if status.is_null() {
        return Err(no_status());
    }
    // SAFETY: `status` is not null, and so points to a status by this function's contract.
    Ok(u64::try_from(unsafe { (*status).bytes() }).ok())
}

#[cold]
fn no_status() -> Error {
    Error::new(MPI_ERR_ARG, "the status is MPI_STATUS_IGNORE or NULL: pass the address of a status")
}

/// Reads from a status how many whole elements of a predefined type arrived, and stores that number times `each` in
/// `count`.
///
/// # Safety
/// `status` is null or a status, `count` null or a variable.
#[inline(always)] // `fastpath bench instructions` counts the queries that use it
unsafe fn answer_count<C: Count>(
    status: *const Status, datatype: usize, count: *mut C, each: fn(&NamedType) -> u16,
) -> bool {
    let Some(named) = hot::named_type(datatype) else {
        return false;
    };
    // SAFETY: ARGUMENTS.
    let Some(bytes) = unsafe { status.as_ref() }.map(Status::bytes) else {
        return false;
    };
    // A 32-bit division is faster than a 64-bit one.
    let Ok(bytes) = u32::try_from(bytes) else {
        return false;
    };
    let size = u32::from(named.size);
    let elements = i64::from(bytes / size) * i64::from(each(&named));
    // SAFETY: ARGUMENTS.
    bytes % size == 0 && unsafe { answer(count, C::from_i64_or_undefined(elements)) }
}

/// Immediate path of `MPI_Get_count` and `MPI_Get_count_c`, for whole elements of a predefined type.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn get_count_quick<C: Count>(
    status: *const Status, datatype: usize, count: *mut C,
) -> bool {
    // SAFETY: ARGUMENTS.
    unsafe { answer_count(status, datatype, count, |_| 1) }
}

/// Returns the number of elements. `MPI_UNDEFINED` if the number is not whole or does not fit.
pub unsafe fn get_count<C: Count>(
    p: &Process, status: *const Status, datatype: usize,
) -> Result<C> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let elements = received_bytes(status)?.and_then(|bytes| datatype.count_from_bytes(bytes));
        Ok(C::from_i64_or_undefined(elements.unwrap_or(MPI_UNDEFINED.into())))
    }
}

pub unsafe fn status_set_elements(
    p: &Process, status: *mut Status, datatype: usize, count: i64,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    if status.is_null() {
        return Err(no_status());
    }
    let bytes = u64::try_from(count).ok().and_then(|count| datatype.bytes_from_elements(count));
    let Some(bytes) = bytes else {
        return Err(Error::new(
            MPI_ERR_COUNT,
            format!(
                "the count {count} is not a possible number of basic elements of this datatype"
            ),
        ));
    };
    // SAFETY: `status` is not null, and so points to a status by this function's contract.
    unsafe { (*status).set_bytes(bytes as i64) };
    Ok(())
}
