#![allow(unsafe_code)]
//! The floor of large messages: a bare pipeline. The sender copies from its buffer into a ring,
//! chunk by chunk, and raises a flag for each; the receiver copies out. Nothing else is done.
//!
//! Two threads, bound to two processors, send each other a message of the same size in turn. The
//! ring is memory as processes share it, and either buffer begins 16 bytes into a page, as every
//! large block of malloc does.

pub mod beside;
pub mod search;

use std::fmt;
use std::fs::File;
use std::io;
use std::thread;

use fastpath_base::clock;
use fastpath_base::copy::engine::Loop;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::segment::open_nameless;
use fastpath_report::statistics::is_same_line;
use memmap2::{MmapOptions, MmapRaw};

use super::floor::Lines;
use super::pair::{Trips, Word, run_pair};
use super::placement;

/// How a message is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The sender's copy.
    pub into_ring: Loop,
    /// The receiver's copy.
    pub out_of_ring: Loop,
    /// Bytes of a chunk.
    pub chunk: usize,
    /// Bytes of the ring, a multiple of the chunk.
    pub ring: usize,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (into, out) = (self.into_ring.name(), self.out_of_ring.name());
        let (chunk, ring) = (self.chunk >> 10, self.ring >> 10);
        write!(f, "{into} to {out}, {chunk} KiB of {ring} KiB")
    }
}

impl Plan {
    /// Chunks of the ring.
    fn chunks(self) -> u64 {
        (self.ring / self.chunk) as u64
    }
}

/// The largest ring of a plan: of two such the lines have left the second-level caches before they come round again,
/// where these hold 1 MiB each.
pub const RING_MAX: usize = 2 << 20;

/// The smallest chunk of a plan.
pub const CHUNK_MIN: usize = 1 << 10;

/// Where a buffer begins in its page.
const MALLOC_OFFSET: usize = 16;

const PAGE: usize = 4096;

/// One direction: the sender's buffer, the ring, the receiver's buffer.
///
/// A chunk of `ring` is the sender's until its word in `written` is raised, and the receiver's until `read` is. Only
/// the sender reads `source`, only the receiver writes `target`.
struct Direction {
    /// For each chunk of the ring, how many chunks had been written when it was.
    written: Vec<Word>,
    /// Chunks read; the sender looks only when the ring seems full.
    read: Word,
    ring: MmapRaw,
    source: MmapRaw,
    target: MmapRaw,
}

/// New memory in small pages, as that between two ranks.
fn map_shared(len: usize) -> io::Result<MmapRaw> {
    let file = File::from(open_nameless().map_err(io::Error::other)?);
    file.set_len(len as u64)?;
    MmapOptions::new().populate().map_raw(&file)
}

/// The address of a byte.
fn address(mapped: &MmapRaw, offset: usize) -> *mut u8 {
    assert!(offset < mapped.len());
    mapped.as_mut_ptr().wrapping_add(offset)
}

/// The progress of one side of a direction.
#[derive(Default)]
struct Progress {
    /// Chunks carried.
    position: u64,
    /// Chunks that the other side was seen to have read.
    read: u64,
}

impl Direction {
    fn new(bytes: usize) -> io::Result<Direction> {
        let words = (0..RING_MAX / CHUNK_MIN).map(|_| Word::default());
        let direction = Direction {
            written: words.collect(),
            read: Word::default(),
            ring: map_shared(RING_MAX)?,
            source: map_shared(bytes + PAGE)?,
            target: map_shared(bytes + PAGE)?,
        };
        for i in 0..bytes {
            // SAFETY: inside the buffer, of which nobody else knows yet.
            unsafe { address(&direction.source, MALLOC_OFFSET + i).write((i % 251) as u8) };
        }
        Ok(direction)
    }

    fn reset(&mut self) {
        self.read.0.store(0, Ordering::Relaxed);
        for word in &self.written {
            word.0.store(0, Ordering::Relaxed);
        }
    }

    /// The sender's part of a message.
    fn send(&self, plan: Plan, bytes: usize, mine: &mut Progress) {
        let chunks = plan.chunks();
        for at in (0..bytes).step_by(plan.chunk) {
            wait_until(|| {
                if mine.position >= mine.read + chunks {
                    // ORDERING: pairs with the release store in `receive`: the chunk was read.
                    mine.read = self.read.0.load(Ordering::Acquire);
                }
                mine.position < mine.read + chunks
            });
            let slot = (mine.position % chunks) as usize;
            let to = address(&self.ring, slot * plan.chunk);
            let from = address(&self.source, MALLOC_OFFSET + at);
            // SAFETY: inside the ring and the buffer; the chunk is the sender's now.
            unsafe { plan.into_ring.run(to, from, plan.chunk.min(bytes - at)) };
            mine.position += 1;
            // ORDERING: publishes the chunk to the acquire load in `receive`.
            self.written[slot].0.store(mine.position, Ordering::Release);
        }
    }

    /// The receiver's part of a message.
    fn receive(&self, plan: Plan, bytes: usize, mine: &mut Progress) {
        let chunks = plan.chunks();
        for at in (0..bytes).step_by(plan.chunk) {
            let slot = (mine.position % chunks) as usize;
            mine.position += 1;
            // ORDERING: pairs with the release store in `send`: the chunk is written.
            wait_until(|| self.written[slot].0.load(Ordering::Acquire) == mine.position);
            let to = address(&self.target, MALLOC_OFFSET + at);
            let from = address(&self.ring, slot * plan.chunk);
            // SAFETY: inside the buffer and the ring; the chunk is the receiver's now.
            unsafe { plan.out_of_ring.run(to, from, plan.chunk.min(bytes - at)) };
            // ORDERING: gives the chunk back to the acquire load in `send`.
            self.read.0.store(mine.position, Ordering::Release);
        }
    }
}

/// Looks before a side that waits lets others have the processor: far more than a chunk takes,
/// unless the other side is not running.
const POLLS: u32 = 1 << 14;

/// Spins until it is so.
#[inline]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let mut polls = 0;
    while !is_so() {
        polls += 1;
        if polls == POLLS {
            thread::yield_now();
            polls = 0;
        }
    }
}

/// Two processors and the memory between them.
pub struct Pipeline {
    processors: [usize; 2],
    bytes: usize,
    lines: Lines,
    there: Direction,
    back: Direction,
}

impl Pipeline {
    /// For messages of `bytes` bytes.
    ///
    /// # Errors
    /// A processor that this process may not use; no memory.
    pub fn new(processors: [usize; 2], bytes: usize) -> io::Result<Pipeline> {
        for processor in processors {
            placement::check_processor(processor)?;
        }
        if processors[0] == processors[1] {
            return Err(io::Error::other("a pipeline needs two processors"));
        }
        Ok(Pipeline {
            processors,
            bytes,
            lines: Lines::default(),
            there: Direction::new(bytes)?,
            back: Direction::new(bytes)?,
        })
    }

    /// Bytes of a message.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Half a round trip, each sample the mean over a batch of at least `batch_ns` (as far as a
    /// first trial tells).
    ///
    /// # Errors
    /// The processors cannot be used any more; a loop that this processor cannot run.
    pub fn sample(&mut self, plan: Plan, samples: usize, batch_ns: u64) -> io::Result<Taken> {
        if !plan.into_ring.is_available() || !plan.out_of_ring.is_available() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        assert!(plan.chunk >= CHUNK_MIN && plan.ring <= RING_MAX && plan.chunk <= plan.ring);
        self.there.reset();
        self.back.reset();
        let (this, bytes, trips) = (&*self, self.bytes, Trips::default());
        // Before and after, both sides are at the line.
        let lead = || {
            let before = this.time_line();
            let (mut sending, mut receiving) = (Progress::default(), Progress::default());
            let times = trips.lead(samples, batch_ns, || {
                this.there.send(plan, bytes, &mut sending);
                this.back.receive(plan, bytes, &mut receiving);
            });
            let lines = [before, this.time_line()];
            Taken { times, lines }
        };
        let follow = || {
            let (mut receiving, mut sending) = (Progress::default(), Progress::default());
            this.lines.answer();
            trips.follow(|| {
                this.there.receive(plan, bytes, &mut receiving);
                this.back.send(plan, bytes, &mut sending);
            });
            this.lines.answer();
        };
        run_pair(self.processors, lead, follow)
    }

    /// One way of a line, in nanoseconds: the shortest of some means, as interruptions lengthen.
    fn time_line(&self) -> f64 {
        let mut last = self.lines.ask(0, LINE_TRIPS);
        let means = (0..LINE_MEANS).map(|_| {
            let start = clock::now_ns();
            last = self.lines.ask(last, LINE_TRIPS);
            (clock::now_ns() - start) as f64 / (2 * LINE_TRIPS) as f64
        });
        let shortest = means.fold(f64::INFINITY, f64::min);
        self.lines.stop();
        shortest
    }
}

/// What a plan took.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Half a round trip in nanoseconds, a value for each batch.
    pub times: Vec<f64>,
    /// One way of a cache line before and after, in nanoseconds: what the two processors share
    /// changes on a virtual machine.
    pub lines: [f64; 2],
}

impl Taken {
    /// One way of a line beside it: the mean of before and after.
    pub fn line(&self) -> f64 {
        (self.lines[0] + self.lines[1]) / 2.0
    }

    /// Whether a line took about as long before and after.
    pub fn is_at(&self, line: f64) -> bool {
        self.lines.iter().all(|&own| is_same_line(own, line))
    }
}

/// Round trips of a line that are timed together, and how often.
const LINE_TRIPS: u64 = 24;
const LINE_MEANS: usize = 3;

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pipeline__brings_every_byte_by_every_loop() {
        for which in Loop::all_available() {
            for (chunk, ring) in [(CHUNK_MIN, 2 * CHUNK_MIN), (8192, RING_MAX)] {
                let (bytes, plan) =
                    (100_001, Plan { into_ring: which, out_of_ring: which, chunk, ring });
                let direction = Direction::new(bytes).unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut mine = Progress::default();
                        (0..2).for_each(|_| direction.send(plan, bytes, &mut mine));
                    });
                    let mut mine = Progress::default();
                    (0..2).for_each(|_| direction.receive(plan, bytes, &mut mine));
                });
                let (source, target) =
                    (direction.source.as_mut_ptr(), direction.target.as_mut_ptr());
                // SAFETY: both are mapped for so many bytes, and no thread is left that writes.
                let [source, target] = [source, target].map(|start| unsafe {
                    std::slice::from_raw_parts(start.add(MALLOC_OFFSET), bytes)
                });
                assert!(source == target, "{}", which.name());
            }
        }
    }

    #[test]
    fn sample__gives_as_many_as_asked_for_and_can_be_repeated() {
        let [first, .., last] = placement::allowed_processors()[..] else {
            return assert!(Pipeline::new([0, 0], 64).is_err());
        };
        let mut pipeline = Pipeline::new([first, last], 10_000).unwrap();
        for which in [Loop::usual(), Loop::all_available()[0]] {
            let plan =
                Plan { into_ring: Loop::usual(), out_of_ring: which, chunk: 2048, ring: 16 << 10 };
            let taken = pipeline.sample(plan, 3, 1000).unwrap();
            assert!(taken.times.len() == 3 && taken.times.iter().all(|&s| s > 0.0));
            assert!(taken.lines.iter().all(|&l| l > 0.0 && l.is_finite()));
        }
    }

    #[test]
    fn pipeline__on_a_processor_that_is_not_there_is_an_error() {
        assert!(Pipeline::new([0, 1 << 20], 64).is_err());
    }
}
