//! Info objects.

/// An info object.
pub struct Info {}
