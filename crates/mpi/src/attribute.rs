//! Attribute keys and cached attributes.

/// An attribute key.
pub struct Keyval {}
