//! Interface for datagrams: open, poll, arm.
#![allow(unsafe_code)]

use super::super::port::{AdapterPort, LONG_NAP, SHORT_NAP, Waker};
use super::super::shared::SharedCore;
use super::Settings;
use super::core::{Core, UdCounters};
use super::endpoint::UdEndpoint;
use super::wireup_datagram::{WireupDatagram, iface_address};
use crate::contract::Address;
use crate::verbs::{DeviceContext, VerbsError};
use fastpath_base::sync::AtomicU32;
use std::sync::Arc;
use std::time::Duration;

/// Interface for datagrams over one adapter port.
pub struct UdIface {
    core: SharedCore<Core>,
    waker: Waker,
}

impl UdIface {
    /// Opens `port` of a device, or its first active port.
    ///
    /// # Errors
    /// The port does not exist or is not active, or the device refuses a call. No resource stays allocated.
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let (core, channel) = Core::new(context, port, settings)?;
        Ok(UdIface { core: SharedCore::new(core), waker: Waker::new(channel) })
    }

    /// Creates an unconnected endpoint. `state` is the peer's state word, if known.
    ///
    /// # Errors
    /// No memory for receive buffers.
    pub fn endpoint(&self, state: Option<&'static AtomicU32>) -> Result<UdEndpoint, VerbsError> {
        let index = self.core.borrow_mut().add_link(state)?;
        Ok(UdEndpoint::new(self.core.clone(), index))
    }

    /// Sets the word in which this interface counts its polls that found no datagram. Peers read it.
    pub fn tell_polls(&self, polls: &'static AtomicU32) {
        self.core.borrow_mut().polls = Some(polls);
    }

    /// Processes arrivals and timers; returns whether there were arrivals.
    pub fn progress(&mut self) -> bool {
        // SAFETY: ONE CALL AT A TIME: progress calls no code outside the transport.
        unsafe { self.core.core() }.progress()
    }

    /// Prepares a sleep: later events call `wake` from another thread. Call it before the last poll. Returns the
    /// longest sleep: until a retransmission or the next check of the device.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        let nap = if self.watch(wake) { LONG_NAP } else { SHORT_NAP };
        let core = &mut *self.core.borrow_mut();
        core.until_event().min(core.until_due()).min(nap)
    }

    /// Makes another thread call `wake` at the next arrival; returns false on failure. The first `wake` is kept.
    pub fn watch(&mut self, wake: impl Fn() + Send + 'static) -> bool {
        self.waker.start(wake) && self.core.borrow().recv_cq.arm().is_ok()
    }

    /// Whether timers are running: packets are outstanding, or an acknowledgement is owed.
    pub fn is_busy(&self) -> bool {
        let core = self.core.borrow();
        let waiting = core.sends.expected > 0 || core.outage.is_on();
        !core.busy.is_empty() || waiting || !core.wireup_datagrams.is_empty()
    }

    /// Accepts wireup datagrams that carry `secret`. Returns the address for peers that send them.
    pub fn open_wireup_datagrams(&mut self, secret: u64) -> Address {
        let mut core = self.core.borrow_mut();
        core.secret = Some(secret);
        let port = core.port.local.address();
        iface_address(core.pair.qpn(), core.qkey, port)
    }

    /// Sends a wireup datagram to an interface address; returns false if it was not sent.
    pub fn send_wireup_datagram(
        &mut self, iface_address: &Address, wireup_datagram: &WireupDatagram,
    ) -> bool {
        let mut core = self.core.borrow_mut();
        let sent = core.send_wireup_datagram(iface_address, wireup_datagram);
        core.port.note(sent).unwrap_or(false)
    }

    /// Takes the next wireup datagram that has arrived; `None` if there is none.
    pub fn take_wireup_datagram(&mut self) -> Option<WireupDatagram> {
        self.core.borrow_mut().wireup_datagrams.pop_front()
    }

    /// Whether a wireup datagram has arrived.
    pub fn has_wireup_datagrams(&self) -> bool {
        !self.core.borrow().wireup_datagrams.is_empty()
    }

    /// Event counts.
    pub fn counters(&self) -> UdCounters {
        let core = self.core.borrow();
        UdCounters {
            handles: core.ways.count() as u64,
            refused: core.port.refused,
            ..core.counters
        }
    }

    pub(in super::super) fn with_port<T>(&self, act: impl FnOnce(&AdapterPort) -> T) -> T {
        act(&self.core.borrow().port)
    }

    /// Cause of the last failed connection, for messages; `None` if none has failed.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().port.last_error.clone()
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &std::cell::RefCell<Core> {
        &self.core
    }
}
