//! `fastpath bench TEST --level protocol|transport|verbs`: tests of the benchmark program, directly on the protocol
//! layer, on a transport, or on the verbs interface of an adapter.
//!
//! The command starts itself as the two ranks of a job under this library's launcher ([`run_rank`]). Rank 0 prints the
//! same lines as the benchmark program, so that all code that reads these lines is shared. At every level a size uses
//! the protocol that the library selects for it: levels differ only by their own cost. If a level lacks that protocol,
//! the case is missing, with the reason.

mod board;
mod counted;
mod engine;
mod protocol;
mod remote;
mod requests;
mod sides;
mod table;
mod transport;
mod verbs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};

use fastpath_base::config::{Config, Key};
use fastpath_base::tell;
use fastpath_job::Job;
use fastpath_protocol::Worker;
use fastpath_protocol::report::{SelectionClass, SizeRange};
use fastpath_report::data::{Text, leak, table};
use fastpath_report::record::{Case, Level, Quantity, TOUCHED};
use fastpath_segment::RankPhase;
use serde::{Deserialize, Serialize};

use crate::options::verbs::VerbsOptions;
use crate::program::{Program, Settings};
pub use board::SharedBoard;
pub use counted::CALLS;
pub use protocol::open_worker;
pub use sides::{RECEIVES, SENDS, SIDE_MESSAGES};
pub use table::describe as describe_levels;

/// Plan that the command passes to the ranks, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LevelPlan {
    /// Level to measure.
    pub level: Level,
    /// Tests and their settings.
    pub settings: Settings,
    /// Path of the page by which the ranks coordinate ([`SharedBoard::path`]).
    pub board: String,
    /// Whether callgrind counts the operations, which are then not timed.
    #[serde(default)]
    pub counted: bool,
    /// Adapter of each rank; empty: the library's choice.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Options of the bare loops of level verbs.
    #[serde(default)]
    pub verbs: VerbsOptions,
}

impl LevelPlan {
    /// Plan of timed tests, with the library's choice of adapters.
    pub fn new(level: Level, settings: &Settings, board: &SharedBoard) -> LevelPlan {
        LevelPlan {
            level,
            settings: settings.clone(),
            board: board.path(),
            counted: false,
            devices: Vec::new(),
            verbs: VerbsOptions::default(),
        }
    }

    /// Returns this program, and its arguments as a rank with this plan.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub fn rank(&self) -> io::Result<(Program, Vec<String>)> {
        let arguments = ["bench".to_owned(), "rank".to_owned(), serde_json::to_string(self)?];
        Ok((Program { path: std::env::current_exe()? }, arguments.into()))
    }

    fn config(&self, rank: usize) -> io::Result<Config> {
        let device = self.devices.get(rank).or(self.devices.first());
        let device = device.map(|name| (OsString::from("FASTPATH_DEVICE"), name.into()));
        let all = std::env::vars_os().chain(device);
        Config::from_pairs(all).map_err(|e| io::Error::other(e.to_string()))
    }
}

/// Message link between two ranks, at one level of the library.
trait MessageLink {
    /// Sends a message; returns when its buffer may be used again.
    fn send(&mut self, data: &[u8]);
    fn recv(&mut self, into: &mut [u8]);
    /// Sends `window` messages, all in flight at once.
    fn send_window(&mut self, window: u32, data: &[u8]);
    fn recv_window(&mut self, window: u32, into: &mut [u8]);
    /// Returns the protocol of a message of this length; an error if this level lacks that protocol.
    fn way(&self, bytes: usize) -> Result<ProtocolRange, String>;
}

/// Protocol of a range of message sizes, named as in `fastpath info --protocols`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProtocolRange {
    name: &'static str,
    /// Smallest and largest size; None: no limit.
    sizes: (u64, Option<u64>),
}

struct ProtocolRanges(Vec<ProtocolRange>);

impl ProtocolRanges {
    /// Reads the protocols that the library selects, from the report of a job with `FASTPATH_REPORT`.
    fn of(worker: &mut Worker) -> ProtocolRanges {
        const TIMEOUT_NS: u64 = 1_000_000_000;
        let report = worker.report(TIMEOUT_NS);
        // An adapter reaches any memory; between ranks of a host the kind of memory matters.
        let private =
            |c: &SelectionClass| c.peer.starts_with("ranks") && c.memory.starts_with("private");
        let serves = |c: &SelectionClass| c.adapter.is_some() || private(c);
        let class = report.classes.into_iter().find(serves);
        let ranges = class.map_or_else(Vec::new, |class| class.ranges);
        let make = |r: SizeRange| ProtocolRange { name: r.protocol, sizes: (r.from, r.to) };
        ProtocolRanges(ranges.into_iter().map(make).collect())
    }

    fn find(&self, bytes: usize) -> Result<ProtocolRange, String> {
        let bytes = bytes as u64;
        let holds =
            |w: &&ProtocolRange| w.sizes.0 <= bytes && w.sizes.1.is_none_or(|to| bytes <= to);
        let found = self.0.iter().find(holds).copied();
        found.ok_or_else(|| "the library reports no protocol for this size".to_owned())
    }
}

#[derive(Deserialize)]
struct LevelTest {
    #[serde(deserialize_with = "leak")]
    name: Text,
    levels: Vec<Level>,
    operation: String,
    of: Quantity,
    #[serde(default)]
    window: u32,
    sizes: Vec<u64>,
}

#[derive(Deserialize)]
struct LevelTests {
    test: Vec<LevelTest>,
}

table!(TESTS: LevelTests = "levels.toml");

fn find_tests(level: Level, name: &str) -> Vec<&'static LevelTest> {
    let fits = |t: &&LevelTest| t.name == name && t.levels.contains(&level);
    TESTS.test.iter().filter(fits).collect()
}

/// Calls `visit` for each size of each test of a plan, and reports tests that the level lacks.
fn visit_sizes(
    plan: &LevelPlan, rank: &mut engine::LevelRank,
    mut visit: impl FnMut(&mut engine::LevelRank, &LevelTest, usize),
) {
    rank.start();
    for name in &plan.settings.tests {
        let of_name = find_tests(plan.level, name);
        if of_name.is_empty() {
            let level = plan.level.name();
            rank.missing(name, &format!("the test does not exist at level {level}"));
        }
        for test in of_name {
            for &bytes in test.choose_sizes(&plan.settings.case.sizes) {
                visit(rank, test, bytes as usize);
            }
        }
    }
    rank.end();
}

impl LevelTest {
    /// Divisor of the time of one operation, in addition to the window: 2 for half a round trip, otherwise 1.
    fn divisor(&self) -> f64 {
        if self.of == Quantity::HalfRoundTrip { 2.0 } else { 1.0 }
    }

    fn choose_sizes<'a>(&'a self, asked: &'a [u64]) -> &'a [u64] {
        match asked.is_empty() || self.has_fixed_size() {
            true => &self.sizes,
            false => asked,
        }
    }

    /// Returns whether the size cannot be chosen: the test is of one word, or of no bytes.
    fn has_fixed_size(&self) -> bool {
        matches!(self.name, "atomics" | "flush")
    }

    fn case(&self, bytes: usize, window: u32, variant: &str, way: &str) -> Case {
        Case {
            test: self.name.to_owned(),
            variant: variant.to_owned(),
            operation: self.operation.clone(),
            of: self.of,
            bytes: bytes as u64,
            window: (window > 0).then_some(window),
            protocol: Some(way.to_owned()),
            ..Case::default()
        }
    }

    /// Returns the requested window, or the test's default; 0 for a test without window.
    fn choose_window(&self, asked: Option<u32>) -> u32 {
        match self.window {
            0 => 0,
            own => asked.unwrap_or(own),
        }
    }
}

/// Runs as one rank of the job.
///
/// # Errors
/// The job cannot be joined, does not have two ranks, or the plan is damaged.
pub fn run_rank(plan: &str) -> io::Result<()> {
    let plan: LevelPlan = serde_json::from_str(plan)?;
    let board = SharedBoard::open(&plan.board)?;
    let job: &'static Job = Box::leak(Box::new(Job::attach().map_err(io::Error::other)?));
    if job.world().len() != 2 {
        let why = "levels below MPI need exactly two ranks; pass -n 2";
        return Err(io::Error::other(why));
    }
    job.set_phase(RankPhase::Initialized);
    run_level(&plan, &board, job, Box::new(|line| print_event(&line)))
}

/// Prints a line for the process that started the job.
fn print_event(line: &str) {
    let mut out = io::stdout().lock();
    // A failed write means that the process that started this job has ended, so no result is needed.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Runs all tests of a plan, as one of the two ranks.
fn run_level(
    plan: &LevelPlan, board: &SharedBoard, job: &'static Job, sink: engine::Sink,
) -> io::Result<()> {
    let mut rank = engine::LevelRank::new(plan, board, job, sink)?;
    let config = plan.config(job.rank())?;
    match plan.level {
        Level::Protocol => {
            let mut link = protocol::ProtocolLink::open(job, &config)?;
            rank.describe(link.transport(), link.describe_adapter());
            run_plan(plan, board, &mut rank, &mut link);
            if matches!(config.choice(Key::Report), "json" | "selection") {
                link.worker().report_learnt(true).iter().for_each(|line| tell!("{line}"));
            }
            link.close();
        }
        Level::Transport => {
            let mut link = transport::TransportLink::open(job, board, &config)?;
            rank.describe(link.transport(), link.describe_adapter());
            run_plan(plan, board, &mut rank, &mut link);
            job.set_phase(RankPhase::Finalized);
        }
        Level::Verbs => {
            verbs::run(plan, board, job, &mut rank, &config)?;
            job.set_phase(RankPhase::Finalized);
        }
        Level::Mpi => {
            let why = "level mpi is measured by the benchmark program, not here";
            return Err(io::Error::other(why));
        }
    }
    Ok(())
}

/// Lines about the adapter at a level above verbs. `adapter` begins with its name.
fn describe_adapter(transport: &str, adapter: Option<String>) -> Vec<String> {
    let Some(text) = adapter else {
        return Vec::new();
    };
    let device = text.split([':', ' ', ',']).next().unwrap_or_default();
    let software = verbs::describe_software(device, std::path::Path::new("/sys"));
    let line = format!("adapter: {transport} on {text}");
    [line].into_iter().chain(software).collect()
}

/// Link between two ranks at one level, for both messages and remote memory access.
trait LevelLink: MessageLink + remote::RemoteLink {
    /// Counts the instructions of a packet on each side, if this level supports that (see [`sides`]).
    fn count_sides(&mut self, _board: &SharedBoard, _bytes: u64) {}

    /// Executes an order of the counting rank; false for an order of another kind.
    fn answer_sides(&mut self, _order: [u64; 4]) -> bool {
        false
    }
}

impl LevelLink for protocol::ProtocolLink {}

impl LevelLink for transport::TransportLink {
    fn count_sides(&mut self, board: &SharedBoard, bytes: u64) {
        if self.is_adapter() {
            sides::count(board, self, bytes);
        }
    }

    fn answer_sides(&mut self, order: [u64; 4]) -> bool {
        sides::answer(self, order)
    }
}

fn run_plan(
    plan: &LevelPlan, board: &SharedBoard, rank: &mut engine::LevelRank, link: &mut impl LevelLink,
) {
    match plan.counted {
        true => counted::run(plan, board, rank.leads(), link),
        false => visit_sizes(plan, rank, |rank, test, bytes| run_size(rank, link, test, bytes)),
    }
}

fn run_size(
    rank: &mut engine::LevelRank, link: &mut impl LevelLink, test: &LevelTest, bytes: usize,
) {
    if rank.touches() && test.name != "latency" {
        let why = "the test does not support --touch below MPI; only latency does";
        return rank.missing(test.name, why);
    }
    match test.name {
        "put" | "get" => remote::run(rank, link, test, bytes),
        "atomics" => remote::atomics::run(rank, link, test),
        "flush" => remote::run_flush(rank, link, test),
        _ => match MessageLink::way(link, bytes) {
            Ok(way) => run_messages(rank, link, test, bytes, way),
            Err(why) => rank.missing(test.name, &format!("{bytes} B: {why}")),
        },
    }
}

fn run_messages<L: MessageLink>(
    rank: &mut engine::LevelRank, link: &mut L, test: &LevelTest, bytes: usize, way: ProtocolRange,
) {
    let window = test.choose_window(rank.window());
    let mut send = vec![1; bytes];
    let mut receive = vec![2; bytes];
    let leads = rank.leads();
    let checked = rank.check(|| exchange_patterns(link, leads, &mut send, &mut receive));
    let touches = rank.touches();
    let variant = if touches { TOUCHED } else { "" };
    let case = Case {
        protocol_sizes: Some(way.sizes),
        checked,
        ..test.case(bytes, window, variant, way.name)
    };
    let divisor = test.divisor() * f64::from(window.max(1));
    let mut turn = 0;
    let run = |operations| match window {
        // Each message is written before its send and read after its receive.
        0 if touches => alternate(
            link,
            leads,
            operations,
            |link| {
                turn += 1;
                write_all(&mut send, turn);
                link.send(&send);
            },
            |link| {
                link.recv(&mut receive);
                read_all(&receive);
            },
        ),
        0 => {
            let (give, take) =
                (|l: &mut _| L::send(l, &send), |l: &mut _| L::recv(l, &mut receive));
            alternate(link, leads, operations, give, take);
        }
        _ if leads => {
            let give = |link: &mut L| link.send_window(window, &send);
            alternate(link, true, operations, give, |link| link.recv(&mut []));
        }
        _ => {
            let take = |link: &mut L| link.recv_window(window, &mut receive);
            alternate(link, false, operations, |link| link.send(&[]), take);
        }
    };
    rank.measure(case, divisor, run, BTreeMap::new);
}

/// One side of `operations` round trips. The leader calls `give` first, the other rank calls `take` first.
#[inline]
fn alternate<L>(
    link: &mut L, leads: bool, operations: u64, mut give: impl FnMut(&mut L),
    mut take: impl FnMut(&mut L),
) {
    for _ in 0..operations {
        if leads {
            give(link);
            take(link);
        } else {
            take(link);
            give(link);
        }
    }
}

/// Stores every byte, as `write_all` of the benchmark program does.
fn write_all(bytes: &mut [u8], word: u64) {
    let word = word.to_ne_bytes();
    let mut words = bytes.chunks_exact_mut(word.len());
    words.by_ref().for_each(|at| at.copy_from_slice(&word));
    words.into_remainder().fill(word[0]);
    std::hint::black_box(bytes.as_ptr());
}

/// Loads every byte, as `read_all` of the benchmark program does.
fn read_all(bytes: &[u8]) {
    let mut words = bytes.chunks_exact(8);
    let whole = words.by_ref().fold(0u64, |all, word| {
        all.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or_default()))
    });
    let rest: u64 = words.remainder().iter().map(|&b| u64::from(b)).sum();
    std::hint::black_box(whole.wrapping_add(rest));
}

/// Exchanges patterns that identify the sender; returns whether this side received the other side's pattern.
fn exchange_patterns(
    link: &mut impl MessageLink, leads: bool, send: &mut [u8], receive: &mut [u8],
) -> bool {
    fill_pattern(send, leads);
    receive.fill(0xee);
    if leads {
        link.send(send);
        link.recv(receive);
    } else {
        link.recv(receive);
        link.send(send);
    }
    has_pattern(receive, !leads)
}

fn pattern_byte(index: usize, of_leader: bool) -> u8 {
    (index % 251) as u8 ^ if of_leader { 0x5a } else { 0xa5 }
}

fn fill_pattern(bytes: &mut [u8], of_leader: bool) {
    let fill = |(i, b): (usize, &mut u8)| *b = pattern_byte(i, of_leader);
    bytes.iter_mut().enumerate().for_each(fill);
}

fn has_pattern(bytes: &[u8], of_leader: bool) -> bool {
    bytes.iter().enumerate().all(|(i, &b)| b == pattern_byte(i, of_leader))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
