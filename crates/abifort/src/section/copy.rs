//! Copies of sections.
#![allow(unsafe_code)]

use super::{BufferRefusal, Descriptor, Section};
use core::ffi::c_void;

/// A contiguous copy of a section, for a blocking call. A contiguous section is its own copy.
pub struct SectionCopy {
    section: Section,
    /// The copy, in words of 16 bytes, so that every type is aligned; `None` for a contiguous section.
    pub(super) words: Option<Vec<u128>>,
    is_written: bool,
}

impl SectionCopy {
    /// Copies the section. `is_written`: the call may change the buffer, so the drop copies the elements back.
    ///
    /// # Errors
    /// Every error of [`Section::new`].
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
            return Ok(Self { section, words: None, is_written: false });
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
        Ok(Self { section, words: Some(words), is_written })
    }

    /// Address of the copy.
    pub fn address(&mut self) -> *mut c_void {
        match &mut self.words {
            None => self.section.base.cast(),
            Some(words) => words.as_mut_ptr().cast(),
        }
    }
}

impl Drop for SectionCopy {
    /// Copies the elements back to the section if the call may have changed them.
    fn drop(&mut self) {
        let Some(words) = self.words.as_ref().filter(|_| self.is_written) else {
            return;
        };
        let mut source = words.as_ptr().cast::<u8>();
        let section = &self.section;
        section.for_each(|offset| {
            // SAFETY: the contract of `new`: the section's memory is valid for writes until this drop. `words` has all
            // elements.
            unsafe {
                let target = section.base.offset(offset);
                core::ptr::copy_nonoverlapping(source, target, section.element_bytes);
                source = source.add(section.element_bytes);
            }
        });
    }
}

/// Returns the buffer of a nonblocking or persistent call that has no datatype for the whole buffer.
///
/// # Errors
/// Every error of [`Section::new`]. `NoDatatype` if the section is not contiguous.
///
/// # Safety
/// `descriptor` points to a descriptor.
pub unsafe fn contiguous_only(descriptor: *const Descriptor) -> Result<SectionCopy, BufferRefusal> {
    // SAFETY: by this function's contract.
    let section = unsafe { Section::new(descriptor) }?;
    if !section.is_contiguous() {
        return Err(BufferRefusal::NoDatatype);
    }
    Ok(SectionCopy { section, words: None, is_written: false })
}
