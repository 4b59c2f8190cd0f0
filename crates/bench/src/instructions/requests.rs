#![allow(unsafe_code)]
//! What a program asks callgrind, which watches it: to collect or not, to forget, to write what it
//! has counted. Outside of valgrind a request does nothing (the "client request mechanism" of the
//! valgrind manual, and its codes in `valgrind.h` and `callgrind.h`).

/// The requests of callgrind begin here.
const TOOL: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO_STATS: u64 = TOOL + 1;
const TOGGLE_COLLECT: u64 = TOOL + 2;
const DUMP_STATS_AT: u64 = TOOL + 3;

/// Makes a request; 0 if valgrind is not there.
// `fastpath bench instructions` counts what stands between two; a call would be counted with it.
#[inline(always)]
fn request(code: u64, argument: u64) -> u64 {
    let words = [code, argument, 0, 0, 0, 0];
    #[allow(unused_mut)]
    let mut answer = 0u64;
    // SAFETY: the rotations add up to whole turns and the exchange is of a register with itself, so
    // that a processor changes nothing but its flags; valgrind reads the six words and writes the answer.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") words.as_ptr(), inout("rdx") answer,
        );
    }
    // SAFETY: as on x86: whole turns, a register with itself, six words to read and an answer to write.
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

/// Begins to collect, or ends it.
#[inline(always)] // `fastpath bench instructions`, as above
pub fn toggle_collect() {
    request(TOGGLE_COLLECT, 0);
}

/// Forgets what was collected.
pub fn forget() {
    request(ZERO_STATS, 0);
}

/// Writes what was collected, under this name, and forgets it.
pub fn dump(name: &std::ffi::CStr) {
    request(DUMP_STATS_AT, name.as_ptr() as u64);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn requests__do_nothing_where_nobody_hears_them() {
        assert_eq!(request(TOGGLE_COLLECT, 0), 0);
        forget();
        dump(c"nobody");
    }
}
