//! Reduction operations.

/// A reduction operation.
pub struct Op {}
