//! Split collective accesses (MPI 5.0, section 14.4.5): one at a time on each file. The bytes move when the access
//! begins; its end returns the outcome.
#![allow(unsafe_code)]

use super::File;
use super::access::{Access, FilePlace};
use crate::common::consts::MPI_ERR_OTHER;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::process::Process;

/// Which split access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Which {
    ReadAtAll,
    WriteAtAll,
    ReadAll,
    WriteAll,
    ReadOrdered,
    WriteOrdered,
}

impl Which {
    /// The call that begins it.
    pub fn name(self) -> &'static str {
        match self {
            Which::ReadAtAll => "MPI_File_read_at_all_begin",
            Which::WriteAtAll => "MPI_File_write_at_all_begin",
            Which::ReadAll => "MPI_File_read_all_begin",
            Which::WriteAll => "MPI_File_write_all_begin",
            Which::ReadOrdered => "MPI_File_read_ordered_begin",
            Which::WriteOrdered => "MPI_File_write_ordered_begin",
        }
    }

    fn of(access: &Access) -> Which {
        match (access.place, access.writes) {
            (FilePlace::At(_), false) => Which::ReadAtAll,
            (FilePlace::At(_), true) => Which::WriteAtAll,
            (FilePlace::Individual, false) => Which::ReadAll,
            (FilePlace::Individual, true) => Which::WriteAll,
            (_, false) => Which::ReadOrdered,
            (_, true) => Which::WriteOrdered,
        }
    }
}

impl File {
    /// Begins a split access.
    ///
    /// # Errors
    /// As [`File::access`]; `MPI_ERR_OTHER` where another one is under way.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn begin(&self, p: &Process, access: &Access) -> Result {
        // SAFETY: the elements are readable or writable as the access says, by this function's contract.
        let status = unsafe { self.access(p, access)? };
        self.pending.set(Some((Which::of(access), status)));
        Ok(())
    }

    /// Ends the split access under way.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER` where none of this kind is.
    pub fn end(&self, which: Which) -> Result<Status> {
        match self.pending.get() {
            Some((pending, status)) if pending == which => {
                self.pending.set(None);
                Ok(status)
            }
            Some((pending, _)) => Err(Error::new(
                MPI_ERR_OTHER,
                format!("the split access under way was begun by {}", pending.name()),
            )),
            None => {
                let text = format!("no split access is under way: call {} first", which.name());
                Err(Error::new(MPI_ERR_OTHER, text))
            }
        }
    }
}
