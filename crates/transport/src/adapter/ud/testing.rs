//! Two ends in one process, on the fake adapter or on the device of `FASTPATH_TEST_DEVICE`.
#![allow(unsafe_code)]

use super::*;
use crate::adapter::testing::{AdapterPair, PairIface, connect};
use crate::verbs::{DeviceContext, Library, Sge, VerbsError, fake, test_device};
use std::sync::Arc;

fn second_device() -> Option<Arc<DeviceContext>> {
    let names = std::env::var("MPI_TEST_DEVICES").ok()?;
    let name = names.split_whitespace().nth(1)?;
    let context = DeviceContext::open(Library::load().ok()?, name);
    Some(context.unwrap_or_else(|error| panic!("MPI_TEST_DEVICES: {error}")))
}

pub(crate) type UdPair = AdapterPair<UdIface>;

impl PairIface for UdIface {
    type End = UdEndpoint;

    fn poll(&mut self) {
        self.progress();
    }

    fn due_ns(&self) -> u64 {
        let core = self.core().borrow();
        match core.busy.is_empty() {
            true => u64::MAX,
            false => core.next_due_ns,
        }
    }

    fn describe(&self) -> String {
        format!("{:?} {:?}", self.last_error(), self.counters())
    }
}

impl UdPair {
    pub fn new(settings: Settings) -> Self {
        Self::make(test_device(), settings, None)
    }

    /// Pair on the fake adapter, with its clock and faults.
    pub fn fake(settings: Settings) -> Self {
        fake::set_conditions(fake::Conditions::default());
        Self::make((fake::open(), false), settings, None)
    }

    /// Pair whose sequence numbers start at `start`.
    pub fn starting_at(settings: Settings, start: u32) -> Self {
        Self::make(test_device(), settings, Some(start))
    }

    fn make(
        (context, real): (Arc<DeviceContext>, bool), settings: Settings, start: Option<u32>,
    ) -> Self {
        let far = second_device().filter(|_| real).unwrap_or(context.clone());
        let mut pair = Self::unconnected([&context, &far], settings).expect("two ends");
        pair.real = real;
        if !real {
            for iface in &pair.ifaces {
                iface.core().borrow_mut().port.clock = fake::now_ns;
            }
        }
        if let Some(token) = start {
            for end in &pair.ends {
                end.with(|link| link.token = token);
            }
        }
        let [one, two] = &mut pair.ends;
        assert!(connect(one, two), "{:?}", pair.ifaces[0].last_error());
        pair
    }

    /// Connected pair, or the cause of the failure.
    pub fn on(context: &Arc<DeviceContext>, settings: Settings) -> Result<Self, VerbsError> {
        let mut pair = Self::unconnected([context, context], settings)?;
        let [one, two] = &mut pair.ends;
        match connect(one, two) {
            true => Ok(pair),
            false => Err(VerbsError::Value("not opened".to_owned())),
        }
    }

    fn unconnected(
        contexts: [&Arc<DeviceContext>; 2], settings: Settings,
    ) -> Result<Self, VerbsError> {
        let ifaces = [
            UdIface::new(contexts[0], None, settings)?,
            UdIface::new(contexts[1], None, settings)?,
        ];
        let ends = [ifaces[0].endpoint(None)?, ifaces[1].endpoint(None)?];
        Ok(UdPair { ends, ifaces, real: false })
    }

    /// Whether the second end has received every packet of the first.
    pub fn has_all_arrived(&mut self) -> bool {
        let sent = self.ifaces[0].counters().sent;
        self.ifaces[1].counters().received == sent
    }
}

impl UdIface {
    pub(crate) fn use_clock(&self, clock: fn() -> u64) {
        self.core().borrow_mut().port.clock = clock;
    }
}

impl UdEndpoint {
    pub(super) fn throw(&self, bytes: &[u8]) {
        let (core, index) = self.parts();
        let list = [Sge::over(bytes.as_ptr(), bytes.len(), 0)];
        let core = &mut *core.borrow_mut();
        assert!(bytes.len() <= core.pair.granted_inline() as usize);
        assert!(core.sends.room() > 0 || core.make_queue_room(1));
        // SAFETY: the call copies inline data, and `bytes` is readable now.
        assert!(unsafe { core.post(index, &list) });
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut link::UdLink) -> T) -> T {
        let (core, index) = self.parts();
        act(core.borrow_mut().link(index))
    }

    pub(crate) fn knows_all_taken(&self, peer: &UdEndpoint) -> bool {
        let next = peer.with(|link| link.receiver.next_seq());
        let oldest = self.with(|link| {
            let under_way = link.sender.in_flight() as u32;
            link.sender.next_seq().wrapping_sub(under_way)
        });
        next == oldest
    }

    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let (core, index) = self.parts();
        let core = core.borrow();
        let mut seen = Vec::new();
        let Some(link) = core.links.get(index) else {
            return seen;
        };
        seen.extend(core.counters.received.to_le_bytes());
        if let Some(assembly) = &link.assembly {
            seen.extend(&assembly.data);
        }
        for kept in link.receiver.kept() {
            match &kept.body {
                link::Body::Copied(bytes) => seen.extend(bytes),
                link::Body::Slot(number, len) => {
                    let at = core.receives.locate(*number).0.wrapping_add(wire::GRH + wire::HEAD);
                    // SAFETY: an arrival stays valid until it is taken.
                    seen.extend(unsafe { std::slice::from_raw_parts(at, *len as usize) });
                }
            }
        }
        seen
    }
}
