//! Nodes watch each other: each leader has a connection to the leader of the next node. If a connection ends without a
//! message, or its other end is silent, the node and all its ranks are lost, and the job ends. An engine may not notice
//! the loss, and a rank that waits for a lost rank may never have had a connection to it.

mod closing;

use super::death::{OwnRank, end_job, note_lost};
use crate::engine::Aborter;
use crate::network::ports::keep_alive;
use crate::network::{self, NetworkCard, Reach};
use crate::poll::wait_a_second;
use crate::socket::send_all;
use fastpath_base::config::Config;
use fastpath_base::fd::CheckedHandle;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::tell;
use fastpath_segment::FailureKind;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

pub use closing::close_ring;

/// Message that all ranks of the node have finalized MPI.
const BYE: u8 = b'B';

/// Opens the sockets by which the leader of the preceding node reaches this one. `None` if they cannot be opened; the
/// preceding node then does not watch this node.
pub fn open(config: &Config, ranks: usize) -> Option<(Vec<TcpListener>, NetworkCard)> {
    // The node needs one socket for each rank, and this one for its leader.
    let (listener, card) = network::open(config, Reach::Network, ranks + 1).ok()?;
    let sockets: Vec<OwnedFd> = listener.into();
    Some((sockets.into_iter().map(TcpListener::from).collect(), card))
}

/// A connection to another node's leader, and the number of that node.
#[derive(Debug)]
pub struct Neighbour {
    stream: TcpStream,
    node: u32,
}

/// Connections to the neighbours that were reached.
#[derive(Debug, Default)]
pub struct NodeRing {
    streams: Mutex<Vec<Arc<CheckedHandle<TcpStream>>>>,
    left: StaticBool,
}

impl NodeRing {
    /// Records that all ranks of this node have finalized MPI, so that the end of the node is not a failure.
    pub fn leave(&self) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: release; partner is the load in `has_left`, after a connection has ended.
        self.left.store(true, Ordering::Release);
        for stream in streams.iter() {
            say_bye(stream);
        }
    }

    fn has_left(&self) -> bool {
        // ORDERING: acquire; partner is the store in `leave`.
        self.left.load(Ordering::Acquire)
    }

    /// Adds a connection whose end shows the end of the other node.
    fn keep(&self, stream: Arc<CheckedHandle<TcpStream>>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match self.has_left() {
            true => say_bye(&stream),
            false => streams.push(stream),
        }
    }
}

fn say_bye(stream: &CheckedHandle<TcpStream>) {
    let _ = stream.get().map(|stream| send_all(stream.as_fd(), &[BYE]));
}

/// Function that a thread of a leader runs to watch a neighbour.
pub type Watch = Box<dyn FnOnce() + Send>;

/// Returns the threads to start, one to watch each neighbour.
pub fn list_watches(
    own: OwnRank, aborter: &Arc<Aborter>, ring: &Arc<NodeRing>, neighbours: Vec<Neighbour>,
) -> Vec<Watch> {
    let watch = |neighbour| {
        let (aborter, ring) = (aborter.clone(), ring.clone());
        Box::new(move || watch(own, &aborter, &ring, neighbour)) as Watch
    };
    neighbours.into_iter().map(watch).collect()
}

/// Waits for a neighbour's end, and ends the job if the end comes without a message.
fn watch(own: OwnRank, aborter: &Aborter, ring: &NodeRing, neighbour: Neighbour) {
    let Neighbour { stream, node } = neighbour;
    let _ = keep_alive(&stream);
    // The stream is shared, not duplicated, because the last message must be sent even if no descriptor is free.
    let stream = Arc::new(CheckedHandle::<TcpStream>::keep(stream, "watching the next host"));
    ring.keep(stream.clone());
    let mut word = [0];
    let said = loop {
        match stream.get().map_err(io::Error::from).and_then(|mut open| open.read(&mut word)) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    if matches!(said, Ok(1)) && word == [BYE] || ring.has_left() {
        return;
    }
    if let Err(lost) = stream.get() {
        return note_lost(own, lost);
    }
    // If the engine is ending the job, it ends this process within this time, and has reported the cause.
    wait_a_second();
    let mut ranks = (0..own.segment.present()).filter(|&rank| own.segment.host(rank) == node);
    let lowest = ranks.next().unwrap_or(0);
    if own.header().failure.record(FailureKind::Gone, lowest, 1) {
        let card = own.segment.network(lowest);
        let card = card.and_then(|card| NetworkCard::decode(&card));
        let host = card.map_or_else(String::new, |card| card.host);
        let others = match ranks.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        tell!(
            "fastpath: rank {lowest} on {host}{others}: the host is gone or no longer answers, \
             or its ranks were killed"
        );
    }
    end_job(own, aborter, 1);
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ring__says_good_bye_over_connections_of_any_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pair = || (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        let ((early, mut far_early), (late, mut far_late)) = (pair(), pair());
        let ring = NodeRing::default();
        ring.keep(Arc::new(CheckedHandle::keep(early, "a test")));
        ring.leave();
        ring.keep(Arc::new(CheckedHandle::keep(late, "a test")));
        for far in [&mut far_early, &mut far_late] {
            let mut word = [0];
            far.read_exact(&mut word).unwrap();
            assert_eq!(word, [BYE]);
        }
    }
}
