//! Reading and writing (MPI 5.0, section 14.4).
//!
//! Every rank moves its own bytes; a collective access ends with one outcome for all. In atomic mode an access locks
//! the range of the file that it touches.
#![allow(unsafe_code)]

use super::representation::{self, memory_bytes};
use super::{File, Refused};
use crate::consts::*;
use crate::datatype::Datatype;
use crate::error::{Error, Result};
use crate::process::Process;
use crate::request::{Operation, make_operation};
use crate::status::Status;
use fastpath_io::Descriptor;
use std::rc::Rc;

/// Bytes that are packed or unpacked at a time where memory has gaps.
const STAGE_BYTES: u64 = 1 << 20;

/// Where in the file an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
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
    pub place: Place,
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
struct Checked {
    datatype: Rc<Datatype>,
    count: u64,
    /// Bytes in the file.
    bytes: u64,
    /// The same in etypes.
    units: i64,
}

impl File {
    fn check(&self, p: &Process, access: &Access) -> Result<Checked> {
        match access.writes {
            true => self.require_writable()?,
            false if self.has_mode(MPI_MODE_WRONLY) => {
                let text = format!("file \"{}\" was opened with MPI_MODE_WRONLY", self.name);
                return Err(Error::new(MPI_ERR_ACCESS, text));
            }
            false => {}
        }
        if matches!(access.place, Place::At(_) | Place::Individual) {
            self.require_random()?;
        }
        let datatype = p.datatype(access.datatype)?;
        let count = u64::try_from(access.count).map_err(|_| {
            let text = format!("the count {} is negative", access.count);
            Error::new(MPI_ERR_COUNT, text)
        })?;
        datatype.check_ready()?;
        let layout = datatype.layout();
        let fits = layout
            .total_bytes(count)
            .filter(|_| layout.span(count).is_ok());
        let bytes = fits.ok_or_else(|| {
            let text = format!(
                "{count} elements of {} bytes do not fit 63 bits",
                layout.size()
            );
            Error::new(MPI_ERR_COUNT, text)
        })?;
        if access.buf.is_null() && bytes > 0 && layout.true_lb() == 0 {
            return Err(Error::new(MPI_ERR_BUFFER, "the buffer is null"));
        }
        let shown = self.shown();
        let bytes = match shown.is_portable() {
            true => datatype.external_size(access.count)? as u64,
            false => bytes,
        };
        let unit = shown.unit();
        if bytes % unit != 0 {
            let text = format!("{bytes} bytes are no whole number of etypes of {unit} bytes");
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        Ok(Checked {
            datatype,
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
        // SAFETY: the caller's.
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
            (Place::At(offset), _) => Ok(offset),
            (Place::Individual, _) => Ok(self.position.get()),
            (Place::Shared, Ok(checked)) => self.take_shared(p, checked.units),
            (Place::Shared, Err(_)) => Ok(0),
            // All take part, also those whose arguments are wrong.
            (Place::Ordered, checked) => {
                self.take_ordered(p, checked.as_ref().map_or(0, |checked| checked.units))
            }
        };
        let datatype = checked.as_ref().ok().map(|c| c.datatype.clone());
        let own = checked.map_err(Refused::Other).and_then(|checked| {
            // SAFETY: the caller's.
            unsafe { self.transfer(access, &checked, from?) }
        });
        let bytes = match access.collective {
            true => self.agree(p, own)?,
            false => own.map_err(|refused| self.explain(refused))?,
        };
        // The status tells of bytes in memory.
        let in_memory = match &datatype {
            Some(datatype) if self.shown().is_portable() => memory_bytes(datatype, bytes)?,
            _ => bytes,
        };
        if access.place == Place::Individual {
            let units = (bytes / self.shown().unit()) as i64;
            self.position.set(self.position.get() + units);
        }
        Ok(Status::new(
            MPI_ANY_SOURCE,
            MPI_ANY_TAG,
            MPI_SUCCESS,
            in_memory as i64,
        ))
    }

    /// Moves the bytes from etype `from` of the view on; how many.
    ///
    /// # Safety
    /// As [`File::access`].
    unsafe fn transfer(
        &self,
        access: &Access,
        checked: &Checked,
        from: i64,
    ) -> std::result::Result<u64, Refused> {
        let shown = self.shown();
        let start = u64::try_from(from)
            .ok()
            .and_then(|from| from.checked_mul(shown.unit()))
            .filter(|start| shown.view.can_reach(*start, checked.bytes));
        let Some(start) = start else {
            let text = match from < 0 {
                true => format!("the offset {from} is negative"),
                false => format!(
                    "{} bytes at offset {from} of the view lie beyond what a file can have",
                    checked.bytes
                ),
            };
            return Err(Error::new(MPI_ERR_ARG, text).into());
        };
        if checked.bytes == 0 {
            return Ok(0);
        }
        self.with_descriptor(|file| {
            let lock = match self.atomic.get() {
                true => {
                    let low = shown.view.offset_of(start).unwrap_or(0);
                    let last = shown.view.offset_of(start + checked.bytes - 1);
                    let high = last.unwrap_or(low).max(low) + 1;
                    Some(file.lock(access.writes, low, high - low)?)
                }
                false => None,
            };
            // SAFETY: the caller's.
            let moved = unsafe {
                match shown.is_portable() {
                    true => representation::move_portable(
                        file,
                        &shown.view,
                        start,
                        access,
                        &checked.datatype,
                    ),
                    false => self.move_bytes(file, access, checked, start),
                }
            };
            drop(lock);
            moved
        })
    }

    /// # Safety
    /// As [`File::access`].
    unsafe fn move_bytes(
        &self,
        file: &Descriptor,
        access: &Access,
        checked: &Checked,
        start: u64,
    ) -> std::result::Result<u64, Refused> {
        let shown = self.shown();
        let layout = checked.datatype.layout();
        let (view, total) = (&shown.view, checked.bytes);
        if let Some(offset) = layout.dense_offset(checked.count) {
            let memory = access.buf.wrapping_offset(offset as isize);
            // SAFETY: the elements are one piece of memory of so many bytes.
            return unsafe {
                match access.writes {
                    true => file
                        .write_view(view, start, memory, total as usize)
                        .map(|()| total),
                    false => file
                        .read_view(view, start, memory, total as usize)
                        .map(|read| read as u64),
                }
            }
            .map_err(Refused::System);
        }
        let mut stage = vec![0u8; total.min(STAGE_BYTES) as usize];
        let mut done = 0;
        while done < total {
            let now = (total - done).min(STAGE_BYTES) as usize;
            let part = &mut stage[..now];
            // SAFETY: the elements are readable or writable by the caller's promise, and apart from the stage, which
            // has room for the part.
            unsafe {
                if access.writes {
                    layout.pack(access.buf, checked.count, done, part);
                    file.write_view(view, start + done, part.as_ptr(), now)?;
                    done += now as u64;
                } else {
                    let read = file.read_view(view, start + done, part.as_mut_ptr(), now)?;
                    layout.unpack(access.buf, checked.count, done, &part[..read]);
                    done += read as u64;
                    if read < now {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }

    /// Reads or writes with a request. The bytes have moved when this returns; a collective access of this kind waits
    /// for nobody.
    ///
    /// # Errors
    /// This rank's own.
    ///
    /// # Safety
    /// As [`File::access`].
    pub unsafe fn start(&self, p: &Process, access: &Access) -> Result<usize> {
        // SAFETY: the caller's.
        let status = unsafe {
            let alone = Access {
                collective: false,
                ..*access
            };
            self.access(p, &alone)?
        };
        make_operation(p, Box::new(Moved(status)))
    }
}

/// An access that is over.
struct Moved(Status);

impl Operation for Moved {
    fn poll(&mut self, _p: &Process) -> Option<Result<Status>> {
        Some(Ok(self.0))
    }
}
