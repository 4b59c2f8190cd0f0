//! Reading and writing (MPI 5.0, section 14.4).
//!
//! Every rank moves its own bytes, or a collective access moves those of all ([`super::collective`]). In atomic mode an
//! access locks the range of the file that it touches.
//!
//! **ELEMENTS.** The elements of an access in memory are readable to be written to the file, or writable to be read
//! from it, as count and datatype say. Each function here asks this of its caller, and the entry points of the user.
#![allow(unsafe_code)]

use super::representation::move_converted;
use super::{File, Refused, collective, helper};
use crate::coll::fabric::drive;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::datatype::{Datatype, Kept};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::trace::{self, Point};
use fastpath_io::{Descriptor, IoError, Lock, Scattered, Sieve, Switch, View};
use fastpath_protocol::layout::{Block, Layout};
use std::sync::Arc;

/// Bytes of a piece of memory from which a call of the system moves it faster than it is packed
/// (`docs/performance.md`).
const LONG_PIECE: u64 = 4096;

/// Bytes that are packed or unpacked at a time where memory has gaps.
const STAGE_BYTES: u64 = 1 << 20;

/// Where in the file an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePlace {
    /// At an offset, in etypes.
    At(i64),
    /// At the individual file pointer.
    Individual,
    /// At the shared file pointer.
    Shared,
    /// At the shared file pointer, the ranks in turn.
    Ordered,
}

/// Memory of an access, and what is done with it.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Whether the file is written.
    pub writes: bool,
    /// Where in the file.
    pub place: FilePlace,
    /// Whether all ranks make it together.
    pub collective: bool,
    /// The memory.
    pub buf: *mut u8,
    /// Elements.
    pub count: i64,
    /// Their datatype's handle.
    pub datatype: usize,
}

/// An access whose arguments have been checked.
pub(super) struct Checked {
    /// With the handle, for a function of the program that converts.
    datatype: Kept,
    pub(super) count: u64,
    /// Bytes in the file.
    pub(super) bytes: u64,
    /// The same in etypes.
    pub(super) units: i64,
}

impl Checked {
    /// Of the elements in memory.
    pub(super) fn datatype(&self) -> &Datatype {
        self.datatype.typed().0
    }
}

/// An access that lies within what a file can have.
pub(super) struct Located {
    pub(super) checked: Checked,
    /// The first byte of the view.
    pub(super) start: u64,
}

impl File {
    pub(super) fn check(&self, p: &Process, access: &Access) -> Result<Checked> {
        match access.writes {
            true => self.require_writable()?,
            false if self.has_mode(MPI_MODE_WRONLY) => {
                let text = format!("file \"{}\" was opened with MPI_MODE_WRONLY", self.name);
                return Err(Error::new(MPI_ERR_ACCESS, text));
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
            let text = format!("{count} elements of {} bytes do not fit 63 bits", layout.size());
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
            let text = format!("{bytes} bytes are no whole number of etypes of {unit} bytes");
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        Ok(Checked {
            datatype: Kept::new(datatype, access.datatype),
            count,
            bytes,
            units: (bytes / unit) as i64,
        })
    }

    /// Reads or writes, blocking.
    ///
    /// # Errors
    /// Of a collective access the same on all ranks; of others this rank's own.
    ///
    /// # Safety
    /// The elements are readable or, to be read into, writable.
    pub unsafe fn access(&self, p: &Process, access: &Access) -> Result<Status> {
        if access.collective && self.pending.get().is_some() {
            let text = "a split collective access of the file is under way: end it first";
            return Err(Error::new(MPI_ERR_OTHER, text));
        }
        // SAFETY: ELEMENTS.
        unsafe { self.carry_out(p, access) }
    }

    /// As [`File::access`], a split access or none under way.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn carry_out(&self, p: &Process, access: &Access) -> Result<Status> {
        let checked = self.check(p, access);
        let from = match (access.place, &checked) {
            (FilePlace::At(offset), _) => Ok(offset),
            (FilePlace::Individual, _) => Ok(self.position.get()),
            (FilePlace::Shared, Ok(checked)) => self.take_shared(p, checked.units),
            (FilePlace::Shared, Err(_)) => Ok(0),
            // All take part, also those whose arguments are wrong.
            (FilePlace::Ordered, checked) => {
                self.take_ordered(p, checked.as_ref().map_or(0, |checked| checked.units))
            }
        };
        let located = checked.and_then(|checked| self.locate(checked, from?));
        // The collective way may end after the program has freed the datatype.
        let datatype = p.datatype(access.datatype).ok();
        let bytes = match access.collective {
            true => {
                let f = Channel::next(p, &self.comm);
                // SAFETY: ELEMENTS.
                drive(unsafe { collective::run(&f, self, access, located) })?
            }
            false => {
                let own = located.map_err(Refused::Other);
                // SAFETY: ELEMENTS.
                let own = own.and_then(|located| unsafe { self.transfer(access, &located) });
                own.map_err(|refused| self.explain(refused))?
            }
        };
        if access.place == FilePlace::Individual {
            let units = (bytes / self.shown().unit()) as i64;
            self.position.set(self.position.get() + units);
        }
        self.status_of(access, datatype.as_deref(), bytes)
    }

    /// The status of an access that has moved `bytes` bytes of the file; it counts bytes in memory.
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

    /// Where in the view an access from etype `from` begins.
    pub(super) fn locate(&self, checked: Checked, from: i64) -> Result<Located> {
        let shown = self.shown();
        let start = u64::try_from(from)
            .ok()
            .and_then(|from| from.checked_mul(shown.unit()))
            .filter(|start| shown.view.can_reach(*start, checked.bytes));
        match start {
            Some(start) => Ok(Located { checked, start }),
            None => {
                let text = match from < 0 {
                    true => format!("the offset {from} is negative"),
                    false => format!(
                        "{} bytes at offset {from} of the view lie beyond what a file can have",
                        checked.bytes
                    ),
                };
                Err(Error::new(MPI_ERR_ARG, text))
            }
        }
    }

    /// Moves the bytes; how many.
    ///
    /// # Safety
    /// As [`File::access`].
    pub(super) unsafe fn transfer(
        &self, access: &Access, located: &Located,
    ) -> std::result::Result<u64, Refused> {
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

    /// Moves one piece of memory to or from one piece of the file, without a lock; none for any other access.
    ///
    /// # Safety
    /// As [`File::access`].
    unsafe fn move_piece(
        &self, access: &Access, located: &Located,
    ) -> Option<std::result::Result<u64, Refused>> {
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
        // SAFETY: the elements are one piece of memory of so many bytes.
        let moved = unsafe {
            match access.writes {
                true => file.write_at(buf, len as usize, offset).map(|()| len),
                false => file.read_at(buf, len as usize, offset).map(|n| n as u64),
            }
        };
        Some(moved.map_err(Refused::System))
    }

    /// # Safety
    /// As [`File::access`].
    unsafe fn move_to(
        &self, to: &Target, access: &Access, checked: &Checked,
    ) -> std::result::Result<u64, Refused> {
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

    /// What an access needs of the file.
    pub(super) fn make_target(&self, located: &Located) -> std::result::Result<Target, Refused> {
        Ok(Target {
            file: self.open_descriptor()?,
            view: self.shown().view.clone(),
            start: located.start,
            sieve: self.sieve(),
            locks: self.atomic.get(),
        })
    }

    /// Whether accesses lock what they touch. A lock is the open file's, which the thread of [`helper`] shares: it does
    /// not keep that out, and to unlock a range frees the thread's lock of it. So the thread finishes before a range is
    /// locked.
    pub(super) fn locks(&self, writes: bool) -> bool {
        self.atomic.get() || (writes && self.sieve() != Sieve::Never)
    }

    /// Whether a write may write back what lies between its pieces.
    pub(super) fn sieve(&self) -> Sieve {
        let switch = self.hints.borrow().sieve();
        match (self.atomic.get(), switch) {
            // Another handle of the file, not in atomic mode, writes between the pieces without a lock.
            (true, _) => Sieve::Never,
            // A lock that keeps out writers alone needs a file that can be read.
            (false, Switch::Enabled) if self.has_mode(MPI_MODE_RDWR) && !self.local_locks => {
                Sieve::Locked
            }
            (false, _) => Sieve::Never,
        }
    }
}

/// Where in a file bytes come from or go to.
pub(super) struct Target {
    pub(super) file: Arc<Descriptor>,
    pub(super) view: View,
    /// The first byte of the view.
    pub(super) start: u64,
    pub(super) sieve: Sieve,
    /// Whether the range is locked: in atomic mode.
    locks: bool,
}

/// The memory of an access.
pub(super) struct Memory {
    writes: bool,
    buf: *mut u8,
    layout: Arc<Layout>,
    count: u64,
    bytes: u64,
}

impl Memory {
    /// Of an access that goes through no conversion.
    pub(super) fn of(access: &Access, checked: &Checked) -> Memory {
        Memory {
            writes: access.writes,
            buf: access.buf,
            layout: checked.datatype().layout().clone(),
            count: checked.count,
            bytes: checked.bytes,
        }
    }

    /// Whether its pieces are long, as far as the first and the last one tell.
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

impl Target {
    /// Locks the range from the first byte to behind the last one, in atomic mode.
    fn lock(&self, writes: bool, bytes: u64) -> std::result::Result<Option<Lock<'_>>, IoError> {
        if !self.locks {
            return Ok(None);
        }
        let low = self.view.offset_of(self.start).unwrap_or(0);
        let last = self.view.offset_of(self.start + bytes - 1);
        let high = last.unwrap_or(low).max(low) + 1;
        self.file.lock(writes, low, high - low).map(Some)
    }

    /// Moves the bytes of an access as they are; how many.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Safety
    /// The elements are readable or, to be read into, writable; there is at least a byte.
    pub(super) unsafe fn move_bytes(&self, memory: &Memory) -> std::result::Result<u64, IoError> {
        let lock = self.lock(memory.writes, memory.bytes)?;
        // SAFETY: ELEMENTS.
        let moved = unsafe { self.move_locked(memory) };
        drop(lock);
        moved
    }

    /// # Safety
    /// As [`Target::move_bytes`].
    unsafe fn move_locked(&self, memory: &Memory) -> std::result::Result<u64, IoError> {
        let (file, view, start, sieve) = (&self.file, &self.view, self.start, self.sieve);
        let Memory { writes, buf, ref layout, count, bytes: total } = *memory;
        if let Some(offset) = layout.dense_offset(count) {
            let at = buf.wrapping_offset(offset as isize);
            // SAFETY: the elements are one piece of memory of so many bytes.
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
            let mut scattered = Scattered::new(file, writes, offset);
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
            // SAFETY: ELEMENTS, which lie apart from the stage; that has room for the part.
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
