//! The target's side of an operation: whether an epoch gives access to it, where its bytes are, and how they are read
//! and written.
//!
//! **SPAN AND BUFFER.** The bytes at the target are inside the span that it was found with. What is read from is
//! readable and what is read to writable until [`lock::complete`] of the rank, and used by no other. The worker lives
//! while MPI runs, key and slots as long as the window. The first two are asked of the callers.
#![allow(unsafe_code)]

use super::window::{Flavor, Window};
use super::{dynamic, error, lock};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::datatype::Datatype;
use crate::process::Process;
use fastpath_base::copy::copy;
use fastpath_base::heap::may_fail;
use fastpath_protocol::Worker;
use fastpath_protocol::layout::Layout;
use fastpath_protocol::rma::{AccessPath, Ask, Asking, Moved, RemoteKey, Slots, copy_mapped};
use std::rc::Rc;

/// Elements of one side of an operation.
pub(super) struct Elements {
    pub datatype: Rc<Datatype>,
    pub count: u64,
    /// Bytes of data in them.
    pub bytes: u64,
}

impl Elements {
    /// # Errors
    /// `MPI_ERR_COUNT` for a negative count, `MPI_ERR_TYPE` for a datatype that may not be used.
    pub fn new(p: &Process, count: i64, datatype: usize) -> Result<Elements> {
        let datatype = p.datatype(datatype)?;
        let Ok(count) = u64::try_from(count) else {
            return Err(Error::new(MPI_ERR_COUNT, format!("the count {count} is negative")));
        };
        if !datatype.is_supported() || !datatype.is_committed() {
            let text = match datatype.is_supported() {
                true => "the datatype is not committed: call MPI_Type_commit first".to_string(),
                false => format!("{} is not supported by this library", datatype.name()),
            };
            return Err(Error::new(MPI_ERR_TYPE, text));
        }
        let bytes = datatype.layout().total_bytes(count).ok_or_else(too_many)?;
        Ok(Elements { datatype, count, bytes })
    }

    pub fn layout(&self) -> &Layout {
        self.datatype.layout()
    }

    /// Where all of it is, from the buffer's address, if it is one piece.
    pub fn piece(&self) -> Option<i64> {
        self.layout().dense_offset(self.count)
    }

    /// Lowest byte and number of bytes to behind the highest, from the buffer's address.
    pub fn span(&self) -> Result<(i64, i64)> {
        self.layout().span(self.count).map_err(|_| too_many())
    }

    /// All bytes in packed order, from a buffer of this process.
    ///
    /// # Safety
    /// The buffer is readable as count and datatype say.
    pub unsafe fn pack(&self, buffer: *const u8) -> Result<Vec<u8>> {
        let mut packed = room(self.bytes)?;
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.layout().pack(buffer, self.count, 0, &mut packed) };
        Ok(packed)
    }
}

fn too_many() -> Error {
    Error::new(MPI_ERR_COUNT, "the elements have more bytes than an address space")
}

/// Zeroed memory, or the error that there is too little.
pub(super) fn room(bytes: u64) -> Result<Vec<u8>> {
    let (mut memory, len) = (Vec::new(), bytes as usize);
    if may_fail(|| memory.try_reserve_exact(len)).is_err() {
        let text = format!("there is no memory for {bytes} bytes on their way");
        return Err(Error::new(MPI_ERR_NO_MEM, text));
    }
    memory.resize(len, 0);
    Ok(memory)
}

/// Makes sure that an epoch gives access to a rank.
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` where none does.
#[inline]
pub(super) fn enter(window: &Window, rank: u32) -> Result {
    let permit = window.epoch.borrow().permit(rank);
    lock::refuse(window, Some(rank), permit)
}

/// Where a displacement of a rank is.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub rank: u32,
    /// Its address in this process; null where it is not reached by load and store.
    pub near: *mut u8,
    key: *mut RemoteKey,
    slots: Option<Slots>,
    /// Its offset in the key's region.
    offset: i64,
    /// The byte as a person would count it: from the begin of the rank's part, or its address in a dynamic window.
    byte: i64,
    /// The bytes are in several pieces of attached memory: each is looked for when it is used, and there is no key.
    apart: bool,
}

/// Finds a displacement of a rank, from which the bytes of `elements` are used.
///
/// # Errors
/// `MPI_ERR_DISP` for a negative displacement, `MPI_ERR_RMA_RANGE` for bytes outside of what the rank exposes.
pub(super) fn find(
    p: &Process, window: &Window, rank: u32, disp: isize, elements: &Elements,
) -> Result<Target> {
    let (low, len) = elements.span()?;
    let bytes = len as u64;
    if window.flavor == Flavor::Dynamic {
        let at = disp as i64;
        return match find_attached(p, window, rank, at, (low, bytes))? {
            Some((found, there)) if there == bytes => Ok(found),
            Some((first, _)) => find_apart(p, window, first, elements),
            None => Err(dynamic::refuse(window, rank, at.wrapping_add(low) as u64, bytes)),
        };
    }
    let part = &window.peers[rank as usize].part;
    let from = i128::from(disp as i64) * i128::from(part.unit) + i128::from(low);
    if disp < 0 || from < 0 || from + i128::from(bytes) > i128::from(part.size) {
        return Err(error::refuse_range(window, rank, disp as i64, low, bytes));
    }
    let start = (from - i128::from(low)) as i64;
    let reached = window.reach(p, rank)?;
    // SAFETY: lives as long as the window; nothing here lets other threads in while the reference lives.
    let reached = unsafe { &mut *reached };
    let key = reached.memory.as_mut();
    let near = match reached.base.is_null() {
        true => reached.base,
        false => reached.base.wrapping_offset(start as isize),
    };
    Ok(Target {
        rank,
        near,
        key: key.map_or(std::ptr::null_mut(), |key| &raw mut *key),
        slots: reached.slots,
        offset: (part.start as i64).wrapping_add(start),
        byte: start,
        apart: false,
    })
}

/// Finds `bytes` bytes, `start` bytes into a part that was reached before, but not by load and store.
#[inline]
pub(super) fn find_far(
    p: &Process, window: &Window, rank: u32, start: u64, bytes: u64,
) -> Option<Target> {
    let part = &window.peers[rank as usize].part;
    if bytes == 0 || start + bytes > part.size {
        return None;
    }
    let reached = window.reach(p, rank).ok()?;
    // SAFETY: lives as long as the window; nothing here lets other threads in while the reference lives.
    let reached = unsafe { &mut *reached };
    Some(Target {
        rank,
        near: std::ptr::null_mut(),
        key: reached.memory.as_mut()?,
        slots: reached.slots,
        offset: part.start.wrapping_add(start) as i64,
        byte: start as i64,
        apart: false,
    })
}

/// Finds `bytes` bytes that begin `low` behind the address `at` of a rank, or as many as are in one piece of attached
/// memory; how many. Nothing where the first one is not attached.
fn find_attached(
    p: &Process, window: &Window, rank: u32, at: i64, (low, bytes): (i64, u64),
) -> Result<Option<(Target, u64)>> {
    let from = at.wrapping_add(low);
    let located = dynamic::locate(p, window, rank, from as u64, bytes)?;
    let Some(((near, key, offset), there)) = located else {
        return Ok(None);
    };
    let found = Target {
        rank,
        near: match near.is_null() {
            true => near,
            false => near.wrapping_offset(low.wrapping_neg() as isize),
        },
        key,
        // SAFETY: lives as long as the window.
        slots: unsafe { (*window.reach(p, rank)?).slots },
        offset: (offset as i64).wrapping_sub(low),
        byte: at,
        apart: false,
    };
    Ok(Some((found, there)))
}

/// Elements whose bytes are not in one piece of attached memory, though each element is in one.
#[cold]
#[inline(never)]
fn find_apart(p: &Process, window: &Window, first: Target, elements: &Elements) -> Result<Target> {
    let found = Target {
        near: std::ptr::null_mut(),
        key: std::ptr::null_mut(),
        slots: None,
        apart: true,
        ..first
    };
    found.each(elements, |at, _, len| found.each_piece(p, window, at, len, |_, _, _| Ok(())))?;
    Ok(found)
}

impl Target {
    /// Writes `len` bytes to `at`, from the displacement.
    ///
    /// # Safety
    /// The bytes are inside the span that the target was found with; `from` is readable until the window's next
    /// [`lock::complete`] of the rank.
    pub unsafe fn put(
        &self, p: &Process, window: &Window, at: i64, from: *const u8, len: usize,
    ) -> Result {
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.transfer::<true>(p, window, at, from.cast_mut(), len) }
    }

    /// Reads `len` bytes at `at`, from the displacement. They are there after the window's next [`lock::complete`] of
    /// the rank.
    ///
    /// # Safety
    /// As [`Target::put`]; `to` is writable.
    pub unsafe fn get(
        &self, p: &Process, window: &Window, at: i64, to: *mut u8, len: usize,
    ) -> Result {
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.transfer::<false>(p, window, at, to, len) }
    }

    /// # Safety
    /// As [`Target::put`] and [`Target::get`].
    unsafe fn transfer<const PUTS: bool>(
        &self, p: &Process, window: &Window, at: i64, local: *mut u8, len: usize,
    ) -> Result {
        if self.apart {
            return self.each_piece(p, window, at, len, |piece, done, len| {
                // SAFETY: SPAN AND BUFFER.
                unsafe { piece.transfer::<PUTS>(p, window, 0, local.wrapping_add(done), len) }
            });
        }
        if !self.near.is_null() {
            let there = self.near.wrapping_offset(at as isize);
            // SAFETY: SPAN AND BUFFER. Ranges that overlap are an error of the program, which a copy of its own memory
            // through a window must survive.
            unsafe {
                match PUTS {
                    _ if self.rank == window.rank && PUTS => std::ptr::copy(local, there, len),
                    _ if self.rank == window.rank => std::ptr::copy(there, local, len),
                    true => copy_mapped(there, local, len),
                    false => copy_mapped(local, there, len),
                }
            }
            return Ok(());
        }
        let offset = self.offset_of(at);
        let (ask, given, taken) = match PUTS {
            true => (Ask::Put, (local.cast_const(), len), (local, 0)),
            false => (Ask::Get, (local.cast_const(), 0), (local, len)),
        };
        let asking = Asking { ask, offset, len, given, taken };
        // SAFETY: SPAN AND BUFFER.
        let done = unsafe { self.ask_owner(p, window, &asking)? };
        if done == len {
            return Ok(());
        }
        let (offset, local, len) = (offset + done as u64, local.wrapping_add(done), len - done);
        let worker = p.worker()?;
        // SAFETY: SPAN AND BUFFER.
        let moved = unsafe {
            let (worker, key): (&mut Worker, _) = (&mut *worker, &mut *self.key);
            match PUTS {
                true => worker.put_nbi(key, offset, local, len),
                false => worker.get_nbi(key, offset, local, len),
            }
        };
        let moved = moved.map_err(|e| error::explain(window, self.rank, e))?;
        // SAFETY: SPAN AND BUFFER: the key.
        let way = unsafe { (*self.key).way() };
        if moved == Moved::Pending || !matches!(way, AccessPath::LoadStore | AccessPath::Kernel) {
            window.note_pending(self.rank);
        }
        Ok(())
    }

    /// The offset in its region of a byte at `at` from the displacement.
    pub fn offset_of(&self, at: i64) -> u64 {
        self.offset.wrapping_add(at) as u64
    }

    /// A byte `at` from the displacement, as a person would count it.
    pub fn byte_at(&self, at: i64) -> i64 {
        self.byte.wrapping_add(at)
    }

    /// The key that it was found with; null without one.
    pub fn key(&self) -> *mut RemoteKey {
        self.key
    }

    /// Whether the target may be asked to carry operations out.
    pub fn may_ask(&self) -> bool {
        self.slots.is_some() && self.near.is_null()
    }

    /// Asks the target to carry an operation out; of how many bytes it has.
    ///
    /// # Safety
    /// The bytes are inside the span that the target was found with; what is given is readable and what is taken
    /// writable.
    pub unsafe fn ask_owner(&self, p: &Process, window: &Window, asking: &Asking) -> Result<usize> {
        let Some(slots) = self.slots.filter(|_| self.may_ask()) else {
            return Ok(0);
        };
        let worker = p.worker()?;
        // SAFETY: SPAN AND BUFFER.
        let asked = unsafe { (*worker).ask_owner(&mut *self.key, &slots, asking) };
        asked.map_err(|e| error::explain(window, self.rank, e))
    }

    /// Writes packed bytes to elements here, and waits until they are there or may be forgotten.
    ///
    /// # Safety
    /// As [`Target::put`].
    pub unsafe fn scatter(
        &self, p: &Process, window: &Window, elements: &Elements, packed: &[u8],
    ) -> Result {
        if !self.near.is_null() {
            // SAFETY: SPAN AND BUFFER.
            unsafe { elements.layout().unpack(self.near, elements.count, 0, packed) };
            return Ok(());
        }
        let from = packed.as_ptr();
        // SAFETY: SPAN AND BUFFER; the packed bytes are there until all have been completed.
        unsafe {
            let begun = self.each(elements, |at, done, len| {
                self.put(p, window, at, from.wrapping_add(done), len)
            });
            lock::complete(p, window, self.rank).and(begun)
        }
    }

    /// Reads elements here in packed order.
    ///
    /// # Safety
    /// As [`Target::get`].
    pub unsafe fn gather(
        &self, p: &Process, window: &Window, elements: &Elements, packed: &mut [u8],
    ) -> Result {
        if !self.near.is_null() {
            // SAFETY: SPAN AND BUFFER.
            unsafe { elements.layout().pack(self.near, elements.count, 0, packed) };
            return Ok(());
        }
        let to = packed.as_mut_ptr();
        // SAFETY: SPAN AND BUFFER; the packed bytes are there until all have been completed.
        unsafe {
            let begun = self.each(elements, |at, done, len| {
                self.get(p, window, at, to.wrapping_add(done), len)
            });
            lock::complete(p, window, self.rank).and(begun)
        }
    }

    /// Calls `visit` for every piece of attached memory that `len` bytes at `at` are in, with how many came before.
    #[cold]
    #[inline(never)]
    fn each_piece(
        &self, p: &Process, window: &Window, at: i64, len: usize,
        mut visit: impl FnMut(Target, usize, usize) -> Result,
    ) -> Result {
        let (first, mut done) = (self.byte.wrapping_add(at), 0);
        while done < len {
            let (from, rest) = (first.wrapping_add(done as i64), (len - done) as u64);
            let found = find_attached(p, window, self.rank, from, (0, rest))?;
            let Some((piece, there)) = found else {
                return Err(dynamic::refuse(window, self.rank, first as u64, len as u64));
            };
            visit(piece, done, there as usize)?;
            done += there as usize;
        }
        Ok(())
    }

    /// Calls `visit` for every piece of memory of elements here, with its place in packed order.
    pub fn each(
        &self, elements: &Elements, mut visit: impl FnMut(i64, usize, usize) -> Result,
    ) -> Result {
        if let Some(at) = elements.piece() {
            return visit(at, 0, elements.bytes as usize);
        }
        let (mut done, mut result) = (0, Ok(()));
        elements.layout().visit_stretches(elements.count, |at, len| {
            if result.is_ok() {
                result = visit(at, done, len as usize);
            }
            done += len as usize;
        });
        result
    }
}

/// Copies bytes of this process.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes; they do not overlap.
#[inline]
pub(super) unsafe fn copy_here(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: SPAN AND BUFFER.
    unsafe { copy(to, from, len) }
}
