//! Choice buffers of module `mpi_f08`: C descriptors of arrays, perhaps not contiguous (MPI 5.0, section 19.1.12).
//!
//! A section of an array stands for one contiguous array of its elements in array element order. A blocking call gets a
//! copy. A call that ends later gets a datatype that describes the elements where they are.
#![allow(unsafe_code)]

use crate::convert::datatype_from;
use crate::ffi;
use core::ffi::{c_int, c_void};

/// Versions of descriptors whose layout is the one below: gfortran; flang 16 to 18; flang 19 and later.
const VERSIONS: [c_int; 3] = [1, 20_180_515, 20_240_719];
const MAX_RANK: usize = 15;

/// `CFI_cdesc_t`. The standard fixes the first three fields; the others are the same in all `VERSIONS`.
#[repr(C)]
pub struct Descriptor {
    base: *mut c_void,
    element_bytes: usize,
    version: c_int,
    rank: i8,
    /// Type and attribute, whose order differs between compilers.
    _compiler: [u8; 3],
    dimensions: [Dimension; MAX_RANK],
}

/// `CFI_dim_t`: the lower bound of a choice buffer has no meaning.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    _lower_bound: isize,
    /// Number of elements; -1 in the last dimension of an array of assumed size.
    extent: isize,
    /// Bytes from one element to the next.
    stride: isize,
}

/// Why a buffer cannot be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferRefusal {
    /// The compiler's descriptors have another layout.
    UnknownDescriptor,
    /// No datatype can describe the section in this call.
    NoDatatype,
    /// The message has gaps, ends within an element, or is larger than the section.
    OtherElements,
}

/// Address of a scalar, or of an array of one dimension without gaps: the common buffers, told apart without a call.
///
/// # Safety
/// `descriptor` points to a descriptor.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send from Fortran
pub unsafe fn plain(descriptor: *const Descriptor) -> Option<*mut c_void> {
    // SAFETY: by this function's contract. A compiler with another layout has at least version and rank in its memory,
    // and `dimensions` is read only for a rank of the right layout.
    unsafe {
        let version = (*descriptor).version;
        let is_known = version == VERSIONS[0] || version == VERSIONS[2];
        let rank = (*descriptor).rank;
        let is_plain = if rank == 1 {
            (*descriptor).dimensions[0].stride == (*descriptor).element_bytes as isize
        } else {
            rank == 0
        };
        (is_known && is_plain).then(|| (*descriptor).base)
    }
}

/// Address of a buffer that can be passed as it is: the whole of it is contiguous.
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn contiguous(descriptor: *const Descriptor) -> Option<*mut c_void> {
    // SAFETY: by this function's contract; only as many dimensions are read as the rank gives.
    unsafe {
        let rank = (*descriptor).rank;
        let is_known = VERSIONS.contains(&(*descriptor).version);
        if !is_known || !(0..=MAX_RANK as i8).contains(&rank) {
            return None;
        }
        // An array that is not allocated has extents without meaning.
        if (*descriptor).base.is_null() {
            return Some(core::ptr::null_mut());
        }
        let mut bytes = (*descriptor).element_bytes as isize;
        for index in 0..rank as usize {
            let Dimension { extent, stride, .. } = (*descriptor).dimensions[index];
            // An array of assumed size, or without elements.
            if extent <= 0 {
                break;
            }
            if stride != bytes && extent != 1 {
                return Section::new(descriptor)
                    .is_ok_and(|section| section.is_contiguous())
                    .then(|| (*descriptor).base);
            }
            bytes *= extent;
        }
        Some((*descriptor).base)
    }
}

/// Address of the buffer, whatever its shape.
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn address(descriptor: *const Descriptor) -> *mut c_void {
    // SAFETY: by this function's contract; the first field is fixed by the standard.
    unsafe { (*descriptor).base }
}

/// Bytes of an element; the length of a string.
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn element_bytes(descriptor: *const Descriptor) -> usize {
    // SAFETY: by this function's contract; the first two fields are fixed by the standard.
    unsafe { (*descriptor).element_bytes }
}

/// Whether the descriptor, read by the layout above, describes an array with this first element, bytes of an element,
/// extents, and bytes from one element to the next in each dimension.
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn describes(
    descriptor: *const Descriptor, base: *const c_void, element_bytes: usize, extents: &[c_int],
    strides: &[c_int],
) -> bool {
    // SAFETY: by this function's contract; dimensions are read only for the expected rank.
    unsafe {
        VERSIONS.contains(&(*descriptor).version)
            && (*descriptor).rank as usize == extents.len()
            && (*descriptor).base.cast_const() == base
            && (*descriptor).element_bytes == element_bytes
            && extents.iter().zip(strides).enumerate().all(|(index, (extent, stride))| {
                let dimension = (*descriptor).dimensions[index];
                dimension.extent == *extent as isize && dimension.stride == *stride as isize
            })
    }
}

/// A buffer for a call that ends later and has no datatype for all of it.
///
/// # Errors
/// `NoDatatype` for a section that is not contiguous; as [`Section::new`].
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn refuse_section(descriptor: *const Descriptor) -> Result<SectionCopy, BufferRefusal> {
    // SAFETY: by this function's contract.
    let section = unsafe { Section::new(descriptor) }?;
    if !section.is_contiguous() {
        return Err(BufferRefusal::NoDatatype);
    }
    Ok(SectionCopy { section, is_in_place: true, words: Vec::new(), is_written: false })
}

/// A section, read from its descriptor.
#[derive(Clone)]
pub struct Section {
    base: *mut u8,
    element_bytes: usize,
    /// Dimensions with more than one element, the fastest first.
    dimensions: Vec<Dimension>,
    is_empty: bool,
}

impl Section {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// `UnknownDescriptor` for a version or a rank that is not known.
    ///
    /// # Safety
    /// `descriptor` points to a descriptor.
    pub unsafe fn new(descriptor: *const Descriptor) -> Result<Self, BufferRefusal> {
        // SAFETY: by this function's contract; only as many dimensions are read as the rank gives.
        unsafe {
            let rank = (*descriptor).rank;
            let is_known = VERSIONS.contains(&(*descriptor).version);
            if !is_known || !(0..=MAX_RANK as i8).contains(&rank) {
                return Err(BufferRefusal::UnknownDescriptor);
            }
            let first = (&raw const (*descriptor).dimensions).cast::<Dimension>();
            let all = core::slice::from_raw_parts(first, rank as usize);
            // An array of assumed size is contiguous, and its last extent is unknown: one element stands for it.
            let is_assumed = all.last().is_some_and(|d| d.extent < 0);
            let mut dimensions: Vec<Dimension> = if is_assumed { Vec::new() } else { all.to_vec() };
            // A substring may have no characters, and an array that is not allocated has extents without meaning.
            let is_empty = (*descriptor).base.is_null()
                || (*descriptor).element_bytes == 0
                || dimensions.iter().any(|d| d.extent == 0);
            dimensions.retain(|d| d.extent > 1);
            Ok(Self {
                base: (*descriptor).base.cast(),
                element_bytes: (*descriptor).element_bytes,
                dimensions,
                is_empty,
            })
        }
    }

    fn is_contiguous(&self) -> bool {
        let mut bytes = self.element_bytes as isize;
        self.is_empty
            || self.dimensions.iter().all(|d| {
                let fits = d.stride == bytes;
                bytes *= d.extent;
                fits
            })
    }

    /// Number of elements.
    fn elements(&self) -> usize {
        if self.is_empty {
            return 0;
        }
        self.dimensions.iter().map(|d| d.extent as usize).product()
    }

    /// Calls `visit` with the offset of each element from the base, in array element order.
    fn for_each(&self, mut visit: impl FnMut(isize)) {
        if self.is_empty {
            return;
        }
        let mut index = [0_isize; MAX_RANK];
        let mut offset = 0;
        loop {
            visit(offset);
            let mut dimension = 0;
            loop {
                let Some(d) = self.dimensions.get(dimension) else {
                    return;
                };
                index[dimension] += 1;
                offset += d.stride;
                if index[dimension] < d.extent {
                    break;
                }
                offset -= d.stride * d.extent;
                index[dimension] = 0;
                dimension += 1;
            }
        }
    }
}

/// A contiguous copy of a section, for a blocking call. A contiguous section is its own copy.
pub struct SectionCopy {
    section: Section,
    is_in_place: bool,
    /// Words of 16 bytes, so that every type is aligned.
    words: Vec<u128>,
    is_written: bool,
}

impl SectionCopy {
    /// Copies the section. `is_written`: the call may change the buffer.
    ///
    /// # Errors
    /// As [`Section::new`].
    ///
    /// # Safety
    /// `descriptor` points to a descriptor of memory that is valid for reads, and for writes if `is_written`, until the
    /// result is dropped.
    pub unsafe fn new(
        descriptor: *const Descriptor, is_written: bool,
    ) -> Result<Self, BufferRefusal> {
        // SAFETY: by this function's contract.
        let section = unsafe { Section::new(descriptor) }?;
        if section.is_contiguous() {
            let words = Vec::new();
            return Ok(Self { section, is_in_place: true, words, is_written: false });
        }
        let bytes = section.elements() * section.element_bytes;
        let mut words = vec![0_u128; bytes.div_ceil(size_of::<u128>()).max(1)];
        let mut target = words.as_mut_ptr().cast::<u8>();
        section.for_each(|offset| {
            // SAFETY: the element is in the described memory, and the copy has room for all elements.
            unsafe {
                let source = section.base.offset(offset);
                core::ptr::copy_nonoverlapping(source, target, section.element_bytes);
                target = target.add(section.element_bytes);
            }
        });
        Ok(Self { section, is_in_place: false, words, is_written })
    }

    /// Address of the copy.
    pub fn address(&mut self) -> *mut c_void {
        match self.is_in_place {
            true => self.section.base.cast(),
            false => self.words.as_mut_ptr().cast(),
        }
    }
}

impl Drop for SectionCopy {
    /// Copies the elements back.
    fn drop(&mut self) {
        if !self.is_written {
            return;
        }
        let mut source = self.words.as_ptr().cast::<u8>();
        let section = &self.section;
        section.for_each(|offset| {
            // SAFETY: see `new`.
            unsafe {
                let target = section.base.offset(offset);
                core::ptr::copy_nonoverlapping(source, target, section.element_bytes);
                source = source.add(section.element_bytes);
            }
        });
    }
}

/// A section described by a datatype, for a call that ends later. A contiguous section, and a count of 0, keep count
/// and datatype.
pub struct SectionType {
    /// Address of the first element.
    pub address: *mut c_void,
    /// Number of elements of `datatype`.
    pub count: c_int,
    /// Number of elements of `datatype`, for a large-count form.
    pub large_count: i64,
    /// INTEGER of the datatype, which is freed with this value: MPI keeps it until the call has ended.
    pub datatype: c_int,
    made: Vec<usize>,
}

impl SectionType {
    /// Makes a datatype for the first `count` elements of `datatype` in the section.
    ///
    /// # Errors
    /// As [`Section::new`]; `OtherElements` if the datatype has gaps, or its elements are no whole parts of the
    /// section's, or there are more of them than the section has; `NoDatatype` if MPI refuses the datatype.
    ///
    /// # Safety
    /// `descriptor` points to a descriptor.
    pub unsafe fn new(
        descriptor: *const Descriptor, count: i64, datatype: c_int,
    ) -> Result<Self, BufferRefusal> {
        // SAFETY: by this function's contract.
        let section = unsafe { Section::new(descriptor) }?;
        if section.is_contiguous() || count == 0 {
            let (address, made) = (section.base.cast(), Vec::new());
            let small = count.try_into().unwrap_or(c_int::MAX);
            return Ok(Self { address, count: small, large_count: count, datatype, made });
        }
        let datatype = datatype_from(datatype);
        let (mut size, mut lower, mut extent) = (0, 0, 0);
        // SAFETY: addresses of local variables.
        let codes = unsafe {
            ffi::PMPI_Type_size_c(datatype, &mut size)
                | ffi::PMPI_Type_get_extent_c(datatype, &mut lower, &mut extent)
        };
        let each = section.element_bytes as i64;
        if codes != 0 || size <= 0 || size != extent || lower != 0 || each % size != 0 {
            return Err(BufferRefusal::OtherElements);
        }
        let bytes = count.checked_mul(size).filter(|b| b % each == 0);
        let wanted = bytes.ok_or(BufferRefusal::OtherElements)? / each;
        if count < 0 || wanted > section.elements() as i64 {
            return Err(BufferRefusal::OtherElements);
        }
        let mut maker = Maker(Vec::new());
        let element = maker.contiguous(each / size, datatype)?;
        let mut committed = maker.prefix(&section.dimensions, wanted, element)?;
        // SAFETY: address of a local variable.
        if unsafe { ffi::PMPI_Type_commit(&mut committed) } != 0 {
            return Err(BufferRefusal::NoDatatype);
        }
        Ok(Self {
            address: section.base.cast(),
            count: 1,
            large_count: 1,
            datatype: crate::convert::datatype_to(committed),
            made: core::mem::take(&mut maker.0),
        })
    }
}

impl Drop for SectionType {
    fn drop(&mut self) {
        free(&mut self.made);
    }
}

/// Makes datatypes, and frees them when dropped.
struct Maker(Vec<usize>);

impl Drop for Maker {
    fn drop(&mut self) {
        free(&mut self.0);
    }
}

fn free(made: &mut Vec<usize>) {
    for mut datatype in made.drain(..) {
        // SAFETY: address of a local variable; the datatype was made here.
        unsafe { ffi::PMPI_Type_free(&mut datatype) };
    }
}

impl Maker {
    fn keep(&mut self, code: c_int, datatype: usize) -> Result<usize, BufferRefusal> {
        if code != 0 {
            return Err(BufferRefusal::NoDatatype);
        }
        self.0.push(datatype);
        Ok(datatype)
    }

    fn contiguous(&mut self, count: i64, datatype: usize) -> Result<usize, BufferRefusal> {
        let mut made = 0;
        // SAFETY: address of a local variable.
        let code = unsafe { ffi::PMPI_Type_contiguous_c(count, datatype, &mut made) };
        self.keep(code, made)
    }

    fn strided(
        &mut self, count: i64, stride: isize, datatype: usize,
    ) -> Result<usize, BufferRefusal> {
        let mut made = 0;
        // SAFETY: address of a local variable.
        let code = unsafe {
            ffi::PMPI_Type_create_hvector_c(count, 1, stride as i64, datatype, &mut made)
        };
        self.keep(code, made)
    }

    /// Type of the first `wanted` elements of an array with these dimensions, the fastest first.
    fn prefix(
        &mut self, dimensions: &[Dimension], wanted: i64, element: usize,
    ) -> Result<usize, BufferRefusal> {
        let mut pieces: Vec<(usize, i64)> = Vec::new();
        for piece in pieces_of(dimensions, wanted) {
            let mut datatype = element;
            for (count, stride) in piece.steps {
                datatype = self.strided(count, stride, datatype)?;
            }
            pieces.push((datatype, piece.offset));
        }
        let (types, places): (Vec<usize>, Vec<i64>) = pieces.into_iter().unzip();
        let (lengths, mut made) = (vec![1_i64; types.len()], 0);
        // SAFETY: arrays of the passed length, and the address of a local variable.
        let code = unsafe {
            ffi::PMPI_Type_create_struct_c(
                types.len() as i64,
                lengths.as_ptr().cast_mut(),
                places.as_ptr().cast_mut(),
                types.as_ptr().cast_mut(),
                &mut made,
            )
        };
        self.keep(code, made)
    }
}

/// Part of an array: elements in equal steps, steps of these, and so on.
struct Piece {
    /// Bytes from the array's first element.
    offset: i64,
    /// Number of steps and bytes from one to the next, the fastest first.
    steps: Vec<(i64, isize)>,
}

/// Pieces that hold the first `wanted` elements of an array with these dimensions, the fastest first. Each dimension
/// gives a piece of whole lower dimensions.
fn pieces_of(dimensions: &[Dimension], wanted: i64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut rest, mut offset) = (wanted, 0_i64);
    for outer in (0..dimensions.len()).rev() {
        let inner = &dimensions[..outer];
        let each: i64 = inner.iter().map(|d| d.extent as i64).product();
        let stride = dimensions[outer].stride;
        let whole = rest / each;
        if whole > 0 {
            let mut steps: Vec<(i64, isize)> =
                inner.iter().map(|d| (d.extent as i64, d.stride)).collect();
            steps.push((whole, stride));
            pieces.push(Piece { offset, steps });
        }
        rest %= each;
        offset += whole * stride as i64;
    }
    if dimensions.is_empty() && wanted > 0 {
        pieces.push(Piece { offset: 0, steps: Vec::new() });
    }
    pieces
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
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
            offsets
                .iter()
                .flat_map(|o| self.memory[at(*o)..][..self.element_bytes].to_vec())
                .collect()
        }
    }

    /// Sections in which no two elements share memory: each dimension has `step` times the span of the lower ones,
    /// forwards or backwards.
    fn arrays() -> impl Strategy<Value = Array> {
        let dimension = (0..4_isize, 1..3_isize, any::<bool>());
        (0..6_usize, prop::collection::vec(dimension, 0..6)).prop_map(
            |(element_bytes, dimensions)| {
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
            },
        )
    }

    proptest! {
        #[test]
        fn copied__gathers_and_scatters_as_the_model(mut array in arrays()) {
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
        fn copied__that_is_read_only__leaves_the_memory(mut array in arrays()) {
            let before = array.memory.clone();
            let descriptor = array.descriptor();
            // SAFETY: a descriptor of memory that outlives the copy.
            let mut copied = unsafe { SectionCopy::new(&descriptor, false) }.unwrap();
            if !copied.is_in_place {
                copied.words.fill(0);
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
                for piece in pieces_of(&section.dimensions, wanted as i64) {
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
        let mut array = Array {
            memory: vec![0; 64],
            first: 0,
            element_bytes: 4,
            shape: vec![(3, 4), (-1, 12)],
        };
        let descriptor = array.descriptor();
        // SAFETY: a descriptor.
        assert!(unsafe { contiguous(&descriptor) }.is_some());
    }

    #[test]
    fn descriptor__of_another_layout__is_refused() {
        let mut array =
            Array { memory: vec![0; 64], first: 0, element_bytes: 4, shape: vec![(3, 4)] };
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
        let mut array =
            Array { memory: vec![0; 64], first: 0, element_bytes: 4, shape: vec![(3, 8)] };
        let descriptor = array.descriptor();
        // SAFETY: a descriptor.
        assert_eq!(unsafe { refuse_section(&descriptor) }.err(), Some(BufferRefusal::NoDatatype));
    }
}
