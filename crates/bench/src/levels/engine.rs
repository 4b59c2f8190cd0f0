//! The measurement engine of the benchmark program (`program/engine.c`, compiled into this binary), applied to the
//! loops of a level. One rank leads and measures, the other executes its orders.
//!
//! SAFETY (`one rank a process`): the engine keeps its state in C variables. One rank of a process leads, and it alone
//! calls functions that read or write them. The tests take turns.
//!
//! **ENGINE'S POINTERS.** The engine passes back the context of the current call. No other reference to the context
//! exists meanwhile. Arrays have the number of words that the engine's header states.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_long, c_void};
use std::io;

use fastpath_job::Job;
use fastpath_machine::measure::placement::current_processor;
use fastpath_report::record::{Case, Clock, Histogram, Level, MissingTest, Timing};

use super::LevelPlan;
use super::board::{SharedBoard, WORDS};
use crate::program::{CaseProgress, EVENTS_VERSION, ProgramEvent, Start};

#[repr(C)]
struct ClockFacts {
    uses_tsc: bool,
    ns_per_tick: c_double,
    error_ppm: c_double,
    resolution_ns: c_double,
    read_ns: c_double,
}

#[repr(C)]
struct Samples {
    counts: *mut u64,
    count: u64,
    sum: c_double,
    min: c_double,
    max: c_double,
}

#[repr(C)]
struct Figures {
    names: [*const c_char; 5],
    bytes: usize,
    window: c_int,
    interval: c_long,
    operations_per_sample: c_long,
    warmup_operations: u64,
    overhead_ns: c_double,
    processor_percent: c_double,
    checked: c_int,
    processors: [c_int; 2],
    samples: *const Samples,
    floor: *const Samples,
    floor_of: *const c_char,
    lines: [c_double; 2],
    defined: *const c_char,
}

#[repr(C)]
struct TestLoop<C> {
    context: *mut C,
    run: extern "C" fn(*mut C, c_long),
    verify: *const c_void,
    order: extern "C" fn(*mut C, *const c_long),
    await_order: extern "C" fn(*mut C, *mut c_long),
    agree: extern "C" fn(*mut C, bool) -> bool,
    find_places: extern "C" fn(*mut C, *mut c_int) -> bool,
    show_life: *const c_void,
    show_interval: *const c_void,
    bytes: usize,
    divisor: c_double,
    sample_each: c_double,
    batch_min: c_long,
    leads: bool,
    floor: bool,
    line_floor: bool,
    copy_min: usize,
    send: *mut u8,
    receive: *mut u8,
}

unsafe extern "C" {
    static mut shared: *mut c_void;
    static bench_clock: ClockFacts;
    fn start_clock();
    fn check_clock();
    fn measure_overhead();
    fn overhead_of(operations: c_long) -> c_double;
    fn reset_options();
    fn set_option(name: *const c_char, text: *const c_char) -> *const c_char;
    fn case_duration_ns() -> c_double;
    fn pack_histogram(histogram: *const Samples, pairs: *mut u64) -> usize;
    fn lead_loop(what: *const c_void, duration_ns: c_double, figures: *mut Figures);
    fn follow_loop(what: *const c_void);
}

pub type Sink = Box<dyn FnMut(String)>;

pub struct LevelRank<'a> {
    plan: &'a LevelPlan,
    talk: Talk<'a>,
    processors: [i32; 2],
    done: u64,
    transport: &'static str,
    adapter: Vec<String>,
    sink: Sink,
}

struct Talk<'a> {
    board: &'a SharedBoard,
    leads: bool,
    open: Cell<bool>,
}

impl Talk<'_> {
    fn settle(&self) {
        match self.open.replace(false) {
            true if self.leads => _ = self.board.await_answer(),
            true => self.board.answer([0; WORDS]),
            false => {}
        }
    }

    fn exchange(&self, own: [u64; WORDS]) -> [u64; WORDS] {
        self.settle();
        self.board.exchange(self.leads, own)
    }

    /// Returns whether `own` is true on both ranks. The rank that does not lead calls `act` until the order arrives.
    fn agree(&self, own: bool, act: impl FnMut() -> bool) -> bool {
        self.settle();
        if self.leads {
            self.board.order([u64::from(own), 0, 0, 0]);
            return self.board.await_answer()[0] == 1 && own;
        }
        let all = self.board.take_order_meanwhile(act)[0] == 1 && own;
        self.board.answer([u64::from(all), 0, 0, 0]);
        all
    }
}

/// Context that the engine passes to a loop. `step` gets a number of operations. If `serves` is set, it also gets None
/// while there is no order, and returns whether it did any work.
struct LoopContext<'a, F> {
    talk: &'a Talk<'a>,
    serves: bool,
    step: F,
}

impl<'a, F: FnMut(Option<u64>) -> bool> LoopContext<'a, F> {
    extern "C" fn run(this: *mut Self, operations: c_long) {
        // SAFETY: ENGINE'S POINTERS.
        unsafe { ((*this).step)(Some(operations as u64)) };
    }

    extern "C" fn order(this: *mut Self, words: *const c_long) {
        // SAFETY: ENGINE'S POINTERS; an order has three words.
        let (talk, words) = unsafe { ((*this).talk, words.cast::<[c_long; 3]>().read()) };
        talk.settle();
        let [what, samples, operations] = words.map(|word| word as u64);
        talk.board.order([what, samples, operations, 0]);
        talk.open.set(true);
    }

    extern "C" fn await_order(this: *mut Self, words: *mut c_long) {
        // SAFETY: ENGINE'S POINTERS.
        let this = unsafe { &mut *this };
        this.talk.settle();
        let board = this.talk.board;
        let [what, samples, operations, _] = match this.serves {
            true => board.take_order_meanwhile(|| (this.step)(None)),
            false => board.take_order(),
        };
        this.talk.open.set(true);
        let order = [what, samples, operations].map(|word| word as c_long);
        // SAFETY: ENGINE'S POINTERS; an order has three words.
        unsafe { words.cast::<[c_long; 3]>().write(order) };
    }

    extern "C" fn agree(this: *mut Self, own: bool) -> bool {
        // SAFETY: ENGINE'S POINTERS.
        unsafe { (*this).talk }.agree(own, || false)
    }

    extern "C" fn find_places(this: *mut Self, processors: *mut c_int) -> bool {
        // SAFETY: ENGINE'S POINTERS.
        let talk = unsafe { (*this).talk };
        let theirs = talk.exchange([here() as u64, 0, 0, 0])[0] as i32;
        // SAFETY: ENGINE'S POINTERS; the array has space for two.
        unsafe { processors.cast::<[c_int; 2]>().write([here(), theirs]) };
        here() == theirs
    }
}

impl<'a> LevelRank<'a> {
    /// Creates the rank of this process.
    pub fn new(
        plan: &'a LevelPlan, board: &'a SharedBoard, job: &Job, sink: Sink,
    ) -> io::Result<LevelRank<'a>> {
        let leads = job.rank() == 0;
        if leads {
            take_options(&plan.settings.arguments())?;
        }
        let (transport, adapter, open) = ("shm", Vec::new(), Cell::new(false));
        let talk = Talk { board, leads, open };
        Ok(LevelRank { plan, talk, processors: [-1; 2], done: 0, transport, adapter, sink })
    }

    fn emit(&mut self, event: &ProgramEvent) {
        if self.talk.leads {
            (self.sink)(serde_json::to_string(event).unwrap_or_default());
        }
    }

    /// Whether this rank gives orders and measures.
    pub fn leads(&self) -> bool {
        self.talk.leads
    }

    pub fn window(&self) -> Option<u32> {
        self.plan.settings.case.window
    }

    pub fn checks(&self) -> bool {
        self.plan.settings.case.check
    }

    /// Whether messages are written before each send and read after each receive.
    pub fn touches(&self) -> bool {
        self.plan.settings.case.touch
    }

    /// Sets the name of the transport and the lines about its adapter. Must precede [`LevelRank::start`].
    pub fn describe(&mut self, transport: &'static str, adapter: Vec<String>) {
        (self.transport, self.adapter) = (transport, adapter);
    }

    pub fn start(&mut self) {
        let [other, ..] = self.exchange([here() as u64, 0, 0, 0]);
        self.processors = [here(), other as i32];
        // SAFETY: one rank a process; the page stays mapped while the engine runs.
        unsafe { shared = self.talk.board.lines().cast() };
        if !self.talk.leads {
            return;
        }
        // SAFETY: one rank a process.
        let overhead_ns_each = unsafe {
            start_clock();
            measure_overhead();
            overhead_of(1)
        };
        let layer = match self.plan.level {
            Level::Protocol => "protocol layer",
            Level::Verbs => "verbs, bare loops",
            level => level.name(),
        };
        self.emit(&ProgramEvent::Start(Start {
            program: EVENTS_VERSION,
            library: format!("Fastpath {}, {layer}", env!("CARGO_PKG_VERSION")),
            ranks: 2,
            processors: self.processors.to_vec(),
            host: fastpath_base::topology::host_name(),
            clock: describe_clock(),
            overhead_ns_each,
            adapter: self.adapter.clone(),
        }));
    }

    pub fn end(&mut self) {
        if self.talk.leads {
            // SAFETY: one rank a process.
            unsafe { check_clock() };
            self.emit(&ProgramEvent::End { clock: describe_clock() });
        }
    }

    pub fn missing(&mut self, test: &str, why: &str) {
        let (test, reason, level) = (test.to_owned(), why.to_owned(), self.plan.level);
        self.emit(&ProgramEvent::Missing(MissingTest { test, level, reason }));
    }

    /// Exchanges words with the other rank. Both ranks call it.
    pub fn exchange(&mut self, words: [u64; WORDS]) -> [u64; WORDS] {
        self.talk.exchange(words)
    }

    /// Returns whether `own` is true on both ranks. Both ranks call it.
    pub fn agree(&mut self, own: bool) -> bool {
        self.agree_meanwhile(own, || false)
    }

    /// Returns whether `own` is true on both ranks. The rank that does not lead calls `act` until the order arrives.
    pub fn agree_meanwhile(&mut self, own: bool, act: impl FnMut() -> bool) -> bool {
        self.talk.agree(own, act)
    }

    /// Verifies contents, if requested. `exchange` returns whether this side received correct data.
    pub fn check(&mut self, exchange: impl FnOnce() -> bool) -> Option<bool> {
        if !self.plan.settings.case.check {
            return None;
        }
        let right = exchange();
        Some(self.agree(right))
    }

    /// Measures a case. `run` executes a number of operations on either rank; the time of one operation is divided by
    /// `divisor`. Afterwards `counts` returns the counts of the leader per operation.
    pub fn measure(
        &mut self, case: Case, divisor: f64, mut run: impl FnMut(u64),
        counts: impl FnOnce() -> BTreeMap<String, f64>,
    ) {
        let step = |step: Option<u64>| {
            step.map(&mut run);
            false
        };
        self.measure_steps(case, divisor, false, step, counts);
    }

    pub(super) fn measure_steps<F: FnMut(Option<u64>) -> bool>(
        &mut self, case: Case, divisor: f64, serves: bool, step: F,
        counts: impl FnOnce() -> BTreeMap<String, f64>,
    ) {
        let (test, bytes, done) = (case.test.clone(), case.bytes, self.done);
        self.emit(&ProgramEvent::Progress(CaseProgress { test, bytes, done, total: done + 1 }));
        self.done += 1;
        let floor = !self.plan.settings.no_floor;
        let line_floor = case.test == "latency" && self.plan.level != Level::Verbs;
        let copy_min = if line_floor { 64 } else { 4096 };
        let room = if floor && bytes >= copy_min { bytes as usize } else { 0 };
        let (mut send, mut receive) = (vec![1u8; room], vec![2u8; room]);
        let mut context = LoopContext { talk: &self.talk, serves, step };
        let what = TestLoop {
            context: &raw mut context,
            run: LoopContext::<F>::run,
            verify: std::ptr::null(),
            order: LoopContext::<F>::order,
            await_order: LoopContext::<F>::await_order,
            agree: LoopContext::<F>::agree,
            find_places: LoopContext::<F>::find_places,
            show_life: std::ptr::null(),
            show_interval: std::ptr::null(),
            bytes: bytes as usize,
            divisor,
            sample_each: bytes as f64 * f64::from(case.window.unwrap_or(1)),
            batch_min: 0,
            leads: self.talk.leads,
            floor,
            line_floor,
            copy_min: copy_min as usize,
            send: send.as_mut_ptr(),
            receive: receive.as_mut_ptr(),
        };
        let what = (&raw const what).cast();
        if !self.talk.leads {
            // SAFETY: context and buffers outlive the call.
            unsafe { follow_loop(what) };
            return self.talk.settle();
        }
        // SAFETY: all zero is a valid value; `one rank a process` and ENGINE'S POINTERS cover the call.
        let figures = unsafe {
            let mut figures: Figures = std::mem::zeroed();
            lead_loop(what, case_duration_ns(), &raw mut figures);
            figures
        };
        self.talk.settle();
        let case = Case {
            level: self.plan.level,
            unit: "ns".to_owned(),
            ranks: 2,
            transport: Some(self.transport.to_owned()),
            counts: counts(),
            ..figures.complete(case)
        };
        self.emit(&ProgramEvent::Case(Box::new(case)));
    }
}

impl Figures {
    fn complete(&self, case: Case) -> Case {
        // SAFETY: the engine keeps both histograms until its next case, which begins after this call.
        let (samples, floor) = unsafe { (read_samples(self.samples), read_samples(self.floor)) };
        let floor = floor.filter(|floor| floor.count() > 0);
        // SAFETY: the engine sets the pointer to a static C string.
        let floor_of = unsafe { CStr::from_ptr(self.floor_of) }.to_string_lossy().into_owned();
        Case {
            samples: samples.unwrap_or_default(),
            timing: Timing {
                operations_per_sample: self.operations_per_sample as u64,
                warmup_operations: self.warmup_operations,
                overhead_ns: self.overhead_ns,
            },
            floor_of: floor.is_some().then_some(floor_of),
            floor,
            lines: (self.lines[0] > 0.0).then_some(self.lines),
            processors: self.processors.to_vec(),
            processor_percent: Some(self.processor_percent),
            ..case
        }
    }
}

/// # Safety
/// `at` is a histogram of the engine.
unsafe fn read_samples(at: *const Samples) -> Option<Histogram> {
    // SAFETY: ENGINE'S POINTERS; with a null array, the call only counts pairs.
    unsafe {
        let mut pairs = vec![[0u64; 2]; pack_histogram(at, std::ptr::null_mut())];
        pack_histogram(at, pairs.as_mut_ptr().cast());
        let pairs = pairs.into_iter().map(|[bound, count]| (bound, count));
        Histogram::from_parts(pairs, (*at).sum, (*at).min, (*at).max)
    }
}

/// Passes options to the engine, from the command line of the benchmark program.
fn take_options(arguments: &[String]) -> io::Result<()> {
    // SAFETY: one rank a process.
    unsafe { reset_options() };
    // Skip the first word, which names the tests, and the two flags, which the engine does not know.
    let values =
        arguments.iter().skip(1).filter(|word| !["--check", "--touch"].contains(&word.as_str()));
    let words: Vec<CString> =
        values.map(|word| CString::new(word.as_str())).collect::<Result<_, _>>()?;
    // Skip `--intervals`: the level repeats cases itself.
    for pair in words.chunks_exact(2).filter(|pair| pair[0].as_bytes() != b"--intervals") {
        // The engine keeps pointers to some values, so all are leaked.
        let value = Box::leak(pair[1].clone().into_boxed_c_str());
        // SAFETY: one rank a process. Both arguments are C strings; the result is null or a C string.
        let problem = unsafe {
            let said = set_option(pair[0].as_ptr(), value.as_ptr());
            (!said.is_null()).then(|| CStr::from_ptr(said).to_string_lossy().into_owned())
        };
        problem.map_or(Ok(()), |problem| Err(io::Error::other(problem)))?;
    }
    Ok(())
}

fn describe_clock() -> Clock {
    let clock = &raw const bench_clock;
    // SAFETY: one rank a process, so the clock is not written during this borrow.
    let clock = unsafe { &*clock };
    Clock {
        source: if clock.uses_tsc { "tsc" } else { "CLOCK_MONOTONIC" }.to_owned(),
        frequency_hz: 1e9 / clock.ns_per_tick,
        frequency_error_ppm: clock.error_ppm,
        resolution_ns: clock.resolution_ns,
        read_ns: clock.read_ns,
    }
}

/// Returns the processor of this thread; -1 if the kernel does not report it.
fn here() -> i32 {
    current_processor().map_or(-1, |p| p as i32)
}
