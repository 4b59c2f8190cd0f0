//! The Fortran procedures of MPI 5.0 (chapter 19), derived from the C functions by the rules of `table/fortran.txt`,
//! and the texts generated from them: `mpif.h`, `mpif-ext.h` and the sources of five modules.
//!
//! The texts contain declarations only. A program refers to symbols of `libmpifort_abi` and needs no module object.

mod callbacks;
mod constants;
mod conversions;
mod extensions;
mod ffi;
mod include;
mod interface;
mod modules;
mod procedure;
mod rules;
mod sections;
mod shim;
mod shims;
mod types;
mod wrap;

pub use extensions::{emit_include_extensions, emit_mpi_ext, emit_mpi_f08_ext};
pub use ffi::emit_ffi;
pub use include::emit_include;
pub use interface::{
    Argument, ArgumentKind, Array, ElementCount, IntegerKind, Intent, Interface, interfaces,
};
pub use modules::{emit_mpi, emit_mpi_f08};
pub use procedure::BufferForm;
pub use shims::{VERSION_SCRIPT, emit_shims};
pub use types::emit_types;
