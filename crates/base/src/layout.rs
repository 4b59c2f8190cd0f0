//! Datatype layouts: the flattened form of a type map (MPI 5.0, section 5.1), and packing by it.
//!
//! A [`Layout`] is immutable. It holds a short list of strided [`Block`]s in type-map order. Data that no strided block
//! can express, such as a vector of vectors, becomes a loop over a shared list. A type therefore takes memory in
//! proportion to its arguments, not to the number of its pieces.
//!
//! Instructions per piece (x86-64, callgrind, `examples/pack_layouts.rs`; packing and unpacking are equal):
//!
//! - pieces of 4 or 8 bytes at a stride: 4
//! - rows of 10 pieces at two strides: 6; rows of 2: 13
//! - an irregular index: 28
//! - parts of a structure: 35
//!
//! In addition, finding the first piece of a fragment takes about 60 instructions.

mod bounds;
mod copy;
mod list;
mod streamed;
#[cfg(test)]
mod tests;
mod walk;

use bounds::Bounds;
pub use list::Block;
use list::{BlockList, ListBuilder};
use std::fmt;
use std::sync::Arc;
pub use streamed::ByteStream;

/// Reason why a layout cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutError {
    /// A size, displacement or extent does not fit 64 bits.
    Overflow,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the datatype's size or extent does not fit 64 bits")
    }
}

impl std::error::Error for LayoutError {}

/// Positions of the data bytes of one element of a datatype, relative to the element's address. A clone shares the
/// list.
#[derive(Debug, Clone)]
pub struct Layout {
    size: u64,
    lb: i64,
    extent: i64,
    contiguous: bool,
    bounds: Bounds,
    list: Arc<BlockList>,
    /// Functions that move the bytes, if the processor cannot touch them. The list is then empty.
    stream: Option<Arc<dyn ByteStream>>,
}

/// A part of a structure: `count` consecutive elements of `layout`, the first at byte `displacement`.
#[derive(Debug, Clone, Copy)]
pub struct StructPart<'a> {
    /// Layout of an element.
    pub layout: &'a Layout,
    /// Number of consecutive elements.
    pub count: u64,
    /// Position of the first element, in bytes.
    pub displacement: i64,
}

impl Layout {
    /// Makes a basic type of `size` bytes with the given alignment, a power of two (1 for none).
    pub fn basic(size: u32, align: u32) -> Layout {
        let list = BlockList::dense(size.into());
        Layout::assemble(list, Bounds::basic(size, align))
            .unwrap_or_else(|_| unreachable!("a 32-bit size fits"))
    }

    /// Makes a layout of `bytes` contiguous bytes without alignment.
    pub fn contiguous(bytes: u64) -> Result<Layout, LayoutError> {
        Layout::basic(1, 1).repeat(bytes)
    }

    /// Makes a layout without bytes.
    pub fn empty() -> Layout {
        Layout::basic(0, 1)
    }

    /// Makes `count` consecutive elements (MPI_Type_contiguous).
    pub fn repeat(&self, count: u64) -> Result<Layout, LayoutError> {
        Layout::indexed(self, count, [0])
    }

    /// Makes `count` groups of `blocklength` elements, `stride` bytes apart (MPI_Type_vector, MPI_Type_create_hvector).
    pub fn vector(&self, count: u64, blocklength: u64, stride: i64) -> Result<Layout, LayoutError> {
        let group = self.list.repeat(blocklength, self.extent)?;
        let list = group.repeat(count, stride)?;
        let bounds = self.bounds.repeat(blocklength, self.extent)?.repeat(count, stride)?;
        Layout::assemble(list, bounds)
    }

    /// Makes blocks of `blocklength` elements, one at each byte displacement (MPI_Type_create_hindexed_block).
    pub fn indexed(
        &self, blocklength: u64, displacements: impl IntoIterator<Item = i64>,
    ) -> Result<Layout, LayoutError> {
        self.indexed_parts(displacements.into_iter().map(|d| (blocklength, d)))
    }

    /// Makes one block for each pair of a count of elements and a byte displacement (MPI_Type_create_hindexed).
    pub fn indexed_parts(
        &self, parts: impl IntoIterator<Item = (u64, i64)>,
    ) -> Result<Layout, LayoutError> {
        Layout::structure(parts.into_iter().map(|(count, displacement)| StructPart {
            layout: self,
            count,
            displacement,
        }))
    }

    /// Makes the parts in their order (MPI_Type_create_struct).
    pub fn structure<'a>(
        parts: impl IntoIterator<Item = StructPart<'a>>,
    ) -> Result<Layout, LayoutError> {
        let mut builder = ListBuilder::default();
        let mut bounds = Bounds::default();
        for part in parts {
            let own = part
                .layout
                .bounds
                .repeat(part.count, part.layout.extent)?
                .shift(part.displacement)?;
            bounds = bounds.union(own);
            builder.add(&part.layout.list, part.count, part.layout.extent, part.displacement)?;
        }
        Layout::assemble(builder.finish(), bounds)
    }

    /// Sets lower bound and extent, in bytes (MPI_Type_create_resized). The extent may be negative, or smaller than the
    /// data.
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Layout, LayoutError> {
        let ub = lb.checked_add(extent).ok_or(LayoutError::Overflow)?;
        Layout::assemble(self.list.clone(), self.bounds.with_marks(lb, ub))
    }

    fn assemble(list: Arc<BlockList>, bounds: Bounds) -> Result<Layout, LayoutError> {
        let bounds = bounds.pad()?;
        let (lb, extent) = bounds.resolve()?;
        let size = list.size();
        let dense_at_zero = list.dense_piece().is_some_and(|b| b.offset == 0);
        let contiguous =
            lb == 0 && i64::try_from(size) == Ok(extent) && (size == 0 || dense_at_zero);
        Ok(Layout { size, lb, extent, contiguous, bounds, list, stream: None })
    }

    /// Data bytes of one element.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Lower bound in bytes, from the type map or as set by [`Layout::resized`].
    #[inline]
    pub fn lb(&self) -> i64 {
        self.lb
    }

    /// Distance between consecutive elements, in bytes.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Lowest data byte, as an offset. 0 for an empty type.
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.bounds.data.map_or(0, |d| d.0)
    }

    /// Bytes from the lowest data byte to the end of the highest; 0 for an empty type.
    #[inline]
    pub fn true_extent(&self) -> i64 {
        self.bounds.data.map_or(0, |d| d.1 - d.0)
    }

    /// Largest alignment of the basic types, in bytes.
    pub fn align(&self) -> u32 {
        self.bounds.align
    }

    /// Returns whether the data of any number of elements is one piece of memory that starts at the buffer's address.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Returns whether the pieces of one element are in ascending order and do not overlap.
    pub fn is_ascending(&self) -> bool {
        self.list.order().is_some_and(|order| order.is_apart)
    }

    /// Returns whether no piece of one element starts before its predecessor in the type map. Adjacent pieces count as
    /// one. Pieces may overlap.
    pub fn is_nondecreasing(&self) -> bool {
        self.list.order().is_some()
    }

    /// Returns the offset in bytes of the data of `count` elements from the buffer's address, if it is one piece of
    /// memory. Unlike [`Layout::is_contiguous`], this allows a lower bound, and gaps around one element.
    #[inline]
    pub fn dense_offset(&self, count: u64) -> Option<i64> {
        if self.contiguous || self.size == 0 || count == 0 {
            return Some(0);
        }
        let piece = self.list.dense_piece()?;
        (count == 1 || i64::try_from(piece.len) == Ok(self.extent)).then_some(piece.offset)
    }

    /// Returns the data bytes of `count` elements; `None` if they do not fit 63 bits.
    #[inline]
    pub fn total_bytes(&self, count: u64) -> Option<u64> {
        self.size.checked_mul(count).filter(|b| *b <= i64::MAX as u64)
    }

    /// Returns the lowest data byte of `count` elements, relative to the buffer's address, and the bytes from there to
    /// the end of the highest. The caller must own this range. (0, 0) without data.
    pub fn span(&self, count: u64) -> Result<(i64, i64), LayoutError> {
        let (low, high) = self.bounds.repeat(count, self.extent)?.data.unwrap_or((0, 0));
        Ok((low, high.checked_sub(low).ok_or(LayoutError::Overflow)?))
    }

    /// Number of list entries (strided blocks and loops) of one element. An entry of a shared list counts once for each
    /// loop over the list.
    pub fn entries(&self) -> u64 {
        self.list.total()
    }
}
