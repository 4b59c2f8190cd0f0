//! Errors of the command line. `fastpath` then exits with code 2, as it does for an option that the parser refuses.

use std::{error, fmt, io};

/// Options or arguments that are invalid, or that exclude each other.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for UsageError {}

impl From<UsageError> for io::Error {
    fn from(error: UsageError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

impl UsageError {
    /// Returns whether `error` is a usage error, or was caused by one.
    pub fn is_cause_of(error: &anyhow::Error) -> bool {
        let is_within = |e: &io::Error| e.get_ref().is_some_and(|inner| inner.is::<UsageError>());
        error
            .chain()
            .any(|cause| cause.is::<UsageError>() || cause.downcast_ref().is_some_and(is_within))
    }
}

/// Returns from the function with a [`UsageError`] of a formatted text.
#[macro_export]
macro_rules! refuse_usage {
    ($($text:tt)*) => {
        return Err($crate::usage::UsageError(format!($($text)*)).into())
    };
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use anyhow::{Context, Result};

    #[test]
    fn usage_error__is_found_below_a_context_and_in_an_io_error() {
        let refuse = || -> Result<()> { refuse_usage!("--sizes {}", 0) };
        let refuse_io = || -> io::Result<()> { refuse_usage!("--sizes {}", 0) };
        let error = refuse().context("cannot measure").unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot measure: --sizes 0");
        assert!(UsageError::is_cause_of(&error));
        assert!(UsageError::is_cause_of(&refuse_io().unwrap_err().into()));
        assert!(!UsageError::is_cause_of(&io::Error::other("--sizes 0").into()));
        assert!(!UsageError::is_cause_of(&anyhow::anyhow!("--sizes 0")));
    }
}
