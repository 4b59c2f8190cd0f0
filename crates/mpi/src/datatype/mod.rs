//! Datatypes.

/// A datatype.
pub struct Datatype {}
