//! Put, get, atomics and flush below MPI. There are windows with one flush, and single operations, each with its flush.
//! These are the message-rate test and the latency test of the study of UCX over InfiniBand (CCGRID 2017). Puts also go
//! back and forth.
//!
//! One set of loops drives the protocol and the transport level, so their times differ only by the levels' own cost.
//! Both levels report their transfer method.

pub mod atomics;
mod protocol;
mod seen;
mod transport;

use std::collections::BTreeMap;

use fastpath_report::record::{Case, Quantity};

use super::{LevelTest, engine, fill_pattern, has_pattern};
use atomics::Atomic;
use transport::make_slice;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Memory allocated by the library (`MPI_Alloc_mem`, windows).
    Shared,
    /// Any memory of the peer.
    Private,
}

/// Encoded location of a rank's memory, specific to the level; the first word is 0 if there is none.
pub type Words = [u64; 9];

pub struct RemoteTarget {
    at: *mut u8,
    bytes: usize,
    /// Encoded location for the peer.
    pub words: Words,
    /// Owned memory; None for memory of the library.
    own: Option<Vec<u8>>,
    held: HeldResource,
}

pub enum HeldResource {
    Nothing,
    Registration(#[expect(dead_code, reason = "held")] fastpath_transport::remote::Registration),
    Region(fastpath_protocol::rma::RegionId),
}

/// Remote memory access of a level. One region is open at a time.
pub trait RemoteLink {
    fn memories(&mut self) -> &'static [Memory];
    /// Allocates memory that the ranks share; null on failure.
    fn take_shared(&mut self, bytes: usize) -> *mut u8;
    fn expose(&mut self, at: *mut u8, bytes: usize, memory: Memory) -> (Words, HeldResource);
    /// Ends the exposure that [`RemoteLink::expose`] began.
    fn deregister(&mut self, held: HeldResource);
    fn free(&mut self, at: *mut u8);
    /// Opens the other rank's memory at `words` for the operations that follow.
    ///
    /// # Errors
    /// This level cannot access it.
    fn open(&mut self, words: Words, bytes: usize) -> Result<(), String>;
    fn variant(&self) -> &'static str;
    /// Access method for `bytes` bytes, as named in test variants.
    fn way(&self, puts: bool, bytes: usize) -> &'static str;
    /// Posts a put; false on failure.
    fn put(&mut self, data: &[u8]) -> bool;
    /// Posts a get; false on failure.
    fn get(&mut self, into: &mut [u8]) -> bool;
    /// Gets data, complete on return; false on failure.
    fn get_blocking(&mut self, into: &mut [u8]) -> bool;
    /// Completes all posted operations; false on failure.
    fn flush(&mut self) -> bool;
    /// Whether this level has atomics on this kind of memory.
    fn has_atomics(&self, memory: Memory) -> bool;
    fn way_of_atomics(&self) -> &'static str {
        self.variant()
    }
    /// Executes an atomic on the first word, and returns the old value; None on failure.
    fn change(&mut self, atomic: Atomic, operand: u64, compare: u64) -> Option<u64>;
    /// Serves requests that arrive as messages; the idle target rank calls it. Returns whether there were any.
    fn serve(&mut self) -> bool;
    /// Whether the other rank has left the job, or is unreachable.
    fn has_lost_peer(&mut self) -> bool;
    /// Calls [`RemoteLink::serve`] once and increments `calls`. Every `CALLS_PER_QUESTION` calls, ends the process if
    /// the other rank has left.
    fn serve_living(&mut self, calls: &mut u32) -> bool {
        let served = self.serve();
        *calls = calls.wrapping_add(1);
        if calls.is_multiple_of(CALLS_PER_QUESTION) && self.has_lost_peer() {
            super::protocol::end_without_peer();
        }
        served
    }
}

/// Calls between two checks of whether the other rank is alive.
const CALLS_PER_QUESTION: u32 = 1024;

pub fn name_memory(memory: Memory) -> &'static str {
    match memory {
        Memory::Shared => "load-store",
        Memory::Private => "kernel",
    }
}

impl RemoteTarget {
    pub fn new(link: &mut impl RemoteLink, memory: Memory, bytes: usize) -> RemoteTarget {
        let mut own = (memory == Memory::Private).then(|| vec![0u8; bytes.max(1)]);
        let at = match &mut own {
            Some(own) => own.as_mut_ptr(),
            None => link.take_shared(bytes.max(1)),
        };
        let (words, held) = match at.is_null() {
            true => ([0; 9], HeldResource::Nothing),
            false => link.expose(at, bytes.max(1), memory),
        };
        RemoteTarget { at, bytes, words, own, held }
    }

    pub fn end(self, link: &mut impl RemoteLink) {
        link.deregister(self.held);
        if self.own.is_none() && !self.at.is_null() {
            link.free(self.at);
        }
    }

    fn as_slice(&mut self) -> &mut [u8] {
        if self.at.is_null() {
            return &mut [];
        }
        make_slice(self.at, self.bytes)
    }
}

impl engine::LevelRank<'_> {
    /// Measures a case like [`engine::LevelRank::measure`], of operations in which the other rank may take part: that
    /// rank serves them until its next order.
    pub fn measure_served<L: RemoteLink>(
        &mut self, case: Case, divisor: f64, link: &mut L, mut run: impl FnMut(&mut L, u64),
    ) {
        let mut calls = 0;
        let step = |step| match step {
            Some(operations) => {
                run(link, operations);
                true
            }
            None => link.serve_living(&mut calls),
        };
        self.measure_steps(case, divisor, true, step, BTreeMap::new);
    }
}

pub fn run(
    rank: &mut engine::LevelRank, link: &mut impl RemoteLink, test: &LevelTest, bytes: usize,
) {
    for &memory in link.memories() {
        run_memory(rank, link, test, bytes, memory);
    }
}

fn exchange(rank: &mut engine::LevelRank, words: Words) -> Words {
    let mut learnt = words;
    for part in 0..3 {
        let own = std::array::from_fn(|i| words.get(3 * part + i).copied().unwrap_or(0));
        let said = rank.exchange(own);
        learnt[3 * part..3 * part + 3].copy_from_slice(&said[..3]);
    }
    learnt
}

/// Exposes and opens memory of the other rank. `tried` tests the leader's access. The error is the reason for which the
/// leader has no access.
fn reach<L: RemoteLink>(
    rank: &mut engine::LevelRank, link: &mut L, memory: Memory, bytes: usize,
    tried: impl FnOnce(&mut L) -> bool,
) -> Result<RemoteTarget, String> {
    let mut target = RemoteTarget::new(link, memory, bytes);
    target.as_slice().fill(0);
    let words = exchange(rank, target.words);
    let opened = link.open(words, bytes.max(1));
    let works = opened.is_ok() && words[0] != 0 && (!rank.leads() || tried(link));
    if serve_until(link, rank, works) {
        return Ok(target);
    }
    target.end(link);
    let why = opened.err();
    let why = why.unwrap_or_else(|| {
        "the transport cannot access this kind of memory of the other rank".to_owned()
    });
    Err(format!("{}, {bytes} B: {why}", name_memory(memory)))
}

fn run_memory<L: RemoteLink>(
    rank: &mut engine::LevelRank, link: &mut L, test: &LevelTest, bytes: usize, memory: Memory,
) {
    let puts = test.name == "put";
    let mut buffer = vec![1u8; bytes];
    let tried = |link: &mut L| move_whole(link, puts, &mut buffer);
    let mut target = match reach(rank, link, memory, bytes, tried) {
        Ok(target) => target,
        Err(why) => return rank.missing(test.name, &why),
    };
    let checked = check(rank, link, puts, &mut buffer, &mut target);
    measure(rank, link, test, bytes, &mut buffer, checked);
    if puts && bytes > 0 {
        seen::run(rank, link, test, &mut buffer, &mut target, checked);
    }
    target.end(link);
}

/// Returns whether `own` is true on both ranks. The accessed rank serves requests during the wait.
fn serve_until(link: &mut impl RemoteLink, rank: &mut engine::LevelRank, own: bool) -> bool {
    let mut calls = 0;
    rank.agree_meanwhile(own, || link.serve_living(&mut calls))
}

fn measure(
    rank: &mut engine::LevelRank, link: &mut impl RemoteLink, test: &LevelTest, bytes: usize,
    buffer: &mut [u8], checked: Option<bool>,
) {
    let (leads, puts) = (rank.leads(), test.name == "put");
    let window = test.choose_window(rank.window());
    let variant = link.variant();
    let single = format!("{variant}, each completed");
    let way = link.way(puts, bytes);
    let windows = Case { checked, ..test.case(bytes, window, variant, way) };
    rank.measure_served(windows, f64::from(window), link, |link, operations| {
        for _ in 0..if leads { operations } else { 0 } {
            for _ in 0..window {
                post(link, puts, buffer);
            }
            complete(link);
        }
    });
    let one = Case {
        operation: if puts { "put, then flush" } else { "get" }.to_owned(),
        of: Quantity::Call,
        checked,
        ..test.case(bytes, 0, &single, way)
    };
    rank.measure_served(one, 1.0, link, |link, operations| {
        for _ in 0..if leads { operations } else { 0 } {
            if puts {
                post(link, true, buffer);
                complete(link);
            } else if !link.get_blocking(buffer) {
                super::protocol::end_without_peer();
            }
        }
    });
}

#[inline]
fn try_post(link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8]) -> bool {
    match puts {
        true => link.put(buffer),
        false => link.get(buffer),
    }
}

#[inline]
fn post(link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8]) {
    if !try_post(link, puts, buffer) {
        super::protocol::end_without_peer();
    }
}

#[inline]
fn complete(link: &mut impl RemoteLink) {
    if !link.flush() {
        super::protocol::end_without_peer();
    }
}

/// Measures a flush without outstanding operations, with the first kind of memory.
pub fn run_flush(rank: &mut engine::LevelRank, link: &mut impl RemoteLink, test: &LevelTest) {
    let Some(&memory) = link.memories().first() else {
        return rank.missing(test.name, "the transport cannot access memory of other ranks");
    };
    let target = match reach(rank, link, memory, 8, |_| true) {
        Ok(target) => target,
        Err(why) => return rank.missing(test.name, &why),
    };
    let case = test.case(0, 0, "", "nothing outstanding");
    let leads = rank.leads();
    rank.measure_served(case, test.divisor(), link, |link, operations| {
        for _ in 0..if leads { operations } else { 0 } {
            complete(link);
            // Prevents the compiler from merging iterations.
            std::hint::black_box(&mut *link);
        }
    });
    target.end(link);
}

/// Executes a put or a get, complete on return; false on failure.
pub fn move_whole(link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8]) -> bool {
    try_post(link, puts, buffer) && link.flush()
}

fn check(
    rank: &mut engine::LevelRank, link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8],
    target: &mut RemoteTarget,
) -> Option<bool> {
    if !rank.checks() {
        return None;
    }
    let leads = rank.leads();
    if !leads {
        let slice = target.as_slice();
        if puts { slice.fill(0xee) } else { fill_pattern(slice, false) }
    }
    rank.agree(true);
    let mut right = true;
    if leads {
        fill_pattern(buffer, true);
        right = move_whole(link, puts, buffer);
        right &= puts || has_pattern(buffer, false);
    }
    serve_until(link, rank, true);
    if !leads && puts {
        right = has_pattern(target.as_slice(), true);
    }
    Some(rank.agree(right))
}
