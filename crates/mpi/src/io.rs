//! Files (MPI 5.0, chapter 14): semantics of the calls. Crate `io` computes which bytes an access covers, and makes the
//! system calls.
//!
//! Each file has its own communicator. Its collective calls have the same outcome on all ranks ([`failure::agree`]).
//! The shared file pointer is a word in rank 0's memory, changed by atomic operations ([`shared`]). No part of it is in
//! a file system.

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

pub use failure::AccessFailure;

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::common::table::{HandleKind, HandleTable};
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

/// View of a file, as set by `MPI_File_set_view`.
pub struct FileView {
    /// Bytes of the file that the view selects.
    pub view: View,
    /// Etype, the unit of offsets and file pointers.
    pub etype: Rc<Datatype>,
    /// Filetype, which the view repeats.
    pub filetype: Rc<Datatype>,
    /// Data representation of the file.
    pub representation: Representation,
    /// Bytes of an etype in the file; 0 if the etype is empty.
    pub(crate) unit: u64,
    /// Whether file offsets ascend with positions in the view.
    pub is_ascending: bool,
}

impl FileView {
    /// Returns the bytes of an etype in the file, or 1 for an empty etype.
    pub fn unit(&self) -> u64 {
        self.unit.max(1)
    }

    /// Returns the number of etypes of the view before byte `offset` of the file, rounded up.
    pub fn units_before(&self, offset: i64) -> i64 {
        self.view.bytes_before(offset).div_ceil(self.unit()) as i64
    }
}

/// An open file.
pub struct File {
    /// Handle of the file.
    pub handle: Cell<usize>,
    /// Handle of the error handler.
    pub errhandler: Cell<usize>,
    /// Communicator of the collective calls: a copy of the opening communicator.
    pub(crate) comm: Rc<Comm>,
    name: String,
    /// Name as the program gave it. It may contain any bytes.
    named: Box<[u8]>,
    path: std::ffi::CString,
    /// Call that opened the file, and its call site, if `FASTPATH_CHECK` is set.
    opened_by: String,
    /// Access mode: the bits of `MPI_MODE_*`.
    pub amode: i32,
    descriptor: RefCell<Option<Arc<Descriptor>>>,
    hints: RefCell<Hints>,
    shown: RefCell<Rc<FileView>>,
    /// Individual file pointer, in etypes of the view.
    position: Cell<i64>,
    atomic: Cell<bool>,
    /// Whether locks of at least one rank exclude only processes of that rank's host.
    local_locks: bool,
    pointer: RefCell<SharedPointer>,
    /// Kind and status of the split collective access under way; `None` if there is none.
    pending: Cell<Option<(split::SplitKind, Status)>>,
    hosts: OnceCell<u64>,
    /// Ranks of the aggregators of the last collective access that used aggregators.
    aggregated: RefCell<Vec<u32>>,
    buffer: RefCell<Vec<u8>>,
}

static OPEN_FILES: ProcessPart<HandleTable<File>> = ProcessPart::new(HandleTable::new());

pub(crate) fn find_handler(p: &Process, handle: usize) -> Option<usize> {
    Some(OPEN_FILES.of(p).get(handle)?.errhandler.get())
}

/// Drops all files of an exiting process. Data that the program has not written stays unwritten.
pub(crate) fn drop_all(p: &Process) {
    OPEN_FILES.of(p).clear();
}

/// Returns the file of a handle. Errors: `MPI_ERR_FILE` for an invalid handle.
pub fn find(p: &Process, handle: usize) -> Result<Rc<File>> {
    OPEN_FILES.of(p).find(handle)
}

/// With `FASTPATH_CHECK`, reports files that are open at `MPI_Finalize`.
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

impl HandleKind for File {
    const NOUN: &'static str = "file";
    const NULL: (usize, &'static str) = (MPI_FILE_NULL, "MPI_FILE_NULL");
    const CLASS: i32 = MPI_ERR_FILE;
}

impl File {
    /// Returns this rank's view.
    pub fn shown(&self) -> Rc<FileView> {
        self.shown.borrow().clone()
    }

    fn has_mode(&self, bits: i32) -> bool {
        self.amode & bits != 0
    }

    fn require_random(&self) -> Result {
        match self.has_mode(MPI_MODE_SEQUENTIAL) {
            true => Err(Error::new(
                MPI_ERR_UNSUPPORTED_OPERATION,
                "the file was opened with MPI_MODE_SEQUENTIAL: use the calls with the shared file \
                 pointer",
            )),
            false => Ok(()),
        }
    }
}
