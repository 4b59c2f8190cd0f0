//! What a rank has sent, and what its queues hold.
//!
//! Rings lie in the job's memory. What the rank's workers have counted, and their requests, is read out of its process,
//! which goes on meanwhile.

use fastpath_base::sync::Ordering;
use fastpath_bootstrap::inspect::facts::Facts;
use fastpath_bootstrap::inspect::jobs::RunningJob;
use fastpath_bootstrap::segment::{FURTHER, Phase, Segment};
use fastpath_protocol::snapshot::{Snapshot, look};
use fastpath_protocol::worker::Traffic;
use fastpath_transport::shm::outside::{RingSeen, SEEN_BYTES, see_ring};

use super::memory::read_memory;
use super::size;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Messages and bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Count {
    messages: u64,
    bytes: u64,
}

impl From<Traffic> for Count {
    fn from(Traffic { messages, bytes }: Traffic) -> Count {
        Count { messages, bytes }
    }
}

/// What a rank has sent by each protocol, by memory and by adapters and networks.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    eager_by_memory: Count,
    eager_by_network: Count,
    rendezvous_by_memory: Count,
    rendezvous_by_network: Count,
}

/// What a rank's queues hold.
#[derive(Debug, Serialize, Deserialize)]
struct Queues {
    /// Unexpected messages that it has stored.
    unexpected: u64,
    /// Receives that are not over.
    receives: u64,
    /// Sends that are not over, and their bytes.
    sends: u64,
    send_bytes: u64,
}

/// Of one rank.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Traffics {
    /// Slots of 64 bytes that it has filled in rings: short messages, and steps of longer ones.
    ring_slots_sent: u64,
    /// Slots filled for it that it has not said to have taken.
    ring_slots_waiting: u64,
    /// What cannot be read is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<Sent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<Queues>,
}

/// Looks at all ranks of a job that are on this host.
pub(super) fn look_at_traffic(job: &RunningJob, facts: &[Facts]) -> Vec<Traffics> {
    let mut all: Vec<Traffics> = facts.iter().map(|_| Traffics::default()).collect();
    look_at_rings(&job.segment, &mut all);
    for (rank, (facts, traffic)) in facts.iter().zip(&mut all).enumerate() {
        let is_here = job.members.get(rank).is_some_and(|member| member.end.is_none());
        let runs = matches!(facts.phase, Phase::Initialized | Phase::Silent | Phase::Settled);
        if let Some(seen) = (is_here && runs).then(|| look_at_workers(job, rank, facts.pid)) {
            (traffic.sent, traffic.queues) = (seen.map(sent_of), seen.map(queues_of));
        }
    }
    all
}

/// Adds up the rings of all pairs of ranks that have connected.
fn look_at_rings(segment: &Segment, all: &mut [Traffics]) {
    let file = segment.file().map(|file| file.try_clone_to_owned());
    let Ok(Ok(file)) = file.map(|copy| copy.map(File::from)) else {
        return;
    };
    let mut bytes = vec![0; SEEN_BYTES];
    for which in 0..=FURTHER {
        for to in 0..all.len() {
            for (word, bits) in segment.worker_bitmap(which, to).into_iter().flatten().enumerate() {
                let bits = bits.load(Ordering::Relaxed);
                for place in (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| word * 64 + bit) {
                    let Some(from) = segment.rank_at(place).filter(|&from| from < all.len()) else {
                        continue;
                    };
                    let offset = segment.pair_offset(which, from, to);
                    let read = |offset| file.read_exact_at(&mut bytes, offset).ok();
                    if offset.and_then(read).is_none() {
                        continue;
                    }
                    let seen: RingSeen = see_ring(&bytes).unwrap_or_default();
                    let (sent, waiting) = (seen.sent, seen.waiting);
                    let sum = &mut all[from].ring_slots_sent;
                    *sum = sum.saturating_add(sent);
                    all[to].ring_slots_waiting += waiting;
                }
            }
        }
    }
}

/// What the workers of a rank show together; `None` where the kernel does not let anybody look.
fn look_at_workers(job: &RunningJob, rank: usize, pid: i32) -> Option<Snapshot> {
    let read = |address: u64, words: usize| {
        let bytes = read_memory(pid, address, words * 8);
        let words_of = bytes.chunks_exact(8).map(|w| w.try_into().map(u64::from_le_bytes));
        (bytes.len() == words * 8).then(|| words_of.flatten().collect())
    };
    let snapshots = &job.segment.page(rank)?.snapshots;
    // ORDERING: acquire pairs with the release in `Worker::show`.
    let shown = snapshots.iter().map(|addresses| addresses.load(Ordering::Acquire));
    let seen = shown.filter(|&addresses| addresses != 0).map(|addresses| look(&read, addresses));
    seen.reduce(|a, b| Some(a?.and(b?))).flatten()
}

fn sent_of(seen: Snapshot) -> Sent {
    let ([eager, far_eager], [long, far_long]) = (seen.counters.eager, seen.counters.announced);
    Sent {
        eager_by_memory: eager.into(),
        eager_by_network: far_eager.into(),
        rendezvous_by_memory: long.into(),
        rendezvous_by_network: far_long.into(),
    }
}

fn queues_of(seen: Snapshot) -> Queues {
    Queues {
        unexpected: seen.unexpected,
        receives: seen.receives,
        sends: seen.sends,
        send_bytes: seen.send_bytes,
    }
}

impl Traffics {
    /// Lines of text; none if there is nothing to say.
    pub fn describe(&self) -> Vec<String> {
        let mut sent = Vec::new();
        if self.ring_slots_sent != 0 {
            sent.push(format!("{} slots of 64 B in rings", self.ring_slots_sent));
        }
        if let Some(counts) = &self.sent {
            let named = [
                ("eager", "", counts.eager_by_memory),
                ("rendezvous", "", counts.rendezvous_by_memory),
                ("eager", " by network", counts.eager_by_network),
                ("rendezvous", " by network", counts.rendezvous_by_network),
            ];
            for (protocol, way, count) in named.into_iter().filter(|(_, _, c)| c.messages != 0) {
                let (messages, bytes) = (count.messages, size(count.bytes));
                let s = plural(messages);
                sent.push(format!("{messages} message{s} ({bytes}) {protocol}{way}"));
            }
        }
        let mut waiting = vec![{
            let slots = self.ring_slots_waiting;
            (slots, format!("slot{} in rings not taken", plural(slots)))
        }];
        if let Some(queues) = &self.queues {
            let (messages, receives, sends) = (queues.unexpected, queues.receives, queues.sends);
            waiting.push((messages, format!("unexpected message{}", plural(messages))));
            waiting.push((receives, format!("receive{}", plural(receives))));
            let bytes = size(queues.send_bytes);
            waiting.push((sends, format!("send{} ({bytes})", plural(sends))));
        }
        let waiting = waiting.into_iter().filter(|(count, _)| *count != 0);
        let waiting: Vec<String> = waiting.map(|(count, of)| format!("{count} {of}")).collect();
        let line = |what: &str, parts: Vec<String>| {
            (!parts.is_empty()).then(|| format!("  {what}: {}", parts.join(", ")))
        };
        [line("sent", sent), line("queues", waiting)].into_iter().flatten().collect()
    }
}

/// The end of a noun that counts `n`.
fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}
