//! How a case is measured: warm-up, operations of a sample, rounds in turn with the floor. The same
//! rules as the benchmark program's (`program/engine.c`), with the kernel's clock.

use std::collections::BTreeMap;

use fastpath_base::clock;
use fastpath_bootstrap::Job;

use super::board::{SharedBoard, WORDS};
use super::remote::RemoteLink;
use super::{LevelPlan, events, pace};
use crate::measure::floor::CopyFloor;
use crate::measure::placement::current_processor;
use crate::record::Histogram;

const TURN: u64 = 1;
const LINES: u64 = 2;
const WORDS_WANTED: u64 = 3;
const VOTE: u64 = 4;
const END_OF_CASE: u64 = 5;

const SAMPLES_PER_TURN: usize = 4096;
const SAMPLES_MIN: u64 = 20;
const BATCH_MAX: u64 = 1 << 20;

/// What a case is, before it is measured.
pub struct Figures<'a> {
    /// See `record::Case`.
    pub test: &'a str,
    /// See there.
    pub variant: &'a str,
    /// See there.
    pub operation: &'a str,
    /// See there.
    pub of: &'a str,
    /// See there.
    pub bytes: usize,
    /// 0: not a test of windows.
    pub window: u32,
    /// By what the time of one run is divided.
    pub divisor: f64,
    /// How the bytes move.
    pub protocol: &'a str,
    /// See `record::Case`.
    pub protocol_sizes: Option<(u64, Option<u64>)>,
    /// Whether the contents were right, if that was asked for.
    pub checked: Option<bool>,
    /// Whether the floor is at least a cache line one way.
    pub line_floor: bool,
}

/// The clock behind the times.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// Smallest step seen, in nanoseconds.
    pub resolution_ns: f64,
    /// One reading, in nanoseconds (median).
    pub read_ns: f64,
}

/// What is known of a case's pace.
struct Pace {
    /// Nanoseconds of one run of the operation, windows whole.
    run_ns: f64,
    warmed: u64,
}

/// One of the two ranks.
pub struct Rank<'a> {
    plan: &'a LevelPlan,
    board: &'a SharedBoard,
    leads: bool,
    clock: ClockFacts,
    /// What measuring adds to a run timed alone, in nanoseconds.
    overhead_ns: f64,
    processors: [i32; 2],
    done: u64,
    transport: &'static str,
    adapter: Vec<String>,
    sink: Sink,
}

/// Where the leader's lines go.
pub type Sink = Box<dyn FnMut(String)>;

impl<'a> Rank<'a> {
    /// The rank of this process.
    pub fn new(plan: &'a LevelPlan, board: &'a SharedBoard, job: &Job, sink: Sink) -> Rank<'a> {
        let clock = observe_clock();
        Rank {
            plan,
            board,
            leads: job.rank() == 0,
            clock,
            overhead_ns: observe_overhead(),
            processors: [-1; 2],
            done: 0,
            transport: "shm",
            adapter: Vec::new(),
            sink,
        }
    }

    fn emit(&mut self, line: serde_json::Value) {
        (self.sink)(events::make_line(line));
    }

    /// Whether this rank orders and measures.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// The window that was asked for.
    pub fn window(&self) -> Option<u32> {
        self.plan.settings.window
    }

    /// Whether contents are to be verified.
    pub fn checks(&self) -> bool {
        self.plan.settings.check
    }

    /// Whether messages are to be written before each send and read after each receive.
    pub fn touches(&self) -> bool {
        self.plan.settings.touch
    }

    /// What carries the messages, and what there is to say of its adapter; to be called before [`Rank::start`].
    pub fn describe(&mut self, transport: &'static str, adapter: Vec<String>) {
        (self.transport, self.adapter) = (transport, adapter);
    }

    /// Says who is measured.
    pub fn start(&mut self) {
        let [other, ..] = self.exchange([here() as u64, 0, 0, 0]);
        self.processors = [here(), other as i32];
        if self.leads {
            let start = events::make_start(
                self.plan.level,
                self.processors,
                &self.clock,
                self.overhead_ns,
                &self.adapter,
            );
            self.emit(start);
        }
    }

    /// Says that all is done.
    pub fn end(&mut self) {
        if self.leads {
            let end = events::make_end(&self.clock);
            self.emit(end);
        }
    }

    /// Says what is not measured.
    pub fn missing(&mut self, test: &str, why: &str) {
        if self.leads {
            self.emit(events::make_missing(self.plan.level, test, why));
        }
    }

    /// Tells the other rank these words and learns its own. Called by both.
    pub fn exchange(&mut self, words: [u64; WORDS]) -> [u64; WORDS] {
        self.board.exchange(self.leads, words)
    }

    /// Whether both agree. Called by both.
    pub fn agree(&mut self, own: bool) -> bool {
        self.agree_meanwhile(own, || false)
    }

    /// As [`Rank::agree`]; the one that does not lead does this until it is asked.
    pub fn agree_meanwhile(&mut self, own: bool, act: impl FnMut() -> bool) -> bool {
        if self.leads {
            self.board.order([VOTE, u64::from(own), 0, 0]);
            return self.board.await_answer()[0] == 1 && own;
        }
        let [_, leader, ..] = self.board.take_order_meanwhile(act);
        let all = own && leader == 1;
        self.board.answer([u64::from(all), 0, 0, 0]);
        all
    }

    /// Verifies contents, if that was asked for; `exchange` says whether this side got them right.
    pub fn check(&mut self, exchange: impl FnOnce() -> bool) -> Option<bool> {
        if !self.plan.settings.check {
            return None;
        }
        let right = exchange();
        Some(self.agree(right))
    }

    /// Measures a case: `run` does so many operations, on either rank.
    pub fn measure(&mut self, figures: &Figures, run: impl FnMut(u64)) {
        self.measure_counting(figures, run, BTreeMap::new);
    }

    /// As [`Rank::measure`]; `counts` says afterwards what was done for each operation.
    pub fn measure_counting(
        &mut self,
        figures: &Figures,
        mut run: impl FnMut(u64),
        counts: impl FnOnce() -> BTreeMap<String, f64>,
    ) {
        if self.leads {
            let progress = events::make_progress(figures.test, figures.bytes, self.done);
            self.emit(progress);
            self.lead(figures, &mut run, counts);
        } else {
            self.follow(false, |step| {
                step.map(&mut run);
                false
            });
        }
        self.done += 1;
    }

    /// As [`Rank::measure`], of operations that the other rank may have to carry out: it does until it is asked for
    /// something else.
    pub fn measure_served<L: RemoteLink>(
        &mut self,
        figures: &Figures,
        link: &mut L,
        mut run: impl FnMut(&mut L, u64),
    ) {
        if self.leads {
            return self.measure(figures, |operations| run(link, operations));
        }
        let mut calls = 0;
        self.follow(true, |step| match step {
            Some(operations) => {
                run(link, operations);
                true
            }
            None => link.serve_living(&mut calls),
        });
        self.done += 1;
    }

    /// Does what the leader orders: `step` is given a number of operations; and, where it `serves`, nothing while there
    /// is no order, and says whether there was something to do.
    fn follow(&mut self, serves: bool, mut step: impl FnMut(Option<u64>) -> bool) {
        loop {
            let order = match serves {
                true => self.board.take_order_meanwhile(|| step(None)),
                false => self.board.take_order(),
            };
            let [what, samples, operations, _] = order;
            let mut run = |operations| step(Some(operations));
            match what {
                TURN => {
                    run(operations.min(16));
                    (0..samples).for_each(|_| _ = run(operations));
                }
                LINES => {
                    self.board.answer([0; WORDS]);
                    self.board.lines().answer();
                    continue;
                }
                WORDS_WANTED => {
                    self.board.answer([here() as u64, 0, 0, 0]);
                    continue;
                }
                END_OF_CASE => return self.board.answer([0; WORDS]),
                _ => {}
            }
            self.board.answer([0; WORDS]);
        }
    }

    /// A turn of samples after some settling; returns the sum of their times.
    fn turn(
        &self,
        run: &mut impl FnMut(u64),
        operations: u64,
        stamps: &mut [u64],
        pace: &mut Pace,
    ) -> f64 {
        let samples = stamps.len() as u64 - 1;
        self.board.order([TURN, samples, operations, 0]);
        let settle = operations.min(16);
        run(settle);
        pace.warmed += settle;
        stamps[0] = clock::now_ns();
        for stamp in &mut stamps[1..] {
            run(operations);
            *stamp = clock::now_ns();
        }
        let elapsed = (stamps[samples as usize] - stamps[0]) as f64;
        self.board.await_answer();
        pace.run_ns = elapsed.max(0.1) / (samples * operations) as f64;
        elapsed
    }

    fn duration_ns(&self) -> f64 {
        self.plan.settings.duration_ms.unwrap_or(200.0) * 1e6
    }

    fn warm_up(&self, run: &mut impl FnMut(u64)) -> Pace {
        let mut pace = Pace {
            run_ns: 1.0,
            warmed: 0,
        };
        let wanted = self.plan.settings.warmup.unwrap_or(1000);
        let limit = match self.plan.settings.warmup {
            Some(_) => f64::INFINITY,
            None => self.duration_ns() / 10.0,
        };
        let (mut done, mut spent, mut next) = (0, 0.0, 1);
        while done < wanted && spent < limit {
            let operations = next.min(wanted - done);
            spent += self.turn(run, operations, &mut [0; 2], &mut pace);
            done += operations;
            next = (2 * next).min(64);
        }
        pace.warmed += done;
        // The pace, from the shortest of a few.
        let operations = ((20_000.0 / pace.run_ns) as u64).max(1);
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            self.turn(run, operations, &mut [0; 2], &mut pace);
            pace.warmed += operations;
            best = best.min(pace.run_ns);
        }
        pace.run_ns = best;
        pace
    }

    /// The smallest power of two at which reading the clock is lost in a sample.
    fn choose_batch(&self, figures: &Figures, pace: &Pace) -> u64 {
        let timing = self.plan.settings.timing.as_deref().unwrap_or("auto");
        let fixed = match timing.strip_prefix("batch=") {
            Some(number) => number.parse().ok(),
            None => (timing == "each").then_some(1),
        };
        let most = (0.0001 * pace.run_ns / figures.divisor).clamp(1.0, 4.0);
        let read_ns = pace::round_up_clock(self.clock.read_ns);
        let step_ns = pace::round_up_clock(self.clock.resolution_ns);
        let lost = |batch: u64| {
            let each = read_ns / batch as f64;
            each / figures.divisor < most
                && each < 0.01 * pace.run_ns
                && step_ns < 0.01 * pace.run_ns * batch as f64
        };
        let batch = fixed.unwrap_or_else(|| {
            let mut batch = 1;
            while batch < BATCH_MAX && !lost(batch) {
                batch *= 2;
            }
            batch
        });
        // Each round has some of the operations that were asked for.
        let iterations = self.plan.settings.iterations.filter(|_| fixed.is_none());
        let of_round = iterations.map_or(u64::MAX, |n| n / self.rounds());
        batch.min(of_round).max(1)
    }

    fn rounds(&self) -> u64 {
        u64::from(self.plan.settings.rounds.unwrap_or(5)).max(1)
    }

    fn lead(
        &mut self,
        figures: &Figures,
        run: &mut impl FnMut(u64),
        counts: impl FnOnce() -> BTreeMap<String, f64>,
    ) {
        let mut pace = self.warm_up(run);
        let batch = self.choose_batch(figures, &pace);
        // The kernel may have moved the two since.
        self.board.order([WORDS_WANTED, 0, 0, 0]);
        self.processors = [here(), self.board.await_answer()[0] as i32];
        let mut floor = Floor::new(figures, !self.plan.settings.no_floor && self.apart());
        let mut samples = Histogram::default();
        for round in 0..self.rounds() {
            if round % 2 == 0 {
                floor.measure(self.board);
            }
            let divisor = batch as f64 * figures.divisor;
            let mut record = |ns: u64| samples.record(ns as f64 / divisor);
            self.measure_round(run, (batch, round), &mut pace, &mut record);
            if round % 2 == 1 {
                floor.measure(self.board);
            }
        }
        self.board.order([END_OF_CASE, 0, 0, 0]);
        self.board.await_answer();
        let case = events::make_case(&events::CaseFacts {
            figures,
            level: self.plan.level,
            operations_per_sample: batch,
            warmup_operations: pace.warmed,
            overhead_ns: self.overhead_ns / (batch as f64 * figures.divisor),
            processors: self.processors,
            samples: &samples,
            floor: floor.result(),
            transport: self.transport,
            counts: counts(),
        });
        self.emit(case);
    }

    /// Whether the two ranks were seen on different processors.
    fn apart(&self) -> bool {
        self.processors[0] != self.processors[1]
    }

    /// The samples of one round, of so many operations each.
    fn measure_round(
        &self,
        run: &mut impl FnMut(u64),
        (batch, round): (u64, u64),
        pace: &mut Pace,
        record: &mut impl FnMut(u64),
    ) {
        let budget = self.duration_ns() / self.rounds() as f64;
        let iterations = self.plan.settings.iterations;
        let wanted =
            iterations.map(|n| pace::share_of_round(n.div_ceil(batch), round, self.rounds()));
        let least = (SAMPLES_MIN / self.rounds()).max(1);
        let (mut spent, mut done) = (0.0, 0);
        loop {
            let left = ((budget - spent) / (pace.run_ns * batch as f64)).max(0.0) as u64;
            let samples = match wanted {
                Some(wanted) => wanted - done.min(wanted),
                None if done + left < least && spent < 20.0 * budget => least - done,
                None if done == 0 => left.max(1),
                None => left,
            };
            if samples == 0 {
                return;
            }
            let samples = samples.min(SAMPLES_PER_TURN as u64);
            let mut stamps = vec![0; samples as usize + 1];
            spent += self.turn(run, batch, &mut stamps, pace);
            stamps.windows(2).for_each(|pair| record(pair[1] - pair[0]));
            done += samples;
        }
    }
}

/// The floor beside a case.
struct Floor {
    wanted: bool,
    line: Option<Histogram>,
    copy: Option<(CopyFloor, Histogram)>,
    bytes: usize,
}

impl Floor {
    fn new(figures: &Figures, wanted: bool) -> Floor {
        let copies = figures.bytes >= 64;
        Floor {
            wanted,
            line: figures.line_floor.then(Histogram::default),
            copy: copies.then(|| (CopyFloor::new(figures.bytes), Histogram::default())),
            bytes: figures.bytes,
        }
    }

    fn measure(&mut self, board: &SharedBoard) {
        const SAMPLES: usize = 20;
        const BATCH_NS: u64 = 5000;
        if !self.wanted {
            return;
        }
        if let Some(line) = &mut self.line {
            board.order([LINES, 0, 0, 0]);
            board.await_answer();
            let taken = board.lines().sample_one_way(SAMPLES, BATCH_NS, 20_000_000);
            board.lines().stop();
            taken.into_iter().for_each(|v| line.record(v));
        }
        if let Some((floor, copy)) = &mut self.copy {
            let taken = floor.sample(self.bytes, SAMPLES, BATCH_NS);
            taken.into_iter().for_each(|v| copy.record(v));
        }
    }

    /// The higher of the two, and what it is.
    fn result(&self) -> Option<(&'static str, &Histogram)> {
        let some = |h: &Histogram| h.count() > 0;
        let line = self.line.as_ref().filter(|h| some(h));
        let copy = self.copy.as_ref().map(|c| &c.1).filter(|h| some(h));
        match (line, copy) {
            (Some(l), Some(c)) if c.quantile(0.5) <= l.quantile(0.5) => {
                Some(("cache line one way", l))
            }
            (_, Some(c)) => Some(("memory copy", c)),
            (Some(l), None) => Some(("cache line one way", l)),
            (None, None) => None,
        }
    }
}

/// The processor of this thread; -1 where the kernel does not say.
fn here() -> i32 {
    current_processor().map_or(-1, |p| p as i32)
}

pub(super) fn observe_clock() -> ClockFacts {
    const READS: u64 = 1000;
    let mut costs: Vec<f64> = (0..15)
        .map(|_| {
            let start = clock::now_ns();
            (0..READS).for_each(|_| {
                std::hint::black_box(clock::now_ns());
            });
            (clock::now_ns() - start) as f64 / READS as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    ClockFacts {
        resolution_ns: crate::measure::observe_clock_step_ns() as f64,
        read_ns: costs[costs.len() / 2],
    }
}

/// The loop with a clock reading for each run less the bare loop, over a run that does nothing.
fn observe_overhead() -> f64 {
    const RUNS: usize = 1024;
    let mut run: Box<dyn FnMut(u64)> = Box::new(|n| {
        std::hint::black_box(n);
    });
    let mut stamps = vec![0; RUNS + 1];
    let mut taken: Vec<f64> = (0..15)
        .map(|_| {
            stamps[0] = clock::now_ns();
            for stamp in &mut stamps[1..] {
                run(1);
                *stamp = clock::now_ns();
            }
            let with = stamps[RUNS] - stamps[0];
            let start = clock::now_ns();
            (0..RUNS).for_each(|_| run(1));
            let bare = clock::now_ns() - start;
            with.saturating_sub(bare) as f64 / RUNS as f64
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}
