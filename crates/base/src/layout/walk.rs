#![allow(unsafe_code)]
//! Packing and unpacking of any range of the packed form. Divisions and one binary search find its start.

use super::copy::{GridSide, copy_grid, copy_piece, copy_strided};
use super::list::{Block, BlockList, LayoutEntry};
use super::{ByteStream, Layout};

/// Action for each run of memory, in packed order; `at` is in bytes from the buffer's address.
trait Visit {
    /// Visits `n` pieces of `len` bytes, `stride` apart.
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64);

    #[inline]
    fn piece(&mut self, at: i64, len: u64) {
        self.run(at, len, 0, 1);
    }

    #[inline]
    fn grid(&mut self, at: i64, block: &Block, step: i64, n: u64) {
        let mut at = at.wrapping_add(block.offset);
        for _ in 0..n {
            self.run(at, block.len, block.stride, block.count);
            at = at.wrapping_add(step);
        }
    }

    /// Visits `len` bytes of a stream, from byte `from` on.
    fn stream(&mut self, _stream: &dyn ByteStream, _from: u64, _len: u64) {}
}

impl Layout {
    /// Copies the packed form of `count` elements at `base`, from its byte `from` on, into `out`, until `out` is full
    /// or the data ends. Returns the number of bytes copied. Does not allocate.
    ///
    /// # Safety
    /// The data bytes of `count` elements at `base` (see [`Layout::span`]) are readable, are not written meanwhile, and
    /// do not overlap `out`.
    #[inline]
    pub unsafe fn pack(&self, base: *const u8, count: u64, from: u64, out: &mut [u8]) -> usize {
        // SAFETY: this function's contract is that of `pack_to`; `out` is a slice.
        unsafe { self.pack_to(base, count, from, out.as_mut_ptr(), out.len()) }
    }

    /// Packs like [`Layout::pack`], into `room` bytes at `out`, which other processes may write meanwhile.
    ///
    /// # Safety
    /// The contract is that of [`Layout::pack`], and `out` is writable for `room` bytes.
    #[inline]
    pub unsafe fn pack_to(
        &self, base: *const u8, count: u64, from: u64, out: *mut u8, room: usize,
    ) -> usize {
        walk(self, count, from, room as u64, &mut Pack { base, out })
    }

    /// Copies `data` into `count` elements at `base`, from byte `from` of their packed form on, until `data` or the
    /// elements end. Returns the number of bytes copied. Does not allocate.
    ///
    /// # Safety
    /// The data bytes of `count` elements at `base` (see [`Layout::span`]) are writable, have no other user meanwhile,
    /// and do not overlap `data`.
    #[inline]
    pub unsafe fn unpack(&self, base: *mut u8, count: u64, from: u64, data: &[u8]) -> usize {
        // SAFETY: this function's contract is that of `unpack_from`; `data` is a slice.
        unsafe { self.unpack_from(base, count, from, data.as_ptr(), data.len()) }
    }

    /// Unpacks like [`Layout::unpack`], from `len` bytes at `data`, which other processes may write meanwhile. The
    /// result is then any mix of their bytes.
    /// # Safety
    /// The contract is that of [`Layout::unpack`], and `data` is readable for `len` bytes.
    #[inline]
    pub unsafe fn unpack_from(
        &self, base: *mut u8, count: u64, from: u64, data: *const u8, len: usize,
    ) -> usize {
        walk(self, count, from, len as u64, &mut Unpack { base, data })
    }

    /// Passes to `visit`, in order, the runs of memory that hold bytes `from..from + len` of the packed form of `count`
    /// elements. Offsets are in bytes from the buffer's address.
    pub fn for_each_run(&self, count: u64, from: u64, len: u64, visit: impl FnMut(Block)) {
        walk(self, count, from, len, &mut EachBlock(visit));
    }
}

struct EachBlock<F>(F);

impl<F: FnMut(Block)> Visit for EachBlock<F> {
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        (self.0)(Block { offset: at, len, stride, count: n });
    }
}

/// State of packing. Only `Layout::pack_to` makes it. Its caller guarantees both addresses.
struct Pack {
    base: *const u8,
    out: *mut u8,
}

impl Visit for Pack {
    #[inline]
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        let from = self.base.wrapping_offset(at as isize);
        let len = len as usize;
        // SAFETY: the walk visits data bytes of the elements, readable by the contract of `pack_to`, and at most as
        // many bytes as `out` has. `out` is behind the bytes already written.
        unsafe { copy_strided(from, stride as isize, self.out, len as isize, len, n as usize) };
        self.out = self.out.wrapping_add(len * n as usize);
    }

    #[inline]
    fn piece(&mut self, at: i64, len: u64) {
        let from = self.base.wrapping_offset(at as isize);
        // SAFETY: the piece is data of the elements and `out` has space for it; see `run`.
        unsafe { copy_piece(from, self.out, len as usize) };
        self.out = self.out.wrapping_add(len as usize);
    }

    #[inline]
    fn grid(&mut self, at: i64, block: &Block, step: i64, n: u64) {
        let from = self.base.wrapping_offset(at.wrapping_add(block.offset) as isize);
        let bytes = block.bytes() as isize;
        let (len, count) = (block.len as isize, block.count as usize);
        let from = GridSide { at: from, stride: block.stride as isize, step: step as isize };
        let to = GridSide { at: self.out, stride: len, step: bytes };
        // SAFETY: every run is data of the elements and `out` has space for it; see `run`.
        unsafe { copy_grid(from, to, len as usize, count, n as usize) };
        self.out = self.out.wrapping_offset(bytes * n as isize);
    }

    fn stream(&mut self, stream: &dyn ByteStream, from: u64, len: u64) {
        // SAFETY: the walk visits bytes of the layout, and at most as many as `out` has.
        let _ = unsafe { stream.read(from, self.out, len as usize) };
    }
}

/// State of unpacking. Only `Layout::unpack_from` makes it. Its caller guarantees both addresses.
struct Unpack {
    base: *mut u8,
    data: *const u8,
}

impl Visit for Unpack {
    #[inline]
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        let to = self.base.wrapping_offset(at as isize);
        let len = len as usize;
        // SAFETY: the walk visits data bytes of the elements, writable by the contract of `unpack_from`, and at most as
        // many bytes as `data` has. `data` is behind the bytes already read.
        unsafe { copy_strided(self.data, len as isize, to, stride as isize, len, n as usize) };
        self.data = self.data.wrapping_add(len * n as usize);
    }

    #[inline]
    fn piece(&mut self, at: i64, len: u64) {
        let to = self.base.wrapping_offset(at as isize);
        // SAFETY: the piece is data of the elements and `data` holds its bytes; see `run`.
        unsafe { copy_piece(self.data, to, len as usize) };
        self.data = self.data.wrapping_add(len as usize);
    }

    #[inline]
    fn grid(&mut self, at: i64, block: &Block, step: i64, n: u64) {
        let to = self.base.wrapping_offset(at.wrapping_add(block.offset) as isize);
        let bytes = block.bytes() as isize;
        let (len, count) = (block.len as isize, block.count as usize);
        let from = GridSide { at: self.data, stride: len, step: bytes };
        let to = GridSide { at: to, stride: block.stride as isize, step: step as isize };
        // SAFETY: every run is data of the elements and `data` holds its bytes; see `run`.
        unsafe { copy_grid(from, to, len as usize, count, n as usize) };
        self.data = self.data.wrapping_offset(bytes * n as isize);
    }

    fn stream(&mut self, stream: &dyn ByteStream, from: u64, len: u64) {
        // SAFETY: the walk visits bytes of the layout, and at most as many as `data` has.
        let _ = unsafe { stream.write(from, self.data, len as usize) };
    }
}

struct Stretches<F>(F);

impl<F: FnMut(i64, u64)> Visit for Stretches<F> {
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        if i64::try_from(len) == Ok(stride) {
            return (self.0)(at, len * n);
        }
        for index in 0..n {
            (self.0)(at.wrapping_add(stride.wrapping_mul(index as i64)), len);
        }
    }
}

impl Layout {
    /// Passes the offset (in bytes from the buffer's address) and the length of each contiguous part of `count`
    /// elements to `visit`, in packed order.
    pub fn visit_stretches(&self, count: u64, visit: impl FnMut(i64, u64)) {
        let all = self.size.saturating_mul(count);
        walk(self, count, 0, all, &mut Stretches(visit));
    }
}

/// Visits bytes `from..from + room` of the packed form of `count` elements, up to its end. Returns the bytes visited.
#[inline]
fn walk<V: Visit>(layout: &Layout, count: u64, from: u64, room: u64, v: &mut V) -> usize {
    // A saturated total is harmless: the `room` bytes fit memory, so they end before that total.
    let total = layout.size.saturating_mul(count);
    let room = room.min(total.saturating_sub(from));
    if room == 0 {
        return 0;
    }
    let mut left = room;
    match layout.list.as_slice() {
        [LayoutEntry::Block(b)] if count == 1 => walk_block(b, 0, from, &mut left, v),
        // Dense elements are one piece, whatever their number. Elements with a gap between them are a strided run.
        [LayoutEntry::Block(b)] if b.count == 1 => {
            let whole = if i64::try_from(b.len) == Ok(layout.extent) {
                Block { len: total, ..*b }
            } else {
                Block { stride: layout.extent, count, ..*b }
            };
            walk_block(&whole, 0, from, &mut left, v);
        }
        // An empty list with data bytes belongs to a stream.
        [] => {
            if let Some(stream) = &layout.stream {
                v.stream(&**stream, from, room);
            }
        }
        _ => walk_copies(&layout.list, 0, layout.extent, from, left, v),
    }
    room as usize
}

/// Visits copies of a list, `stride` apart, from byte `skip` of the first on, `left` bytes in all. The copies have at
/// least `left` bytes.
fn walk_copies<V: Visit>(
    list: &BlockList, at: i64, stride: i64, skip: u64, mut left: u64, v: &mut V,
) {
    let size = list.size();
    let (mut copy, within) = if skip == 0 { (0, 0) } else { (skip / size, skip % size) };
    let place = |copy: u64| at.wrapping_add(stride.wrapping_mul(copy as i64));
    if within > 0 {
        let mut now = (size - within).min(left);
        left -= now;
        walk_list(list, place(copy), within, &mut now, v);
        copy += 1;
    }
    let whole = if left < size { 0 } else { left / size };
    if whole > 0 {
        visit_copies(list, place(copy), stride, whole, v);
        left -= whole * size;
        copy += whole;
    }
    if left > 0 {
        walk_list(list, place(copy), 0, &mut left, v);
    }
}

fn visit_copies<V: Visit>(list: &BlockList, mut at: i64, stride: i64, n: u64, v: &mut V) {
    let entries = list.as_slice();
    if let [LayoutEntry::Block(b)] = entries {
        return v.grid(at, b, stride, n);
    }
    for _ in 0..n {
        for entry in entries {
            match entry {
                LayoutEntry::Block(b) if b.count == 1 => v.piece(at.wrapping_add(b.offset), b.len),
                LayoutEntry::Block(b) => v.run(at.wrapping_add(b.offset), b.len, b.stride, b.count),
                LayoutEntry::Loop(l) => {
                    visit_copies(&l.body, at.wrapping_add(l.offset), l.stride, l.count, v)
                }
            }
        }
        at = at.wrapping_add(stride);
    }
}

/// Visits one copy of a list from byte `skip` on, until `left` is used up.
fn walk_list<V: Visit>(list: &BlockList, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let (index, start) = if skip == 0 { (0, 0) } else { list.seek(skip) };
    let mut skip = skip - start;
    for entry in list.as_slice().get(index..).unwrap_or(&[]) {
        match entry {
            LayoutEntry::Block(b) => walk_block(b, at, skip, left, v),
            LayoutEntry::Loop(l) => {
                let own = (l.body.size() * l.count - skip).min(*left);
                *left -= own;
                walk_copies(&l.body, at.wrapping_add(l.offset), l.stride, skip, own, v);
            }
        }
        if *left == 0 {
            return;
        }
        skip = 0;
    }
}

#[inline]
fn walk_block<V: Visit>(b: &Block, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let at = at.wrapping_add(b.offset);
    // The product saturates, because the top level may pass any count of elements.
    let bytes = b.len.saturating_mul(b.count);
    if skip == 0 && bytes <= *left {
        v.run(at, b.len, b.stride, b.count);
        *left -= bytes;
    } else {
        walk_part(b, at, skip, left, v);
    }
}

/// Visits part of a block: the tail of one piece, then whole pieces, then the head of one piece.
fn walk_part<V: Visit>(b: &Block, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let (mut piece, within) = (skip / b.len, skip % b.len);
    let place = |piece: u64| at.wrapping_add(b.stride.wrapping_mul(piece as i64));
    if within > 0 {
        let n = (b.len - within).min(*left);
        v.run(place(piece).wrapping_add(within as i64), n, 0, 1);
        *left -= n;
        piece += 1;
    }
    let whole = (*left / b.len).min(b.count - piece);
    if whole > 0 {
        v.run(place(piece), b.len, b.stride, whole);
        *left -= whole * b.len;
        piece += whole;
    }
    if *left > 0 && piece < b.count {
        v.run(place(piece), *left, 0, 1);
        *left = 0;
    }
}
