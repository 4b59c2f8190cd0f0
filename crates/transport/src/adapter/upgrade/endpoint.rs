//! The endpoint: a pair's datagrams and its connection, and which of them carries what.
//!
//! **BYTES.** As the contract of an endpoint has it: what is sent is readable and what is got writable until the call
//! returns, and what is registered stays mapped. It is passed on to the datagrams or the connection.
#![allow(unsafe_code)]

use super::Rule;
use super::iface::Shared;
use crate::adapter::rc::RcEndpoint;
use crate::adapter::ud::UdEndpoint;
use crate::contract::*;
use crate::verbs::Failure;
use fastpath_base::sync::AtomicU32;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of one read at most.
const ZCOPY_MOST: usize = 1 << 30;

/// What carries a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Datagrams,
    Connection,
}

/// A connection to one peer.
pub struct UpgradeEndpoint {
    ud: UdEndpoint,
    /// There from the moment that somebody wants it.
    rc: Option<Box<RcEndpoint>>,
    /// Whether the peer's end of it is open.
    up: bool,
    sends: Carrier,
    takes: Carrier,
    /// Whether a connection has been asked for; whether there is to be none.
    asked: bool,
    stays: bool,
    /// Whether the peer has changed to a connection that is not there.
    broken: bool,
    /// Nanoseconds that datagrams have cost more than a connection would have.
    spent_ns: u64,
    rule: Rule,
    peer: u32,
    state: Option<&'static AtomicU32>,
    pair: OnDatagrams,
}

/// A pair that lives on datagrams, as long as this does.
struct OnDatagrams(Rc<RefCell<Shared>>);

impl OnDatagrams {
    fn new(shared: Rc<RefCell<Shared>>) -> Self {
        shared.borrow_mut().on_datagrams += 1;
        OnDatagrams(shared)
    }
}

impl Drop for OnDatagrams {
    fn drop(&mut self) {
        self.0.borrow_mut().on_datagrams -= 1;
    }
}

impl UpgradeEndpoint {
    pub(super) fn new(
        ud: UdEndpoint, peer: u32, state: Option<&'static AtomicU32>, shared: Rc<RefCell<Shared>>,
    ) -> Self {
        let rule = shared.borrow().rule;
        shared.borrow_mut().counters.pairs += 1;
        UpgradeEndpoint {
            ud,
            rc: None,
            up: false,
            sends: Carrier::Datagrams,
            takes: Carrier::Datagrams,
            asked: false,
            stays: false,
            broken: false,
            spent_ns: 0,
            rule,
            peer,
            state,
            pair: OnDatagrams::new(shared),
        }
    }

    pub(super) fn state(&self) -> Option<&'static AtomicU32> {
        self.state
    }

    pub(super) fn prepare(&mut self, rc: RcEndpoint) {
        self.asked = true;
        self.rc = Some(Box::new(rc));
    }

    /// The pair's datagrams, by which it begins.
    pub fn datagrams(&mut self) -> &mut UdEndpoint {
        &mut self.ud
    }

    /// Tells the peer all that has been taken by the connection.
    #[cfg(test)]
    pub(crate) fn return_all_credits(&mut self) {
        if let Some(rc) = &mut self.rc {
            rc.return_all_credits();
        }
    }

    #[cfg(test)]
    pub(super) fn connection(&mut self) -> Option<&mut RcEndpoint> {
        self.rc.as_deref_mut()
    }

    /// Whether an end of a connection has been made.
    pub fn is_upgrading(&self) -> bool {
        self.rc.is_some()
    }

    /// Changes to the connection what is sent from now on, if that can be. Not on the way of a message: who has found
    /// room for several keeps it.
    fn change(&mut self) {
        let able = self.up && self.sends == Carrier::Datagrams;
        if able && self.ud.send_last() == Post::Done {
            self.sends = Carrier::Connection;
        }
    }

    /// Takes note of a message that went as datagrams.
    #[inline]
    fn count(&mut self, post: Post, len: usize) -> Post {
        if post == Post::Done && !self.asked {
            self.spent_ns += Rule::excess_ns(len);
            if self.rule.is_worth(self.spent_ns) {
                self.ask_slow();
            }
        }
        post
    }

    /// Says that the pair is worth a connection.
    #[cold]
    #[inline(never)]
    fn ask_slow(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            self.pair.0.borrow_mut().upgrade_requests.push(self.peer);
        }
    }

    /// Whether both directions go by the connection, and the peer knows all that datagrams had to say.
    pub fn has_upgraded(&mut self) -> bool {
        (self.sends, self.takes) == (Carrier::Connection, Carrier::Connection)
            && self.ud.is_drained()
    }

    /// The connection alone; [`UpgradeEndpoint::has_upgraded`] has been found.
    pub fn into_connection(self) -> Option<Box<RcEndpoint>> {
        let mut shared = self.pair.0.borrow_mut();
        shared.counters.upgraded += 1;
        // What the peer has not heard of it sends again: somebody must answer.
        shared.parked.push(self.ud);
        drop(shared);
        self.rc
    }

    /// What carries messages to the peer, if that is the connection.
    #[inline]
    fn carrier(&mut self) -> Option<&mut RcEndpoint> {
        match self.sends {
            Carrier::Datagrams => None,
            Carrier::Connection => self.rc.as_deref_mut(),
        }
    }

    /// Why one of the two ways does not work any more, if that is so.
    pub fn failure(&self) -> Option<Failure> {
        let of_connection = self.rc.as_ref().and_then(|rc| rc.failure());
        of_connection.or_else(|| self.ud.failure())
    }

    /// Whether all that was sent is where the peer finds it, taken or not.
    pub fn has_arrived(&mut self) -> bool {
        self.ud.has_arrived() && self.rc.as_mut().is_none_or(|rc| rc.is_drained())
    }

    /// Whether the next message can be looked for by the connection.
    #[inline]
    fn takes_by_connection(&mut self) -> bool {
        if self.takes == Carrier::Datagrams && self.ud.take_last() {
            self.takes = Carrier::Connection;
            // The peer's end is open: it has just said that it sends from there.
            match &mut self.rc {
                Some(rc) => rc.set_ready(),
                None => self.broken = true,
            }
        }
        self.takes == Carrier::Connection
    }
}

impl Connection for UpgradeEndpoint {
    /// Whether the two ends of a pair must still find each other.
    fn wants_wireup(&self) -> bool {
        self.ud.wants_wireup()
    }

    /// Where the peer finds this end's datagrams.
    fn local_address(&self) -> Address {
        self.ud.local_address()
    }

    /// Whether so many messages of so many bytes would find room now.
    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        match self.carrier() {
            Some(rc) => rc.has_room(messages, bytes),
            None => self.ud.has_room(messages, bytes),
        }
    }

    /// Tells the peer what has been taken, if it does not know.
    fn return_credits(&mut self) {
        self.change();
        self.ud.return_credits();
        if let Some(rc) = &mut self.rc {
            rc.return_credits();
        }
    }

    /// Whether the peer has left, or cannot be reached any more.
    fn peer_has_left(&self) -> bool {
        let rc = self.rc.as_ref();
        let used = Carrier::Connection == self.sends || Carrier::Connection == self.takes;
        let cut = self.broken || (used && rc.is_some_and(|rc| rc.failure().is_some()));
        match (self.takes, rc) {
            (Carrier::Connection, Some(rc)) => rc.peer_has_left(),
            (Carrier::Connection, None) => true,
            // What the peer sent before stays to be taken: datagrams first.
            (Carrier::Datagrams, Some(rc)) if self.ud.has_last() => rc.peer_has_left(),
            (Carrier::Datagrams, _) => self.ud.peer_has_left() || (cut && !self.ud.has_message()),
        }
    }

    /// Whether the peer has taken all that was sent.
    fn is_drained(&mut self) -> bool {
        self.ud.is_drained() && self.rc.as_mut().is_none_or(|rc| rc.is_drained())
    }

    /// Lets the peer read `len` bytes at `address`; `None` where it cannot. A pair that has no connection gets one for
    /// it.
    ///
    /// # Safety
    /// As [`Connection::register`].
    unsafe fn register(&mut self, address: *mut u8, len: usize) -> Option<Remote> {
        match self.sends {
            // SAFETY: BYTES.
            Carrier::Connection => unsafe { self.rc.as_mut()?.register(address, len) },
            Carrier::Datagrams => {
                self.ask_slow();
                None
            }
        }
    }

    /// Ends what [`Connection::register`] has begun, once.
    fn deregister(&mut self, rkey: u64) {
        if let Some(rc) = &mut self.rc {
            rc.deregister(rkey);
        }
    }

    fn open(&mut self, address: &Address) -> bool {
        self.ud.open(address)
    }

    fn set_ready(&mut self) {
        self.ud.set_ready();
    }

    fn wants_exposure(&self) -> bool {
        true
    }

    fn may_leave(&mut self) -> bool {
        self.peer_has_left() || self.has_arrived()
    }

    fn describe_failure(&self, peer: u32) -> Option<String> {
        self.failure().map(|why| why.describe(peer))
    }

    fn upgrade_address(&self) -> Address {
        self.rc.as_ref().map_or_else(Address::default, |rc| rc.local_address())
    }

    fn open_upgrade(&mut self, address: &Address) -> bool {
        self.rc.as_mut().is_some_and(|rc| rc.open(address))
    }

    fn finish_upgrade(&mut self) {
        if let Some(rc) = &mut self.rc {
            rc.set_ready();
            self.up = true;
            self.change();
        }
    }

    fn give_up_upgrade(&mut self) {
        (self.asked, self.stays) = (true, true);
        if self.sends == Carrier::Datagrams && self.takes == Carrier::Datagrams {
            (self.rc, self.up) = (None, false);
        }
    }
}

impl Endpoint for UpgradeEndpoint {
    /// What messages can count on by either way. Memory is fetched by a connection alone.
    fn capabilities(&self) -> Capabilities {
        let by_datagrams = self.ud.capabilities();
        let will_upgrade = !self.stays || self.rc.is_some();
        Capabilities {
            name: "upgrade",
            get_zcopy: if will_upgrade { ZCOPY_MOST } else { 0 },
            put_zcopy: 0,
            ..by_datagrams
        }
    }

    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        // SAFETY: BYTES.
        unsafe {
            if let Some(rc) = self.carrier() {
                return rc.am_short(header, data, len);
            }
            let post = self.ud.am_short(header, data, len);
            self.count(post, len)
        }
    }

    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        if let Some(rc) = self.carrier() {
            return rc.am_bcopy(header, len, pack);
        }
        let post = self.ud.am_bcopy(header, len, pack);
        self.count(post, len)
    }

    #[inline]
    fn look(&mut self) -> Option<Arrival<'_>> {
        match self.takes_by_connection() {
            true => self.rc.as_mut()?.look(),
            false => self.ud.look(),
        }
    }

    fn take(&mut self) {
        match (self.takes, &mut self.rc) {
            (Carrier::Connection, Some(rc)) => rc.take(),
            _ => self.ud.take(),
        }
        self.change();
    }

    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        match (self.takes, &mut self.rc) {
            // SAFETY: BYTES.
            (Carrier::Connection, Some(rc)) => unsafe { rc.get(to, len, from) },
            _ => Err(RemoteError::Unsupported),
        }
    }

    unsafe fn put(&mut self, _: *const u8, _: usize, _: Remote) -> Result<(), RemoteError> {
        Err(RemoteError::Unsupported)
    }
}
