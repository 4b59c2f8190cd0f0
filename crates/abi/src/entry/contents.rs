//! Decoding of datatypes (MPI 5.0, section 5.1.14).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::datatype::{insert, remove};
use super::{Count, store};
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::objects::datatype::{Combiner, Contents, Datatype};
use fastpath_mpi::{Error, Process, Result};
use std::rc::Rc;

pub unsafe fn type_get_envelope(
    p: &Process, datatype: usize, num_integers: *mut c_int, num_addresses: *mut c_int,
    num_datatypes: *mut c_int, combiner: *mut c_int,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    let contents = datatype.contents();
    check_small(contents)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        store(num_integers, c_int::from_i64_or_undefined(contents.integers.len() as i64))?;
        store(num_addresses, c_int::from_i64_or_undefined(contents.addresses.len() as i64))?;
        store(num_datatypes, c_int::from_i64_or_undefined(contents.types.len() as i64))?;
        store(combiner, contents.combiner as c_int)
    }
}

pub unsafe fn type_get_envelope_c(
    p: &Process, datatype: usize, num_integers: *mut i64, num_addresses: *mut i64,
    num_large_counts: *mut i64, num_datatypes: *mut i64, combiner: *mut c_int,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    let contents = datatype.contents();
    // SAFETY: ARGUMENTS.
    unsafe {
        store(num_integers, contents.integers.len() as i64)?;
        store(num_addresses, contents.addresses.len() as i64)?;
        store(num_large_counts, contents.large_counts.len() as i64)?;
        store(num_datatypes, contents.types.len() as i64)?;
        store(combiner, contents.combiner as c_int)
    }
}

fn check_small(contents: &Contents) -> Result<()> {
    if contents.large_counts.is_empty() {
        return Ok(());
    }
    let cause = "the datatype was made with MPI_Count arguments, which this call cannot return";
    Err(Error::new(MPI_ERR_TYPE, cause).with_advice(Some("call MPI_Type_get_contents_c")))
}

pub unsafe fn type_get_contents(
    p: &Process, datatype: usize, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int,
    array_of_integers: *mut c_int, array_of_addresses: *mut isize, array_of_datatypes: *mut usize,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    let contents = datatype.contents();
    check_small(contents)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let integers = OutputArray::new("integers", array_of_integers, max_integers.into());
        let addresses = OutputArray::new("addresses", array_of_addresses, max_addresses.into());
        let types = OutputArray::new("datatypes", array_of_datatypes, max_datatypes.into());
        give_contents(p, contents, integers, addresses, OutputArray::none(), types)
    }
}

pub unsafe fn type_get_contents_c(
    p: &Process, datatype: usize, max_integers: i64, max_addresses: i64, max_large_counts: i64,
    max_datatypes: i64, array_of_integers: *mut c_int, array_of_addresses: *mut isize,
    array_of_large_counts: *mut i64, array_of_datatypes: *mut usize,
) -> Result<()> {
    let datatype = p.datatype(datatype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let integers = OutputArray::new("integers", array_of_integers, max_integers);
        let addresses = OutputArray::new("addresses", array_of_addresses, max_addresses);
        let counts = OutputArray::new("large_counts", array_of_large_counts, max_large_counts);
        let types = OutputArray::new("datatypes", array_of_datatypes, max_datatypes);
        give_contents(p, datatype.contents(), integers, addresses, counts, types)
    }
}

struct OutputArray<T> {
    name: &'static str,
    array: *mut T,
    length: i64,
}

impl<T> OutputArray<T> {
    /// # Safety
    /// `array` is null or has `length` entries.
    unsafe fn new(name: &'static str, array: *mut T, length: i64) -> OutputArray<T> {
        OutputArray { name, array, length }
    }

    fn none() -> OutputArray<T> {
        OutputArray { name: "", array: core::ptr::null_mut(), length: 0 }
    }

    fn check(&self, needed: usize) -> Result<()> {
        if self.length < needed as i64 {
            let cause = format!(
                "max_{} is {}, but {needed} elements are needed: pass the numbers that \
                 MPI_Type_get_envelope returns",
                self.name, self.length
            );
            return Err(Error::new(MPI_ERR_ARG, cause));
        }
        if needed > 0 && self.array.is_null() {
            return Err(Error::new(
                MPI_ERR_ARG,
                format!("array_of_{} is NULL: pass an array", self.name),
            ));
        }
        Ok(())
    }

    /// Stores values, whose number has been checked.
    fn fill(&self, values: impl ExactSizeIterator<Item = T>) {
        debug_assert!(values.len() as i64 <= self.length);
        for (i, value) in values.enumerate() {
            // SAFETY: `check` has found room for all values in the array, which is valid by the contract of `new`.
            unsafe { self.array.add(i).write(value) };
        }
    }
}

fn give_contents(
    p: &Process, contents: &Contents, integers: OutputArray<c_int>, addresses: OutputArray<isize>,
    counts: OutputArray<i64>, types: OutputArray<usize>,
) -> Result<()> {
    if contents.combiner == Combiner::Named {
        let text = "a named predefined datatype has no contents";
        let advice = "check the combiner from MPI_Type_get_envelope first";
        return Err(Error::new(MPI_ERR_TYPE, text).with_advice(Some(advice)));
    }
    integers.check(contents.integers.len())?;
    addresses.check(contents.addresses.len())?;
    counts.check(contents.large_counts.len())?;
    types.check(contents.types.len())?;
    let mut handles = Vec::with_capacity(contents.types.len());
    for datatype in &contents.types {
        match hand_out(p, datatype) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                take_back(p, &handles);
                return Err(error);
            }
        }
    }
    types.fill(handles.into_iter());
    integers.fill(contents.integers.iter().map(|value| *value as c_int));
    addresses.fill(contents.addresses.iter().map(|value| *value as isize));
    counts.fill(contents.large_counts.iter().copied());
    Ok(())
}

/// Removes the new handles after an error.
fn take_back(p: &Process, handles: &[usize]) {
    for handle in handles {
        if let Some(datatype) = p.types.get(*handle).filter(|datatype| !datatype.is_predefined()) {
            // A new datatype has no attributes, so the removal cannot fail.
            let _ = remove(p, *handle, &datatype);
        }
    }
}

/// Returns a handle of a constituent type: that of a predefined type, otherwise a new one that the caller must free.
fn hand_out(p: &Process, datatype: &Rc<Datatype>) -> Result<usize> {
    if let Some(basic) = datatype.basic() {
        if datatype.contents().combiner == Combiner::Named {
            return Ok(basic.handle.into());
        }
        // A type made for a Fortran kind is never freed, so a handle of it still exists. Return that handle.
        let is_it =
            |handle: &usize| p.types.get(*handle).is_some_and(|other| Rc::ptr_eq(&other, datatype));
        if let Some(handle) = p.types.handles().into_iter().find(is_it) {
            return Ok(handle);
        }
    }
    insert(p, Datatype::clone(datatype))
}
