//! Reading and writing (MPI 5.0, section 14.4).
//!
//! Each rank moves its own bytes, or takes part in a collective access ([`super::collective`]). In atomic mode an
//! access locks the range of the file that it covers.
//!
//! **ELEMENTS.** The elements of an access in memory are readable for a write and writable for a read, as count and
//! datatype specify. Each unsafe function here requires ELEMENTS of its caller, up to the user's entry points.
#![allow(unsafe_code)]

use super::representation::move_converted;
use super::{AccessFailure, File, collective, helper};
use crate::coll::fabric::drive;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::datatype::{Datatype, DatatypeKeeper};
use crate::objects::staging::{CallCopies, Use};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::trace::{self, Point};
use fastpath_io::{Descriptor, IoError, Lock, ScatteredAccess, Sieve, Switch, View};
use fastpath_protocol::layout::{Block, Layout};
use std::sync::Arc;

/// Minimum size, in bytes, of a piece that a system call moves faster in place than packed (`docs/performance.md`).
const LONG_PIECE: u64 = 4096;

/// Number of bytes that are packed or unpacked at a time if memory has gaps.
const STAGE_BYTES: u64 = 1 << 20;

/// Start of an access in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePlace {
    /// At an explicit offset, in etypes.
    At(i64),
    /// At the individual file pointer.
    Individual,
    /// At the shared file pointer.
    Shared,
    /// At the shared file pointer, in rank order.
    Ordered,
}

/// Arguments of an access.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Whether the file is written.
    pub writes: bool,
    /// Start in the file.
    pub place: FilePlace,
    /// Whether the access is collective.
    pub collective: bool,
    /// Address of the memory.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Handle of the elements' datatype.
    pub datatype: usize,
}

pub(super) struct CheckedAccess {
    /// Datatype and its handle, which a conversion function of the program needs.
    datatype: DatatypeKeeper,
    pub(super) count: u64,
    /// Number of bytes in the file.
    pub(super) bytes: u64,
    pub(super) units: i64,
}

impl CheckedAccess {
    pub(super) fn datatype(&self) -> &Datatype {
        self.datatype.typed().0
    }
}

/// Replaces the elements of an access by a copy, if they are in device memory. A wrong datatype is left to the checks
/// of the access. Errors: those of the copy.
pub(super) fn stage(p: &Process, access: &Access, copies: &mut CallCopies) -> Result<Access> {
    let Ok(datatype) = p.datatype(access.datatype) else { return Ok(*access) };
    let used = if access.writes { Use::Input } else { Use::Output };
    let buf = copies.add_elements(access.buf, access.count, &datatype, used)?;
    Ok(Access { buf, ..*access })
}

/// A checked access that lies within the possible range of a file.
pub(super) struct LocatedAccess {
    pub(super) checked: CheckedAccess,
    /// Position of the first byte in the view, in bytes.
    pub(super) start: u64,
}

impl File {
    pub(super) fn check(&self, p: &Process, access: &Access) -> Result<CheckedAccess> {
        match access.writes {
            true => self.require_writable()?,
            false if self.has_mode(MPI_MODE_WRONLY) => {
                let text = format!(
                    "file \"{}\" was opened with MPI_MODE_WRONLY and cannot be read",
                    self.name
                );
                let advice = "open the file with MPI_MODE_RDWR or MPI_MODE_RDONLY";
                return Err(Error::new(MPI_ERR_ACCESS, text).with_advice(Some(advice)));
            }
            false => {}
        }
        if matches!(access.place, FilePlace::At(_) | FilePlace::Individual) {
            self.require_random()?;
        }
        let datatype = p.datatype(access.datatype)?;
        let count = u64::try_from(access.count).map_err(|_| {
            let text = format!("the count {} is negative", access.count);
            Error::new(MPI_ERR_COUNT, text)
        })?;
        datatype.check_ready()?;
        let layout = datatype.layout();
        let fits = layout.total_bytes(count).filter(|_| layout.span(count).is_ok());
        let bytes = fits.ok_or_else(|| {
            let text =
                format!("{count} elements of {} bytes are more than 2^63 - 1 bytes", layout.size());
            Error::new(MPI_ERR_COUNT, text)
        })?;
        datatype.check_address(access.buf, bytes)?;
        let shown = self.shown();
        let bytes = match self.converts(access.writes) {
            true => shown.representation.file_bytes(&datatype, count)?,
            false => bytes,
        };
        let unit = shown.unit();
        if bytes % unit != 0 {
            let text = format!(
                "{bytes} bytes are not a whole number of etypes of {unit} bytes: transfer whole \
                 etypes"
            );
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        Ok(CheckedAccess {
            datatype: DatatypeKeeper::new(datatype, access.datatype),
            count,
            bytes,
            units: (bytes / unit) as i64,
        })
    }

    /// Performs a blocking read or write. Errors: one error on all ranks for a collective access, otherwise those of
    /// this rank.
    ///
    /// # Safety
    /// See ELEMENTS.
    pub unsafe fn access(&self, p: &Process, access: &Access) -> Result<Status> {
        if access.collective && self.pending.get().is_some() {
            let text = "a split collective access of the file is under way: call the matching _end \
                        function first";
            return Err(Error::new(MPI_ERR_OTHER, text));
        }
        // SAFETY: ELEMENTS.
        unsafe { self.carry_out(p, access) }
    }

    /// Performs [`File::access`], even while a split access is under way.
    ///
    /// # Safety
    /// See ELEMENTS.
    pub(super) unsafe fn carry_out(&self, p: &Process, access: &Access) -> Result<Status> {
        let mut copies = CallCopies::default();
        let staged = stage(p, access, &mut copies);
        let checked = staged.and_then(|access| Ok((self.check(p, &access)?, access.buf)));
        let (checked, buf) = match checked {
            Ok((checked, buf)) => (Ok(checked), buf),
            Err(error) => (Err(error), access.buf),
        };
        let access = &Access { buf, ..*access };
        let from = match (access.place, &checked) {
            (FilePlace::At(offset), _) => Ok(offset),
            (FilePlace::Individual, _) => Ok(self.position.get()),
            (FilePlace::Shared, Ok(checked)) => self.take_shared(p, checked.units),
            (FilePlace::Shared, Err(_)) => Ok(0),
            // All ranks take part, even those with wrong arguments.
            (FilePlace::Ordered, checked) => {
                self.take_ordered(p, checked.as_ref().map_or(0, |checked| checked.units))
            }
        };
        let located = checked.and_then(|checked| self.locate(checked, from?));
        // The program may free the datatype before a collective access ends.
        let datatype = p.datatype(access.datatype).ok();
        let bytes = match access.collective {
            true => {
                let f = Channel::next(p, &self.comm);
                // SAFETY: ELEMENTS.
                drive(unsafe { collective::run(&f, self, access, located) })?
            }
            false => {
                let own = located.map_err(AccessFailure::Other);
                // SAFETY: ELEMENTS.
                let own = own.and_then(|located| unsafe { self.transfer(access, &located) });
                own.map_err(|refused| self.explain(refused))?
            }
        };
        if access.place == FilePlace::Individual {
            let units = (bytes / self.shown().unit()) as i64;
            self.position.set(self.position.get() + units);
        }
        copies.store()?;
        self.status_of(access, datatype.as_deref(), bytes)
    }

    /// Returns the status of an access that moved `bytes` bytes of the file. A status counts bytes in memory.
    pub(super) fn status_of(
        &self, access: &Access, datatype: Option<&Datatype>, bytes: u64,
    ) -> Result<Status> {
        let in_memory = match datatype {
            Some(datatype) if self.converts(access.writes) => {
                self.shown().representation.memory_bytes(datatype, bytes)?
            }
            _ => bytes,
        };
        Ok(Status::new(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_SUCCESS, in_memory as i64))
    }

    pub(super) fn locate(&self, checked: CheckedAccess, from: i64) -> Result<LocatedAccess> {
        let shown = self.shown();
        let start = u64::try_from(from)
            .ok()
            .and_then(|from| from.checked_mul(shown.unit()))
            .filter(|start| shown.view.can_reach(*start, checked.bytes));
        match start {
            Some(start) => Ok(LocatedAccess { checked, start }),
            None => {
                let text = match from < 0 {
                    true => format!("the offset {from} is negative"),
                    false => format!(
                        "{} bytes at offset {from} of the view are beyond the largest possible \
                         file size",
                        checked.bytes
                    ),
                };
                Err(Error::new(MPI_ERR_ARG, text))
            }
        }
    }

    /// Moves the bytes of an access, and returns their number in the file.
    ///
    /// # Safety
    /// See ELEMENTS.
    pub(super) unsafe fn transfer(
        &self, access: &Access, located: &LocatedAccess,
    ) -> std::result::Result<u64, AccessFailure> {
        let checked = &located.checked;
        if checked.bytes == 0 {
            return Ok(0);
        }
        let (begin, end) = match access.writes {
            true => (Point::FileWrite, Point::FileWriteDone),
            false => (Point::FileRead, Point::FileReadDone),
        };
        if self.locks(access.writes) {
            helper::finish();
        }
        trace::record(begin, 0, 0, checked.bytes);
        // SAFETY: ELEMENTS.
        let moved = unsafe {
            match self.move_piece(access, located) {
                Some(moved) => moved,
                None => self.make_target(located).and_then(|to| self.move_to(&to, access, checked)),
            }
        };
        trace::record(end, 0, 0, 0);
        moved
    }

    /// Moves one piece of memory to or from one piece of the file, without a lock. Returns `None` for any other access.
    ///
    /// # Safety
    /// See ELEMENTS.
    unsafe fn move_piece(
        &self, access: &Access, located: &LocatedAccess,
    ) -> Option<std::result::Result<u64, AccessFailure>> {
        let checked = &located.checked;
        let at = checked.datatype().layout().dense_offset(checked.count)?;
        let shown = self.shown.borrow();
        let offset = shown.view.dense_offset(located.start)?;
        if self.locks(access.writes) || !shown.representation.is_native() {
            return None;
        }
        let descriptor = self.descriptor.borrow();
        let file = descriptor.as_ref()?;
        let (buf, len) = (access.buf.wrapping_offset(at as isize), checked.bytes);
        // SAFETY: ELEMENTS: they are one piece of memory of `len` bytes.
        let moved = unsafe {
            match access.writes {
                true => file.write_at(buf, len as usize, offset).map(|()| len),
                false => file.read_at(buf, len as usize, offset).map(|n| n as u64),
            }
        };
        Some(moved.map_err(AccessFailure::System))
    }

    /// Moves the bytes of an access to or from `to`, and returns their number. Safety: see ELEMENTS.
    unsafe fn move_to(
        &self, to: &AccessTarget, access: &Access, checked: &CheckedAccess,
    ) -> std::result::Result<u64, AccessFailure> {
        if !self.converts(access.writes) {
            // SAFETY: ELEMENTS.
            return Ok(unsafe { to.move_bytes(&Memory::of(access, checked))? });
        }
        let how = self.shown();
        let lock = to.lock(access.writes, checked.bytes)?;
        // SAFETY: ELEMENTS.
        let moved = unsafe { move_converted(to, &how.representation, access, checked.datatype()) };
        drop(lock);
        moved
    }

    pub(super) fn make_target(
        &self, located: &LocatedAccess,
    ) -> std::result::Result<AccessTarget, AccessFailure> {
        Ok(AccessTarget {
            file: self.open_descriptor()?,
            view: self.shown().view.clone(),
            start: located.start,
            sieve: self.sieve(),
            locks: self.atomic.get(),
        })
    }

    /// Returns whether accesses lock the range that they cover. A lock belongs to the open file, which the [`helper`]
    /// thread shares. So a lock does not exclude that thread, and an unlock releases that thread's lock of the range.
    /// The thread must therefore finish before a range is locked.
    pub(super) fn locks(&self, writes: bool) -> bool {
        self.atomic.get() || (writes && self.sieve() != Sieve::Never)
    }

    /// Returns whether a write may also write back the bytes between its pieces.
    pub(super) fn sieve(&self) -> Sieve {
        let switch = self.hints.borrow().sieve();
        match (self.atomic.get(), switch) {
            // Another handle of the file, in nonatomic mode, may write between the pieces without a lock. Sieving would
            // undo such a write.
            (true, _) => Sieve::Never,
            // A lock that excludes only writers can be set only on a file that is open for reading.
            (false, Switch::Enabled) if self.has_mode(MPI_MODE_RDWR) && !self.local_locks => {
                Sieve::Locked
            }
            (false, _) => Sieve::Never,
        }
    }
}

pub(super) struct AccessTarget {
    pub(super) file: Arc<Descriptor>,
    pub(super) view: View,
    pub(super) start: u64,
    pub(super) sieve: Sieve,
    locks: bool,
}

pub(super) struct Memory {
    writes: bool,
    buf: *mut u8,
    layout: Arc<Layout>,
    count: u64,
    bytes: u64,
}

impl Memory {
    pub(super) fn of(access: &Access, checked: &CheckedAccess) -> Memory {
        Memory {
            writes: access.writes,
            buf: access.buf,
            layout: checked.datatype().layout().clone(),
            count: checked.count,
            bytes: checked.bytes,
        }
    }

    /// Returns whether the first and the last piece of memory have at least [`LONG_PIECE`] bytes.
    fn has_long_pieces(&self) -> bool {
        let is_one = |from| {
            let mut pieces = 0;
            let count = |block: Block| pieces += block.count;
            self.layout.for_each_run(self.count, from, LONG_PIECE, count);
            pieces == 1
        };
        self.bytes >= LONG_PIECE && is_one(0) && is_one(self.bytes - LONG_PIECE)
    }
}

impl AccessTarget {
    /// In atomic mode, locks the range from the first to the last byte; otherwise returns `None`.
    fn lock(&self, writes: bool, bytes: u64) -> std::result::Result<Option<Lock<'_>>, IoError> {
        if !self.locks {
            return Ok(None);
        }
        let low = self.view.offset_of(self.start).unwrap_or(0);
        let last = self.view.offset_of(self.start + bytes - 1);
        let high = last.unwrap_or(low).max(low) + 1;
        self.file.lock(writes, low, high - low).map(Some)
    }

    /// Moves the bytes of an access without conversion, and returns their number.
    ///
    /// # Safety
    /// See ELEMENTS. There is at least one byte.
    pub(super) unsafe fn move_bytes(&self, memory: &Memory) -> std::result::Result<u64, IoError> {
        let lock = self.lock(memory.writes, memory.bytes)?;
        // SAFETY: ELEMENTS.
        let moved = unsafe { self.move_locked(memory) };
        drop(lock);
        moved
    }

    /// Moves the bytes after any lock is taken. Safety: see [`AccessTarget::move_bytes`].
    unsafe fn move_locked(&self, memory: &Memory) -> std::result::Result<u64, IoError> {
        let (file, view, start, sieve) = (&self.file, &self.view, self.start, self.sieve);
        let Memory { writes, buf, ref layout, count, bytes: total } = *memory;
        if let Some(offset) = layout.dense_offset(count) {
            let at = buf.wrapping_offset(offset as isize);
            // SAFETY: ELEMENTS: they are one piece of memory of `total` bytes.
            return unsafe {
                match writes {
                    true => file.write_view(view, start, at, total as usize, sieve).map(|()| total),
                    false => file.read_view(view, start, at, total as usize).map(|n| n as u64),
                }
            };
        }
        if let Some(offset) = view.dense_offset(start)
            && sieve == Sieve::Never
            && memory.has_long_pieces()
        {
            let mut scattered = ScatteredAccess::new(file, writes, offset);
            layout.visit_stretches(count, |at, len| {
                // SAFETY: ELEMENTS: this is a piece of them.
                unsafe { scattered.add(buf.wrapping_offset(at as isize), len as usize) };
            });
            return scattered.finish();
        }
        let mut stage = vec![0u8; total.min(STAGE_BYTES) as usize];
        let mut done = 0;
        while done < total {
            let now = (total - done).min(STAGE_BYTES) as usize;
            let part = &mut stage[..now];
            // SAFETY: ELEMENTS: they do not overlap the stage. `part` has `now` bytes.
            unsafe {
                if writes {
                    layout.pack(buf, count, done, part);
                    file.write_view(view, start + done, part.as_ptr(), now, sieve)?;
                    done += now as u64;
                } else {
                    let read = file.read_view(view, start + done, part.as_mut_ptr(), now)?;
                    layout.unpack(buf, count, done, &part[..read]);
                    done += read as u64;
                    if read < now {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }
}
