//! Loops that combine two arrays element by element, written so that the compiler makes vectors of them.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Combines `count` elements: `inout = left op inout`. The arrays do not overlap and may lie at any address, in memory
/// that peers write to as well: each element that they write at that time is lost or combined.
pub type Kernel = unsafe fn(left: *const u8, inout: *mut u8, count: usize);

/// An operation on two values.
pub(super) trait Operate<T> {
    /// `left op right`.
    fn operate(left: T, right: T) -> T;
}

/// The kernel of an operation on elements of `T`.
pub(super) fn kernel<T: Copy, O: Operate<T>>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return combine_wide::<T, O>;
    }
    combine::<T, O>
}

/// # Safety
/// As [`Kernel`] says; elements are those of `T`.
unsafe fn combine<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the arrays are those of a `Kernel` of `T`, as the caller promises.
    unsafe { combine_each::<T, O>(left, inout, count) }
}

/// The same loop with vectors of 32 bytes. No fused arithmetic, so that the results are the same.
///
/// # Safety
/// As [`Kernel`] says; elements are those of `T`; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn combine_wide<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the arrays are those of a `Kernel` of `T`, as the caller promises.
    unsafe { combine_each::<T, O>(left, inout, count) }
}

/// # Safety
/// As [`Kernel`] says; elements are those of `T`.
// Inlined always: it has to be compiled with its caller's processor features (benchmark: allreduce of 1 MiB).
#[inline(always)]
unsafe fn combine_each<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    let (left, inout) = (left.cast::<T>(), inout.cast::<T>());
    for i in 0..count {
        // SAFETY: by contract both hold `count` elements, at any address, and do not overlap. They are read and written
        // by their addresses, never through references: a peer may write to a window while the loop runs.
        unsafe {
            let right = inout.add(i);
            right.write_unaligned(O::operate(left.add(i).read_unaligned(), right.read_unaligned()));
        }
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident;)*) => { $($(#[$doc])* pub(super) struct $name;)* };
}

operations! {
    /// The larger.
    Max;
    /// The smaller.
    Min;
    /// The sum; integers wrap around.
    Sum;
    /// The product; integers wrap around.
    Prod;
    /// Bitwise and.
    Band;
    /// Bitwise or.
    Bor;
    /// Bitwise exclusive or.
    Bxor;
    /// Logical and; true is 1.
    Land;
    /// Logical or; true is 1.
    Lor;
    /// Logical exclusive or; true is 1.
    Lxor;
    /// Logical and, true as an operand has it: compilers differ in what true is, none in that 0 is false.
    LandKeep;
    /// Logical or, true as an operand has it.
    LorKeep;
    /// Logical exclusive or, true as an operand has it.
    LxorKeep;
    /// The left operand.
    Replace;
}

impl<T> Operate<T> for Replace {
    #[inline(always)] // As `combine_each`.
    fn operate(left: T, _: T) -> T {
        left
    }
}

/// The kernel that leaves everything as it is.
pub(super) fn leave(_: *const u8, _: *mut u8, _: usize) {}

macro_rules! implement {
    ($op:ident, $($type:ty),*: |$a:ident, $b:ident| $body:expr) => {
        $(impl Operate<$type> for $op {
            #[inline(always)] // As `combine_each`.
            fn operate($a: $type, $b: $type) -> $type {
                $body
            }
        })*
    };
}

macro_rules! implement_integers {
    ($($type:ty),*) => { $(
        implement!(Max, $type: |a, b| if a > b { a } else { b });
        implement!(Min, $type: |a, b| if a < b { a } else { b });
        implement!(Sum, $type: |a, b| a.wrapping_add(b));
        implement!(Prod, $type: |a, b| a.wrapping_mul(b));
        implement!(Band, $type: |a, b| a & b);
        implement!(Bor, $type: |a, b| a | b);
        implement!(Bxor, $type: |a, b| a ^ b);
        implement!(Land, $type: |a, b| (a != 0 && b != 0) as $type);
        implement!(Lor, $type: |a, b| (a | b != 0) as $type);
        implement!(Lxor, $type: |a, b| ((a != 0) != (b != 0)) as $type);
        implement!(LandKeep, $type: |a, b| if a != 0 { b } else { 0 });
        implement!(LorKeep, $type: |a, b| if a != 0 { a } else { b });
        implement!(LxorKeep, $type: |a, b| if a == 0 { b } else if b == 0 { a } else { 0 });
    )* };
}

implement_integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

implement!(Max, f32, f64: |a, b| if a > b { a } else { b });
implement!(Min, f32, f64: |a, b| if a < b { a } else { b });
implement!(Sum, f32, f64: |a, b| a + b);
implement!(Prod, f32, f64: |a, b| a * b);

/// A complex number in memory: real and imaginary part.
pub(super) type Complex<T> = [T; 2];

implement!(Sum, Complex<f32>, Complex<f64>: |a, b| [a[0] + b[0], a[1] + b[1]]);
implement!(Prod, Complex<f32>, Complex<f64>: |a, b| [
    a[0] * b[0] - a[1] * b[1],
    a[0] * b[1] + a[1] * b[0],
]);

/// Elements of a type that is handled as its bytes, by an operation on pointers.
pub(super) trait OperateAt {
    /// Bytes from one element to the next.
    const STRIDE: usize;
    /// `right = left op right`.
    ///
    /// # Safety
    /// `left` points to a readable and `right` to a writable element; they do not overlap.
    unsafe fn operate_at(left: *const u8, right: *mut u8);
}

/// A kernel that goes from element to element.
pub(super) struct Each<O>(PhantomData<O>);

impl<O: OperateAt> Each<O> {
    /// # Safety
    /// As [`Kernel`] says; elements lie `O::STRIDE` bytes apart.
    pub(super) unsafe fn combine(left: *const u8, inout: *mut u8, count: usize) {
        for i in 0..count {
            // SAFETY: element `i` of `count` lies inside both arrays.
            unsafe { O::operate_at(left.add(i * O::STRIDE), inout.add(i * O::STRIDE)) };
        }
    }
}
