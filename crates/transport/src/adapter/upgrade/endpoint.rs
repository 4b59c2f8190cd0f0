//! Endpoint: a pair's datagrams and connection, and the carrier of each direction.
//!
//! **BYTES.** By the contract of an endpoint, memory of a send is readable and memory of a get is writable until the
//! call returns. Registered memory stays mapped. Each call forwards this contract to the datagrams or the connection.
#![allow(unsafe_code)]

use super::Rule;
use super::shared::UpgradeState;
use crate::adapter::rc::RcEndpoint;
use crate::adapter::ud::UdEndpoint;
use crate::contract::*;
use crate::verbs::Failure;
use fastpath_base::sync::AtomicU32;
use std::cell::RefCell;
use std::rc::Rc;

const ZCOPY_MOST: usize = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Datagrams,
    Connection,
}

/// Connection to one peer.
pub struct UpgradeEndpoint {
    ud: UdEndpoint,
    rc: Option<Box<RcEndpoint>>,
    up: bool,
    sends: Carrier,
    takes: Carrier,
    /// `asked`: whether a connection was requested. `stays`: whether the pair keeps its datagrams for good.
    asked: bool,
    stays: bool,
    /// Whether the peer uses a connection of which this process has no end.
    broken: bool,
    /// Nanoseconds by which datagrams have so far cost more than a connection would have.
    spent_ns: u64,
    rule: Rule,
    peer: u32,
    state: Option<&'static AtomicU32>,
    pair: OnDatagrams,
}

/// Guard of a pair that still uses datagrams: the pair is counted until the guard is dropped.
struct OnDatagrams(Rc<RefCell<UpgradeState>>);

impl OnDatagrams {
    fn new(shared: Rc<RefCell<UpgradeState>>) -> Self {
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
        ud: UdEndpoint, peer: u32, state: Option<&'static AtomicU32>,
        shared: Rc<RefCell<UpgradeState>>,
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

    /// Datagram endpoint of the pair.
    pub fn datagrams(&mut self) -> &mut UdEndpoint {
        &mut self.ud
    }

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

    /// Whether this end of a connection has been created.
    pub fn is_upgrading(&self) -> bool {
        self.rc.is_some()
    }

    /// Moves the sending direction to the connection, if possible. A send must not call this method: its caller may
    /// have found room in the datagrams, and the connection may have none.
    fn change(&mut self) {
        let able = self.up && self.sends == Carrier::Datagrams;
        if able && self.ud.send_last() == Post::Done {
            self.sends = Carrier::Connection;
        }
    }

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

    #[cold]
    #[inline(never)]
    fn ask_slow(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            self.pair.0.borrow_mut().upgrade_requests.push(self.peer);
        }
    }

    /// Whether both directions use the connection, and all datagrams are acknowledged.
    pub fn has_upgraded(&mut self) -> bool {
        (self.sends, self.takes) == (Carrier::Connection, Carrier::Connection)
            && self.ud.is_drained()
    }

    /// Reduces the endpoint to its connection, after [`UpgradeEndpoint::has_upgraded`] has returned true.
    pub fn into_connection(self) -> Option<Box<RcEndpoint>> {
        let mut shared = self.pair.0.borrow_mut();
        shared.counters.upgraded += 1;
        // The peer may retransmit datagrams, which must still be acknowledged.
        shared.parked.push(self.ud);
        drop(shared);
        self.rc
    }

    #[inline]
    fn carrier(&mut self) -> Option<&mut RcEndpoint> {
        match self.sends {
            Carrier::Datagrams => None,
            Carrier::Connection => self.rc.as_deref_mut(),
        }
    }

    /// Cause of a failure of the datagrams or the connection; `None` if neither has failed.
    pub fn failure(&self) -> Option<Failure> {
        let of_connection = self.rc.as_ref().and_then(|rc| rc.failure());
        of_connection.or_else(|| self.ud.failure())
    }

    /// Whether everything sent has arrived at the peer, taken or not.
    pub fn has_arrived(&mut self) -> bool {
        self.ud.has_arrived() && self.rc.as_mut().is_none_or(|rc| rc.is_drained())
    }

    #[inline]
    fn takes_by_connection(&mut self) -> bool {
        if self.takes == Carrier::Datagrams && self.ud.take_last() {
            self.takes = Carrier::Connection;
            // The peer sends by the connection now, so its end is open.
            match &mut self.rc {
                Some(rc) => rc.set_ready(),
                None => self.broken = true,
            }
        }
        self.takes == Carrier::Connection
    }
}

impl Connection for UpgradeEndpoint {
    fn wants_wireup(&self) -> bool {
        self.ud.wants_wireup()
    }

    fn local_address(&self) -> Address {
        self.ud.local_address()
    }

    fn has_room(&mut self, messages: u32, bytes: usize) -> bool {
        match self.carrier() {
            Some(rc) => rc.has_room(messages, bytes),
            None => self.ud.has_room(messages, bytes),
        }
    }

    fn return_credits(&mut self) {
        self.change();
        self.ud.return_credits();
        if let Some(rc) = &mut self.rc {
            rc.return_credits();
        }
    }

    fn peer_has_left(&self) -> bool {
        let rc = self.rc.as_ref();
        let used = Carrier::Connection == self.sends || Carrier::Connection == self.takes;
        let cut = self.broken || (used && rc.is_some_and(|rc| rc.failure().is_some()));
        match (self.takes, rc) {
            (Carrier::Connection, Some(rc)) => rc.peer_has_left(),
            (Carrier::Connection, None) => true,
            // Messages that the peer sent before it left must still be taken, datagrams first.
            (Carrier::Datagrams, Some(rc)) if self.ud.has_last() => rc.peer_has_left(),
            (Carrier::Datagrams, _) => self.ud.peer_has_left() || (cut && !self.ud.has_message()),
        }
    }

    fn is_drained(&mut self) -> bool {
        self.ud.is_drained() && self.rc.as_mut().is_none_or(|rc| rc.is_drained())
    }

    /// Registers `len` bytes at `address`. Returns `None` and requests a connection if the pair has none yet.
    unsafe fn register(&mut self, address: *mut u8, len: usize) -> Option<Remote> {
        match self.sends {
            // SAFETY: BYTES: the memory stays mapped.
            Carrier::Connection => unsafe { self.rc.as_mut()?.register(address, len) },
            Carrier::Datagrams => {
                self.ask_slow();
                None
            }
        }
    }

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
    /// Limits that hold for both carriers. Only a connection reads the peer's memory.
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
        // SAFETY: BYTES: `data` is readable for `len` bytes.
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
            // SAFETY: BYTES: `to` is writable for `len` bytes.
            (Carrier::Connection, Some(rc)) => unsafe { rc.get(to, len, from) },
            _ => Err(RemoteError::Unsupported),
        }
    }
}
