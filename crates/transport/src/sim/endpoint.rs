//! Endpoint: connection setup and the transport contract.
#![allow(unsafe_code)]

use super::domain::Network;
use crate::contract::*;

/// Connection of one rank to another.
pub struct SimEndpoint {
    network: Network,
    me: u32,
    peer: u32,
}

impl SimEndpoint {
    pub(super) fn new(network: Network, me: u32, peer: u32) -> Self {
        SimEndpoint { network, me, peer }
    }

    /// Opens the direction to the peer and notifies the peer, if the network needs no wire-up.
    pub fn connect(&mut self) {
        let mut fabric = self.network.0.borrow_mut();
        if fabric.conditions.wireup || fabric.link(self.me, self.peer).send_open {
            return;
        }
        fabric.link(self.me, self.peer).send_open = true;
        fabric.ports[self.peer as usize].callers.push(self.me);
    }

    fn reaches_memory(&self) -> Result<(), RemoteError> {
        match self.network.0.borrow().conditions.get {
            true => Ok(()),
            false => Err(RemoteError::Unsupported),
        }
    }
}

impl Connection for SimEndpoint {
    fn wants_wireup(&self) -> bool {
        let mut fabric = self.network.0.borrow_mut();
        fabric.conditions.wireup && !fabric.link(self.me, self.peer).send_open
    }

    fn local_address(&self) -> Address {
        let number = self.network.0.borrow_mut().link(self.me, self.peer).number;
        Address::new(&number.to_le_bytes()).unwrap_or_default()
    }

    /// Stores the peer's address and accepts messages from it. Returns false for an invalid address.
    fn open(&mut self, address: &Address) -> bool {
        let Ok(number) = address.as_slice().try_into() else {
            return false;
        };
        let mut fabric = self.network.0.borrow_mut();
        let link = fabric.link(self.me, self.peer);
        link.peer_number = Some(u64::from_le_bytes(number));
        link.recv_open = true;
        true
    }

    fn open_receive(&mut self) {
        self.network.0.borrow_mut().link(self.me, self.peer).recv_open = true;
    }

    fn set_ready(&mut self) {
        self.network.0.borrow_mut().link(self.me, self.peer).send_open = true;
    }

    fn return_credits(&mut self) {
        self.network.return_credits(self.me, self.peer);
    }

    fn peer_has_left(&self) -> bool {
        self.network.0.borrow().ports[self.peer as usize].gone
    }

    /// Returns whether there is room. If it returns true, the next `messages` posts must succeed.
    fn has_room(&mut self, messages: u32, _: usize) -> bool {
        self.network.promise_room(self.me, self.peer, messages)
    }

    fn is_drained(&mut self) -> bool {
        let mut fabric = self.network.0.borrow_mut();
        let link = fabric.link(self.me, self.peer);
        link.queue.is_empty() && link.sender.in_flight() == 0
    }
}

impl Endpoint for SimEndpoint {
    fn capabilities(&self) -> Capabilities {
        let fabric = self.network.0.borrow();
        let conditions = &fabric.conditions;
        let copy = if conditions.get { usize::MAX } else { 0 };
        Capabilities {
            name: "sim",
            short: conditions.short,
            bcopy: conditions.bcopy,
            get_zcopy: copy,
            put_zcopy: copy,
            reliable: true,
            needs_wireup: conditions.wireup,
            directed: true,
        }
    }

    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        debug_assert!(len <= self.capabilities().short);
        self.network.post(self.me, self.peer, header, len, |to| {
            // SAFETY: `data` is readable for `len` bytes, by the contract, and `to` has room for them.
            unsafe { fastpath_base::copy::copy(to, data, len) }
        })
    }

    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        debug_assert!(len <= self.capabilities().bcopy);
        self.network.post(self.me, self.peer, header, len, pack)
    }

    fn wake(&mut self) -> Post {
        self.network.wake(self.me, self.peer)
    }

    fn look(&mut self) -> Option<Arrival<'_>> {
        let (header, data, len) = self.network.look(self.me, self.peer)?;
        Some(Arrival::new(header, data, len))
    }

    fn take(&mut self) {
        self.network.take(self.me, self.peer);
    }

    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        self.reaches_memory()?;
        // SAFETY: all ranks are in this process, and a pending send keeps its memory readable.
        unsafe { std::ptr::copy(from.addr as *const u8, to, len) };
        Ok(())
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        self.reaches_memory()?;
        // SAFETY: all ranks are in this process, and a pending receive keeps its memory writable.
        unsafe { std::ptr::copy(from, to.addr as *mut u8, len) };
        Ok(())
    }
}
