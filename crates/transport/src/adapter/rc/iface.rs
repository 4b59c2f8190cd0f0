//! Interface for reliable connections: open, poll, arm.
#![allow(unsafe_code)]

use super::super::port::{AdapterPort, SHORT_NAP, Waker};
use super::super::shared::SharedCore;
use super::Settings;
use super::core::{Completion, Core, RcCounters};
use super::endpoint::RcEndpoint;
use super::registrations::Registrations;
use crate::verbs::{DeviceContext, VerbsError};
use fastpath_base::sync::AtomicU32;
use std::sync::Arc;
use std::time::Duration;

/// Interface for reliable connections over one adapter port.
pub struct RcIface {
    core: SharedCore<Core>,
    waker: Waker,
}

impl RcIface {
    /// Opens `port` of a device, or its first active port.
    ///
    /// # Errors
    /// The port does not exist or is not active, or the device refuses a call. No resource stays allocated.
    pub fn new(
        context: &Arc<DeviceContext>, port: Option<u8>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let core = Core::new(context, port, settings)?;
        let waker = Waker::new(core.channel.clone());
        Ok(RcIface { core: SharedCore::new(core), waker })
    }

    /// Creates an unconnected endpoint with its own queue pair. `state` is the peer's state word, if known.
    ///
    /// # Errors
    /// The device has no more queue pairs.
    pub fn endpoint(&self, state: Option<&'static AtomicU32>) -> Result<RcEndpoint, VerbsError> {
        let index = self.core.borrow_mut().add_connection(state)?;
        Ok(RcEndpoint::new(self.core.clone(), index))
    }

    /// Number of open connections.
    pub fn connections(&self) -> u32 {
        self.core.borrow().numbers.len() as u32
    }

    /// Processes arrivals and completions; returns whether there were any.
    pub fn progress(&mut self) -> bool {
        // SAFETY: ONE CALL AT A TIME: progress calls no code outside the transport.
        unsafe { self.core.core() }.progress()
    }

    /// Prepares a sleep: later events call `wake` from another thread. Call it before the last poll. Returns the
    /// longest sleep. After this time, the caller checks for events that the adapter does not report.
    pub fn arm(&mut self, wake: impl Fn() + Send + 'static) -> Duration {
        match self.waker.start(wake) {
            true => self.core.borrow_mut().arm(),
            false => SHORT_NAP,
        }
    }

    /// Takes the next reported completion; `None` if there is none.
    pub fn take_completion(&mut self) -> Option<Completion> {
        self.core.borrow_mut().completions.pop_front()
    }

    /// Event counts.
    pub fn counters(&self) -> RcCounters {
        let core = self.core.borrow();
        RcCounters { refused: core.port.refused, ..core.counters }
    }

    pub(in super::super) fn with_port<T>(&self, act: impl FnOnce(&AdapterPort) -> T) -> T {
        act(&self.core.borrow().port)
    }

    /// Cause of the last failed connection, for messages; `None` if none has failed.
    pub fn last_error(&self) -> Option<String> {
        self.core.borrow().port.last_error.clone()
    }

    pub(super) fn with_core<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        act(&mut self.core.borrow_mut())
    }

    /// Calls `act` with the registrations of user memory.
    pub fn with_registrations<T>(&self, act: impl FnOnce(&mut Registrations) -> T) -> T {
        self.with_core(|core| act(&mut core.registrations))
    }
}
