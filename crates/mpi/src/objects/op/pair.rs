//! MINLOC and MAXLOC on a value and an index (MPI 5.0, section 6.9.4). If values are equal, the lower index wins.
#![allow(unsafe_code)]

use super::kernel::{Operate, OperateAt};
use std::marker::PhantomData;

/// Pair with the layout of C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueIndex<V, I> {
    pub(super) value: V,
    pub(super) index: I,
}

pub(super) struct MaxLoc;
pub(super) struct MinLoc;

impl<V: Copy + PartialOrd, I: Copy + PartialOrd> Operate<ValueIndex<V, I>> for MaxLoc {
    #[inline(always)] // benchmark: allreduce of 1 MiB
    fn operate(left: ValueIndex<V, I>, right: ValueIndex<V, I>) -> ValueIndex<V, I> {
        let wins =
            left.value > right.value || (left.value == right.value && left.index < right.index);
        if wins { left } else { right }
    }
}

impl<V: Copy + PartialOrd, I: Copy + PartialOrd> Operate<ValueIndex<V, I>> for MinLoc {
    #[inline(always)] // benchmark: allreduce of 1 MiB
    fn operate(left: ValueIndex<V, I>, right: ValueIndex<V, I>) -> ValueIndex<V, I> {
        let wins =
            left.value < right.value || (left.value == right.value && left.index < right.index);
        if wins { left } else { right }
    }
}

/// Comparison of values of a type that Rust lacks.
pub(super) trait CompareAt {
    /// Bytes of a value, a multiple of its alignment.
    const SIZE: usize;
    /// Returns whether the value at `a` is greater, and whether both are equal. Safety: `a` and `b` are readable.
    unsafe fn compare_at(a: *const u8, b: *const u8) -> (bool, bool);
}

/// MAXLOC, or MINLOC if `LESS`, on a value of type `V` followed by a C `int`.
pub(super) struct LocAt<V, const LESS: bool>(PhantomData<V>);

impl<V: CompareAt, const LESS: bool> OperateAt for LocAt<V, LESS> {
    const STRIDE: usize = 2 * V::SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract both pointers point to a pair: a value, and an int at the value's end.
        unsafe {
            let (greater, equal) =
                if LESS { V::compare_at(right, left) } else { V::compare_at(left, right) };
            let a = left.add(V::SIZE).cast::<i32>().read_unaligned();
            let b = right.add(V::SIZE).cast::<i32>().read_unaligned();
            if greater || (equal && a < b) {
                std::ptr::copy_nonoverlapping(left, right, V::SIZE + size_of::<i32>());
            }
        }
    }
}
