//! The error of the MPI layer: a class (or user code) and the text that explains it.

pub mod classes;
pub mod codes;
pub mod handler;

use fastpath_base::tell::escape;
use std::borrow::Cow;
use std::fmt;

/// What every function of this crate returns. The error is one thin pointer, so that a
/// `Result<()>` travels in one register.
pub type Result<T = ()> = core::result::Result<T, Error>;

/// What to do with a predefined object.
pub const NOT_TO_BE_FREED: &str = "do not free it: MPI_Finalize does";
/// What to do with an active request.
pub const COMPLETE_FIRST: &str = "complete it first, by MPI_Wait or MPI_Test";
/// What to do with a request that cannot be cancelled.
pub const COMPLETE_IT: &str = "complete it, by MPI_Wait or MPI_Test";

/// An MPI error: code, cause and, where known, the communicator it is raised on.
#[derive(Debug)]
pub struct Error(Box<Info>);

#[derive(Debug)]
struct Info {
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
    /// An error of `code` (an `MPI_ERR_*` class or a code made by `MPI_Add_error_code`).
    /// `message` gives the cause and the remedy, without the name of the MPI call. Control characters in it are
    /// escaped, so that it stays one line.
    #[cold]
    #[inline(never)]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Cow::Owned(escaped) = escape(&message) {
            message = escaped;
        }
        Error(Box::new(Info {
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

    /// The call exists in the standard, but is not implemented yet.
    #[cold]
    #[inline(never)]
    pub fn unsupported(name: &str) -> Self {
        Error::new(
            crate::common::consts::MPI_ERR_UNSUPPORTED_OPERATION,
            format!("{name} is not implemented in this version of Fastpath"),
        )
    }

    /// Raises the error on `comm` (its error handler), whatever the arguments of the call say.
    #[must_use]
    pub fn on_comm(mut self, comm: usize) -> Self {
        self.0.comm = Some(comm);
        self
    }

    /// Raises the error on a file (its error handler), whatever the arguments of the call say.
    #[must_use]
    pub fn on_file(mut self, file: usize) -> Self {
        self.0.file = Some(file);
        self
    }

    /// Raises the error on the object that another one is raised on.
    #[must_use]
    pub fn on_object_of(mut self, other: &Error) -> Self {
        (self.0.comm, self.0.file) = (other.0.comm, other.0.file);
        self
    }

    /// The file that [`Error::on_file`] named.
    pub fn file(&self) -> Option<usize> {
        self.0.file
    }

    /// Names the message the error is about: the rank of the peer (or `MPI_ANY_SOURCE`), the tag (or
    /// `MPI_ANY_TAG`) and the bytes.
    #[must_use]
    pub fn about_message(mut self, peer: i32, tag: i32, bytes: u64) -> Self {
        (self.0.peer, self.0.tag, self.0.bytes) = (Some(peer), Some(tag), Some(bytes));
        self
    }

    /// Says what to do, in place of what is known of its class.
    #[must_use]
    pub fn with_advice(mut self, advice: Option<impl Into<Cow<'static, str>>>) -> Self {
        self.0.advice = advice.map(Into::into);
        self
    }

    /// Another rank raises the same error and reports it in full: one line is enough here.
    #[must_use]
    pub fn told_elsewhere(mut self, is_so: bool) -> Self {
        self.0.told_elsewhere = is_so;
        self
    }

    /// What [`Error::told_elsewhere`] said.
    pub fn is_told_elsewhere(&self) -> bool {
        self.0.told_elsewhere
    }

    /// What [`Error::with_advice`] said.
    pub fn advice(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// The MPI error class or code.
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// The cause in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What [`Error::about_message`] named: peer, tag and bytes.
    pub fn about(&self) -> Option<(i32, i32, u64)> {
        Some((self.0.peer?, self.0.tag?, self.0.bytes?))
    }

    /// The communicator that [`Error::on_comm`] named.
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
