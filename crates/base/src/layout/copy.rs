#![allow(unsafe_code)]
//! Inner loops of packing, for pieces of so few bytes that a call of memcpy would cost more than the copy.

/// Copies `n` pieces of `len` bytes, each side with its own stride. Lengths of basic types take plain accesses.
///
/// # Safety
/// Every piece is readable on one side and writable on the other, and the two sides do not overlap.
#[inline]
pub(super) unsafe fn copy_strided(
    from: *const u8, from_stride: isize, to: *mut u8, to_stride: isize, len: usize, n: usize,
) {
    // SAFETY: the caller's pieces are readable and writable; the constant equals `len`.
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
/// The contract is that of [`copy_strided`], with `N` for the length.
#[inline]
unsafe fn copy_pieces<const N: usize>(
    mut from: *const u8, from_stride: isize, mut to: *mut u8, to_stride: isize, n: usize,
) {
    for _ in 0..n {
        // SAFETY: both pieces are valid for N bytes by this function's contract; [u8; N] needs no alignment.
        unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) };
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// # Safety
/// The contract is that of [`copy_strided`].
unsafe fn copy_any(
    mut from: *const u8, from_stride: isize, mut to: *mut u8, to_stride: isize, len: usize,
    n: usize,
) {
    for _ in 0..n {
        // SAFETY: both pieces are valid for `len` bytes by this function's contract.
        unsafe { copy_piece(from, to, len) };
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// One side of [`copy_grid`]: the first piece, the bytes between pieces, and the bytes between runs.
#[derive(Clone, Copy)]
pub(super) struct GridSide<P> {
    pub at: P,
    pub stride: isize,
    pub step: isize,
}

/// Copies `runs` runs of `n` pieces of `len` bytes.
///
/// # Safety
/// The contract is that of [`copy_strided`], for every run.
#[inline]
pub(super) unsafe fn copy_grid(
    from: GridSide<*const u8>, to: GridSide<*mut u8>, len: usize, n: usize, runs: usize,
) {
    // SAFETY: the caller's pieces are readable and writable; the constant equals `len`.
    unsafe {
        match len {
            4 => copy_runs::<4>(from, to, n, runs),
            8 => copy_runs::<8>(from, to, n, runs),
            16 => copy_runs::<16>(from, to, n, runs),
            _ => {
                let (mut a, mut b) = (from.at, to.at);
                for _ in 0..runs {
                    copy_strided(a, from.stride, b, to.stride, len, n);
                    a = a.wrapping_offset(from.step);
                    b = b.wrapping_offset(to.step);
                }
            }
        }
    }
}

/// # Safety
/// The contract is that of [`copy_grid`], with `N` for the length.
#[inline]
unsafe fn copy_runs<const N: usize>(
    from: GridSide<*const u8>, to: GridSide<*mut u8>, n: usize, runs: usize,
) {
    let (mut a, mut b) = (from.at, to.at);
    for _ in 0..runs {
        // SAFETY: this is one of the `runs` runs that the contract of this function covers.
        unsafe { copy_pieces::<N>(a, from.stride, b, to.stride, n) };
        a = a.wrapping_offset(from.step);
        b = b.wrapping_offset(to.step);
    }
}

/// Copies one piece. Short pieces take two loads that may overlap, so that no length needs a loop.
///
/// # Safety
/// `len` bytes, at least 1, are readable at `from` and writable at `to`, and they do not overlap.
#[inline]
pub(super) unsafe fn copy_piece(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each load and store is at an end of the piece and no longer than it.
    unsafe {
        match len {
            8..=16 => copy_ends::<8>(from, to, len),
            4..=7 => copy_ends::<4>(from, to, len),
            17..=32 => copy_ends::<16>(from, to, len),
            2..=3 => copy_ends::<2>(from, to, len),
            1 => to.write(from.read()),
            _ => crate::copy::copy(to, from, len),
        }
    }
}

/// # Safety
/// The contract is that of [`copy_piece`], with `len` from `N` to twice that.
#[inline]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both ranges of N bytes are within the piece; [u8; N] needs no alignment.
    unsafe {
        let head = from.cast::<[u8; N]>().read();
        let tail = from.add(len - N).cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(head);
        to.add(len - N).cast::<[u8; N]>().write(tail);
    }
}
