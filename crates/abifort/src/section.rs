//! Choice buffers of module `mpi_f08`: C descriptors of arrays, perhaps not contiguous (MPI 5.0, section 19.1.12).
//!
//! A section of an array stands for one contiguous array of its elements in array element order. A blocking call gets a
//! copy. A call that ends later gets a datatype that describes the elements where they are.
#![allow(unsafe_code)]

mod copy;
mod datatype;
#[cfg(test)]
mod tests;

pub use copy::{SectionCopy, contiguous_only};
pub use datatype::SectionType;

use core::ffi::{c_int, c_void};

/// Versions of descriptors whose layout is the one below: gfortran; flang to version 19; later flang.
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
pub unsafe fn scalar_or_vector(descriptor: *const Descriptor) -> Option<*mut c_void> {
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
    // SAFETY: by this function's contract.
    let section = unsafe { Section::new(descriptor) }.ok()?;
    section.is_contiguous().then(|| section.base.cast())
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

/// A section, read from its descriptor.
pub struct Section {
    base: *mut u8,
    element_bytes: usize,
    /// Dimensions with more than one element, the fastest first; the first `rank` are valid.
    dimensions: [Dimension; MAX_RANK],
    rank: usize,
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
            let Descriptor { base, element_bytes, version, rank, .. } = *descriptor;
            if !VERSIONS.contains(&version) || !(0..=MAX_RANK as i8).contains(&rank) {
                return Err(BufferRefusal::UnknownDescriptor);
            }
            let first = (&raw const (*descriptor).dimensions).cast::<Dimension>();
            let all = core::slice::from_raw_parts(first, rank as usize);
            let mut section = Self {
                base: base.cast(),
                element_bytes,
                dimensions: [Dimension { _lower_bound: 0, extent: 0, stride: 0 }; MAX_RANK],
                rank: 0,
                // The array is not allocated, or the substring has no characters.
                is_empty: base.is_null() || element_bytes == 0,
            };
            // An array of assumed size is contiguous, and its last extent is unknown: one element stands for it.
            if all.last().is_none_or(|last| last.extent < 0) {
                return Ok(section);
            }
            for dimension in all {
                section.is_empty |= dimension.extent == 0;
                if dimension.extent > 1 {
                    section.dimensions[section.rank] = *dimension;
                    section.rank += 1;
                }
            }
            Ok(section)
        }
    }

    fn dimensions(&self) -> &[Dimension] {
        &self.dimensions[..self.rank]
    }

    fn is_contiguous(&self) -> bool {
        let mut bytes = self.element_bytes as isize;
        self.is_empty
            || self.dimensions().iter().all(|d| {
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
        self.dimensions().iter().map(|d| d.extent as usize).product()
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
                let Some(d) = self.dimensions().get(dimension) else {
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
