//! MINLOC and MAXLOC on a value and an index (MPI 5.0, section 6.9.4). Of equal values the lower index wins.
#![allow(unsafe_code)]

use super::kernel::{Operate, OperateAt};
use std::marker::PhantomData;

/// A pair as C lays it out.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueIndex<V, I> {
    pub(super) value: V,
    pub(super) index: I,
}

/// The pair with the larger value.
pub(super) struct MaxLoc;
/// The pair with the smaller value.
pub(super) struct MinLoc;

impl<V: Copy + PartialOrd, I: Copy + PartialOrd> Operate<ValueIndex<V, I>> for MaxLoc {
    #[inline(always)] // As the loop around it: `combine_each`.
    fn operate(left: ValueIndex<V, I>, right: ValueIndex<V, I>) -> ValueIndex<V, I> {
        let wins =
            left.value > right.value || (left.value == right.value && left.index < right.index);
        if wins { left } else { right }
    }
}

impl<V: Copy + PartialOrd, I: Copy + PartialOrd> Operate<ValueIndex<V, I>> for MinLoc {
    #[inline(always)] // As the loop around it: `combine_each`.
    fn operate(left: ValueIndex<V, I>, right: ValueIndex<V, I>) -> ValueIndex<V, I> {
        let wins =
            left.value < right.value || (left.value == right.value && left.index < right.index);
        if wins { left } else { right }
    }
}

/// How two values of a type that Rust has not compare.
pub(super) trait CompareAt {
    /// Bytes of a value, a multiple of its alignment.
    const SIZE: usize;
    /// Whether the first is greater, and whether they are equal.
    ///
    /// # Safety
    /// Both point to readable values.
    unsafe fn compare_at(a: *const u8, b: *const u8) -> (bool, bool);
}

/// MAXLOC, or MINLOC where `LESS`, on a value of type `V` and a C `int` behind it.
pub(super) struct LocAt<V, const LESS: bool>(PhantomData<V>);

impl<V: CompareAt, const LESS: bool> OperateAt for LocAt<V, LESS> {
    const STRIDE: usize = 2 * V::SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract both point to a pair: a value, and an int at the value's end.
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
