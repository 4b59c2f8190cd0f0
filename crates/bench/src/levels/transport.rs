//! Messages at the level of the transport: one lane, active messages without matching.
#![allow(unsafe_code)]

use std::io;

use fastpath_base::config::Config;
use fastpath_base::copy::{copy, copy_small};
use fastpath_job::Job;
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::worker::Thresholds;
use fastpath_transport::shm::mapped::MappedMemory;
use fastpath_transport::{Address, Arrival, Connection, Header, Interfaces, Lane, Post, Remote};

use super::board::{SharedBoard, WORDS};
use super::protocol::{end_without_peer, open_worker};
use super::sides::WindowSide;
use super::{MessageLink, ProtocolRange, ProtocolRanges};

/// Id in every message header; transports do not read it.
const ID: u8 = 1;

/// Empty polls after which the processor is yielded: the two ranks may share a processor.
const POLLS: u32 = 4096;
/// Polls for a message between two calls of progress.
const POLLS_PER_PROGRESS: u32 = 64;

/// Messages of a window in which each side's cost is counted. The adapters' transports take this number before they
/// return credits, and their queues hold it.
const SIDE_WINDOW: u32 = 16;

const ADDRESS_ROOM: usize = 64;

/// A lane to the other rank, and the state of puts and gets.
pub struct TransportLink {
    /// Interfaces of this rank; they own the memory that peers can access.
    pub interfaces: Interfaces,
    pub lane: Lane,
    pub peer: u32,
    /// Memory of the other rank for puts and gets.
    pub reached: PeerMemory,
    thresholds: Thresholds,
    ways: ProtocolRanges,
}

/// Memory of the other rank, resolved once.
pub enum PeerMemory {
    /// No memory was exposed yet.
    Nothing,
    /// Memory that this process has mapped.
    Mapped(MappedMemory),
    /// Memory that the kernel copies.
    ByKernel(Remote),
    /// Memory that an adapter reads and writes.
    ByAdapter(Remote),
}

impl TransportLink {
    /// Opens the lane to the other rank of a job of two, in both directions.
    pub fn open(
        job: &'static Job, board: &SharedBoard, config: &Config,
    ) -> io::Result<TransportLink> {
        // The worker makes the library's choice of transports and protocols, and is then dropped.
        let mut worker = open_worker(job, config)?;
        let ways = ProtocolRanges::of(&mut worker);
        let thresholds = worker.planner.thresholds;
        let mut interfaces = worker.take_interfaces();
        drop(worker);
        let peer = 1 - job.rank() as u32;
        let mut lane = interfaces.make_lane(peer);
        interfaces.connect(&mut lane).map_err(|e| {
            io::Error::other(format!("cannot allocate memory for the connection: {e}"))
        })?;
        let mut open = lane.wants_wireup();
        if open {
            exchange_addresses(job, board, &mut lane)?;
        }
        while !open {
            interfaces.accept(|from| open |= from == peer);
            if !open && job.has_failed() {
                end_without_peer();
            }
            std::thread::yield_now();
        }
        lane.open_receive();
        Ok(TransportLink { interfaces, lane, peer, reached: PeerMemory::Nothing, thresholds, ways })
    }

    /// Whether an adapter connects the ranks.
    pub fn is_adapter(&self) -> bool {
        self.interfaces.has_adapter()
    }

    pub fn transport(&self) -> &'static str {
        self.lane.capabilities().map_or("none", |can| can.name)
    }

    pub fn describe_adapter(&self) -> Vec<String> {
        super::describe_adapter(self.transport(), self.interfaces.outside())
    }

    /// Repeats a post until there is room.
    #[inline]
    fn post(&mut self, mut attempt: impl FnMut(&mut Lane) -> Post) {
        let mut polls = 0u32;
        loop {
            match attempt(&mut self.lane) {
                Post::Done | Post::InProgress => return,
                Post::Wake => {
                    if self.lane.wake() == Post::PeerGone {
                        end_without_peer();
                    }
                    return;
                }
                Post::PeerGone => end_without_peer(),
                Post::NoResource => self.pause(&mut polls),
            }
        }
    }

    /// Pauses between two attempts of an operation that needs progress.
    #[inline]
    pub fn pause(&mut self, polls: &mut u32) {
        self.progress();
        self.pause_look(polls);
    }

    #[inline]
    fn progress(&mut self) {
        if self.is_adapter() {
            self.interfaces.progress();
            self.lane.return_credits();
        }
    }

    /// Pauses between two polls for a message; the next poll finds an arrival from the peer.
    #[inline]
    fn pause_look(&mut self, polls: &mut u32) {
        *polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_PROGRESS) {
            self.progress();
        }
        if polls.is_multiple_of(POLLS) {
            if self.lane.peer_has_left() {
                end_without_peer();
            }
            std::thread::yield_now();
        }
    }
}

/// Exchanges addresses, which the library's wire-up does by messages. Both ends are ready on return.
fn exchange_addresses(job: &Job, board: &SharedBoard, lane: &mut Lane) -> io::Result<()> {
    let own = lane.local_address();
    let mut bytes = [0; ADDRESS_ROOM];
    bytes[0] = own.as_slice().len() as u8;
    bytes[1..][..own.as_slice().len()].copy_from_slice(own.as_slice());
    let theirs = board.exchange_bytes(job.rank() == 0, &bytes);
    let len = usize::from(theirs[0]);
    let address = theirs.get(1..=len).and_then(Address::new);
    if !address.is_some_and(|address| lane.open(&address)) {
        let why = "cannot connect to the other rank";
        return Err(io::Error::other(why));
    }
    board.exchange(job.rank() == 0, [0; WORDS]);
    lane.set_ready();
    Ok(())
}

/// Copies an arrival, at most as much as `into` holds. Returns the bytes copied.
#[inline]
fn copy_arrival(arrival: &Arrival<'_>, into: &mut [u8]) -> usize {
    let len = arrival.len().min(into.len());
    // SAFETY: both have `len` bytes; the arrival is valid until it is taken.
    unsafe {
        if len <= SHORT_LIMIT {
            copy_small(into.as_mut_ptr(), arrival.data(), len);
        } else {
            copy(into.as_mut_ptr(), arrival.data(), len);
        }
    }
    len
}

impl WindowSide for TransportLink {
    fn window(&self) -> u32 {
        SIDE_WINDOW
    }

    fn post_messages(&mut self, data: &[u8]) {
        self.send_window(SIDE_WINDOW, data);
    }

    fn take_in(&mut self) {
        self.interfaces.progress();
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.lane.has_room(SIDE_WINDOW, bytes)
    }

    fn take_messages(&mut self, into: &mut [u8]) -> u32 {
        let (mut taken, mut vain) = (0, 0);
        // Follow the library's order: progress, all arrivals, then credits.
        self.interfaces.progress();
        while taken < SIDE_WINDOW {
            match self.lane.look() {
                Some(arrival) => {
                    copy_arrival(&arrival, into);
                    self.lane.take();
                    taken += 1;
                }
                None => self.pause(&mut vain),
            }
        }
        self.lane.return_credits();
        vain
    }
}

impl MessageLink for TransportLink {
    #[inline]
    fn send(&mut self, data: &[u8]) {
        let header = Header::new(ID, 0, 0);
        if data.len() <= SHORT_LIMIT {
            // SAFETY: the slice is readable.
            self.post(|lane| unsafe { lane.am_short(header, data.as_ptr(), data.len()) });
            return;
        }
        let sizes = self.thresholds.sizes_on(&self.lane);
        let whole = sizes.whole as usize;
        let part = if data.len() <= whole { data.len() } else { sizes.part as usize };
        for piece in data.chunks(part) {
            self.post(|lane| {
                // SAFETY: `to` has room for the piece.
                lane.am_bcopy(header, piece.len(), |to| unsafe {
                    copy(to, piece.as_ptr(), piece.len());
                })
            });
        }
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) {
        if let Some(arrival) = self.lane.look_short(ID) {
            copy_arrival(&arrival, into);
            // SAFETY: `look_short` returned it just above.
            unsafe { self.lane.take_short() };
            return;
        }
        let (mut done, mut polls, mut cold) = (0, 0u32, false);
        loop {
            if let Some(arrival) = self.lane.look() {
                done += copy_arrival(&arrival, &mut into[done..]);
                self.lane.take();
                if done >= into.len() {
                    if self.is_adapter() {
                        self.lane.return_credits();
                    }
                    return;
                }
                polls = 0;
                continue;
            }
            match polls {
                0 => cold = self.lane.begin_wait(),
                _ if cold => cold = self.lane.warm(),
                _ => {}
            }
            self.pause_look(&mut polls);
        }
    }

    fn send_window(&mut self, window: u32, data: &[u8]) {
        (0..window).for_each(|_| self.send(data));
    }

    fn recv_window(&mut self, window: u32, into: &mut [u8]) {
        (0..window).for_each(|_| self.recv(into));
    }

    fn way(&self, bytes: usize) -> Result<ProtocolRange, String> {
        let way = self.ways.find(bytes)?;
        if !way.name.starts_with("eager") {
            return Err(format!(
                "the library sends a message of this size by {}, a protocol that level transport \
                 does not have; run the tests put and get instead",
                way.name
            ));
        }
        Ok(way)
    }
}
