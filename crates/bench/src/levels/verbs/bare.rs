//! The bare loops: post, poll, and nothing else.

mod operations;
mod queues;

use std::collections::BTreeMap;

use fastpath_job::Job;
use fastpath_transport::verbs::{RecvEntry, SendList, Wc};

use super::wire::ConnectedPair;
use crate::options::verbs::{Polls, VerbsOptions};

pub const POLL_BATCH: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub depth: u32,
    /// Number of sends posted by one call.
    pub list: u32,
    /// Number of sends from one signaled send to the next.
    pub moderation: u32,
    pub eager: bool,
}

impl Pace {
    /// Pace of ping-pongs, with one message in flight.
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

    pub fn of_windows(options: &VerbsOptions, depth: u32) -> Pace {
        Pace {
            depth,
            list: options.post_list.unwrap_or(1),
            moderation: options.cq_moderation.unwrap_or((depth / 4).max(1)),
            eager: options.poll == Some(Polls::Eager),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PostCounts {
    sends: u64,
    inline: u64,
    calls: u64,
    completions: u64,
    send_polls: u64,
    most: u64,
    arrivals: u64,
    /// Number of polls that found arrivals.
    found: u64,
}

pub struct BareLoop<'a> {
    wire: &'a ConnectedPair,
    job: &'static Job,
    pace: Pace,
    batch: Vec<Wc>,
    rooms: Vec<RecvEntry>,
    list: SendList,
    posted: u64,
    done: u64,
    /// Sends since the last signaled send.
    silent: u32,
    /// Messages that have arrived and are not received yet.
    arrived: u32,
    /// Receive buffers to post again.
    empty: u32,
    /// Mark of the last write in each direction.
    written: u8,
    seen: u8,
    counts: PostCounts,
}

impl<'a> BareLoop<'a> {
    /// Posts all receive buffers.
    pub fn new(wire: &'a ConnectedPair, job: &'static Job, options: &VerbsOptions) -> BareLoop<'a> {
        let segment = wire.receive_segment();
        let batch = options.poll_batch.unwrap_or(POLL_BATCH);
        let mut bare = BareLoop {
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
            counts: PostCounts::default(),
        };
        bare.refill();
        bare
    }

    pub fn begin(&mut self, pace: Pace) {
        self.flush();
        self.pace = pace;
        self.counts = PostCounts::default();
    }

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
