//! Two threads on two processors that pass messages back and forth: the base of all measurements between two
//! processors.

use std::io;
use std::thread;

use fastpath_base::clock;
use fastpath_base::sync::{AtomicU64, Ordering};

use super::placement::bind_thread;

/// A word alone in 128 bytes, so that the adjacent-line prefetcher does not couple it with another word.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Word(pub AtomicU64);

/// Runs both sides, each on its processor, and returns the times of the first. Both sides always run to their end,
/// because each side waits for the other.
///
/// # Errors
/// This process may not use a processor.
pub fn run_pair<T: Default + Send>(
    processors: [usize; 2], lead: impl FnOnce() -> T + Send, follow: impl FnOnce() + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let bound = bind_thread(processors[1]);
            follow();
            bound
        });
        let leader = scope.spawn(|| {
            let bound = bind_thread(processors[0]);
            let taken = lead();
            bound.map(|()| taken)
        });
        let taken = leader.join().unwrap_or_else(|_| Ok(T::default()));
        follower.join().unwrap_or(Ok(())).and(taken)
    })
}

/// Largest number of warm-up round trips. The shortest round trip determines the size of a batch.
const WARM_UP: usize = 8;

/// Value that ends [`Trips::follow`].
const END: u64 = u64::MAX;

/// Total number of requested round trips.
#[derive(Default)]
pub struct Trips(AtomicU64);

impl Trips {
    /// Times half a round trip, as the leader. Samples are in nanoseconds, each the mean over a batch of at least
    /// `batch_ns` (estimated by a first trial).
    pub fn lead(&self, samples: usize, batch_ns: u64, mut round: impl FnMut()) -> Vec<f64> {
        let mut batch = |count: u64| {
            self.0.fetch_add(count, Ordering::Relaxed);
            let start = clock::now_ns();
            for _ in 0..count {
                round();
            }
            (clock::now_ns() - start) as f64 / (2 * count) as f64
        };
        let (begun, mut trial) = (clock::now_ns(), f64::INFINITY);
        for trips in 0..WARM_UP {
            trial = trial.min(batch(1));
            // Long messages need less warm-up.
            if trips > 0 && clock::now_ns() - begun > 2 * batch_ns {
                break;
            }
        }
        let count = (batch_ns as f64 / (2.0 * trial.max(1.0))).ceil().max(1.0) as u64;
        batch(count);
        let taken = (0..samples).map(|_| batch(count)).collect();
        // ORDERING: release; pairs with the acquire load in `follow`, which then sees all earlier writes of this side.
        self.0.store(END, Ordering::Release);
        taken
    }

    /// Answers until the leader ends.
    pub fn follow(&self, mut round: impl FnMut()) {
        let mut done = 0;
        loop {
            // ORDERING: acquire; pairs with the release store in `lead`.
            let wanted = self.0.load(Ordering::Acquire);
            if wanted == END {
                return;
            }
            while done < wanted {
                round();
                done += 1;
            }
        }
    }
}
