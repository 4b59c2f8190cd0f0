#![allow(unsafe_code, non_snake_case)]
//! Tests of datatypes through their public functions.

use super::*;

fn named(handle: usize) -> Rc<Datatype> {
    Rc::new(Datatype::named(Basic::from_handle(handle).unwrap()))
}

fn rc(datatype: Result<Datatype>) -> Rc<Datatype> {
    Rc::new(datatype.unwrap())
}

/// Returns (offset, length) of each run of one element.
fn runs(datatype: &Datatype) -> Vec<(i64, u64)> {
    let mut all = Vec::new();
    datatype.layout.for_each_run(1, 0, u64::MAX, |b| {
        all.extend((0..b.count as i64).map(|i| (b.offset + i * b.stride, b.len)));
    });
    all
}

const SMALL: Form = Form::Small;

#[test]
fn named__are_all_there() {
    let all: Vec<_> = Datatype::all_named().collect();
    assert_eq!(all.len(), 70);
    for (handle, datatype) in &all {
        assert!(datatype.is_predefined() && datatype.is_committed());
        assert!(datatype.name().starts_with("MPI_"));
        let optional = [MPI_REAL2, MPI_COMPLEX4].contains(handle);
        assert_eq!(datatype.size().is_none(), optional, "{}", datatype.name());
    }
    for handle in [MPI_INT, MPI_DOUBLE, MPI_BYTE, MPI_COMPLEX32, MPI_2INTEGER, MPI_CXX_BOOL] {
        assert!(all.iter().any(|(h, _)| *h == handle));
    }
}

#[test]
fn unsupported__is_refused_with_its_name() {
    let real2 = named(MPI_REAL2);
    for made in [
        Datatype::contiguous(2, &real2, SMALL),
        Datatype::vector(2, 1, 3, &real2, SMALL),
        Datatype::structure(&[1], &[0], vec![real2.clone()], SMALL),
        Datatype::resized(&real2, 0, 8, SMALL),
        Datatype::indexed(&[1], &[0], &real2, SMALL),
    ] {
        assert_eq!(made.unwrap_err(), TypeError::NotSupported("MPI_REAL2"));
    }
    assert_eq!(Error::from(TypeError::NotSupported("x")).code(), MPI_ERR_TYPE);
}

#[test]
fn counts__below_zero_are_refused() {
    let int = named(MPI_INT);
    assert_eq!(Datatype::contiguous(-1, &int, SMALL).unwrap_err(), TypeError::NegativeCount(-1));
    assert_eq!(Datatype::vector(-3, 1, 1, &int, SMALL).unwrap_err(), TypeError::NegativeCount(-3));
    assert_eq!(
        Datatype::hvector(3, -2, 1, &int, SMALL).unwrap_err(),
        TypeError::NegativeLength(0, -2)
    );
    let lengths = Datatype::indexed(&[1, 2, -7], &[0, 4, 8], &int, SMALL);
    assert_eq!(lengths.unwrap_err(), TypeError::NegativeLength(2, -7));
    let parts = Datatype::structure(&[1, -1], &[0, 4], vec![int.clone(), int.clone()], SMALL);
    assert_eq!(parts.unwrap_err(), TypeError::NegativeLength(1, -1));
    assert_eq!(
        Datatype::indexed_block(-1, &[0], &int, SMALL).unwrap_err(),
        TypeError::NegativeLength(0, -1)
    );
}

#[test]
fn sizes__beyond_64_bits_are_refused() {
    let double = named(MPI_DOUBLE);
    assert_eq!(
        Datatype::contiguous(i64::MAX, &double, Form::Large).unwrap_err(),
        TypeError::Overflow
    );
    assert_eq!(
        Datatype::vector(2, 1, i64::MAX / 4, &double, Form::Large).unwrap_err(),
        TypeError::Overflow
    );
    assert_eq!(
        Datatype::indexed(&[1], &[i64::MAX / 2], &double, Form::Large).unwrap_err(),
        TypeError::Overflow
    );
    let big = rc(Datatype::contiguous(1 << 40, &double, Form::Large));
    assert_eq!(big.size(), Some(1 << 43));
    assert_eq!(big.count_from_bytes(3 << 43), Some(3));
}

#[test]
fn indexed__counts_displacements_in_extents() {
    let short_int = named(MPI_SHORT_INT);
    let t = rc(Datatype::indexed(&[1, 2], &[3, 0], &short_int, SMALL));
    assert_eq!(runs(&t), [(24, 2), (28, 4), (0, 2), (4, 6), (12, 4)]);
    let h = rc(Datatype::hindexed(&[1, 2], &[24, 0], &short_int, SMALL));
    assert_eq!(runs(&t), runs(&h));
    let b = rc(Datatype::indexed_block(1, &[3, 0, 1], &short_int, SMALL));
    assert_eq!(runs(&t), runs(&b));
    let hb = rc(Datatype::hindexed_block(1, &[24, 0, 8], &short_int, SMALL));
    assert_eq!(runs(&t), runs(&hb));
}

#[test]
fn contents__come_back_in_the_form_they_were_given() {
    let int = named(MPI_INT);
    let v = Datatype::hvector(3, 2, 40, &int, SMALL).unwrap();
    let c = v.contents();
    assert_eq!(
        (c.combiner, &*c.integers, &*c.addresses),
        (Combiner::Hvector, &[3i64, 2][..], &[40i64][..])
    );
    let v = Datatype::hvector(3, 2, 40, &int, Form::Large).unwrap();
    let c = v.contents();
    assert_eq!((c.integers.len(), c.addresses.len(), &*c.large_counts), (0, 0, &[3i64, 2, 40][..]));
    let s =
        Datatype::structure(&[1, 2], &[0, 8], vec![int.clone(), named(MPI_DOUBLE)], SMALL).unwrap();
    let c = s.contents();
    assert_eq!(
        (&*c.integers, &*c.addresses, c.types.len()),
        (&[2i64, 1, 2][..], &[0i64, 8][..], 2)
    );
    let a = Datatype::subarray(&[4, 5], &[2, 3], &[1, 2], MPI_ORDER_C, &int, Form::Large).unwrap();
    assert_eq!(a.contents().integers, [2, i64::from(MPI_ORDER_C)]);
    assert_eq!(a.contents().large_counts, [4, 5, 2, 3, 1, 2]);
}

#[test]
fn subarray__selects_the_region_in_both_orders() {
    let int = named(MPI_INT);
    let (sizes, subsizes, starts) = ([4i64, 5, 6], [2i64, 3, 2], [1i64, 1, 3]);
    for order in [MPI_ORDER_C, MPI_ORDER_FORTRAN] {
        let t = rc(Datatype::subarray(&sizes, &subsizes, &starts, order, &int, SMALL));
        let mut naive = Vec::new();
        // The outermost loop runs over the slowest dimension.
        let dims = if order == MPI_ORDER_C { [0, 1, 2] } else { [2, 1, 0] };
        for i in 0..subsizes[dims[0]] {
            for j in 0..subsizes[dims[1]] {
                for k in 0..subsizes[dims[2]] {
                    let at = [i, j, k];
                    let index = (0..3).fold(0, |n, d| n * sizes[dims[d]] + starts[dims[d]] + at[d]);
                    naive.push(index * 4);
                }
            }
        }
        let mut found = Vec::new();
        runs(&t)
            .iter()
            .for_each(|(at, len)| (0..*len as i64 / 4).for_each(|i| found.push(at + i * 4)));
        assert_eq!(found, naive);
        assert_eq!(t.extent(), (0, 4 * 5 * 6 * 4));
    }
    for (sizes, subsizes, starts) in
        [([4], [5], [0]), ([4], [2], [3]), ([4], [0], [0]), ([4], [1], [-1])]
    {
        assert!(Datatype::subarray(&sizes, &subsizes, &starts, MPI_ORDER_C, &int, SMALL).is_err());
    }
    assert!(Datatype::subarray(&[], &[], &[], MPI_ORDER_C, &int, SMALL).is_err());
    assert!(Datatype::subarray(&[4], &[1], &[1], 99, &int, SMALL).is_err());
}

#[test]
fn darray__parts_of_all_processes_make_the_array() {
    let int = named(MPI_INT);
    let dflt = i64::from(MPI_DISTRIBUTE_DFLT_DARG);
    let [block, cyclic, none] =
        [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE].map(i64::from);
    let gsizes = [7i64, 5, 11];
    for (distribs, dargs, psizes) in [
        ([block, none, cyclic], [dflt, dflt, 2], [3i64, 1, 2]),
        ([cyclic, block, block], [3, 4, dflt], [2, 2, 2]),
        ([cyclic, cyclic, cyclic], [dflt, 2, 4], [4, 3, 1]),
    ] {
        for order in [MPI_ORDER_C, MPI_ORDER_FORTRAN] {
            let size: i64 = psizes.iter().product();
            let mut owner = vec![-1i64; 7 * 5 * 11];
            for rank in 0..size {
                let array = DistributedArray {
                    size,
                    rank,
                    gsizes: &gsizes,
                    distribs: &distribs,
                    dargs: &dargs,
                    psizes: &psizes,
                    order,
                };
                let t = rc(Datatype::darray(&array, &int, SMALL));
                assert_eq!(t.extent(), (0, 7 * 5 * 11 * 4));
                let mut last = -1;
                for (at, len) in runs(&t) {
                    for index in at / 4..at / 4 + len as i64 / 4 {
                        assert!(index > last, "in ascending order");
                        last = index;
                        assert_eq!(std::mem::replace(&mut owner[index as usize], rank), -1);
                    }
                }
            }
            for (index, rank) in owner.iter().enumerate() {
                // The expected elements are listed one by one, as the standard defines them.
                let (mut rest, mut place) = (index as i64, [0i64; 3]);
                let dims = if order == MPI_ORDER_C { [2, 1, 0] } else { [0, 1, 2] };
                for d in dims {
                    place[d] = rest % gsizes[d];
                    rest /= gsizes[d];
                }
                let expected = (0..3).fold(0, |n, d| {
                    let even = (gsizes[d] + psizes[d] - 1) / psizes[d];
                    let coordinate = match (distribs[d], dargs[d]) {
                        (x, _) if x == none => 0,
                        (x, a) if x == block => place[d] / if a == dflt { even } else { a },
                        (_, a) => place[d] / if a == dflt { 1 } else { a } % psizes[d],
                    };
                    n * psizes[d] + coordinate
                });
                assert_eq!(*rank, expected, "element {index}");
            }
        }
    }
}

#[test]
fn darray__bad_grids_are_refused() {
    let int = named(MPI_INT);
    let good = DistributedArray {
        size: 4,
        rank: 1,
        gsizes: &[10, 10],
        distribs: &[i64::from(MPI_DISTRIBUTE_BLOCK), i64::from(MPI_DISTRIBUTE_CYCLIC)],
        dargs: &[5, 1],
        psizes: &[2, 2],
        order: MPI_ORDER_C,
    };
    let try_out = |array: DistributedArray<'_>| Datatype::darray(&array, &int, SMALL);
    assert!(try_out(good).is_ok());
    let none = [i64::from(MPI_DISTRIBUTE_NONE); 2];
    for bad in [
        DistributedArray { size: 5, ..good },
        DistributedArray { rank: 4, ..good },
        DistributedArray { rank: -1, ..good },
        DistributedArray { dargs: &[4, 1], ..good },
        DistributedArray { dargs: &[5, 0], ..good },
        DistributedArray { gsizes: &[0, 10], ..good },
        DistributedArray { psizes: &[-2, -2], ..good },
        DistributedArray { distribs: &none, ..good },
        DistributedArray { distribs: &[1, 2], ..good },
        DistributedArray { order: 0, ..good },
    ] {
        assert!(matches!(try_out(bad), Err(TypeError::Argument(..))), "{bad:?}");
    }
}

#[test]
fn duplicate__is_equal_and_nameless() {
    let int = named(MPI_INT);
    let t = rc(Datatype::vector(3, 2, 4, &int, SMALL));
    t.set_name("mine");
    let d = Datatype::duplicate(&t);
    assert_eq!(
        (d.name().as_str(), d.is_committed(), d.contents().combiner),
        ("", false, Combiner::Dup)
    );
    t.commit();
    assert!(Datatype::duplicate(&t).is_committed());
    assert!(!Datatype::duplicate(&int).is_predefined());
    assert_eq!(runs(&d), runs(&t));
}

#[test]
fn get_count__and_elements_follow_the_standard() {
    let t =
        rc(Datatype::structure(&[1, 2], &[0, 8], vec![named(MPI_INT), named(MPI_DOUBLE)], SMALL));
    assert_eq!(t.count_from_bytes(40), Some(2));
    assert_eq!(t.count_from_bytes(36), None);
    assert_eq!(t.elements_from_bytes(24), Some(4));
    assert_eq!(t.elements_from_bytes(36), None);
    assert_eq!(t.elements_from_bytes(32), Some(5));
    assert_eq!(t.elements_from_bytes(30), None);
    assert_eq!(t.bytes_from_elements(5), Some(32));
    let empty = rc(Datatype::contiguous(0, &t, SMALL));
    assert_eq!((empty.count_from_bytes(0), empty.count_from_bytes(4)), (Some(0), None));
    assert_eq!((empty.elements_from_bytes(0), empty.elements_from_bytes(4)), (Some(0), None));
    assert_eq!(named(MPI_DOUBLE_INT).elements_from_bytes(20), Some(3));
}

#[test]
fn drop__of_a_long_chain_does_not_recurse() {
    let mut t = named(MPI_INT);
    for _ in 0..300_000 {
        t = Rc::new(Datatype::duplicate(&t));
    }
    drop(t);
}

#[test]
fn buffer__is_contiguous_where_it_can_be() {
    let int = named(MPI_INT);
    let at = 4096 as *mut u8;
    let shifted = rc(Datatype::hindexed(&[2], &[8], &int, SMALL));
    let b = shifted.buffer(at, 3).unwrap();
    assert_eq!((b.ptr as usize, b.bytes, b.layout.is_none()), (4104, 24, true));
    let v = rc(Datatype::vector(2, 1, 2, &int, SMALL));
    let b = v.buffer(at, 3).unwrap();
    assert_eq!((b.ptr as usize, b.bytes, b.layout.is_some(), b.count), (4096, 24, true, 3));
    assert!(v.buffer(at, u64::MAX / 4).is_none());
}

#[test]
fn match_size__finds_sized_types() {
    let handle = |class, size| match_size(class, size).map(|b| usize::from(b.handle));
    assert_eq!(handle(TypeClass::Real, 8), Some(MPI_REAL8));
    assert_eq!(handle(TypeClass::Integer, 2), Some(MPI_INTEGER2));
    assert_eq!(handle(TypeClass::Complex, 16), Some(MPI_COMPLEX16));
    assert_eq!(handle(TypeClass::Real, 2), None);
    assert_eq!(handle(TypeClass::Integer, -4), None);
}

#[test]
fn value_index__finds_pairs() {
    let basic = |handle| Basic::from_handle(handle).unwrap();
    let pair = |a, b| value_index_pair(basic(a), basic(b)).map(|p| usize::from(p.handle));
    assert_eq!(pair(MPI_LONG, MPI_INT), Some(MPI_LONG_INT));
    assert_eq!(pair(MPI_REAL, MPI_REAL), Some(MPI_2REAL));
    assert_eq!(pair(MPI_INT, MPI_DOUBLE), None);
}

/// Packs into all of `out` from `position` on.
fn pack(t: &Datatype, input: &[u8], count: i64, out: &mut [u8], position: i64) -> Result<i64> {
    // SAFETY: callers pass inputs as long as the elements' extents.
    unsafe { t.pack(input.as_ptr(), count, out.as_mut_ptr(), out.len() as i64, position) }
}

#[test]
fn pack__appends_at_the_position_and_unpack_takes_from_it() {
    let t = rc(Datatype::vector(2, 1, 3, &named(MPI_SHORT), SMALL));
    let memory: Vec<u8> = (1..=32).collect();
    let mut out = [0u8; 12];
    assert_eq!(pack(&t, &memory, 2, &mut out, 2), Err(TypeError::NotCommitted));
    t.commit();
    assert_eq!(t.pack_size(2), Ok(8));
    assert_eq!(pack(&t, &memory, 2, &mut out, 2), Ok(10));
    assert_eq!(out, [0, 0, 1, 2, 7, 8, 9, 10, 15, 16, 0, 0]);
    let mut back = [0u8; 16];
    // SAFETY: two elements span 16 bytes.
    let position = unsafe { t.unpack(out.as_ptr(), 12, 2, back.as_mut_ptr(), 2) };
    assert_eq!((position, back), (Ok(10), [1, 2, 0, 0, 0, 0, 7, 8, 9, 10, 0, 0, 0, 0, 15, 16]));
    assert_eq!(pack(&t, &memory, 2, &mut out, 5), Err(TypeError::Truncated(8, 7)));
    assert_eq!(pack(&t, &memory, -1, &mut out, 0), Err(TypeError::NegativeCount(-1)));
    assert!(matches!(pack(&t, &memory, 1, &mut out, 13), Err(TypeError::Argument(..))));
    assert!(matches!(pack(&t, &memory, 1, &mut out, -1), Err(TypeError::Argument(..))));
    assert_eq!(pack(&t, &[], 0, &mut [], 0), Ok(0));
}

#[test]
fn external__is_big_endian_and_comes_back() {
    let pair = named(MPI_DOUBLE_INT);
    let complex = named(MPI_C_FLOAT_COMPLEX);
    let types = vec![named(MPI_LONG), pair.clone(), complex, named(MPI_CHAR)];
    let t = rc(Datatype::structure(&[2, 1, 1, 3], &[0, 16, 32, 40], types, SMALL));
    t.commit();
    let mut memory = [0u8; 48];
    memory[..8].copy_from_slice(&(-5i64).to_ne_bytes());
    memory[8..16].copy_from_slice(&7i64.to_ne_bytes());
    memory[16..24].copy_from_slice(&1.5f64.to_ne_bytes());
    memory[24..28].copy_from_slice(&258i32.to_ne_bytes());
    memory[32..36].copy_from_slice(&2.0f32.to_ne_bytes());
    memory[36..40].copy_from_slice(&(-0.5f32).to_ne_bytes());
    memory[40..43].copy_from_slice(b"abc");
    let mut expected = Vec::new();
    expected.extend((-5i32).to_be_bytes());
    expected.extend(7i32.to_be_bytes());
    expected.extend(1.5f64.to_be_bytes());
    expected.extend(258i32.to_be_bytes());
    expected.extend(2.0f32.to_be_bytes());
    expected.extend((-0.5f32).to_be_bytes());
    expected.extend(b"abc");
    assert_eq!(t.external_size(3), Ok(3 * expected.len() as i64));
    let two = [memory, memory].concat();
    let mut out = vec![0u8; 2 * expected.len()];
    // SAFETY: `two` holds two elements of extent 48.
    let position =
        unsafe { t.pack_external(two.as_ptr(), 2, out.as_mut_ptr(), out.len() as i64, 0) };
    assert_eq!(position, Ok(out.len() as i64));
    assert_eq!(out, [expected.clone(), expected].concat());
    let mut back = vec![0u8; 96];
    // SAFETY: `back` holds two elements of extent 48.
    let position =
        unsafe { t.unpack_external(out.as_ptr(), out.len() as i64, 0, back.as_mut_ptr(), 2) };
    assert_eq!((position, back), (Ok(out.len() as i64), two));
}

#[test]
fn external__of_many_crosses_chunks() {
    let t = named(MPI_UNSIGNED);
    let memory: Vec<u32> = (0..5000).map(|i| i * 77_777).collect();
    let mut out = vec![0u8; 20_000];
    // SAFETY: 5000 elements lie in `memory`.
    let position =
        unsafe { t.pack_external(memory.as_ptr().cast(), 5000, out.as_mut_ptr(), 20_000, 0) };
    assert_eq!(position, Ok(20_000));
    assert!(out.chunks(4).zip(&memory).all(|(bytes, value)| *bytes == value.to_be_bytes()));
}

#[test]
fn fortran_kinds__are_the_smallest_that_fit() {
    let real = |p, r| Datatype::fortran_real(p, r, false).map(|t| t.size().unwrap());
    let u = MPI_UNDEFINED;
    assert_eq!(
        (real(6, 30), real(7, 30), real(6, 38), real(u, 308)),
        (Ok(4), Ok(8), Ok(8), Ok(16))
    );
    assert_eq!((real(15, u), real(33, 4931)), (Ok(8), Ok(16)));
    assert!(real(34, u).is_err() && real(u, u).is_err() && real(1, 5000).is_err());
    assert_eq!(Datatype::fortran_real(6, 30, true).unwrap().size(), Some(8));
    let sizes =
        [1, 2, 3, 5, 10, 18, 19].map(|r| Datatype::fortran_integer(r).unwrap().size().unwrap());
    assert_eq!(sizes, [1, 1, 2, 4, 8, 8, 16]);
    assert!(Datatype::fortran_integer(39).is_err());
    let t = Datatype::fortran_integer(3).unwrap();
    assert!(t.is_predefined() && t.is_committed() && t.contents().integers == [3]);
    assert!(t.is_same_kind(&Datatype::fortran_integer(3).unwrap()));
    assert!(!t.is_same_kind(&Datatype::fortran_integer(4).unwrap()));
}
