//! The C functions of the standard ABI, as `MPI_X` and as `PMPI_X`.
#![allow(unsafe_code, non_snake_case, non_camel_case_types, missing_docs)]
#![allow(clippy::missing_safety_doc)]

use core::ffi::{c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/ffi.rs"));
