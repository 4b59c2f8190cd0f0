//! The endpoint: connecting, and the contract.
#![allow(unsafe_code)]

use super::iface::Core;
use super::link::Link;
use super::wire::PAYLOAD_MOST;
use crate::contract::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Payload of an active message that is sent as short, in bytes: what control messages of the layer above need. All
/// are copied alike.
const SHORT: usize = 48;

/// A connection to one peer.
pub struct TcpEndpoint {
    peer: u32,
    core: Rc<RefCell<Core>>,
    link: Rc<RefCell<Link>>,
    bulk: bool,
}

impl TcpEndpoint {
    pub(super) fn new(peer: u32, core: Rc<RefCell<Core>>, link: Rc<RefCell<Link>>) -> Self {
        let bulk = core.borrow().domain.settings.bulk;
        TcpEndpoint { peer, core, link, bulk }
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> std::cell::RefMut<'_, Link> {
        self.link.borrow_mut()
    }

    /// Connects to the peer unless that is done or under way.
    pub fn connect(&mut self) {
        if !self.link.borrow().is_up() {
            self.core.borrow_mut().want(self.peer);
        }
    }

    /// Why nothing goes to the peer any more, for people.
    pub fn failure(&self) -> Option<String> {
        self.link.borrow().describe_failure()
    }
}

impl Connection for TcpEndpoint {
    /// Whether so many messages of so many bytes would find room now.
    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        self.link.borrow_mut().has_room_for(messages, bytes)
    }

    /// Whether there is nothing to take, where the interface has just looked.
    #[inline]
    fn is_resting(&self) -> bool {
        let mut link = self.link.borrow_mut();
        !link.has_message() && !link.awaits_bulk()
    }

    /// The interface tells of it when something has been read.
    fn retire(&mut self) -> bool {
        self.link.borrow_mut().retire();
        true
    }

    /// Whether the peer has left, or cannot be reached any more, and all that it has sent is taken.
    fn peer_has_left(&self) -> bool {
        self.link.borrow_mut().has_left()
    }

    /// Whether all that was sent is where the peer finds it: its kernel has it.
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
            // SAFETY: `data` is readable for `len` bytes, by the contract; `post` gives room for as many at `to`.
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
        // SAFETY: `data` is readable for `len` bytes, as `Link::post_bulk` asks of this function's caller too.
        let post = || unsafe { self.link.borrow_mut().post_bulk(header, data, len) };
        self.bulk.then(post)
    }

    fn find_bulk(&self) -> Option<(Header, usize)> {
        self.link.borrow().find_bulk()
    }

    unsafe fn stream(&mut self, to: *mut u8, room: usize) -> usize {
        // SAFETY: `to` is writable for `room` bytes, as `Link::stream` asks of this function's caller too.
        unsafe { self.link.borrow_mut().stream(to, room) }
    }

    fn look(&mut self) -> Option<Arrival<'_>> {
        let (header, data, len) = self.link.borrow_mut().look()?;
        Some(Arrival::new(header, data, len))
    }

    fn take(&mut self) {
        self.link.borrow_mut().take();
    }

    unsafe fn get(&mut self, _: *mut u8, _: usize, _: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }

    unsafe fn put(&mut self, _: *const u8, _: usize, _: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }
}
