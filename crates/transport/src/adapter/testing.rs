//! Two ends in one process, on the fake adapter or on the device of `FASTPATH_TEST_DEVICE`.
#![allow(unsafe_code)]

use crate::contract::*;
use crate::verbs::fake;
use std::time::{Duration, Instant};

pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);
/// Number of rounds of progress after which the fake adapter has nothing to do until time passes.
const ROUNDS: u32 = 12;

pub(crate) trait PairIface {
    type End: Endpoint;

    fn poll(&mut self);

    fn due_ns(&self) -> u64;

    fn describe(&self) -> String;
}

pub(crate) struct AdapterPair<I: PairIface> {
    pub ends: [I::End; 2],
    pub ifaces: [I; 2],
    /// Whether real time passes, as on a real adapter.
    pub real: bool,
}

impl<I: PairIface> AdapterPair<I> {
    pub fn progress(&mut self) {
        self.ifaces.iter_mut().for_each(I::poll);
    }

    pub fn pass(&self) {
        if !self.real {
            pass(&self.ifaces);
        }
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        let mut rounds = 0;
        while !done(self) {
            self.progress();
            rounds += 1;
            if rounds % ROUNDS == 0 {
                self.pass();
            }
            let [one, two] = &self.ifaces;
            assert!(start.elapsed() < WATCHDOG, "{what}: {} {}", one.describe(), two.describe());
        }
    }

    pub fn exchange(&mut self, count: u32, size: impl Fn(u32) -> usize) {
        let (mut sent, mut seen) = ([0_u32; 2], [0_u32; 2]);
        self.until("all messages", |pair| {
            for (me, end) in pair.ends.iter_mut().enumerate() {
                if sent[me] < count && send(end, sent[me], size(sent[me])) == Post::Done {
                    sent[me] += 1;
                }
                if let Some((number, len)) = take(end) {
                    assert_eq!((number, len), (seen[me], size(number)));
                    seen[me] += 1;
                }
                end.return_credits();
            }
            seen == [count; 2]
        });
    }
}

pub(crate) fn pass<I: PairIface>(ifaces: &[I]) {
    fake::advance_to(ifaces.iter().map(I::due_ns).min().unwrap_or(u64::MAX));
}

pub(crate) fn connect<E: Endpoint>(one: &mut E, two: &mut E) -> bool {
    let addresses = [two.local_address(), one.local_address()];
    for (end, address) in [&mut *one, &mut *two].into_iter().zip(addresses) {
        // Nothing can be sent before both ends are open.
        assert_eq!(end.am_bcopy(Header::default(), 0, |_| ()), Post::NoResource);
        if !end.open(&address) {
            return false;
        }
    }
    one.set_ready();
    two.set_ready();
    true
}

pub(crate) fn send(end: &mut impl Endpoint, number: u32, len: usize) -> Post {
    end.am_bcopy(Header::new(7, number, 0), len, |to| {
        // SAFETY: `to` has room for `len` bytes.
        unsafe { std::ptr::write_bytes(to, number as u8, len) }
    })
}

pub(crate) fn take(end: &mut impl Endpoint) -> Option<(u32, usize)> {
    let arrival = end.look()?;
    let seen = (arrival.header.imm, arrival.len());
    // SAFETY: an arrival is valid until it is taken.
    let bytes = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
    assert!(bytes.iter().all(|&byte| byte == seen.0 as u8), "{seen:?}");
    end.take();
    Some(seen)
}
