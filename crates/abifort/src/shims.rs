//! The generated entry points: `mpi_x_` and `pmpi_x_`, their other names, and those that take C descriptors.
#![allow(
    unsafe_code,
    non_snake_case,
    non_camel_case_types,
    missing_docs,
    unused_imports,
    unused_unsafe
)]
#![allow(unused_mut, unused_variables, clippy::all, clippy::pedantic)]
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

use crate::section::{self, Descriptor};
use crate::{convert, ffi, refusal, special_addresses, text};
use core::ffi::{c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/shims.rs"));
