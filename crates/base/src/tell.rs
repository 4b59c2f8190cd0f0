//! What the library says to the user.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Writes a line to standard error, formatted as by `format!`. In one piece: several processes often share a standard
/// error, and their lines would mix. What cannot be written is lost.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::tell::line(format_args!($($words)*)) };
}

/// See [`tell!`].
pub fn line(text: Arguments<'_>) {
    let _ = stderr().write_all(format!("{text}\n").as_bytes());
}
