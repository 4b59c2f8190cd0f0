//! What went wrong with a file.

use std::fmt;
use std::io;

macro_rules! actions {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        /// What was done to the file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Action { $($name = $number),* }

        impl Action {
            /// The action of that number, as another process tells it.
            pub fn from_number(number: u8) -> Option<Action> {
                match number { $($number => Some(Action::$name),)* _ => None }
            }

            /// In words, for "the system call failed to ...".
            pub fn words(self) -> &'static str {
                match self { $(Action::$name => $words),* }
            }
        }
    };
}

actions! {
    Open = 1, "open it";
    Delete = 2, "delete it";
    Read = 3, "read from it";
    Write = 4, "write to it";
    Resize = 5, "set its size";
    Allocate = 6, "allocate its space";
    Inspect = 7, "ask for its size";
    Sync = 8, "write it to the device";
    Lock = 9, "lock a range of it";
    Close = 10, "close it";
}

/// A failed operation on a file: which, on which bytes, and the system's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    /// What was tried.
    pub action: Action,
    /// The system's error number.
    pub errno: i32,
    /// Where in the file, in bytes.
    pub offset: i64,
    /// How many bytes were asked for there.
    pub bytes: u64,
}

impl IoError {
    /// The last error of a system call.
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
                "; the program closed the descriptor that the library uses for this file",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for IoError {}
