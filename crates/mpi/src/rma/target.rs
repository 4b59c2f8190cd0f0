//! Target side of an operation: the access check of its epoch, the location of its bytes, and reading and writing them.
//!
//! **SPAN AND BUFFER.** Bytes at the target lie inside the span with which it was found. Local source buffers are
//! readable, and local destination buffers writable and used by no other operation, until [`lock::complete`] of the
//! rank. Callers guarantee both. The worker lives while MPI runs, and key and slots live as long as the window.
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
use fastpath_protocol::rma::{
    AccessPath, Ask, BLOCK_MAX, BLOCKS_MAX, BufferState, RemoteBlock, RemoteKey, RmaError, Slots,
    TargetRequest, copy_mapped,
};
use std::rc::Rc;

pub(super) struct Elements {
    pub datatype: Rc<Datatype>,
    pub count: u64,
    /// Bytes of data, without gaps.
    pub bytes: u64,
}

impl Elements {
    /// Checks the arguments of elements. Errors: `MPI_ERR_COUNT` if negative, `MPI_ERR_TYPE` for an unusable datatype.
    pub fn new(p: &Process, count: i64, datatype: usize) -> Result<Elements> {
        let datatype = p.datatype(datatype)?;
        let Ok(count) = u64::try_from(count) else {
            return Err(Error::new(MPI_ERR_COUNT, format!("the count {count} is negative")));
        };
        if !datatype.is_supported() || !datatype.is_committed() {
            let text = match datatype.is_supported() {
                true => "the datatype is not committed: call MPI_Type_commit first".to_string(),
                false => {
                    format!("the datatype {} is not supported by this library", datatype.name())
                }
            };
            return Err(Error::new(MPI_ERR_TYPE, text));
        }
        let bytes = datatype.layout().total_bytes(count).ok_or_else(too_many)?;
        Ok(Elements { datatype, count, bytes })
    }

    pub fn layout(&self) -> &Layout {
        self.datatype.layout()
    }

    /// Returns the offset in bytes of the data from the buffer's address, if the data is one piece.
    pub fn piece(&self) -> Option<i64> {
        self.layout().dense_offset(self.count)
    }

    /// Returns the offset of the lowest byte from the buffer's address, and the number of bytes up to the highest.
    pub fn span(&self) -> Result<(i64, i64)> {
        self.layout().span(self.count).map_err(|_| too_many())
    }

    /// Packs all data from a buffer of this process.
    ///
    /// # Safety
    /// The buffer is readable as count and datatype specify.
    pub unsafe fn pack(&self, buffer: *const u8) -> Result<Vec<u8>> {
        let mut packed = room(self.bytes)?;
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.layout().pack(buffer, self.count, 0, &mut packed) };
        Ok(packed)
    }
}

fn too_many() -> Error {
    Error::new(MPI_ERR_COUNT, "the elements have more bytes than the address space")
}

pub(super) fn room(bytes: u64) -> Result<Vec<u8>> {
    let (mut memory, len) = (Vec::new(), bytes as usize);
    if may_fail(|| memory.try_reserve_exact(len)).is_err() {
        let text = format!("no memory for the {bytes} bytes of a one-sided operation");
        return Err(Error::new(MPI_ERR_NO_MEM, text));
    }
    memory.resize(len, 0);
    Ok(memory)
}

/// Checks that an epoch gives access to a rank. Errors: `MPI_ERR_RMA_SYNC` if no epoch gives access.
#[inline]
pub(super) fn enter(window: &Window, rank: u32) -> Result {
    let permit = window.epoch.borrow().permit(rank);
    lock::refuse(window, Some(rank), permit)
}

#[derive(Clone, Copy)]
pub(super) struct RmaTarget {
    pub rank: u32,
    /// Address in this process, or null if load and store do not reach it.
    pub near: *mut u8,
    key: *mut RemoteKey,
    slots: Option<Slots>,
    /// Offset in the region of the key.
    offset: i64,
    /// Offset for messages: from the start of the rank's part, or the address in a dynamic window.
    byte: i64,
    /// Whether the bytes lie in several pieces of attached memory. `key` is then null, and each piece is located when
    /// used.
    apart: bool,
}

/// Locates displacement `disp` at a rank, for an access to the bytes of `elements`. Errors: `MPI_ERR_DISP` for a
/// negative displacement, `MPI_ERR_RMA_RANGE` for bytes outside the rank's exposed memory.
pub(super) fn find(
    p: &Process, window: &Window, rank: u32, disp: isize, elements: &Elements,
) -> Result<RmaTarget> {
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
    // SAFETY: the reached part lives as long as the window, and no other thread enters while the reference lives.
    let reached = unsafe { &mut *reached };
    let key = reached.memory.as_mut();
    let near = match reached.base.is_null() {
        true => reached.base,
        false => reached.base.wrapping_offset(start as isize),
    };
    Ok(RmaTarget {
        rank,
        near,
        key: key.map_or(std::ptr::null_mut(), |key| &raw mut *key),
        slots: reached.slots,
        offset: (part.start as i64).wrapping_add(start),
        byte: start,
        apart: false,
    })
}

/// Locates `bytes` bytes, `start` bytes into a part that load and store do not reach; `None` if outside.
#[inline]
pub(super) fn find_far(
    p: &Process, window: &Window, rank: u32, start: u64, bytes: u64,
) -> Option<RmaTarget> {
    let part = &window.peers[rank as usize].part;
    if bytes == 0 || start + bytes > part.size {
        return None;
    }
    let reached = window.reach(p, rank).ok()?;
    // SAFETY: the reached part lives as long as the window, and no other thread enters while the reference lives.
    let reached = unsafe { &mut *reached };
    Some(RmaTarget {
        rank,
        near: std::ptr::null_mut(),
        key: reached.memory.as_mut()?,
        slots: reached.slots,
        offset: part.start.wrapping_add(start) as i64,
        byte: start as i64,
        apart: false,
    })
}

/// Locates `bytes` bytes, `low` bytes after address `at` of a rank. Returns the number located, less than `bytes` if
/// the attached piece ends earlier; `None` if the first byte is not attached.
fn find_attached(
    p: &Process, window: &Window, rank: u32, at: i64, (low, bytes): (i64, u64),
) -> Result<Option<(RmaTarget, u64)>> {
    let from = at.wrapping_add(low);
    let located = dynamic::locate(p, window, rank, from as u64, bytes)?;
    let Some(((near, key, offset), there)) = located else {
        return Ok(None);
    };
    let found = RmaTarget {
        rank,
        near: match near.is_null() {
            true => near,
            false => near.wrapping_offset(low.wrapping_neg() as isize),
        },
        key,
        // SAFETY: the reached part lives as long as the window.
        slots: unsafe { (*window.reach(p, rank)?).slots },
        offset: (offset as i64).wrapping_sub(low),
        byte: at,
        apart: false,
    };
    Ok(Some((found, there)))
}

/// Locates elements that lie in several pieces of attached memory.
#[cold]
#[inline(never)]
fn find_apart(
    p: &Process, window: &Window, first: RmaTarget, elements: &Elements,
) -> Result<RmaTarget> {
    let found = RmaTarget {
        near: std::ptr::null_mut(),
        key: std::ptr::null_mut(),
        slots: None,
        apart: true,
        ..first
    };
    found.each(elements, |at, _, len| found.each_piece(p, window, at, len, |_, _, _| Ok(())))?;
    Ok(found)
}

impl RmaTarget {
    /// Writes `len` bytes at `at`, counted from the displacement.
    ///
    /// # Safety
    /// SPAN AND BUFFER: the bytes lie inside the target's span, and `from` is readable until the next
    /// [`lock::complete`] of the rank.
    pub unsafe fn put(
        &self, p: &Process, window: &Window, at: i64, from: *const u8, len: usize,
    ) -> Result {
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.transfer::<true>(p, window, at, from.cast_mut(), len) }
    }

    /// Reads `len` bytes at `at`, counted from the displacement. They are valid after the rank's next
    /// [`lock::complete`].
    ///
    /// # Safety
    /// SPAN AND BUFFER, as for [`RmaTarget::put`]. `to` is writable.
    pub unsafe fn get(
        &self, p: &Process, window: &Window, at: i64, to: *mut u8, len: usize,
    ) -> Result {
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.transfer::<false>(p, window, at, to, len) }
    }

    /// Writes or reads `len` bytes at `at`. Safety: see SPAN AND BUFFER.
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
            // SAFETY: SPAN AND BUFFER. Overlapping ranges are an error of the program. A copy within this process's
            // memory must survive such ranges, so it uses `memmove`.
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
        let asking = TargetRequest { ask, offset, len, given, taken };
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
        self.note_moved(window, moved)
    }

    /// Notes that a flush must complete an operation, if it is not complete.
    fn note_moved(
        &self, window: &Window, moved: std::result::Result<BufferState, RmaError>,
    ) -> Result {
        // SAFETY: SPAN AND BUFFER: the key lives as long as the window.
        let way = unsafe { (*self.key).way() };
        let is_direct = matches!(way, AccessPath::LoadStore | AccessPath::Kernel);
        // After an error, parts may be under way. An operation of this process on its own memory is complete.
        if moved != Ok(BufferState::Done) || !(is_direct || self.rank == window.rank) {
            window.note_pending(self.rank);
        }
        moved.map(drop).map_err(|e| error::explain(window, self.rank, e))
    }

    /// Writes or reads elements at the target. They are packed at `local`. Short blocks are moved many at a time.
    ///
    /// # Safety
    /// SPAN AND BUFFER: `local` has the bytes of all elements.
    pub unsafe fn transfer_all<const PUTS: bool>(
        &self, p: &Process, window: &Window, elements: &Elements, local: *mut u8,
    ) -> Result {
        let (mut blocks, mut done) = (Vec::new(), 0);
        let batches = self.near.is_null() && !self.apart && elements.piece().is_none();
        self.each(elements, |at, start, len| {
            if !batches || len as u64 > BLOCK_MAX {
                // SAFETY: SPAN AND BUFFER.
                unsafe {
                    self.transfer_blocks::<PUTS>(p, window, &mut blocks, local.wrapping_add(done))?;
                    done = start + len;
                    return self.transfer::<PUTS>(p, window, at, local.wrapping_add(start), len);
                }
            }
            blocks.push(RemoteBlock { offset: self.offset_of(at), len: len as u64 });
            if blocks.len() == BLOCKS_MAX {
                // SAFETY: SPAN AND BUFFER.
                unsafe {
                    self.transfer_blocks::<PUTS>(p, window, &mut blocks, local.wrapping_add(done))?;
                }
                done = start + len;
            }
            Ok(())
        })?;
        // SAFETY: SPAN AND BUFFER.
        unsafe { self.transfer_blocks::<PUTS>(p, window, &mut blocks, local.wrapping_add(done)) }
    }

    /// Writes or reads blocks of the key's region, and clears the list.
    ///
    /// # Safety
    /// SPAN AND BUFFER: `local` has the bytes of all blocks, one after the other.
    unsafe fn transfer_blocks<const PUTS: bool>(
        &self, p: &Process, window: &Window, blocks: &mut Vec<RemoteBlock>, local: *mut u8,
    ) -> Result {
        if blocks.is_empty() {
            return Ok(());
        }
        let worker = p.worker()?;
        // SAFETY: SPAN AND BUFFER.
        let moved = unsafe {
            let (worker, key): (&mut Worker, _) = (&mut *worker, &mut *self.key);
            match PUTS {
                true => worker.put_blocks_nbi(key, self.slots.as_ref(), local, blocks),
                false => worker.get_blocks_nbi(key, local, blocks),
            }
        };
        blocks.clear();
        self.note_moved(window, moved)
    }

    /// Converts `at`, in bytes after the displacement, to an offset in the region of the key.
    pub fn offset_of(&self, at: i64) -> u64 {
        self.offset.wrapping_add(at) as u64
    }

    /// Converts `at`, in bytes after the displacement, to the offset that messages use.
    pub fn byte_at(&self, at: i64) -> i64 {
        self.byte.wrapping_add(at)
    }

    pub fn key(&self) -> *mut RemoteKey {
        self.key
    }

    pub fn may_ask(&self) -> bool {
        self.slots.is_some() && self.near.is_null()
    }

    /// Requests an operation of the target. Returns the number of bytes for which the target has performed it.
    ///
    /// # Safety
    /// SPAN AND BUFFER: the given bytes are readable and the taken bytes writable.
    pub unsafe fn ask_owner(
        &self, p: &Process, window: &Window, asking: &TargetRequest,
    ) -> Result<usize> {
        let Some(slots) = self.slots.filter(|_| self.may_ask()) else {
            return Ok(0);
        };
        let worker = p.worker()?;
        // SAFETY: SPAN AND BUFFER.
        let asked = unsafe { (*worker).ask_owner(&mut *self.key, &slots, asking) };
        asked.map_err(|e| error::explain(window, self.rank, e))
    }

    /// Writes packed data into elements at the target. `packed` is no longer used on return.
    ///
    /// # Safety
    /// See SPAN AND BUFFER.
    pub unsafe fn scatter(
        &self, p: &Process, window: &Window, elements: &Elements, packed: &[u8],
    ) -> Result {
        if !self.near.is_null() {
            // SAFETY: SPAN AND BUFFER.
            unsafe { elements.layout().unpack(self.near, elements.count, 0, packed) };
            return Ok(());
        }
        let from = packed.as_ptr().cast_mut();
        // SAFETY: SPAN AND BUFFER. `packed` lives until `complete` has returned.
        unsafe {
            let begun = self.transfer_all::<true>(p, window, elements, from);
            lock::complete(p, window, self.rank).and(begun)
        }
    }

    /// Reads elements at the target and packs them.
    ///
    /// # Safety
    /// See SPAN AND BUFFER.
    pub unsafe fn gather(
        &self, p: &Process, window: &Window, elements: &Elements, packed: &mut [u8],
    ) -> Result {
        if !self.near.is_null() {
            // SAFETY: SPAN AND BUFFER.
            unsafe { elements.layout().pack(self.near, elements.count, 0, packed) };
            return Ok(());
        }
        let to = packed.as_mut_ptr();
        // SAFETY: SPAN AND BUFFER. `packed` lives until `complete` has returned.
        unsafe {
            let begun = self.transfer_all::<false>(p, window, elements, to);
            lock::complete(p, window, self.rank).and(begun)
        }
    }

    /// Visits each piece of attached memory that holds part of `len` bytes at `at`, with the number of bytes before it.
    #[cold]
    #[inline(never)]
    fn each_piece(
        &self, p: &Process, window: &Window, at: i64, len: usize,
        mut visit: impl FnMut(RmaTarget, usize, usize) -> Result,
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

    /// Visits each piece of memory of elements at the target, with its place in packed order.
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

/// Copies bytes within this process. Safety: `from` is readable and `to` writable for `len` bytes, without overlap.
#[inline]
pub(super) unsafe fn copy_here(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: both ranges are valid and disjoint, by this function's contract.
    unsafe { copy(to, from, len) }
}
