//! Special addresses: variables such as MPI_BOTTOM, which are recognised by their address (MPI 5.0, section 2.5.4).
//!
//! `mpif.h` declares each as a COMMON block of the same name. Every object file of a program then has a copy of the
//! block, and the linker joins all of them with the variable here only if sizes are equal; see [`BYTES`].
#![allow(unsafe_code, non_upper_case_globals)]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// Bytes of a variable, and its alignment: those of the COMMON block in `mpif.h`.
pub const BYTES: usize = 64;

/// A variable with a special address. Its contents have no meaning.
#[repr(C, align(64))]
pub struct SpecialAddress([u8; BYTES]);

macro_rules! special_addresses {
    ($($name:ident)*) => {
        $(
            // SAFETY: the name starts with the prefix of this library's variables.
            #[unsafe(no_mangle)]
            static mut $name: SpecialAddress = SpecialAddress([0; BYTES]);
        )*
    };
}

special_addresses! {
    mpifp_bottom_ mpifp_in_place_ mpifp_buffer_automatic_
    mpifp_status_ignore_ mpifp_statuses_ignore_
    mpifp_f08_status_ignore_ mpifp_f08_statuses_ignore_
    mpifp_errcodes_ignore_ mpifp_argv_null_ mpifp_argvs_null_
    mpifp_unweighted_ mpifp_weights_empty_
}

/// A pointer to a special address, for C programs.
#[repr(transparent)]
pub struct AddressPointer(*const SpecialAddress);

// SAFETY: the pointer is never changed, and nothing is read or written through it.
unsafe impl Sync for AddressPointer {}

macro_rules! address_pointers {
    ($($name:ident = $address:ident;)*) => {
        $(
            // SAFETY: the standard defines the name (MPI 5.0, section 19.3.5).
            #[unsafe(no_mangle)]
            static $name: AddressPointer = AddressPointer(&raw const $address);
        )*
    };
}

address_pointers! {
    MPI_F_STATUS_IGNORE = mpifp_status_ignore_;
    MPI_F_STATUSES_IGNORE = mpifp_statuses_ignore_;
    MPI_F08_STATUS_IGNORE = mpifp_f08_status_ignore_;
    MPI_F08_STATUSES_IGNORE = mpifp_f08_statuses_ignore_;
}

/// Values of special addresses in C.
const IN_PLACE: usize = 1;
const BUFFER_AUTOMATIC: usize = 2;
const UNWEIGHTED: usize = 10;
const WEIGHTS_EMPTY: usize = 11;

fn is<T>(address: *const T, special: *const SpecialAddress) -> bool {
    address.addr() == special.addr()
}

/// Buffer for C: MPI_BOTTOM, or the address.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn buffer(address: *mut c_void) -> *mut c_void {
    if is_bottom(address) { null_mut() } else { address }
}

/// Whether the address is that of MPI_BOTTOM.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn is_bottom(address: *const c_void) -> bool {
    is(address, &raw const mpifp_bottom_)
}

/// Buffer of a collective call for C: MPI_BOTTOM, MPI_IN_PLACE, or the address.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn collective_buffer(address: *mut c_void) -> *mut c_void {
    if is_in_place(address) {
        return core::ptr::without_provenance_mut(IN_PLACE);
    }
    buffer(address)
}

/// Buffer to be attached: MPI_BOTTOM, MPI_BUFFER_AUTOMATIC, or the address.
pub fn location(address: *mut c_void) -> *mut c_void {
    if is(address, &raw const mpifp_buffer_automatic_) {
        return core::ptr::without_provenance_mut(BUFFER_AUTOMATIC);
    }
    buffer(address)
}

/// Address of a detached buffer for Fortran.
pub fn detached(address: *mut c_void) -> *mut c_void {
    if address.addr() == BUFFER_AUTOMATIC {
        return (&raw mut mpifp_buffer_automatic_).cast();
    }
    address
}

/// Whether the address is that of MPI_IN_PLACE.
pub fn is_in_place(address: *const c_void) -> bool {
    is(address, &raw const mpifp_in_place_)
}

/// Status for C: null for MPI_STATUS_IGNORE.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn status(address: *mut c_void) -> *mut c_void {
    let is_ignored = is(address, &raw const mpifp_status_ignore_)
        || is(address, &raw const mpifp_f08_status_ignore_);
    if is_ignored { null_mut() } else { address }
}

/// Statuses for C: null for MPI_STATUSES_IGNORE, and for MPI_STATUS_IGNORE, which has too little memory for statuses.
pub fn statuses(address: *mut c_void) -> *mut c_void {
    let address = status(address);
    let is_ignored = is(address, &raw const mpifp_statuses_ignore_)
        || is(address, &raw const mpifp_f08_statuses_ignore_);
    if is_ignored { null_mut() } else { address }
}

/// Weights for C: MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY, or the address.
pub fn weights(address: *mut c_int) -> *mut c_int {
    if is(address, &raw const mpifp_unweighted_) {
        return core::ptr::without_provenance_mut(UNWEIGHTED);
    }
    if is(address, &raw const mpifp_weights_empty_) {
        return core::ptr::without_provenance_mut(WEIGHTS_EMPTY);
    }
    address
}

/// Error codes of a spawn for C: null for MPI_ERRCODES_IGNORE.
pub fn error_codes(address: *mut c_int) -> *mut c_int {
    if is(address, &raw const mpifp_errcodes_ignore_) { null_mut() } else { address }
}

/// Whether the address is that of MPI_ARGV_NULL or MPI_ARGVS_NULL.
pub fn is_argv_null(address: *const u8) -> bool {
    is(address, &raw const mpifp_argv_null_) || is(address, &raw const mpifp_argvs_null_)
}
