//! Messages of middle size by blocking calls: in parts, or fetched from their place by a receiver that waits for them,
//! whichever took less between these two ranks (`habit`).
//!
//! The sender of a fetched message waits for its receiver's word. So that it waits no longer than for parts where
//! nobody has asked for the message yet, a receiver fetches such a one at once, to where unexpected messages are kept.
#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::habit::{Habits, Verdict, Way};
use crate::matching::Want;
use crate::request::{Copier, Fault, Kind, RequestId};
use crate::send::{SendArgs, Started};
use crate::tag::tag_matches;
use crate::unexpected::Arrived;
use crate::wire::{self, FETCH, FETCH_TIMED, NO_JOINT, Rts};
use crate::worker::{EARLY_LIMIT, Worker};
use fastpath_base::clock;
use fastpath_transport::{Header, Post, Remote};

/// Largest exchanged message in bytes that its receiver copies alone. Where the buffers of a rank fill its second-level
/// cache (2 MiB where that was measured) a joint copy takes half the time.
pub(crate) const EXCHANGE_ALONE_MAX: u64 = 512 * 1024;
/// Looks for the receiver's word before the ordinary way to wait takes over.
const LOOKS: u32 = 8192;
/// Looks of those between two checks whether something else needs this process.
const LOOKS_PER_CHECK: u32 = 64;
/// A receiver whose word takes so many times as long as its copy, and [`LATE_NS`] more, was not waiting.
const LATE_FACTOR: u64 = 2;
/// Nanoseconds.
const LATE_NS: u64 = 1500;
/// Bits of a verdict in `header.imm` of a `FIN`; above them the nanoseconds of the copy.
const VERDICT_BITS: u32 = 3;
/// Most that can be said there.
const LONGEST_NS: u64 = (u32::MAX >> VERDICT_BITS) as u64;

/// What became of a message that was to be sent.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Middle {
    /// It has left.
    Sent,
    /// It is announced; [`Worker::await_fetched`] must follow.
    Announced(Announced),
    /// Nothing has happened.
    Declined,
}

/// A message that waits to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// Its request.
    pub id: RequestId,
    /// When it was announced; 0 where nobody asks for the time.
    started_ns: u64,
}

impl Worker {
    /// Sends a contiguous message of middle size for a caller that can wait until it was fetched.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes, at most [`EARLY_LIMIT`], until the message was fetched.
    #[inline(never)]
    pub unsafe fn send_middle(
        &mut self,
        peer: u32,
        key: u64,
        tag: i32,
        data: *const u8,
        len: u64,
    ) -> Middle {
        if !self.is_middle(peer, data, len) {
            return Middle::Declined;
        }
        let part = self.thresholds.part_on(&self.endpoint(peer).lane) as usize;
        let way = self.middle(peer).habit(len).choose();
        match way {
            Way::Parts => {
                let endpoint = self.endpoint(peer);
                // SAFETY: the caller's.
                let post = unsafe { endpoint.send_parts(key, tag, data, len as usize, part) };
                match post {
                    Post::Done => Middle::Sent,
                    _ => Middle::Declined,
                }
            }
            Way::Fetched { timed } => {
                // SAFETY: the caller's.
                let sent = unsafe { self.announce_fetch(peer, key, tag, data, len, timed) };
                if sent == Middle::Declined {
                    self.middle(peer).habit(len).note(Verdict::Late);
                }
                sent
            }
        }
    }

    /// Whether a message that is long enough may be parted or fetched, as is best.
    fn is_middle(&self, peer: u32, data: *const u8, len: u64) -> bool {
        len <= self.thresholds.first
            && !self.is_read_directly(data.addr(), len)
            && !self.is_crowded()
            && self.may_announce_fetch(peer)
    }

    /// Starts a send for a caller that receives meanwhile and waits for both: as [`Worker::start_send`], but a message
    /// of middle size is fetched, so that each of the two ranks copies once where it would twice, and a longer one has
    /// no joint copy: there is a processor for each of the two messages without it.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn start_exchange(&mut self, args: SendArgs) -> Result<Started, Fault> {
        let (peer, len, data) = (args.peer, args.buffer.bytes, args.buffer.ptr);
        let fetched = len >= self.thresholds.exchange
            && args.buffer.layout.is_none()
            && !args.synchronous
            && self.is_middle(peer, data, len);
        // SAFETY: the caller's.
        unsafe {
            if fetched
                && let Middle::Announced(message) =
                    self.announce_fetch(peer, args.key, args.tag, data, len, false)
            {
                return Ok(Started::Request(message.id));
            }
            let alone = (self.thresholds.exchange..=EXCHANGE_ALONE_MAX).contains(&len);
            let copier = match alone {
                true => Copier::Receiver,
                false => Copier::Any,
            };
            self.start_send_to(args, copier)
        }
    }

    /// Whether the next message to a peer can be one that it fetches: nothing must go before, and its memory can be read
    /// without being shown first.
    pub fn may_announce_fetch(&self, peer: u32) -> bool {
        let endpoint = self.endpoint(peer);
        let capabilities = endpoint.lane.capabilities();
        peer != self.rank
            && endpoint.gate == 0
            && !endpoint.declines
            && !endpoint.lane.wants_exposure()
            && capabilities.is_some_and(|c| c.get_zcopy > 0)
    }

    /// Announces a contiguous message that its receiver is to fetch at once; declines where there is no room for that.
    ///
    /// # Safety
    /// As for [`Worker::send_middle`]. [`Worker::may_announce_fetch`] holds.
    pub unsafe fn announce_fetch(
        &mut self,
        peer: u32,
        key: u64,
        tag: i32,
        data: *const u8,
        len: u64,
        timed: bool,
    ) -> Middle {
        let Some(id) = self.requests.allocate(Kind::Send) else {
            return Middle::Declined;
        };
        let request = self.requests.get(id);
        request.peer = peer;
        request.key = key;
        request.tag = tag;
        request.set_buffer(Buffer::contiguous(data.cast_mut(), len));
        (request.announced, request.early, request.moved) = (true, 0, 0);
        (request.remote, request.rest_rkey, request.joined) = (NO_JOINT as u32, 0, false);
        let lane = &self.endpoint(peer).lane;
        let rts = Rts {
            total: len,
            addr: data.expose_provenance() as u64,
            rkey: lane.memory_key(),
            request: request.handle,
            early: 0,
            joint: if timed { FETCH_TIMED } else { FETCH },
        };
        let started_ns = if timed { clock::now_ns() } else { 0 };
        if self.post_short_rts(peer, key, tag, &rts) != Post::Done {
            self.requests.free(id);
            return Middle::Declined;
        }
        self.counters.requests += 1;
        self.counters.rendezvous += 1;
        Middle::Announced(Announced { id, started_ns })
    }

    /// Looks for a while whether the announced message was fetched; if so its request is freed. Else it is to be waited
    /// for, [`Worker::note_late`] called, and freed.
    pub fn await_fetched(&mut self, announced: Announced) -> bool {
        let request = self.requests.get(announced.id);
        let (peer, len, handle) = (request.peer, request.bytes, request.handle);
        for look in 1..LOOKS {
            let endpoint = self.endpoint(peer);
            if let Some(arrival) = endpoint.lane.look() {
                let header = arrival.header;
                if header.id != wire::FIN || header.key != handle as u64 {
                    return false;
                }
                endpoint.lane.take();
                let verdict = read_verdict(header.imm, announced.started_ns);
                self.middle(peer).habit(len).note(verdict);
                self.requests.free(announced.id);
                return true;
            }
            if look % LOOKS_PER_CHECK == 0 && (!self.is_idle() || self.is_crowded()) {
                return false;
            }
        }
        false
    }

    /// What is known of messages of middle size to and from a peer.
    pub(crate) fn middle(&mut self, peer: u32) -> &mut Habits {
        if self.endpoint(peer).middle == 0 {
            self.middles.push(Habits::default());
            self.endpoint(peer).middle = self.middles.len() as u32;
        }
        let index = self.endpoint(peer).middle as usize - 1;
        &mut self.middles[index]
    }

    /// The message of this request was not fetched while its sender looked.
    pub fn note_late(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        let (peer, len) = (request.peer, request.bytes);
        self.middle(peer).habit(len).note(Verdict::Late);
    }

    /// Fetches the peer's next arrival, if it is the wanted message, is to be fetched and fits: straight into the
    /// buffer, without a request. `None`: nothing has happened, but that the buffer may have been written to. Else tag
    /// and length.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes. The caller has made sure of `Matcher::is_quiet`.
    pub unsafe fn recv_fetched(
        &mut self,
        want: Want,
        to: *mut u8,
        room: u64,
    ) -> Option<(i32, u64)> {
        let endpoint = self.endpoint(want.peer);
        let arrival = endpoint.lane.look()?;
        let header = arrival.header;
        let tag = header.imm as i32;
        if header.id != wire::RTS || header.key != want.key || !tag_matches(want.tag, tag) {
            return None;
        }
        // SAFETY: the arrival's bytes.
        let rts = unsafe { wire::read::<Rts>(arrival.data(), arrival.len()) }?;
        if !rts.is_fetched() || rts.total > room {
            return None;
        }
        let timed = rts.joint == FETCH_TIMED;
        let start = if timed { clock::now_ns() } else { 0 };
        let from = Remote {
            addr: rts.addr,
            rkey: rts.rkey,
        };
        // SAFETY: the buffer has room for `total` bytes.
        unsafe { endpoint.lane.get(to, rts.total as usize, from) }.ok()?;
        endpoint.lane.take();
        let said = match timed {
            false => Verdict::Untimed as u32,
            true => {
                let ns = clock::now_ns() - start;
                let verdict = self.middle(want.peer).pace(rts.total).judge(rts.total, ns);
                verdict as u32 | (ns.min(LONGEST_NS) as u32) << VERDICT_BITS
            }
        };
        self.counters.single_copies += 1;
        self.send_control(
            want.peer,
            Header::new(wire::FIN, said, rts.request as u64),
            &[],
        );
        Some((tag, rts.total))
    }

    /// An announced message to be fetched for which no receive is posted: it comes to be kept, so that its sender can
    /// go on. False where it cannot be fetched.
    pub(crate) fn keep_fetched(&mut self, peer: u32, header: Header, rts: &Rts) -> bool {
        let len = rts.total as usize;
        let mut data = self.unexpected.buffer(len);
        let from = Remote {
            addr: rts.addr,
            rkey: rts.rkey,
        };
        // SAFETY: `buffer` has reserved `len` bytes, and they are written where `get` succeeds.
        unsafe {
            if self
                .endpoint(peer)
                .lane
                .get(data.as_mut_ptr(), len, from)
                .is_err()
            {
                self.unexpected.recycle(data);
                return false;
            }
            data.set_len(len);
        }
        self.counters.single_copies += 1;
        self.keep(peer, header, Arrived::Eager, data);
        self.send_control(peer, Header::new(wire::FIN, 0, rts.request as u64), &[]);
        true
    }
}

/// What the receiver said, and whether it had been waiting.
fn read_verdict(imm: u32, started_ns: u64) -> Verdict {
    let copied_ns = (imm >> VERDICT_BITS) as u64;
    let verdict = Verdict::of(imm & ((1 << VERDICT_BITS) - 1));
    let timed = started_ns != 0 && verdict != Verdict::Untimed;
    if timed && clock::now_ns() - started_ns > LATE_FACTOR * copied_ns + LATE_NS {
        return Verdict::Late;
    }
    verdict
}

const _: () = assert!(crate::habit::MIDDLE_MIN < EARLY_LIMIT);
