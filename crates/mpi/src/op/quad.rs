//! IEEE binary128 (Fortran's `REAL(16)`) on x86-64, by the arithmetic of the compiler's run-time library: Rust has
//! no stable type of 128 bits. The C interface passes such a number in a vector register.
#![allow(unsafe_code)]

use super::kernel::OperateAt;
use std::arch::x86_64::__m128i;

/// Bytes of a number.
const SIZE: usize = 16;

unsafe extern "C" {
    safe fn __addtf3(a: __m128i, b: __m128i) -> __m128i;
    safe fn __subtf3(a: __m128i, b: __m128i) -> __m128i;
    safe fn __multf3(a: __m128i, b: __m128i) -> __m128i;
    /// Above 0 where `a > b`; not where one of them is not a number.
    safe fn __gttf2(a: __m128i, b: __m128i) -> i32;
}

/// # Safety
/// The element at `at` is readable.
unsafe fn load(at: *const u8) -> __m128i {
    // SAFETY: by contract; no alignment is asked.
    unsafe { at.cast::<__m128i>().read_unaligned() }
}

/// # Safety
/// The element at `at` is writable.
unsafe fn store(at: *mut u8, value: __m128i) {
    // SAFETY: by contract; no alignment is asked.
    unsafe { at.cast::<__m128i>().write_unaligned(value) }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: |$a:ident, $b:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        pub(super) struct $name;

        impl OperateAt for $name {
            const STRIDE: usize = SIZE;

            unsafe fn operate_at(left: *const u8, right: *mut u8) {
                // SAFETY: by contract `left` is a readable and `right` a writable element.
                unsafe {
                    let ($a, $b) = (load(left), load(right));
                    store(right, $body);
                }
            }
        }
    )* };
}

operations! {
    /// Sum.
    Sum: |a, b| __addtf3(a, b);
    /// Product.
    Prod: |a, b| __multf3(a, b);
    /// The larger.
    Max: |a, b| if __gttf2(a, b) > 0 { a } else { b };
    /// The smaller.
    Min: |a, b| if __gttf2(b, a) > 0 { a } else { b };
}

/// Sum of complex numbers.
pub(super) struct ComplexSum;

impl OperateAt for ComplexSum {
    const STRIDE: usize = 2 * SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract both are elements of two numbers.
        unsafe {
            Sum::operate_at(left, right);
            Sum::operate_at(left.add(SIZE), right.add(SIZE));
        }
    }
}

/// Product of complex numbers.
pub(super) struct ComplexProd;

impl OperateAt for ComplexProd {
    const STRIDE: usize = 2 * SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract both are elements of two numbers.
        unsafe {
            let (ar, ai, br, bi) = (load(left), load(left.add(SIZE)), load(right), load(right.add(SIZE)));
            store(right, __subtf3(__multf3(ar, br), __multf3(ai, bi)));
            store(right.add(SIZE), __addtf3(__multf3(ar, bi), __multf3(ai, br)));
        }
    }
}
