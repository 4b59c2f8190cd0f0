//! Memory copies of the message path.
//!
//! **RANGES.** `from` is readable and `to` writable for `len` bytes, and the two do not overlap: each function here
//! asks this of its caller.
#![allow(unsafe_code)]

pub mod engine;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

/// Largest length [`copy_small`] accepts, in bytes.
pub const COPY_SMALL_MAX: usize = 48;

/// 16 bytes in one register, which no function saves for its caller.
#[cfg(target_arch = "x86_64")]
type Wide = core::arch::x86_64::__m128i;
/// 16 bytes.
#[cfg(not(target_arch = "x86_64"))]
type Wide = u128;

/// Copies 0 to 48 bytes by a few overlapping loads and stores, without a call.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, they do not overlap, and `len` is at most
/// [`COPY_SMALL_MAX`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Send and MPI_Recv
pub unsafe fn copy_small(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every access lies inside the first `len` bytes.
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

/// As [`copy_small`], for 0 to 7 bytes.
#[inline]
unsafe fn copy_tiny(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every access lies inside the first `len` bytes.
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

/// Up to so many bytes the C library's copy is as good as any, and shorter to come to.
const LIBRARY_MAX: usize = 1024;

/// Copies any number of bytes. Many go by a loop of our own: from 2 to 8 KiB on, depending on the processor, the C
/// library takes the string instruction, which is ten to forty times slower where the two lie unluckily in their pages
/// (as two large blocks of malloc and a page do), and which an emulated processor carries out byte by byte.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; the loop is one that this processor has.
    unsafe {
        match len {
            0..=LIBRARY_MAX => std::ptr::copy_nonoverlapping(from, to, len),
            _ => copy_many(to, from, len),
        }
    }
}

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_many(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; the loop is one that this processor has.
    unsafe {
        match cfg!(all(target_arch = "x86_64", not(miri))) {
            true => engine::Loop::usual().run(to, from, len),
            false => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// How a sender's copy into shared memory stores its lines. Which is fastest depends on the two processors: where they
/// share no cache, a plain store fetches each line from its reader first.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyLoop {
    /// Loads and stores of vectors, with the lines asked for ahead of their stores.
    #[default]
    Vector,
    /// The string instruction, which fetches no line that it overwrites.
    String,
    /// Stores past the caches.
    Streaming,
}

impl CopyLoop {
    /// Whether this processor has it.
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

/// As [`copy`], by a loop that the caller has chosen for many bytes.
///
/// # Safety
/// As [`copy`]; the loop [is available](CopyLoop::is_available).
#[inline]
pub unsafe fn copy_with(by: CopyLoop, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; the loop of vectors is one that this processor has.
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
            // SAFETY: both are longer than that.
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
            // SAFETY: both are longer than `len` plus one.
            unsafe { copy_small(to.as_mut_ptr().add(1), from.as_ptr(), len) };
            assert_eq!(&to[1..=len], &from[..len]);
            assert!(to[0] == 0 && to[len + 1..].iter().all(|&b| b == 0), "length {len}");
        }
    }
}
