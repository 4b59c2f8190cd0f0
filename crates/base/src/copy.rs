//! Memory copies of the message path.
//!
//! **RANGES.** Every function here requires that `from` is readable and `to` writable for `len` bytes, and that the two
//! do not overlap.
#![allow(unsafe_code)]

pub mod engine;
mod loops;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

/// Largest length of [`copy_small`], in bytes.
pub const COPY_SMALL_MAX: usize = 48;

/// 16 bytes in one register that is never callee-saved.
#[cfg(target_arch = "x86_64")]
type Wide = core::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

/// Copies 0 to 48 bytes by a few overlapping loads and stores, without a call.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, they do not overlap, and `len` is at most
/// [`COPY_SMALL_MAX`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Send and MPI_Recv
pub unsafe fn copy_small(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every access is inside the first `len` bytes.
    unsafe {
        if len.wrapping_sub(8) <= 8 {
            let (head, tail) = (load::<u64>(from, 0), load::<u64>(from, len - 8));
            store(to, 0, head);
            store(to, len - 8, tail);
        } else if len < 8 {
            copy_tiny(to, from, len);
        } else {
            let (first, last) = (load::<Wide>(from, 0), load::<Wide>(from, len - 16));
            if len > 32 {
                let middle = load::<Wide>(from, 16);
                store(to, 16, middle);
            }
            store(to, 0, first);
            store(to, len - 16, last);
        }
    }
}

/// Copies 0 to 7 bytes, for [`copy_small`].
#[inline]
unsafe fn copy_tiny(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every access is inside the first `len` bytes.
    unsafe {
        if len >= 4 {
            let (head, tail) = (load::<u32>(from, 0), load::<u32>(from, len - 4));
            store(to, 0, head);
            store(to, len - 4, tail);
        } else if len > 0 {
            let (first, last) = (*from, *from.add(len - 1));
            *to.add(len / 2) = *from.add(len / 2);
            *to = first;
            *to.add(len - 1) = last;
        }
    }
}

/// # Safety
/// `from` is readable for the size of `T` at `offset`.
#[inline]
unsafe fn load<T: Copy>(from: *const u8, offset: usize) -> T {
    // SAFETY: RANGES, for the size of `T` at `offset`.
    unsafe { from.add(offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// `to` is writable for the size of `T` at `offset`.
#[inline]
unsafe fn store<T: Copy>(to: *mut u8, offset: usize, value: T) {
    // SAFETY: RANGES, for the size of `T` at `offset`.
    unsafe { to.add(offset).cast::<T>().write_unaligned(value) }
}

/// Length, in bytes, up to which the C library's copy is as fast as any other and cheaper to call.
const LIBRARY_MAX: usize = 1024;

/// Copies `len` bytes. More than `LIBRARY_MAX` bytes are copied by a loop of this crate.
///
/// From 2 to 8 KiB on, depending on the processor, the C library uses the string instruction. This instruction is ten
/// to forty times slower at some offsets of the two ranges within a page. Two large blocks of malloc, a page apart,
/// have such offsets. An emulated processor executes it byte by byte.
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; `copy_many` uses a loop that this processor has.
    unsafe {
        match len {
            0..=LIBRARY_MAX => std::ptr::copy_nonoverlapping(from, to, len),
            _ => copy_many(to, from, len),
        }
    }
}

/// # Safety
/// The contract is that of [`copy`].
#[inline(never)]
unsafe fn copy_many(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; `Loop::usual` is a loop that this processor has.
    unsafe {
        match cfg!(all(target_arch = "x86_64", not(miri))) {
            true => engine::Loop::usual().run(to, from, len),
            false => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// Store loop of a sender's copy into shared memory. The fastest one depends on the two processors: without a common
/// cache, a plain store first fetches each line from its reader.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyLoop {
    /// Vector loads and stores, with lines prefetched ahead of their stores.
    #[default]
    Vector,
    /// String instruction, which fetches no line that it overwrites.
    String,
    /// Non-temporal stores.
    Streaming,
}

impl CopyLoop {
    /// Returns whether this processor has the loop.
    pub fn is_available(self) -> bool {
        self == CopyLoop::Vector || self.engine().is_available()
    }

    fn engine(self) -> engine::Loop {
        match self {
            CopyLoop::Vector => engine::Loop::usual_owned(),
            CopyLoop::String => engine::Loop::String,
            CopyLoop::Streaming => engine::Loop::usual_streaming(),
        }
    }
}

/// Copies `len` bytes. A long copy uses the loop `by`.
/// # Safety
/// The ranges are those of [`copy`], and the loop [is available](CopyLoop::is_available).
#[inline]
pub unsafe fn copy_with(by: CopyLoop, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES, and `by` is a loop that this processor has, by this function's contract.
    unsafe {
        match len <= LIBRARY_MAX {
            true => copy(to, from, len),
            false => by.engine().run(to, from, len),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn copy__copies_just_that() {
        const MOST: usize = 3 * LIBRARY_MAX;
        let from: Vec<u8> = (0..MOST).map(|i| (i % 251) as u8 + 1).collect();
        for len in [0, 1, LIBRARY_MAX, LIBRARY_MAX + 1, 2 * LIBRARY_MAX, MOST - 1] {
            let mut to = vec![0u8; MOST + 1];
            // SAFETY: both buffers are longer than `len` bytes.
            unsafe { copy(to.as_mut_ptr().add(1), from.as_ptr(), len) };
            assert_eq!(to[1..=len], from[..len]);
            assert!(to[0] == 0 && to[len + 1..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn copy_small__every_length_copies_just_that() {
        let from: Vec<u8> = (1..=COPY_SMALL_MAX as u8).collect();
        for len in 0..=COPY_SMALL_MAX {
            let mut to = vec![0u8; COPY_SMALL_MAX + 2];
            // SAFETY: both buffers are longer than `len` bytes plus one.
            unsafe { copy_small(to.as_mut_ptr().add(1), from.as_ptr(), len) };
            assert_eq!(&to[1..=len], &from[..len]);
            assert!(to[0] == 0 && to[len + 1..].iter().all(|&b| b == 0), "length {len}");
        }
    }
}
