//! Opening, closing and deleting (MPI 5.0, section 14.2).

use super::failure::{self, AccessFailure, TOLD, agree, agree_and_tell};
use super::hints::Hints;
use super::representation::Representation;
use super::shared::SharedPointer;
use super::{File, FileView, OPEN_FILES, find, report};
use crate::coll;
use crate::coll::words::gather_all;
use crate::comm_creation::{create, free_comm, publish};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::process::Process;
use crate::process::errhandler;
use fastpath_io::{Descriptor, IoError, Opening, View, delete};
use fastpath_protocol::rma::KEY_WORDS;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

/// File system prefixes that other MPI libraries accept. They are removed, because the file system is detected.
const PREFIXES: [&str; 5] = ["ufs:", "nfs:", "lustre:", "xfs:", "gpfs:"];

const ALL_MODES: i32 = MPI_MODE_APPEND
    | MPI_MODE_CREATE
    | MPI_MODE_DELETE_ON_CLOSE
    | MPI_MODE_EXCL
    | MPI_MODE_RDONLY
    | MPI_MODE_RDWR
    | MPI_MODE_SEQUENTIAL
    | MPI_MODE_UNIQUE_OPEN
    | MPI_MODE_WRONLY;

fn show_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn path_of(name: &[u8]) -> Result<CString> {
    let shorter = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix.as_bytes()));
    let path = shorter.unwrap_or(name);
    match CString::new(path) {
        Ok(path) if !path.is_empty() => Ok(path),
        _ => Err(Error::new(MPI_ERR_BAD_FILE, "the file name is NULL or empty")),
    }
}

fn check_mode(amode: i32) -> Result {
    let wrong = |what: &str| Err(Error::new(MPI_ERR_AMODE, format!("access mode {amode}: {what}")));
    let ways = [MPI_MODE_RDONLY, MPI_MODE_WRONLY, MPI_MODE_RDWR];
    if amode & !ALL_MODES != 0 {
        return wrong("some bits are not an MPI_MODE_ constant");
    }
    if ways.iter().filter(|&&way| amode & way != 0).count() != 1 {
        return wrong(
            "exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR is needed",
        );
    }
    if amode & MPI_MODE_RDONLY != 0 && amode & (MPI_MODE_CREATE | MPI_MODE_EXCL) != 0 {
        return wrong("MPI_MODE_RDONLY cannot be combined with MPI_MODE_CREATE or MPI_MODE_EXCL");
    }
    if amode & MPI_MODE_RDWR != 0 && amode & MPI_MODE_SEQUENTIAL != 0 {
        return wrong("MPI_MODE_RDWR cannot be combined with MPI_MODE_SEQUENTIAL");
    }
    Ok(())
}

/// `MPI_File_open`. Returns the handle. Errors, of one class on all ranks: `MPI_ERR_AMODE`, `MPI_ERR_NOT_SAME` for
/// different modes, `MPI_ERR_COMM`, errors of hints and of system calls.
pub fn open(
    p: &Process, parent: &Comm, name: &[u8], amode: i32, given: Result<Vec<(String, String)>>,
) -> Result<usize> {
    parent.require_intra()?;
    coll::compare_calls(p, parent)?;
    let made = create::create_of_first(p, parent, parent.size())?;
    let made = made.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a member has no communicator"))?;
    made.name.replace(format!("of file {}", show_name(name)));
    let comm = publish(p, made)?;
    match open_on(p, comm, name, amode, given) {
        Ok(handle) => Ok(handle),
        Err(error) => {
            free_comm(p, comm)?;
            Err(error)
        }
    }
}

fn open_on(
    p: &Process, comm: usize, named: &[u8], amode: i32, given: Result<Vec<(String, String)>>,
) -> Result<usize> {
    let comm = p.comm(comm)?;
    let shown_name = show_name(named);
    let name = shown_name.as_str();
    let mut hints = Hints::default();
    let mut ignored = hints.merge_defaults();
    let checked = check_mode(amode).and_then(|()| {
        ignored.extend(hints.merge(given?));
        path_of(named)
    });
    report::tell_ignored(p, &comm, name, ignored);
    let checked = checked.map_err(AccessFailure::Other);
    let more = [amode as u64, hints.sieve_word()];
    let (path, all) = agree_and_tell::<_, { TOLD + 2 }>(p, &comm, name, checked, &more)?;
    if all.iter().any(|told| told[TOLD] != all[0][TOLD]) {
        let text = format!("file \"{name}\": the access modes of the ranks differ");
        return Err(Error::new(MPI_ERR_NOT_SAME, text));
    }
    hints.agree_on_sieve(all.iter().map(|told| told[TOLD + 1]));
    let opened = open_in_turn(p, &comm, name, &path, amode, &hints)?;
    let (mut pointer, made) = match SharedPointer::make(p, &comm) {
        Ok(pointer) => (pointer, Ok(())),
        Err(error) => (SharedPointer::Own(Cell::new(0)), Err(error)),
    };
    let own = opened.map_err(AccessFailure::System);
    let own = own.and_then(|opened| made.map(|()| opened).map_err(AccessFailure::Other));
    let mut more = [0; 1 + KEY_WORDS];
    more[0] = own.as_ref().is_ok_and(Descriptor::has_local_locks).into();
    more[1..].copy_from_slice(&pointer.words());
    let told = agree_and_tell::<_, { TOLD + 1 + KEY_WORDS }>(p, &comm, name, own, &more);
    let (descriptor, all) = told.inspect_err(|_| pointer.release(p))?;
    pointer.learn(&all[0][TOLD + 1..]);
    tell_other_file(p, &comm, name, &descriptor)?;
    descriptor.set_mapping(!p.engine().is_some_and(|e| e.config.is_disabled("file-mapping")));
    descriptor.set_sieving(hints.reads_between());
    if let Some(striping) = descriptor.striping() {
        hints.set_striping(striping);
    }
    let byte = p.datatype(MPI_BYTE)?;
    let shown = FileView {
        view: View::new(0, byte.layout().clone()),
        etype: byte.clone(),
        filetype: byte,
        representation: Representation::Native("native"),
        unit: 1,
        is_ascending: true,
    };
    let file = Rc::new(File {
        handle: Cell::new(MPI_FILE_NULL),
        errhandler: Cell::new(p.file_errhandler.get()),
        comm: comm.clone(),
        name: shown_name,
        named: named.into(),
        path,
        opened_by: p.checks().map(|checks| checks.name(p.call.get())).unwrap_or_default(),
        amode,
        descriptor: RefCell::new(Some(Arc::new(descriptor))),
        hints: RefCell::new(hints),
        shown: RefCell::new(Rc::new(shown)),
        position: Cell::new(0),
        atomic: Cell::new(false),
        local_locks: all.iter().any(|told| told[TOLD] != 0),
        pointer: RefCell::new(pointer),
        pending: Cell::new(None),
        hosts: OnceCell::new(),
        aggregated: RefCell::default(),
        buffer: RefCell::default(),
    });
    if amode & MPI_MODE_APPEND != 0 {
        let size = file.agree(p, file.with_descriptor(|d| Ok(d.size()?)))?;
        file.position.set(size);
        file.move_shared(p, size)?;
    }
    let handle = OPEN_FILES.of(p).publish(file.clone())?;
    file.handle.set(handle);
    errhandler::attach(p, file.errhandler.get());
    Ok(handle)
}

/// If `FASTPATH_CHECK` is set, reports that this rank has opened a different file from rank 0.
fn tell_other_file(p: &Process, comm: &Comm, name: &str, own: &Descriptor) -> Result {
    let (Some(checks), Some(engine)) = (p.checks(), p.engine()) else {
        return Ok(());
    };
    // Device numbers are compared only on one host, because hosts may use different numbers for one file system.
    let host = engine.job.host(comm.my_world_rank() as usize);
    let [device, inode] = own.identity().unwrap_or_default();
    let all = gather_all(&Channel::next(p, comm), [host.into(), device, inode])?;
    let is_other = inode != all[0][2] || (u64::from(host) == all[0][0] && device != all[0][1]);
    if is_other {
        let call = checks.name(p.call.get());
        let text = format!(
            "{call} opens \"{name}\", but rank 0 of its communicator opens another file: pass the \
             same file on all ranks"
        );
        checks.tell(&text);
    }
    Ok(())
}

/// Opens the file. If the call may create it, rank 0 opens it first. The inner result is this rank's own outcome, on
/// which the ranks have not agreed yet.
fn open_in_turn(
    p: &Process, comm: &Comm, name: &str, path: &CString, amode: i32, hints: &Hints,
) -> Result<std::result::Result<Descriptor, IoError>> {
    let has = |bits: i32| amode & bits != 0;
    let how = Opening {
        read: !has(MPI_MODE_WRONLY),
        write: !has(MPI_MODE_RDONLY),
        create: has(MPI_MODE_CREATE),
        exclusive: has(MPI_MODE_EXCL) && has(MPI_MODE_CREATE),
        mode: hints.mode(),
        striping: hints.striping(),
    };
    let mut first = None;
    if how.create {
        let own = match comm.rank {
            0 => Descriptor::open(path, how).map(|file| first = Some(file)),
            _ => Ok(()),
        };
        agree(p, comm, name, own.map_err(AccessFailure::System))?;
    }
    let there = Opening { create: false, exclusive: false, ..how };
    Ok(first.map_or_else(|| Descriptor::open(path, there), Ok))
}

/// `MPI_File_close`. Frees the handle even after an error of a system call. Errors, equal on all ranks: `MPI_ERR_FILE`,
/// and those of the system calls.
pub fn close(p: &Process, handle: usize) -> Result {
    let file = find(p, handle)?;
    if let Some((which, _)) = file.pending.get() {
        let text = format!(
            "file \"{}\": the split collective access that {} began is under way: call the \
             matching _end function first",
            file.name,
            which.name()
        );
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let descriptor = file.descriptor.borrow_mut().take();
    if let Some(descriptor) = &descriptor {
        report::print(p, &file, descriptor);
    }
    // A conversion function of the program, or a transfer in the helper thread, may still hold the descriptor. The last
    // holder closes it.
    let alone = descriptor.and_then(|descriptor| Arc::try_unwrap(descriptor).ok());
    let closed = alone.map_or(Ok(()), Descriptor::close);
    // After this agreement no rank uses the shared file pointer.
    let result = file.agree(p, closed.map_err(AccessFailure::System));
    file.pointer.borrow_mut().release(p);
    let deleted = match file.has_mode(MPI_MODE_DELETE_ON_CLOSE) && file.comm.rank == 0 {
        true => delete(&file.path),
        false => Ok(()),
    };
    let result = match file.has_mode(MPI_MODE_DELETE_ON_CLOSE) {
        true => result.and(file.agree(p, deleted.map_err(AccessFailure::System))),
        false => result,
    };
    free_comm(p, file.comm.handle.get())?;
    OPEN_FILES.of(p).remove(handle);
    errhandler::detach(p, file.errhandler.get());
    result
}

/// `MPI_File_delete`. Errors: `MPI_ERR_NO_SUCH_FILE` and others of the system call. The errors name the rank in the
/// job, because there is no communicator.
pub fn delete_file(p: &Process, name: &[u8]) -> Result {
    let path = path_of(name)?;
    let rank = p.engine().map_or(0, |engine| engine.job.rank() as u32);
    delete(&path).map_err(|error| failure::explain(&show_name(name), rank, &error))
}
