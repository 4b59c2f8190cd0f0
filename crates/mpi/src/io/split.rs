//! Split collective accesses (MPI 5.0, section 14.4.5), at most one at a time on a file. The begin call moves the
//! bytes, and the end call returns the outcome.
#![allow(unsafe_code)]

use super::File;
use super::access::{Access, FilePlace};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::process::Process;

/// Kind of a split access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SplitKind {
    ReadAtAll,
    WriteAtAll,
    ReadAll,
    WriteAll,
    ReadOrdered,
    WriteOrdered,
}

impl SplitKind {
    /// Returns the name of the call that begins the access.
    pub fn name(self) -> &'static str {
        match self {
            SplitKind::ReadAtAll => "MPI_File_read_at_all_begin",
            SplitKind::WriteAtAll => "MPI_File_write_at_all_begin",
            SplitKind::ReadAll => "MPI_File_read_all_begin",
            SplitKind::WriteAll => "MPI_File_write_all_begin",
            SplitKind::ReadOrdered => "MPI_File_read_ordered_begin",
            SplitKind::WriteOrdered => "MPI_File_write_ordered_begin",
        }
    }

    fn of(access: &Access) -> SplitKind {
        match (access.place, access.writes) {
            (FilePlace::At(_), false) => SplitKind::ReadAtAll,
            (FilePlace::At(_), true) => SplitKind::WriteAtAll,
            (FilePlace::Individual, false) => SplitKind::ReadAll,
            (FilePlace::Individual, true) => SplitKind::WriteAll,
            (_, false) => SplitKind::ReadOrdered,
            (_, true) => SplitKind::WriteOrdered,
        }
    }
}

impl File {
    /// Begins a split access. Errors: see [`File::access`]; `MPI_ERR_OTHER` if another split access is under way.
    ///
    /// # Safety
    /// See [`File::access`].
    pub unsafe fn begin(&self, p: &Process, access: &Access) -> Result {
        // SAFETY: the elements are readable or writable as the access requires, by this function's contract.
        let status = unsafe { self.access(p, access)? };
        self.pending.set(Some((SplitKind::of(access), status)));
        Ok(())
    }

    /// Ends the split access under way. Errors: `MPI_ERR_OTHER` if no access of the kind `which` is under way.
    pub fn end(&self, which: SplitKind) -> Result<Status> {
        match self.pending.get() {
            Some((pending, status)) if pending == which => {
                self.pending.set(None);
                Ok(status)
            }
            Some((pending, _)) => Err(Error::new(
                MPI_ERR_OTHER,
                format!(
                    "the split access under way was begun by {}: end that access by the matching \
                     _end call",
                    pending.name()
                ),
            )),
            None => {
                let text = format!("no split access is under way: call {} first", which.name());
                Err(Error::new(MPI_ERR_OTHER, text))
            }
        }
    }
}
