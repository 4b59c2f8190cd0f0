#![allow(unsafe_code)]
//! Floor of large messages: methods that carry many bytes from one processor's buffer to another's by a single copy,
//! without a protocol. For two simultaneous copies through a ring, see [`super::pipeline`].
//!
//! Two threads, bound to two processors, alternately send each other a message of one size. Half a round trip is
//! reported, for comparison with the ping-pong of MPI.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint;
use std::io;
use std::ptr;

use fastpath_base::sync::Ordering;

use super::pair::{Trips, Word, run_pair};

/// Method of carrying a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// The receiver has the kernel copy from buffer to buffer (`process_vm_readv`).
    Kernel,
    /// Sender and receiver both have the kernel copy, taking the next piece in turn.
    KernelBoth {
        /// Size of a piece, in bytes.
        piece: usize,
    },
    /// The receiver copies from buffer to buffer, which requires that the sender's memory is shared.
    Direct,
}

impl fmt::Display for CopyMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyMethod::Kernel => f.write_str("process_vm_readv"),
            CopyMethod::KernelBoth { piece } => {
                write!(f, "readv and writev, {} KiB", piece >> 10)
            }
            CopyMethod::Direct => f.write_str("one copy by the receiver"),
        }
    }
}

/// One direction: both buffers, and each side's progress.
struct TransferDirection {
    /// Messages announced, counted from the start.
    written: Word,
    /// Messages whose receiver is ready, if both sides copy.
    read: Word,
    /// Claimed pieces of the current message, if both sides copy.
    claimed: Word,
    /// Finished pieces of all messages, if both sides copy.
    done: Word,
    source: UnsafeCell<Vec<u8>>,
    target: UnsafeCell<Vec<u8>>,
}

// SAFETY: no thread writes `source` while threads run. Only the receiver writes `target`, or each piece is written by
// the side that claimed it.
unsafe impl Sync for TransferDirection {}

impl TransferDirection {
    fn new(bytes: usize) -> TransferDirection {
        TransferDirection {
            written: Word::default(),
            read: Word::default(),
            claimed: Word::default(),
            done: Word::default(),
            source: UnsafeCell::new((0..bytes).map(|i| (i % 251) as u8).collect()),
            target: UnsafeCell::new(vec![0; bytes]),
        }
    }

    fn buffers(&self) -> [*mut u8; 2] {
        // SAFETY: only pointers are taken, of vectors that are never resized; see the rule above `Sync` for the data.
        [&self.source, &self.target].map(|buffer| unsafe { (*buffer.get()).as_mut_ptr() })
    }

    /// Sends message number `n` (from 0).
    fn send(&self, way: CopyMethod, bytes: usize, n: u64) {
        // ORDERING: release; publishes the source (written before the threads started) to the acquire load in
        // `receive`.
        self.written.0.store(n + 1, Ordering::Release);
        if let CopyMethod::KernelBoth { piece } = way {
            // ORDERING: acquire; pairs with the release store in `fetch_both`: the receiver is ready, its target is
            // set, and the claims are reset.
            while self.read.0.load(Ordering::Acquire) <= n {}
            let _ = self.copy_claimed(bytes, piece, true);
            self.wait_until_done(bytes, piece, n);
        }
    }

    fn receive(&self, way: CopyMethod, bytes: usize, n: u64) -> io::Result<()> {
        // ORDERING: acquire; pairs with the release store in `send`.
        while self.written.0.load(Ordering::Acquire) <= n {}
        match way {
            CopyMethod::KernelBoth { piece } => self.fetch_both(bytes, piece, n),
            CopyMethod::Kernel | CopyMethod::Direct => self.fetch(way, bytes),
        }
    }

    /// Copies pieces until none is left; the sender writes, the receiver reads.
    fn copy_claimed(&self, bytes: usize, piece: usize, sender: bool) -> io::Result<()> {
        let [source, target] = self.buffers();
        let pieces = bytes.div_ceil(piece) as u64;
        let mut result = Ok(());
        loop {
            // ORDERING: acquire keeps the copy after the claim; the partner is the other side's claim, which passes
            // only itself.
            let claim = self.claimed.0.fetch_add(1, Ordering::Acquire);
            if claim >= pieces {
                return result;
            }
            let at = claim as usize * piece;
            let len = piece.min(bytes - at);
            // SAFETY: `at` is inside both buffers.
            let (from, to) = unsafe { (source.add(at), target.add(at)) };
            let (from, to) = (make_range(from, len), make_range(to, len));
            // SAFETY: both ranges are this process's own buffers, and the kernel checks them.
            let n = unsafe {
                if sender {
                    libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0)
                } else {
                    libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0)
                }
            };
            if usize::try_from(n) != Ok(len) {
                result = Err(io::Error::last_os_error());
            }
            // ORDERING: release; publishes the copied piece to the acquire load in `wait_until_done` of the other side.
            self.done.0.fetch_add(1, Ordering::Release);
        }
    }

    fn wait_until_done(&self, bytes: usize, piece: usize, n: u64) {
        let pieces = bytes.div_ceil(piece) as u64;
        // ORDERING: acquire; pairs with the release in `copy_claimed`.
        while self.done.0.load(Ordering::Acquire) < (n + 1) * pieces {}
    }

    /// Receives a message that both sides copy.
    fn fetch_both(&self, bytes: usize, piece: usize, n: u64) -> io::Result<()> {
        self.claimed.0.store(0, Ordering::Relaxed);
        // ORDERING: release; publishes the reset claims to the acquire load in `send`.
        self.read.0.store(n + 1, Ordering::Release);
        let result = self.copy_claimed(bytes, piece, false);
        self.wait_until_done(bytes, piece, n);
        result
    }

    fn fetch(&self, way: CopyMethod, bytes: usize) -> io::Result<()> {
        let [source, target] = self.buffers();
        if way == CopyMethod::Direct {
            let (source, target) = hint::black_box((source, target));
            // SAFETY: both buffers hold `bytes` bytes and are distinct.
            unsafe { ptr::copy_nonoverlapping(source, target, bytes) };
            return Ok(());
        }
        let (local, remote) = (make_range(target, bytes), make_range(source, bytes));
        // SAFETY: the local part is the target buffer; the kernel checks the remote one.
        let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n == bytes => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn make_range(at: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len: len }
}

/// Samples half a round trip of a message of `bytes` bytes, in nanoseconds. Each sample is the mean over a batch of at
/// least `batch_ns` (estimated by a first trial).
///
/// # Errors
/// This process may not use a processor; the kernel refuses the copy.
pub fn measure_transfer(
    processors: [usize; 2], way: CopyMethod, bytes: usize, samples: usize, batch_ns: u64,
) -> io::Result<Vec<f64>> {
    TransferDirection::new(bytes).try_alone(way, bytes)?;
    let (there, back) = (TransferDirection::new(bytes), TransferDirection::new(bytes));
    let trips = Trips::default();
    let lead = || {
        let mut numbers = 0..;
        trips.lead(samples, batch_ns, || {
            let n = numbers.next().unwrap_or(u64::MAX);
            there.send(way, bytes, n);
            let _ = back.receive(way, bytes, n);
        })
    };
    let follow = || {
        let mut numbers = 0..;
        trips.follow(|| {
            let n = numbers.next().unwrap_or(u64::MAX);
            let _ = there.receive(way, bytes, n);
            back.send(way, bytes, n);
        });
    };
    run_pair(processors, lead, follow)
}

impl TransferDirection {
    /// Carries one message with this thread as both sender and receiver.
    fn try_alone(&self, way: CopyMethod, bytes: usize) -> io::Result<()> {
        match way {
            CopyMethod::KernelBoth { piece } => {
                self.copy_claimed(bytes, piece, false)?;
                self.claimed.0.store(0, Ordering::Relaxed);
                self.copy_claimed(bytes, piece, true)
            }
            CopyMethod::Kernel | CopyMethod::Direct => {
                self.send(way, bytes, 0);
                self.receive(way, bytes, 0)
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::thread;

    use super::*;
    use crate::measure::placement;

    const WAYS: [CopyMethod; 3] =
        [CopyMethod::KernelBoth { piece: 4096 }, CopyMethod::Kernel, CopyMethod::Direct];

    #[test]
    fn transfer__brings_every_byte_in_every_way() {
        for way in WAYS {
            for bytes in [1usize, 1000, 4096, 10_001] {
                let direction = TransferDirection::new(bytes);
                if direction.try_alone(way, bytes).is_err() {
                    assert!(
                        matches!(way, CopyMethod::Kernel | CopyMethod::KernelBoth { .. }),
                        "only the kernel may refuse"
                    );
                    continue;
                }
                let direction = TransferDirection::new(bytes);
                thread::scope(|scope| {
                    scope.spawn(|| (0..3).for_each(|n| direction.send(way, bytes, n)));
                    (0..3).for_each(|n| direction.receive(way, bytes, n).unwrap());
                });
                let (source, target) =
                    (direction.source.into_inner(), direction.target.into_inner());
                assert_eq!(source, target, "{way}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn measure__gives_the_samples_asked_for() {
        let cpus = placement::allowed_processors();
        let pair = [cpus[0], *cpus.last().unwrap()];
        let samples = measure_transfer(pair, CopyMethod::Direct, 20_000, 5, 1000).unwrap();
        assert_eq!(samples.len(), 5);
        assert!(samples.iter().all(|&s| s > 0.0));
    }

    #[test]
    fn measure__on_a_processor_that_is_not_there_is_an_error() {
        assert!(measure_transfer([0, 1 << 20], CopyMethod::Direct, 64, 1, 100).is_err());
    }
}
