//! `long double` of x86-64: the 80-bit format of the x87 unit in 16 bytes. The 6 bytes of padding are not changed. Rust
//! has no such type, so the code uses x87 instructions.
#![allow(unsafe_code)]

use super::kernel::OperateAt;
use super::pair::CompareAt;
use std::arch::asm;

const SIZE: usize = 16;

/// Runs x87 instructions on the operands at `{a}` and `{b}`. The register stack is empty before and after.
macro_rules! x87 {
    ($a:expr, $b:expr, $($line:literal),*) => {
        asm!(
            $($line,)*
            a = in(reg) $a,
            b = in(reg) $b,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack)
        )
    };
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident, $stride:expr, [$($line:literal),*];)*) => { $(
        $(#[$doc])*
        pub(super) struct $name;

        impl OperateAt for $name {
            const STRIDE: usize = $stride;

            unsafe fn operate_at(left: *const u8, right: *mut u8) {
                // SAFETY: by contract `left` is a readable and `right` a writable element. The instructions load from
                // both, store to `right`, and leave the register stack empty.
                unsafe { x87!(left, right, $($line),*) }
            }
        }
    )* };
}

operations! {
    Sum, SIZE, ["fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "faddp st(1), st", "fstp tbyte ptr \
        [{b}]"];
    Prod, SIZE, ["fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "fmulp st(1), st", "fstp tbyte ptr \
        [{b}]"];
    ComplexSum, 2 * SIZE, [
        "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "faddp st(1), st", "fstp tbyte ptr [{b}]",
        "fld tbyte ptr [{a} + 16]", "fld tbyte ptr [{b} + 16]", "faddp st(1), st",
            "fstp tbyte ptr [{b} + 16]"
    ];
    // Both parts of the product are computed before either part is stored: ar*br and ai*bi, then ar*bi and ai*br.
    ComplexProd, 2 * SIZE, [
        "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "fmulp st(1), st",
        "fld tbyte ptr [{a} + 16]", "fld tbyte ptr [{b} + 16]", "fmulp st(1), st",
        "fsubp st(1), st",
        "fld tbyte ptr [{a}]", "fld tbyte ptr [{b} + 16]", "fmulp st(1), st",
        "fld tbyte ptr [{a} + 16]", "fld tbyte ptr [{b}]", "fmulp st(1), st",
        "faddp st(1), st",
        "fstp tbyte ptr [{b} + 16]", "fstp tbyte ptr [{b}]"
    ];
}

pub(super) struct LongDouble;

impl CompareAt for LongDouble {
    const SIZE: usize = SIZE;

    unsafe fn compare_at(a: *const u8, b: *const u8) -> (bool, bool) {
        let (above, equal, unordered): (u8, u8, u8);
        // SAFETY: by contract both values are readable, and the instructions leave the register stack empty.
        unsafe {
            asm!(
                "fld tbyte ptr [{b}]",
                "fld tbyte ptr [{a}]",
                "fucomip st, st(1)",
                "seta {above}",
                "sete {equal}",
                "setp {unordered}",
                "fstp st(0)",
                a = in(reg) a,
                b = in(reg) b,
                above = out(reg_byte) above,
                equal = out(reg_byte) equal,
                unordered = out(reg_byte) unordered,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly)
            );
        }
        (above == 1, equal == 1 && unordered == 0)
    }
}

/// Maximum of both operands, or their minimum if `LESS`.
pub(super) struct Extreme<const LESS: bool>;

impl<const LESS: bool> OperateAt for Extreme<LESS> {
    const STRIDE: usize = SIZE;

    unsafe fn operate_at(left: *const u8, right: *mut u8) {
        // SAFETY: by contract `left` is a readable and `right` a writable element.
        unsafe {
            let (greater, _) = if LESS {
                LongDouble::compare_at(right, left)
            } else {
                LongDouble::compare_at(left, right)
            };
            if greater {
                std::ptr::copy_nonoverlapping(left, right, SIZE);
            }
        }
    }
}
