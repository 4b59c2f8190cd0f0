//! The C library below: whether it is Fastpath's, and the description of Fortran that it gets.
#![allow(unsafe_code)]

use crate::ffi;
use core::ffi::c_int;
use fastpath_base::sync::{StaticOrdering as Ordering, StaticU32};
use fastpath_base::tell;
use std::sync::Once;

const UNKNOWN: u32 = 0;
const OURS: u32 = 1;
const OTHER: u32 = 2;

static KIND: StaticU32 = StaticU32::new(UNKNOWN);
static SET_UP: Once = Once::new();

/// Value of MPI_INFO_NULL in every library of the ABI.
pub const INFO_NULL: usize = 304;

/// Most bytes of the version text (MPI_MAX_LIBRARY_VERSION_STRING).
const MAX_VERSION: usize = 8192;

/// Whether the C library is known to be Fastpath's. Its handles are the INTEGERs of Fortran, extended with zeros.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn is_ours() -> bool {
    // Relaxed: no other memory depends on the value. A thread that reads an old one calls `set_up`.
    KIND.load(Ordering::Relaxed) == OURS
}

/// Finds out whether the C library is Fastpath's and describes Fortran to it, once.
#[cold]
pub fn set_up() {
    // An error handler that runs within `describe_fortran` may call MPI: it must not wait for `SET_UP`.
    if KIND.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    SET_UP.call_once(|| {
        let mut text = [0_u8; MAX_VERSION + 1];
        let mut length: c_int = 0;
        // SAFETY: the buffer has the size that the standard requires.
        let code = unsafe { ffi::PMPI_Get_library_version(text.as_mut_ptr().cast(), &mut length) };
        let is_ours = code == 0 && text.starts_with(b"Fastpath ");
        // Relaxed: see `is_ours`.
        KIND.store(if is_ours { OURS } else { OTHER }, Ordering::Relaxed);
        // MPICH 5.0 takes the description only while MPI is initialised.
        if is_ours || is_initialized() {
            describe_fortran();
        }
    });
}

/// Describes Fortran's types to a C library that takes the description only now, after MPI was initialised.
#[cold]
pub fn finish_set_up() {
    if !is_ours() {
        describe_fortran();
    }
}

/// Ends the process if the C library lacks an extension: `function` is its address there, or null.
pub fn require(function: *const (), name: &str) {
    // The optimizer assumes that a function's address is not null.
    if std::hint::black_box(function).is_null() {
        tell!("fastpath: the MPI library has no {name}; use the library libmpi_abi of Fastpath");
        std::process::abort();
    }
}

fn is_initialized() -> bool {
    let (mut initialized, mut finalized) = (0, 0);
    // SAFETY: addresses of local variables; both functions may be called at any time.
    unsafe {
        ffi::PMPI_Initialized(&mut initialized) == 0
            && ffi::PMPI_Finalized(&mut finalized) == 0
            && initialized != 0
            && finalized == 0
    }
}

/// Sets the sizes of Fortran's types and the values of LOGICAL (MPI 5.0, section 20.4), unless the C library has a
/// description already: a second one is an error.
fn describe_fortran() {
    let (mut yes, mut no, mut is_set): (c_int, c_int, c_int) = (0, 0, 0);
    let mut info = INFO_NULL;
    // SAFETY: addresses of local variables and of strings that end with a zero byte. These functions may be called
    // before MPI is initialised.
    unsafe {
        let bytes = size_of::<c_int>() as c_int;
        let (yes, no) = (&raw mut yes, &raw mut no);
        let code = ffi::PMPI_Abi_get_fortran_booleans(bytes, yes.cast(), no.cast(), &mut is_set);
        if code == 0 && is_set == 0 {
            (*yes, *no) = (1, 0);
            ffi::PMPI_Abi_set_fortran_booleans(bytes, yes.cast(), no.cast());
        }
        if ffi::PMPI_Abi_get_fortran_info(&mut info) != 0 {
            return;
        }
        if info == INFO_NULL && ffi::PMPI_Info_create(&mut info) == 0 {
            for (key, value) in FORTRAN_TYPES {
                let (key, value) = (key.as_ptr().cast_mut(), value.as_ptr().cast_mut());
                ffi::PMPI_Info_set(info, key.cast(), value.cast());
            }
            ffi::PMPI_Abi_set_fortran_info(info);
        }
        if info != INFO_NULL {
            ffi::PMPI_Info_free(&mut info);
        }
    }
}

/// Sizes in bytes of the default kinds, and the optional types of compilers. REAL(2) is not supported, because gfortran
/// lacks it.
const FORTRAN_TYPES: [(&core::ffi::CStr, &core::ffi::CStr); 23] = [
    (c"mpi_logical_size", c"4"),
    (c"mpi_integer_size", c"4"),
    (c"mpi_real_size", c"4"),
    (c"mpi_double_precision_size", c"8"),
    (c"mpi_logical1_supported", c"true"),
    (c"mpi_logical2_supported", c"true"),
    (c"mpi_logical4_supported", c"true"),
    (c"mpi_logical8_supported", c"true"),
    (c"mpi_logical16_supported", c"true"),
    (c"mpi_integer1_supported", c"true"),
    (c"mpi_integer2_supported", c"true"),
    (c"mpi_integer4_supported", c"true"),
    (c"mpi_integer8_supported", c"true"),
    (c"mpi_integer16_supported", c"true"),
    (c"mpi_real2_supported", c"false"),
    (c"mpi_real4_supported", c"true"),
    (c"mpi_real8_supported", c"true"),
    (c"mpi_real16_supported", c"true"),
    (c"mpi_complex4_supported", c"false"),
    (c"mpi_complex8_supported", c"true"),
    (c"mpi_complex16_supported", c"true"),
    (c"mpi_complex32_supported", c"true"),
    (c"mpi_double_complex_supported", c"true"),
];
