//! Single copies by the kernel, for the layer above: whether they may be used, whether they work, what they cost.
//!
//! What they cost is measured little at a time: whatever interferes (another process on this processor, a virtual
//! machine that pauses) makes a trial longer and passes, and the shortest counts.
#![allow(unsafe_code)]

use crate::interfaces::Interfaces;
use crate::setup::allowed::is_listed;
use crate::shm::cma::{self, explain_refusal};
use fastpath_base::config::Config;
use fastpath_base::{clock, wait};
use std::hint::black_box;

/// Why the kernel is not to copy between processes, if the user says so.
pub fn switched_off(config: &Config) -> Option<&'static str> {
    match config.is_disabled("cma") {
        true => Some("switched off by FASTPATH_DISABLE"),
        false if !is_listed(config, "cma") => Some("not listed in FASTPATH_TRANSPORTS"),
        false => None,
    }
}

impl Interfaces {
    /// Tries whether the kernel copies from the memory of another rank of this host, with the first of them; waits for
    /// it to start for `timeout_ns` nanoseconds at most. Nothing speaks against it where there is none.
    ///
    /// # Errors
    /// Why it does not, for people.
    pub fn probe_single_copy(&self, timeout_ns: u64) -> Result<(), String> {
        let Some(peer) = self.neighbour() else {
            return Ok(());
        };
        let start = clock::now_ns();
        loop {
            if let Some(tried) = cma::probe_peer(self.shared_domain(), peer) {
                return tried;
            }
            if clock::now_ns() - start > timeout_ns {
                return Err(format!("not known yet: rank {peer} has not started"));
            }
            wait::yield_now();
        }
    }
}

/// What single copies cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SingleCopyCost {
    /// Nanoseconds of a call, without its bytes.
    pub call_ns: f64,
    /// Nanoseconds that a call adds to the copy of a byte.
    pub byte_ns: f64,
}

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
    /// The kernel refuses the copy: why, for people.
    pub fn go_on(&mut self) -> Result<(), String> {
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
        read(LONG).map_err(explain_refusal)?;
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

    /// What was measured so far.
    pub fn cost(&self) -> SingleCopyCost {
        let bytes = self.whole.saturating_sub(self.copy.saturating_add(self.call)) as f64;
        SingleCopyCost { call_ns: self.call as f64, byte_ns: BYTE_BETWEEN * bytes / LONG as f64 }
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
    fn calibration__tells_three_times_and_ends() {
        let mut calibration = Calibration::default();
        while !calibration.is_over() {
            if let Err(why) = calibration.go_on() {
                assert!(why.contains("process_vm_readv"), "{why}");
                return;
            }
        }
        let cost = calibration.cost();
        assert!(cost.call_ns > 0.0 && cost.byte_ns >= 0.0, "{cost:?}");
    }

    #[test]
    fn cost__of_times_that_make_no_sense_is_a_number() {
        for (call, whole, copy) in [(0, 0, 0), (10, 5, 100), (1 << 60, 1 << 62, 3)] {
            let calibration = Calibration { call, whole, copy, ..Calibration::default() };
            let cost = calibration.cost();
            assert!(cost.call_ns >= 0.0 && cost.byte_ns >= 0.0, "{cost:?}");
        }
    }

    #[test]
    fn switched_off__says_by_which_variable() {
        let set = |name: &str, value: &str| {
            let pair = (name.into(), value.into());
            switched_off(&Config::from_pairs([pair]).unwrap())
        };
        let [disabled, unlisted] =
            [set("FASTPATH_DISABLE", "cma"), set("FASTPATH_TRANSPORTS", "shm")];
        assert!(disabled.unwrap().contains("FASTPATH_DISABLE"));
        assert!(unlisted.unwrap().contains("FASTPATH_TRANSPORTS"));
        assert_eq!(set("FASTPATH_TRANSPORTS", "shm,cma"), None);
    }
}
