//! Datatypes (MPI 5.0, chapter 5), named and derived.
//!
//! A datatype is a layout (the places of the bytes), a signature (the basic types) and the arguments it was made from.
//! Objects share their parts, so that a type freed while another type or an operation uses it stays alive.

mod address;
mod array;
mod construct;
mod contents;
mod external;
mod fortran;
mod keepers;
mod packing;
mod predefined;
mod rebuild;
#[cfg(test)]
mod recreate;
mod signature;
#[cfg(test)]
mod tests;

pub use address::{is_memory, name_special};
pub use array::DistributedArray;
pub use contents::{Combiner, Contents, Form};
pub use keepers::DatatypeKeeper;
pub use predefined::{Basic, BasicKind};
pub use signature::{Digest, Signature};

use crate::common::consts::*;
use crate::common::error::Error;
use crate::common::table::HandleKind;
use crate::objects::attribute::{Attributes, Holder, KeyvalKind};
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::layout::{Layout, LayoutError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Error of an operation on a datatype.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A negative count.
    #[error("the count {0} is negative")]
    NegativeCount(i64),
    /// A negative block length, with its index.
    #[error("the block length {1} at index {0} is negative")]
    NegativeLength(usize, i64),
    /// A size, displacement or extent beyond 64 bits.
    #[error("the datatype's size or extent does not fit 64 bits")]
    Overflow,
    /// An optional datatype that this library does not have.
    #[error("the datatype {0} is not supported by this library")]
    NotSupported(&'static str),
    /// A datatype without a file form, described by its kind.
    #[error("{0} cannot be converted for a file whose data representation is not native")]
    NotConvertible(&'static str),
    /// A wrong argument: its name, and the fault.
    #[error("{0} {1}")]
    Argument(&'static str, String),
    /// A special address that is invalid for the buffer: its name, and the bytes of data.
    #[error("the buffer is {0}, but the call has {1} bytes of data")]
    Address(&'static str, u64),
    /// A datatype that was not committed.
    #[error("the datatype is not committed: call MPI_Type_commit first")]
    NotCommitted,
    /// A value too large for the portable form: the value, and the bytes of the form.
    #[error("the value {0} does not fit the {1} bytes of its external32 form")]
    NotPortable(String, usize),
    /// A buffer too short for the data: bytes needed, bytes available.
    #[error("{0} bytes are needed, but the buffer has {1}")]
    Truncated(u64, u64),
}

impl From<LayoutError> for TypeError {
    fn from(LayoutError::Overflow: LayoutError) -> TypeError {
        TypeError::Overflow
    }
}

impl From<TypeError> for Error {
    fn from(error: TypeError) -> Error {
        let class = match error {
            TypeError::NegativeCount(_) | TypeError::Overflow => MPI_ERR_COUNT,
            TypeError::NotSupported(_) | TypeError::NotConvertible(_) | TypeError::NotCommitted => {
                MPI_ERR_TYPE
            }
            TypeError::Address(..) => MPI_ERR_BUFFER,
            TypeError::NotPortable(..) => MPI_ERR_CONVERSION,
            TypeError::NegativeLength(..) | TypeError::Argument(..) => MPI_ERR_ARG,
            TypeError::Truncated(..) => MPI_ERR_TRUNCATE,
        };
        let advice = match error {
            TypeError::Address(..) => Some("pass the address of memory"),
            TypeError::Truncated(..) => Some("pass a buffer that holds all of the data"),
            _ => None,
        };
        Error::new(class, error.to_string()).with_advice(advice)
    }
}

/// Result of an operation on datatypes.
pub type Result<T> = std::result::Result<T, TypeError>;

/// A datatype. A clone is a separate object with its own name and committed state, and no attributes.
#[derive(Debug, Clone)]
pub struct Datatype {
    layout: Arc<Layout>,
    signature: Arc<Signature>,
    contents: Rc<Contents>,
    basic: Option<Basic>,
    committed: Cell<bool>,
    name: RefCell<String>,
    attributes: Attributes,
    keepers: keepers::Keepers,
}

impl HandleKind for Datatype {
    const NOUN: &'static str = "datatype";
    const NULL: (usize, &'static str) = (MPI_DATATYPE_NULL, "MPI_DATATYPE_NULL");
    const CLASS: i32 = MPI_ERR_TYPE;
}

impl Datatype {
    /// Makes a named datatype. An unsupported one has no bytes, and calls that use it fail.
    pub fn named(basic: Basic) -> Datatype {
        let layout = basic.layout().unwrap_or_else(|_| Layout::empty());
        let mut datatype = Datatype::assemble(
            layout,
            Signature::basic(basic),
            Contents::without_arguments(Combiner::Named),
        );
        datatype.basic = Some(basic);
        datatype.committed = Cell::new(true);
        datatype.name = RefCell::new(basic.name.to_string());
        datatype
    }

    /// Returns handle and object of every named datatype of the ABI except MPI_DATATYPE_NULL.
    pub fn all_named() -> impl Iterator<Item = (usize, Datatype)> {
        Basic::all().map(|basic| (basic.handle.into(), Datatype::named(basic)))
    }

    fn assemble(layout: Layout, signature: Signature, contents: Contents) -> Datatype {
        debug_assert_eq!(layout.size(), signature.bytes());
        Datatype {
            layout: Arc::new(layout),
            signature: Arc::new(signature),
            contents: Rc::new(contents),
            basic: None,
            committed: Cell::new(false),
            name: RefCell::default(),
            attributes: Attributes::default(),
            keepers: keepers::Keepers::default(),
        }
    }

    /// Returns the layout of one element: the places of its bytes.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the signature of one element: its basic types.
    pub fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// Returns the constructor of the type and its arguments.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns the type itself if it is named. For a type of MPI_Type_create_f90_real or a similar call, returns the
    /// named type that equals it; for other types, `None`.
    #[inline]
    pub fn basic(&self) -> Option<Basic> {
        self.basic
    }

    /// Returns whether the type is predefined, and so cannot be freed.
    pub fn is_predefined(&self) -> bool {
        self.basic.is_some()
    }

    /// Returns whether data of the type can be moved; false for an optional named type that this library lacks.
    #[inline]
    pub fn is_supported(&self) -> bool {
        self.basic.is_none_or(Basic::is_supported)
    }

    /// Returns whether the type was committed, and so may be used in communication.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.committed.get()
    }

    /// Commits the type. The layout is already final.
    pub fn commit(&self) {
        self.committed.set(true);
    }

    /// Returns `count` elements at `ptr` as a buffer of the protocol layer; `None` if bytes or span do not fit 64 bits.
    pub fn buffer(&self, ptr: *mut u8, count: u64) -> Option<Buffer> {
        let bytes = self.layout.total_bytes(count)?;
        if let Some(offset) = self.layout.dense_offset(count) {
            return Some(Buffer::contiguous(ptr.wrapping_offset(offset as isize), bytes));
        }
        self.layout.span(count).ok()?;
        Some(Buffer { ptr, bytes, layout: Some(self.layout.clone()), count })
    }

    /// Returns the size for the immediate path; `None` unless the type is committed, contiguous and not empty.
    pub fn immediate_size(&self) -> Option<u64> {
        let size = self.layout.size();
        (self.is_committed() && self.layout.is_contiguous() && size > 0).then_some(size)
    }

    /// Data bytes of one element; `None` (MPI_UNDEFINED) if the type is not supported.
    pub fn size(&self) -> Option<i64> {
        self.is_supported().then(|| i64::try_from(self.layout.size()).ok()).flatten()
    }

    /// Lower bound and extent in bytes.
    pub fn extent(&self) -> (i64, i64) {
        (self.layout.lb(), self.layout.extent())
    }

    /// Lower bound and extent of the data, in bytes.
    pub fn true_extent(&self) -> (i64, i64) {
        (self.layout.true_lb(), self.layout.true_extent())
    }

    /// Name of the type; initially that of a predefined type, or empty.
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// Sets the name that `MPI_Type_get_name` returns.
    pub fn set_name(&self, name: &str) {
        self.name.replace(name.to_string());
    }

    /// Returns the type as the holder of attributes, under the user's `handle`.
    pub fn holder(&self, handle: usize) -> Holder<'_> {
        Holder { kind: KeyvalKind::Type, handle, attributes: &self.attributes }
    }

    /// Elements in `bytes` received bytes (MPI_Get_count); `None` (MPI_UNDEFINED) unless these are whole elements.
    #[inline]
    pub fn count_from_bytes(&self, bytes: u64) -> Option<i64> {
        match self.layout.size() {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then(|| i64::try_from(bytes / size).ok()).flatten(),
        }
    }

    /// Basic elements in `bytes` received bytes (MPI_Get_elements); `None` (MPI_UNDEFINED) if the bytes end within an
    /// element.
    pub fn elements_from_bytes(&self, bytes: u64) -> Option<i64> {
        self.signature.elements_in(bytes).and_then(|n| i64::try_from(n).ok())
    }

    /// Bytes of the first `elements` basic elements (MPI_Status_set_elements).
    pub fn bytes_from_elements(&self, elements: u64) -> Option<u64> {
        self.signature.bytes_of(elements).filter(|bytes| *bytes <= i64::MAX as u64)
    }
}

/// Finds the predefined type of `class` and `size` (MPI_Type_match_size).
pub fn match_size(class: TypeClass, size: i64) -> Option<Basic> {
    let name = match class {
        TypeClass::Real => "MPI_REAL",
        TypeClass::Integer => "MPI_INTEGER",
        TypeClass::Complex => "MPI_COMPLEX",
        TypeClass::Logical => "MPI_LOGICAL",
    };
    let name = format!("{name}{size}");
    Basic::all().find(|basic| basic.is_supported() && basic.name == name)
}

/// Classes of MPI_Type_match_size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeClass {
    /// MPI_TYPECLASS_REAL.
    Real,
    /// MPI_TYPECLASS_INTEGER.
    Integer,
    /// MPI_TYPECLASS_COMPLEX.
    Complex,
    /// MPIX_TYPECLASS_LOGICAL.
    Logical,
}

/// Finds the pair type of two basic types (MPI_Type_get_value_index).
pub fn value_index_pair(value: Basic, index: Basic) -> Option<Basic> {
    Basic::all().find(|basic| basic.pair_parts() == Some((value, index)))
}
