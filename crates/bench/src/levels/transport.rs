//! Messages at the level of the transport: one lane, active messages without matching.
#![allow(unsafe_code)]

use std::io;

use fastpath_base::config::Config;
use fastpath_base::copy::{copy, copy_small};
use fastpath_bootstrap::Job;
use fastpath_protocol::worker::{SHORT_LIMIT, Thresholds};
use fastpath_transport::shm::mapped::MappedMemory;
use fastpath_transport::{Address, Arrival, Connection, Header, Interfaces, Lane, Post, Remote};

use super::board::{SharedBoard, WORDS};
use super::protocol::{end_without_peer, open_worker};
use super::sides::Side;
use super::{Link, ProtocolRange, ProtocolRanges};

/// Id of every message; transports do not read it.
const ID: u8 = 1;

/// Empty polls, after which the processor is offered to others: the two ranks may share one.
const POLLS: u32 = 4096;
/// Looks for a message between two rounds of progress.
const POLLS_PER_PROGRESS: u32 = 64;

/// Messages of a window in which each side's cost is counted: as many as the adapters' transports take before they give
/// back what they owe, and no more than they have under way.
const SIDE_WINDOW: u32 = 16;

/// Bytes that an address and its length fit in.
const ADDRESS_ROOM: usize = 64;

/// A lane to the other rank, and what a put or get needs.
pub struct TransportLink {
    /// Interfaces of this rank; they own the memory that peers can reach.
    pub interfaces: Interfaces,
    /// The lane.
    pub lane: Lane,
    /// The other rank.
    pub peer: u32,
    /// Memory of the other rank that puts and gets go to.
    pub reached: Reached,
    thresholds: Thresholds,
    ways: ProtocolRanges,
}

/// Memory of the other rank, as it was found once.
pub enum Reached {
    /// None yet.
    Nothing,
    /// Mapped here.
    Mapped(MappedMemory),
    /// Copied by the kernel.
    ByKernel(Remote),
    /// Read and written by an adapter.
    ByAdapter(Remote),
}

impl TransportLink {
    /// The lane to the other rank of a job of two, open in both directions.
    ///
    /// # Errors
    /// The variables are wrong, or there is no memory.
    pub fn open(
        job: &'static Job, board: &SharedBoard, config: &Config,
    ) -> io::Result<TransportLink> {
        // The library's own choice of transports and protocols; the worker that made it is not used.
        let mut worker = open_worker(job, config)?;
        let ways = ProtocolRanges::of(&mut worker);
        let thresholds = worker.thresholds;
        let mut interfaces = worker.take_interfaces();
        drop(worker);
        let peer = 1 - job.rank() as u32;
        let mut lane = interfaces.make_lane(peer);
        interfaces
            .connect(&mut lane)
            .map_err(|e| io::Error::other(format!("no memory for the connection: {e}")))?;
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
        Ok(TransportLink { interfaces, lane, peer, reached: Reached::Nothing, thresholds, ways })
    }

    /// Whether the other rank is reached by an adapter.
    pub fn is_adapter(&self) -> bool {
        self.interfaces.has_adapter()
    }

    /// The transport that carries all messages.
    pub fn transport(&self) -> &'static str {
        self.lane.capabilities().map_or("none", |can| can.name)
    }

    /// What there is to say of the adapter, if one is used.
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

    /// Between two tries of what needs progress.
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

    /// Between two polls for a message; the next poll finds what has arrived from the peer.
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

/// What the wire-up of the library does by messages: each end learns where the other is, and is ready when both know.
fn exchange_addresses(job: &Job, board: &SharedBoard, lane: &mut Lane) -> io::Result<()> {
    let own = lane.local_address();
    let mut bytes = [0; ADDRESS_ROOM];
    bytes[0] = own.as_slice().len() as u8;
    bytes[1..][..own.as_slice().len()].copy_from_slice(own.as_slice());
    let theirs = board.exchange_bytes(job.rank() == 0, &bytes);
    let len = usize::from(theirs[0]);
    let address = theirs.get(1..=len).and_then(Address::new);
    if !address.is_some_and(|address| lane.open(&address)) {
        let why = "the other rank's end of the connection cannot be reached";
        return Err(io::Error::other(why));
    }
    board.exchange(job.rank() == 0, [0; WORDS]);
    lane.set_ready();
    Ok(())
}

/// Copies what has arrived; never more than there is room for. Returns the bytes copied.
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

impl Side for TransportLink {
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
        // As the library does: progress, all that has arrived, and then credits.
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

impl Link for TransportLink {
    #[inline]
    fn send(&mut self, data: &[u8]) {
        let header = Header::new(ID, 0, 0);
        if data.len() <= SHORT_LIMIT {
            // SAFETY: the slice is readable.
            self.post(|lane| unsafe { lane.am_short(header, data.as_ptr(), data.len()) });
            return;
        }
        let whole = self.thresholds.max_single_on(&self.lane) as usize;
        let part = if data.len() <= whole {
            data.len()
        } else {
            self.thresholds.fragment_on(&self.lane) as usize
        };
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
            // SAFETY: it was shown just now.
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
                "the library sends it by {}, which needs more than a transport; see put and get",
                way.name
            ));
        }
        Ok(way)
    }
}
