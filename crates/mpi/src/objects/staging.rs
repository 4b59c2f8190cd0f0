//! Copies in host memory of buffers in device memory.
//!
//! A call that finds device memory in a buffer works on the copy instead. A send loads the copy first, and a receive
//! stores it afterwards. The rest of the library therefore sees only host memory.
#![allow(unsafe_code)]

use crate::common::consts::{MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_NO_MEM, MPI_IN_PLACE};
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use fastpath_base::device::{self, DeviceError, DeviceMemory, HostBlock, Move};
use fastpath_base::layout::{Block, Layout};
use fastpath_protocol::buffer::Buffer;
use std::sync::Arc;

/// Form of the copy.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The data bytes follow each other, in the order of the layout.
    Packed,
    /// The copy has the layout of the buffer. The value is the offset of the lowest data byte from the buffer.
    Mirror(i64),
}

/// Elements of a buffer.
pub struct Part {
    /// Position of the first element, in bytes from the buffer's address.
    pub offset: i64,
    /// Layout of the elements; `None` for contiguous bytes.
    pub layout: Option<Arc<Layout>>,
    /// Number of elements, or of contiguous bytes.
    pub count: u64,
}

/// A buffer in device memory, and the host memory that replaces it.
pub struct Staging {
    /// Address of the buffer.
    buf: *mut u8,
    /// Address of a data byte in device memory, for messages.
    found: *mut u8,
    parts: Vec<Part>,
    bytes: u64,
    form: Form,
    memory: DeviceMemory,
    block: HostBlock,
}

impl Staging {
    /// Returns packed host memory for a buffer in device memory; `None` for a buffer in host memory.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER` if the memory cannot be used; `MPI_ERR_NO_MEM` without host memory.
    pub fn packed(buffer: &Buffer) -> Result<Option<Staging>> {
        let (layout, count) = (buffer.layout.clone(), buffer.count);
        let count = if layout.is_none() { buffer.bytes } else { count };
        Staging::make(buffer.ptr, vec![Part { offset: 0, layout, count }], Form::Packed)
    }

    /// Returns host memory with the layout of a buffer in device memory; `None` for a buffer in host memory.
    ///
    /// # Errors
    /// Those of [`Staging::packed`].
    pub fn mirror(buf: *mut u8, parts: Vec<Part>) -> Result<Option<Staging>> {
        Staging::make(buf, parts, Form::Mirror(0))
    }

    fn make(buf: *mut u8, mut parts: Vec<Part>, form: Form) -> Result<Option<Staging>> {
        parts.retain(|part| part.bytes() > 0);
        let Some((found, memory)) = find(buf, &parts)? else { return Ok(None) };
        let no_span = || Error::new(MPI_ERR_COUNT, "the buffer's bytes do not fit 64 bits");
        let bytes = parts.iter().map(Part::bytes).sum();
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        for part in &parts {
            let (from, end) = part.range().ok_or_else(no_span)?;
            (low, high) = (low.min(from), high.max(end));
        }
        let (form, size) = match form {
            Form::Packed => (form, bytes),
            Form::Mirror(_) => {
                (Form::Mirror(low), high.checked_sub(low).ok_or_else(no_span)? as u64)
            }
        };
        let block =
            HostBlock::take(size, &memory).map_err(|error| refuse(found, Some(memory), error))?;
        Ok(Some(Staging { buf, found, parts, bytes, form, memory, block }))
    }

    /// Returns the packed copy as the buffer of a message.
    pub fn buffer(&self) -> Buffer {
        Buffer::contiguous(self.block.start(), self.bytes)
    }

    /// Returns the address that replaces the buffer's address.
    pub fn address(&self) -> *mut u8 {
        match self.form {
            Form::Packed => self.block.start(),
            Form::Mirror(low) => self.block.start().wrapping_offset((low as isize).wrapping_neg()),
        }
    }

    /// Copies all data from the device.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER`: the driver failed.
    pub fn load(&self) -> Result {
        self.load_range(0, self.bytes)
    }

    /// Copies `bytes` data bytes from the device, from byte `from` on in the order of the layout.
    ///
    /// # Errors
    /// See [`Staging::load`].
    pub fn load_range(&self, from: u64, bytes: u64) -> Result {
        let kept = device::check_kept(self.found, &self.memory);
        // SAFETY: the caller of MPI passed the buffer, and the block has space for each piece.
        let loaded = kept.and_then(|()| unsafe {
            device::copy_in(&self.memory, |visit| self.moves(from, bytes, visit))
        });
        loaded.map_err(|error| refuse(self.found, Some(self.memory), error))
    }

    /// Copies the first `bytes` data bytes, in the order of the layout, to the device.
    ///
    /// # Errors
    /// See [`Staging::load`].
    pub fn store(&self, bytes: u64) -> Result {
        self.store_range(0, bytes)
    }

    /// Copies up to `bytes` data bytes to the device, from byte `from` on in the order of the layout.
    ///
    /// # Errors
    /// See [`Staging::load`].
    pub fn store_range(&self, from: u64, bytes: u64) -> Result {
        let bytes = bytes.min(self.bytes.saturating_sub(from));
        if bytes == 0 {
            return Ok(());
        }
        let kept = device::check_kept(self.found, &self.memory);
        // SAFETY: the caller of MPI passed the buffer, and the block has space for each piece.
        let stored = kept.and_then(|()| unsafe {
            device::copy_out(&self.memory, |visit| self.moves(from, bytes, visit))
        });
        stored.map_err(|error| refuse(self.found, Some(self.memory), error))
    }

    /// Passes the pieces of `bytes` data bytes, from byte `from` on, to `visit`.
    fn moves(&self, from: u64, bytes: u64, visit: &mut dyn FnMut(Move)) {
        let (mut skip, mut left, mut packed) = (from, bytes, from as usize);
        for part in &self.parts {
            let begin = skip.min(part.bytes());
            let now = (part.bytes() - begin).min(left);
            (skip, left) = (skip - begin, left - now);
            part.visit(begin, now, &mut |run| {
                let (host, host_stride) = match self.form {
                    Form::Packed => (self.block.start().wrapping_add(packed), run.len as i64),
                    Form::Mirror(_) => {
                        (self.address().wrapping_offset(run.offset as isize), run.stride)
                    }
                };
                packed = packed.wrapping_add((run.len * run.count) as usize);
                visit(Move {
                    device: self.buf.wrapping_offset(run.offset as isize),
                    device_stride: run.stride,
                    host,
                    host_stride,
                    len: run.len,
                    count: run.count,
                });
            });
        }
    }
}

impl Part {
    /// Returns the elements at the buffer's address.
    pub fn whole(layout: &Arc<Layout>, count: i64) -> Part {
        Part { offset: 0, layout: Some(layout.clone()), count: count.max(0) as u64 }
    }

    fn bytes(&self) -> u64 {
        self.layout.as_ref().map_or(self.count, |layout| layout.size().saturating_mul(self.count))
    }

    /// Returns the offset of the lowest data byte, and the end of the highest.
    fn range(&self) -> Option<(i64, i64)> {
        let (low, len) = match &self.layout {
            None => (0, i64::try_from(self.count).ok()?),
            Some(layout) => layout.span(self.count).ok()?,
        };
        let low = self.offset.checked_add(low)?;
        Some((low, low.checked_add(len)?))
    }

    /// Passes the runs of `bytes` data bytes, from byte `from` on, to `visit`. Offsets are from the buffer's address.
    fn visit(&self, from: u64, bytes: u64, visit: &mut dyn FnMut(Block)) {
        match &self.layout {
            None if bytes == 0 => {}
            None => {
                let offset = self.offset.wrapping_add(from as i64);
                visit(Block { offset, len: bytes, stride: 0, count: 1 });
            }
            Some(layout) => layout.for_each_run(self.count, from, bytes, |run| {
                visit(Block { offset: run.offset.wrapping_add(self.offset), ..run });
            }),
        }
    }
}

/// Use of a buffer by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The call only reads the buffer.
    Input,
    /// The call may read the buffer, and writes it.
    Output,
}

/// Copies for one call.
#[derive(Default)]
pub struct CallCopies(Vec<(Use, Staging)>);

impl CallCopies {
    pub(crate) const NONE: CallCopies = CallCopies(Vec::new());

    /// Returns whether all buffers of the call are in host memory.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces a buffer in device memory by a copy, which is loaded, and returns the address for the call. Parts that
    /// the call writes in part only therefore keep their other bytes.
    ///
    /// # Errors
    /// Those of [`Staging::packed`] and [`Staging::load`].
    pub fn add(&mut self, buf: *mut u8, parts: Vec<Part>, used: Use) -> Result<*mut u8> {
        if !device::may_appear() {
            return Ok(buf);
        }
        let Some(staging) = Staging::mirror(buf, parts)? else { return Ok(buf) };
        staging.load()?;
        let address = staging.address();
        self.0.push((used, staging));
        Ok(address)
    }

    /// Replaces `count` elements of a datatype; see [`CallCopies::add`]. Special addresses stay as they are.
    ///
    /// # Errors
    /// Those of [`CallCopies::add`].
    pub fn add_elements(
        &mut self, buf: *mut u8, count: i64, datatype: &Datatype, used: Use,
    ) -> Result<*mut u8> {
        match buf.addr() == MPI_IN_PLACE {
            true => Ok(buf),
            false => self.add(buf, vec![Part::whole(datatype.layout(), count)], used),
        }
    }

    /// Replaces `bytes` bytes; see [`CallCopies::add`].
    ///
    /// # Errors
    /// Those of [`CallCopies::add`].
    pub fn add_bytes(&mut self, buf: *mut u8, bytes: i64, used: Use) -> Result<*mut u8> {
        let count = bytes.max(0) as u64;
        match buf.is_null() {
            true => Ok(buf),
            false => self.add(buf, vec![Part { offset: 0, layout: None, count }], used),
        }
    }

    /// Loads all copies again, for the next start of a persistent call.
    ///
    /// # Errors
    /// Those of [`Staging::load`].
    pub fn load(&self) -> Result {
        self.0.iter().try_for_each(|(_, staging)| staging.load())
    }

    /// Stores the results of the call.
    ///
    /// # Errors
    /// Those of [`Staging::store`].
    pub fn store(&self) -> Result {
        let written = self.0.iter().filter(|(used, _)| *used == Use::Output);
        written.map(|(_, staging)| staging.store(staging.bytes)).fold(Ok(()), Result::and)
    }
}

/// Returns device memory among the data of a buffer, with its address. A buffer has data in several allocations only if
/// its address is `MPI_BOTTOM`.
fn find(buf: *mut u8, parts: &[Part]) -> Result<Option<(*mut u8, DeviceMemory)>> {
    let at = |offset: i64| {
        let address = buf.wrapping_offset(offset as isize);
        find_device(address).map(|found| found.map(|memory| (address, memory)))
    };
    let mut found = Ok(None);
    for part in parts {
        let asked = if buf.is_null() { part.bytes() } else { 1 };
        part.visit(0, asked, &mut |run| {
            for piece in 0..run.count as i64 {
                if matches!(found, Ok(None)) {
                    found = at(run.offset.wrapping_add(run.stride.wrapping_mul(piece)));
                }
            }
        });
        if !buf.is_null() {
            break;
        }
    }
    found
}

/// Returns the device memory at an address; `None` for host memory.
///
/// # Errors
/// `MPI_ERR_BUFFER`: the memory cannot be used.
pub(crate) fn find_device(address: *mut u8) -> Result<Option<DeviceMemory>> {
    device::find(address).map_err(|error| refuse(address, None, error))
}

/// Refuses an address in device memory, for a call that cannot use a copy.
///
/// # Errors
/// `MPI_ERR_BUFFER`: the address is in device memory.
pub fn refuse_device(address: *mut u8) -> Result {
    match find_device(address)? {
        None => Ok(()),
        Some(memory) => Err(refuse_call(address, &memory)),
    }
}

#[cold]
fn refuse_call(address: *mut u8, memory: &DeviceMemory) -> Error {
    let text = format!("the buffer at {address:p} is {memory}, which this call does not support");
    Error::new(MPI_ERR_BUFFER, text).with_advice(Some("pass a buffer in host memory"))
}

/// Returns the error of a buffer whose device memory cannot be used.
#[cold]
pub(crate) fn refuse(address: *mut u8, memory: Option<DeviceMemory>, error: DeviceError) -> Error {
    let text = match memory {
        _ if matches!(error, DeviceError::Freed(_)) => {
            format!("the buffer at {address:p} cannot be used: {error}")
        }
        Some(memory) => format!("the buffer at {address:p} is {memory}, and {error}"),
        None => format!("the buffer at {address:p} cannot be used: {error}"),
    };
    let (class, advice) = match error {
        DeviceError::NoMemory(_) => (MPI_ERR_NO_MEM, "pass smaller messages, or free host memory"),
        DeviceError::Unsupported(_) => {
            (MPI_ERR_BUFFER, "copy the data to host memory, and pass the copy")
        }
        DeviceError::Freed(_) => {
            (MPI_ERR_BUFFER, "free device memory after the last call and request that uses it")
        }
        DeviceError::Failed(..) => {
            (MPI_ERR_BUFFER, "check earlier CUDA calls for errors, or copy the data to host memory")
        }
    };
    Error::new(class, text).with_advice(Some(advice))
}
