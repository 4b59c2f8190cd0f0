//! Procedures that C does not have: predefined callbacks, comparison of handles, conversion of statuses, sizes,
//! and what `mpifort` asks about a compiler.
#![allow(unsafe_code, non_snake_case)]

use crate::convert::store_error;
use crate::section::{Descriptor, describes, element_bytes};
use core::ffi::{c_int, c_void};

macro_rules! copy_callbacks {
    ($value:ty: $($null:ident $dup:ident $delete:ident;)*) => {
        $(
            /// Copies no attribute.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $null(
                _object: *mut c_int, _keyval: *mut c_int, _state: *mut $value, _value: *mut $value,
                _new: *mut $value, flag: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe {
                    *flag = 0;
                    store_error(ierror, 0);
                }
            }

            /// Copies the value.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $dup(
                _object: *mut c_int, _keyval: *mut c_int, _state: *mut $value, value: *mut $value,
                new: *mut $value, flag: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe {
                    *new = *value;
                    *flag = 1;
                    store_error(ierror, 0);
                }
            }

            /// Does nothing when an attribute is deleted.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $delete(
                _object: *mut c_int, _keyval: *mut c_int, _value: *mut $value, _state: *mut $value,
                ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe { store_error(ierror, 0) };
            }
        )*
    };
}

// Compilers give one procedure different names; see the aliases of the generated entry points.
copy_callbacks! { i64:
    mpi_comm_null_copy_fn_ mpi_comm_dup_fn_ mpi_comm_null_delete_fn_;
    mpi_comm_null_copy_fn mpi_comm_dup_fn mpi_comm_null_delete_fn;
    mpi_comm_null_copy_fn__ mpi_comm_dup_fn__ mpi_comm_null_delete_fn__;
    MPI_COMM_NULL_COPY_FN MPI_COMM_DUP_FN MPI_COMM_NULL_DELETE_FN;
    mpi_type_null_copy_fn_ mpi_type_dup_fn_ mpi_type_null_delete_fn_;
    mpi_type_null_copy_fn mpi_type_dup_fn mpi_type_null_delete_fn;
    mpi_type_null_copy_fn__ mpi_type_dup_fn__ mpi_type_null_delete_fn__;
    MPI_TYPE_NULL_COPY_FN MPI_TYPE_DUP_FN MPI_TYPE_NULL_DELETE_FN;
    mpi_win_null_copy_fn_ mpi_win_dup_fn_ mpi_win_null_delete_fn_;
    mpi_win_null_copy_fn mpi_win_dup_fn mpi_win_null_delete_fn;
    mpi_win_null_copy_fn__ mpi_win_dup_fn__ mpi_win_null_delete_fn__;
    MPI_WIN_NULL_COPY_FN MPI_WIN_DUP_FN MPI_WIN_NULL_DELETE_FN;
}
copy_callbacks! { c_int:
    mpi_null_copy_fn_ mpi_dup_fn_ mpi_null_delete_fn_;
    mpi_null_copy_fn mpi_dup_fn mpi_null_delete_fn;
    mpi_null_copy_fn__ mpi_dup_fn__ mpi_null_delete_fn__;
    MPI_NULL_COPY_FN MPI_DUP_FN MPI_NULL_DELETE_FN;
}

macro_rules! null_conversions {
    ($($count:ident $all:ident: $($name:ident)*;)*) => {
        $(
            null_conversions! { $count $($name)* }

            /// Addresses that stand for no conversion.
            pub fn $all() -> [*const c_void; NAMES] {
                [$($name as *const c_void),*]
            }
        )*
    };
    ($count:ident $($name:ident)*) => {
        $(
            /// Stands for no conversion: recognised by its address, never called.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                _user: *mut c_void, _datatype: *mut c_int, _count: *mut $count, _file: *mut c_void,
                _position: *mut i64, _state: *mut i64, ierror: *mut c_int,
            ) {
                // The names have different bodies: the compiler makes one function of equal ones, with one address, and
                // a position-dependent program has another address for each name.
                core::hint::black_box(stringify!($name));
                // SAFETY: ARGUMENTS.
                unsafe { store_error(ierror, 0) };
            }
        )*
    };
}

/// Names that compilers give a procedure.
const NAMES: usize = 4;

null_conversions! {
    c_int null_conversions_of_int: mpi_conversion_fn_null_ mpi_conversion_fn_null
        mpi_conversion_fn_null__
        MPI_CONVERSION_FN_NULL;
    i64 null_conversions_of_count: mpi_conversion_fn_null_c_ mpi_conversion_fn_null_c
        mpi_conversion_fn_null_c__
        MPI_CONVERSION_FN_NULL_C;
}

macro_rules! comparisons {
    ($($equal:ident $unequal:ident)*) => {
        $(
            /// Whether two handles are equal.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $equal(one: *const c_int, other: *const c_int) -> c_int {
                // SAFETY: ARGUMENTS.
                unsafe { c_int::from(*one == *other) }
            }

            /// Whether two handles differ.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $unequal(one: *const c_int, other: *const c_int) -> c_int {
                // SAFETY: ARGUMENTS.
                unsafe { c_int::from(*one != *other) }
            }
        )*
    };
}

comparisons! {
    mpifp_comm_eq_ mpifp_comm_ne_ mpifp_datatype_eq_ mpifp_datatype_ne_
    mpifp_errhandler_eq_ mpifp_errhandler_ne_ mpifp_file_eq_ mpifp_file_ne_
    mpifp_group_eq_ mpifp_group_ne_ mpifp_info_eq_ mpifp_info_ne_
    mpifp_message_eq_ mpifp_message_ne_ mpifp_op_eq_ mpifp_op_ne_
    mpifp_request_eq_ mpifp_request_ne_ mpifp_session_eq_ mpifp_session_ne_
    mpifp_win_eq_ mpifp_win_ne_
}

/// Bytes of a status.
const STATUS_BYTES: usize = 32;

macro_rules! status_copies {
    ($($name:ident)*) => {
        $(
            /// Copies a status: both forms have the same layout.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(from: *const u8, to: *mut u8, ierror: *mut c_int) {
                // SAFETY: ARGUMENTS. The two may be one variable.
                unsafe {
                    core::ptr::copy(from, to, STATUS_BYTES);
                    store_error(ierror, 0);
                }
            }
        )*
    };
}

status_copies! {
    mpi_status_f2f08_ mpi_status_f2f08_f08_ pmpi_status_f2f08_ pmpi_status_f2f08_f08_
    mpi_status_f082f_ mpi_status_f082f_f08_ pmpi_status_f082f_ pmpi_status_f082f_f08_
    mpi_status_f2f08 mpi_status_f2f08__ MPI_STATUS_F2F08 pmpi_status_f2f08 pmpi_status_f2f08__
        PMPI_STATUS_F2F08
    mpi_status_f082f mpi_status_f082f__ MPI_STATUS_F082F pmpi_status_f082f pmpi_status_f082f__
        PMPI_STATUS_F082F
}

macro_rules! sync_registers {
    ($($name:ident)*) => {
        $(
            /// Does nothing: the call keeps the compiler from moving accesses to the buffer across it.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(_buffer: *mut c_void) {}
        )*
    };
}

sync_registers! {
    mpi_f_sync_reg_ mpi_f_sync_reg_f08_ mpi_f_sync_reg_f08ts_ mpi_f_sync_reg_fts_
    pmpi_f_sync_reg_ pmpi_f_sync_reg_f08_ pmpi_f_sync_reg_f08ts_ pmpi_f_sync_reg_fts_
    mpi_f_sync_reg mpi_f_sync_reg__ MPI_F_SYNC_REG pmpi_f_sync_reg pmpi_f_sync_reg__ PMPI_F_SYNC_REG
}

macro_rules! sizes {
    ($($name:ident)*) => {
        $(
            /// Size of a variable, or of an array's element, in bytes.
            ///
            /// # Safety
            /// ARGUMENTS
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                x: *const Descriptor, size: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe {
                    *size = element_bytes(x) as c_int;
                    store_error(ierror, 0);
                }
            }
        )*
    };
}

sizes! { mpi_sizeof_f08ts_ pmpi_sizeof_f08ts_ }

/// Returns 1 if the library reads a descriptor as what the caller describes, otherwise 0: `mpifort` calls this function
/// for a few arrays, to learn whether the compiler's descriptors have a known layout.
///
/// # Safety
/// `buffer` points to a descriptor; `extents` and `strides` have `rank` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mpifp_probe_descriptor_(
    buffer: *const Descriptor, base: *const c_void, bytes: c_int, rank: c_int,
    extents: *const c_int, strides: *const c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let extents = core::slice::from_raw_parts(extents, rank as usize);
        let strides = core::slice::from_raw_parts(strides, rank as usize);
        c_int::from(describes(buffer, base, bytes as usize, extents, strides))
    }
}
