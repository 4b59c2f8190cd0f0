//! The Fortran procedures of MPI 5.0 (chapter 19), derived from the C functions by the rules of `table/fortran.txt`.

mod interface;
mod rules;
mod shims;

pub use interface::{
    Argument, ArgumentKind, Array, ElementCount, IntegerKind, Intent, Interface, interfaces,
};
pub use shims::{VERSION_SCRIPT, emit_shims};
