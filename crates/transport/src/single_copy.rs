//! Single copies by the kernel, for the upper layer: permission, test and cost.
//!
//! The cost is measured in short trials. Other processes lengthen some trials, so the shortest counts.
#![allow(unsafe_code)]

use crate::allowed::is_listed;
use crate::interfaces::Interfaces;
use crate::shm::cma::{self, explain_refusal};
use fastpath_base::config::Config;
use fastpath_base::{clock, wait};
use std::hint::black_box;

/// Reason why the user's variables exclude copies by the kernel; `None` if they do not.
pub fn switched_off(config: &Config) -> Option<&'static str> {
    match config.is_disabled("cma") {
        true => Some("switched off by FASTPATH_DISABLE"),
        false if !is_listed(config, "cma") => Some("not listed in FASTPATH_TRANSPORTS"),
        false => None,
    }
}

impl Interfaces {
    /// Tests a copy from the memory of another rank of this host. Waits up to `timeout_ns` nanoseconds for that rank to
    /// start. Succeeds also if no other rank is on this host.
    ///
    /// # Errors
    /// Message with the cause.
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

/// Cost of single copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SingleCopyCost {
    /// Time of a call without the copy of its bytes, in nanoseconds.
    pub call_ns: f64,
    /// Time that a call adds to the copy of a byte, in nanoseconds.
    pub byte_ns: f64,
}

/// Bytes of the long copy; both buffers stay in the caches.
const LONG: usize = 64 * 1024;
/// Bytes of the short copy, whose copying time is negligible.
const SHORT: usize = 64;
const ROUNDS: u32 = 16;
/// Trials of each kind in a round, which takes about 15 us.
const TRIALS: usize = 3;

/// Ratio of the time that a call adds per byte between two processes to the added time within one process. Measured
/// were 30 ns per KiB between two processes and 17 ns within one. Between processes the time is longer, because the
/// counters of the other process's pages are in another processor's cache.
const BYTE_BETWEEN: f64 = 1.8;

/// A measurement in progress.
#[derive(Debug, Clone)]
pub struct Calibration {
    from: Vec<u8>,
    to: Vec<u8>,
    rounds: u32,
    /// Shortest times so far, in nanoseconds. `call`: a call with [`SHORT`] bytes. `whole`: a call with [`LONG`] bytes.
    /// `copy`: a copy of [`LONG`] bytes without a call.
    call: u64,
    whole: u64,
    copy: u64,
}

impl Default for Calibration {
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
    /// Runs one round of the measurement.
    ///
    /// # Errors
    /// Reason why the kernel refuses the copy, for messages.
    pub fn go_on(&mut self) -> Result<(), String> {
        if self.from.is_empty() {
            (self.from, self.to) = (vec![1; LONG], vec![2; LONG]);
        }
        self.rounds += 1;
        let pid = std::process::id() as i32;
        let address = self.from.as_ptr().expose_provenance() as u64;
        let (source, target) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let read = |len| {
            // SAFETY: `to` has `LONG` bytes and no other user.
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

    /// Whether enough rounds have run.
    pub fn is_over(&self) -> bool {
        self.rounds >= ROUNDS
    }

    /// Cost measured so far.
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
