//! Puts and gets of many short blocks, which derived datatypes make: few system calls, few messages.
//!
//! **LOCAL BYTES.** The contract of `post` holds for the local bytes of all blocks, which follow each other.
#![allow(unsafe_code)]

use crate::rma::blocks::{self, BLOCK_MAX, BLOCKS_MAX, WORD};
use crate::rma::error::RmaError::{PeerGone, Withdrawn};
use crate::rma::queue::{OperationKind, Reply, RmaOperation};
use crate::rma::region::RegionBytes;
use crate::rma::resolve::{AccessPath, RemoteKey};
use crate::rma::{BufferState, RmaError, Slots};
use crate::wire::{self, EAGER_LIMIT};
use crate::worker::Worker;
use fastpath_base::copy::copy;
use fastpath_base::heap::may_fail;
use fastpath_transport::{Header, PostOutcome, RemoteBlock, RemoteError};

/// Largest gap, in bytes, between blocks that the kernel reads in one piece. To look up another block costs the kernel
/// about as much as to copy these bytes.
const GAP_MAX: u64 = 512;
/// Bytes before the words of blocks in a message: the id of the region.
const HEAD: usize = size_of::<u64>();
/// Largest number of blocks in a request. A peer splits at most one block of a call.
const COUNT_MAX: usize = BLOCKS_MAX + 1;

impl Worker {
    /// Writes the bytes at `from` to blocks of a region, one after the other. See [`Worker::put_nbi`]. If only the
    /// kernel reaches the memory, the owner may write the blocks, which it reads from its `slots`.
    ///
    /// # Errors
    /// See [`Worker::put_nbi`]. `OutOfBounds` for any block: nothing was written.
    ///
    /// # Safety
    /// `from` is readable for the bytes of all blocks. If the result is `Pending`, this holds until a flush. The slots
    /// are mapped, and belong to the owner of the key.
    pub unsafe fn put_blocks_nbi(
        &mut self, key: &mut RemoteKey, slots: Option<&Slots>, from: *const u8,
        blocks: &[RemoteBlock],
    ) -> Result<BufferState, RmaError> {
        // SAFETY: LOCAL BYTES: a put only reads them.
        unsafe { self.move_blocks::<true>(key, slots, from.cast_mut(), blocks) }
    }

    /// Reads blocks of a region to `to`, one after the other. See [`Worker::get_nbi`].
    ///
    /// # Errors
    /// See [`Worker::get_nbi`].
    ///
    /// # Safety
    /// `to` is writable for the bytes of all blocks and has no other user. If the result is `Pending`, this holds
    /// until a flush.
    pub unsafe fn get_blocks_nbi(
        &mut self, key: &mut RemoteKey, to: *mut u8, blocks: &[RemoteBlock],
    ) -> Result<BufferState, RmaError> {
        // SAFETY: LOCAL BYTES holds for `to`, by this function's contract.
        unsafe { self.move_blocks::<false>(key, None, to, blocks) }
    }

    /// # Safety
    /// See LOCAL BYTES.
    unsafe fn move_blocks<const PUTS: bool>(
        &mut self, key: &mut RemoteKey, slots: Option<&Slots>, local: *mut u8,
        blocks: &[RemoteBlock],
    ) -> Result<BufferState, RmaError> {
        self.admit(key, 0, 0)?;
        if let Some(block) = blocks.iter().find(|b| !key.holds(b.offset, b.len as usize)) {
            return Err(key.outside(block.offset, block.len as usize));
        }
        let (mut local, mut blocks) = (local, blocks);
        if let (true, AccessPath::Kernel, Some(slots)) = (PUTS, key.way, slots) {
            // SAFETY: LOCAL BYTES. The slots are mapped, by the contract of `put_blocks_nbi`.
            let asked = unsafe { self.ask_to_put_blocks(key, slots, local, blocks)? };
            local = local.wrapping_add(RemoteBlock::total(&blocks[..asked]) as usize);
            blocks = &blocks[asked..];
            if blocks.is_empty() {
                return Ok(BufferState::Done);
            }
            // The request made progress, so the lane may have changed.
            self.admit(key, 0, 0)?;
        }
        if key.way == AccessPath::Kernel {
            // SAFETY: LOCAL BYTES.
            match unsafe { self.copy_blocks_by_kernel::<PUTS>(key, local, blocks) } {
                Ok(()) => {
                    key.asked.is_writable |= PUTS;
                    return Ok(BufferState::Done);
                }
                Err(RemoteError::Unsupported) => {
                    (key.refused, key.way) = (true, AccessPath::Messages);
                }
                Err(RemoteError::Fault) if self.peer_has_left(key.peer) => return Err(PeerGone),
                Err(RemoteError::Fault) => return Err(Withdrawn),
            }
        }
        let asks = key.way == AccessPath::Messages && key.peer != self.rank;
        if asks && blocks.iter().all(blocks::fits_word) {
            let kind = if PUTS { OperationKind::Put } else { OperationKind::Get };
            let mut operation = RmaOperation::new(key, kind, 0, local, 0, self.rma.generation);
            operation.len = RemoteBlock::total(blocks) as usize;
            operation.blocks = blocks.to_vec();
            return self.start_operation(key.peer, operation);
        }
        let (mut done, mut state) = (0, BufferState::Done);
        for block in blocks {
            let (here, len) = (local.wrapping_add(done), block.len as usize);
            // SAFETY: LOCAL BYTES.
            let moved = unsafe {
                match PUTS {
                    true => self.put_nbi(key, block.offset, here, len)?,
                    false => self.get_nbi(key, block.offset, here, len)?,
                }
            };
            if moved == BufferState::Pending {
                state = BufferState::Pending;
            }
            done += len;
        }
        Ok(state)
    }

    /// # Safety
    /// See LOCAL BYTES.
    unsafe fn copy_blocks_by_kernel<const PUTS: bool>(
        &mut self, key: &RemoteKey, local: *mut u8, blocks: &[RemoteBlock],
    ) -> Result<(), RemoteError> {
        let (lane, remote) = (&mut self.endpoints[key.peer].lane, key.remote(0));
        if PUTS {
            // SAFETY: LOCAL BYTES.
            return unsafe { lane.put_blocks(local, remote, blocks) };
        }
        let runs = blocks::merge(blocks, GAP_MAX);
        let mut bytes = Vec::new();
        let total = RemoteBlock::total(&runs) as usize;
        let merges = runs.len() < blocks.len();
        if !merges || may_fail(|| bytes.try_reserve_exact(total)).is_err() {
            // SAFETY: LOCAL BYTES.
            return unsafe { lane.get_blocks(local, remote, blocks) };
        }
        bytes.resize(total, 0);
        // SAFETY: `bytes` has space for all runs.
        unsafe { lane.get_blocks(bytes.as_mut_ptr(), remote, &runs)? };
        let (mut run, mut start, mut done) = (0, 0, 0);
        for block in blocks {
            // Blocks are in the order of their runs.
            while block.offset < runs[run].offset
                || block.offset + block.len > runs[run].offset + runs[run].len
            {
                (start, run) = (start + runs[run].len as usize, run + 1);
            }
            let (at, len) =
                (start + (block.offset - runs[run].offset) as usize, block.len as usize);
            // SAFETY: LOCAL BYTES. The slice has `len` bytes.
            unsafe { copy(local.wrapping_add(done), bytes[at..at + len].as_ptr(), len) };
            done += len;
        }
        Ok(())
    }

    /// Posts the next message of an operation with blocks.
    pub(super) fn post_blocks(&mut self, peer: u32, operation: &mut RmaOperation) -> PostOutcome {
        let puts = matches!(operation.kind, OperationKind::Put);
        let (room, region) = (self.remote_part(peer), operation.place().region);
        operation.split_next(room.saturating_sub(HEAD + WORD).max(1) as u64);
        let rest = &operation.blocks[operation.next..];
        // The answer to a get has the bytes alone.
        let (count, words, bytes) = blocks::fit(rest, room - HEAD.min(room));
        let blocks = &operation.blocks[operation.next..operation.next + count];
        let (local, _) = operation.rest();
        let pack = |to: *mut u8| {
            let packed = blocks.iter().map(blocks::pack_word);
            for (index, word) in std::iter::once(region).chain(packed).enumerate() {
                // SAFETY: `to` has space for the region and a word for each block.
                unsafe { to.cast::<u64>().wrapping_add(index).write_unaligned(word) };
            }
            if puts {
                // SAFETY: `to` has space for `bytes` more bytes. LOCAL BYTES holds for `local`.
                unsafe { copy(to.wrapping_add(HEAD + words), local, bytes) };
            }
        };
        let posted = match puts {
            true => {
                let header = Header::new(wire::REMOTE_PUT_BLOCKS, count as u32, 0);
                self.post_put(peer, header, HEAD + words + bytes, bytes, pack)
            }
            false => {
                let request = (wire::REMOTE_GET_BLOCKS, bytes as u32);
                self.post_request(peer, request, (local, bytes), HEAD + words, pack)
            }
        };
        if !matches!(posted, PostOutcome::NoResource | PostOutcome::PeerGone) {
            operation.next += count;
        }
        posted
    }

    /// Writes the bytes of a peer's put to the blocks. A put that is not valid, or that has a block outside exposed
    /// memory, counts as refused. Returns `None` if the message has no region.
    pub(super) fn serve_put_blocks(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) -> Option<()> {
        // SAFETY: `data` holds `len` bytes.
        let region = unsafe { wire::read::<u64>(data, len) }?;
        let count = header.imm as usize;
        // SAFETY: `data` holds `len` bytes.
        if !unsafe { self.write_blocks(region, count, data, len, HEAD) } {
            self.remote_peer(peer).refused += 1;
        }
        self.rma.counters.served += 1;
        Some(())
    }

    /// Writes the bytes of a request to the blocks of its words, which begin at `head`. Returns false if the request is
    /// not valid or a block is not in memory that peers may write; earlier blocks are then written.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes. The peer may still write them.
    pub(super) unsafe fn write_blocks(
        &self, region: u64, count: usize, data: *const u8, len: usize, head: usize,
    ) -> bool {
        let Some(memory) = self.rma.regions.find_to_write(region) else {
            return false;
        };
        let words = count.checked_mul(WORD).and_then(|words| words.checked_add(head));
        let Some(mut at) = words.filter(|&end| end <= len) else {
            return false;
        };
        for start in (head..at).step_by(WORD) {
            // SAFETY: the words lie inside `data`. One read makes later writes by the peer harmless.
            let word = unsafe { data.wrapping_add(start).cast::<u64>().read_unaligned() };
            let block = blocks::unpack_word(word);
            let (end, to) = (at + block.len as usize, memory.bytes(block.offset, block.len));
            let Some(to) = to.filter(|_| end <= len) else {
                return false;
            };
            // SAFETY: `to` is inside exposed memory, which its owner keeps mapped. `data` holds `end` bytes.
            if !unsafe { to.write(data.wrapping_add(at), end - at) } {
                return false;
            }
            at = end;
        }
        at == len
    }

    /// Replies to a peer's get with the bytes of the blocks. Returns `None` for a violation of the protocol.
    pub(super) fn serve_get_blocks(
        &mut self, peer: u32, header: Header, data: *const u8, len: usize,
    ) -> Option<()> {
        let most = self.endpoints[peer].lane.capabilities().map_or(0, |c| c.bcopy);
        // SAFETY: `data` holds `len` bytes.
        let region = unsafe { wire::read::<u64>(data, len) }?;
        let count = (len - HEAD) / WORD;
        if count == 0 || count > COUNT_MAX || !self.may_reply_later(peer) {
            return None;
        }
        // SAFETY: `data` holds `len` bytes, and so `count` words.
        let blocks = (0..count).map(|index| unsafe { read_word(data, len, index) });
        let blocks: Vec<RemoteBlock> = blocks.collect::<Option<_>>()?;
        let total = RemoteBlock::total(&blocks);
        if total > most.min(EAGER_LIMIT) as u64 || u64::from(header.imm) != total {
            return None;
        }
        self.rma.counters.served += 1;
        if self.connect(peer).is_ok() {
            self.start_reply(peer, Reply::of_blocks(header.key, region, blocks));
        }
        Some(())
    }

    /// Returns the bytes and the length of each block of a reply; `None` if a block is not inside the region.
    pub(super) fn locate_blocks(&self, reply: &Reply) -> Option<Vec<(RegionBytes, usize)>> {
        let region = self.rma.regions.find(reply.place.region)?;
        let bytes = |block: &RemoteBlock| {
            Some((region.bytes(block.offset, block.len)?, block.len as usize))
        };
        reply.blocks.iter().map(bytes).collect()
    }
}

/// Reads a block's word of a message once; `None` if it lies outside or is no block.
///
/// # Safety
/// `data` is readable for `len` bytes.
unsafe fn read_word(data: *const u8, len: usize, index: usize) -> Option<RemoteBlock> {
    let start = HEAD + index * WORD;
    let rest = len.checked_sub(start)?;
    // SAFETY: `data` holds `rest` bytes from `start` on.
    let word = unsafe { wire::read::<u64>(data.wrapping_add(start), rest) }?;
    let block = blocks::unpack_word(word);
    (1..=BLOCK_MAX).contains(&block.len).then_some(block)
}
