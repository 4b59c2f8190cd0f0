//! Connections between agents while the job runs, with one request and one answer each.
//!
//! The called side sends a nonce. Both sides prove by a keyed hash under the job's secret that they belong to the job.
//! Then the request follows, as on a rank's socket. The first agent answers for names and spawns. Each agent answers
//! for the ports of its ranks.

use fastpath_base::entropy::draw_random;
use fastpath_job::control::{Answer, MESSAGE_MOST, Request, frame};
use fastpath_job::network::interfaces::list_addresses;
use fastpath_job::network::proof::{Pass, TAG};
use fastpath_job::network::{Listener, NetworkCard};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Size of a nonce, in bytes.
pub const NONCE: usize = 16;
/// Size of a caller's proof, in bytes: its node's number and a tag.
pub const PROOF_BYTES: usize = 4 + TAG;

const CALLS: &[u8] = b"fastpath agent calls";
const ANSWERS: &[u8] = b"fastpath agent answers";

/// Time limits of a connection attempt (`CALL`) and of an answer (`ANSWER`). The second is longer, because the called
/// agent may call others before it answers.
const CALL: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(20);
/// Number of attempts for each address. A flood of unauthenticated callers may displace an attempt's connection.
const ROUNDS: u32 = 3;

pub struct AgentListener {
    listeners: Vec<TcpListener>,
    pass: Pass,
    node: u32,
}

impl std::fmt::Debug for AgentListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentListener").field("node", &self.node).finish()
    }
}

impl AgentListener {
    pub fn new(listener: Listener, pass: Pass, node: u32) -> AgentListener {
        let sockets: Vec<OwnedFd> = listener.into();
        AgentListener {
            listeners: sockets.into_iter().map(TcpListener::from).collect(),
            pass,
            node,
        }
    }

    pub fn listeners(&self) -> &[TcpListener] {
        &self.listeners
    }

    /// Accepts the pending callers and sends each a nonce. Returns each caller's socket with its nonce.
    pub fn accept(&self) -> io::Result<Vec<(OwnedFd, [u8; NONCE])>> {
        use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        let mut met = Vec::new();
        for listener in &self.listeners {
            loop {
                let mut stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(e) if e.kind() == WouldBlock => break,
                    Err(e) if matches!(e.kind(), ConnectionAborted | Interrupted) => continue,
                    Err(e) => return Err(e),
                };
                let greet = |nonce: [u8; NONCE]| {
                    stream.set_nonblocking(true)?;
                    stream.write_all(&nonce).map(|()| nonce)
                };
                if let Ok(nonce) = draw_random().and_then(greet) {
                    met.push((stream.into(), nonce));
                }
            }
        }
        Ok(met)
    }

    /// Returns this node's proof for a caller whose `proof` is valid; None if `proof` is invalid.
    pub fn prove(&self, nonce: &[u8; NONCE], proof: &[u8; PROOF_BYTES]) -> Option<[u8; TAG]> {
        let (from, tag) = proof.split_first_chunk::<4>()?;
        let from = u32::from_le_bytes(*from);
        let ends = (from, self.node);
        let is_known = self.pass.is_tag(tag.first_chunk()?, CALLS, nonce, ends);
        is_known.then(|| self.pass.tag(ANSWERS, nonce, self.node, from))
    }
}

/// Addresses of the agents of all nodes, as used by the agent of one node.
#[derive(Clone)]
pub struct Peers {
    pass: Pass,
    node: u32,
    cards: Arc<Vec<NetworkCard>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("node", &self.node).finish()
    }
}

impl Peers {
    pub fn new(pass: Pass, node: usize, cards: Vec<NetworkCard>) -> Peers {
        Peers { pass, node: node as u32, cards: Arc::new(cards) }
    }

    pub fn nodes(&self) -> usize {
        self.cards.len()
    }

    pub fn host(&self, node: usize) -> &str {
        self.cards.get(node).map_or("", |card| &card.host)
    }

    /// Sends a request to an agent, and waits for the answer.
    pub fn ask(&self, node: usize, request: &Request) -> Result<Answer, String> {
        self.try_ask(node, request).map_err(|error| self.describe_silence(node, &error))
    }

    /// Sends a request like [`Peers::ask`], with an error that callers can inspect.
    pub fn try_ask(&self, node: usize, request: &Request) -> io::Result<Answer> {
        let mut stream = self.call(node)?;
        stream.write_all(&frame(&request.encode()))?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_MOST {
            return Err(io::Error::other("the reply is too long"));
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message)?;
        let answer = Answer::decode(&message);
        answer.ok_or_else(|| io::Error::other("the reply is invalid"))
    }

    /// Returns the error text for an agent that does not answer.
    pub fn describe_silence(&self, node: usize, error: &io::Error) -> String {
        let host = self.host(node);
        format!(
            "mpiexec on host {host} sends no valid reply ({error}); all ranks on this host may \
             have ended"
        )
    }

    /// Reports to the first agent that this node's ranks run, until this process ends. The returned channel disconnects
    /// when the first agent has the report or cannot be reached.
    pub fn stay(&self) -> Receiver<()> {
        let peers = self.clone();
        let (telling, told) = channel();
        let stay = move || {
            let Ok(mut stream) = peers.call(0) else {
                return;
            };
            let _ = stream.set_read_timeout(None);
            if stream.write_all(&frame(&Request::Stay.encode())).is_ok() {
                // The answer arrives at once. The connection then stays open until one process ends.
                let mut telling: Option<Sender<()>> = Some(telling);
                loop {
                    match stream.read(&mut [0; 64]) {
                        Ok(0) => return,
                        Err(e) if e.kind() != ErrorKind::Interrupted => return,
                        _ => drop(telling.take()),
                    }
                }
            }
        };
        let _ = thread::Builder::new().stack_size(1 << 17).spawn(stay);
        told
    }

    /// Opens the connection on which the first agent sends standard input.
    pub fn open_input(&self) -> io::Result<TcpStream> {
        let mut stream = self.call(0)?;
        stream.set_read_timeout(None)?;
        stream.write_all(&frame(&Request::Input.encode()))?;
        Ok(stream)
    }

    fn call(&self, node: usize) -> io::Result<TcpStream> {
        let Some(card) = self.cards.get(node) else {
            return Err(io::Error::other("the job has fewer hosts"));
        };
        let own = list_addresses().unwrap_or_default();
        let is_own = |address: &IpAddr| own.iter().any(|found| found.address == *address);
        let mut addresses = card.addresses.clone();
        // Try the addresses of container bridges last: all hosts have them, so they lead back to this host.
        addresses.sort_by_key(|address| address.is_loopback() || is_own(address));
        let mut failed = io::Error::other("its address is not known");
        for _ in 0..ROUNDS {
            for &address in &addresses {
                match self.greet(SocketAddr::new(address, card.port), node as u32) {
                    Ok(stream) => return Ok(stream),
                    Err(e) => failed = e,
                }
            }
            // After an end of file or a time-out, try again: the process may not accept callers yet.
            if !matches!(failed.kind(), ErrorKind::UnexpectedEof | ErrorKind::WouldBlock) {
                break;
            }
        }
        Err(failed)
    }

    fn greet(&self, to: SocketAddr, node: u32) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&to, CALL)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CALL))?;
        // If the called process stops after the greeting, the kernel buffers only part of a long request. Without a
        // time limit, the write of the rest would never return.
        stream.set_write_timeout(Some(ANSWER))?;
        let mut nonce = [0; NONCE];
        stream.read_exact(&mut nonce)?;
        let mut proof = self.node.to_le_bytes().to_vec();
        proof.extend(self.pass.tag(CALLS, &nonce, self.node, node));
        stream.write_all(&proof)?;
        let mut tag = [0; TAG];
        stream.read_exact(&mut tag)?;
        match self.pass.is_tag(&tag, ANSWERS, &nonce, (node, self.node)) {
            true => stream.set_read_timeout(Some(ANSWER)).map(|()| stream),
            false => Err(io::Error::other("a process of another job replies at its address")),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::config::Config;
    use fastpath_job::network::{self, Reach};

    const PASS: Pass = Pass { job_id: 7, secret: [3; 32] };

    fn make_door(pass: Pass) -> (AgentListener, NetworkCard) {
        let (listener, card) = network::open(&Config::defaults(), Reach::Node, 1).unwrap();
        (AgentListener::new(listener, pass, 0), card)
    }

    /// Greets a listener that accepts one caller and checks its proof.
    fn greet(door: &AgentListener, peers: Peers) -> io::Result<TcpStream> {
        let card = peers.cards[0].clone();
        let to = SocketAddr::new(card.addresses[0], card.port);
        let caller = thread::spawn(move || peers.greet(to, 0));
        let (stream, nonce) = loop {
            if let Some(met) = door.accept().unwrap().pop() {
                break met;
            }
            thread::yield_now();
        };
        let mut stream = TcpStream::from(stream);
        stream.set_nonblocking(false).unwrap();
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).unwrap();
        if let Some(answer) = door.prove(&nonce, &proof) {
            stream.write_all(&answer).unwrap();
        }
        drop(stream);
        caller.join().unwrap()
    }

    #[test]
    fn agents__meet_where_both_know_the_secret() {
        let (door, card) = make_door(PASS);
        assert!(greet(&door, Peers::new(PASS, 1, vec![card])).is_ok());
    }

    #[test]
    fn agents__of_another_job_or_secret_are_turned_away() {
        let other = Pass { secret: [4; 32], ..PASS };
        let (door, card) = make_door(PASS);
        for pass in [other, Pass { job_id: 8, ..PASS }] {
            assert!(greet(&door, Peers::new(pass, 1, vec![card.clone()])).is_err());
        }
    }

    #[test]
    fn agent__that_has_ended_is_named() {
        let (door, card) = make_door(PASS);
        drop(door);
        let peers = Peers::new(PASS, 1, vec![card]);
        let error = peers.ask(0, &Request::Stay).unwrap_err();
        assert!(error.contains("all ranks on this host may have ended"), "{error}");
    }
}
