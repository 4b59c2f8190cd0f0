//! Endpoint: connection setup and the transport contract.
#![allow(unsafe_code)]

use super::core::Core;
use super::link::TcpLink;
use super::wire::PAYLOAD_MOST;
use crate::contract::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Largest short payload, in bytes: enough for the upper layer's control messages. Longer payloads are copied in the
/// same way.
const SHORT: usize = 48;

/// Connection to one peer.
pub struct TcpEndpoint {
    peer: u32,
    core: Rc<RefCell<Core>>,
    link: Rc<RefCell<TcpLink>>,
    bulk: bool,
}

impl TcpEndpoint {
    pub(super) fn new(peer: u32, core: Rc<RefCell<Core>>, link: Rc<RefCell<TcpLink>>) -> Self {
        let bulk = core.borrow().domain.settings.bulk;
        TcpEndpoint { peer, core, link, bulk }
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> std::cell::RefMut<'_, TcpLink> {
        self.link.borrow_mut()
    }

    /// Connects to the peer, unless a connection exists or is in progress.
    pub fn connect(&mut self) {
        if !self.link.borrow().is_up() {
            self.core.borrow_mut().want(self.peer);
        }
    }

    /// Reason why the peer is unreachable, for messages; `None` if it is reachable or has finalized.
    pub fn failure(&self) -> Option<String> {
        self.link.borrow().describe_failure()
    }
}

impl Connection for TcpEndpoint {
    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        self.link.borrow_mut().has_room_for(messages, bytes)
    }

    #[inline]
    fn is_resting(&self) -> bool {
        let mut link = self.link.borrow_mut();
        !link.has_message() && !link.awaits_bulk()
    }

    /// Afterwards, the interface reports the peer again when it has read something from the peer's socket.
    fn retire(&mut self) -> bool {
        self.link.borrow_mut().retire();
        true
    }

    fn peer_has_left(&self) -> bool {
        self.link.borrow_mut().has_left()
    }

    fn is_drained(&mut self) -> bool {
        self.link.borrow_mut().is_settled()
    }

    fn describe_failure(&self, _peer: u32) -> Option<String> {
        self.failure()
    }
}

impl Endpoint for TcpEndpoint {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "tcp",
            short: SHORT,
            bcopy: PAYLOAD_MOST,
            get_zcopy: 0,
            put_zcopy: 0,
            reliable: true,
            needs_wireup: false,
            directed: true,
        }
    }

    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        debug_assert!(len <= SHORT);
        self.link.borrow_mut().post(header, len, |to| {
            // SAFETY: `data` is readable for `len` bytes, by the contract, and `to` has room for them.
            unsafe { fastpath_base::copy::copy_small(to, data, len) }
        })
    }

    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        debug_assert!(len <= PAYLOAD_MOST);
        self.link.borrow_mut().post(header, len, pack)
    }

    #[inline]
    fn has_bulk(&self) -> bool {
        self.bulk
    }

    fn hold_next(&mut self) {
        self.link.borrow_mut().held = self.bulk;
    }

    unsafe fn am_bulk(
        &mut self, header: Header, data: *const u8, len: usize,
    ) -> Option<(Post, usize)> {
        // SAFETY: this function's contract is that of `TcpLink::post_bulk`.
        let post = || unsafe { self.link.borrow_mut().post_bulk(header, data, len) };
        self.bulk.then(post)
    }

    fn find_bulk(&self) -> Option<(Header, usize)> {
        self.link.borrow().find_bulk()
    }

    unsafe fn stream(&mut self, to: *mut u8, room: usize) -> usize {
        // SAFETY: this function's contract is that of `TcpLink::stream`.
        unsafe { self.link.borrow_mut().stream(to, room) }
    }

    fn look(&mut self) -> Option<Arrival<'_>> {
        let (header, data, len) = self.link.borrow_mut().look()?;
        Some(Arrival::new(header, data, len))
    }

    fn take(&mut self) {
        self.link.borrow_mut().take();
    }
}
