//! Put, get, atomics and flush below MPI: windows, then a flush (the message-rate test of the study of UCX over
//! InfiniBand, CCGRID 2017), and one at a time, each with its flush (its latency test); puts also back and forth.
//!
//! Both levels are driven by the same loops, and say by which way the bytes go: they differ only by their own cost.

pub mod atomics;
mod protocol;
mod seen;
mod transport;

use fastpath_report::record::{Case, Of};

use super::{LevelTest, engine, fill_pattern, has_pattern};
use atomics::Atomic;
use transport::make_slice;

/// What kind of memory is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Memory that the library gave out (`MPI_Alloc_mem`, windows).
    Shared,
    /// Any memory of the peer.
    Private,
}

/// Words that say where a rank's memory is, as its level writes them; the first is 0 for nowhere.
pub type Words = [u64; 9];

/// Memory that the peer reads and writes.
pub struct Target {
    at: *mut u8,
    bytes: usize,
    /// The words for the peer.
    pub words: Words,
    /// What keeps it: memory of this program, or of the library.
    own: Option<Vec<u8>>,
    held: HeldResource,
}

/// What a level must end for a target.
pub enum HeldResource {
    Nothing,
    Registration(#[expect(dead_code, reason = "held")] fastpath_transport::remote::Registration),
    Region(fastpath_protocol::rma::RegionId),
}

/// A level's way to the memory of the other rank. One stretch of memory is reached at a time.
pub trait RemoteLink {
    /// Kinds of memory that differ at this level.
    fn memories(&mut self) -> &'static [Memory];
    /// Takes memory that the ranks share; null if that fails.
    fn take_shared(&mut self, bytes: usize) -> *mut u8;
    /// Lets the peer reach memory.
    fn expose(&mut self, at: *mut u8, bytes: usize, memory: Memory) -> (Words, HeldResource);
    /// The peer reaches it no more.
    fn deregister(&mut self, held: HeldResource);
    /// Gives back memory of the library.
    fn free(&mut self, at: *mut u8);
    /// Reaches from now on what the other rank says.
    ///
    /// # Errors
    /// This level has no way there.
    fn open(&mut self, words: Words, bytes: usize) -> Result<(), String>;
    /// How the peer's memory is reached, as variants of tests are called.
    fn variant(&self) -> &'static str;
    /// The same, for `bytes` bytes.
    fn way(&self, puts: bool, bytes: usize) -> &'static str;
    /// Posts a put; false where that fails.
    fn put(&mut self, data: &[u8]) -> bool;
    /// Posts a get.
    fn get(&mut self, into: &mut [u8]) -> bool;
    /// A get that is there when it returns.
    fn get_blocking(&mut self, into: &mut [u8]) -> bool;
    /// Completes all that was posted.
    fn flush(&mut self) -> bool;
    /// Whether there are atomics on such memory at this level.
    fn has_atomics(&self, memory: Memory) -> bool;
    /// How they go.
    fn way_of_atomics(&self) -> &'static str {
        self.variant()
    }
    /// Changes the first word, and what was there before; None where that fails.
    fn change(&mut self, atomic: Atomic, operand: u64, compare: u64) -> Option<u64>;
    /// To be called by the rank that is reached while it has nothing else to do: what comes as messages is carried out.
    /// Whether anything was.
    fn serve(&mut self) -> bool;
    /// Whether the other rank has left the job, or cannot be reached any more.
    fn has_lost_peer(&mut self) -> bool;
    /// As [`RemoteLink::serve`], again and again, `calls` times so far; ends the process where the other rank has left.
    fn serve_living(&mut self, calls: &mut u32) -> bool {
        let served = self.serve();
        *calls = calls.wrapping_add(1);
        if calls.is_multiple_of(CALLS_PER_QUESTION) && self.has_lost_peer() {
            super::protocol::end_without_peer();
        }
        served
    }
}

/// Calls between two questions whether the other rank is there.
const CALLS_PER_QUESTION: u32 = 1024;

/// As variants of tests are called where no way is known yet.
pub fn name_memory(memory: Memory) -> &'static str {
    match memory {
        Memory::Shared => "load-store",
        Memory::Private => "kernel",
    }
}

impl Target {
    /// Makes it, on the rank that is reached.
    pub fn new(link: &mut impl RemoteLink, memory: Memory, bytes: usize) -> Target {
        let mut own = (memory == Memory::Private).then(|| vec![0u8; bytes.max(1)]);
        let at = match &mut own {
            Some(own) => own.as_mut_ptr(),
            None => link.take_shared(bytes.max(1)),
        };
        let (words, held) = match at.is_null() {
            true => ([0; 9], HeldResource::Nothing),
            false => link.expose(at, bytes.max(1), memory),
        };
        Target { at, bytes, words, own, held }
    }

    /// Gives it back; the peer reaches it no more.
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

/// Measures one size in every kind of memory.
pub fn run(rank: &mut engine::Rank, link: &mut impl RemoteLink, test: &LevelTest, bytes: usize) {
    for &memory in link.memories() {
        run_memory(rank, link, test, bytes, memory);
    }
}

/// Each learns the other's words, in parts that fit an order.
fn exchange(rank: &mut engine::Rank, words: Words) -> Words {
    let mut learnt = words;
    for part in 0..3 {
        let own = std::array::from_fn(|i| words.get(3 * part + i).copied().unwrap_or(0));
        let said = rank.exchange(own);
        learnt[3 * part..3 * part + 3].copy_from_slice(&said[..3]);
    }
    learnt
}

/// Memory of the other rank that is reached, and what is said where it is not; `tried` says whether its leader reaches
/// it.
fn reach<L: RemoteLink>(
    rank: &mut engine::Rank, link: &mut L, memory: Memory, bytes: usize,
    tried: impl FnOnce(&mut L) -> bool,
) -> Result<Target, String> {
    let mut target = Target::new(link, memory, bytes);
    target.as_slice().fill(0);
    let words = exchange(rank, target.words);
    let opened = link.open(words, bytes.max(1));
    let works = opened.is_ok() && words[0] != 0 && (!rank.leads() || tried(link));
    if serve_until(link, rank, works) {
        return Ok(target);
    }
    target.end(link);
    let why = opened.err();
    let why = why.unwrap_or_else(|| "this transport does not reach such memory".to_owned());
    Err(format!("{}, {bytes} B: {why}", name_memory(memory)))
}

fn run_memory<L: RemoteLink>(
    rank: &mut engine::Rank, link: &mut L, test: &LevelTest, bytes: usize, memory: Memory,
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

/// Whether both agree; the one that is reached carries out what the other waits for.
fn serve_until(link: &mut impl RemoteLink, rank: &mut engine::Rank, own: bool) -> bool {
    let mut calls = 0;
    rank.agree_meanwhile(own, || link.serve_living(&mut calls))
}

fn measure(
    rank: &mut engine::Rank, link: &mut impl RemoteLink, test: &LevelTest, bytes: usize,
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
        of: Of::Call,
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

/// A flush with nothing outstanding, to where the memory of every kind is.
pub fn run_flush(rank: &mut engine::Rank, link: &mut impl RemoteLink, test: &LevelTest) {
    let Some(&memory) = link.memories().first() else {
        return rank.missing(test.name, "this transport reaches no memory");
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
            // Without something between them, the compiler makes one of many.
            std::hint::black_box(&mut *link);
        }
    });
    target.end(link);
}

/// A put or a get, complete when it returns; false where it fails.
pub fn move_whole(link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8]) -> bool {
    try_post(link, puts, buffer) && link.flush()
}

/// Whether what one side wrote is what the other reads.
fn check(
    rank: &mut engine::Rank, link: &mut impl RemoteLink, puts: bool, buffer: &mut [u8],
    target: &mut Target,
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
