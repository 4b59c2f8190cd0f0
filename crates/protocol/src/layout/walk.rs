#![allow(unsafe_code)]
//! Packing and unpacking: any range of the packed form of `count` elements, found by division and one binary search.

use super::Layout;
use super::list::{Block, Entry, List, Loop};

/// What a walk does with the runs it meets, in packed order.
trait Visit {
    /// `n` pieces of `len` bytes, `stride` apart, the first `at` bytes from the buffer's address.
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64);
}

impl Layout {
    /// Copies bytes `from..` of the packed form of `count` elements at `base` into `out`, until `out` is full or the
    /// data ends. Returns the bytes copied. Does not allocate.
    ///
    /// # Safety
    /// The data bytes of `count` elements at `base` (see [`Layout::span`]) are readable, nobody writes them
    /// meanwhile, and they do not overlap `out`.
    #[inline]
    pub unsafe fn pack(&self, base: *const u8, count: u64, from: u64, out: &mut [u8]) -> usize {
        let mut visitor = Pack {
            base,
            out: out.as_mut_ptr(),
        };
        walk(self, count, from, out.len() as u64, &mut visitor)
    }

    /// Copies `data` to where bytes `from..` of the packed form of `count` elements lie at `base`, until `data` or the
    /// elements end. Returns the bytes copied. Does not allocate.
    ///
    /// # Safety
    /// The data bytes of `count` elements at `base` (see [`Layout::span`]) are writable, nobody else uses them
    /// meanwhile, and they do not overlap `data`.
    #[inline]
    pub unsafe fn unpack(&self, base: *mut u8, count: u64, from: u64, data: &[u8]) -> usize {
        let mut visitor = Unpack {
            base,
            data: data.as_ptr(),
        };
        walk(self, count, from, data.len() as u64, &mut visitor)
    }

    /// Names the runs of memory that hold bytes `from..from + len` of the packed form of `count` elements, in that
    /// order; offsets are bytes from the buffer's address.
    pub fn for_each_run(&self, count: u64, from: u64, len: u64, visit: impl FnMut(Block)) {
        walk(self, count, from, len, &mut Each(visit));
    }
}

struct Each<F>(F);

impl<F: FnMut(Block)> Visit for Each<F> {
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        (self.0)(Block {
            offset: at,
            len,
            stride,
            count: n,
        });
    }
}

/// Made in `Layout::pack` alone, whose caller vouches for both addresses.
struct Pack {
    base: *const u8,
    out: *mut u8,
}

impl Visit for Pack {
    #[inline]
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        let from = self.base.wrapping_offset(at as isize);
        let len = len as usize;
        // SAFETY: a walk visits data bytes of the elements, which pack's caller lets us read, and at most as many
        // bytes in all as `out` has; `out` has moved past those already written.
        unsafe {
            copy_strided(
                from,
                stride as isize,
                self.out,
                len as isize,
                len,
                n as usize,
            )
        };
        self.out = self.out.wrapping_add(len * n as usize);
    }
}

/// Made in `Layout::unpack` alone, whose caller vouches for both addresses.
struct Unpack {
    base: *mut u8,
    data: *const u8,
}

impl Visit for Unpack {
    #[inline]
    fn run(&mut self, at: i64, len: u64, stride: i64, n: u64) {
        let to = self.base.wrapping_offset(at as isize);
        let len = len as usize;
        // SAFETY: a walk visits data bytes of the elements, which unpack's caller lets us write, and at most as many
        // bytes in all as `data` has; `data` has moved past those already read.
        unsafe {
            copy_strided(
                self.data,
                len as isize,
                to,
                stride as isize,
                len,
                n as usize,
            )
        };
        self.data = self.data.wrapping_add(len * n as usize);
    }
}

/// Copies `n` pieces of `len` bytes; each side steps by its own stride. Lengths that a basic type has get a loop of
/// plain loads and stores.
///
/// # Safety
/// Every piece is readable on the one side and writable on the other, and the two sides do not overlap.
#[inline]
unsafe fn copy_strided(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
    len: usize,
    n: usize,
) {
    // SAFETY: the same contract; the constant equals `len`.
    unsafe {
        match len {
            4 => copy_pieces::<4>(from, from_stride, to, to_stride, n),
            8 => copy_pieces::<8>(from, from_stride, to, to_stride, n),
            16 => copy_pieces::<16>(from, from_stride, to, to_stride, n),
            1 => copy_pieces::<1>(from, from_stride, to, to_stride, n),
            2 => copy_pieces::<2>(from, from_stride, to, to_stride, n),
            12 => copy_pieces::<12>(from, from_stride, to, to_stride, n),
            24 => copy_pieces::<24>(from, from_stride, to, to_stride, n),
            32 => copy_pieces::<32>(from, from_stride, to, to_stride, n),
            _ => copy_any(from, from_stride, to, to_stride, len, n),
        }
    }
}

/// # Safety
/// As for [`copy_strided`], with `N` for the length.
#[inline]
unsafe fn copy_pieces<const N: usize>(
    mut from: *const u8,
    from_stride: isize,
    mut to: *mut u8,
    to_stride: isize,
    n: usize,
) {
    for _ in 0..n {
        // SAFETY: both pieces are valid for N bytes by this function's contract; [u8; N] asks for no alignment.
        unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) };
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// # Safety
/// As for [`copy_strided`].
unsafe fn copy_any(
    mut from: *const u8,
    from_stride: isize,
    mut to: *mut u8,
    to_stride: isize,
    len: usize,
    n: usize,
) {
    for _ in 0..n {
        // SAFETY: both pieces are valid for `len` bytes by this function's contract.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// Visits bytes `from..from + room` of the packed form of `count` elements, as far as they go; returns how many.
#[inline]
fn walk<V: Visit>(layout: &Layout, count: u64, from: u64, room: u64, v: &mut V) -> usize {
    // The total saturates: a caller's count beyond memory cannot be reached by any room.
    let total = layout.size.saturating_mul(count);
    let room = room.min(total.saturating_sub(from));
    if room == 0 {
        return 0;
    }
    let mut left = room;
    match layout.list.as_slice() {
        [Entry::Block(b)] if count == 1 => walk_block(b, 0, from, &mut left, v),
        // A dense element is one piece throughout, a piece with a gap a strided run.
        [Entry::Block(b)] if b.count == 1 => {
            let whole = if i64::try_from(b.len) == Ok(layout.extent) {
                Block { len: total, ..*b }
            } else {
                Block {
                    stride: layout.extent,
                    count,
                    ..*b
                }
            };
            walk_block(&whole, 0, from, &mut left, v);
        }
        _ => {
            let (first, skip) = if from == 0 {
                (0, 0)
            } else {
                (from / layout.size, from % layout.size)
            };
            walk_copies(&layout.list, 0, layout.extent, first, skip, &mut left, v);
        }
    }
    (room - left) as usize
}

/// Visits copies of a list, `stride` apart, from byte `skip` of copy `first` on until `left` is used up. The caller
/// has bounded `left` by the bytes that there are.
fn walk_copies<V: Visit>(
    list: &List,
    at: i64,
    stride: i64,
    first: u64,
    skip: u64,
    left: &mut u64,
    v: &mut V,
) {
    let mut at = at.wrapping_add(stride.wrapping_mul(first as i64));
    walk_list(list, at, skip, left, v);
    while *left > 0 {
        at = at.wrapping_add(stride);
        walk_list(list, at, 0, left, v);
    }
}

/// Visits one copy of a list from byte `skip` on.
fn walk_list<V: Visit>(list: &List, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let entries = list.as_slice();
    let (index, start) = if skip == 0 { (0, 0) } else { list.seek(skip) };
    let mut skip = skip - start;
    for entry in entries.get(index..).unwrap_or(&[]) {
        match entry {
            Entry::Block(b) => walk_block(b, at, skip, left, v),
            Entry::Loop(l) => walk_loop(l, at, skip, left, v),
        }
        if *left == 0 {
            return;
        }
        skip = 0;
    }
}

fn walk_loop<V: Visit>(l: &Loop, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let body = l.body.size();
    let mut own = (body * l.count - skip).min(*left);
    *left -= own;
    let (first, skip) = if skip == 0 {
        (0, 0)
    } else {
        (skip / body, skip % body)
    };
    let at = at.wrapping_add(l.offset);
    // A loop over a single block is what a vector of vectors is: no list walk for each copy.
    if let [Entry::Block(b)] = l.body.as_slice() {
        let mut at = at.wrapping_add(l.stride.wrapping_mul(first as i64));
        walk_block(b, at, skip, &mut own, v);
        while own >= body {
            at = at.wrapping_add(l.stride);
            v.run(at.wrapping_add(b.offset), b.len, b.stride, b.count);
            own -= body;
        }
        if own > 0 {
            walk_block(b, at.wrapping_add(l.stride), 0, &mut own, v);
        }
        return;
    }
    walk_copies(&l.body, at, l.stride, first, skip, &mut own, v);
}

#[inline]
fn walk_block<V: Visit>(b: &Block, at: i64, skip: u64, left: &mut u64, v: &mut V) {
    let at = at.wrapping_add(b.offset);
    // Saturating: the top level passes any count of elements a caller names.
    let bytes = b.len.saturating_mul(b.count);
    if skip == 0 && bytes <= *left {
        v.run(at, b.len, b.stride, b.count);
        *left -= bytes;
    } else {
        walk_part(b, at, skip, left, v);
    }
}

/// A block of which the beginning is skipped or the end does not fit: a piece's tail, whole pieces, a piece's head.
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
