#![allow(unsafe_code, non_snake_case)]
//! Layouts, compared with the definition: the list of data byte offsets of a type map, in order.

use super::{Block, Layout, LayoutError, StructPart};
use proptest::prelude::*;

/// Construction of a type. Displacements and strides are in bytes, as in the `h` constructors.
#[derive(Debug, Clone)]
enum Recipe {
    Basic(u32, u32),
    Repeat(u64, Box<Recipe>),
    Vector(u64, u64, i64, Box<Recipe>),
    Indexed(Vec<(u64, i64)>, Box<Recipe>),
    Struct(Vec<(u64, i64, Recipe)>),
    Resized(i64, i64, Box<Recipe>),
}

/// Type map by the standard's definition, with the bounds of its parts.
#[derive(Debug, Clone, Default)]
struct TypeMapModel {
    bytes: Vec<i64>,
    marks: Vec<(i64, i64)>,
    parts: Vec<(i64, i64)>,
    align: i64,
}

impl TypeMapModel {
    fn place(&mut self, other: &TypeMapModel, at: i64) {
        self.bytes.extend(other.bytes.iter().map(|b| b + at));
        self.marks.extend(other.marks.iter().map(|(l, u)| (l + at, u + at)));
        if !other.bytes.is_empty() {
            let (lb, extent) = other.bounds();
            self.parts.push((lb + at, lb + extent + at));
        }
        self.align = self.align.max(other.align);
    }

    fn data(&self) -> (i64, i64) {
        let low = self.bytes.iter().min().copied().unwrap_or(0);
        (low, self.bytes.iter().max().map_or(0, |high| high + 1))
    }

    /// Lower bound and extent. Markers override the parts and the alignment.
    fn bounds(&self) -> (i64, i64) {
        let (ranges, align) = match self.marks.as_slice() {
            [] => (&self.parts, self.align.max(1)),
            _ => (&self.marks, 1),
        };
        let low = ranges.iter().map(|range| range.0).min().unwrap_or(0);
        let high = ranges.iter().map(|range| range.1).max().unwrap_or(0);
        (low, high - low + (align - (high - low) % align) % align)
    }
}

impl Recipe {
    fn model(&self) -> TypeMapModel {
        let mut all = TypeMapModel::default();
        match self {
            Recipe::Basic(size, align) => {
                all.bytes = (0..i64::from(*size)).collect();
                all.parts = vec![(0, i64::from(*size))];
                all.align = i64::from(*align);
            }
            Recipe::Repeat(n, old) => {
                let old = old.model();
                (0..*n as i64).for_each(|i| all.place(&old, i * old.bounds().1));
            }
            Recipe::Vector(n, len, stride, old) => {
                let old = old.model();
                for i in 0..*n as i64 {
                    (0..*len as i64).for_each(|j| all.place(&old, i * stride + j * old.bounds().1));
                }
            }
            Recipe::Indexed(parts, old) => {
                let old = old.model();
                for (len, at) in parts {
                    (0..*len as i64).for_each(|j| all.place(&old, at + j * old.bounds().1));
                }
            }
            Recipe::Struct(parts) => {
                for (len, at, old) in parts {
                    let old = old.model();
                    (0..*len as i64).for_each(|j| all.place(&old, at + j * old.bounds().1));
                }
            }
            Recipe::Resized(lb, extent, old) => {
                all = old.model();
                all.marks = vec![(*lb, lb + extent)];
            }
        }
        all
    }

    fn layout(&self) -> Layout {
        match self {
            Recipe::Basic(size, align) => Ok(Layout::basic(*size, *align)),
            Recipe::Repeat(n, old) => old.layout().repeat(*n),
            Recipe::Vector(n, len, stride, old) => old.layout().vector(*n, *len, *stride),
            Recipe::Indexed(parts, old) => old.layout().indexed_parts(parts.iter().copied()),
            Recipe::Struct(parts) => {
                let layouts: Vec<_> =
                    parts.iter().map(|(n, at, old)| (*n, *at, old.layout())).collect();
                Layout::structure(layouts.iter().map(|(n, at, l)| StructPart {
                    layout: l,
                    count: *n,
                    displacement: *at,
                }))
            }
            Recipe::Resized(lb, extent, old) => old.layout().resized(*lb, *extent),
        }
        .expect("small types fit")
    }
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let sizes = prop_oneof![
        Just((1, 1)),
        Just((2, 2)),
        Just((4, 4)),
        Just((8, 8)),
        Just((16, 16)),
        Just((3, 1)),
        Just((12, 4))
    ];
    let basic = sizes.prop_map(|(size, align)| Recipe::Basic(size, align));
    basic.prop_recursive(4, 24, 4, |inner| {
        let old = inner.clone().prop_map(Box::new);
        let at = prop_oneof![-40i64..60, (-6i64..12).prop_map(|x| x * 4)];
        prop_oneof![
            (0u64..5, old.clone()).prop_map(|(n, old)| Recipe::Repeat(n, old)),
            (0u64..5, 0u64..4, at.clone(), old.clone())
                .prop_map(|(n, len, s, old)| Recipe::Vector(n, len, s, old)),
            (prop::collection::vec((0u64..4, at.clone()), 0..5), old.clone())
                .prop_map(|(parts, old)| Recipe::Indexed(parts, old)),
            prop::collection::vec((0u64..3, at.clone(), inner), 0..4).prop_map(Recipe::Struct),
            (at.clone(), at, old).prop_map(|(lb, extent, old)| Recipe::Resized(lb, extent, old)),
        ]
    })
}

/// Byte offsets of `count` elements in packed order.
fn spread(model: &TypeMapModel, count: u64) -> Vec<i64> {
    let mut all = TypeMapModel::default();
    (0..count as i64).for_each(|i| all.place(model, i * model.bounds().1));
    all.bytes
}

fn check_against_model(recipe: &Recipe, count: u64, cuts: &[usize]) {
    let (model, layout) = (recipe.model(), recipe.layout());
    assert_eq!(layout.size(), model.bytes.len() as u64);
    assert_eq!((layout.lb(), layout.extent()), model.bounds());
    let ascends = !model.bytes.is_empty() && model.bytes.windows(2).all(|pair| pair[0] < pair[1]);
    assert_eq!(layout.is_ascending(), ascends);
    assert!(layout.is_nondecreasing() || !ascends);
    let (low, high) = model.data();
    assert_eq!((layout.true_lb(), layout.true_extent()), (low, high - low));

    let offsets = spread(&model, count);
    let low = offsets.iter().min().copied().unwrap_or(0);
    let high = offsets.iter().max().map_or(0, |b| b + 1);
    assert_eq!(layout.span(count), Ok((low, high - low)));
    let in_place = offsets.iter().enumerate().all(|(i, b)| *b == i as i64);
    if layout.is_contiguous() {
        assert!(in_place);
    }
    if let Some(at) = layout.dense_offset(count) {
        assert!(offsets.iter().enumerate().all(|(i, b)| *b == at + i as i64));
    }

    let mut memory: Vec<u8> = (0..(high - low).max(1)).map(|i| (i * 7 + i / 251) as u8).collect();
    let naive: Vec<u8> = offsets.iter().map(|b| memory[(b - low) as usize]).collect();
    let base = memory.as_mut_ptr().wrapping_offset(-low as isize);

    let mut unpacked = vec![0u8; memory.len()];
    let target = unpacked.as_mut_ptr().wrapping_offset(-low as isize);
    let (mut from, mut packed) = (0usize, Vec::new());
    for cut in cuts.iter().copied().chain([naive.len() + 9]) {
        let mut piece = vec![0xEEu8; cut];
        // SAFETY: `memory` holds the span of `count` elements around `base`.
        let n = unsafe { layout.pack(base, count, from as u64, &mut piece) };
        assert_eq!(n, cut.min(naive.len() - from));
        assert!(piece[n..].iter().all(|b| *b == 0xEE));
        // SAFETY: `unpacked` is as large as `memory`, around `target`.
        let taken = unsafe { layout.unpack(target, count, from as u64, &piece[..n]) };
        assert_eq!(taken, n);
        packed.extend_from_slice(&piece[..n]);
        let mut seen = Vec::new();
        layout.for_each_run(count, from as u64, cut as u64, |run: Block| {
            for i in 0..run.count as i64 {
                seen.extend((0..run.len as i64).map(|b| run.offset + i * run.stride + b));
            }
        });
        assert_eq!(seen, offsets[from..from + n]);
        from += n;
    }
    assert_eq!(packed, naive);
    let mut expected = vec![0u8; memory.len()];
    for (b, value) in offsets.iter().zip(&naive) {
        expected[(b - low) as usize] = *value;
    }
    assert_eq!(unpacked, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 20 } else { 1500 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn layout__agrees_with_type_map(recipe in any_recipe(), count in 0u64..4, cuts in prop::collection::vec(0usize..50, 0..8)) {
        check_against_model(&recipe, count, &cuts);
    }
}

#[test]
fn pack__reads_from_any_offset() {
    let recipe = Recipe::Vector(
        3,
        2,
        20,
        Box::new(Recipe::Struct(vec![(1, 0, Recipe::Basic(1, 1)), (1, 4, Recipe::Basic(4, 4))])),
    );
    let layout = recipe.layout();
    let offsets = spread(&recipe.model(), 5);
    let memory: Vec<u8> = (0..400).map(|i| i as u8).collect();
    for from in 0..=offsets.len() {
        let mut out = [0u8; 7];
        // SAFETY: 5 elements span less than 400 bytes.
        let n = unsafe { layout.pack(memory.as_ptr(), 5, from as u64, &mut out) };
        let naive: Vec<u8> = offsets[from..].iter().take(7).map(|b| memory[*b as usize]).collect();
        assert_eq!(out[..n], naive);
    }
}

#[test]
fn vector_of_vectors__stays_small() {
    let row = Layout::basic(4, 4).vector(1_000_000, 1, 8).unwrap();
    let plane = row.vector(1_000_000, 1, 1 << 24).unwrap();
    let cube = plane.vector(1000, 1, 1 << 45).unwrap();
    assert_eq!(cube.size(), 4_000_000_000_000_000);
    assert!(cube.entries() <= 3, "{}", cube.entries());
}

#[test]
fn repeated_structure__stays_small() {
    let b = Layout::basic(8, 8);
    let part = |displacement, count| StructPart { layout: &b, count, displacement };
    let s = Layout::structure([part(0, 1), part(16, 3), part(48, 1)]).unwrap();
    assert_eq!(s.entries(), 3);
    assert!(s.repeat(1_000_000).unwrap().entries() <= 4);
    // 100,000 irregular displacements take one entry each; the structure's own entries count once.
    let places = (0..100_000i64).map(|i| i * 64 + i * i % 7 * 8);
    let indexed = s.indexed(1, places).unwrap();
    assert!(indexed.list.as_slice().len() <= 101_000);
}

#[test]
fn many_shared_levels__stay_small_and_walkable() {
    // A thousand uses of a type that uses a structure a thousand times are a shared list of shared lists.
    let b = Layout::basic(4, 4);
    let places = |step: i64| (0..1000i64).map(move |i| i * step + i * i % 3 * 4);
    let one = b.indexed(1, [0, 8, 12, 28]).unwrap();
    let many = one.indexed(1, places(64)).unwrap();
    let more = many.indexed(1, places(70_000)).unwrap();
    assert_eq!(more.size(), 16_000_000);
    assert!(more.list.as_slice().len() <= 2100);
    let mut runs = 0u64;
    more.for_each_run(1, 15_999_900, 100, |run| runs += run.len * run.count);
    assert_eq!(runs, 100);
}

#[test]
fn deep_nesting__does_not_recurse_without_end() {
    let byte = Layout::basic(1, 1);
    let mut nested = byte.clone();
    for i in 1..20_000i64 {
        let parts = [
            StructPart { layout: &nested, count: 1, displacement: 0 },
            StructPart { layout: &byte, count: 1, displacement: i * 2 + i * i % 5 * 40_000 },
        ];
        nested = Layout::structure(parts).unwrap();
    }
    let mut bytes = 0;
    nested.for_each_run(3, 0, u64::MAX, |run| bytes += run.len * run.count);
    assert_eq!(bytes, 60_000);
}

#[test]
fn neighbours__merge_into_one_piece() {
    let int = Layout::basic(4, 4);
    assert!(int.indexed_parts([(2, 0), (3, 8), (1, 20)]).unwrap().is_contiguous());
    assert!(int.vector(7, 3, 12).unwrap().is_contiguous());
    let d = Layout::basic(8, 8);
    let parts = [
        StructPart { layout: &d, count: 1, displacement: 0 },
        StructPart { layout: &int, count: 2, displacement: 8 },
    ];
    assert!(Layout::structure(parts).unwrap().is_contiguous());
}

#[test]
fn regular_index__is_one_block() {
    let int = Layout::basic(4, 4);
    let l = int.indexed(1, (0..1000).map(|i| i * 12)).unwrap();
    assert_eq!(l.entries(), 1);
    assert_eq!(l.extent(), 999 * 12 + 4);
}

#[test]
fn dense_offset__knows_lower_bounds_and_gaps() {
    let int = Layout::basic(4, 4);
    let shifted = int.indexed(2, [8]).unwrap();
    assert!(!shifted.is_contiguous());
    assert_eq!(shifted.dense_offset(3), Some(8));
    let gapped = int.resized(0, 16).unwrap();
    assert_eq!((gapped.dense_offset(1), gapped.dense_offset(2)), (Some(0), None));
}

#[test]
fn sizes__over_two_to_the_31_are_exact() {
    let big = Layout::basic(8, 8).repeat(1 << 40).unwrap();
    assert_eq!((big.size(), big.extent()), (1 << 43, 1 << 43));
    let v = Layout::basic(1, 1).vector(1 << 33, 3, 1 << 20).unwrap();
    assert_eq!(v.size(), 3 << 33);
    assert_eq!(v.extent(), (((1i64 << 33) - 1) << 20) + 3);
    let mut seen = Vec::new();
    v.for_each_run(1, 3 * ((1 << 33) - 1) - 1, 100, |run| {
        seen.push((run.offset, run.len * run.count))
    });
    assert_eq!(seen, [(((1i64 << 33) - 2) * (1 << 20) + 2, 1), (((1i64 << 33) - 1) << 20, 3)]);
}

#[test]
fn overflow__is_an_error() {
    let int = Layout::basic(4, 4);
    let overflow = Some(LayoutError::Overflow);
    assert_eq!(int.repeat(1 << 62).err(), overflow);
    assert_eq!(int.repeat(u64::MAX).err(), overflow);
    assert_eq!(int.vector(1 << 32, 1, 1 << 32).err(), overflow);
    assert_eq!(int.indexed(1, [i64::MAX - 2]).err(), overflow);
    assert_eq!(int.indexed(1, [i64::MIN, i64::MAX - 8]).err(), overflow);
    assert_eq!(int.resized(i64::MAX, 1).err(), overflow);
    // Overlapping pieces have a small span but a large size.
    assert_eq!(int.vector(1 << 62, 1, 0).err(), overflow);
    let half = int.vector(1 << 60, 1, 0).unwrap();
    assert_eq!(half.indexed(1, [0, 0]).err(), overflow);
    assert_eq!(int.total_bytes(1 << 61), None);
    assert_eq!(int.total_bytes(1 << 60), Some(1 << 62));
}

#[test]
fn markers__outweigh_data_and_move_with_their_part() {
    let int = Layout::basic(4, 4);
    let marked = int.resized(-4, 20).unwrap();
    let parts = [
        StructPart { layout: &int, count: 1, displacement: -100 },
        StructPart { layout: &marked, count: 2, displacement: 8 },
    ];
    let s = Layout::structure(parts).unwrap();
    assert_eq!((s.lb(), s.extent()), (4, 40));
    assert_eq!((s.true_lb(), s.true_extent()), (-100, 132));
}

#[test]
fn part__ends_behind_its_own_padding() {
    let int = Layout::basic(4, 4);
    let row = int.vector(3, 4, 25).unwrap();
    assert_eq!((row.extent(), row.true_extent()), (68, 66));
    // The last row ends at 273 + 3 * 68 = 477.
    assert_eq!(row.vector(2, 3, 273).unwrap().extent(), 480);
    let packed = row.resized(0, 66).unwrap();
    assert_eq!(packed.vector(2, 3, 273).unwrap().extent(), 273 + 3 * 66);
}

#[test]
fn structure__is_padded_to_its_alignment() {
    let (d, c) = (Layout::basic(8, 8), Layout::basic(1, 1));
    let parts = [
        StructPart { layout: &d, count: 1, displacement: 0 },
        StructPart { layout: &c, count: 1, displacement: 8 },
    ];
    let s = Layout::structure(parts).unwrap();
    assert_eq!((s.size(), s.extent(), s.true_extent()), (9, 16, 9));
}

#[test]
fn empty__packs_nothing() {
    for empty in
        [Layout::empty(), Layout::basic(4, 4).repeat(0).unwrap(), Layout::structure([]).unwrap()]
    {
        assert_eq!((empty.size(), empty.extent(), empty.span(9)), (0, 0, Ok((0, 0))));
        // SAFETY: an empty type has no data bytes.
        let packed = unsafe { empty.pack(std::ptr::null(), 5, 0, &mut [0; 8]) };
        assert_eq!(packed, 0);
    }
}
