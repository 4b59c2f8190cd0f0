//! Endpoint: connection setup and the transport contract.
#![allow(unsafe_code)]

use super::super::shared::SharedCore;
use super::super::stage::Stage;
use super::arrivals::WORTH;
use super::core::Core;
use super::link::PeerAddress;
use super::wire::{HEAD, HEADER, LARGEST, LinkAddress, SHORT_LEAST, WINDOW_MOST, packets};
use crate::contract::*;
use crate::reliable::{Receiver, Sender};
use crate::verbs::{Failure, VerbsError};
use fastpath_base::sync::AtomicU32;

/// Connection to one peer.
pub struct UdEndpoint {
    core: SharedCore<Core>,
    index: usize,
}

impl Drop for UdEndpoint {
    fn drop(&mut self) {
        self.core.borrow_mut().remove_link(self.index);
    }
}

impl UdEndpoint {
    pub(super) fn new(core: SharedCore<Core>, index: usize) -> Self {
        UdEndpoint { core, index }
    }

    #[inline]
    fn core(&mut self) -> (&mut Core, usize) {
        // SAFETY: ONE CALL AT A TIME: each caller drops this reference before it calls `pack`, and calls `core` again
        // after it.
        (unsafe { self.core.core() }, self.index)
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> (&std::cell::RefCell<Core>, usize) {
        (&self.core, self.index)
    }

    /// Sets the peer's counter of empty polls. If it grows without acknowledgements, packets do not reach the peer.
    pub fn watch_polls(&mut self, polls: &'static AtomicU32) {
        self.core.borrow_mut().link(self.index).polls = Some(polls);
    }

    /// Cause of the connection's failure, if it has failed.
    pub fn failure(&self) -> Option<Failure> {
        let stage = self.core.borrow_mut().link(self.index).stage;
        stage.failure()
    }

    /// Whether the next message has arrived.
    pub fn has_message(&self) -> bool {
        self.core.borrow_mut().link(self.index).has_message()
    }

    /// Sends the final packet of this direction; no message may be sent after it.
    pub fn send_last(&mut self) -> Post {
        self.core.borrow_mut().send_last(self.index)
    }

    /// Takes the peer's final packet if all messages before it have been taken; returns whether it took the packet.
    pub fn take_last(&mut self) -> bool {
        self.core.borrow_mut().take_last(self.index)
    }

    /// Whether [`UdEndpoint::take_last`] would return true.
    pub fn has_last(&self) -> bool {
        self.core.borrow_mut().link(self.index).has_last()
    }

    /// Whether everything sent has arrived at the peer, taken or not.
    pub fn has_arrived(&mut self) -> bool {
        self.core.borrow_mut().link(self.index).sender.is_held()
    }
}

impl Core {
    fn open_link(&mut self, index: usize, peer: &LinkAddress) -> Result<(), VerbsError> {
        let (handle, chunk) = self.ways.find(&self.port, &peer.port)?;
        let own = self.settings.window;
        let retry = self.settings.retry;
        let link = self.link(index);
        if link.stage != Stage::Made {
            return Err(VerbsError::Value("opened a second time".to_owned()));
        }
        // Both sides compute the same window.
        let window = own.min(peer.window).max(packets(LARGEST, chunk));
        link.chunk = chunk;
        link.window = window;
        link.sender = Sender::new(crate::reliable::Settings { window, ..retry }, peer.token);
        link.receiver = Receiver::new(window, link.token);
        link.far = Some(PeerAddress {
            qpn: peer.qpn,
            qkey: peer.qkey,
            link: peer.link,
            token: peer.token,
            handle,
        });
        link.stage = Stage::Open;
        Ok(())
    }
}

impl Connection for UdEndpoint {
    fn wants_wireup(&self) -> bool {
        let stage = self.core.borrow_mut().link(self.index).stage;
        stage.wants_wireup()
    }

    fn local_address(&self) -> Address {
        let core = &mut *self.core.borrow_mut();
        let address = LinkAddress {
            qpn: core.pair.qpn(),
            qkey: core.qkey,
            link: self.index as u32,
            token: core.link(self.index).token,
            window: core.settings.window.clamp(1, WINDOW_MOST),
            port: core.port.local.address(),
        };
        address.encode()
    }

    /// Connects to the peer at `address`; returns false if that fails ([`super::UdIface::last_error`]).
    fn open(&mut self, address: &Address) -> bool {
        let core = &mut *self.core.borrow_mut();
        let opened = match LinkAddress::decode(address) {
            Some(peer) => core.open_link(self.index, &peer),
            None => Err(VerbsError::Value("the peer's address is invalid".to_owned())),
        };
        core.port.note(opened).is_some()
    }

    fn set_ready(&mut self) {
        let mut core = self.core.borrow_mut();
        core.link(self.index).stage.set_ready();
    }

    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        let core = &mut *self.core.borrow_mut();
        let link = core.link(self.index);
        if link.stage != Stage::Ready {
            return false;
        }
        let count = packets(bytes, link.chunk).saturating_mul(messages);
        let large = HEADER + bytes > link.chunk;
        link.sender.room() >= count && core.has_queue_room(count) && core.has_slots(large, messages)
    }

    fn return_credits(&mut self) {
        self.core.borrow_mut().return_credits(self.index, WORTH);
    }

    fn peer_has_left(&self) -> bool {
        let core = &mut *self.core.borrow_mut();
        let link = core.link(self.index);
        if link.stage.failure().is_none() && !link.has_left() {
            return false;
        }
        // Messages that the peer sent before it left must still be taken.
        core.poll_receives();
        !core.link(self.index).has_message()
    }

    fn is_drained(&mut self) -> bool {
        let mut core = self.core.borrow_mut();
        core.link(self.index).sender.in_flight() == 0
    }

    fn may_leave(&mut self) -> bool {
        self.peer_has_left() || self.has_arrived()
    }

    fn describe_failure(&self, peer: u32) -> Option<String> {
        self.failure().map(|why| why.describe(peer))
    }
}

impl Endpoint for UdEndpoint {
    fn capabilities(&self) -> Capabilities {
        let inline = self.core.borrow().pair.granted_inline() as usize;
        let most = inline.saturating_sub(HEAD + HEADER);
        Capabilities {
            name: "ud",
            short: most.clamp(SHORT_LEAST, 256 - HEAD - HEADER),
            bcopy: LARGEST,
            get_zcopy: 0,
            put_zcopy: 0,
            reliable: true,
            needs_wireup: true,
            directed: true,
        }
    }

    #[inline(never)] // see `Lane::am_short_other`
    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        // SAFETY: `data` is readable for `len` bytes, by the contract of `am_short`, and `to` has room for them.
        self.am_bcopy(header, len, |to| unsafe { fastpath_base::copy::copy(to, data, len) })
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        debug_assert!(len <= LARGEST);
        let (core, index) = self.core();
        match core.reserve(index, len) {
            Ok((slot, to)) => {
                pack(to);
                let (core, index) = self.core();
                core.send_packed(index, header, len, slot)
            }
            Err(refused) => refused,
        }
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn look(&mut self) -> Option<Arrival<'_>> {
        let (core, index) = self.core();
        let (header, data, len) = core.look(index)?;
        Some(Arrival::new(header, data, len))
    }

    #[inline(never)] // see `Lane::am_short_other`
    fn take(&mut self) {
        let (core, index) = self.core();
        core.take(index);
    }
}
