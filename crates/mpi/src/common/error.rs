//! Error of the MPI layer: a class or user code, and a text.

pub mod classes;
pub mod codes;
pub mod handler;

use fastpath_base::tell::escape;
use std::borrow::Cow;
use std::fmt;

/// Result of the functions of this crate. The error is one thin pointer, so that a `Result<()>` fits one register.
pub type Result<T = ()> = core::result::Result<T, Error>;

/// Remedy for an attempt to free a predefined object.
pub const NOT_TO_BE_FREED: &str = "leave out this call: MPI_Finalize frees predefined objects";
/// Remedy for a call on an active request.
pub const COMPLETE_FIRST: &str = "complete the request first, by MPI_Wait or MPI_Test";
/// Remedy for a request that cannot be cancelled.
pub const COMPLETE_IT: &str = "complete the request by MPI_Wait or MPI_Test";

/// Remedy for collective calls whose blocks differ in length.
pub const SAME_ON_ALL_RANKS: &str = "pass counts and datatypes of the same length on all ranks, \
    and make the collective calls in the same order";

/// An MPI error: code, cause and, where known, the communicator it is raised on.
#[derive(Debug)]
pub struct Error(Box<ErrorInfo>);

#[derive(Debug)]
struct ErrorInfo {
    code: i32,
    message: String,
    comm: Option<usize>,
    file: Option<usize>,
    peer: Option<i32>,
    tag: Option<i32>,
    bytes: Option<u64>,
    advice: Option<Cow<'static, str>>,
    told_elsewhere: bool,
}

impl Error {
    /// Makes an error of `code`: an `MPI_ERR_*` class, or a code of `MPI_Add_error_code`. `message` has cause and
    /// remedy, without the name of the MPI call. Control characters are escaped, so that it stays one line.
    #[cold]
    #[inline(never)]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Cow::Owned(escaped) = escape(&message) {
            message = escaped;
        }
        Error(Box::new(ErrorInfo {
            code,
            message,
            comm: None,
            file: None,
            peer: None,
            tag: None,
            bytes: None,
            advice: None,
            told_elsewhere: false,
        }))
    }

    /// Raises the error on `comm`, regardless of the call's arguments.
    #[must_use]
    pub fn on_comm(mut self, comm: usize) -> Self {
        self.0.comm = Some(comm);
        self
    }

    /// Raises the error on `file`, regardless of the call's arguments.
    #[must_use]
    pub fn on_file(mut self, file: usize) -> Self {
        self.0.file = Some(file);
        self
    }

    /// Raises the error on the object on which `other` is raised.
    #[must_use]
    pub fn on_object_of(mut self, other: &Error) -> Self {
        (self.0.comm, self.0.file) = (other.0.comm, other.0.file);
        self
    }

    /// Returns the file set by [`Error::on_file`].
    pub fn file(&self) -> Option<usize> {
        self.0.file
    }

    /// Attaches data of the message: its bytes, the peer's rank or `MPI_ANY_SOURCE`, and the tag or `MPI_ANY_TAG`.
    #[must_use]
    pub fn about_message(mut self, peer: i32, tag: i32, bytes: u64) -> Self {
        (self.0.peer, self.0.tag, self.0.bytes) = (Some(peer), Some(tag), Some(bytes));
        self
    }

    /// Sets the remedy, which replaces that of the error class.
    #[must_use]
    pub fn with_advice(mut self, advice: Option<impl Into<Cow<'static, str>>>) -> Self {
        self.0.advice = advice.map(Into::into);
        self
    }

    /// Records whether another rank reports the error in full. If so, this rank prints only one line.
    #[must_use]
    pub fn told_elsewhere(mut self, is_so: bool) -> Self {
        self.0.told_elsewhere = is_so;
        self
    }

    /// Returns the flag set by [`Error::told_elsewhere`].
    pub fn is_told_elsewhere(&self) -> bool {
        self.0.told_elsewhere
    }

    /// Returns the remedy set by [`Error::with_advice`].
    pub fn advice(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// Returns the MPI error class or code.
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// Returns the cause in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns peer, tag and bytes set by [`Error::about_message`].
    pub fn about(&self) -> Option<(i32, i32, u64)> {
        Some((self.0.peer?, self.0.tag?, self.0.bytes?))
    }

    /// Returns the communicator set by [`Error::on_comm`].
    pub fn comm(&self) -> Option<usize> {
        self.0.comm
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}
