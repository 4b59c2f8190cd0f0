//! Kernels of predefined operations on predefined datatypes (MPI 5.0, section 6.9.2).
//!
//! Two extensions, which other libraries have too: logical operations apply to Fortran integers and address types, and
//! `MPI_CHAR` counts as the C type `char`.

use super::builtin::Builtin;
use super::kernel::*;
use super::pair::{self, ValueIndex};
use crate::common::consts::MPI_CHAR;
use crate::objects::datatype::{Basic, BasicKind};

/// Returns whether the standard or an extension defines the operation for the type.
pub(super) fn is_defined(op: Builtin, basic: Basic) -> bool {
    use Builtin::{MaxLoc, MinLoc};
    let (logical, bitwise) = (is_logical(op), is_bitwise(op));
    let arithmetic = matches!(op, Builtin::Max | Builtin::Min | Builtin::Sum | Builtin::Prod);
    if matches!(op, Builtin::Replace | Builtin::NoOp) {
        return basic.is_supported();
    }
    match basic.kind {
        BasicKind::Signed | BasicKind::Unsigned | BasicKind::Address => {
            logical || bitwise || arithmetic
        }
        BasicKind::Character => {
            usize::from(basic.handle) == MPI_CHAR && (logical || bitwise || arithmetic)
        }
        BasicKind::Float | BasicKind::LongDouble => arithmetic,
        BasicKind::Complex | BasicKind::LongComplex => matches!(op, Builtin::Sum | Builtin::Prod),
        BasicKind::Logical => logical,
        BasicKind::Byte => bitwise,
        BasicKind::Packed => false,
        BasicKind::Pair => matches!(op, MaxLoc | MinLoc),
    }
}

fn is_logical(op: Builtin) -> bool {
    matches!(op, Builtin::Land | Builtin::Lor | Builtin::Lxor)
}

fn is_bitwise(op: Builtin) -> bool {
    matches!(op, Builtin::Band | Builtin::Bor | Builtin::Bxor)
}

pub(super) fn find_kernel(op: Builtin, basic: Basic) -> Option<Kernel> {
    if matches!(op, Builtin::Replace | Builtin::NoOp) {
        return find_mover(op, basic);
    }
    match (basic.kind, basic.size) {
        (BasicKind::Signed, 4) => integer::<i32>(op),
        (BasicKind::Signed | BasicKind::Address, 8) => integer::<i64>(op),
        (BasicKind::Float, 8) => float::<f64>(op),
        (BasicKind::Float, 4) => float::<f32>(op),
        (BasicKind::Signed, 1) => integer::<i8>(op),
        (BasicKind::Signed, 2) => integer::<i16>(op),
        (BasicKind::Signed, 16) => integer::<i128>(op),
        (BasicKind::Unsigned, 1) => integer::<u8>(op),
        (BasicKind::Unsigned, 2) => integer::<u16>(op),
        (BasicKind::Unsigned, 4) => integer::<u32>(op),
        (BasicKind::Unsigned, 8) => integer::<u64>(op),
        (BasicKind::Complex, 8) => complex::<Complex<f32>>(op),
        (BasicKind::Complex, 16) => complex::<Complex<f64>>(op),
        (BasicKind::Logical, 1) => logical::<u8>(op),
        (BasicKind::Logical, 2) => logical::<i16>(op),
        (BasicKind::Logical, 4) => logical::<i32>(op),
        (BasicKind::Logical, 8) => logical::<i64>(op),
        (BasicKind::Logical, 16) => logical::<i128>(op),
        (BasicKind::Byte, 1) if is_bitwise(op) => integer::<u8>(op),
        (BasicKind::Character, 1) if usize::from(basic.handle) == MPI_CHAR => {
            integer::<std::ffi::c_char>(op)
        }
        (BasicKind::Pair, _) => find_pair(op, basic),
        _ => find_extended(op, basic),
    }
}

fn integer<T: Copy>(op: Builtin) -> Option<Kernel>
where
    Max: Operate<T>,
    Min: Operate<T>,
    Sum: Operate<T>,
    Prod: Operate<T>,
    Band: Operate<T>,
    Bor: Operate<T>,
    Bxor: Operate<T>,
    Land: Operate<T>,
    Lor: Operate<T>,
    Lxor: Operate<T>,
{
    Some(match op {
        Builtin::Max => kernel::<T, Max>(),
        Builtin::Min => kernel::<T, Min>(),
        Builtin::Sum => kernel::<T, Sum>(),
        Builtin::Prod => kernel::<T, Prod>(),
        Builtin::Band => kernel::<T, Band>(),
        Builtin::Bor => kernel::<T, Bor>(),
        Builtin::Bxor => kernel::<T, Bxor>(),
        Builtin::Land => kernel::<T, Land>(),
        Builtin::Lor => kernel::<T, Lor>(),
        Builtin::Lxor => kernel::<T, Lxor>(),
        _ => return None,
    })
}

fn float<T: Copy>(op: Builtin) -> Option<Kernel>
where
    Max: Operate<T>,
    Min: Operate<T>,
    Sum: Operate<T>,
    Prod: Operate<T>,
{
    Some(match op {
        Builtin::Max => kernel::<T, Max>(),
        Builtin::Min => kernel::<T, Min>(),
        Builtin::Sum => kernel::<T, Sum>(),
        Builtin::Prod => kernel::<T, Prod>(),
        _ => return None,
    })
}

fn complex<T: Copy>(op: Builtin) -> Option<Kernel>
where
    Sum: Operate<T>,
    Prod: Operate<T>,
{
    Some(match op {
        Builtin::Sum => kernel::<T, Sum>(),
        Builtin::Prod => kernel::<T, Prod>(),
        _ => return None,
    })
}

fn logical<T: Copy>(op: Builtin) -> Option<Kernel>
where
    LandKeep: Operate<T>,
    LorKeep: Operate<T>,
    LxorKeep: Operate<T>,
{
    Some(match op {
        Builtin::Land => kernel::<T, LandKeep>(),
        Builtin::Lor => kernel::<T, LorKeep>(),
        Builtin::Lxor => kernel::<T, LxorKeep>(),
        _ => return None,
    })
}

fn loc<V: Copy + PartialOrd, I: Copy + PartialOrd>(op: Builtin) -> Option<Kernel> {
    Some(match op {
        Builtin::MaxLoc => kernel::<ValueIndex<V, I>, pair::MaxLoc>(),
        Builtin::MinLoc => kernel::<ValueIndex<V, I>, pair::MinLoc>(),
        _ => return None,
    })
}

fn find_pair(op: Builtin, basic: Basic) -> Option<Kernel> {
    let (value, index) = basic.pair_parts()?;
    match (value.kind, value.size, index.kind, index.size) {
        (BasicKind::Float, 4, BasicKind::Signed, 4) => loc::<f32, i32>(op),
        (BasicKind::Float, 8, BasicKind::Signed, 4) => loc::<f64, i32>(op),
        (BasicKind::Signed, 2, BasicKind::Signed, 4) => loc::<i16, i32>(op),
        (BasicKind::Signed, 4, BasicKind::Signed, 4) => loc::<i32, i32>(op),
        (BasicKind::Signed, 8, BasicKind::Signed, 4) => loc::<i64, i32>(op),
        (BasicKind::Float, 4, BasicKind::Float, 4) => loc::<f32, f32>(op),
        (BasicKind::Float, 8, BasicKind::Float, 8) => loc::<f64, f64>(op),
        _ => find_extended(op, basic),
    }
}

/// Returns the kernel of `MPI_REPLACE`, which copies elements with their gaps, or of `MPI_NO_OP`.
fn find_mover(op: Builtin, basic: Basic) -> Option<Kernel> {
    if op == Builtin::NoOp {
        return Some(leave);
    }
    Some(match (basic.kind, basic.size) {
        // For pairs, the size is the extent of the C structure.
        (BasicKind::Pair, 6) | (_, 8) => kernel::<[u8; 8], Replace>(),
        (BasicKind::Pair, 12) | (_, 16) => kernel::<[u8; 16], Replace>(),
        (BasicKind::Pair, 20) | (_, 32) => kernel::<[u8; 32], Replace>(),
        (_, 1) => kernel::<[u8; 1], Replace>(),
        (_, 2) => kernel::<[u8; 2], Replace>(),
        (_, 4) => kernel::<[u8; 4], Replace>(),
        _ => return None,
    })
}

/// Returns the kernel for a type without an equivalent in Rust.
#[cfg(target_arch = "x86_64")]
fn find_extended(op: Builtin, basic: Basic) -> Option<Kernel> {
    use super::{quad, x87};
    use pair::LocAt;
    Some(match (basic.kind, basic.size, op) {
        (BasicKind::LongDouble, _, Builtin::Sum) => ElementKernel::<x87::Sum>::combine,
        (BasicKind::LongDouble, _, Builtin::Prod) => ElementKernel::<x87::Prod>::combine,
        (BasicKind::LongDouble, _, Builtin::Max) => ElementKernel::<x87::Extreme<false>>::combine,
        (BasicKind::LongDouble, _, Builtin::Min) => ElementKernel::<x87::Extreme<true>>::combine,
        (BasicKind::LongComplex, _, Builtin::Sum) => ElementKernel::<x87::ComplexSum>::combine,
        (BasicKind::LongComplex, _, Builtin::Prod) => ElementKernel::<x87::ComplexProd>::combine,
        (BasicKind::Pair, 20, Builtin::MaxLoc) => {
            ElementKernel::<LocAt<x87::LongDouble, false>>::combine
        }
        (BasicKind::Pair, 20, Builtin::MinLoc) => {
            ElementKernel::<LocAt<x87::LongDouble, true>>::combine
        }
        (BasicKind::Float, 16, Builtin::Sum) => ElementKernel::<quad::Sum>::combine,
        (BasicKind::Float, 16, Builtin::Prod) => ElementKernel::<quad::Prod>::combine,
        (BasicKind::Float, 16, Builtin::Max) => ElementKernel::<quad::Max>::combine,
        (BasicKind::Float, 16, Builtin::Min) => ElementKernel::<quad::Min>::combine,
        (BasicKind::Complex, 32, Builtin::Sum) => ElementKernel::<quad::ComplexSum>::combine,
        (BasicKind::Complex, 32, Builtin::Prod) => ElementKernel::<quad::ComplexProd>::combine,
        _ => return None,
    })
}

/// Returns `None`: types without an equivalent in Rust have no kernel on this processor.
#[cfg(not(target_arch = "x86_64"))]
fn find_extended(_: Builtin, _: Basic) -> Option<Kernel> {
    None
}
