//! Loops that copy many bytes, each written in assembly.
//!
//! The fastest loop depends on the processor, and on the caches that hold and need the lines. Callers therefore name
//! the loop, while the C library chooses by fixed thresholds. `fastpath bench copy` compares all loops.
//!
//! **RANGES.** [`Loop::run`] requires that `from` is readable and `to` writable for `len` bytes. The two do not
//! overlap, and the processor has the loop. All parts of a copy lie inside these ranges.
#![allow(unsafe_code)]

pub use super::loops::{Loop, Prefetch, Width};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86;
use super::{COPY_SMALL_MAX, copy_small, load, store};
use crate::hint::LINE;

/// Longest copy, in bytes, that every loop leaves to [`copy_short`].
const SHORT: usize = 256;

/// A cache line, as vectors that every processor has.
type Line = [u128; 4];
const _: () = assert!(size_of::<Line>() == LINE);

const WIDTHS: [Width; 3] = [Width::B16, Width::B32, Width::B64];
const PREFETCHES: [Prefetch; 3] = [Prefetch::Nothing, Prefetch::Source, Prefetch::Target];

impl Loop {
    /// Returns every loop that this processor can run.
    pub fn all_available() -> Vec<Loop> {
        let vectors = WIDTHS
            .iter()
            .flat_map(|&width| PREFETCHES.map(|prefetch| Loop::Vector { width, prefetch }));
        let streams = WIDTHS.iter().flat_map(|&width| {
            let prefetches = [Prefetch::Nothing, Prefetch::Source];
            prefetches.map(|prefetch| Loop::Streaming { width, prefetch })
        });
        let all = vectors.chain(streams).chain([Loop::String]);
        all.filter(|l| l.is_available()).collect()
    }

    /// Returns the default loop: 32-byte vectors if available. Wider vectors lower the clock of some processors.
    #[inline]
    pub fn usual() -> Loop {
        Loop::Vector { width: Loop::usual_width(), prefetch: Prefetch::Nothing }
    }

    /// Returns the loop for lines that another processor may own. That loop prefetches the lines ahead of the stores.
    /// It is the default loop if the architecture is not x86-64.
    pub fn usual_owned() -> Loop {
        let prefetch = match cfg!(all(target_arch = "x86_64", not(miri))) {
            true => Prefetch::Target,
            false => Prefetch::Nothing,
        };
        Loop::Vector { width: Loop::usual_width(), prefetch }
    }

    /// Returns the default loop with non-temporal stores.
    pub fn usual_streaming() -> Loop {
        Loop::Streaming { width: Loop::usual_width(), prefetch: Prefetch::Nothing }
    }

    #[inline]
    fn usual_width() -> Width {
        match has_width(Width::B32) {
            true => Width::B32,
            false => Width::B16,
        }
    }

    /// Returns whether this processor can run the loop.
    pub fn is_available(self) -> bool {
        if cfg!(any(not(target_arch = "x86_64"), miri)) {
            return self == Loop::Vector { width: Width::B16, prefetch: Prefetch::Nothing };
        }
        match self {
            Loop::Vector { width, .. } => has_width(width),
            Loop::Streaming { width, prefetch } => has_width(width) && prefetch != Prefetch::Target,
            Loop::String => true,
        }
    }

    /// Name of the loop in tables.
    pub fn name(self) -> &'static str {
        use Prefetch::{Nothing, Source, Target};
        match self {
            Loop::Vector { width, prefetch } => match (width, prefetch) {
                (Width::B16, Nothing) => "vector 16",
                (Width::B16, Source) => "vector 16, ahead",
                (Width::B16, Target) => "vector 16, owned",
                (Width::B32, Nothing) => "vector 32",
                (Width::B32, Source) => "vector 32, ahead",
                (Width::B32, Target) => "vector 32, owned",
                (Width::B64, Nothing) => "vector 64",
                (Width::B64, Source) => "vector 64, ahead",
                (Width::B64, Target) => "vector 64, owned",
            },
            Loop::Streaming { width, prefetch } => match (width, prefetch) {
                (Width::B16, Source) => "streaming 16, ahead",
                (Width::B16, _) => "streaming 16",
                (Width::B32, Source) => "streaming 32, ahead",
                (Width::B32, _) => "streaming 32",
                (Width::B64, Source) => "streaming 64, ahead",
                (Width::B64, _) => "streaming 64",
            },
            Loop::String => "string",
        }
    }

    /// Copies `len` bytes.
    ///
    /// A later release store of the same thread publishes the bytes. Streaming loops therefore end with SFENCE: on x86
    /// a release store is a plain store and does not order streaming stores.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes, they do not overlap, and the loop
    /// [is available](Loop::is_available).
    pub unsafe fn run(self, to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: RANGES; the parts follow each other up to `len`.
        unsafe {
            if len <= SHORT {
                return copy_short(to, from, len);
            }
            // The main part begins at a line of the target. `copy_line` copies the bytes before it.
            let head = to.align_offset(LINE);
            copy_line(to, from);
            let main = self.run_main(to.add(head), from.add(head), len - head);
            copy_rest(to, from, head + main, len);
        }
    }

    /// Copies as many whole steps of the loop as fit `len` bytes. Returns the number of bytes copied.
    /// # Safety
    /// The contract is that of [`Loop::run`], and `to` begins a line.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn run_main(self, to: *mut u8, from: *const u8, len: usize) -> usize {
        // SAFETY: RANGES.
        unsafe { x86::run_main(self, to, from, len) }
    }

    /// Copies whole lines with the vectors that every processor has. Returns their number of bytes.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    unsafe fn run_main(self, to: *mut u8, from: *const u8, len: usize) -> usize {
        // SAFETY: RANGES.
        unsafe { copy_lines(to, from, len) }
    }
}

/// Returns whether the processor has vectors of this width. The standard library caches the answer.
#[cfg(target_arch = "x86_64")]
fn has_width(width: Width) -> bool {
    match width {
        Width::B16 => true,
        Width::B32 => std::arch::is_x86_feature_detected!("avx"),
        Width::B64 => std::arch::is_x86_feature_detected!("avx512f"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has_width(width: Width) -> bool {
    width == Width::B16
}

/// Copies up to [`SHORT`] bytes.
///
/// # Safety
/// The contract is that of [`Loop::run`].
unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES. 49 to 63 bytes are copied as 48 from the front and 16 from the end.
    unsafe {
        if len >= LINE {
            copy_line(to, from);
            copy_rest(to, from, LINE, len);
        } else if len <= COPY_SMALL_MAX {
            copy_small(to, from, len);
        } else {
            copy_small(to, from, COPY_SMALL_MAX);
            store(to, len - 16, load::<u128>(from, len - 16));
        }
    }
}

/// Copies the bytes after the first `done`. The copied last line may begin within the first `done` bytes.
/// # Safety
/// The contract is that of [`Loop::run`], and `len` is at least a line.
unsafe fn copy_rest(to: *mut u8, from: *const u8, done: usize, len: usize) {
    // SAFETY: RANGES; `done` is at most `len`.
    unsafe {
        let lines = copy_lines(to.add(done), from.add(done), len - done);
        if done + lines < len {
            copy_line(to.add(len - LINE), from.add(len - LINE));
        }
    }
}

/// Copies the whole lines in `len` bytes. Returns their number of bytes.
///
/// # Safety
/// The contract is that of [`Loop::run`].
unsafe fn copy_lines(to: *mut u8, from: *const u8, len: usize) -> usize {
    let mut done = 0;
    while done + LINE <= len {
        // SAFETY: this line ends within the `len` bytes of the contract.
        unsafe { copy_line(to.add(done), from.add(done)) };
        done += LINE;
    }
    done
}

/// # Safety
/// `from` is readable and `to` writable for a line's worth of bytes.
#[inline]
unsafe fn copy_line(to: *mut u8, from: *const u8) {
    // SAFETY: RANGES.
    unsafe { store(to, 0, load::<Line>(from, 0)) }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
