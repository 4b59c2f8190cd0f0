#![allow(unsafe_code)]
//! Client requests to callgrind, if this program runs under it: toggle collection, reset counts, dump counts. Outside
//! of valgrind a request does nothing (the "client request mechanism" of the valgrind manual, and its codes in
//! `valgrind.h` and `callgrind.h`).

use std::ffi::{CStr, CString};

/// First request code of callgrind.
const TOOL: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO_STATS: u64 = TOOL + 1;
const TOGGLE_COLLECT: u64 = TOOL + 2;
const DUMP_STATS_AT: u64 = TOOL + 3;

// Inlined because `fastpath bench instructions` would also count the instructions of a call between two requests.
#[inline(always)]
fn request(code: u64, argument: u64) -> u64 {
    let words = [code, argument, 0, 0, 0, 0];
    #[allow(unused_mut)]
    let mut answer = 0u64;
    // SAFETY: the rotations add up to whole turns, and the exchange is of a register with itself. A processor changes
    // nothing but its flags. Valgrind reads the six words and writes the answer.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") words.as_ptr(), inout("rdx") answer,
        );
    }
    // SAFETY: the rotations add up to whole turns, and the `orr` is of a register with itself, so a processor changes
    // nothing. Valgrind reads the six words and writes the answer.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3", "ror x12, x12, #13", "ror x12, x12, #51", "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") words.as_ptr(), inout("x3") answer,
        );
    }
    std::hint::black_box(words);
    answer
}

#[inline(always)] // `fastpath bench instructions` would count a call
fn toggle_collect() {
    request(TOGGLE_COLLECT, 0);
}

pub fn forget() {
    request(ZERO_STATS, 0);
}

fn dump(name: &CStr) {
    request(DUMP_STATS_AT, name.as_ptr() as u64);
}

/// Executes the operation once, and counts its instructions.
// Inlined because `fastpath bench instructions` would also count a call between the requests.
#[inline(always)]
pub fn collect<L>(operation: &mut impl FnMut(&mut L), link: &mut L) {
    toggle_collect();
    make(operation, link);
    toggle_collect();
}

/// Dumps the counts, and resets them.
pub fn write_counts(name: &str, bytes: u64) {
    let name = CString::new(format!("{name} {bytes}")).unwrap_or_default();
    dump(&name);
}

/// Separates the operation's basic blocks from the requests. Callgrind counts whole blocks, and omits the one that ends
/// with a request.
#[inline(never)]
fn make<L>(operation: &mut impl FnMut(&mut L), link: &mut L) {
    operation(link);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn requests__outside_valgrind__do_nothing() {
        assert_eq!(request(TOGGLE_COLLECT, 0), 0);
        forget();
        dump(c"unread");
    }
}
