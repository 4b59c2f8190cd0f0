//! Hints to the cache about lines that other processors have read or will read, and one hint to the compiler. Hints
//! change no content, and do nothing on processors without the instructions.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Prefetches the line at `at` for writing, so that other caches drop it before the store. Any address is allowed.
#[inline]
pub fn prefetch_for_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHW is a hint, which never faults. Processors without it ignore its encoding.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the prefetch is a hint, which never faults.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags,
            readonly));
    }
    let _ = at;
}

/// Moves the lines of `len` bytes from `at` to the shared cache, for the processor that reads them next (CLDEMOTE).
/// Processors without the instruction execute its encoding as a no-operation.
#[inline]
pub fn demote(at: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..len).step_by(LINE) {
        // SAFETY: CLDEMOTE is a hint, which never faults. Its address is in RDI.
        unsafe {
            std::arch::asm!(".byte 0x0f, 0x1c, 0x07", in("rdi") at.wrapping_add(offset),
                options(nostack, preserves_flags));
        }
    }
    let _ = (at, len);
}

/// Returns `value`, hidden from the optimizer. Unlike `core::hint::black_box`, the value stays in a register.
#[inline]
pub fn hide(mut value: i32) -> i32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the assembly is a comment, without an instruction.
    unsafe {
        std::arch::asm!("/* {0:e} */", inout(reg) value, options(nostack, nomem, preserves_flags,
            pure));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        value = std::hint::black_box(value);
    }
    value
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hide__keeps_the_value() {
        assert_eq!([0, 1, -1, i32::MIN].map(hide), [0, 1, -1, i32::MIN]);
    }

    #[test]
    fn hints__change_nothing_and_take_any_address() {
        let bytes: Vec<u8> = (0..200).collect();
        demote(bytes.as_ptr(), bytes.len());
        prefetch_for_write(bytes.as_ptr());
        for at in [std::ptr::null(), std::ptr::without_provenance(usize::MAX)] {
            demote(at, 1);
            prefetch_for_write(at);
        }
        assert!(bytes.iter().copied().eq(0..200));
    }
}
