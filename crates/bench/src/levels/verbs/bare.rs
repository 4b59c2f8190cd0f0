//! The bare loops: post, poll, and nothing else.

mod operations;
mod queues;

use std::collections::BTreeMap;

use fastpath_bootstrap::Job;
use fastpath_transport::verbs::{RecvEntry, SendList, Wc};

use super::wire::Wire;
use crate::bench::verbs::{Polls, VerbsOptions};

/// Completions taken by one poll, where nothing else is asked for.
pub const POLL_BATCH: u32 = 16;

/// How sends are posted and their completions taken.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Sends under way at most.
    pub depth: u32,
    /// Sends posted by one call.
    pub list: u32,
    /// Every N-th send reports its success.
    pub moderation: u32,
    /// Completions are polled for after each call.
    pub eager: bool,
}

impl Pace {
    /// That of ping-pongs: one message is under way.
    pub fn of_rounds(options: &VerbsOptions, depth: u32) -> Pace {
        let eager = options.poll != Some(Polls::Lazy);
        let quarter = (depth / 4).max(1);
        Pace {
            depth,
            list: 1,
            moderation: options.cq_moderation.unwrap_or(if eager { 1 } else { quarter }),
            eager,
        }
    }

    /// That of windows.
    pub fn of_windows(options: &VerbsOptions, depth: u32) -> Pace {
        Pace {
            depth,
            list: options.post_list.unwrap_or(1),
            moderation: options.cq_moderation.unwrap_or((depth / 4).max(1)),
            eager: options.poll == Some(Polls::Eager),
        }
    }
}

/// What was done, since the begin of a case.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sends: u64,
    inline: u64,
    calls: u64,
    completions: u64,
    send_polls: u64,
    most: u64,
    arrivals: u64,
    /// Polls that found arrivals.
    found: u64,
}

/// One of the two ranks, at its queue pair.
pub struct Bare<'a> {
    wire: &'a Wire,
    job: &'static Job,
    pace: Pace,
    batch: Vec<Wc>,
    rooms: Vec<RecvEntry>,
    list: SendList,
    posted: u64,
    done: u64,
    /// Sends since the last that reports its success.
    silent: u32,
    /// Messages that came and were not asked for yet.
    arrived: u32,
    /// Receive buffers that are to be posted again.
    empty: u32,
    /// What the last write in either direction carried.
    written: u8,
    seen: u8,
    counts: Counts,
}

impl<'a> Bare<'a> {
    /// Posts all receive buffers.
    pub fn new(wire: &'a Wire, job: &'static Job, options: &VerbsOptions) -> Bare<'a> {
        let segment = wire.receive_segment();
        let batch = options.poll_batch.unwrap_or(POLL_BATCH);
        let mut bare = Bare {
            wire,
            job,
            pace: Pace::of_rounds(options, wire.pair.send_depth().max(1)),
            batch: vec![Wc::default(); batch as usize],
            rooms: vec![RecvEntry { id: 0, segment }; wire.rx_depth as usize],
            list: SendList::new(),
            posted: 0,
            done: 0,
            silent: 0,
            arrived: 0,
            empty: wire.rx_depth,
            written: 0,
            seen: 0,
            counts: Counts::default(),
        };
        bare.refill();
        bare
    }

    /// A case begins: how it posts, and all is counted from here.
    pub fn begin(&mut self, pace: Pace) {
        self.flush();
        self.pace = pace;
        self.counts = Counts::default();
    }

    /// What was done by this rank in the case.
    pub fn describe_counts(&self) -> BTreeMap<String, f64> {
        let c = &self.counts;
        let each = |n: u64, of: u64| n as f64 / of.max(1) as f64;
        let mut said = BTreeMap::new();
        let mut say = |name: &str, value: f64| {
            said.insert(name.to_owned(), value);
        };
        if c.sends > 0 {
            say("post calls per send", each(c.calls, c.sends));
            say("share of sends inline", each(c.inline, c.sends));
            say("completions per send", each(c.completions, c.sends));
            say("polls of the send queue per send", each(c.send_polls, c.sends));
            say("most sends under way", c.most as f64);
        }
        if c.arrivals > 0 {
            say("arrivals per poll that found some", each(c.arrivals, c.found));
        }
        said
    }
}
