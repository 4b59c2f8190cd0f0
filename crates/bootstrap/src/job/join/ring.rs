//! Nodes watch each other: the leader of each has a connection to that of the next one. One that ends without a word,
//! or whose other end is silent, means that the node is gone with all its ranks, and has the job ended. An engine may
//! take no notice of that, and a rank that waits for one of them may never have had a connection to it.
//!
//! Who listens says a nonce, who connects proves that it is of the job, and so does who listens in its answer: keyed
//! hashes (BLAKE3) under the job's secret.

use super::card::SECRET_BYTES;
use super::watch::{end_job, poll_in, wait_a_second};
use crate::engine::Aborter;
use crate::job::Job;
use crate::network::interfaces::list_addresses;
use crate::network::ports::set_option;
use crate::network::random::draw_random;
use crate::network::{self, NetworkCard, Reach};
use crate::segment::FailureKind;
use fastpath_base::config::Config;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::thread::without_signals;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"FPr1";
const NONCE: usize = 16;
/// Who connects, and its proof.
const PROOF: usize = 4 + blake3::OUT_LEN;
/// The node's ranks have all finalized MPI.
const BYE: u8 = b'B';
/// How long a connection to one address may take, and an answer of who was reached.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the leaders of all nodes may be apart in `MPI_Init`.
const TOGETHER: Duration = Duration::from_secs(20);
/// Between two tries to accept a caller.
const AGAIN: Duration = Duration::from_millis(5);
/// Seconds of silence until a connection is tried, between two such tries, and how many of them.
const KEEPALIVE: [i32; 3] = [10, 2, 3];

/// Opens the socket on which a node's leader is reached by that of the node before; None where none can be had: then
/// the nodes do without.
pub fn open(config: &Config, ranks: usize) -> Option<(TcpListener, NetworkCard)> {
    // The leader's own is one more than its ranks need.
    let (listener, card) = network::open(config, Reach::Network, ranks + 1).ok()?;
    let listener = TcpListener::from(listener.as_fd().try_clone_to_owned().ok()?);
    Some((listener, card))
}

/// What proves that somebody is of the job.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The job's number.
    pub job_id: u64,
    /// Its secret.
    pub secret: [u8; SECRET_BYTES],
}

/// A connection to another node's leader, and the number of that node.
#[derive(Debug)]
pub struct Neighbour {
    stream: TcpStream,
    node: u32,
}

/// Connects this node, one of `nodes`, with the next one and the one before, as all do at this time. A neighbour that
/// is not reached, or does not come, is not watched.
pub fn close_ring(
    pass: &Pass,
    listener: &TcpListener,
    next: Option<&NetworkCard>,
    own: u32,
    nodes: u32,
) -> Vec<Neighbour> {
    let (after, before) = ((own + 1) % nodes, (own + nodes - 1) % nodes);
    let (connected, accepted) = std::thread::scope(|scope| {
        let accepted = without_signals(|| scope.spawn(|| accept(pass, listener, before, own)));
        let connected = next.and_then(|card| connect(pass, card, own, after).ok());
        (connected, accepted.join().unwrap_or_default())
    });
    let connected = connected.map(|stream| (stream, after));
    let both = connected
        .into_iter()
        .chain(accepted.map(|stream| (stream, before)));
    both.map(|(stream, node)| Neighbour { stream, node })
        .collect()
}

/// The connections to both neighbours, as far as they are there.
#[derive(Debug, Default)]
pub struct Ring {
    streams: Mutex<Vec<TcpStream>>,
    left: StaticBool,
}

impl Ring {
    /// All ranks of this node have finalized MPI: its end is no failure.
    pub fn leave(&self) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: release; partner is the load where a connection has ended.
        self.left.store(true, Ordering::Release);
        for stream in streams.iter() {
            say_bye(stream);
        }
    }

    fn has_left(&self) -> bool {
        // ORDERING: acquire; partner is the store in `leave`.
        self.left.load(Ordering::Acquire)
    }

    /// Keeps a connection, so that the end is told over it.
    fn keep(&self, stream: &TcpStream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match stream.try_clone() {
            Ok(_) if self.has_left() => say_bye(stream),
            Ok(copy) => streams.push(copy),
            Err(_) => {}
        }
    }
}

fn say_bye(stream: &TcpStream) {
    let _ = super::channel::send_all(stream.as_fd(), &[BYE]);
}

/// What runs in a thread of a leader.
pub type Watch = Box<dyn FnOnce() + Send>;

/// What there is to do: to watch each neighbour.
pub fn list_watches(
    job: &'static Job,
    aborter: &Arc<Aborter>,
    ring: &Arc<Ring>,
    neighbours: Vec<Neighbour>,
) -> Vec<Watch> {
    let watch = |neighbour| {
        let (aborter, ring) = (aborter.clone(), ring.clone());
        Box::new(move || watch(job, &aborter, &ring, neighbour)) as Watch
    };
    neighbours.into_iter().map(watch).collect()
}

/// Reaches the leader of a node, by the first of its addresses that answers as it must.
fn connect(pass: &Pass, card: &NetworkCard, own: u32, node: u32) -> io::Result<TcpStream> {
    let mut refused = io::Error::other("it has no address");
    // Addresses that this host has too (a bridge of containers, say) lead to itself: they come last.
    let own_addresses = list_addresses().unwrap_or_default();
    let is_own = |address: &IpAddr| own_addresses.iter().any(|other| other.address == *address);
    let mut addresses = card.addresses.clone();
    addresses.sort_by_key(is_own);
    for address in addresses {
        let reached = TcpStream::connect_timeout(&SocketAddr::new(address, card.port), LIMIT);
        match reached.and_then(|stream| prove(pass, stream, own, node)) {
            Ok(stream) => return Ok(stream),
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

fn prove(pass: &Pass, mut stream: TcpStream, own: u32, node: u32) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(TOGETHER))?;
    let mut said = [0; MAGIC.len() + NONCE];
    stream.read_exact(&mut said)?;
    let (magic, nonce) = said.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut proof = own.to_le_bytes().to_vec();
    proof.extend_from_slice(make_tag(pass, nonce, own, node).as_bytes());
    super::channel::send_all(stream.as_fd(), &proof)?;
    let mut answer = [0; blake3::OUT_LEN];
    stream.read_exact(&mut answer)?;
    if make_tag(pass, nonce, node, own) != answer {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// The connection of the node before; None where it does not come.
fn accept(pass: &Pass, listener: &TcpListener, before: u32, own: u32) -> Option<TcpStream> {
    let since = Instant::now();
    loop {
        let left = TOGETHER.checked_sub(since.elapsed())?;
        poll_in(listener.as_raw_fd(), left.as_millis() as i32);
        // Nobody has come, or one who has gone again.
        let Ok((stream, _)) = listener.accept() else {
            // Where there are no descriptors left, the caller stays there.
            std::thread::park_timeout(AGAIN);
            continue;
        };
        let blocks = stream.set_nonblocking(false);
        if blocks
            .and_then(|()| check(pass, &stream, before, own))
            .unwrap_or(false)
        {
            return Some(stream);
        }
    }
}

/// Whether who has connected is the leader of the node before.
fn check(pass: &Pass, mut stream: &TcpStream, before: u32, own: u32) -> io::Result<bool> {
    stream.set_read_timeout(Some(LIMIT))?;
    let nonce: [u8; NONCE] = draw_random()?;
    super::channel::send_all(stream.as_fd(), &[&MAGIC[..], &nonce].concat())?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof)?;
    stream.set_read_timeout(None)?;
    let (from, tag) = proof.split_at(4);
    let tag: [u8; blake3::OUT_LEN] = tag.try_into().unwrap_or([0; blake3::OUT_LEN]);
    // Compared in a time that does not depend on where they differ.
    let is_it = from == before.to_le_bytes() && make_tag(pass, &nonce, before, own) == tag;
    if is_it {
        let answer = make_tag(pass, &nonce, own, before);
        super::channel::send_all(stream.as_fd(), answer.as_bytes())?;
    }
    Ok(is_it)
}

fn make_tag(pass: &Pass, nonce: &[u8], from: u32, to: u32) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&pass.secret);
    hasher.update(b"ring").update(&pass.job_id.to_le_bytes());
    hasher.update(&from.to_le_bytes()).update(&to.to_le_bytes());
    hasher.update(nonce).finalize()
}

/// Waits for a neighbour's end, and has the job ended if that comes without a word.
fn watch(job: &'static Job, aborter: &Aborter, ring: &Ring, neighbour: Neighbour) {
    let Neighbour { mut stream, node } = neighbour;
    let _ = set_keepalive(&stream);
    ring.keep(&stream);
    let mut word = [0];
    let said = loop {
        match stream.read(&mut word) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    if matches!(said, Ok(1)) && word == [BYE] || ring.has_left() {
        return;
    }
    // Where the engine ends the job, it comes here too in this time, and has said why.
    wait_a_second();
    let mut ranks = (0..job.present()).filter(|&rank| job.host(rank) == node);
    let lowest = ranks.next().unwrap_or(0);
    if job.header().failure.record(FailureKind::Gone, lowest, 1) {
        let host = job
            .network_card(lowest)
            .map_or_else(String::new, |card| card.host);
        let others = match ranks.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let text = format!(
            "fastpath: rank {lowest} on {host}{others}: the host has gone, or does not answer any \
             more, or its ranks were ended without a word\n"
        );
        let _ = io::stderr().write_all(text.as_bytes());
    }
    end_job(job, aborter, 1);
}

/// Has the kernel find out that the other end is silent.
fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let fd = stream.as_raw_fd();
    let [idle, interval, count] = KEEPALIVE;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count)
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn listen() -> (TcpListener, NetworkCard) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let card = NetworkCard {
            host: "here".into(),
            port: listener.local_addr().unwrap().port(),
            addresses: vec!["127.0.0.1".parse().unwrap()],
        };
        (listener, card)
    }

    #[test]
    fn neighbour__is_who_proves_that_it_is_of_the_job() {
        let (listener, card) = listen();
        let pass = Pass {
            job_id: 1,
            secret: [1; SECRET_BYTES],
        };
        let other = Pass {
            secret: [2; SECRET_BYTES],
            ..pass
        };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| accept(&pass, &listener, 2, 0));
            // Nobody, garbage, another secret, another node: none of them is taken.
            let address = SocketAddr::new(card.addresses[0], card.port);
            drop(TcpStream::connect(address).unwrap());
            let mut garbage = TcpStream::connect(address).unwrap();
            garbage.write_all(&[7; 100]).unwrap();
            assert!(connect(&other, &card, 2, 0).is_err());
            assert!(connect(&pass, &card, 1, 0).is_err());
            let mut good = connect(&pass, &card, 2, 0).unwrap();
            let mut taken = accepted.join().unwrap().unwrap();
            taken.write_all(&[BYE]).unwrap();
            let mut word = [0];
            good.read_exact(&mut word).unwrap();
            assert_eq!(word, [BYE]);
        });
    }

    #[test]
    fn ring__is_closed_by_all_nodes_at_once() {
        let pass = Pass {
            job_id: 1,
            secret: [1; SECRET_BYTES],
        };
        let places = [(); 4].map(|()| listen());
        for (listener, _) in &places {
            listener.set_nonblocking(true).unwrap();
        }
        for nodes in [2, 4] {
            let close = |own: usize| {
                let next = &places[(own + 1) % nodes].1;
                close_ring(&pass, &places[own].0, Some(next), own as u32, nodes as u32)
            };
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..nodes)
                    .map(|own| scope.spawn(move || close(own)))
                    .collect();
                for (own, one) in all.into_iter().enumerate() {
                    let found: Vec<u32> = one.join().unwrap().iter().map(|n| n.node).collect();
                    let wanted = [own + 1, own + nodes - 1].map(|node| (node % nodes) as u32);
                    assert_eq!(found, wanted);
                }
            });
        }
    }

    #[test]
    fn ring__says_good_bye_over_connections_of_any_time() {
        let (listener, card) = listen();
        let address = SocketAddr::new(card.addresses[0], card.port);
        let pair = || {
            (
                TcpStream::connect(address).unwrap(),
                listener.accept().unwrap().0,
            )
        };
        let ((early, mut far_early), (late, mut far_late)) = (pair(), pair());
        let ring = Ring::default();
        ring.keep(&early);
        ring.leave();
        ring.keep(&late);
        for far in [&mut far_early, &mut far_late] {
            let mut word = [0];
            far.read_exact(&mut word).unwrap();
            assert_eq!(word, [BYE]);
        }
    }
}
