//! Numbers of bytes that a call passes. The generated functions call these after the measured call.
//!
//! **ARGUMENTS.** The arguments are those of a call of the program that has succeeded: they are valid as the standard
//! states.
#![allow(unsafe_code)]

use crate::library::consts::{MPI_IN_PLACE, MPI_PROC_NULL, MPI_ROOT};
use crate::library::find_function;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Defines a caller of a function of the MPI library, which is found at its first call.
macro_rules! functions {
    ($($name:ident $symbol:literal ($($arg:ident: $type:ty),*);)*) => {$(
        pub(crate) unsafe fn $name($($arg: $type),*) -> c_int {
            static REAL: OnceLock<usize> = OnceLock::new();
            let real = *REAL.get_or_init(|| find_function($symbol).expose_provenance());
            // SAFETY: the function of this name has this type in the standard ABI; ARGUMENTS.
            unsafe {
                let real: *const c_void = std::ptr::with_exposed_provenance(real);
                let real: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(real);
                real($($arg),*)
            }
        }
    )*};
}

functions! {
    type_size c"PMPI_Type_size_c" (datatype: usize, size: *mut i64);
    comm_size c"PMPI_Comm_size" (comm: usize, size: *mut c_int);
    comm_remote_size c"PMPI_Comm_remote_size" (comm: usize, size: *mut c_int);
    comm_test_inter c"PMPI_Comm_test_inter" (comm: usize, flag: *mut c_int);
    comm_rank c"PMPI_Comm_rank" (comm: usize, rank: *mut c_int);
}

/// Bytes of each persistent request that sends.
static PERSISTENT: Mutex<Option<HashMap<usize, i64>>> = Mutex::new(None);

/// Bytes of `count` elements.
pub(crate) unsafe fn data(count: i64, datatype: usize) -> i64 {
    let mut size = 0;
    // SAFETY: ARGUMENTS.
    match count > 0 && unsafe { type_size(datatype, &mut size) } == 0 {
        true => count.saturating_mul(size),
        false => 0,
    }
}

/// Bytes sent to a rank: none if it is `MPI_PROC_NULL`.
pub(crate) fn to(dest: c_int, bytes: i64) -> i64 {
    if dest == MPI_PROC_NULL { 0 } else { bytes }
}

pub(crate) fn is_in_place(sendbuf: *const c_void) -> bool {
    sendbuf.addr() == MPI_IN_PLACE
}

unsafe fn is_inter(comm: usize) -> bool {
    let mut flag = 0;
    // SAFETY: ARGUMENTS.
    unsafe { comm_test_inter(comm, &mut flag) == 0 && flag != 0 }
}

/// Number of ranks of the own group.
pub(crate) unsafe fn group_size(comm: usize) -> i64 {
    let mut size = 0;
    // SAFETY: ARGUMENTS.
    unsafe { comm_size(comm, &mut size) };
    i64::from(size)
}

/// Number of ranks to which a collective call sends.
pub(crate) unsafe fn peers(comm: usize) -> i64 {
    let mut size = 0;
    // SAFETY: ARGUMENTS.
    unsafe {
        if !is_inter(comm) {
            return group_size(comm);
        }
        comm_remote_size(comm, &mut size);
    }
    i64::from(size)
}

unsafe fn own_rank(comm: usize) -> c_int {
    let mut rank = MPI_PROC_NULL;
    // SAFETY: ARGUMENTS.
    unsafe { comm_rank(comm, &mut rank) };
    rank
}

/// Returns `bytes` at the root, 0 elsewhere.
pub(crate) unsafe fn at_root(root: c_int, comm: usize, bytes: impl FnOnce() -> i64) -> i64 {
    // SAFETY: ARGUMENTS.
    let is_root = unsafe {
        match is_inter(comm) {
            true => root == MPI_ROOT,
            false => root == own_rank(comm),
        }
    };
    if is_root { bytes() } else { 0 }
}

/// Returns `bytes` at a rank that sends to the root. In the root's group of an intercommunicator no rank sends, and the
/// arguments of the data are not significant.
pub(crate) fn to_root(root: c_int, bytes: impl FnOnce() -> i64) -> i64 {
    if root == MPI_ROOT || root == MPI_PROC_NULL { 0 } else { bytes() }
}

/// Bytes of an array of counts.
pub(crate) unsafe fn array<C: Copy + Into<i64>>(
    counts: *const C, datatype: usize, length: i64,
) -> i64 {
    if counts.is_null() {
        return 0;
    }
    // SAFETY: ARGUMENTS; the array has `length` entries.
    unsafe {
        let sum = (0..length as usize).map(|i| (*counts.add(i)).into()).sum();
        data(sum, datatype)
    }
}

/// Bytes of an array of counts, each with a datatype.
pub(crate) unsafe fn arrays<C: Copy + Into<i64>>(
    counts: *const C, datatypes: *const usize, length: i64,
) -> i64 {
    if counts.is_null() || datatypes.is_null() {
        return 0;
    }
    // SAFETY: ARGUMENTS; the arrays have `length` entries.
    (0..length as usize).map(|i| unsafe { data((*counts.add(i)).into(), *datatypes.add(i)) }).sum()
}

/// Bytes of this rank's entry in an array of counts.
pub(crate) unsafe fn own<C: Copy + Into<i64>>(
    counts: *const C, datatype: usize, comm: usize,
) -> i64 {
    // SAFETY: ARGUMENTS; the array has an entry for each rank.
    unsafe {
        match usize::try_from(own_rank(comm)) {
            Ok(rank) if !counts.is_null() => data((*counts.add(rank)).into(), datatype),
            _ => 0,
        }
    }
}

/// Stores the bytes that each start of a persistent request sends.
pub(crate) unsafe fn remember(request: *const usize, bytes: i64) {
    if !request.is_null() {
        let mut known = PERSISTENT.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: ARGUMENTS.
        known.get_or_insert_default().insert(unsafe { *request }, bytes);
    }
}

/// Removes a request that is about to be freed.
pub(crate) unsafe fn forget(request: *const usize) {
    if !request.is_null()
        && let Some(known) = &mut *PERSISTENT.lock().unwrap_or_else(PoisonError::into_inner)
    {
        // SAFETY: ARGUMENTS.
        known.remove(unsafe { &*request });
    }
}

/// Bytes of started requests.
pub(crate) unsafe fn started(requests: *const usize, count: c_int) -> i64 {
    match &*PERSISTENT.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(known) if !requests.is_null() => {
            let count = usize::try_from(count).unwrap_or(0);
            // SAFETY: ARGUMENTS; the array has `count` entries.
            let bytes = |i| known.get(&unsafe { *requests.add(i) }).copied().unwrap_or(0);
            (0..count).map(bytes).sum()
        }
        _ => 0,
    }
}
