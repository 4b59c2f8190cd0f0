//! Closing of the ring: each leader connects to the leaders of the next and the preceding node, all at the same time.
//!
//! The listening side sends a nonce. The connecting side proves that it is of the job, and the listening side answers
//! with its own proof. A proof is a keyed hash (BLAKE3) under the job's secret. The leader tries the addresses of the
//! next node one after the other, and serves all callers at the same time. A dead address or silent stranger thus
//! delays no other connection.

use super::Neighbour;
use crate::network::NetworkCard;
use crate::network::interfaces::list_addresses;
use crate::network::ports::dial;
use crate::network::proof::{Pass, TAG};
use crate::poll::{poll_entry, poll_for};
use crate::socket::send_all;
use fastpath_base::entropy::draw_random;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"FPr1";
const NONCE: usize = 16;
/// Bytes that the listening side sends first.
const GREETING: usize = MAGIC.len() + NONCE;
/// Bytes of the connecting node's number and its proof.
const PROOF: usize = 4 + TAG;
/// Time limit for closing the ring: the longest expected time between the leaders' entries into `MPI_Init`.
const TOGETHER: Duration = Duration::from_secs(20);
/// Time between calls to two addresses.
const APART: Duration = Duration::from_millis(250);
/// Pause before a call is repeated after the other end hung up. Also the pause before an accept is repeated, because a
/// failure may mean that no descriptor was free.
const PAUSE: Duration = Duration::from_millis(20);
/// Largest number of repeated calls. Calls are repeated because a flood of strangers may displace a call.
const AGAIN_MOST: u32 = 100;
/// Largest number of callers without a proof; a new one replaces the oldest.
const CALLERS_MOST: usize = 64;

/// Connects this node, one of `nodes`, with the next and the preceding node, while all nodes do so. A neighbour that is
/// not reached, or does not connect, is not watched.
pub fn close_ring(
    pass: &Pass, listeners: &[TcpListener], next: Option<&NetworkCard>, own: u32, nodes: u32,
) -> Vec<Neighbour> {
    let (after, before) = ((own + 1) % nodes, (own + nodes - 1) % nodes);
    let mut calls = Calls::to(next);
    let mut callers: Vec<NeighbourCandidate> = Vec::new();
    let (mut connected, mut accepted) = (None, None);
    let (end, mut accept_at) = (Instant::now() + TOGETHER, Instant::now());
    loop {
        let now = Instant::now();
        let calling = connected.is_none() && calls.dial(now);
        let accepting = accepted.is_none() && !listeners.is_empty();
        if now >= end || !calling && !accepting {
            break;
        }
        let listening = accepting && accept_at <= now;
        let mut until = if calling { end.min(calls.due(end)) } else { end };
        if accepting && !listening {
            until = until.min(accept_at);
        }
        let heard: &[TcpListener] = if listening { listeners } else { &[] };
        let mut entries: Vec<libc::pollfd> =
            heard.iter().map(|one| poll_entry(one.as_raw_fd(), libc::POLLIN)).collect();
        let candidates = calls.live.iter().map(|(_, call)| call).chain(&callers);
        entries.extend(candidates.map(NeighbourCandidate::entry));
        poll_for(&mut entries, Some(until.saturating_duration_since(now)));
        if calling {
            connected = calls.go_on(pass, (own, after));
        }
        if accepting {
            accepted = go_on(&mut callers, pass, (before, own));
        }
        if listening && accepted.is_none() && !accept_all(heard, &mut callers) {
            accept_at = Instant::now() + PAUSE;
        }
    }
    let met = [(connected, after), (accepted, before)];
    let met = met.into_iter().filter_map(|(stream, node)| {
        let stream: TcpStream = stream?;
        stream.set_nonblocking(false).ok()?;
        Some(Neighbour { stream, node })
    });
    met.collect()
}

/// Accepts waiting connections; returns false if that fails.
fn accept_all(listeners: &[TcpListener], callers: &mut Vec<NeighbourCandidate>) -> bool {
    for listener in listeners {
        // The limit leaves time for the present callers during a flood of connections.
        for _ in 0..CALLERS_MOST {
            match listener.accept() {
                Ok((stream, _)) => callers.extend(NeighbourCandidate::accepted(stream).ok()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if is_passing(&e) => {}
                Err(_) => return false,
            }
        }
    }
    let too_many = callers.len().saturating_sub(CALLERS_MOST);
    callers.drain(..too_many);
    true
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

/// Returns the first caller that has proved its identity.
fn go_on(
    callers: &mut Vec<NeighbourCandidate>, pass: &Pass, ends: (u32, u32),
) -> Option<TcpStream> {
    let mut at = 0;
    while at < callers.len() {
        match callers[at].go_on(pass, ends) {
            Ok(false) => at += 1,
            Ok(true) => return Some(callers.remove(at).stream),
            Err(_) => drop(callers.remove(at)),
        }
    }
    None
}

struct Calls {
    addresses: Vec<SocketAddr>,
    /// Index of the next address to call.
    next: usize,
    next_at: Instant,
    /// Calls to repeat, and their times.
    again: Vec<(Instant, SocketAddr)>,
    repeated: u32,
    live: Vec<(SocketAddr, NeighbourCandidate)>,
}

impl Calls {
    fn to(card: Option<&NetworkCard>) -> Calls {
        let mut addresses = card.map(|card| card.addresses.clone()).unwrap_or_default();
        // Addresses that this host has too, such as that of a container bridge, lead back to this host, so they come
        // last.
        let own = list_addresses().unwrap_or_default();
        let is_own = |address: &IpAddr| own.iter().any(|other| other.address == *address);
        addresses.sort_by_key(is_own);
        let port = card.map_or(0, |card| card.port);
        let addresses = addresses.into_iter();
        Calls {
            addresses: addresses.map(|address| SocketAddr::new(address, port)).collect(),
            next: 0,
            next_at: Instant::now(),
            again: Vec::new(),
            repeated: 0,
            live: Vec::new(),
        }
    }

    /// Makes the calls that are due. Returns whether any call may still be answered.
    fn dial(&mut self, now: Instant) -> bool {
        while self.next < self.addresses.len() && (self.next_at <= now || self.live.is_empty()) {
            let address = self.addresses[self.next];
            self.call(address);
            (self.next, self.next_at) = (self.next + 1, now + APART);
        }
        let (due, later) = self.again.drain(..).partition(|(at, _)| *at <= now);
        self.again = later;
        let due: Vec<(Instant, SocketAddr)> = due;
        due.into_iter().for_each(|(_, address)| self.call(address));
        !self.live.is_empty() || !self.again.is_empty()
    }

    fn call(&mut self, address: SocketAddr) {
        match dial(address, None) {
            Ok(socket) => {
                let call = NeighbourCandidate::new(socket.into(), GreetingStep::Connecting);
                self.live.push((address, call));
            }
            // No descriptor is free; the call is repeated, because one may be closed.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                self.call_again(address);
            }
            Err(_) => {}
        }
    }

    /// Repeats the call to the address after a pause, unless it was repeated too often.
    fn call_again(&mut self, address: SocketAddr) {
        if self.repeated < AGAIN_MOST {
            self.repeated += 1;
            self.again.push((Instant::now() + PAUSE, address));
        }
    }

    /// Returns the time at which [`Calls::dial`] has work, or `end`.
    fn due(&self, end: Instant) -> Instant {
        let next = (self.next < self.addresses.len()).then_some(self.next_at);
        let again = self.again.iter().map(|(at, _)| *at);
        again.chain(next).min().unwrap_or(end)
    }

    /// Returns the first call that was answered by the right node.
    fn go_on(&mut self, pass: &Pass, ends: (u32, u32)) -> Option<TcpStream> {
        let mut at = 0;
        while at < self.live.len() {
            let (_, call) = &mut self.live[at];
            match call.go_on(pass, ends) {
                Ok(false) => at += 1,
                Ok(true) => return Some(self.live.swap_remove(at).1.stream),
                Err(_) => {
                    let (address, call) = self.live.swap_remove(at);
                    // No process listens at the address, or a stranger does.
                    if call.step != GreetingStep::Connecting {
                        self.call_again(address);
                    }
                }
            }
        }
        None
    }
}

/// Event for which a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GreetingStep {
    /// Connecting side: the connection.
    Connecting,
    /// Connecting side: the nonce.
    Greeting,
    /// Connecting side: the proof of the listening side.
    Answer,
    /// Listening side: the proof of the connecting side.
    Proof,
}

/// A connection that may lead to a neighbour.
struct NeighbourCandidate {
    stream: TcpStream,
    step: GreetingStep,
    nonce: [u8; NONCE],
    word: [u8; PROOF],
    got: usize,
}

impl NeighbourCandidate {
    fn new(stream: TcpStream, step: GreetingStep) -> NeighbourCandidate {
        NeighbourCandidate { stream, step, nonce: [0; NONCE], word: [0; PROOF], got: 0 }
    }

    /// Greets a peer that has connected.
    fn accepted(stream: TcpStream) -> io::Result<NeighbourCandidate> {
        stream.set_nonblocking(true)?;
        let mut caller = NeighbourCandidate::new(stream, GreetingStep::Proof);
        caller.nonce = draw_random()?;
        caller.say(&[&MAGIC[..], &caller.nonce].concat())?;
        Ok(caller)
    }

    /// Sends a few bytes, which a fresh connection accepts at once.
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        send_all(self.stream.as_fd(), bytes)
    }

    fn entry(&self) -> libc::pollfd {
        let events = match self.step {
            GreetingStep::Connecting => libc::POLLOUT,
            _ => libc::POLLIN,
        };
        poll_entry(self.stream.as_raw_fd(), events)
    }

    /// Returns whether the whole awaited message has arrived.
    fn has_read(&mut self, length: usize) -> io::Result<bool> {
        while self.got < length {
            match self.stream.read(&mut self.word[self.got..length]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.got += bytes,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.got = 0;
        Ok(true)
    }

    /// Takes the next possible step. `(from, to)` are the connecting and the listening node. Returns whether the other
    /// end has proved to be the other node.
    fn go_on(&mut self, pass: &Pass, (from, to): (u32, u32)) -> io::Result<bool> {
        let wrong = || io::Error::from(ErrorKind::InvalidData);
        if self.step == GreetingStep::Connecting {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            match self.stream.peer_addr() {
                Err(e) if e.kind() == ErrorKind::NotConnected => return Ok(false),
                other => other?,
            };
            self.step = GreetingStep::Greeting;
        }
        if self.step == GreetingStep::Greeting {
            if !self.has_read(GREETING)? {
                return Ok(false);
            }
            if self.word[..MAGIC.len()] != MAGIC {
                return Err(wrong());
            }
            self.nonce.copy_from_slice(&self.word[MAGIC.len()..GREETING]);
            let tag = pass.tag(PURPOSE, &self.nonce, from, to);
            self.say(&[&from.to_le_bytes()[..], &tag].concat())?;
            self.step = GreetingStep::Answer;
        }
        let (length, ends) = match self.step {
            GreetingStep::Answer => (TAG, (to, from)),
            _ => (PROOF, (from, to)),
        };
        if !self.has_read(length)? {
            return Ok(false);
        }
        let tag: &[u8; TAG] = self.word[length - TAG..length].try_into().map_err(|_| wrong())?;
        if !pass.is_tag(tag, PURPOSE, &self.nonce, ends) {
            return Err(wrong());
        }
        if self.step == GreetingStep::Proof {
            if self.word[..4] != from.to_le_bytes() {
                return Err(wrong());
            }
            self.say(&pass.tag(PURPOSE, &self.nonce, to, from))?;
        }
        Ok(true)
    }
}

const PURPOSE: &[u8] = b"ring";

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::node::card::SECRET_BYTES;
    use crate::node::tests::{is_alone, take_descriptors};
    use std::io::Write;

    const PASS: Pass = Pass { job_id: 1, secret: [1; SECRET_BYTES] };

    fn listen(addresses: &[&str]) -> (TcpListener, NetworkCard) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let card = NetworkCard {
            host: "here".into(),
            port: listener.local_addr().unwrap().port(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        };
        (listener, card)
    }

    /// Returns the connection by which node 2 of 3 reaches node 0, if it does.
    fn reach(pass: &Pass, card: &NetworkCard) -> Option<TcpStream> {
        let mut found = close_ring(pass, &[], Some(card), 2, 3);
        found.pop().map(|neighbour| neighbour.stream)
    }

    #[test]
    fn neighbour__is_who_proves_that_it_is_of_the_job() {
        let (listener, card) = listen(&["127.0.0.1"]);
        let other = Pass { secret: [2; SECRET_BYTES], ..PASS };
        let address = SocketAddr::new(card.addresses[0], card.port);
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| close_ring(&PASS, &[listener], None, 0, 3));
            // A closed connection, garbage, silence, another secret, another node: none is accepted, and none delays
            // the others.
            drop(TcpStream::connect(address).unwrap());
            let silent = [(); 150].map(|()| TcpStream::connect(address).unwrap());
            let mut garbage = TcpStream::connect(address).unwrap();
            garbage.write_all(&[7; 100]).unwrap();
            assert!(reach(&other, &card).is_none());
            assert!(close_ring(&PASS, &[], Some(&card), 1, 3).is_empty());
            let mut good = reach(&PASS, &card).unwrap();
            let mut taken = accepted.join().unwrap().pop().unwrap();
            assert_eq!(taken.node, 2);
            taken.stream.write_all(b"x").unwrap();
            let mut word = [0];
            good.read_exact(&mut word).unwrap();
            assert_eq!(word, *b"x");
            drop(silent);
        });
    }

    #[test]
    fn neighbour__is_reached_past_addresses_that_lead_nowhere_or_to_somebody_silent() {
        let (silent, _) = listen(&["127.0.0.1"]);
        let port = silent.local_addr().unwrap().port();
        let listener = TcpListener::bind(("127.0.0.2", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let card = NetworkCard {
            host: "here".into(),
            port,
            addresses: ["127.0.0.3", "127.0.0.1", "127.0.0.2"].map(|a| a.parse().unwrap()).to_vec(),
        };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| close_ring(&PASS, &[listener], None, 0, 3));
            assert!(reach(&PASS, &card).is_some());
            assert_eq!(accepted.join().unwrap().len(), 1);
        });
    }

    #[test]
    fn neighbour__is_called_again_where_no_descriptor_is_left() {
        if !is_alone("neighbour__is_called_again_where_no_descriptor_is_left") {
            return;
        }
        let (listener, card) = listen(&["127.0.0.1"]);
        let mut calls = Calls::to(Some(&card));
        let mut taken = take_descriptors();
        let mut now = Instant::now();
        assert!(calls.dial(now));
        assert!(calls.live.is_empty() && calls.again.len() == 1);
        taken.pop();
        now = calls.again[0].0;
        assert!(calls.dial(now));
        assert!(calls.live.len() == 1 && calls.again.is_empty());
        // The attempts end after a limit.
        calls.live.clear();
        taken.extend(take_descriptors());
        calls.call(SocketAddr::new(card.addresses[0], card.port));
        for _ in 0..AGAIN_MOST {
            let Some((at, _)) = calls.again.first() else {
                break;
            };
            calls.dial(*at);
        }
        assert!(!calls.dial(now) && calls.repeated == AGAIN_MOST);
        drop((listener, taken));
    }

    #[test]
    fn neighbour__is_taken_with_the_last_descriptor() {
        if !is_alone("neighbour__is_taken_with_the_last_descriptor") {
            return;
        }
        let (listener, card) = listen(&["127.0.0.1"]);
        let mut taken = take_descriptors();
        // A call and its other end need two descriptors.
        taken.truncate(taken.len() - 2);
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| close_ring(&PASS, &[listener], None, 0, 3));
            assert!(reach(&PASS, &card).is_some());
            assert_eq!(accepted.join().unwrap().len(), 1);
        });
        drop(taken);
    }

    #[test]
    fn ring__is_closed_by_all_nodes_at_once() {
        let places = [(); 4].map(|()| listen(&["127.0.0.1"]));
        for nodes in [2, 4] {
            let close = |own: usize| {
                let next = &places[(own + 1) % nodes].1;
                let listener = [places[own].0.try_clone().unwrap()];
                close_ring(&PASS, &listener, Some(next), own as u32, nodes as u32)
            };
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..nodes).map(|own| scope.spawn(move || close(own))).collect();
                for (own, one) in all.into_iter().enumerate() {
                    let found: Vec<u32> = one.join().unwrap().iter().map(|n| n.node).collect();
                    let wanted = [own + 1, own + nodes - 1].map(|node| (node % nodes) as u32);
                    assert_eq!(found, wanted);
                }
            });
        }
    }
}
