//! Main parts of the copy loops on x86-64.
//!
//! The loops are written in assembly, because a compiler replaces a loop of loads and stores by a call of the C
//! library's copy. Also, the oldest supported compiler has no intrinsics for 64-byte vectors.
//!
//! **RANGES.** Every function here requires that `from` is readable and `to` writable for `len` bytes. The two do not
//! overlap, and the processor has the loop.
#![allow(unsafe_code)]

use std::arch::asm;

use super::loops::{Loop, Prefetch, Width};
use crate::hint::{LINE, prefetch_for_write};

const PAGE: usize = 4096;

const STEP: usize = 256;

/// Prefetch distance in bytes. Distances of two, four and eight times this were not faster.
const AHEAD: usize = 2 * STEP;

/// Copies as many whole steps of the loop as fit `len` bytes. Returns the number of bytes copied.
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap. `to` begins a line. The processor has
/// the instructions of the loop.
pub(super) unsafe fn run_main(which: Loop, to: *mut u8, from: *const u8, len: usize) -> usize {
    let main = len - len % STEP;
    // SAFETY: RANGES.
    unsafe {
        match which {
            Loop::String => return copy_string(to, from, len),
            Loop::Vector { width, prefetch } => {
                let copy = |to, from, len| match width {
                    Width::B16 => copy_vector16(to, from, len),
                    Width::B32 => copy_vector32(to, from, len),
                    Width::B64 => copy_vector64(to, from, len),
                };
                copy_ahead(to, from, main, prefetch, copy);
            }
            Loop::Streaming { width, prefetch } => {
                let copy = |to, from, len| match width {
                    Width::B16 => stream_vector16(to, from, len),
                    Width::B32 => stream_vector32(to, from, len),
                    Width::B64 => stream_vector64(to, from, len),
                };
                copy_ahead(to, from, main, prefetch, copy);
                // ORDERING: orders the streaming stores before the release store by which the caller publishes them.
                // Partner is the acquire load of that word.
                asm!("sfence", options(nostack, preserves_flags));
            }
        }
    }
    main
}

/// Calls `copy` for all bytes, or step by step with prefetches in between. No prefetch goes beyond `len` bytes.
/// # Safety
/// The contract is that of [`run_main`], and `len` is a multiple of [`STEP`].
#[inline]
unsafe fn copy_ahead(
    to: *mut u8, from: *const u8, len: usize, prefetch: Prefetch,
    copy: impl Fn(*mut u8, *const u8, usize),
) {
    if prefetch == Prefetch::Nothing {
        return copy(to, from, len);
    }
    let ask = |at: usize| match prefetch {
        Prefetch::Source => ask_to_read(from.wrapping_add(at)),
        _ => ask_to_write(to.wrapping_add(at)),
    };
    (0..AHEAD.min(len)).step_by(STEP).for_each(ask);
    for done in (0..len).step_by(STEP) {
        if done + AHEAD < len {
            ask(done + AHEAD);
        }
        copy(to.wrapping_add(done), from.wrapping_add(done), STEP);
    }
}

#[inline]
fn ask_to_read(at: *const u8) {
    // SAFETY: a prefetch only affects the cache, and any address is allowed.
    unsafe {
        asm!(
            "prefetcht0 [{at}]", "prefetcht0 [{at} + 64]",
            "prefetcht0 [{at} + 128]", "prefetcht0 [{at} + 192]",
            at = in(reg) at, options(nostack, preserves_flags, readonly),
        );
    }
}

#[inline]
fn ask_to_write(at: *mut u8) {
    for offset in (0..STEP).step_by(LINE) {
        prefetch_for_write(at.wrapping_add(offset));
    }
}

/// Distance in bytes, within a page, below which the string instruction of AMD processors treats the ranges as
/// overlapping. The instruction then moves single elements. On Zen 3, 4 KiB take 50 ns at other distances. They take
/// 1,600 to 2,000 ns if the target is 1 to 31 bytes after the source, and 250 ns if it is 100 bytes after.
const SEEMING_OVERLAP: usize = 128;

/// Copies by the string instruction. Returns the number of bytes copied.
///
/// # Safety
/// The contract is that of [`run_main`].
unsafe fn copy_string(to: *mut u8, from: *const u8, len: usize) -> usize {
    let further = (to as usize).wrapping_sub(from as usize) % PAGE;
    // SAFETY: RANGES; the ABI guarantees a clear direction flag.
    unsafe {
        if further > 0 && further < SEEMING_OVERLAP {
            // Move elements of 8 bytes: 4 KiB then take 200 ns instead of 2,000.
            asm!(
                "rep movsq",
                inout("rcx") len / 8 => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
            return len - len % 8;
        }
        asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    len
}

/// Defines a function that copies steps of [`STEP`] bytes by vector loads and stores, four vectors at a time. `$each`
/// lists the offsets of the groups of four. `$after` ends the use of wide registers, which would slow down narrow
/// instructions.
macro_rules! vector_loop {
    ($name:ident, $load:literal, $store:literal, $reg:literal, $part:literal, $each:literal,
        $after:literal) => {
        /// # Safety
        /// The contract is that of [`run_main`], and `len` is a multiple of [`STEP`].
        #[inline]
        unsafe fn $name(to: *mut u8, from: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            // SAFETY: RANGES.
            unsafe {
                asm!(
                    "2:",
                    concat!(".irp at, ", $each),
                    concat!($load, " ", $reg, "0, [{from} + \\at]"),
                    concat!($load, " ", $reg, "1, [{from} + \\at + ", $part, "]"),
                    concat!($load, " ", $reg, "2, [{from} + \\at + 2 * ", $part, "]"),
                    concat!($load, " ", $reg, "3, [{from} + \\at + 3 * ", $part, "]"),
                    concat!($store, " [{to} + \\at], ", $reg, "0"),
                    concat!($store, " [{to} + \\at + ", $part, "], ", $reg, "1"),
                    concat!($store, " [{to} + \\at + 2 * ", $part, "], ", $reg, "2"),
                    concat!($store, " [{to} + \\at + 3 * ", $part, "], ", $reg, "3"),
                    ".endr",
                    "add {from}, 256",
                    "add {to}, 256",
                    "sub {len}, 256",
                    "jnz 2b",
                    $after,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    len = inout(reg) len => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

vector_loop!(copy_vector16, "movdqu", "movdqa", "xmm", "16", "0, 64, 128, 192", "");
vector_loop!(copy_vector32, "vmovdqu", "vmovdqa", "ymm", "32", "0, 128", "vzeroupper");
vector_loop!(copy_vector64, "vmovdqu64", "vmovdqa64", "zmm", "64", "0", "vzeroupper");
vector_loop!(stream_vector16, "movdqu", "movntdq", "xmm", "16", "0, 64, 128, 192", "");
vector_loop!(stream_vector32, "vmovdqu", "vmovntdq", "ymm", "32", "0, 128", "vzeroupper");
vector_loop!(stream_vector64, "vmovdqu64", "vmovntdq", "zmm", "64", "0", "vzeroupper");
