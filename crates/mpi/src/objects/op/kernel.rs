//! Loops that combine two arrays element by element, in a form that the compiler vectorises.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Combines `count` elements: `inout = left op inout`. The arrays do not overlap, and may have any alignment. Peers may
/// write to the memory during the call; the value that a peer writes is then either lost or combined.
pub type Kernel = unsafe fn(left: *const u8, inout: *mut u8, count: usize);

pub(super) trait Operate<T> {
    /// Returns `left op right`.
    fn operate(left: T, right: T) -> T;
}

pub(super) fn kernel<T: Copy, O: Operate<T>>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return combine_wide::<T, O>;
    }
    combine::<T, O>
}

/// Combines with the instructions that all processors have. Safety: see [`Kernel`], for elements of `T`.
unsafe fn combine<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller promises arrays of a `Kernel` of `T`.
    unsafe { combine_each::<T, O>(left, inout, count) }
}

/// Combines with vectors of 32 bytes. Fused arithmetic is not used, so that the results equal those of `combine`.
/// Safety: see [`Kernel`], for elements of `T`. The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn combine_wide<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller promises arrays of a `Kernel` of `T`.
    unsafe { combine_each::<T, O>(left, inout, count) }
}

/// Combines element by element. Safety: see [`Kernel`], for elements of `T`.
// Always inlined, so that it is compiled for its caller's processor features (benchmark: allreduce of 1 MiB).
#[inline(always)]
unsafe fn combine_each<T: Copy, O: Operate<T>>(left: *const u8, inout: *mut u8, count: usize) {
    let (left, inout) = (left.cast::<T>(), inout.cast::<T>());
    for i in 0..count {
        // SAFETY: by contract both arrays hold `count` elements, at any address, without overlap. They are accessed by
        // address and never by reference, because a peer may write to a window while the loop runs.
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
    Max;
    Min;
    /// The sum; integers wrap around.
    Sum;
    /// The product; integers wrap around.
    Prod;
    Band;
    Bor;
    Bxor;
    /// Logical and; true is 1.
    Land;
    /// Logical or; true is 1.
    Lor;
    /// Logical exclusive or; true is 1.
    Lxor;
    /// Logical and. True keeps the operand's value, because compilers differ in the value of true; false is always 0.
    LandKeep;
    /// Logical or. True keeps the operand's value.
    LorKeep;
    /// Logical exclusive or. True keeps the operand's value.
    LxorKeep;
    Replace;
}

impl<T> Operate<T> for Replace {
    #[inline(always)] // benchmark: allreduce of 1 MiB
    fn operate(left: T, _: T) -> T {
        left
    }
}

/// Kernel that changes nothing.
pub(super) fn leave(_: *const u8, _: *mut u8, _: usize) {}

macro_rules! implement {
    ($op:ident, $($type:ty),*: |$a:ident, $b:ident| $body:expr) => {
        $(impl Operate<$type> for $op {
            #[inline(always)] // benchmark: allreduce of 1 MiB
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

pub(super) type Complex<T> = [T; 2];

implement!(Sum, Complex<f32>, Complex<f64>: |a, b| [a[0] + b[0], a[1] + b[1]]);
implement!(Prod, Complex<f32>, Complex<f64>: |a, b| [
    a[0] * b[0] - a[1] * b[1],
    a[0] * b[1] + a[1] * b[0],
]);

/// Operation that accesses its operands through pointers, for a type that Rust lacks.
pub(super) trait OperateAt {
    /// Bytes from one element to the next.
    const STRIDE: usize;
    /// Computes `right = left op right`. Safety: `left` points to a readable and `right` to a writable element; they do
    /// not overlap.
    unsafe fn operate_at(left: *const u8, right: *mut u8);
}

/// Kernel that calls an operation for each element.
pub(super) struct ElementKernel<O>(PhantomData<O>);

impl<O: OperateAt> ElementKernel<O> {
    /// Combines elements that lie `O::STRIDE` bytes apart. Safety: see [`Kernel`].
    pub(super) unsafe fn combine(left: *const u8, inout: *mut u8, count: usize) {
        for i in 0..count {
            // SAFETY: element `i` of `count` is inside both arrays.
            unsafe { O::operate_at(left.add(i * O::STRIDE), inout.add(i * O::STRIDE)) };
        }
    }
}
