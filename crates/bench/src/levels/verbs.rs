//! `--level verbs`: bare loops on the verbs interface, without a transport's protocol. They are the baseline of the
//! levels above, and are compared with perftest.

mod bare;
mod counted;
mod facts;
mod wire;

use std::cell::RefCell;
use std::io;

use fastpath_base::config::Config;
use fastpath_job::Job;
use fastpath_report::record::Case;

use super::board::SharedBoard;
use super::{LevelPlan, LevelTest, alternate, engine, fill_pattern, has_pattern, visit_sizes};
use crate::options::verbs::{Connection, VerbsOptions};
use bare::{BareLoop, Pace};
use wire::{ConnectedPair, DEPTHS};

pub use facts::describe_software;

/// Largest message by default, in bytes.
const LARGEST: u64 = 1 << 20;

const BOTH: &str = "both ways";

/// Variant name, equal to that of an adapter at the levels above, so that tables show them in one row.
fn name_variant(test: &str, window: u32, both: bool) -> &'static str {
    match (test, window) {
        ("put", 0) => "adapter, seen in memory",
        ("get", 0) => "adapter, each completed",
        ("put" | "get", _) => "adapter",
        _ if both => BOTH,
        _ => "",
    }
}

/// Runs all tests of a plan, as one of the two ranks.
pub fn run(
    plan: &LevelPlan, board: &SharedBoard, job: &'static Job, rank: &mut engine::LevelRank,
    config: &Config,
) -> io::Result<()> {
    let options = &plan.verbs;
    let asked = plan.settings.case.sizes.iter().max().copied();
    let room = asked.unwrap_or(LARGEST) as usize;
    let wire = ConnectedPair::open(config, options, room, board, rank.leads());
    let wire = wire.map_err(|error| io::Error::other(error.to_string()))?;
    // Both sides post receives before anything is sent.
    let mut bare = BareLoop::new(&wire, job, options);
    board.exchange(rank.leads(), [0; 4]);
    if plan.counted {
        counted::run(plan, board, rank.leads(), &mut bare, wire.connection);
        return Ok(());
    }
    let depths = DEPTHS.map(|own| options.tx_depth.unwrap_or(own));
    rank.describe(wire.connection.name(), facts::describe_wire(&wire, options, depths));
    let tests = Tests { wire: &wire, options, depths, bare: RefCell::new(bare) };
    let intervals = plan.settings.intervals.as_deref();
    let endless = intervals == Some("endless");
    let turns = intervals.and_then(|n| n.parse().ok());
    visit_sizes(plan, rank, |rank, test, bytes| {
        let mut left = turns.unwrap_or(1u64);
        while (left > 0 || endless) && tests.run(rank, test, bytes) {
            left = left.saturating_sub(1);
        }
    });
    tests.bare.borrow_mut().flush();
    // Neither rank leaves while the other rank may wait for an acknowledgement by its queue pair.
    board.exchange(rank.leads(), [0; 4]);
    Ok(())
}

struct Tests<'a> {
    wire: &'a ConnectedPair,
    options: &'a VerbsOptions,
    depths: [u32; 2],
    bare: RefCell<BareLoop<'a>>,
}

impl Tests<'_> {
    /// Returns the reason for which a case cannot be measured.
    fn refuse(&self, rank: &engine::LevelRank, test: &LevelTest, bytes: usize) -> Option<String> {
        let remote = ["put", "get", "flush"].contains(&test.name);
        if rank.touches() {
            let why = "level verbs does not support --touch";
            return Some(why.to_owned());
        }
        match self.wire.connection {
            Connection::Ud if remote => {
                return Some(
                    "datagrams cannot access memory of other ranks; use --connection rc".to_owned(),
                );
            }
            Connection::Ud if bytes > self.wire.largest() => {
                let most = self.wire.largest();
                return Some(format!("{bytes} B are too many: a datagram has at most {most} B"));
            }
            _ => {}
        }
        let seen = test.name == "put" && test.window == 0;
        (seen && bytes == 0).then(|| {
            "a put of 0 B changes no memory, so the other rank cannot see its arrival".to_owned()
        })
    }

    /// Measures one size; false if that is impossible.
    fn run(&self, rank: &mut engine::LevelRank, test: &LevelTest, bytes: usize) -> bool {
        if let Some(why) = self.refuse(rank, test, bytes) {
            rank.missing(test.name, &why);
            return false;
        }
        let remote = ["put", "get"].contains(&test.name);
        let window = test.choose_window(rank.window());
        let depth = self.depths[usize::from(remote)];
        let pace = match window {
            0 => Pace::of_rounds(self.options, depth),
            _ => Pace::of_windows(self.options, depth),
        };
        let checked = self.check(rank, test, bytes);
        {
            let mut bare = self.bare.borrow_mut();
            bare.begin(pace);
            bare.restart_writes();
        }
        // No rank writes before both are ready.
        rank.agree(true);
        let both = self.options.bidirectional && window > 0 && !remote;
        let variant = name_variant(test.name, window, both);
        let case = Case { checked, ..test.case(bytes, window, variant, &test.operation) };
        let divisor = test.divisor() * f64::from(window.max(1));
        let leads = rank.leads();
        let counts = || self.bare.borrow().describe_counts();
        rank.measure(
            case,
            divisor,
            |operations| {
                let bare = &mut *self.bare.borrow_mut();
                match (test.name, window) {
                    ("put", 0) => {
                        let give = |b: &mut BareLoop| b.write_marked(bytes);
                        alternate(bare, leads, operations, give, |b| b.await_marked(bytes));
                    }
                    ("put" | "get" | "flush", _) if !leads => {}
                    ("put", _) => (0..operations).for_each(|_| bare.write_window(window, bytes)),
                    ("get", 0) => (0..operations).for_each(|_| {
                        bare.post_remote(false, bytes);
                        bare.flush_remote();
                    }),
                    ("get", _) => (0..operations).for_each(|_| bare.read_window(window, bytes)),
                    ("flush", _) => (0..operations).for_each(|_| {
                        bare.flush_remote();
                        // Prevents the compiler from merging iterations.
                        std::hint::black_box(&mut *bare);
                    }),
                    (_, 0) => {
                        let give = |b: &mut BareLoop| b.send(bytes);
                        alternate(bare, leads, operations, give, |b| _ = b.receive());
                    }
                    _ if both => {
                        (0..operations).for_each(|_| bare.exchange_window(window, bytes));
                    }
                    _ if leads => {
                        let give = |b: &mut BareLoop| b.send_window(window, bytes);
                        alternate(bare, true, operations, give, |b| _ = b.receive());
                    }
                    _ => {
                        let take = |b: &mut BareLoop| b.receive_window(window);
                        alternate(bare, false, operations, |b| b.send(0), take);
                    }
                }
            },
            counts,
        );
        true
    }

    /// Verifies that each side gets the bytes that the other side sent or wrote; None if not requested, or for `flush`.
    fn check(&self, rank: &mut engine::LevelRank, test: &LevelTest, bytes: usize) -> Option<bool> {
        if !rank.checks() {
            return None;
        }
        let leads = rank.leads();
        let mut bare = self.bare.borrow_mut();
        bare.begin(Pace::of_rounds(self.options, self.depths[0]));
        fill_pattern(bare.outgoing(bytes), leads);
        match (test.name, leads) {
            ("get", _) => fill_pattern(bare.landed(bytes), leads),
            _ => bare.landed(bytes).fill(0xee),
        }
        rank.agree(true);
        let right = match (test.name, leads) {
            ("flush", _) => return None,
            ("put", true) => {
                bare.write_window(1, bytes);
                true
            }
            ("get", true) => {
                bare.read_window(1, bytes);
                has_pattern(bare.landed(bytes), false)
            }
            ("put" | "get", false) => true,
            (_, true) => {
                bare.send(bytes);
                bare.receive();
                has_pattern(bare.landed(bytes), false)
            }
            (_, false) => {
                bare.receive();
                bare.send(bytes);
                has_pattern(bare.landed(bytes), true)
            }
        };
        let all = rank.agree(right);
        if test.name != "put" {
            return Some(all);
        }
        // Written data is checked after the writer has reported its completion.
        let right = leads || has_pattern(bare.landed(bytes), true);
        Some(rank.agree(right) && all)
    }
}
