#![allow(unsafe_code)]
//! The floating-point environment of the calling thread: flags, traps, rounding mode.
//!
//! The environment belongs to the program. If the program traps divisions by zero, such a division in the library would
//! end the program. If the program tests flags, it would attribute the library's flags to its own arithmetic. With
//! another rounding mode, a rank could select another algorithm than its peers.
//!
//! [`isolated`] runs the library's arithmetic in the default environment and then restores the program's environment.
//! Reductions work on the program's data, in the program's environment.

/// Runs `body` with all exceptions masked, rounding to nearest, and subnormal numbers kept. Then restores flags, traps
/// and modes. Costs about 20 ns, so no message path uses it.
#[inline]
pub fn isolated<R>(body: impl FnOnce() -> R) -> R {
    let saved = SavedRegisters::new();
    let result = call(body);
    drop(saved);
    result
}

/// Calls `body` out of line, so that the compiler cannot move arithmetic across the changes of the environment.
#[inline(never)]
fn call<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// The program's environment, restored on drop.
struct SavedRegisters(Registers);

impl SavedRegisters {
    fn new() -> SavedRegisters {
        let saved = SavedRegisters(read());
        write(DEFAULT);
        saved
    }
}

impl Drop for SavedRegisters {
    fn drop(&mut self) {
        write(self.0);
    }
}

/// MXCSR. The library does no arithmetic on the x87 stack.
#[cfg(target_arch = "x86_64")]
type Registers = u32;
/// Every exception masked, no flag set (Intel SDM, volume 1, section 10.2.3).
#[cfg(target_arch = "x86_64")]
const DEFAULT: Registers = 0x1f80;

#[cfg(target_arch = "x86_64")]
fn read() -> Registers {
    let mut value = 0;
    // SAFETY: the instruction stores MXCSR, 4 bytes, to the variable.
    unsafe {
        core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags));
    }
    value
}

#[cfg(target_arch = "x86_64")]
fn write(value: Registers) {
    // SAFETY: the value is the default one or was read before, so no reserved bit is set.
    unsafe {
        core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value,
            options(nostack, preserves_flags));
    }
}

/// FPCR and FPSR.
#[cfg(target_arch = "aarch64")]
type Registers = (u64, u64);
#[cfg(target_arch = "aarch64")]
const DEFAULT: Registers = (0, 0);

#[cfg(target_arch = "aarch64")]
fn read() -> Registers {
    let (control, status): Registers;
    // SAFETY: the instructions only read two registers of the calling thread.
    unsafe {
        core::arch::asm!("mrs {}, fpcr", "mrs {}, fpsr", out(reg) control, out(reg) status,
            options(nostack, nomem, preserves_flags));
    }
    (control, status)
}

#[cfg(target_arch = "aarch64")]
fn write((control, status): Registers) {
    // SAFETY: the values are the default ones or were read before, so no reserved bit is set.
    unsafe {
        core::arch::asm!("msr fpcr, {}", "msr fpsr, {}", in(reg) control, in(reg) status,
            options(nostack, preserves_flags));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Registers = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: Registers = ();

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read() -> Registers {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write(_: Registers) {}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Division by zero raised, overflow trapped, rounding up, subnormal numbers flushed.
    const ODD: u32 = 0x4 | (0x1f80 & !0x400) | 0x4000 | 0x8000;

    #[test]
    fn isolated__leaves_flags_traps_and_modes_as_they_were() {
        let before = read();
        write(ODD);
        let (inside, product) = isolated(|| {
            let inside = read();
            (inside, black_box(f64::MAX) * black_box(2.0) / black_box(0.0))
        });
        let after = read();
        write(before);
        assert_eq!((inside, after), (DEFAULT, ODD));
        assert_eq!(product, f64::INFINITY);
    }
}
