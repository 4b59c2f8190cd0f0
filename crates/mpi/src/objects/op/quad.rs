//! IEEE binary128 (Fortran's `REAL(16)`) on x86-64, by the compiler's run-time library, since Rust has no stable
//! 128-bit type. The C interface passes such a number in a vector register.
#![allow(unsafe_code)]

use super::kernel::OperateAt;
use std::arch::asm;
use std::arch::x86_64::__m128i;

const SIZE: usize = 16;

/// Functions of the run-time library. Only their addresses are used, because stable Rust cannot declare their types.
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
        // SAFETY: the function takes its operands in the first two vector registers and returns the number in the
        // first. Otherwise it follows the C interface. It reads no memory of the caller.
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

/// Returns whether `a > b`; false if one is NaN.
fn is_greater(a: __m128i, b: __m128i) -> bool {
    let order: i32;
    // SAFETY: the function takes its operands in the first two vector registers and returns an integer in `eax`, above
    // 0 for greater. Otherwise it follows the C interface. It reads no memory of the caller.
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

/// Loads the number at `at`, of any alignment. Safety: the 16 bytes there are readable.
unsafe fn load(at: *const u8) -> __m128i {
    // SAFETY: the caller's element is readable; no alignment is needed.
    unsafe { at.cast::<__m128i>().read_unaligned() }
}

/// Stores a number at `at`, of any alignment. Safety: the 16 bytes there are writable.
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
    Sum: |a, b| add(a, b);
    Prod: |a, b| multiply(a, b);
    Max: |a, b| if is_greater(a, b) { a } else { b };
    Min: |a, b| if is_greater(b, a) { a } else { b };
}

pub(super) struct ComplexSum;

impl OperateAt for ComplexSum {
    const STRIDE: usize = 2 * SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract each operand consists of two numbers, `left` readable and `right` writable.
        unsafe {
            Sum::operate_at(left, right);
            Sum::operate_at(left.add(SIZE), right.add(SIZE));
        }
    }
}

pub(super) struct ComplexProd;

impl OperateAt for ComplexProd {
    const STRIDE: usize = 2 * SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract each operand consists of two numbers, `left` readable and `right` writable.
        unsafe {
            let (ar, ai, br, bi) =
                (load(left), load(left.add(SIZE)), load(right), load(right.add(SIZE)));
            store(right, subtract(multiply(ar, br), multiply(ai, bi)));
            store(right.add(SIZE), add(multiply(ar, bi), multiply(ai, br)));
        }
    }
}
