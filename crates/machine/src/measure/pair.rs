//! Two threads on two processors that pass messages back and forth: the base of all measurements between two.

use std::io;
use std::thread;

use fastpath_base::clock;
use fastpath_base::sync::{AtomicU64, Ordering};

use super::placement::bind_thread;

/// A word with 128 bytes for itself, so that the adjacent-line prefetcher does not couple it with another.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Word(pub AtomicU64);

/// Runs both sides, each on its processor; what the first of them took. Each goes through all of it whatever happens,
/// since the other waits for it.
///
/// # Errors
/// A processor this process may not use.
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

/// Round trips before those that count, at most; the shortest says how many make a batch.
const WARM_UP: usize = 8;

/// Ends [`Trips::follow`].
const END: u64 = u64::MAX;

/// How many round trips are wanted in all.
#[derive(Default)]
pub struct Trips(AtomicU64);

impl Trips {
    /// Times half a round trip, as its leader: samples in nanoseconds, each the mean over a batch of at least
    /// `batch_ns` (as far as a first trial tells).
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
            // Long messages settle soon.
            if trips > 0 && clock::now_ns() - begun > 2 * batch_ns {
                break;
            }
        }
        let count = (batch_ns as f64 / (2.0 * trial.max(1.0))).ceil().max(1.0) as u64;
        batch(count);
        let taken = (0..samples).map(|_| batch(count)).collect();
        // ORDERING: pairs with the acquire load in `follow`: what this side made ready for afterwards is seen.
        self.0.store(END, Ordering::Release);
        taken
    }

    /// Answers until the leader has enough.
    pub fn follow(&self, mut round: impl FnMut()) {
        let mut done = 0;
        loop {
            // ORDERING: pairs with the release store in `lead`.
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
