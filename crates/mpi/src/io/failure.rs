//! Errors of files: their classes, and the common outcome of collective calls.

use super::File;
use crate::coll;
use crate::coll::words::{broadcast_outcome, gather_all};
use crate::common::consts::*;
use crate::common::error::classes;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::datatype::TypeError;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_io::{Action, IoError};

/// Reason for which a rank cannot do its part of a call.
#[derive(Debug)]
pub enum AccessFailure {
    /// Error of a system call.
    System(IoError),
    /// Any other error, for example a wrong argument.
    Other(Error),
}

impl From<IoError> for AccessFailure {
    fn from(error: IoError) -> AccessFailure {
        AccessFailure::System(error)
    }
}

impl From<Error> for AccessFailure {
    fn from(error: Error) -> AccessFailure {
        AccessFailure::Other(error)
    }
}

impl From<TypeError> for AccessFailure {
    fn from(error: TypeError) -> AccessFailure {
        AccessFailure::Other(error.into())
    }
}

fn class_of(error: &IoError) -> i32 {
    match error.errno {
        libc::EACCES | libc::EPERM => MPI_ERR_ACCESS,
        libc::ENOENT => MPI_ERR_NO_SUCH_FILE,
        libc::EEXIST => MPI_ERR_FILE_EXISTS,
        libc::EROFS => MPI_ERR_READ_ONLY,
        libc::ENOSPC => MPI_ERR_NO_SPACE,
        libc::EDQUOT => MPI_ERR_QUOTA,
        libc::ENAMETOOLONG | libc::ENOTDIR | libc::EISDIR | libc::ELOOP => MPI_ERR_BAD_FILE,
        libc::EBUSY | libc::ETXTBSY => MPI_ERR_FILE_IN_USE,
        libc::EOPNOTSUPP | libc::ENOSYS => MPI_ERR_UNSUPPORTED_OPERATION,
        _ => MPI_ERR_IO,
    }
}

/// Returns the MPI error for a failed system call of `rank`, a rank of the file's communicator, or of the job without a
/// communicator.
pub(super) fn explain(name: &str, rank: u32, error: &IoError) -> Error {
    let text = format!("file \"{name}\", rank {rank}: {error}");
    Error::new(class_of(error), text)
}

pub(super) const TOLD: usize = 4;
/// First word of the outcome of a rank that refuses the call, unless a system call has failed.
const REFUSED: u64 = 2;

pub(super) fn to_words(own: &std::result::Result<(), AccessFailure>) -> [u64; TOLD] {
    match own {
        Ok(()) => [0; TOLD],
        Err(AccessFailure::System(e)) => {
            [1 | (e.action as u64) << 8, e.errno as u64, e.offset as u64, e.bytes]
        }
        Err(AccessFailure::Other(e)) => [REFUSED, e.code() as u64, 0, 0],
    }
}

/// Decodes the outcome of a rank: its error, or `None` on success.
fn from_words(name: &str, rank: u32, words: &[u64; TOLD]) -> Option<Error> {
    match words[0] & 0xff {
        0 => None,
        1 => {
            let action = Action::from_number((words[0] >> 8) as u8).unwrap_or(Action::Inspect);
            let error = IoError {
                action,
                errno: words[1] as i32,
                offset: words[2] as i64,
                bytes: words[3],
            };
            Some(explain(name, rank, &error))
        }
        _ => {
            // A rank that refuses the call never sends `MPI_SUCCESS`, so these words belong to a different call.
            let code = match words[1] as i32 {
                MPI_SUCCESS => MPI_ERR_OTHER,
                code => code,
            };
            let meaning = classes::meaning_of(code);
            let text = format!(
                "file \"{name}\": rank {rank} of the communicator failed in the same call: \
                 {meaning}"
            );
            Some(Error::new(code, text))
        }
    }
}

/// Splits a result into its value, which the rank keeps, and its outcome, which the rank sends.
pub(super) fn tell<T>(
    own: std::result::Result<T, AccessFailure>,
) -> (Option<T>, std::result::Result<(), AccessFailure>) {
    match own {
        Ok(value) => (Some(value), Ok(())),
        Err(refused) => (None, Err(refused)),
    }
}

/// Agrees on the outcome of a collective call: the error of the first rank that has one. Errors: the agreed error, or
/// errors of communication.
pub(super) fn agree<T>(
    p: &Process, comm: &Comm, name: &str, own: std::result::Result<T, AccessFailure>,
) -> Result<T> {
    Ok(agree_and_tell::<T, TOLD>(p, comm, name, own, &[])?.0)
}

/// Agrees on the outcome like [`agree`], and also exchanges the words `more`. Returns the words of all members:
/// [`TOLD`] words of the outcome, then those of `more`.
pub(super) fn agree_and_tell<T, const WORDS: usize>(
    p: &Process, comm: &Comm, name: &str, own: std::result::Result<T, AccessFailure>, more: &[u64],
) -> Result<(T, Vec<[u64; WORDS]>)> {
    let (value, told) = tell(own);
    let mut words = [0; WORDS];
    let both = to_words(&told).into_iter().chain(more.iter().copied());
    words.iter_mut().zip(both).for_each(|(to, word)| *to = word);
    coll::compare_calls(p, comm)?;
    let all = match comm.size() {
        1 => vec![words],
        _ => gather_all(&Channel::next(p, comm), words)?,
    };
    let kinds = all.iter().map(|words| words[0] & 0xff);
    if let Some((root, REFUSED)) = (0..).zip(kinds).find(|&(_, kind)| kind != 0) {
        // The words of a refusal have only the class of the error. The first rank with an error therefore broadcasts
        // cause and remedy.
        let own = match &told {
            Err(AccessFailure::Other(error)) if root == comm.rank => Some(error),
            _ => None,
        };
        broadcast_outcome(&Channel::next(p, comm), root, own, &mut Vec::new())?;
    }
    let outcomes = all.iter().filter_map(|words| words.first_chunk());
    conclude(comm.rank, name, told, outcomes)?;
    let value = value.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a rank's error was lost"))?;
    Ok((value, all))
}

/// Returns the common outcome of a call from the words of all ranks. `told` is this rank's outcome. Errors: the error
/// of the first rank that has one.
pub(super) fn conclude<'a>(
    rank: u32, name: &str, told: std::result::Result<(), AccessFailure>,
    all: impl Iterator<Item = &'a [u64; TOLD]>,
) -> Result {
    let found =
        (0..).zip(all).find_map(|(rank, words)| Some((rank, from_words(name, rank, words)?)));
    match (found, told) {
        (None, _) => Ok(()),
        // This rank has the full message of its own error.
        (Some((first, _)), Err(AccessFailure::Other(own))) if first == rank => Err(own),
        (Some((_, error)), _) => Err(error),
    }
}

impl File {
    /// Agrees on an outcome like [`agree`], on this file's communicator.
    pub(super) fn agree<T>(
        &self, p: &Process, own: std::result::Result<T, AccessFailure>,
    ) -> Result<T> {
        agree(p, &self.comm, &self.name, own)
    }

    /// Returns the MPI error for a failure in work that only this rank does.
    pub(super) fn explain(&self, refused: AccessFailure) -> Error {
        match refused {
            AccessFailure::System(error) => explain(&self.name, self.comm.rank, &error),
            AccessFailure::Other(error) => error,
        }
    }

    /// Checks that an argument is equal on all ranks. Errors: `MPI_ERR_NOT_SAME` on all ranks, or errors of
    /// communication.
    pub(super) fn require_same(&self, p: &Process, what: &str, value: u64) -> Result {
        if self.comm.size() == 1 {
            return Ok(());
        }
        coll::compare_calls(p, &self.comm)?;
        let all = gather_all(&Channel::next(p, &self.comm), [value])?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => {
                let text = format!(
                    "file \"{}\": {what} differs between rank 0 and rank {rank}",
                    self.name
                );
                Err(Error::new(MPI_ERR_NOT_SAME, text))
            }
        }
    }
}
