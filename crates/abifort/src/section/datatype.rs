//! Datatypes that describe sections.
#![allow(unsafe_code)]

use super::{BufferRefusal, Descriptor, Dimension, Section};
use crate::convert::{datatype_from, datatype_to};
use crate::ffi;
use core::ffi::{c_int, c_void};

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
    /// Every error of [`Section::new`]. `OtherElements` if the datatype has gaps, if it does not divide an element of
    /// the section, or if `count` exceeds the section. `NoDatatype` if MPI refuses the datatype.
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
        let mut committed = maker.prefix(section.dimensions(), wanted, element)?;
        // SAFETY: address of a local variable.
        if unsafe { ffi::PMPI_Type_commit(&mut committed) } != 0 {
            return Err(BufferRefusal::NoDatatype);
        }
        Ok(Self {
            address: section.base.cast(),
            count: 1,
            large_count: 1,
            datatype: datatype_to(committed),
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
pub(super) struct Piece {
    /// Bytes from the array's first element.
    pub offset: i64,
    /// Number of steps and bytes from one to the next, the fastest first.
    pub steps: Vec<(i64, isize)>,
}

/// Pieces that hold the first `wanted` elements of an array with these dimensions, the fastest first. Each dimension
/// gives a piece of whole lower dimensions.
pub(super) fn pieces_of(dimensions: &[Dimension], wanted: i64) -> Vec<Piece> {
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
