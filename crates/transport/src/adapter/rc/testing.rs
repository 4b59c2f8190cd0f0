//! Two ends in one process, on the fake adapter or on the device of `FASTPATH_TEST_DEVICE`.
#![allow(unsafe_code)]

use super::*;
use crate::adapter::testing::{AdapterPair, PairIface, connect};
use crate::verbs::{DeviceContext, Failure, VerbsError, test_device};
use std::sync::Arc;

pub(crate) type RcPair = AdapterPair<RcIface>;

impl PairIface for RcIface {
    type End = RcEndpoint;

    fn poll(&mut self) {
        self.progress();
    }

    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    fn describe(&self) -> String {
        format!("{:?}", self.last_error())
    }
}

impl RcPair {
    pub fn new(settings: Settings) -> Self {
        let (context, _) = test_device();
        Self::on(&context, settings).expect("two ends on one device")
    }

    pub fn on(context: &Arc<DeviceContext>, settings: Settings) -> Result<Self, VerbsError> {
        let ifaces =
            [RcIface::new(context, None, settings)?, RcIface::new(context, None, settings)?];
        let ends = [ifaces[0].endpoint(None)?, ifaces[1].endpoint(None)?];
        let mut pair = RcPair { ends, ifaces, real: true };
        let [one, two] = &mut pair.ends;
        match connect(one, two) {
            true => Ok(pair),
            false => Err(VerbsError::Value("not opened".to_owned())),
        }
    }

    /// Numbers the sends of both ends from `messages`.
    pub fn start_at(&mut self, messages: u32) {
        for end in &mut self.ends {
            end.start_at(messages);
        }
    }

    /// Whether the second end has every packet of the first, and no credits are on their way back.
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

    /// All state of this end that the peer's sends can change, as bytes to compare.
    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let (core, index) = self.parts();
        let core = &mut *core.borrow_mut();
        let mut seen = Vec::new();
        let credits = core.connection(index).credits;
        for inbound in &core.connection(index).inbox {
            seen.extend(wire::encode_header(inbound.header));
            // SAFETY: an arrival stays valid until it is taken.
            seen.extend(unsafe { std::slice::from_raw_parts(inbound.data, inbound.len as usize) });
        }
        seen.extend(credits.to_le_bytes());
        seen
    }
}
