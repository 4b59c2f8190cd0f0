//! The copy engine: loops that copy many bytes, each written down as the instructions it is made of.
//!
//! Which loop is fastest depends on the processor, on who had the lines last and on who needs them
//! next, so that callers name the loop. The C library's copy has one choice for everybody, by
//! thresholds of its own; `fastpath bench copy` compares all loops on a machine.
//!
//! **RANGES.** `from` is readable and `to` writable for `len` bytes, the two do not overlap, and the loop is one that
//! this processor has: [`Loop::run`] asks this of its caller, and the parts that it is cut into lie inside.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86;
use super::{COPY_SMALL_MAX, copy_small, load, store};
use crate::hint::LINE;

/// Up to so many bytes are copied line by line in every loop.
const SHORT: usize = 256;

/// A line's worth, as vectors that every processor has.
type Line = [u128; 4];
const _: () = assert!(size_of::<Line>() == LINE);

/// Bytes that a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 16: every processor has them.
    B16,
    /// 32: AVX.
    B32,
    /// 64: AVX-512.
    B64,
}

/// Which lines are asked for ahead of their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefetch {
    /// None: the processor's own prefetchers do what they do.
    Nothing,
    /// Those that are read, by PREFETCHT0.
    Source,
    /// Those that are written, by PREFETCHW, so that they are owned when the store comes.
    Target,
}

/// A loop that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loop {
    /// Loads and stores of vectors.
    Vector {
        /// Bytes of each.
        width: Width,
        /// What is asked for ahead.
        prefetch: Prefetch,
    },
    /// As `Vector`, with stores that go past the caches and fetch no line (non-temporal).
    Streaming {
        /// Bytes of each.
        width: Width,
        /// What is asked for ahead; the target never is.
        prefetch: Prefetch,
    },
    /// The string instruction (REP MOVSB).
    String,
}

const WIDTHS: [Width; 3] = [Width::B16, Width::B32, Width::B64];
const PREFETCHES: [Prefetch; 3] = [Prefetch::Nothing, Prefetch::Source, Prefetch::Target];

impl Loop {
    /// Every loop that this processor can run.
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

    /// The plain loop that serves where nothing is known: of 32 bytes where the processor has them. Wider ones lower
    /// the clock of some processors.
    #[inline]
    pub fn usual() -> Loop {
        Loop::Vector { width: Loop::usual_width(), prefetch: Prefetch::Nothing }
    }

    /// The same for lines that another processor may have: they are asked for ahead of the stores. Where this
    /// processor cannot ask, the plain loop.
    pub fn usual_owned() -> Loop {
        let prefetch = match cfg!(all(target_arch = "x86_64", not(miri))) {
            true => Prefetch::Target,
            false => Prefetch::Nothing,
        };
        Loop::Vector { width: Loop::usual_width(), prefetch }
    }

    /// The same with stores past the caches.
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

    /// Whether this processor can run it.
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

    /// Its name in tables.
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

    /// Copies any number of bytes.
    ///
    /// What it stored is published by a later release store of the same thread: the streaming
    /// loops end with the fence (SFENCE) that a release store, which fences nothing by itself on
    /// x86, takes for granted.
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
            // The main part begins at a line of the target. The bytes before it are part of the
            // line's worth that is copied here.
            let head = to.align_offset(LINE);
            copy_line(to, from);
            let main = self.run_main(to.add(head), from.add(head), len - head);
            copy_rest(to, from, head + main, len);
        }
    }

    /// Copies as many of `len` bytes as the loop takes in whole steps; says how many these are.
    ///
    /// # Safety
    /// As [`Loop::run`]; `to` begins a line.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn run_main(self, to: *mut u8, from: *const u8, len: usize) -> usize {
        // SAFETY: RANGES.
        unsafe { x86::run_main(self, to, from, len) }
    }

    /// As above, with what every processor has.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    unsafe fn run_main(self, to: *mut u8, from: *const u8, len: usize) -> usize {
        // SAFETY: RANGES.
        unsafe { copy_lines(to, from, len) }
    }
}

/// Whether the processor has vectors of this width. The answer is remembered by the standard
/// library.
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
/// As [`Loop::run`].
unsafe fn copy_short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: RANGES; of 49 to 63 bytes, 48 from the front and 16 from the end.
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

/// Copies what is left after the first `done` bytes; the last line may begin among those.
///
/// # Safety
/// As [`Loop::run`], and `len` is a line at least.
unsafe fn copy_rest(to: *mut u8, from: *const u8, done: usize, len: usize) {
    // SAFETY: RANGES; `done` is at most `len`.
    unsafe {
        let lines = copy_lines(to.add(done), from.add(done), len - done);
        if done + lines < len {
            copy_line(to.add(len - LINE), from.add(len - LINE));
        }
    }
}

/// Copies the whole lines' worth in `len` bytes; says how many bytes these are.
///
/// # Safety
/// As [`Loop::run`].
unsafe fn copy_lines(to: *mut u8, from: *const u8, len: usize) -> usize {
    let mut done = 0;
    while done + LINE <= len {
        // SAFETY: inside the caller's `len` bytes.
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
