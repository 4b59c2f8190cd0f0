//! The main parts of the copy loops of x86-64.
//!
//! They are written as instructions: a compiler turns a loop of loads and stores back into a call
//! of the C library's copy, and the vectors of 64 bytes have no intrinsics in the oldest compiler
//! that this workspace supports.
//!
//! **RANGES.** As in `engine`: `from` is readable and `to` writable for `len` bytes, the two do not overlap, and the
//! processor has the loop.
#![allow(unsafe_code)]

use std::arch::asm;

use super::engine::{Loop, Prefetch, Width};
use crate::hint::{LINE, prefetch_for_write};

const PAGE: usize = 4096;

/// Bytes of one step of a vector loop.
const STEP: usize = 256;

/// So many bytes ahead lines are asked for; two, four and eight times as many give nothing more.
const AHEAD: usize = 2 * STEP;

/// Copies as many of `len` bytes as the loop takes in whole steps; says how many these are.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, they do not overlap, `to` begins a line,
/// and the processor has what the loop needs.
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
                // ORDERING: puts the streaming stores before the release store by which the
                // caller publishes them; its partner is that store's acquire load.
                asm!("sfence", options(nostack, preserves_flags));
            }
        }
    }
    main
}

/// Calls `copy` for the whole, or step by step with prefetches in between; nothing beyond the
/// `len` bytes is asked for.
///
/// # Safety
/// As [`run_main`]; `len` is a multiple of [`STEP`].
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

/// Asks for the lines of a step, to read them.
#[inline]
fn ask_to_read(at: *const u8) {
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        asm!(
            "prefetcht0 [{at}]", "prefetcht0 [{at} + 64]",
            "prefetcht0 [{at} + 128]", "prefetcht0 [{at} + 192]",
            at = in(reg) at, options(nostack, preserves_flags, readonly),
        );
    }
}

/// Asks for the lines of a step, to write them.
#[inline]
fn ask_to_write(at: *mut u8) {
    for offset in (0..STEP).step_by(LINE) {
        prefetch_for_write(at.wrapping_add(offset));
    }
}

/// Where the target lies less than this further in its page than the source, the string instruction
/// of AMD processors takes the two for overlapping and goes by single elements: 4 KiB in 1,600 to
/// 2,000 ns instead of 50 (Zen 3, the target 1 to 31 bytes further), 250 at 100 bytes.
const SEEMING_OVERLAP: usize = 128;

/// The string instruction; says how many bytes it took.
///
/// # Safety
/// As [`run_main`].
unsafe fn copy_string(to: *mut u8, from: *const u8, len: usize) -> usize {
    let further = (to as usize).wrapping_sub(from as usize) % PAGE;
    // SAFETY: RANGES; the direction flag is clear, as the ABI demands.
    unsafe {
        if further > 0 && further < SEEMING_OVERLAP {
            // Elements of 8 bytes then: 200 ns instead of 2,000.
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

/// A function that copies steps of [`STEP`] bytes by a load and a store of so many bytes, four
/// vectors at a time: `$each` says where four begin. `$after` ends the use of wide registers,
/// which slows down narrow instructions otherwise.
macro_rules! vector_loop {
    ($name:ident, $load:literal, $store:literal, $reg:literal, $part:literal, $each:literal,
        $after:literal) => {
        /// # Safety
        /// As [`run_main`]; `len` is a multiple of [`STEP`].
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
