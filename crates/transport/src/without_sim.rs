//! Replacement of the simulated network outside of tests: no process has an interface to it.

use crate::contract::Address;
use std::time::Duration;

/// Interface type without values.
pub enum SimIface {}

#[allow(missing_docs)] // like those of the simulated network
impl SimIface {
    pub fn has_left(&self, _: u32) -> bool {
        match *self {}
    }

    pub fn now_ns(&self) -> u64 {
        match *self {}
    }

    pub fn accept(&mut self, _: impl FnMut(u32)) {
        match *self {}
    }

    pub fn progress(&mut self) -> bool {
        match *self {}
    }

    pub fn send_wireup(&self, _: u32, _: u8, _: Address) {
        match *self {}
    }

    pub fn nap(&self) -> Option<Duration> {
        match *self {}
    }

    pub fn wireup_signals(&self) -> bool {
        match *self {}
    }

    pub fn receive_wireup(&mut self) -> Option<(u32, u8, Address)> {
        match *self {}
    }
}
