//! Counters and queue lengths of a process, read from outside. `fastpath ps` reads them from the process's memory by
//! its process id. The process need not act and is not stopped: its rank's page holds the address of its [`Addresses`]
//! (`docs/decisions/0070-ps-reads-counters-from-outside.md`).
//!
//! The values may change during a read, or belong to another process. They are not trusted, and only displayed.
#![allow(unsafe_code)]

pub mod queues;

use crate::counters::Counters;
use crate::matching::Matcher;
use crate::request::{FIRST, Request, RequestKind, RequestPool, RequestState};
use std::mem::offset_of;

/// Maximum number of requests that are read.
const REQUESTS_MOST: usize = 1 << 14;
const REQUESTS_EACH: usize = 256;

/// Addresses, in the worker's process, of values that other processes read.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    counters: u64,
    unexpected: u64,
    requests: u64,
    /// Address of the pool's 32-bit index of the first request that was never used.
    fresh: u64,
    /// Address of the 32-bit id of the first unexpected message.
    first_unexpected: u64,
    /// Address of two words: address and number of the pieces with the unexpected messages.
    pieces: u64,
}

impl Addresses {
    pub(crate) fn of(counters: &Counters, matcher: &Matcher, requests: &RequestPool) -> Self {
        let (unexpected, (requests, fresh)) = (matcher.store.shown(), requests.shown());
        let (first, pieces) = matcher.store.shown_entries();
        Addresses {
            counters: (&raw const *counters).addr() as u64,
            unexpected: unexpected.addr() as u64,
            requests: requests.addr() as u64,
            fresh: fresh.addr() as u64,
            first_unexpected: first.addr() as u64,
            pieces: pieces.addr() as u64,
        }
    }

    fn read(read: Read<'_>, at: u64) -> Option<Addresses> {
        let words: [u64; WORDS] = read(at, WORDS)?.try_into().ok()?;
        // SAFETY: the sizes are equal, and every bit pattern is a valid `Addresses`.
        Some(unsafe { std::mem::transmute::<[u64; WORDS], Addresses>(words) })
    }
}

const WORDS: usize = size_of::<Addresses>() / 8;
const COUNTED: usize = size_of::<Counters>() / 8;

/// State of a worker, read from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counters.
    pub counters: Counters,
    /// Number of unexpected messages.
    pub unexpected: u64,
    /// Number of active receives.
    pub receives: u64,
    /// Number of active sends.
    pub sends: u64,
    /// Bytes of the active sends.
    pub send_bytes: u64,
}

/// Reads words of another process's memory; `None` if not all can be read.
pub type Read<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u64>>;

/// Reads the state of the worker whose [`Addresses`] are at `addresses`; `None` if it cannot be read.
pub fn look(read: Read<'_>, addresses: u64) -> Option<Snapshot> {
    let addresses = Addresses::read(read, addresses)?;
    let counted: [u64; COUNTED] = read(addresses.counters, COUNTED)?.try_into().ok()?;
    // SAFETY: the sizes are equal, and every bit pattern is a valid `Counters`.
    let counters = unsafe { std::mem::transmute::<[u64; COUNTED], Counters>(counted) };
    let mut seen = Snapshot {
        counters,
        unexpected: *read(addresses.unexpected, 1)?.first()?,
        ..Snapshot::default()
    };
    read_requests(read, &addresses, REQUESTS_MOST, |request| seen.add_request(request))?;
    Some(seen)
}

/// Passes the words of each request, up to `most` of them, to `take`. Returns `None` if not all can be read.
fn read_requests(
    read: Read<'_>, addresses: &Addresses, most: usize, mut take: impl FnMut(&[u64]),
) -> Option<()> {
    // The 32-bit index is half of an aligned word.
    let fresh = read(addresses.fresh & !7, 1)?;
    let fresh = half(fresh.get(..1)?, (addresses.fresh % 8) as usize);
    let mut left = (fresh.saturating_sub(FIRST) as usize).min(most);
    let mut at = addresses.requests;
    while left > 0 {
        let some = left.min(REQUESTS_EACH);
        read(at, some * REQUEST_WORDS)?.chunks_exact(REQUEST_WORDS).for_each(&mut take);
        at = at.wrapping_add((some * size_of::<Request>()) as u64);
        left -= some;
    }
    Some(())
}

/// Returns the byte at an offset, in bytes, of words.
fn byte(words: &[u64], at: usize) -> u8 {
    (words[at / 8] >> (at % 8 * 8)) as u8
}

/// Returns the 32-bit number at an offset, in bytes, of words.
fn half(words: &[u64], at: usize) -> u32 {
    (words[at / 8] >> (at % 8 * 8)) as u32
}

const REQUEST_WORDS: usize = size_of::<Request>() / 8;
const _: () = assert!(offset_of!(Request, bytes) % 8 == 0);

impl Snapshot {
    fn add_request(&mut self, words: &[u64]) {
        if byte(words, offset_of!(Request, state)) != RequestState::Active as u8 {
            return;
        }
        match byte(words, offset_of!(Request, kind)) {
            kind if kind == RequestKind::Send as u8 => {
                self.sends += 1;
                let bytes = words[offset_of!(Request, bytes) / 8];
                self.send_bytes = self.send_bytes.saturating_add(bytes);
            }
            kind if kind == RequestKind::Recv as u8 => self.receives += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(super) mod tests {
    use super::*;
    use crate::counters::Traffic;

    /// Reads words of this process.
    pub fn own_memory(address: u64, words: usize) -> Option<Vec<u64>> {
        let at = std::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: the tests pass addresses of their own words.
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
        pool.get_mut(done).state = RequestState::Complete;
        let counters = Counters {
            sleeps: 3,
            announced: [Traffic::default(), Traffic { messages: 1, bytes: 1 << 40 }],
            ..Counters::default()
        };
        let unexpected = 9_u64;
        let (requests, fresh) = pool.shown();
        let addresses = Addresses {
            counters: (&raw const counters).expose_provenance() as u64,
            unexpected: (&raw const unexpected).expose_provenance() as u64,
            requests: requests.expose_provenance() as u64,
            fresh: fresh.expose_provenance() as u64,
            first_unexpected: 0,
            pieces: 0,
        };
        let at = (&raw const addresses).expose_provenance() as u64;
        let seen = look(&own_memory, at).unwrap();
        let wanted = Snapshot { counters, unexpected: 9, receives: 1, sends: 2, send_bytes: 13 };
        assert_eq!(seen, wanted);
        assert_eq!(look(&own_memory, 0), None, "it shows nothing");
        let nowhere = Addresses { unexpected: 0, ..addresses };
        let at = (&raw const nowhere).expose_provenance() as u64;
        assert_eq!(look(&own_memory, at), None);
    }
}
