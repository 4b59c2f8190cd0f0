//! Attributes of datatypes (MPI 5.0, section 7.7.4).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::store;
use core::ffi::{c_int, c_void};
use fastpath_mpi::objects::attribute;
use fastpath_mpi::{Process, Result};

pub fn type_set_attr(
    p: &Process, datatype: usize, type_keyval: c_int, attribute_val: *mut c_void,
) -> Result<()> {
    let object = p.datatype(datatype)?;
    attribute::set_attribute(p, object.holder(datatype), type_keyval, attribute_val)
}

pub unsafe fn type_get_attr(
    p: &Process, datatype: usize, type_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int,
) -> Result<()> {
    let object = p.datatype(datatype)?;
    let value = attribute::get_attribute(p, object.holder(datatype), type_keyval)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        if let Some(value) = value {
            store(attribute_val.cast::<*mut c_void>(), value)?;
        }
        store(flag, c_int::from(value.is_some()))
    }
}

pub fn type_delete_attr(p: &Process, datatype: usize, type_keyval: c_int) -> Result<()> {
    let object = p.datatype(datatype)?;
    attribute::delete_attribute(p, object.holder(datatype), type_keyval)
}
