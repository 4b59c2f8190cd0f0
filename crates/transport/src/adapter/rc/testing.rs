//! Two ends in one process, on the fake adapter or on the one that `FASTPATH_TEST_DEVICE` names.
#![allow(unsafe_code)]

use super::*;
use crate::contract::*;
use crate::verbs::{Failure, VerbsError, test_device};
use std::time::{Duration, Instant};

/// Nothing here takes so long; a test that does has hung.
pub(super) const WATCHDOG: Duration = Duration::from_secs(60);

/// Two interfaces with one connection between them.
pub(crate) struct RcPair {
    pub ends: [RcEndpoint; 2],
    pub ifaces: [RcIface; 2],
    /// Polls after which what has reached the peer's memory has been announced there.
    pub attempts: u32,
}

impl RcPair {
    pub fn new(settings: Settings) -> Self {
        let (context, _) = test_device();
        Self::on(&context, settings).expect("two ends on one device")
    }

    pub fn on(
        context: &std::sync::Arc<crate::verbs::DeviceContext>, settings: Settings,
    ) -> Result<Self, VerbsError> {
        let ifaces =
            [RcIface::new(context, None, settings)?, RcIface::new(context, None, settings)?];
        let mut ends = [ifaces[0].endpoint(None)?, ifaces[1].endpoint(None)?];
        let addresses = [ends[0].local_address(), ends[1].local_address()];
        for (end, address) in ends.iter_mut().zip([addresses[1], addresses[0]]) {
            // Until both know each other nothing goes.
            assert_eq!(end.am_bcopy(Header::default(), 0, |_| ()), Post::NoResource);
            if !end.open(&address) {
                return Err(VerbsError::Value("not opened".to_owned()));
            }
        }
        ends.iter_mut().for_each(RcEndpoint::set_ready);
        Ok(RcPair { ends, ifaces, attempts: 100 })
    }

    pub fn progress(&mut self) {
        self.ifaces.iter_mut().for_each(|iface| {
            iface.progress();
        });
    }

    /// Makes progress until `done` says so.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.progress();
            assert!(start.elapsed() < WATCHDOG, "{what}: {:?}", self.ifaces[0].last_error());
        }
    }

    /// The counters of the first end start at `messages` sends.
    pub fn start_at(&mut self, messages: u32) {
        for end in &mut self.ends {
            end.start_at(messages);
        }
    }

    /// Whether every packet of the first end has been seen by the second, and none of what that one gave back is
    /// under way.
    pub fn has_all_arrived(&mut self) -> bool {
        let (credits, window) = self.ends[0].with(|c| (c.credits, c.window));
        let there = self.ends[1].with(|c| {
            let waiting: u32 = c.inbox.iter().map(|inbound| inbound.packets).sum();
            waiting + c.assembly.as_ref().map_or(0, |a| a.packets) + c.owed
        });
        window - credits == there
    }

    pub fn complete(&mut self, cookie: u64) -> Result<(), Failure> {
        let mut found = None;
        self.until("a completion", |pair| {
            found = pair.ifaces[0].take_completion();
            found.is_some()
        });
        let completion = found.unwrap();
        assert_eq!(completion.cookie, cookie);
        completion.result
    }
}

impl RcIface {
    pub(super) fn use_clock(&mut self, clock: fn() -> u64) {
        self.with_core(|core| core.port.clock = clock);
    }
}

impl RcEndpoint {
    fn start_at(&mut self, messages: u32) {
        self.with(|connection| {
            connection.sends.start_at(messages);
        });
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut connection::Connection) -> T) -> T {
        let (core, index) = self.parts();
        act(core.borrow_mut().connection(index))
    }

    /// All that the peer's sends have done here.
    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let (core, index) = self.parts();
        let core = &mut *core.borrow_mut();
        let mut seen = Vec::new();
        let credits = core.connection(index).credits;
        for inbound in &core.connection(index).inbox {
            seen.extend(wire::encode_header(inbound.header));
            // SAFETY: an arrival that has not been taken.
            seen.extend(unsafe { std::slice::from_raw_parts(inbound.data, inbound.len as usize) });
        }
        seen.extend(credits.to_le_bytes());
        seen
    }
}
