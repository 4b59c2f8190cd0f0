//! Errors of files: the class of each, and one outcome for all ranks of a collective call.

use super::File;
use crate::coll;
use crate::coll::words::gather_all;
use crate::common::consts::*;
use crate::common::error::classes;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::datatype::TypeError;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_io::{Action, IoError};

/// Why a rank cannot do its part.
#[derive(Debug)]
pub enum Refused {
    /// The system's reason.
    System(IoError),
    /// A wrong argument, or anything else.
    Other(Error),
}

impl From<IoError> for Refused {
    fn from(error: IoError) -> Refused {
        Refused::System(error)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Other(error)
    }
}

impl From<TypeError> for Refused {
    fn from(error: TypeError) -> Refused {
        Refused::Other(error.into())
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

/// The error of rank `rank` of the communicator that the file was opened on, or of the job without one.
pub(super) fn explain(name: &str, rank: u32, error: &IoError) -> Error {
    let text = format!("file \"{name}\", rank {rank}: {error}");
    Error::new(class_of(error), text)
}

/// Words in which a rank reports its part to the others.
pub(super) const TOLD: usize = 4;

/// What a rank tells the others of its part.
pub(super) fn to_words(own: &std::result::Result<(), Refused>) -> [u64; TOLD] {
    match own {
        Ok(()) => [0; TOLD],
        Err(Refused::System(e)) => {
            [1 | (e.action as u64) << 8, e.errno as u64, e.offset as u64, e.bytes]
        }
        Err(Refused::Other(e)) => [2, e.code() as u64, 0, 0],
    }
}

/// The error that a rank has reported; none if its words make no sense or say that there is none.
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
            // No rank tells of success so: they make different calls.
            let code = match words[1] as i32 {
                MPI_SUCCESS => MPI_ERR_OTHER,
                code => code,
            };
            let meaning = classes::meaning_of(code);
            let text = format!("file \"{name}\": rank {rank} of the call refuses it: {meaning}");
            Some(Error::new(code, text))
        }
    }
}

/// What a rank reports of its part to the others, and what it keeps.
pub(super) fn tell<T>(
    own: std::result::Result<T, Refused>,
) -> (Option<T>, std::result::Result<(), Refused>) {
    match own {
        Ok(value) => (Some(value), Ok(())),
        Err(refused) => (None, Err(refused)),
    }
}

/// The outcome of a collective call, the same on all members: the error of the first rank that has one.
///
/// # Errors
/// That error; those of communication.
pub(super) fn agree<T>(
    p: &Process, comm: &Comm, name: &str, own: std::result::Result<T, Refused>,
) -> Result<T> {
    Ok(agree_and_tell::<T, TOLD>(p, comm, name, own, &[])?.0)
}

/// The same in one exchange with `more`, which follows the [`TOLD`] words of the outcome; returns what all members have
/// sent.
///
/// # Errors
/// As there.
pub(super) fn agree_and_tell<T, const WORDS: usize>(
    p: &Process, comm: &Comm, name: &str, own: std::result::Result<T, Refused>, more: &[u64],
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
    let outcomes = all.iter().filter_map(|words| words.first_chunk());
    conclude(comm.rank, name, told, outcomes)?;
    let value = value.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a rank's error was lost"))?;
    Ok((value, all))
}

/// The outcome by all ranks' words; this rank's say what `told` is.
///
/// # Errors
/// The error of the first rank that has one.
pub(super) fn conclude<'a>(
    rank: u32, name: &str, told: std::result::Result<(), Refused>,
    all: impl Iterator<Item = &'a [u64; TOLD]>,
) -> Result {
    let found =
        (0..).zip(all).find_map(|(rank, words)| Some((rank, from_words(name, rank, words)?)));
    match (found, told) {
        (None, _) => Ok(()),
        // In its own words.
        (Some((first, _)), Err(Refused::Other(own))) if first == rank => Err(own),
        (Some((_, error)), _) => Err(error),
    }
}

impl File {
    /// As [`agree`], on this file.
    ///
    /// # Errors
    /// As there.
    pub(super) fn agree<T>(&self, p: &Process, own: std::result::Result<T, Refused>) -> Result<T> {
        agree(p, &self.comm, &self.name, own)
    }

    /// The error of a part that only this rank was to do.
    pub(super) fn explain(&self, refused: Refused) -> Error {
        match refused {
            Refused::System(error) => explain(&self.name, self.comm.rank, &error),
            Refused::Other(error) => error,
        }
    }

    /// Refuses arguments that are not those of rank 0.
    ///
    /// # Errors
    /// `MPI_ERR_NOT_SAME`, the same on all ranks; those of communication.
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
