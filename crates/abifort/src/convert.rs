//! Handles, LOGICALs, indices and error codes between Fortran and C.
#![allow(unsafe_code)]

use crate::ffi;
use crate::library;
use core::ffi::c_int;

/// Value that stands for no index and no count.
const UNDEFINED: c_int = -32_766;

/// Handle of Fastpath's C library: the INTEGER, extended with zeros.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn our_handle(value: c_int) -> usize {
    value as u32 as usize
}

/// INTEGER of a handle of Fastpath's C library.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn our_integer(handle: usize) -> c_int {
    handle as c_int
}

macro_rules! handles {
    ($($from:ident $to:ident = $fromint:ident $toint:ident;)*) => {
        $(
            /// C handle of an INTEGER.
            #[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
            pub fn $from(value: c_int) -> usize {
                if library::is_ours() {
                    return our_handle(value);
                }
                library::set_up();
                // SAFETY: the conversion takes any value.
                unsafe { ffi::$fromint(value) }
            }

            /// INTEGER of a C handle.
            #[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
            pub fn $to(handle: usize) -> c_int {
                if library::is_ours() {
                    return our_integer(handle);
                }
                library::set_up();
                // SAFETY: the conversion takes any handle.
                unsafe { ffi::$toint(handle) }
            }
        )*
    };
}

handles! {
    comm_from comm_to = PMPI_Comm_fromint PMPI_Comm_toint;
    datatype_from datatype_to = PMPI_Type_fromint PMPI_Type_toint;
    errhandler_from errhandler_to = PMPI_Errhandler_fromint PMPI_Errhandler_toint;
    file_from file_to = PMPI_File_fromint PMPI_File_toint;
    group_from group_to = PMPI_Group_fromint PMPI_Group_toint;
    info_from info_to = PMPI_Info_fromint PMPI_Info_toint;
    message_from message_to = PMPI_Message_fromint PMPI_Message_toint;
    op_from op_to = PMPI_Op_fromint PMPI_Op_toint;
    request_from request_to = PMPI_Request_fromint PMPI_Request_toint;
    session_from session_to = PMPI_Session_fromint PMPI_Session_toint;
    win_from win_to = PMPI_Win_fromint PMPI_Win_toint;
}

/// Handles that fit on the stack.
const FEW: usize = 16;

/// An array of handles, widened for C.
pub struct Handles {
    few: [usize; FEW],
    many: Vec<usize>,
    length: usize,
}

impl Handles {
    /// Converts `length` handles by `from`. A negative length makes an empty array: C reports the error.
    ///
    /// # Safety
    /// `values` is valid for reads of `length` handles, or `length` is at most 0.
    #[inline]
    pub unsafe fn read(
        values: *const c_int, length: impl TryInto<usize>, from: impl Fn(c_int) -> usize,
    ) -> Self {
        let length = length.try_into().unwrap_or(0);
        let mut all = Self { few: [0; FEW], many: Vec::new(), length };
        if length > FEW {
            all.many = vec![0; length];
        }
        for (index, handle) in all.slice().iter_mut().enumerate() {
            // SAFETY: by this function's contract.
            *handle = from(unsafe { *values.add(index) });
        }
        all
    }

    fn slice(&mut self) -> &mut [usize] {
        if self.length > FEW { &mut self.many } else { &mut self.few[..self.length] }
    }

    /// Address of the handles.
    #[inline]
    pub fn address(&mut self) -> *mut usize {
        self.slice().as_mut_ptr()
    }

    /// Stores the handles back, by `to`.
    ///
    /// # Safety
    /// `values` is valid for writes of as many handles as were read.
    #[inline]
    pub unsafe fn write(&mut self, values: *mut c_int, to: impl Fn(usize) -> c_int) {
        for (index, handle) in self.slice().iter().enumerate() {
            // SAFETY: by this function's contract.
            unsafe { *values.add(index) = to(*handle) };
        }
    }
}

/// An array of LOGICALs for C, 0 or 1 each. Bit 0 tells .TRUE. from .FALSE. with every compiler.
///
/// # Safety
/// `values` is valid for reads of `length` values, or `length` is at most 0.
pub unsafe fn logicals(values: *const c_int, length: c_int) -> Vec<c_int> {
    // SAFETY: by this function's contract.
    (0..usize::try_from(length).unwrap_or(0)).map(|i| unsafe { *values.add(i) } & 1).collect()
}

/// Value of a result that the C function has not stored: no LOGICAL and no index.
pub const UNSET: c_int = c_int::MIN;

/// Index counted from 1; MPI_UNDEFINED stays.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub fn index_from_one(index: c_int) -> c_int {
    if index == UNDEFINED { index } else { index + 1 }
}

/// Counts the indices of completed requests from 1. `length` is MPI_UNDEFINED if there are none.
///
/// # Safety
/// `indices` is valid for reads and writes of `length` indices, if that is positive.
pub unsafe fn indices_from_one(indices: *mut c_int, length: c_int) {
    for index in 0..usize::try_from(length).unwrap_or(0) {
        // SAFETY: by this function's contract.
        unsafe { *indices.add(index) += 1 };
    }
}

/// Stores the error code, unless the caller left `ierror` out.
///
/// # Safety
/// `ierror` is null or valid for writes.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub unsafe fn store_error(ierror: *mut c_int, code: c_int) {
    if !ierror.is_null() {
        // SAFETY: by this function's contract.
        unsafe { *ierror = code };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn handles__few_and_many__are_widened_and_stored_back() {
        for length in [0, 1, FEW, FEW + 1, 100] {
            let values: Vec<c_int> = (0..length as c_int).map(|i| i - 5).collect();
            // SAFETY: addresses and lengths of arrays.
            unsafe {
                let mut all = Handles::read(values.as_ptr(), length as c_int, our_handle);
                let wide = core::slice::from_raw_parts(all.address(), length);
                assert!(wide.iter().zip(&values).all(|(w, v)| *w == *v as u32 as usize));
                let mut back = vec![0; length];
                all.write(back.as_mut_ptr(), our_integer);
                assert_eq!(back, values);
            }
        }
    }

    #[test]
    fn handles__negative_length__are_none() {
        // SAFETY: nothing is read for such a length.
        let mut all = unsafe { Handles::read(core::ptr::null(), -3, our_handle) };
        assert!(all.slice().is_empty());
    }

    #[test]
    fn logicals__of_every_compiler__are_0_or_1() {
        let values = [0, 1, -1, 2];
        // SAFETY: address and length of an array.
        assert_eq!(unsafe { logicals(values.as_ptr(), 4) }, [0, 1, 1, 0]);
    }

    #[test]
    fn indices__count_from_1_and_undefined_stays() {
        assert_eq!((index_from_one(0), index_from_one(UNDEFINED)), (1, UNDEFINED));
        let mut indices = [0, 3, 7];
        // SAFETY: address of an array that has two and more elements.
        unsafe {
            indices_from_one(indices.as_mut_ptr(), 2);
            indices_from_one(indices.as_mut_ptr(), UNDEFINED);
        }
        assert_eq!(indices, [1, 4, 7]);
    }

    #[test]
    fn absent_ierror__is_not_stored() {
        let mut code = 3;
        // SAFETY: a null pointer and the address of a variable.
        unsafe {
            store_error(core::ptr::null_mut(), 9);
            store_error(&mut code, 9);
        }
        assert_eq!(code, 9);
    }
}
