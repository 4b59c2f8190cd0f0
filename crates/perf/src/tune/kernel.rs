//! Constants that one process can measure by itself: what the kernel's single copy costs.
//!
//! Little at a time: whatever interferes (another process on this processor, a virtual machine that pauses) makes a trial
//! longer and passes, and the shortest counts.
#![allow(unsafe_code)]

use fastpath_base::clock;
use fastpath_protocol::selection::constants::{Constants, FIELDS};
use fastpath_transport::shm::cma;
use std::hint::black_box;

/// Bytes of the longer copy; both buffers stay in the caches.
const LONG: usize = 64 * 1024;
/// Bytes of the shorter one: as good as none.
const SHORT: usize = 64;
/// Rounds in all.
const ROUNDS: u32 = 16;
/// Trials of each kind in a round, which takes about 15 us.
const TRIALS: usize = 3;

/// Between two processes each byte adds so many times as much to its copy as on one's own memory: the
/// counters of the other's pages lie in another processor's cache. (Seen: 17 and 30 ns for each KiB.)
const BYTE_BETWEEN: f64 = 1.8;

/// A measurement under way.
#[derive(Debug, Clone)]
pub struct Calibration {
    from: Vec<u8>,
    to: Vec<u8>,
    rounds: u32,
    /// Shortest times so far, in nanoseconds: a call, a call with [`LONG`] bytes, their copy without a call.
    call: u64,
    whole: u64,
    copy: u64,
}

impl Default for Calibration {
    /// One that has not begun, and holds no memory.
    fn default() -> Self {
        Calibration {
            from: Vec::new(),
            to: Vec::new(),
            rounds: 0,
            call: u64::MAX,
            whole: u64::MAX,
            copy: u64::MAX,
        }
    }
}

impl Calibration {
    /// One round more.
    ///
    /// # Errors
    /// The kernel refuses the copy: its `errno`.
    pub fn go_on(&mut self) -> Result<(), i32> {
        if self.from.is_empty() {
            (self.from, self.to) = (vec![1; LONG], vec![2; LONG]);
        }
        self.rounds += 1;
        let pid = std::process::id() as i32;
        let address = self.from.as_ptr().expose_provenance() as u64;
        let (source, target) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let read = |len| {
            // SAFETY: `to` has `LONG` bytes, and nothing else uses it.
            unsafe { cma::read_process(pid, target, len, address) }
        };
        read(LONG)?;
        for _ in 0..TRIALS {
            self.call = self.call.min(time(|| _ = read(SHORT)));
            self.whole = self.whole.min(time(|| _ = read(LONG)));
            self.copy = self.copy.min(time(|| {
                let (source, target) = black_box((source, target));
                // SAFETY: both buffers have `LONG` bytes.
                unsafe { std::ptr::copy_nonoverlapping(source, target, LONG) }
            }));
        }
        Ok(())
    }

    /// Whether there have been enough rounds.
    pub fn is_over(&self) -> bool {
        self.rounds >= ROUNDS
    }

    /// `constants` with what was measured.
    pub fn apply(&self, constants: &Constants) -> Constants {
        let bytes = self
            .whole
            .saturating_sub(self.copy.saturating_add(self.call)) as f64;
        let mut measured = *constants;
        measured.kernel_call_ns = self.call as f64;
        measured.kernel_byte_ns = BYTE_BETWEEN * bytes / LONG as f64;
        // A machine beyond what can be believed is at its border.
        for field in FIELDS {
            let value = (field.get)(&measured).clamp(field.least, field.most);
            (field.set)(&mut measured, value);
        }
        measured
    }
}

fn time(body: impl FnOnce()) -> u64 {
    let start = clock::now_ns();
    body();
    clock::now_ns() - start
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn calibration__changes_what_concerns_the_kernel_alone() {
        let before = Constants {
            kernel_call_ns: 7e5,
            kernel_byte_ns: 77.0,
            ..Constants::default()
        };
        let mut calibration = Calibration::default();
        while !calibration.is_over() {
            if let Err(errno) = calibration.go_on() {
                assert!(errno > 0, "refused, with the kernel's reason");
                return;
            }
        }
        let after = calibration.apply(&before);
        assert!(after.kernel_call_ns != 7e5 && after.kernel_byte_ns != 77.0);
        assert_eq!(after.check(), Ok(()));
        let rest = Constants {
            kernel_call_ns: 7e5,
            kernel_byte_ns: 77.0,
            ..after
        };
        assert_eq!(rest, before);
    }

    #[test]
    fn apply__of_times_that_make_no_sense_stays_within_bounds() {
        for (call, whole, copy) in [(0, 0, 0), (10, 5, 100), (1 << 60, 1 << 62, 3)] {
            let calibration = Calibration {
                call,
                whole,
                copy,
                ..Calibration::default()
            };
            assert_eq!(calibration.apply(&Constants::default()).check(), Ok(()));
        }
    }
}
