//! The endpoint: connecting, and the contract.
#![allow(unsafe_code)]

use super::super::shared::Shared;
use super::super::stage::Stage;
use super::arrivals::WORTH;
use super::iface::Core;
use super::link::Far;
use super::wire::{HEAD, HEADER, LARGEST, LinkAddress, SHORT_LEAST, WINDOW_MOST, packets};
use crate::contract::*;
use crate::reliable::{Receiver, Sender};
use crate::verbs::{Failure, VerbsError};
use fastpath_base::sync::AtomicU32;

/// A connection to one peer.
pub struct UdEndpoint {
    core: Shared<Core>,
    index: usize,
}

impl Drop for UdEndpoint {
    fn drop(&mut self) {
        self.core.borrow_mut().remove_link(self.index);
    }
}

impl UdEndpoint {
    pub(super) fn new(core: Shared<Core>, index: usize) -> Self {
        UdEndpoint { core, index }
    }

    /// The core, and this endpoint's connection.
    #[inline]
    fn core(&mut self) -> (&mut Core, usize) {
        // SAFETY: ONE CALL AT A TIME: each call of this that asks for it does the transport's own work until it asks
        // again, and calls `pack` between the two.
        (unsafe { self.core.core() }, self.index)
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> (&std::cell::RefCell<Core>, usize) {
        (&self.core, self.index)
    }

    /// `polls` counts the peer's polls that find no arrival: what it does not answer meanwhile has not reached it.
    pub fn watch_polls(&mut self, polls: &'static AtomicU32) {
        self.core.borrow_mut().link(self.index).polls = Some(polls);
    }

    /// Why the connection failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        let stage = self.core.borrow_mut().link(self.index).stage;
        stage.failure()
    }

    /// Whether a message lies here whose turn it is.
    pub fn has_message(&self) -> bool {
        self.core.borrow_mut().link(self.index).has_message()
    }

    /// Says that no more messages come this way: nothing may be sent any more.
    pub fn send_last(&mut self) -> Post {
        self.core.borrow_mut().send_last(self.index)
    }

    /// Takes the peer's word that no more messages come this way, where all have been taken; says whether it is there.
    pub fn take_last(&mut self) -> bool {
        self.core.borrow_mut().take_last(self.index)
    }

    /// Whether [`UdEndpoint::take_last`] would find it.
    pub fn has_last(&self) -> bool {
        self.core.borrow_mut().link(self.index).has_last()
    }

    /// Whether all that was sent is where the peer finds it, taken or not.
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
        // Both sides come to the same number.
        let window = own.min(peer.window).max(packets(LARGEST, chunk));
        link.chunk = chunk;
        link.window = window;
        link.sender = Sender::new(crate::reliable::Settings { window, ..retry }, peer.token);
        link.receiver = Receiver::new(window, link.token);
        link.far = Some(Far {
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
    /// Whether addresses must still be exchanged.
    fn wants_wireup(&self) -> bool {
        let stage = self.core.borrow_mut().link(self.index).stage;
        stage.wants_wireup()
    }

    /// Where the peer finds this end.
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

    /// Opens this end to the peer whose end is at `address`. False for no address, or one that leads nowhere:
    /// [`super::UdIface::last_error`] says why.
    fn open(&mut self, address: &Address) -> bool {
        let core = &mut *self.core.borrow_mut();
        let opened = match LinkAddress::decode(address) {
            Some(peer) => core.open_link(self.index, &peer),
            None => Err(VerbsError::Value("the peer's address is invalid".to_owned())),
        };
        core.port.note(opened).is_some()
    }

    /// From now on the peer takes what is sent.
    fn set_ready(&mut self) {
        let mut core = self.core.borrow_mut();
        core.link(self.index).stage.set_ready();
    }

    /// Whether so many messages of so many bytes would find room now.
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

    /// Tells the peer what has been taken, if that is worth a packet.
    fn return_credits(&mut self) {
        self.core.borrow_mut().return_credits(self.index, WORTH);
    }

    /// Whether the peer has left, or cannot be reached any more.
    fn peer_has_left(&self) -> bool {
        let core = &mut *self.core.borrow_mut();
        let link = core.link(self.index);
        if link.stage.failure().is_none() && !link.has_left() {
            return false;
        }
        // What it sent before stays to be taken.
        core.poll_receives();
        !core.link(self.index).has_message()
    }

    /// Whether the peer has taken all that was sent.
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
        // SAFETY: `data` is readable for `len` bytes, as the contract has it, and `to` has room for them.
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

    unsafe fn get(&mut self, _: *mut u8, _: usize, _: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }

    unsafe fn put(&mut self, _: *const u8, _: usize, _: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }
}
