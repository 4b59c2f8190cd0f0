#![allow(non_snake_case)]

use super::*;
use crate::common::consts::*;
use crate::objects::datatype::{Basic, BasicKind};
use proptest::prelude::*;

fn basic(handle: usize) -> Basic {
    Basic::from_handle(handle).unwrap()
}

/// Runs `builtin` on two byte arrays, `shift` bytes off alignment, and returns the result.
fn run(builtin: Builtin, handle: usize, left: &[u8], right: &[u8], shift: usize) -> Vec<u8> {
    let datatype = Datatype::named(basic(handle));
    let reducer = Op::builtin(builtin).reducer(&datatype, handle).unwrap();
    let extent = datatype.layout().extent() as usize;
    assert_eq!((left.len(), left.len() % extent), (right.len(), 0));
    let (mut a, mut b) = (vec![0xee; shift], vec![0xee; shift]);
    a.extend_from_slice(left);
    b.extend_from_slice(right);
    // The guard after the data detects writes beyond it.
    b.extend_from_slice(&[0x5a; 64]);
    // SAFETY: both arrays hold the elements at `shift`.
    unsafe {
        reducer.apply(
            a.as_ptr().add(shift),
            b.as_mut_ptr().add(shift),
            (left.len() / extent) as u64,
        )
    };
    assert!(
        b[..shift].iter().all(|&x| x == 0xee) && b[shift + left.len()..].iter().all(|&x| x == 0x5a)
    );
    b[shift..shift + left.len()].to_vec()
}

#[test]
fn kernel__exists_for_every_defined_combination() {
    for builtin in Builtin::ALL {
        for basic in Basic::all().filter(|b| b.is_supported()) {
            let found = lookup::find_kernel(builtin, basic).is_some();
            let defined = lookup::is_defined(builtin, basic);
            assert!(!found || defined, "{} {}", builtin.name(), basic.name);
            if cfg!(target_arch = "x86_64") {
                assert_eq!(found, defined, "{} {}", builtin.name(), basic.name);
            }
        }
    }
}

#[test]
fn combination__outside_the_standard_is_refused() {
    let refused = [
        (Builtin::Sum, MPI_BYTE),
        (Builtin::Band, MPI_DOUBLE),
        (Builtin::Land, MPI_FLOAT),
        (Builtin::Max, MPI_C_DOUBLE_COMPLEX),
        (Builtin::MaxLoc, MPI_INT),
        (Builtin::Sum, MPI_2INT),
        (Builtin::Sum, MPI_LOGICAL),
        (Builtin::Max, MPI_WCHAR),
        (Builtin::Bor, MPI_PACKED),
    ];
    for (builtin, handle) in refused {
        let error =
            Op::builtin(builtin).reducer(&Datatype::named(basic(handle)), handle).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_OP);
        assert!(
            error.message().contains(builtin.name())
                && error.message().contains(basic(handle).name)
        );
    }
    let derived = Datatype::named(basic(MPI_INT)).clone();
    let pair =
        Datatype::contiguous(2, &std::rc::Rc::new(derived), crate::objects::datatype::Form::Small)
            .unwrap();
    let error = Op::builtin(Builtin::Sum).reducer(&pair, 0).unwrap_err();
    assert!(error.code() == MPI_ERR_OP && error.message().contains("derived"));
    let int = Datatype::named(basic(MPI_INT));
    assert!(Op::builtin(Builtin::Replace).reducer(&int, MPI_INT).is_ok());
    assert_eq!(
        Op::builtin(Builtin::Replace).collective_reducer(&int, MPI_INT).unwrap_err().code(),
        MPI_ERR_OP
    );
}

/// Computes an integer operation in 128 bits.
fn naive_integer(builtin: Builtin, a: i128, b: i128) -> i128 {
    let truth = |x: bool| x as i128;
    match builtin {
        Builtin::Max => a.max(b),
        Builtin::Min => a.min(b),
        Builtin::Sum => a.wrapping_add(b),
        Builtin::Prod => a.wrapping_mul(b),
        Builtin::Band => a & b,
        Builtin::Bor => a | b,
        Builtin::Bxor => a ^ b,
        Builtin::Land => truth(a != 0 && b != 0),
        Builtin::Lor => truth(a != 0 || b != 0),
        Builtin::Lxor => truth((a != 0) != (b != 0)),
        _ => unreachable!(),
    }
}

fn widen(kind: BasicKind, bytes: &[u8]) -> i128 {
    let negative = kind != BasicKind::Unsigned && bytes[bytes.len() - 1] >= 0x80;
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

const INTEGER_OPS: [Builtin; 10] = [
    Builtin::Max,
    Builtin::Min,
    Builtin::Sum,
    Builtin::Prod,
    Builtin::Land,
    Builtin::Band,
    Builtin::Lor,
    Builtin::Bor,
    Builtin::Lxor,
    Builtin::Bxor,
];

proptest! {
    #[test]
    fn integers__agree_with_a_naive_loop(
        mut left in proptest::collection::vec(any::<u8>(), 0..1200),
        seed in any::<u8>(),
        shift in 0usize..8,
    ) {
        // Write runs of zero bytes, so that zeros and equal elements occur.
        for (i, byte) in left.iter_mut().enumerate() {
            if (i / 16) % 3 == 0 { *byte = 0 }
        }
        let right: Vec<u8> = left.iter().enumerate()
            .map(|(i, b)| if (i / 16) % 4 == 0 { *b } else { b.wrapping_mul(31) ^ seed }).collect();
        let integers = Basic::all().filter(|b| matches!(b.kind, BasicKind::Signed | BasicKind::Unsigned | BasicKind::Address));
        for basic in integers {
            let size = basic.size as usize;
            let len = left.len() / size * size;
            for builtin in INTEGER_OPS {
                let result = run(builtin, basic.handle.into(), &left[..len], &right[..len], shift);
                for i in (0..len).step_by(size) {
                    let (a, b) = (widen(basic.kind, &left[i..i + size]), widen(basic.kind, &right[i..i + size]));
                    let expected = naive_integer(builtin, a, b).to_le_bytes();
                    prop_assert_eq!(&result[i..i + size], &expected[..size], "{} {}", builtin.name(), basic.name);
                }
            }
        }
    }

    #[test]
    fn floats__agree_with_a_naive_loop(
        left in proptest::collection::vec(-1e3f64..1e3, 0..70),
        shift in 0usize..8,
    ) {
        let right: Vec<f64> = left.iter().rev().map(|x| x * 0.75).collect();
        type Naive = fn(f64, f64) -> f64;
        let cases: [(Builtin, Naive); 4] = [
            (Builtin::Max, f64::max),
            (Builtin::Min, f64::min),
            (Builtin::Sum, |a, b| a + b),
            (Builtin::Prod, |a, b| a * b),
        ];
        for (builtin, naive) in cases {
            let bytes = |v: &[f64]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            let expected: Vec<f64> = left.iter().zip(&right).map(|(a, b)| naive(*a, *b)).collect();
            prop_assert_eq!(run(builtin, MPI_DOUBLE, &bytes(&left), &bytes(&right), shift), bytes(&expected));
            let bytes = |v: &[f64]| v.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<u8>>();
            // Products of two f32 are exact in f64, but sums are rounded once more, so compare in f32.
            let single = |a: &f64, b: &f64| match builtin {
                Builtin::Sum => *a as f32 + *b as f32,
                Builtin::Prod => *a as f32 * *b as f32,
                _ => naive(*a, *b) as f32,
            };
            let expected: Vec<u8> = left.iter().zip(&right).flat_map(|(a, b)| single(a, b).to_le_bytes()).collect();
            prop_assert_eq!(run(builtin, MPI_REAL, &bytes(&left), &bytes(&right), shift), expected);
        }
    }

    #[test]
    fn complex__agrees_with_a_naive_loop(halves in proptest::collection::vec((-99i32..99, -99i32..99), 0..40)) {
        // The numbers are odd, because a zero could have either sign.
        let left: Vec<(i32, i32)> = halves.iter().map(|&(r, i)| (2 * r + 1, 2 * i + 1)).collect();
        let right: Vec<(i32, i32)> = left.iter().rev().map(|&(r, i)| (i - 8, r + 4)).collect();
        for builtin in [Builtin::Sum, Builtin::Prod] {
            // The numbers are small integers, so that every format has the exact result.
            let expected: Vec<(i32, i32)> = left.iter().zip(&right).map(|(&(ar, ai), &(br, bi))| {
                if builtin == Builtin::Sum { (ar + br, ai + bi) } else { (ar * br - ai * bi, ar * bi + ai * br) }
            }).collect();
            for (handle, encode) in formats() {
                let bytes = |v: &[(i32, i32)]| v.iter()
                    .flat_map(|&(r, i)| [encode(r), encode(i)].concat()).collect::<Vec<u8>>();
                let handle = match handle {
                    MPI_FLOAT => MPI_C_FLOAT_COMPLEX,
                    MPI_DOUBLE => MPI_CXX_DOUBLE_COMPLEX,
                    MPI_LONG_DOUBLE => MPI_C_LONG_DOUBLE_COMPLEX,
                    _ => MPI_COMPLEX32,
                };
                prop_assert_eq!(run(builtin, handle, &bytes(&left), &bytes(&right), 8), bytes(&expected));
            }
        }
    }

    #[test]
    fn extended_floats__agree_with_integers(halves in proptest::collection::vec(-4999i32..4999, 0..40)) {
        let left: Vec<i32> = halves.iter().map(|x| 2 * x + 1).collect();
        let right: Vec<i32> = left.iter().enumerate().map(|(i, x)| if i % 3 == 0 { *x } else { 5000 - x }).collect();
        for builtin in [Builtin::Max, Builtin::Min, Builtin::Sum, Builtin::Prod] {
            for (handle, encode) in formats() {
                let bytes = |v: &[i32]| v.iter().flat_map(|x| encode(*x)).collect::<Vec<u8>>();
                let expected: Vec<i32> = left.iter().zip(&right)
                    .map(|(a, b)| naive_integer(builtin, *a as i128, *b as i128) as i32).collect();
                // A float has 24 bits of mantissa, which do not hold every product.
                if handle != MPI_FLOAT || builtin != Builtin::Prod {
                    prop_assert_eq!(run(builtin, handle, &bytes(&left), &bytes(&right), 0), bytes(&expected));
                }
            }
        }
    }

    #[test]
    fn pairs__agree_with_a_naive_loop(values in proptest::collection::vec((-5i32..5, 0i32..9, -5i32..5, 0i32..9), 0..40)) {
        for (handle, encode) in pair_formats() {
            let bytes = |v: &[(i32, i32)]| v.iter().flat_map(|p| encode(p.0, p.1)).collect::<Vec<u8>>();
            let left: Vec<(i32, i32)> = values.iter().map(|v| (v.0, v.1)).collect();
            let right: Vec<(i32, i32)> = values.iter().map(|v| (v.2, v.3)).collect();
            for builtin in [Builtin::MaxLoc, Builtin::MinLoc] {
                let expected: Vec<(i32, i32)> = left.iter().zip(&right).map(|(a, b)| {
                    if builtin == Builtin::MinLoc { *a.min(b) } else { pick_max(a, b) }
                }).collect();
                let result = run(builtin, handle, &bytes(&left), &bytes(&right), 0);
                prop_assert_eq!(result, bytes(&expected), "{} {}", builtin.name(), basic(handle).name);
            }
        }
    }
}

/// Returns the pair with the larger value, or with the lower index if values are equal.
fn pick_max(a: &(i32, i32), b: &(i32, i32)) -> (i32, i32) {
    if (a.0, -a.1) > (b.0, -b.1) { *a } else { *b }
}

type Encode = fn(i32) -> Vec<u8>;

/// Floating-point types with their encoding of an integer.
fn formats() -> Vec<(usize, Encode)> {
    let mut formats: Vec<(usize, Encode)> = vec![
        (MPI_FLOAT, |x| (x as f32).to_le_bytes().to_vec()),
        (MPI_DOUBLE, |x| (x as f64).to_le_bytes().to_vec()),
    ];
    if cfg!(target_arch = "x86_64") {
        formats.push((MPI_LONG_DOUBLE, x87_bytes));
        formats.push((MPI_REAL16, quad_bytes));
    }
    formats
}

/// Encodes an integer as an 80-bit number: sign and exponent (bias 16383), then 64 bits with the leading one.
fn x87_bytes(x: i32) -> Vec<u8> {
    let magnitude = x.unsigned_abs() as u64;
    let mut bytes = vec![0; 16];
    if magnitude != 0 {
        let exponent = 63 - magnitude.leading_zeros() as u16;
        bytes[..8].copy_from_slice(&(magnitude << (63 - exponent)).to_le_bytes());
        let sign = if x < 0 { 0x8000 } else { 0 };
        bytes[8..10].copy_from_slice(&(sign | (16383 + exponent)).to_le_bytes());
    }
    bytes
}

/// Encodes an integer as a 128-bit number: sign, 15 bits of exponent, 112 bits after the leading one.
fn quad_bytes(x: i32) -> Vec<u8> {
    let magnitude = x.unsigned_abs() as u128;
    if magnitude == 0 {
        return vec![0; 16];
    }
    let exponent = 127 - magnitude.leading_zeros();
    let fraction = (magnitude << (112 - exponent)) & ((1 << 112) - 1);
    let sign = if x < 0 { 1u128 << 127 } else { 0 };
    (sign | u128::from(16383 + exponent) << 112 | fraction).to_le_bytes().to_vec()
}

type EncodePair = fn(i32, i32) -> Vec<u8>;

/// Pair types with their encoding of two integers; gaps are 0.
fn pair_formats() -> Vec<(usize, EncodePair)> {
    fn join(value: &[u8], index: i32, extent: usize) -> Vec<u8> {
        let mut bytes = vec![0; extent];
        bytes[..value.len()].copy_from_slice(value);
        let at = value.len().next_multiple_of(4);
        bytes[at..at + 4].copy_from_slice(&index.to_le_bytes());
        bytes
    }
    let mut formats: Vec<(usize, EncodePair)> = vec![
        (MPI_FLOAT_INT, |v, i| join(&(v as f32).to_le_bytes(), i, 8)),
        (MPI_DOUBLE_INT, |v, i| join(&(v as f64).to_le_bytes(), i, 16)),
        (MPI_LONG_INT, |v, i| join(&(v as i64).to_le_bytes(), i, 16)),
        (MPI_2INT, |v, i| join(&v.to_le_bytes(), i, 8)),
        (MPI_SHORT_INT, |v, i| join(&(v as i16).to_le_bytes(), i, 8)),
        (MPI_2INTEGER, |v, i| join(&v.to_le_bytes(), i, 8)),
        (MPI_2REAL, |v, i| [(v as f32).to_le_bytes(), (i as f32).to_le_bytes()].concat()),
        (MPI_2DOUBLE_PRECISION, |v, i| {
            [(v as f64).to_le_bytes(), (i as f64).to_le_bytes()].concat()
        }),
    ];
    if cfg!(target_arch = "x86_64") {
        formats.push((MPI_LONG_DOUBLE_INT, |v, i| join(&x87_bytes(v), i, 32)));
    }
    formats
}

#[test]
fn logical__keeps_the_compilers_true() {
    let words = |v: [i32; 4]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (left, right) = (words([0, 0, -1, -1]), words([0, -1, 0, -1]));
    assert_eq!(run(Builtin::Land, MPI_LOGICAL, &left, &right, 0), words([0, 0, 0, -1]));
    assert_eq!(run(Builtin::Lor, MPI_LOGICAL, &left, &right, 0), words([0, -1, -1, -1]));
    assert_eq!(run(Builtin::Lxor, MPI_LOGICAL, &left, &right, 0), words([0, -1, -1, 0]));
    assert_eq!(run(Builtin::Lxor, MPI_C_BOOL, &[0, 0, 1, 1], &[0, 1, 0, 1], 1), [0, 1, 1, 0]);
}

#[test]
fn mover__replaces_or_leaves_every_type() {
    for basic in Basic::all().filter(|b| b.is_supported()) {
        let extent = Datatype::named(basic).layout().extent() as usize;
        let left: Vec<u8> = (0..3 * extent).map(|i| i as u8).collect();
        let right = vec![0xaa; 3 * extent];
        assert_eq!(run(Builtin::NoOp, basic.handle.into(), &left, &right, 0), right);
        let result = run(Builtin::Replace, basic.handle.into(), &left, &right, 0);
        // Gaps may have the bytes of either operand, so compare only the data.
        Datatype::named(basic).layout().for_each_run(3, 0, u64::MAX, |block| {
            for piece in 0..block.count as i64 {
                let at = (block.offset + piece * block.stride) as usize;
                assert_eq!(result[at..at + block.len as usize], left[at..at + block.len as usize]);
            }
        });
    }
}

#[test]
fn long_double__that_is_no_number_does_not_win() {
    // A quiet NaN has an exponent of all ones, and the two leading bits of the fraction set.
    let mut nan = vec![0; 16];
    nan[7] = 0xc0;
    nan[8..10].copy_from_slice(&[0xff, 0x7f]);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(run(Builtin::Max, MPI_LONG_DOUBLE, &nan, &x87_bytes(5), 0), x87_bytes(5));
        assert_eq!(run(Builtin::Min, MPI_LONG_DOUBLE, &nan, &x87_bytes(-5), 0), x87_bytes(-5));
    }
}

unsafe extern "C" fn subtract(
    left: *mut c_void, inout: *mut c_void, len: *mut i32, handle: *mut usize,
) {
    // SAFETY: the reducer calls this function with `len` elements of two i32 (at an extent of 12 bytes).
    unsafe {
        assert_eq!(*handle, 4242);
        for i in 0..*len as usize {
            let (a, b) = (left.cast::<i32>().add(3 * i), inout.cast::<i32>().add(3 * i));
            *b = *a - *b;
        }
    }
}

unsafe extern "C" fn subtract_large(
    left: *mut c_void, inout: *mut c_void, len: *mut i64, handle: *mut usize,
) {
    // SAFETY: `left` and `inout` have `len` elements, a small number.
    unsafe { subtract(left, inout, &mut (*len as i32), handle) }
}

#[test]
fn user_function__is_called_with_order_count_and_handle() {
    let layout_12 = {
        let int = std::rc::Rc::new(Datatype::named(basic(MPI_INT)));
        Datatype::contiguous(3, &int, crate::objects::datatype::Form::Small).unwrap()
    };
    for function in [OpFunction::User(subtract), OpFunction::UserLarge(subtract_large)] {
        let op = Op::user(function, false);
        assert!(!op.commutes() && !op.is_predefined());
        let reducer = op.collective_reducer(&layout_12, 4242).unwrap();
        let (left, mut right) = ([10, 0, 0, 20, 0, 0], [1, 7, 7, 2, 7, 7]);
        // SAFETY: both arrays have two elements of three ints.
        unsafe { reducer.apply(left.as_ptr().cast(), right.as_mut_ptr().cast(), 2) };
        assert_eq!(right, [9, 7, 7, 18, 7, 7]);
    }
}

#[test]
fn user_function__is_called_in_pieces_that_fit_an_int() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static SEEN: AtomicU64 = AtomicU64::new(0);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn count(left: *mut c_void, _: *mut c_void, len: *mut i32, _: *mut usize) {
        // SAFETY: the reducer passes the address of a valid count.
        let len = unsafe { *len } as u64;
        assert_eq!(left as u64, 4096 + SEEN.fetch_add(len, Ordering::Relaxed));
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let byte = Datatype::named(basic(MPI_BYTE));
    let reducer = Op::user(OpFunction::User(count), true).reducer(&byte, MPI_BYTE).unwrap();
    let total = 5 * (1u64 << 30);
    // SAFETY: the function uses only the addresses.
    unsafe { reducer.apply(4096 as *const u8, 4096 as *mut u8, total) };
    assert_eq!((SEEN.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed)), (total, 3));
}
