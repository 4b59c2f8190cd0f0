//! How the leaders of all nodes close the ring, each with the next one and the one before, all at the same time.
//!
//! The listening side sends a nonce, the connecting side proves that it is of the job, and the listening side proves it
//! in its answer: keyed hashes (BLAKE3) under the job's secret. The addresses of the next node are tried one after the
//! other, and all callers are served at once: a dead address or a silent stranger holds up no other.

use super::Neighbour;
use crate::job::join::channel::send_all;
use crate::job::join::watch::{poll_entry, poll_for};
use crate::network::NetworkCard;
use crate::network::interfaces::list_addresses;
use crate::network::ports::dial;
use crate::network::proof::{Pass, TAG};
use crate::network::random::draw_random;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"FPr1";
const NONCE: usize = 16;
/// What the listening side sends first.
const GREETING: usize = MAGIC.len() + NONCE;
/// Who connects, and its proof.
const PROOF: usize = 4 + TAG;
/// How long the leaders of all nodes may be apart in `MPI_Init`.
const TOGETHER: Duration = Duration::from_secs(20);
/// Between calls to two addresses.
const APART: Duration = Duration::from_millis(250);
/// Until a call is made again on which the other end has hung up, and until it is tried again to accept where that
/// failed: no descriptor may be left.
const PAUSE: Duration = Duration::from_millis(20);
/// Calls that are made again, at most: a flood of strangers may push one out.
const AGAIN_MOST: u32 = 100;
/// Callers that have proved nothing, at most; the oldest goes for the next one.
const CALLERS_MOST: usize = 64;

/// Connects this node, one of `nodes`, with the next one and the one before, as all do at this time. A neighbour that
/// is not reached, or does not come, is not watched.
pub fn close_ring(
    pass: &Pass, listeners: &[TcpListener], next: Option<&NetworkCard>, own: u32, nodes: u32,
) -> Vec<Neighbour> {
    let (after, before) = ((own + 1) % nodes, (own + nodes - 1) % nodes);
    let mut calls = Calls::to(next);
    let mut callers: Vec<Candidate> = Vec::new();
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
        entries.extend(candidates.map(Candidate::entry));
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

/// Takes those who have connected; false where that fails.
fn accept_all(listeners: &[TcpListener], callers: &mut Vec<Candidate>) -> bool {
    for listener in listeners {
        // A flood of them leaves time for those who are there.
        for _ in 0..CALLERS_MOST {
            match listener.accept() {
                Ok((stream, _)) => callers.extend(Candidate::accepted(stream).ok()),
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

/// The first of the callers that has proved who it is.
fn go_on(callers: &mut Vec<Candidate>, pass: &Pass, ends: (u32, u32)) -> Option<TcpStream> {
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

/// The calls to the next node's leader.
struct Calls {
    addresses: Vec<SocketAddr>,
    /// The next address to call, and when.
    next: usize,
    next_at: Instant,
    /// Calls to make again, and when.
    again: Vec<(Instant, SocketAddr)>,
    repeated: u32,
    live: Vec<(SocketAddr, Candidate)>,
}

impl Calls {
    fn to(card: Option<&NetworkCard>) -> Calls {
        let mut addresses = card.map(|card| card.addresses.clone()).unwrap_or_default();
        // Addresses that this host has too (a bridge of containers, say) lead to itself: they come last.
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

    /// Makes the calls that are due; whether any is left that may be answered.
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
                let call = Candidate::new(socket.into(), GreetingStep::Connecting);
                self.live.push((address, call));
            }
            // No descriptor is left: one may be given back.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                self.call_again(address);
            }
            Err(_) => {}
        }
    }

    /// Calls the address once more, after a pause, as long as that was not done too often.
    fn call_again(&mut self, address: SocketAddr) {
        if self.repeated < AGAIN_MOST {
            self.repeated += 1;
            self.again.push((Instant::now() + PAUSE, address));
        }
    }

    /// When [`Calls::dial`] has something to do; `end` where it has not.
    fn due(&self, end: Instant) -> Instant {
        let next = (self.next < self.addresses.len()).then_some(self.next_at);
        let again = self.again.iter().map(|(at, _)| *at);
        again.chain(next).min().unwrap_or(end)
    }

    /// The first of the calls that was answered by the right one.
    fn go_on(&mut self, pass: &Pass, ends: (u32, u32)) -> Option<TcpStream> {
        let mut at = 0;
        while at < self.live.len() {
            let (_, call) = &mut self.live[at];
            match call.go_on(pass, ends) {
                Ok(false) => at += 1,
                Ok(true) => return Some(self.live.swap_remove(at).1.stream),
                Err(_) => {
                    let (address, call) = self.live.swap_remove(at);
                    // Nobody listens there, or another one does.
                    if call.step != GreetingStep::Connecting {
                        self.call_again(address);
                    }
                }
            }
        }
        None
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GreetingStep {
    /// Of the connecting side: that it is there.
    Connecting,
    /// Of the same: the nonce.
    Greeting,
    /// Of the same: the proof of the listening side.
    Answer,
    /// Of the listening side: the proof of the connecting one.
    Proof,
}

/// A connection that may lead to a neighbour.
struct Candidate {
    stream: TcpStream,
    step: GreetingStep,
    nonce: [u8; NONCE],
    word: [u8; PROOF],
    got: usize,
}

impl Candidate {
    fn new(stream: TcpStream, step: GreetingStep) -> Candidate {
        Candidate { stream, step, nonce: [0; NONCE], word: [0; PROOF], got: 0 }
    }

    /// One that a peer has made, and is greeted.
    fn accepted(stream: TcpStream) -> io::Result<Candidate> {
        stream.set_nonblocking(true)?;
        let mut caller = Candidate::new(stream, GreetingStep::Proof);
        caller.nonce = draw_random()?;
        caller.say(&[&MAGIC[..], &caller.nonce].concat())?;
        Ok(caller)
    }

    /// A fresh connection takes so few bytes at once.
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

    /// Whether all of the word that is awaited has come.
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

    /// Does what can be done now. `(from, to)`: the nodes of who connects and who listens. Whether the other end has
    /// proved that it is the other one of the two.
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

/// For what the proofs of this file are.
const PURPOSE: &[u8] = b"ring";

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::join::card::SECRET_BYTES;
    use crate::job::join::tests::{is_alone, take_descriptors};
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

    /// The connection by which node 2 of 3 reaches node 0, if it does.
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
            // Nobody, garbage, silence, another secret, another node: none of them is taken, none holds up the others.
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
        // There is no end to it: it is given up.
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
        // For a call, and for who answers it.
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
