//! Nodes watch each other: the leader of each has a connection to that of the next one. One that ends without a word,
//! or whose other end is silent, means that the node is gone with all its ranks, and has the job ended. An engine may
//! take no notice of that, and a rank that waits for one of them may never have had a connection to it.
//!
//! Who listens says a nonce, who connects proves that it is of the job: by a keyed hash (BLAKE3) under the job's secret.

use super::watch::{end_job, wait_a_second};
use crate::engine::Aborter;
use crate::job::Job;
use crate::network::ports::set_option;
use crate::network::{self, NetworkCard, Reach};
use crate::segment::FailureKind;
use fastpath_base::config::Config;
use fastpath_base::sync::{Ordering, StaticBool};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const MAGIC: [u8; 4] = *b"FPr1";
const NONCE: usize = 16;
/// Who connects, and its proof.
const PROOF: usize = 4 + blake3::OUT_LEN;
/// The node's ranks have all finalized MPI.
const BYE: u8 = b'B';
/// How long a connection to one address may take, and an answer of who was reached.
const LIMIT: Duration = Duration::from_secs(5);
/// A leader is in `MPI_Init` until it answers, as all are.
const ANSWER: Duration = Duration::from_secs(60);
/// Seconds of silence until a connection is tried, between two such tries, and how many of them.
const KEEPALIVE: [i32; 3] = [10, 2, 3];

/// Opens the socket on which a node's leader is reached by that of the node before; None where none can be had: then
/// the nodes do without.
pub fn open(config: &Config, ranks: usize) -> Option<(TcpListener, NetworkCard)> {
    // The leader's own is one more than its ranks need.
    let (listener, card) = network::open(config, Reach::Network, ranks + 1).ok()?;
    let listener = TcpListener::from(listener.as_fd().try_clone_to_owned().ok()?);
    listener.set_nonblocking(false).ok()?;
    Some((listener, card))
}

/// The places of a node and its neighbours.
#[derive(Debug)]
pub struct Neighbours {
    /// Where the one before connects to.
    pub listener: TcpListener,
    /// This node's number.
    pub own: u32,
    /// How many nodes there are, two at least.
    pub nodes: u32,
    /// Where the leader of the next node is reached.
    pub next: NetworkCard,
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

/// What runs in the two threads of a leader.
pub type Watch = Box<dyn FnOnce() + Send>;

/// The two things to do: to watch the next node, and the one before.
pub fn list_watches(
    job: &'static Job,
    aborter: &Arc<Aborter>,
    ring: &Arc<Ring>,
    neighbours: Neighbours,
) -> [Watch; 2] {
    let Neighbours {
        listener,
        own,
        nodes,
        next,
    } = neighbours;
    let (after, before) = ((own + 1) % nodes, (own + nodes - 1) % nodes);
    let (aborters, rings) = (
        [aborter.clone(), aborter.clone()],
        [ring.clone(), ring.clone()],
    );
    let [first_aborter, second_aborter] = aborters;
    let [first_ring, second_ring] = rings;
    [
        Box::new(move || {
            if let Ok(stream) = connect(job, &next, own, after) {
                watch(job, &first_aborter, &first_ring, stream, after);
            }
        }),
        Box::new(move || {
            if let Some(stream) = accept(job, &listener, before, own) {
                watch(job, &second_aborter, &second_ring, stream, before);
            }
        }),
    ]
}

/// Reaches the leader of a node, by the first of its addresses that answers as it must.
fn connect(job: &Job, card: &NetworkCard, own: u32, node: u32) -> io::Result<TcpStream> {
    let mut refused = io::Error::other("it has no address");
    for &address in &card.addresses {
        let reached = TcpStream::connect_timeout(&SocketAddr::new(address, card.port), LIMIT);
        match reached.and_then(|stream| prove(job, stream, own, node)) {
            Ok(stream) => return Ok(stream),
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

fn prove(job: &Job, mut stream: TcpStream, own: u32, node: u32) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(ANSWER))?;
    let mut said = [0; MAGIC.len() + NONCE];
    stream.read_exact(&mut said)?;
    let (magic, nonce) = said.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut proof = own.to_le_bytes().to_vec();
    proof.extend_from_slice(make_tag(job, nonce, own, node).as_bytes());
    super::channel::send_all(stream.as_fd(), &proof)?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// The connection of the node before; None where the socket cannot be used any more.
fn accept(job: &Job, listener: &TcpListener, before: u32, own: u32) -> Option<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Ok(true) = check(job, &stream, before, own) {
                    return Some(stream);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => return None,
        }
    }
}

/// Whether who has connected is the leader of the node before.
fn check(job: &Job, mut stream: &TcpStream, before: u32, own: u32) -> io::Result<bool> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut nonce = [0; NONCE];
    nonce.copy_from_slice(&crate::segment::draw_secret()?[..NONCE]);
    super::channel::send_all(stream.as_fd(), &[&MAGIC[..], &nonce].concat())?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof)?;
    stream.set_read_timeout(None)?;
    let (from, tag) = proof.split_at(4);
    let tag: [u8; blake3::OUT_LEN] = tag.try_into().unwrap_or([0; blake3::OUT_LEN]);
    // Compared in a time that does not depend on where they differ.
    Ok(from == before.to_le_bytes() && make_tag(job, &nonce, before, own) == tag)
}

fn make_tag(job: &Job, nonce: &[u8], from: u32, to: u32) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&job.secret());
    hasher.update(b"ring").update(&job.job_id().to_le_bytes());
    hasher.update(&from.to_le_bytes()).update(&to.to_le_bytes());
    hasher.update(nonce).finalize()
}

/// Waits for a neighbour's end, and has the job ended if that comes without a word.
fn watch(job: &'static Job, aborter: &Aborter, ring: &Ring, mut stream: TcpStream, node: u32) {
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
    let mut ranks = (0..job.size()).filter(|&rank| job.host(rank) == node);
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
        let (job, other) = (Job::singleton().unwrap(), Job::singleton().unwrap());
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| accept(&job, &listener, 2, 0));
            // Nobody, garbage, another secret, another node: none of them is taken.
            let address = SocketAddr::new(card.addresses[0], card.port);
            drop(TcpStream::connect(address).unwrap());
            let mut garbage = TcpStream::connect(address).unwrap();
            garbage.write_all(&[7; 100]).unwrap();
            let is_closed = |stream: TcpStream| {
                let mut stream = stream;
                matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
            };
            assert!(is_closed(connect(&other, &card, 2, 0).unwrap()));
            assert!(is_closed(connect(&job, &card, 1, 0).unwrap()));
            let mut good = connect(&job, &card, 2, 0).unwrap();
            let mut taken = accepted.join().unwrap().unwrap();
            taken.write_all(&[BYE]).unwrap();
            let mut word = [0];
            good.read_exact(&mut word).unwrap();
            assert_eq!(word, [BYE]);
        });
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
