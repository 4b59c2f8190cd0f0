//! Two ends in one process, on the fake adapter or on the one that `FASTPATH_TEST_DEVICE` names.
#![allow(unsafe_code)]

use super::*;
use crate::contract::*;
use crate::verbs::{DeviceContext, Library, Sge, VerbsError, fake, test_device};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing here takes so long; a test that does has hung.
const WATCHDOG: Duration = Duration::from_secs(60);
/// Rounds of progress after which, on the fake adapter, nothing more will happen by itself: time must pass.
const ROUNDS: u32 = 12;

/// The device at the other end of the wire, where the test bed names one.
fn second_device() -> Option<Arc<DeviceContext>> {
    let names = std::env::var("MPI_TEST_DEVICES").ok()?;
    let name = names.split_whitespace().nth(1)?;
    let context = DeviceContext::open(Library::load().ok()?, name);
    Some(context.unwrap_or_else(|error| panic!("MPI_TEST_DEVICES: {error}")))
}

/// Two interfaces with one connection between them.
pub(crate) struct UdPair {
    pub ends: [UdEndpoint; 2],
    pub ifaces: [UdIface; 2],
    /// On a real adapter time passes by itself.
    real: bool,
}

impl UdPair {
    pub fn new(settings: Settings) -> Self {
        Self::make(test_device(), settings, None)
    }

    /// A pair on the fake adapter, whose clock and faults tests move.
    pub fn fake(settings: Settings) -> Self {
        fake::set_conditions(fake::Conditions::default());
        Self::make((fake::open(), false), settings, None)
    }

    /// A pair whose packets are counted from `start`.
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

    /// A connected pair, or why there is none.
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

    pub fn progress(&mut self) {
        self.ifaces.iter_mut().for_each(|iface| {
            iface.progress();
        });
    }

    /// Lets time pass until something is due, where it does not pass by itself.
    pub fn pass(&self) {
        if self.real {
            return; // it passes
        }
        let due = |iface: &UdIface| iface.core().borrow().next_due_ns;
        fake::advance_to(self.ifaces.iter().map(due).min().unwrap_or(u64::MAX));
    }

    /// Makes progress, and lets time pass where that brings nothing, until `done` says so.
    pub fn until(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        run_until(self, Self::progress, Self::pass, done, |pair| {
            let [one, two] = &pair.ifaces;
            let (trouble, sent, got) = (one.last_error(), one.counters(), two.counters());
            format!("{what}: {trouble:?} {sent:?} {got:?}")
        });
    }

    /// Whether every packet of the first end has been seen by the second.
    pub fn has_all_arrived(&mut self) -> bool {
        let sent = self.ifaces[0].counters().sent;
        self.ifaces[1].counters().received == sent
    }
}

/// Makes progress, and lets time pass where that brings nothing, until `done` says so. `tell` says what hangs.
pub(crate) fn run_until<P>(
    pair: &mut P, progress: impl Fn(&mut P), pass: impl Fn(&P),
    mut done: impl FnMut(&mut P) -> bool, tell: impl Fn(&P) -> String,
) {
    let start = Instant::now();
    let mut rounds = 0;
    while !done(pair) {
        progress(pair);
        rounds += 1;
        if rounds % ROUNDS == 0 {
            pass(pair);
        }
        assert!(start.elapsed() < WATCHDOG, "{}", tell(pair));
    }
}

/// Connects two ends; false where that does not go.
pub(crate) fn connect(one: &mut UdEndpoint, two: &mut UdEndpoint) -> bool {
    let addresses = [two.local_address(), one.local_address()];
    for (end, address) in [&mut *one, &mut *two].into_iter().zip(addresses) {
        // Until both know each other nothing goes.
        assert_eq!(end.am_bcopy(Header::default(), 0, |_| ()), Post::NoResource);
        if !end.open(&address) {
            return false;
        }
    }
    one.set_ready();
    two.set_ready();
    true
}

impl UdIface {
    /// Time is what `clock` says.
    pub(crate) fn use_clock(&self, clock: fn() -> u64) {
        self.core().borrow_mut().port.clock = clock;
    }

    /// When something is due next.
    pub(crate) fn next_due_ns(&self) -> u64 {
        let core = self.core().borrow();
        match core.busy.is_empty() {
            true => u64::MAX,
            false => core.next_due_ns,
        }
    }
}

impl UdEndpoint {
    /// Sends bytes that are no packet to where this end's packets go.
    pub(super) fn throw(&self, bytes: &[u8]) {
        let (core, index) = self.parts();
        let list = [Sge::over(bytes.as_ptr(), bytes.len(), 0)];
        let core = &mut *core.borrow_mut();
        assert!(bytes.len() <= core.pair.granted_inline() as usize);
        assert!(core.sends.room() > 0 || core.make_queue_room(1));
        // SAFETY: so few go inline: they are read before the call returns.
        assert!(unsafe { core.post(index, &list) });
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut link::Link) -> T) -> T {
        let (core, index) = self.parts();
        act(core.borrow_mut().link(index))
    }

    /// Whether this end knows all that its peer has taken.
    pub(crate) fn knows_all_taken(&self, peer: &UdEndpoint) -> bool {
        let next = peer.with(|link| link.receiver.next_seq());
        let oldest = self.with(|link| {
            let under_way = link.sender.in_flight() as u32;
            link.sender.next_seq().wrapping_sub(under_way)
        });
        next == oldest
    }

    /// All that the peer's sends have done here.
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
                    // SAFETY: an arrival that has not been taken.
                    seen.extend(unsafe { std::slice::from_raw_parts(at, *len as usize) });
                }
            }
        }
        seen
    }
}
