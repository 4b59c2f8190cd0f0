//! Sent traffic and queue contents of a rank.
//!
//! Rings lie in the job's memory. Counters and requests of the rank's worker are read from the memory of its process,
//! which keeps running.

use fastpath_base::sync::Ordering;
use fastpath_base::tell::count;
use fastpath_job::inspect::facts::Facts;
use fastpath_job::inspect::jobs::RunningJob;
use fastpath_protocol::snapshot::{Snapshot, look};
use fastpath_protocol::worker::{Counters, Traffic};
use fastpath_segment::{RankPhase, Segment};
use fastpath_transport::shm::outside::{RingSnapshot, SEEN_BYTES, see_ring};

use super::memory::read_words;
use super::size;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Messages and bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct MessageCount {
    messages: u64,
    bytes: u64,
}

impl From<Traffic> for MessageCount {
    fn from(Traffic { messages, bytes }: Traffic) -> MessageCount {
        MessageCount { messages, bytes }
    }
}

/// Messages sent by each protocol, counted separately for memory and for adapters and networks.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SentMessages {
    eager_by_memory: MessageCount,
    eager_by_network: MessageCount,
    rendezvous_by_memory: MessageCount,
    rendezvous_by_network: MessageCount,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Queues {
    pub(super) unexpected: u64,
    pub(super) receives: u64,
    pub(super) sends: u64,
    pub(super) send_bytes: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Traffics {
    /// Slots of 64 bytes that the rank has filled in rings, for short messages and for the protocol steps of longer
    /// ones.
    pub(super) ring_slots_sent: u64,
    /// Slots that other ranks have filled for this rank, and that this rank has not reported as taken.
    ring_slots_waiting: u64,
    /// Messages sent; None if the rank's memory cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<SentMessages>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<Queues>,
    /// All counters of the rank's worker, for metrics.
    #[serde(skip)]
    pub(super) counters: Option<Counters>,
}

/// Collects the traffic of all ranks of a job on this host.
pub(super) fn look_at_traffic(job: &RunningJob, facts: &[Facts]) -> Vec<Traffics> {
    let mut all: Vec<Traffics> = facts.iter().map(|_| Traffics::default()).collect();
    look_at_rings(&job.segment, &mut all);
    for (rank, (facts, traffic)) in facts.iter().zip(&mut all).enumerate() {
        let is_here = job.members.get(rank).is_some_and(|member| member.end.is_none());
        let runs =
            matches!(facts.phase, RankPhase::Initialized | RankPhase::Silent | RankPhase::Settled);
        if let Some(seen) = (is_here && runs).then(|| look_at_worker(job, rank, facts.pid)) {
            traffic.counters = seen.map(|seen| seen.counters);
            (traffic.sent, traffic.queues) = (seen.map(sent_of), seen.map(queues_of));
        }
    }
    all
}

/// Adds up the rings of all connected pairs of ranks.
fn look_at_rings(segment: &Segment, all: &mut [Traffics]) {
    let file = segment.file().map(|file| file.try_clone_to_owned());
    let Ok(Ok(file)) = file.map(|copy| copy.map(File::from)) else {
        return;
    };
    let mut bytes = vec![0; SEEN_BYTES];
    for to in 0..all.len() {
        for (word, bits) in segment.incoming_bitmap(to).into_iter().flatten().enumerate() {
            let bits = bits.load(Ordering::Relaxed);
            for place in (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| word * 64 + bit) {
                let Some(from) = segment.rank_at(place).filter(|&from| from < all.len()) else {
                    continue;
                };
                let offset = segment.pair_offset(from, to);
                let read = |offset| file.read_exact_at(&mut bytes, offset).ok();
                if offset.and_then(read).is_none() {
                    continue;
                }
                let seen: RingSnapshot = see_ring(&bytes).unwrap_or_default();
                let (sent, waiting) = (seen.sent, seen.waiting);
                add_up(&mut all[from].ring_slots_sent, sent);
                add_up(&mut all[to].ring_slots_waiting, waiting);
            }
        }
    }
}

/// Snapshot of a rank's worker; `None` if the kernel refuses access to the memory of the process.
fn look_at_worker(job: &RunningJob, rank: usize, pid: i32) -> Option<Snapshot> {
    let read = |address: u64, words: usize| read_words(pid, address, words);
    // ORDERING: acquire pairs with the release in `Worker::show`.
    let shown = job.segment.page(rank)?.snapshot.load(Ordering::Acquire);
    (shown != 0).then(|| look(&read, shown)).flatten()
}

fn sent_of(seen: Snapshot) -> SentMessages {
    let ([eager, far_eager], [long, far_long]) = (seen.counters.eager, seen.counters.announced);
    SentMessages {
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

impl MessageCount {
    fn add(&mut self, other: MessageCount) {
        add_up(&mut self.messages, other.messages);
        add_up(&mut self.bytes, other.bytes);
    }
}

/// Adds a number that another process wrote, and which may be anything.
fn add_up(sum: &mut u64, number: u64) {
    *sum = sum.saturating_add(number);
}

impl Traffics {
    /// Adds the traffic of another rank.
    pub fn add(&mut self, other: &Traffics) {
        add_up(&mut self.ring_slots_sent, other.ring_slots_sent);
        add_up(&mut self.ring_slots_waiting, other.ring_slots_waiting);
        if let Some(sent) = &other.sent {
            let sum = self.sent.get_or_insert_default();
            sum.eager_by_memory.add(sent.eager_by_memory);
            sum.eager_by_network.add(sent.eager_by_network);
            sum.rendezvous_by_memory.add(sent.rendezvous_by_memory);
            sum.rendezvous_by_network.add(sent.rendezvous_by_network);
        }
        if let Some(queues) = &other.queues {
            let sum = self.queues.get_or_insert_default();
            add_up(&mut sum.unexpected, queues.unexpected);
            add_up(&mut sum.receives, queues.receives);
            add_up(&mut sum.sends, queues.sends);
            add_up(&mut sum.send_bytes, queues.send_bytes);
        }
    }

    /// Lines with messages sent and queue contents; `of` follows the noun.
    pub fn describe(&self, of: &str) -> Vec<String> {
        let mut sent = Vec::new();
        if self.ring_slots_sent != 0 {
            sent.push(format!("{} of 64 B in rings", count(self.ring_slots_sent, "slot")));
        }
        if let Some(counts) = &self.sent {
            let named = [
                ("eager", "", counts.eager_by_memory),
                ("rendezvous", "", counts.rendezvous_by_memory),
                ("eager", " by network", counts.eager_by_network),
                ("rendezvous", " by network", counts.rendezvous_by_network),
            ];
            for (protocol, way, sum) in named.into_iter().filter(|(_, _, c)| c.messages != 0) {
                let (messages, bytes) = (sum.messages, size(sum.bytes));
                sent.push(format!("{} ({bytes}) {protocol}{way}", count(messages, "message")));
            }
        }
        let mut waiting = vec![{
            let slots = self.ring_slots_waiting;
            (slots, format!("unread slot{} in rings", plural(slots)))
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
            (!parts.is_empty()).then(|| format!("  {what}{of}: {}", parts.join(", ")))
        };
        [line("sent", sent), line("queues", waiting)].into_iter().flatten().collect()
    }
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn traffic__of_implausible_counters_has_a_bounded_sum() {
        let count = || MessageCount { messages: u64::MAX, bytes: u64::MAX };
        let traffic = Traffics {
            sent: Some(SentMessages { eager_by_memory: count(), ..SentMessages::default() }),
            queues: Some(Queues { sends: u64::MAX, send_bytes: 1, ..Queues::default() }),
            ..Traffics::default()
        };
        let mut total = Traffics::default();
        total.add(&traffic);
        total.add(&traffic);
        let (sent, queues) = (total.sent.unwrap(), total.queues.unwrap());
        assert_eq!((sent.eager_by_memory.messages, queues.sends), (u64::MAX, u64::MAX));
        assert_eq!(queues.send_bytes, 2);
    }
}
