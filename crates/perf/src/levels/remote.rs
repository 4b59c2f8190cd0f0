//! Put and get at the level of the transport: windows, then a flush (the message-rate test of the
//! study of UCX over InfiniBand, CCGRID 2017).
#![allow(unsafe_code)]

use fastpath_transport::{Remote, RemoteError};

use super::transport::TransportLink;
use super::{LevelTest, engine, fill_pattern, has_pattern};

/// How the peer's memory is reached.
#[derive(Clone, Copy, PartialEq)]
pub enum Memory {
    /// By load and store: memory that the library gave out (`MPI_Alloc_mem`, windows).
    Shared,
    /// By the kernel: any memory of the peer.
    Private,
}

impl Memory {
    /// Both.
    pub const ALL: [Memory; 2] = [Memory::Shared, Memory::Private];

    /// As variants of a test are called.
    pub fn name(self) -> &'static str {
        match self {
            Memory::Shared => "load-store",
            Memory::Private => "kernel",
        }
    }
}

/// Memory that the peer reads and writes.
pub struct Target {
    at: *mut u8,
    bytes: usize,
    remote: Option<Remote>,
    own: Option<Vec<u8>>,
}

impl Target {
    /// Makes it, on the rank that is reached.
    pub fn new(link: &mut TransportLink, memory: Memory, bytes: usize) -> Target {
        let room = bytes.max(1);
        match memory {
            Memory::Shared => {
                let at = link.interfaces.arena.allocate(room, 64).ok();
                let at = at.map_or(std::ptr::null_mut(), |p| p.as_ptr());
                let remote = link
                    .lane
                    .share_memory(&link.interfaces.arena, at.addr(), room as u64);
                Target {
                    at,
                    bytes,
                    remote: remote.filter(|_| !at.is_null()),
                    own: None,
                }
            }
            Memory::Private => {
                let mut own = vec![0u8; room];
                let at = own.as_mut_ptr();
                let remote = Remote {
                    addr: at.expose_provenance() as u64,
                    rkey: link.lane.memory_key(),
                };
                Target {
                    at,
                    bytes,
                    remote: Some(remote),
                    own: Some(own),
                }
            }
        }
    }

    /// What the peer is told: whether it can be reached, where, by which key.
    pub fn describe(&self) -> [u64; 4] {
        match self.remote {
            Some(remote) => [1, remote.addr, remote.rkey, 0],
            None => [0; 4],
        }
    }

    fn as_slice(&mut self) -> &mut [u8] {
        if self.at.is_null() {
            return &mut [];
        }
        // SAFETY: allocated with so many bytes; the peer writes them only between two orders, and
        // this is called between two others.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// Gives it back; the peer reaches it no more.
    pub fn free(self, link: &mut TransportLink) {
        if self.own.is_none() && !self.at.is_null() {
            link.interfaces.arena.free(self.at.addr());
        }
    }
}

/// Measures one size in both kinds of memory.
pub fn run(rank: &mut engine::Rank, link: &mut TransportLink, test: &LevelTest, bytes: usize) {
    for memory in Memory::ALL {
        run_memory(rank, link, test, bytes, memory);
    }
}

fn run_memory(
    rank: &mut engine::Rank,
    link: &mut TransportLink,
    test: &LevelTest,
    bytes: usize,
    memory: Memory,
) {
    let variant = memory.name();
    let mut target = Target::new(link, memory, bytes);
    // The leader reaches the memory of the other one.
    let [there, addr, rkey, _] = rank.learn(target.describe());
    let remote = Remote { addr, rkey };
    let mut buffer = vec![1u8; bytes];
    let puts = test.name == "put";
    let works = there == 1 && (!rank.leads() || move_once(link, puts, &mut buffer, remote).is_ok());
    if !rank.agree(works) {
        let why = format!("{variant}, {bytes} B: this transport does not reach such memory");
        rank.missing(test.name, &why);
        target.free(link);
        return;
    }
    let checked = check(rank, link, puts, &mut buffer, remote, &mut target);
    let window = rank.window().unwrap_or(test.window);
    let case = engine::Figures {
        test: test.name,
        variant,
        operation: test.operation,
        of: test.of,
        bytes,
        window,
        divisor: f64::from(window),
        protocol: variant,
        protocol_sizes: None,
        checked,
        line_floor: false,
    };
    let leads = rank.leads();
    rank.measure(&case, |operations| {
        for _ in 0..if leads { operations } else { 0 } {
            for _ in 0..window {
                if move_once(link, puts, &mut buffer, remote).is_err() {
                    super::protocol::end_without_peer();
                }
            }
            link.lane.flush();
        }
    });
    target.free(link);
}

/// A flush with nothing outstanding.
pub fn run_flush(rank: &mut engine::Rank, link: &mut TransportLink, test: &LevelTest) {
    let case = engine::Figures {
        test: test.name,
        variant: "",
        operation: test.operation,
        of: test.of,
        bytes: 0,
        window: 0,
        divisor: test.divisor,
        protocol: "fence",
        protocol_sizes: None,
        checked: None,
        line_floor: false,
    };
    let leads = rank.leads();
    rank.measure(&case, |operations| {
        for _ in 0..if leads { operations } else { 0 } {
            link.lane.flush();
            // Without something between them, the compiler makes one of many.
            std::hint::black_box(&mut link.lane);
        }
    });
}

/// A put or a get. The copy is done when the call returns, in the peer's memory too.
#[inline]
pub fn move_once(
    link: &mut TransportLink,
    puts: bool,
    buffer: &mut [u8],
    remote: Remote,
) -> Result<(), RemoteError> {
    // SAFETY: the slice is readable and writable for its bytes.
    unsafe {
        if puts {
            link.lane.put(buffer.as_ptr(), buffer.len(), remote)
        } else {
            link.lane.get(buffer.as_mut_ptr(), buffer.len(), remote)
        }
    }
}

/// Whether what one side wrote is what the other reads.
fn check(
    rank: &mut engine::Rank,
    link: &mut TransportLink,
    puts: bool,
    buffer: &mut [u8],
    remote: Remote,
    target: &mut Target,
) -> Option<bool> {
    if !rank.checks() {
        return None;
    }
    let leads = rank.leads();
    if !leads {
        let slice = target.as_slice();
        if puts {
            slice.fill(0xee)
        } else {
            fill_pattern(slice, false)
        }
    }
    rank.agree(true);
    let mut right = true;
    if leads {
        fill_pattern(buffer, true);
        right = move_once(link, puts, buffer, remote).is_ok();
        link.lane.flush();
        right &= puts || has_pattern(buffer, false);
    }
    rank.agree(true);
    if !leads && puts {
        right = has_pattern(target.as_slice(), true);
    }
    Some(rank.agree(right))
}
