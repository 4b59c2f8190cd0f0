//! Tests of sections against a naive model.
#![allow(unsafe_code, non_snake_case)]

use super::datatype::pieces_of;
use super::*;
use proptest::prelude::*;

/// An array of bytes and the description of a section of it.
#[derive(Debug)]
struct Array {
    memory: Vec<u8>,
    /// Offset of the section's first element.
    first: usize,
    element_bytes: usize,
    /// Extents and strides, the fastest first.
    shape: Vec<(isize, isize)>,
}

impl Array {
    fn descriptor(&mut self) -> Descriptor {
        let mut dimensions = [Dimension { _lower_bound: 0, extent: 0, stride: 0 }; MAX_RANK];
        for (dimension, (extent, stride)) in dimensions.iter_mut().zip(&self.shape) {
            *dimension = Dimension { _lower_bound: 7, extent: *extent, stride: *stride };
        }
        Descriptor {
            base: self.memory[self.first..].as_mut_ptr().cast(),
            element_bytes: self.element_bytes,
            version: VERSIONS[0],
            rank: self.shape.len() as i8,
            _compiler: [0; 3],
            dimensions,
        }
    }

    /// Naive model: offsets of the elements from the first one, in array element order.
    fn offsets(&self) -> Vec<isize> {
        self.shape.iter().fold(vec![0], |inner, (extent, stride)| {
            (0..*extent).flat_map(|i| inner.iter().map(move |at| at + i * stride)).collect()
        })
    }

    /// Bytes of all elements.
    fn elements(&self) -> Vec<u8> {
        let at = |offset: isize| self.first.wrapping_add_signed(offset);
        let offsets = self.offsets();
        offsets.iter().flat_map(|o| self.memory[at(*o)..][..self.element_bytes].to_vec()).collect()
    }
}

/// Sections in which no two elements share memory: each dimension has `step` times the span of the lower ones,
/// forwards or backwards.
fn arrays() -> impl Strategy<Value = Array> {
    let dimension = (0..4_isize, 1..3_isize, any::<bool>());
    (0..6_usize, prop::collection::vec(dimension, 0..6)).prop_map(|(element_bytes, dimensions)| {
        let (mut span, mut first) = (element_bytes.max(1) as isize, 0);
        let mut shape = Vec::new();
        for (extent, step, is_backwards) in dimensions {
            let stride = span * step;
            if is_backwards {
                first += stride * (extent - 1).max(0);
            }
            shape.push((extent, if is_backwards { -stride } else { stride }));
            span = stride * extent.max(1);
        }
        let memory = (0..span.max(1) as usize).map(|i| (i * 31 % 251) as u8).collect();
        Array { memory, first: first as usize, element_bytes, shape }
    })
}

proptest! {
    #[test]
    fn section_copy__gathers_and_scatters_as_the_model(mut array in arrays()) {
        let wanted = array.elements();
        let before = array.memory.clone();
        let descriptor = array.descriptor();
        // SAFETY: a descriptor of memory that outlives the copy.
        let mut copied = unsafe { SectionCopy::new(&descriptor, true) }.unwrap();
        let address = copied.address().cast::<u8>();
        // SAFETY: the copy, or the contiguous section itself, has this many bytes.
        let copy = unsafe { core::slice::from_raw_parts_mut(address, wanted.len()) };
        prop_assert_eq!(&copy[..], &wanted[..]);
        copy.iter_mut().for_each(|byte| *byte = !*byte);
        drop(copied);
        let inverted: Vec<u8> = wanted.iter().map(|byte| !*byte).collect();
        prop_assert_eq!(array.elements(), inverted);
        // Nothing else has changed.
        let changed = array.memory.iter().zip(&before).filter(|(new, old)| new != old).count();
        prop_assert_eq!(changed, wanted.len());
    }

    #[test]
    fn section_copy__that_is_read_only__leaves_the_memory(mut array in arrays()) {
        let before = array.memory.clone();
        let descriptor = array.descriptor();
        // SAFETY: a descriptor of memory that outlives the copy.
        let mut copied = unsafe { SectionCopy::new(&descriptor, false) }.unwrap();
        if let Some(words) = &mut copied.words {
            words.fill(0);
        }
        drop(copied);
        prop_assert_eq!(before, array.memory);
    }

    #[test]
    fn contiguous__is_what_the_model_says(mut array in arrays()) {
        let bytes = array.element_bytes as isize;
        let in_line = |(i, at): (usize, &isize)| *at == i as isize * bytes;
        let is_contiguous = bytes == 0 || array.offsets().iter().enumerate().all(in_line);
        let descriptor = array.descriptor();
        // SAFETY: a descriptor.
        let found = unsafe { contiguous(&descriptor) };
        prop_assert_eq!(found.is_some(), is_contiguous);
    }

    #[test]
    fn pieces__are_the_first_elements_in_order(mut array in arrays(), part in 0.0..=1.0_f64) {
        let offsets = array.offsets();
        let wanted = (offsets.len() as f64 * part) as usize;
        let descriptor = array.descriptor();
        // SAFETY: a descriptor.
        let section = unsafe { Section::new(&descriptor) }.unwrap();
        let mut found = Vec::new();
        if !section.is_empty {
            for piece in pieces_of(section.dimensions(), wanted as i64) {
                let places = piece.steps.iter().fold(vec![piece.offset], |inner, (count, stride)| {
                    let stride = *stride as i64;
                    (0..*count).flat_map(|i| inner.iter().map(move |at| at + i * stride)).collect()
                });
                found.extend(places);
            }
        }
        let wanted = if array.element_bytes == 0 { 0 } else { wanted };
        let expected: Vec<i64> = offsets[..wanted].iter().map(|o| *o as i64).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn assumed_size__is_contiguous() {
    let mut array =
        Array { memory: vec![0; 64], first: 0, element_bytes: 4, shape: vec![(3, 4), (-1, 12)] };
    let descriptor = array.descriptor();
    // SAFETY: a descriptor.
    assert!(unsafe { contiguous(&descriptor) }.is_some());
}

#[test]
fn descriptor__of_another_layout__is_refused() {
    let mut array = Array { memory: vec![0; 64], first: 0, element_bytes: 4, shape: vec![(3, 4)] };
    let mut descriptor = array.descriptor();
    descriptor.version = 2;
    // SAFETY: descriptors.
    unsafe {
        assert!(contiguous(&descriptor).is_none());
        assert_eq!(
            SectionCopy::new(&descriptor, true).err(),
            Some(BufferRefusal::UnknownDescriptor)
        );
        descriptor.version = VERSIONS[0];
        descriptor.rank = -1;
        assert_eq!(
            SectionCopy::new(&descriptor, true).err(),
            Some(BufferRefusal::UnknownDescriptor)
        );
    }
}

#[test]
fn section__that_is_not_contiguous__is_refused_by_a_call_without_datatype() {
    let mut array = Array { memory: vec![0; 64], first: 0, element_bytes: 4, shape: vec![(3, 8)] };
    let descriptor = array.descriptor();
    // SAFETY: a descriptor.
    assert_eq!(unsafe { contiguous_only(&descriptor) }.err(), Some(BufferRefusal::NoDatatype));
}
