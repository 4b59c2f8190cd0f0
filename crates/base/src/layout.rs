//! Where the bytes of a datatype lie: the flattened form of a type map (MPI 5.0, section 5.1), and packing by it.
//!
//! A [`Layout`] is immutable. It holds a short list of strided [`Block`]s in type-map order, so that packing walks a
//! list. What one strided block cannot say (a vector of vectors, a repeated structure) becomes a loop over a shared
//! list: a type costs memory in proportion to the arguments it was made from, never to the number of its pieces.
//!
//! Instructions per piece (x86-64, callgrind, `examples/pack_layouts.rs`; packing and unpacking are equal): pieces of 4
//! or 8 bytes at a stride 4, in rows of 10 at two strides 6, in rows of 2 13; an irregular index 28; the parts of a
//! structure 35. To these come about 60 to find the first piece of a fragment.

mod bounds;
mod copy;
mod list;
#[cfg(test)]
mod tests;
mod walk;

use bounds::Bounds;
pub use list::Block;
use list::{List, ListBuilder};
use std::fmt;
use std::sync::Arc;

/// Why a layout could not be made.
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

/// Where the bytes of one element of a datatype lie, relative to its address.
///
/// Cloning shares the list.
#[derive(Debug, Clone)]
pub struct Layout {
    size: u64,
    lb: i64,
    extent: i64,
    contiguous: bool,
    bounds: Bounds,
    list: Arc<List>,
}

/// One part of a structure: `count` consecutive elements of `layout`, the first at byte `displacement`.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The part's own layout.
    pub layout: &'a Layout,
    /// Number of consecutive elements.
    pub count: u64,
    /// Where the first one lies, in bytes.
    pub displacement: i64,
}

impl Layout {
    /// A basic type of `size` bytes whose address must be a multiple of `align` (a power of two; 1 where none is
    /// asked).
    pub fn basic(size: u32, align: u32) -> Layout {
        let list = List::dense(size.into());
        Layout::assemble(list, Bounds::basic(size, align))
            .unwrap_or_else(|_| unreachable!("a 32-bit size fits"))
    }

    /// `bytes` bytes in one piece, without alignment.
    pub fn contiguous(bytes: u64) -> Result<Layout, LayoutError> {
        Layout::basic(1, 1).repeat(bytes)
    }

    /// No bytes at all.
    pub fn empty() -> Layout {
        Layout::basic(0, 1)
    }

    /// `count` elements one after the other (MPI_Type_contiguous).
    pub fn repeat(&self, count: u64) -> Result<Layout, LayoutError> {
        Layout::indexed(self, count, [0])
    }

    /// `count` groups of `blocklength` elements, `stride` bytes apart (MPI_Type_vector, MPI_Type_create_hvector).
    pub fn vector(&self, count: u64, blocklength: u64, stride: i64) -> Result<Layout, LayoutError> {
        let group = self.list.repeat(blocklength, self.extent)?;
        let list = group.repeat(count, stride)?;
        let bounds = self.bounds.repeat(blocklength, self.extent)?.repeat(count, stride)?;
        Layout::assemble(list, bounds)
    }

    /// `blocklength` elements at each of the byte displacements (MPI_Type_create_hindexed_block).
    pub fn indexed(
        &self, blocklength: u64, displacements: impl IntoIterator<Item = i64>,
    ) -> Result<Layout, LayoutError> {
        self.indexed_parts(displacements.into_iter().map(|d| (blocklength, d)))
    }

    /// At each (number of elements, byte displacement) that many elements (MPI_Type_create_hindexed).
    pub fn indexed_parts(
        &self, parts: impl IntoIterator<Item = (u64, i64)>,
    ) -> Result<Layout, LayoutError> {
        Layout::structure(parts.into_iter().map(|(count, displacement)| Part {
            layout: self,
            count,
            displacement,
        }))
    }

    /// The parts in their order (MPI_Type_create_struct).
    pub fn structure<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> Result<Layout, LayoutError> {
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

    /// The same bytes with another lower bound and extent, in bytes (MPI_Type_create_resized). An extent may be
    /// negative or smaller than the data.
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Layout, LayoutError> {
        let ub = lb.checked_add(extent).ok_or(LayoutError::Overflow)?;
        Layout::assemble(self.list.clone(), self.bounds.with_marks(lb, ub))
    }

    fn assemble(list: Arc<List>, bounds: Bounds) -> Result<Layout, LayoutError> {
        let bounds = bounds.pad()?;
        let (lb, extent) = bounds.resolve()?;
        let size = list.size();
        let dense_at_zero = list.dense_piece().is_some_and(|b| b.offset == 0);
        let contiguous =
            lb == 0 && i64::try_from(size) == Ok(extent) && (size == 0 || dense_at_zero);
        Ok(Layout { size, lb, extent, contiguous, bounds, list })
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

    /// Bytes from one element to the next.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Lowest byte that holds data; 0 for an empty type.
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.bounds.data.map_or(0, |d| d.0)
    }

    /// Bytes from the lowest that holds data to behind the highest; 0 for an empty type.
    #[inline]
    pub fn true_extent(&self) -> i64 {
        self.bounds.data.map_or(0, |d| d.1 - d.0)
    }

    /// Alignment that the basic types in it ask for, in bytes.
    pub fn align(&self) -> u32 {
        self.bounds.align
    }

    /// Whether any number of elements is one piece of memory that starts at the buffer's address.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Whether the pieces of one element lie in ascending order and apart from each other.
    pub fn is_ascending(&self) -> bool {
        self.list.order().is_some_and(|order| order.is_apart)
    }

    /// Whether no piece of one element starts before the one before it in the type map; neighbours are one piece. They
    /// may overlap.
    pub fn is_nondecreasing(&self) -> bool {
        self.list.order().is_some()
    }

    /// Where the data of `count` elements starts, in bytes from the buffer's address, if it is one piece of memory.
    /// Covers what [`Layout::is_contiguous`] does not: one element with gaps around it, or a lower bound.
    #[inline]
    pub fn dense_offset(&self, count: u64) -> Option<i64> {
        if self.contiguous || self.size == 0 || count == 0 {
            return Some(0);
        }
        let piece = self.list.dense_piece()?;
        (count == 1 || i64::try_from(piece.len) == Ok(self.extent)).then_some(piece.offset)
    }

    /// Bytes of data in `count` elements; none where it does not fit 63 bits.
    #[inline]
    pub fn total_bytes(&self, count: u64) -> Option<u64> {
        self.size.checked_mul(count).filter(|b| *b <= i64::MAX as u64)
    }

    /// Lowest data byte of `count` elements and the number of bytes to behind the highest, relative to the buffer's
    /// address: what a caller must own. (0, 0) when there is no data.
    pub fn span(&self, count: u64) -> Result<(i64, i64), LayoutError> {
        let (low, high) = self.bounds.repeat(count, self.extent)?.data.unwrap_or((0, 0));
        Ok((low, high.checked_sub(low).ok_or(LayoutError::Overflow)?))
    }

    /// Number of list entries (strided blocks and loops) that describe one element; an entry of a list that several
    /// loops share counts for each.
    pub fn entries(&self) -> u64 {
        self.list.total()
    }
}
