//! Errors of file operations.

use std::fmt;
use std::io;

macro_rules! actions {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        /// An operation on a file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Action { $($name = $number),* }

        impl Action {
            /// Returns the action of a number received from another process.
            pub fn from_number(number: u8) -> Option<Action> {
                match number { $($number => Some(Action::$name),)* _ => None }
            }

            /// Returns words that complete "the system refused to ...".
            pub fn words(self) -> &'static str {
                match self { $(Action::$name => $words),* }
            }
        }
    };
}

actions! {
    Open = 1, "open the file";
    Delete = 2, "delete the file";
    Read = 3, "read from the file";
    Write = 4, "write to the file";
    Resize = 5, "set the size of the file";
    Allocate = 6, "allocate the space of the file";
    Inspect = 7, "return the size of the file";
    Sync = 8, "write the file to the device";
    Lock = 9, "lock a range of the file";
    Close = 10, "close the file";
}

/// A failed operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    /// Operation that failed.
    pub action: Action,
    /// Error number of the operating system.
    pub errno: i32,
    /// Offset in the file, in bytes.
    pub offset: i64,
    /// Number of bytes that the operation requested at `offset`.
    pub bytes: u64,
}

impl IoError {
    pub(crate) fn last(action: Action, offset: i64, bytes: u64) -> IoError {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        IoError { action, errno, offset, bytes }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = io::Error::from_raw_os_error(self.errno);
        write!(f, "the system refused to {}", self.action.words())?;
        match self.action {
            Action::Read | Action::Write | Action::Lock => {
                write!(f, " ({} bytes at offset {})", self.bytes, self.offset)?;
            }
            Action::Resize | Action::Allocate => write!(f, " ({} bytes)", self.bytes)?,
            _ => {}
        }
        write!(f, ": {why}")?;
        match self.errno {
            libc::EBADF => f.write_str(
                "; the program closed the descriptor that Fastpath had opened for this file",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for IoError {}
