//! The ranks of a benchmark: what runs under the launcher and calls MPI.
//!
//! Rank 0 leads: it finds how many operations fill a batch, orders chunks of batches, takes the
//! time between batches, and prints events. The others obey orders. Chunks of MPI alternate with
//! chunks of the floor, so that both see the same state of the machine.

use std::io::{self, Write};

use fastpath_base::clock;

use super::pair_lines::PairLines;
use super::plan::{Case, Event, Plan, SAMPLES_MIN, Test};
use crate::library::{MpiLibrary, OpenError};
use crate::measure::floor::{CopyFloor, summarize_floor};
use crate::measure::placement::current_processor;
use crate::measure::statistics::summarize;
use crate::measure::{find_batch, observe_clock_step_ns};

const TAG_DATA: i32 = 1;
const TAG_ORDER: i32 = 2;
const TAG_ACK: i32 = 3;

/// In how many turns MPI and the floor alternate within a case.
const ROUNDS: usize = 5;

/// Floor samples per round.
const FLOOR_SAMPLES: usize = 40;

/// Time for them; only two ranks that share a processor need more.
const FLOOR_LIMIT_NS: u64 = 20_000_000;

/// What the leader tells the others to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Run this many batches of this many operations of this many bytes.
    Run {
        bytes: usize,
        batches: u64,
        operations: u64,
    },
    /// Answer the floor's round trips.
    Floor,
    /// No more orders.
    End,
}

impl Order {
    fn to_bytes(self) -> [u8; 32] {
        let words = match self {
            Order::Run {
                bytes,
                batches,
                operations,
            } => [1, bytes as u64, batches, operations],
            Order::Floor => [2, 0, 0, 0],
            Order::End => [3, 0, 0, 0],
        };
        let mut out = [0; 32];
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    fn from_bytes(raw: &[u8; 32]) -> Order {
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&raw[8 * i..8 * i + 8]);
            u64::from_le_bytes(w)
        };
        match word(0) {
            1 => Order::Run {
                bytes: word(1) as usize,
                batches: word(2),
                operations: word(3),
            },
            2 => Order::Floor,
            _ => Order::End,
        }
    }
}

/// One rank at work.
struct Rank<'a> {
    mpi: &'a MpiLibrary,
    plan: &'a Plan,
    rank: usize,
    ranks: usize,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    requests: Vec<usize>,
    terms: Vec<f64>,
    sums: Vec<f64>,
    lines: Option<PairLines>,
}

/// Runs the plan as one rank of a job; the whole life of the process.
///
/// # Errors
/// The library cannot be opened or initialised, or there is only one rank.
pub fn run_rank(plan: &Plan) -> Result<(), OpenError> {
    let mpi = MpiLibrary::open(&plan.library)?;
    mpi.initialize()?;
    let (rank, ranks) = (mpi.rank(), mpi.size());
    let largest = plan.sizes.iter().copied().max().unwrap_or(0);
    let mut at_work = Rank {
        mpi: &mpi,
        plan,
        rank,
        ranks,
        outgoing: vec![1; largest],
        incoming: vec![2; largest],
        requests: mpi.make_requests(plan.window),
        terms: vec![1.0; largest / 8],
        sums: vec![0.0; largest / 8],
        lines: None,
    };
    if ranks > 1 {
        at_work.run();
    }
    mpi.finalize();
    if ranks == 1 && rank == 0 {
        return Err(OpenError("a benchmark needs at least two ranks".to_owned()));
    }
    Ok(())
}

impl Rank<'_> {
    fn run(&mut self) {
        let pairwise = self.plan.test.is_pairwise();
        let last = self.ranks - 1;
        if pairwise && self.rank != 0 && self.rank != last {
            // An onlooker: waits in the barrier below while the pair is at work.
        } else if self.rank == 0 {
            self.lead();
        } else {
            self.follow();
        }
        self.mpi.barrier();
    }

    /// The rank that rank 0 exchanges messages with, and the reverse.
    fn partner(&self) -> usize {
        if self.rank == 0 { self.ranks - 1 } else { 0 }
    }

    fn give_order(&self, order: Order) {
        let mut raw = order.to_bytes();
        if self.plan.test.is_pairwise() {
            self.mpi.send(&raw, self.partner(), TAG_ORDER);
        } else {
            self.mpi.broadcast(&mut raw);
        }
    }

    fn take_order(&self) -> Order {
        let mut raw = [0; 32];
        if self.plan.test.is_pairwise() {
            self.mpi.receive(&mut raw, 0, TAG_ORDER);
        } else {
            self.mpi.broadcast(&mut raw);
        }
        Order::from_bytes(&raw)
    }

    fn follow(&mut self) {
        if self.rank == self.ranks - 1 {
            self.meet_partner();
        }
        loop {
            match self.take_order() {
                Order::Run {
                    bytes,
                    batches,
                    operations,
                } => {
                    for _ in 0..batches {
                        self.run_batch(bytes, operations);
                    }
                }
                Order::Floor => {
                    if let Some(lines) = self.lines.as_ref().filter(|_| self.ranks == 2) {
                        lines.lines().answer();
                    }
                }
                Order::End => return,
            }
        }
    }

    /// First and last rank tell each other where they run and share the lines of the floor.
    fn meet_partner(&mut self) -> Option<usize> {
        let own = current_processor().map_or(u64::MAX, |p| p as u64);
        let mut theirs = [0; 8];
        if self.rank == 0 {
            self.mpi.receive(&mut theirs, self.partner(), TAG_ORDER);
        } else {
            self.mpi.send(&own.to_le_bytes(), 0, TAG_ORDER);
        }
        if self.ranks == 2 {
            self.lines = PairLines::share(self.mpi, self.rank == 0, self.partner(), TAG_ORDER);
        }
        usize::try_from(u64::from_le_bytes(theirs))
            .ok()
            .filter(|&p| p < usize::MAX)
    }

    /// One batch of `operations` operations.
    fn run_batch(&mut self, bytes: usize, operations: u64) {
        let (mpi, peer, first) = (self.mpi, self.partner(), self.rank == 0);
        match self.plan.test {
            Test::Pingpong if first => {
                for _ in 0..operations {
                    mpi.send(&self.outgoing[..bytes], peer, TAG_DATA);
                    mpi.receive(&mut self.incoming[..bytes], peer, TAG_DATA);
                }
            }
            Test::Pingpong => {
                for _ in 0..operations {
                    mpi.receive(&mut self.incoming[..bytes], peer, TAG_DATA);
                    mpi.send(&self.outgoing[..bytes], peer, TAG_DATA);
                }
            }
            Test::Rate | Test::Bandwidth => {
                let requests = &mut self.requests;
                for _ in 0..operations {
                    if first {
                        mpi.send_window(&self.outgoing[..bytes], peer, TAG_DATA, requests);
                        mpi.receive(&mut [0; 4], peer, TAG_ACK);
                    } else {
                        mpi.receive_window(&mut self.incoming[..bytes], peer, TAG_DATA, requests);
                        mpi.send(&[0; 4], peer, TAG_ACK);
                    }
                }
            }
            Test::Barrier => (0..operations).for_each(|_| mpi.barrier()),
            Test::Allreduce => {
                for _ in 0..operations {
                    mpi.allreduce(&self.terms[..bytes / 8], &mut self.sums[..bytes / 8]);
                }
            }
        }
    }

    /// Nanoseconds of each of `batches` batches; one more before them warms up and is not
    /// counted.
    fn time_batches(&mut self, bytes: usize, batches: usize, operations: u64) -> Vec<f64> {
        self.give_order(Order::Run {
            bytes,
            batches: batches as u64 + 1,
            operations,
        });
        self.run_batch(bytes, operations);
        let mut last = clock::now_ns();
        (0..batches)
            .map(|_| {
                self.run_batch(bytes, operations);
                let now = clock::now_ns();
                let elapsed = now - last;
                last = now;
                elapsed as f64
            })
            .collect()
    }

    fn lead(&mut self) {
        let theirs = self.meet_partner();
        print_event(&Event::Start {
            library: self.mpi.version(),
            ranks: self.ranks,
            processors: [current_processor(), theirs],
        });
        let total = (self.plan.sizes.len() * ROUNDS) as u64;
        for (i, &bytes) in self.plan.sizes.iter().enumerate() {
            let case = self.lead_case(bytes, (i * ROUNDS) as u64, total);
            if let Some(case) = case {
                print_event(&Event::Case(Box::new(case)));
            }
        }
        self.give_order(Order::End);
    }

    fn lead_case(&mut self, bytes: usize, done: u64, total: u64) -> Option<Case> {
        let (operations, batch_ns) =
            find_batch(self.plan.batch_ns, |n| self.time_batches(bytes, 1, n)[0]);
        let affordable = (self.plan.case_ns as f64 / batch_ns) as usize;
        let samples = self.plan.samples.min(affordable).max(SAMPLES_MIN);
        let per_round = samples.div_ceil(ROUNDS);
        let (mut times, mut line, mut copy) = (Vec::new(), Vec::new(), Vec::new());
        let mut copier = CopyFloor::new(if bytes >= 64 { bytes } else { 0 });
        for round in 0..ROUNDS {
            times.extend(self.time_batches(bytes, per_round, operations));
            if let Some(lines) = &self.lines {
                self.give_order(Order::Floor);
                line.extend(lines.lines().sample_one_way(
                    FLOOR_SAMPLES,
                    self.plan.batch_ns,
                    FLOOR_LIMIT_NS,
                ));
                lines.lines().stop();
                if bytes >= 64 {
                    copy.extend(copier.sample(bytes, FLOOR_SAMPLES / 4, self.plan.batch_ns));
                }
            }
            print_event(&Event::Progress {
                bytes,
                done: done + round as u64 + 1,
                total,
            });
        }
        let per_operation = match self.plan.test {
            Test::Pingpong => 2.0,
            Test::Rate | Test::Bandwidth => self.plan.window as f64,
            Test::Barrier | Test::Allreduce => 1.0,
        };
        times
            .iter_mut()
            .for_each(|t| *t /= operations as f64 * per_operation);
        Some(Case {
            test: self.plan.test,
            ranks: self.ranks,
            bytes,
            window: self.plan.test.is_windowed().then_some(self.plan.window),
            unit: self.plan.test.describe_unit().to_owned(),
            time: summarize(&times)?,
            operations_per_batch: operations,
            clock_step_ns: observe_clock_step_ns(),
            floor: summarize_floor(&line, &copy, "the two ranks, in turn with the case"),
        })
    }
}

fn print_event(event: &Event) {
    // A reader that went away ends the job by itself; there is nobody left to tell.
    if let Ok(text) = serde_json::to_string(event) {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn order__survives_the_wire() {
        let run = Order::Run {
            bytes: 1 << 33,
            batches: 3,
            operations: 7,
        };
        for order in [run, Order::Floor, Order::End] {
            assert_eq!(Order::from_bytes(&order.to_bytes()), order);
        }
    }
}
