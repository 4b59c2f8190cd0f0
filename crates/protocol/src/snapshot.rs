//! What a process has counted and what its queues hold, as others see it: `fastpath ps` reads it out of the process's
//! memory by the process number. The process takes no part and is not stopped: it says on its rank's page, once for
//! each worker, where its [`Addresses`] lies (`docs/decisions/0070-ps-reads-counters-from-outside.md`).
//!
//! What is read changes meanwhile, may be another process's, and is not trusted: all of it is numbers that are shown.
#![allow(unsafe_code)]

use crate::request::{Request, RequestKind, State};
use crate::worker::{Counters, Worker};
use fastpath_base::sync::Ordering;
use std::mem::offset_of;

/// Requests of a worker that are looked at, at most.
const REQUESTS_MOST: usize = 1 << 14;
/// Requests that are read at a time.
const REQUESTS_EACH: usize = 256;

/// Where a worker has what others may look at: addresses in its process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// Of its [`Counters`].
    counters: u64,
    /// Of the number of unexpected messages.
    unexpected: u64,
    /// Of its first request.
    requests: u64,
    /// Of the index that follows the last request used so far, in 32 bits.
    fresh: u64,
    /// Index of its first request.
    first: u64,
}

/// What lies in memory as words.
const WORDS: usize = size_of::<Addresses>() / 8;
const COUNTED: usize = size_of::<Counters>() / 8;

/// What was seen of a worker, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What it has counted.
    pub counters: Counters,
    /// Messages that nobody has asked for yet.
    pub unexpected: u64,
    /// Receives that wait for their message or for the rest of it.
    pub receives: u64,
    /// Sends that are not over.
    pub sends: u64,
    /// The bytes of those.
    pub send_bytes: u64,
}

impl Worker {
    /// Says on the rank's page where others may look. The worker must not move any more.
    pub fn show(&mut self) {
        let (unexpected, (requests, first, fresh)) =
            (self.matcher.store.shown(), self.requests.shown());
        let addresses = Box::new(Addresses {
            counters: (&raw const self.counters).addr() as u64,
            unexpected: unexpected.addr() as u64,
            requests: requests.addr() as u64,
            fresh: fresh.addr() as u64,
            first: u64::from(first),
        });
        let addresses = self.shown.insert(addresses);
        let page = self.job.own_page();
        if let Some(shown) = page.snapshots.get(self.wait.place as usize) {
            // ORDERING: release, for who reads both by this memory: the addresses are there.
            shown.store((&raw const **addresses).addr() as u64, Ordering::Release);
        }
    }
}

/// Reads words of another process's memory; `None` where not all can be read.
pub type Read<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u64>>;

/// Looks at the worker whose [`Addresses`] lies there; `None` where it cannot be read.
pub fn look(read: Read<'_>, addresses: u64) -> Option<Snapshot> {
    let addresses: [u64; WORDS] = read(addresses, WORDS)?.try_into().ok()?;
    // SAFETY: as many words, and any words make one.
    let addresses: Addresses = unsafe { std::mem::transmute(addresses) };
    let counted: [u64; COUNTED] = read(addresses.counters, COUNTED)?.try_into().ok()?;
    let mut seen = Snapshot {
        counters: to_counters(counted),
        unexpected: *read(addresses.unexpected, 1)?.first()?,
        ..Snapshot::default()
    };
    // It lies behind another word of 32 bits, or before one.
    let fresh = read(addresses.fresh & !7, 1)?;
    let fresh = (fresh.first()? >> (addresses.fresh % 8 * 8)) as u32;
    let used = u64::from(fresh).saturating_sub(addresses.first) as usize;
    let mut left = used.min(REQUESTS_MOST);
    let mut at = addresses.requests;
    while left > 0 {
        let some = left.min(REQUESTS_EACH);
        for request in read(at, some * REQUEST_WORDS)?.chunks_exact(REQUEST_WORDS) {
            seen.add_request(request);
        }
        at = at.wrapping_add((some * size_of::<Request>()) as u64);
        left -= some;
    }
    Some(seen)
}

const REQUEST_WORDS: usize = size_of::<Request>() / 8;
const _: () = assert!(offset_of!(Request, bytes) % 8 == 0);

impl Snapshot {
    fn add_request(&mut self, words: &[u64]) {
        let byte = |at: usize| (words[at / 8] >> (at % 8 * 8)) as u8;
        if byte(offset_of!(Request, state)) != State::Active as u8 {
            return;
        }
        match byte(offset_of!(Request, kind)) {
            kind if kind == RequestKind::Send as u8 => {
                self.sends += 1;
                let bytes = words[offset_of!(Request, bytes) / 8];
                self.send_bytes = self.send_bytes.saturating_add(bytes);
            }
            kind if kind == RequestKind::Recv as u8 => self.receives += 1,
            _ => {}
        }
    }

    /// What two workers have together.
    #[must_use]
    pub fn and(self, other: Snapshot) -> Snapshot {
        Snapshot {
            counters: add_counters(self.counters, other.counters),
            unexpected: self.unexpected.saturating_add(other.unexpected),
            receives: self.receives + other.receives,
            sends: self.sends + other.sends,
            send_bytes: self.send_bytes.saturating_add(other.send_bytes),
        }
    }
}

fn to_counters(words: [u64; COUNTED]) -> Counters {
    // SAFETY: as many words, and any words make one.
    unsafe { std::mem::transmute::<[u64; COUNTED], Counters>(words) }
}

fn add_counters(a: Counters, b: Counters) -> Counters {
    // SAFETY: it is made of words alone.
    let words = |c| unsafe { std::mem::transmute::<Counters, [u64; COUNTED]>(c) };
    let (mut sum, more) = (words(a), words(b));
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.wrapping_add(more);
    }
    to_counters(sum)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::request::RequestPool;
    use crate::worker::Traffic;

    fn own_memory(address: u64, words: usize) -> Option<Vec<u64>> {
        let at = std::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: the tests give addresses of their own words.
        let read = |i| unsafe { at.add(i).read_volatile() };
        (address != 0).then(|| (0..words).map(read).collect())
    }

    #[test]
    fn worker__is_seen_with_its_counters_and_its_requests() {
        let mut pool = RequestPool::new().unwrap();
        for (kind, bytes) in [
            (RequestKind::Send, 5),
            (RequestKind::Recv, 7),
            (RequestKind::Send, 8),
            (RequestKind::Foreign, 1),
        ] {
            let id = pool.allocate(kind).unwrap();
            pool.get_mut(id).bytes = bytes;
        }
        let done = pool.allocate(RequestKind::Recv).unwrap();
        pool.get_mut(done).state = State::Complete;
        let counters = Counters {
            sleeps: 3,
            announced: [Traffic::default(), Traffic { messages: 1, bytes: 1 << 40 }],
            ..Counters::default()
        };
        let unexpected = 9_u64;
        let (requests, first, fresh) = pool.shown();
        let addresses = Addresses {
            counters: (&raw const counters).expose_provenance() as u64,
            unexpected: (&raw const unexpected).expose_provenance() as u64,
            requests: requests.expose_provenance() as u64,
            fresh: fresh.expose_provenance() as u64,
            first: u64::from(first),
        };
        let at = (&raw const addresses).expose_provenance() as u64;
        let seen = look(&own_memory, at).unwrap();
        let wanted = Snapshot { counters, unexpected: 9, receives: 1, sends: 2, send_bytes: 13 };
        assert_eq!(seen, wanted);
        assert_eq!(seen.and(seen).counters.sleeps, 6);
        assert_eq!(look(&own_memory, 0), None, "it shows nothing");
        let nowhere = Addresses { unexpected: 0, ..addresses };
        let at = (&raw const nowhere).expose_provenance() as u64;
        assert_eq!(look(&own_memory, at), None);
    }
}
