//! Files (MPI 5.0, chapter 14): what the calls mean. Which bytes an access touches, and the system calls, are crate
//! `io`'s.
//!
//! A file has a communicator of its own for its collective calls, which all end alike on every rank
//! ([`failure::agree`]). Its shared pointer is a word of rank 0's memory that all change by atomic operations
//! ([`shared`]): nothing of it lies in a file system.

pub mod access;
mod collective;
mod failure;
pub(crate) mod helper;
pub mod hints;
pub mod manage;
pub mod open;
mod report;
pub mod representation;
pub mod request;
pub mod shared;
pub mod split;
mod two_phase;

pub use failure::Refused;

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::common::table::{Handled, Table};
use crate::objects::comm::Comm;
use crate::objects::datatype::Datatype;
use crate::process::{Process, ProcessPart};
use fastpath_io::{Descriptor, View};
use hints::Hints;
use representation::Representation;
use shared::SharedPointer;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// What a rank sees of the file, as `MPI_File_set_view` left it.
pub struct Shown {
    /// Where the bytes are.
    pub view: View,
    /// What offsets and pointers count.
    pub etype: Rc<Datatype>,
    /// What is repeated.
    pub filetype: Rc<Datatype>,
    /// How numbers lie in the file.
    pub representation: Representation,
    /// Bytes of an etype in the file.
    pub(crate) unit: u64,
    /// Whether later bytes of the view lie behind earlier ones in the file.
    pub is_ascending: bool,
}

impl Shown {
    /// Bytes of an etype in the file.
    pub fn unit(&self) -> u64 {
        self.unit.max(1)
    }

    /// Etypes of the view before byte `offset` of the file, rounded up.
    pub fn units_before(&self, offset: i64) -> i64 {
        self.view.bytes_before(offset).div_ceil(self.unit()) as i64
    }
}

/// An open file.
pub struct File {
    /// Its handle.
    pub handle: Cell<usize>,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// The communicator of its collective calls: the members of the one that it was opened on.
    pub(crate) comm: Rc<Comm>,
    /// As messages show it.
    name: String,
    /// As the program named it: any bytes.
    named: Box<[u8]>,
    /// As the system calls it.
    path: std::ffi::CString,
    /// The call that opened it with its place, where mistakes are looked for.
    opened_by: String,
    /// The access mode.
    pub amode: i32,
    descriptor: RefCell<Option<Arc<Descriptor>>>,
    hints: RefCell<Hints>,
    shown: RefCell<Rc<Shown>>,
    /// The individual file pointer, in etypes of the view.
    position: Cell<i64>,
    atomic: Cell<bool>,
    /// Whether some rank's locks keep out only processes of its own host.
    local_locks: bool,
    pointer: RefCell<SharedPointer>,
    /// The split collective access under way, and how it has ended.
    pending: Cell<Option<(split::Which, Status)>>,
    /// Hosts that ranks are on, once that was asked.
    hosts: OnceCell<u64>,
    /// Ranks of the file that moved bytes for others in the last collective access where any did.
    aggregated: RefCell<Vec<u32>>,
    /// Memory that collective accesses use, kept from one to the next.
    buffer: RefCell<Vec<u8>>,
}

/// The open files of the process.
static OPEN_FILES: ProcessPart<Table<File>> = ProcessPart::new(Table::new());

/// The error handler of a file.
pub(crate) fn find_handler(p: &Process, handle: usize) -> Option<usize> {
    Some(OPEN_FILES.of(p).get(handle)?.errhandler.get())
}

/// The file behind a handle.
///
/// # Errors
/// `MPI_ERR_FILE` for an invalid handle.
pub fn find(p: &Process, handle: usize) -> Result<Rc<File>> {
    OPEN_FILES.of(p).find(handle)
}

/// Tells, where mistakes are looked for, of files that are open when the program calls `MPI_Finalize`.
pub(crate) fn tell_left(p: &Process) {
    let (files, Some(checks)) = (OPEN_FILES.of(p), p.checks()) else { return };
    for file in files.handles().into_iter().filter_map(|handle| files.get(handle)) {
        let File { name, opened_by, .. } = &*file;
        let text = format!(
            "MPI_File_close was never called for the file \"{name}\", opened by {opened_by}"
        );
        checks.tell(&text);
    }
}

impl Handled for File {
    const NOUN: &'static str = "file";
    const NULL: (usize, &'static str) = (MPI_FILE_NULL, "MPI_FILE_NULL");
    const CLASS: i32 = MPI_ERR_FILE;
}

impl File {
    /// What this rank sees of it.
    pub fn shown(&self) -> Rc<Shown> {
        self.shown.borrow().clone()
    }

    /// Whether it was opened with these bits of a mode.
    fn has_mode(&self, bits: i32) -> bool {
        self.amode & bits != 0
    }

    /// Refuses what only files without `MPI_MODE_SEQUENTIAL` have.
    fn require_random(&self) -> Result {
        match self.has_mode(MPI_MODE_SEQUENTIAL) {
            true => Err(Error::new(
                MPI_ERR_UNSUPPORTED_OPERATION,
                "the file was opened with MPI_MODE_SEQUENTIAL: only the shared file pointer \
                 moves in it",
            )),
            false => Ok(()),
        }
    }
}
