//! Procedures that MPI-3.0 removed, for old programs with `mpif.h`: addresses and displacements are INTEGERs. The
//! modules do not declare them (MPI 5.0, section 17.1).
#![allow(unsafe_code, non_snake_case)]

use crate::convert::{
    Handles, comm_from, datatype_from, datatype_to, errhandler_from, errhandler_to, store_error,
};
use crate::ffi;
use crate::special_addresses;
use core::ffi::{c_int, c_void};

/// Class of an error for a size that no INTEGER can hold.
const ERR_ARG: c_int = 13;

/// Stores a size, if an INTEGER can hold it.
unsafe fn store_small(value: i64, place: *mut c_int, ierror: *mut c_int, code: c_int) {
    // SAFETY: ARGUMENTS.
    unsafe {
        match c_int::try_from(value) {
            Ok(small) if code == 0 => *place = small,
            Err(_) if code == 0 => return store_error(ierror, ERR_ARG),
            _ => {}
        }
        store_error(ierror, code);
    }
}

/// Returns the lower bound and the extent of a datatype, and the error code.
unsafe fn read_extent(datatype: *const c_int) -> (i64, i64, c_int) {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: ARGUMENTS.
    let code =
        unsafe { ffi::PMPI_Type_get_extent(datatype_from(*datatype), &mut lower, &mut extent) };
    (lower, extent, code)
}

unsafe fn widen(values: *const c_int, length: c_int) -> Vec<i64> {
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: ARGUMENTS.
    (0..length).map(|i| i64::from(unsafe { *values.add(i) })).collect()
}

unsafe fn store_type(made: usize, place: *mut c_int, ierror: *mut c_int, code: c_int) {
    // SAFETY: ARGUMENTS.
    unsafe {
        if made != 0 {
            *place = datatype_to(made);
        }
        store_error(ierror, code);
    }
}

/// Procedures as MPI_X and as PMPI_X, under the names that compilers give them.
macro_rules! removed {
    ($([$($name:ident)*] $args:tt $body:block)*) => {
        $($(removed!(@one $name $args $body);)*)*
    };
    (@one $name:ident ($($arg:ident: $type:ty),*) $body:block) => {
        /// The procedure of this name of MPI-1.
        ///
        /// # Safety
        /// ARGUMENTS
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) {
            // SAFETY: ARGUMENTS.
            unsafe { $body }
        }
    };
}

removed! {
    [mpi_address_ mpi_address mpi_address__ MPI_ADDRESS
     pmpi_address_ pmpi_address pmpi_address__ PMPI_ADDRESS]
    (location: *mut c_void, address: *mut c_int, ierror: *mut c_int) {
        let mut found = 0;
        let code = ffi::PMPI_Get_address(special_addresses::buffer(location), &mut found);
        // The lower half: differences of addresses are right up to 2 GiB.
        if code == 0 {
            *address = found as c_int;
        }
        store_error(ierror, code);
    }
    [mpi_type_extent_ mpi_type_extent mpi_type_extent__ MPI_TYPE_EXTENT
     pmpi_type_extent_ pmpi_type_extent pmpi_type_extent__ PMPI_TYPE_EXTENT]
    (datatype: *mut c_int, extent: *mut c_int, ierror: *mut c_int) {
        let (_, found, code) = read_extent(datatype);
        store_small(found, extent, ierror, code);
    }
    [mpi_type_lb_ mpi_type_lb mpi_type_lb__ MPI_TYPE_LB
     pmpi_type_lb_ pmpi_type_lb pmpi_type_lb__ PMPI_TYPE_LB]
    (datatype: *mut c_int, place: *mut c_int, ierror: *mut c_int) {
        let (lower, _, code) = read_extent(datatype);
        store_small(lower, place, ierror, code);
    }
    [mpi_type_ub_ mpi_type_ub mpi_type_ub__ MPI_TYPE_UB
     pmpi_type_ub_ pmpi_type_ub pmpi_type_ub__ PMPI_TYPE_UB]
    (datatype: *mut c_int, place: *mut c_int, ierror: *mut c_int) {
        let (lower, extent, code) = read_extent(datatype);
        store_small(lower + extent, place, ierror, code);
    }
    [mpi_type_hvector_ mpi_type_hvector mpi_type_hvector__ MPI_TYPE_HVECTOR
     pmpi_type_hvector_ pmpi_type_hvector pmpi_type_hvector__ PMPI_TYPE_HVECTOR]
    (count: *mut c_int, length: *mut c_int, stride: *mut c_int, old: *mut c_int,
     new: *mut c_int, ierror: *mut c_int) {
        let mut made = 0;
        let (stride, old) = (i64::from(*stride), datatype_from(*old));
        let code = ffi::PMPI_Type_create_hvector(*count, *length, stride, old, &mut made);
        store_type(made, new, ierror, code);
    }
    [mpi_type_hindexed_ mpi_type_hindexed mpi_type_hindexed__ MPI_TYPE_HINDEXED
     pmpi_type_hindexed_ pmpi_type_hindexed pmpi_type_hindexed__ PMPI_TYPE_HINDEXED]
    (count: *mut c_int, lengths: *mut c_int, places: *mut c_int, old: *mut c_int,
     new: *mut c_int, ierror: *mut c_int) {
        let (mut made, mut places) = (0, widen(places, *count));
        let (places, old) = (places.as_mut_ptr(), datatype_from(*old));
        let code = ffi::PMPI_Type_create_hindexed(*count, lengths, places, old, &mut made);
        store_type(made, new, ierror, code);
    }
    [mpi_type_struct_ mpi_type_struct mpi_type_struct__ MPI_TYPE_STRUCT
     pmpi_type_struct_ pmpi_type_struct pmpi_type_struct__ PMPI_TYPE_STRUCT]
    (count: *mut c_int, lengths: *mut c_int, places: *mut c_int, types: *mut c_int,
     new: *mut c_int, ierror: *mut c_int) {
        let (mut made, mut places) = (0, widen(places, *count));
        let mut types = Handles::read(types, *count, datatype_from);
        let (places, types) = (places.as_mut_ptr(), types.address());
        let code = ffi::PMPI_Type_create_struct(*count, lengths, places, types, &mut made);
        store_type(made, new, ierror, code);
    }
    [mpi_errhandler_create_ mpi_errhandler_create mpi_errhandler_create__ MPI_ERRHANDLER_CREATE
     pmpi_errhandler_create_ pmpi_errhandler_create pmpi_errhandler_create__ PMPI_ERRHANDLER_CREATE]
    (function: *const c_void, errhandler: *mut c_int, ierror: *mut c_int) {
        let call = ffi::PMPI_Comm_create_errhandler;
        super::comm_create_errhandler(call, function, errhandler, ierror);
    }
    [mpi_errhandler_set_ mpi_errhandler_set mpi_errhandler_set__ MPI_ERRHANDLER_SET
     pmpi_errhandler_set_ pmpi_errhandler_set pmpi_errhandler_set__ PMPI_ERRHANDLER_SET]
    (comm: *mut c_int, errhandler: *mut c_int, ierror: *mut c_int) {
        let errhandler = errhandler_from(*errhandler);
        store_error(ierror, ffi::PMPI_Comm_set_errhandler(comm_from(*comm), errhandler));
    }
    [mpi_errhandler_get_ mpi_errhandler_get mpi_errhandler_get__ MPI_ERRHANDLER_GET
     pmpi_errhandler_get_ pmpi_errhandler_get pmpi_errhandler_get__ PMPI_ERRHANDLER_GET]
    (comm: *mut c_int, errhandler: *mut c_int, ierror: *mut c_int) {
        let mut found = 0;
        let code = ffi::PMPI_Comm_get_errhandler(comm_from(*comm), &mut found);
        if found != 0 {
            *errhandler = errhandler_to(found);
        }
        store_error(ierror, code);
    }
}
