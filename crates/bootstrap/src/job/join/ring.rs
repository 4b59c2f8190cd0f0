//! Nodes watch each other: the leader of each has a connection to that of the next one. One that ends without a word,
//! or whose other end is silent, means that the node is gone with all its ranks, and has the job ended. An engine may
//! take no notice of that, and a rank that waits for one of them may never have had a connection to it.

mod closing;

use super::watch::{end_job, note_lost, wait_a_second};
use crate::engine::Aborter;
use crate::job::Job;
use crate::network::ports::keep_alive;
use crate::network::{self, NetworkCard, Reach};
use crate::segment::FailureKind;
use fastpath_base::config::Config;
use fastpath_base::fd::CheckedHandle;
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::tell;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

pub use closing::close_ring;

/// The node's ranks have all finalized MPI.
const BYE: u8 = b'B';

/// Opens the sockets on which a node's leader is reached by that of the node before; None where none can be had: then
/// the nodes do without.
pub fn open(config: &Config, ranks: usize) -> Option<(Vec<TcpListener>, NetworkCard)> {
    // The leader's own is one more than its ranks need.
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

/// The connections to both neighbours, as far as they are there.
#[derive(Debug, Default)]
pub struct Ring {
    streams: Mutex<Vec<Arc<CheckedHandle<TcpStream>>>>,
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

    /// Keeps a connection, which shows the end of its peer.
    fn keep(&self, stream: Arc<CheckedHandle<TcpStream>>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match self.has_left() {
            true => say_bye(&stream),
            false => streams.push(stream),
        }
    }
}

fn say_bye(stream: &CheckedHandle<TcpStream>) {
    let _ = stream.get().map(|stream| super::channel::send_all(stream.as_fd(), &[BYE]));
}

/// What runs in a thread of a leader.
pub type Watch = Box<dyn FnOnce() + Send>;

/// What there is to do: to watch each neighbour.
pub fn list_watches(
    job: &'static Job, aborter: &Arc<Aborter>, ring: &Arc<Ring>, neighbours: Vec<Neighbour>,
) -> Vec<Watch> {
    let watch = |neighbour| {
        let (aborter, ring) = (aborter.clone(), ring.clone());
        Box::new(move || watch(job, &aborter, &ring, neighbour)) as Watch
    };
    neighbours.into_iter().map(watch).collect()
}

/// Waits for a neighbour's end, and has the job ended if that comes without a word.
fn watch(job: &'static Job, aborter: &Aborter, ring: &Ring, neighbour: Neighbour) {
    let Neighbour { stream, node } = neighbour;
    let _ = keep_alive(&stream);
    // Shared, not duplicated: no descriptor may be left, and the word at the end must go all the same.
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
        return note_lost(job, lost);
    }
    // Where the engine ends the job, it comes here too in this time, and has said why.
    wait_a_second();
    let mut ranks = (0..job.present()).filter(|&rank| job.host(rank) == node);
    let lowest = ranks.next().unwrap_or(0);
    if job.header().failure.record(FailureKind::Gone, lowest, 1) {
        let host = job.network_card(lowest).map_or_else(String::new, |card| card.host);
        let others = match ranks.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        tell!(
            "fastpath: rank {lowest} on {host}{others}: the host is gone or no longer answers, \
             or its ranks were killed"
        );
    }
    end_job(job, aborter, 1);
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
        let ring = Ring::default();
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
