//! IEEE binary128 (Fortran's `REAL(16)`) on x86-64, by the arithmetic of the compiler's run-time library: Rust has
//! no stable type of 128 bits. The C interface passes such a number in a vector register.
#![allow(unsafe_code)]

use super::kernel::OperateAt;
use std::arch::asm;
use std::arch::x86_64::__m128i;

/// Bytes of a number.
const SIZE: usize = 16;

/// The functions of the run-time library, only by name: stable Rust cannot declare their types.
mod runtime {
    unsafe extern "C" {
        pub(super) fn __addtf3();
        pub(super) fn __subtf3();
        pub(super) fn __multf3();
        pub(super) fn __gttf2();
    }
}

macro_rules! call {
    ($function:ident($a:expr, $b:expr)) => {{
        let result: __m128i;
        // SAFETY: the function takes its operands in the first two vector registers, returns the number in the
        // first, and keeps to the C interface otherwise; it reads no memory of ours.
        unsafe {
            asm!(
                "call {}",
                sym runtime::$function,
                inlateout("xmm0") $a => result,
                in("xmm1") $b,
                clobber_abi("C")
            );
        }
        result
    }};
}

fn add(a: __m128i, b: __m128i) -> __m128i {
    call!(__addtf3(a, b))
}

fn subtract(a: __m128i, b: __m128i) -> __m128i {
    call!(__subtf3(a, b))
}

fn multiply(a: __m128i, b: __m128i) -> __m128i {
    call!(__multf3(a, b))
}

/// Whether `a > b`; not where one of them is not a number.
fn is_greater(a: __m128i, b: __m128i) -> bool {
    let order: i32;
    // SAFETY: as in `call`; the result is in the integer register: above 0 where greater.
    unsafe {
        asm!(
            "call {}",
            sym runtime::__gttf2,
            in("xmm0") a,
            in("xmm1") b,
            lateout("eax") order,
            clobber_abi("C")
        );
    }
    order > 0
}

/// # Safety
/// The element at `at` is readable.
unsafe fn load(at: *const u8) -> __m128i {
    // SAFETY: the caller's element is readable; no alignment is needed.
    unsafe { at.cast::<__m128i>().read_unaligned() }
}

/// # Safety
/// The element at `at` is writable.
unsafe fn store(at: *mut u8, value: __m128i) {
    // SAFETY: the caller's element is writable; no alignment is needed.
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
    Sum: |a, b| add(a, b);
    /// Product.
    Prod: |a, b| multiply(a, b);
    /// The larger.
    Max: |a, b| if is_greater(a, b) { a } else { b };
    /// The smaller.
    Min: |a, b| if is_greater(b, a) { a } else { b };
}

/// Sum of complex numbers.
pub(super) struct ComplexSum;

impl OperateAt for ComplexSum {
    const STRIDE: usize = 2 * SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: both are the caller's elements, of two numbers each.
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
        // SAFETY: both are the caller's elements, of two numbers each.
        unsafe {
            let (ar, ai, br, bi) =
                (load(left), load(left.add(SIZE)), load(right), load(right.add(SIZE)));
            store(right, subtract(multiply(ar, br), multiply(ai, bi)));
            store(right.add(SIZE), add(multiply(ar, bi), multiply(ai, br)));
        }
    }
}
