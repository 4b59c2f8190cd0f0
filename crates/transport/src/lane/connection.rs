//! Cold half of the contract, forwarded to a lane's endpoint.
//!
//! **BYTES.** Registered memory stays mapped until it is deregistered.
#![allow(unsafe_code)]

use super::Lane;
use crate::contract::{Address, Connection, Remote};

impl Connection for Lane {
    fn wants_wireup(&self) -> bool {
        ask!(self, endpoint => endpoint.wants_wireup(), or false)
    }

    fn local_address(&self) -> Address {
        ask!(self, endpoint => endpoint.local_address(), or Address::default())
    }

    fn open(&mut self, address: &Address) -> bool {
        ask!(self, endpoint => endpoint.open(address), or false)
    }

    fn open_receive(&mut self) {
        ask!(self, endpoint => endpoint.open_receive(), or ())
    }

    fn set_ready(&mut self) {
        ask!(self, endpoint => endpoint.set_ready(), or ())
    }

    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        ask!(self, endpoint => endpoint.has_room(messages, bytes), or false)
    }

    fn await_room(&mut self) {
        ask!(self, endpoint => endpoint.await_room(), or ())
    }

    #[inline]
    fn is_resting(&self) -> bool {
        ask!(self, endpoint => endpoint.is_resting(), or false)
    }

    fn retire(&mut self) -> bool {
        ask!(self, endpoint => endpoint.retire(), or false)
    }

    #[inline]
    fn return_credits(&mut self) {
        match self {
            Lane::Upgrade(endpoint) => {
                endpoint.return_credits();
                self.settle_upgrade();
            }
            lane => ask!(lane, endpoint => endpoint.return_credits(), or ()),
        }
    }

    #[inline]
    fn peer_has_left(&self) -> bool {
        ask!(self, endpoint => endpoint.peer_has_left(), or false)
    }

    fn is_drained(&mut self) -> bool {
        ask!(self, endpoint => endpoint.is_drained(), or true)
    }

    fn may_leave(&mut self) -> bool {
        ask!(self, endpoint => endpoint.may_leave(), or true)
    }

    #[inline]
    fn wants_exposure(&self) -> bool {
        ask!(self, endpoint => endpoint.wants_exposure(), or false)
    }

    unsafe fn register(&mut self, address: *mut u8, len: usize) -> Option<Remote> {
        // SAFETY: BYTES: this function's contract is that of the endpoint.
        ask!(self, endpoint => unsafe { endpoint.register(address, len) }, or None)
    }

    fn deregister(&mut self, key: u64) {
        ask!(self, endpoint => endpoint.deregister(key), or ())
    }

    fn describe_failure(&self, peer: u32) -> Option<String> {
        ask!(self, endpoint => endpoint.describe_failure(peer), or None)
    }

    fn upgrade_address(&self) -> Address {
        ask!(self, endpoint => endpoint.upgrade_address(), or Address::default())
    }

    fn open_upgrade(&mut self, address: &Address) -> bool {
        ask!(self, endpoint => endpoint.open_upgrade(address), or false)
    }

    fn finish_upgrade(&mut self) {
        ask!(self, endpoint => endpoint.finish_upgrade(), or ())
    }

    fn give_up_upgrade(&mut self) {
        ask!(self, endpoint => endpoint.give_up_upgrade(), or ())
    }

    fn knows_single_copy(&self) -> bool {
        ask!(self, endpoint => endpoint.knows_single_copy(), or false)
    }

    fn open_cooperative(&mut self) -> Option<u32> {
        ask!(self, endpoint => endpoint.open_cooperative(), or None)
    }

    fn close_cooperative(&mut self, index: u32) {
        ask!(self, endpoint => endpoint.close_cooperative(index), or ())
    }

    fn claim_cooperative(&mut self, index: u32, sender: bool) -> u32 {
        ask!(self, endpoint => endpoint.claim_cooperative(index, sender), or u32::MAX)
    }
}
