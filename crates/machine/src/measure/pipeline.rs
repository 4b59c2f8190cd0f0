#![allow(unsafe_code)]
//! Floor of large messages: a bare pipeline. The sender copies from its buffer into a ring, chunk by chunk, and sets a
//! flag for each; the receiver copies out. The pipeline does nothing else.
//!
//! Two threads, bound to two processors, alternately send each other a message of one size. The ring is shared memory
//! as between processes. Both buffers begin 16 bytes into a page, as every large block of malloc does.

pub mod beside;
pub mod search;

use std::fmt;
use std::fs::File;
use std::io;
use std::thread;

use fastpath_base::clock;
use fastpath_base::copy::engine::Loop;
use fastpath_base::sync::Ordering;
use fastpath_report::statistics::is_same_line;
use fastpath_segment::open_nameless;
use memmap2::{MmapOptions, MmapRaw};

use super::floor::Lines;
use super::pair::{Trips, Word, run_pair};
use super::placement;

/// Parameters of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelinePlan {
    /// Copy loop of the sender.
    pub into_ring: Loop,
    /// Copy loop of the receiver.
    pub out_of_ring: Loop,
    /// Size of a chunk, in bytes.
    pub chunk: usize,
    /// Size of the ring, in bytes, a multiple of the chunk.
    pub ring: usize,
}

impl fmt::Display for PipelinePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (into, out) = (self.into_ring.name(), self.out_of_ring.name());
        let (chunk, ring) = (self.chunk >> 10, self.ring >> 10);
        write!(f, "{into} to {out}, chunks of {chunk} KiB, ring of {ring} KiB")
    }
}

impl PipelinePlan {
    fn chunks(self) -> u64 {
        (self.ring / self.chunk) as u64
    }
}

/// Largest ring of a plan, in bytes. The lines of two such rings have left second-level caches of 1 MiB before they are
/// reused.
pub const RING_MAX: usize = 2 << 20;

/// Smallest chunk of a plan, in bytes.
pub const CHUNK_MIN: usize = 1 << 10;

/// Offset of a buffer in its page.
const MALLOC_OFFSET: usize = 16;

const PAGE: usize = 4096;

/// One direction: the sender's buffer, the ring, the receiver's buffer. A chunk of `ring` is the sender's until its
/// word in `written` is raised. Then the chunk is the receiver's until `read` is raised. Only the sender reads
/// `source`, only the receiver writes `target`.
struct PipelineDirection {
    /// For each chunk of the ring, the total number of chunks written when this chunk was last written.
    written: Vec<Word>,
    /// Number of chunks read. The sender reads it only when the ring seems full.
    read: Word,
    ring: MmapRaw,
    source: MmapRaw,
    target: MmapRaw,
}

fn map_shared(len: usize) -> io::Result<MmapRaw> {
    let file = File::from(open_nameless().map_err(io::Error::other)?);
    file.set_len(len as u64)?;
    MmapOptions::new().populate().map_raw(&file)
}

fn address(mapped: &MmapRaw, offset: usize) -> *mut u8 {
    assert!(offset < mapped.len());
    mapped.as_mut_ptr().wrapping_add(offset)
}

#[derive(Default)]
struct ChunkProgress {
    /// Number of chunks carried.
    position: u64,
    /// Last observed number of chunks that the other side has read.
    read: u64,
}

impl PipelineDirection {
    fn new(bytes: usize) -> io::Result<PipelineDirection> {
        let words = (0..RING_MAX / CHUNK_MIN).map(|_| Word::default());
        let direction = PipelineDirection {
            written: words.collect(),
            read: Word::default(),
            ring: map_shared(RING_MAX)?,
            source: map_shared(bytes + PAGE)?,
            target: map_shared(bytes + PAGE)?,
        };
        for i in 0..bytes {
            // SAFETY: the byte is inside the buffer, to which there is no other reference yet.
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

    fn send(&self, plan: PipelinePlan, bytes: usize, mine: &mut ChunkProgress) {
        let chunks = plan.chunks();
        for at in (0..bytes).step_by(plan.chunk) {
            wait_until(|| {
                if mine.position >= mine.read + chunks {
                    // ORDERING: acquire; pairs with the release store in `receive`, after which the chunk has been
                    // read.
                    mine.read = self.read.0.load(Ordering::Acquire);
                }
                mine.position < mine.read + chunks
            });
            let slot = (mine.position % chunks) as usize;
            let to = address(&self.ring, slot * plan.chunk);
            let from = address(&self.source, MALLOC_OFFSET + at);
            // SAFETY: both ranges are inside the ring and the buffer; the chunk is the sender's now.
            unsafe { plan.into_ring.run(to, from, plan.chunk.min(bytes - at)) };
            mine.position += 1;
            // ORDERING: release; publishes the chunk to the acquire load in `receive`.
            self.written[slot].0.store(mine.position, Ordering::Release);
        }
    }

    fn receive(&self, plan: PipelinePlan, bytes: usize, mine: &mut ChunkProgress) {
        let chunks = plan.chunks();
        for at in (0..bytes).step_by(plan.chunk) {
            let slot = (mine.position % chunks) as usize;
            mine.position += 1;
            // ORDERING: acquire; pairs with the release store in `send`, after which the chunk is written.
            wait_until(|| self.written[slot].0.load(Ordering::Acquire) == mine.position);
            let to = address(&self.target, MALLOC_OFFSET + at);
            let from = address(&self.ring, slot * plan.chunk);
            // SAFETY: both ranges are inside the buffer and the ring; the chunk is the receiver's now.
            unsafe { plan.out_of_ring.run(to, from, plan.chunk.min(bytes - at)) };
            // ORDERING: release; returns the chunk to the acquire load in `send`.
            self.read.0.store(mine.position, Ordering::Release);
        }
    }
}

/// Polls before a waiting side yields the processor: far more than a chunk takes, unless the other side is not running.
const POLLS: u32 = 1 << 14;

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

/// A pipeline between two processors, with its memory.
pub struct Pipeline {
    processors: [usize; 2],
    bytes: usize,
    lines: Lines,
    there: PipelineDirection,
    back: PipelineDirection,
}

impl Pipeline {
    /// Creates a pipeline for messages of `bytes` bytes.
    ///
    /// # Errors
    /// This process may not use a processor; no memory.
    pub fn new(processors: [usize; 2], bytes: usize) -> io::Result<Pipeline> {
        for processor in processors {
            placement::check_processor(processor)?;
        }
        if processors[0] == processors[1] {
            let processor = processors[0];
            return Err(io::Error::other(format!(
                "a pipeline needs two different processors, not processor {processor} twice"
            )));
        }
        Ok(Pipeline {
            processors,
            bytes,
            lines: Lines::default(),
            there: PipelineDirection::new(bytes)?,
            back: PipelineDirection::new(bytes)?,
        })
    }

    /// Size of a message, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Samples half a round trip, each the mean over a batch of at least `batch_ns` (estimated by a first trial).
    ///
    /// # Errors
    /// The processors cannot be used any more; a loop that this processor cannot run.
    pub fn sample(
        &mut self, plan: PipelinePlan, samples: usize, batch_ns: u64,
    ) -> io::Result<PipelineTimes> {
        if !plan.into_ring.is_available() || !plan.out_of_ring.is_available() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        assert!(plan.chunk >= CHUNK_MIN && plan.ring <= RING_MAX && plan.chunk <= plan.ring);
        self.there.reset();
        self.back.reset();
        let (this, bytes, trips) = (&*self, self.bytes, Trips::default());
        let lead = || {
            let before = this.time_line();
            let (mut sending, mut receiving) = (ChunkProgress::default(), ChunkProgress::default());
            let times = trips.lead(samples, batch_ns, || {
                this.there.send(plan, bytes, &mut sending);
                this.back.receive(plan, bytes, &mut receiving);
            });
            let lines = [before, this.time_line()];
            PipelineTimes { times, lines }
        };
        let follow = || {
            let (mut receiving, mut sending) = (ChunkProgress::default(), ChunkProgress::default());
            this.lines.answer();
            trips.follow(|| {
                this.there.receive(plan, bytes, &mut receiving);
                this.back.send(plan, bytes, &mut sending);
            });
            this.lines.answer();
        };
        run_pair(self.processors, lead, follow)
    }

    /// One-way time of a cache line, in nanoseconds: the shortest of several means, because interruptions lengthen a
    /// mean.
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

/// Times of a plan.
#[derive(Clone, Debug, Default)]
pub struct PipelineTimes {
    /// Half a round trip in nanoseconds, a value for each batch.
    pub times: Vec<f64>,
    /// One-way time of a cache line before and after, in nanoseconds. On a virtual machine this time depends on which
    /// cache the two processors share, which may change.
    pub lines: [f64; 2],
}

impl PipelineTimes {
    /// Mean cache-line time of before and after.
    pub fn line(&self) -> f64 {
        (self.lines[0] + self.lines[1]) / 2.0
    }

    /// Whether the cache-line time was about `line`, before and after.
    pub fn is_at(&self, line: f64) -> bool {
        self.lines.iter().all(|&own| is_same_line(own, line))
    }
}

/// Round trips of a line that are timed together, and the number of such means.
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
                    (100_001, PipelinePlan { into_ring: which, out_of_ring: which, chunk, ring });
                let direction = PipelineDirection::new(bytes).unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut mine = ChunkProgress::default();
                        (0..2).for_each(|_| direction.send(plan, bytes, &mut mine));
                    });
                    let mut mine = ChunkProgress::default();
                    (0..2).for_each(|_| direction.receive(plan, bytes, &mut mine));
                });
                let (source, target) =
                    (direction.source.as_mut_ptr(), direction.target.as_mut_ptr());
                // SAFETY: both mappings have at least `bytes` bytes after the offset, and no thread writes any more.
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
            let plan = PipelinePlan {
                into_ring: Loop::usual(),
                out_of_ring: which,
                chunk: 2048,
                ring: 16 << 10,
            };
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
