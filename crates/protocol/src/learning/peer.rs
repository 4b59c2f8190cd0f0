//! What is learnt of one peer: as its sender what it advises, as its receiver what its messages took.

use super::shared_processors::EagerCopy;
use super::{Advice, Arm, Entry, LEARN_MIN, Learner, OCTAVES, octave, timed_of};
use crate::request::{Fault, RequestId};
use crate::wire;
use crate::worker::{EARLY_LIMIT, Worker};
use fastpath_base::clock;
use fastpath_transport::Header;

/// Bits of `header.imm` of an `ADVICE` that name the octave; above them the messages of which one is to be timed.
const OCTAVE_BITS: u32 = 8;

/// Bytes of a message that leaves at once to however many peers, and messages that a ring is to hold of longer ones.
const ALWAYS_EAGER: u64 = 32 << 10;
const RING_MESSAGES: u64 = 4;

/// What is learnt of one peer.
pub struct Learnt {
    /// For messages to it.
    entries: [Entry; OCTAVES],
    /// Of messages from it.
    learners: [Learner; OCTAVES],
    /// When the last timed message from it was complete, in nanoseconds modulo 2^32.
    done_ns: u32,
}

/// The time in nanoseconds modulo 2^32, never 0.
pub(crate) fn stamp_ns() -> u32 {
    clock::now_ns() as u32 | 1
}

impl Worker {
    /// The way of a contiguous message to a peer, and whether it is to be timed.
    #[inline]
    pub(crate) fn choose_arm(&mut self, peer: u32, bytes: u64) -> (Arm, bool) {
        let computes = self.computes_beside(peer, bytes);
        if computes || self.is_crowded() {
            return (self.choose_crowded(peer, bytes, computes), false);
        }
        if bytes < LEARN_MIN
            || !self.selection.overrides.adapt
            || !self.endpoints[peer].lane.is_same_host()
        {
            return (self.first_arm(bytes), false);
        }
        let eager = bytes <= self.thresholds.first;
        let octave = octave(bytes);
        let mirrored = self.mirrors[octave].arm();
        let entry = &self.learnt(peer).entries[octave];
        let (arm, is_due) = match mirrored {
            Some(arm) if !entry.is_trial() => (arm, false),
            _ => (entry.arm(), entry.is_due()),
        };
        match eager && !arm.is_ring() {
            // What may leave eagerly does: its sender need not wait.
            true => (Arm::Vector, false),
            false => (arm, is_due),
        }
    }

    /// The same where its receiver may have no processor to itself: times tell of the scheduler.
    fn choose_crowded(&mut self, peer: u32, bytes: u64, computes: bool) -> Arm {
        let learns = self.selection.overrides.adapt && self.endpoints[peer].lane.is_same_host();
        if bytes < self.thresholds.crowded_copy && self.fits_ring(peer, bytes) {
            return Arm::Vector;
        }
        match learns && !computes {
            true => self.choose_by_copies(),
            // The one with the fewest copies leaves most to others.
            false => Arm::Get,
        }
    }

    /// How a contiguous message of [`LEARN_MIN`] bytes or more is copied that leaves at once; `None`: it is announced.
    #[inline]
    pub(crate) fn choose_eager(&mut self, peer: u32, bytes: u64) -> Option<EagerCopy> {
        if self.is_crowded() {
            return self.choose_eager_crowded(peer, bytes);
        }
        if bytes > ALWAYS_EAGER && !self.endpoints[peer].lane.has_share(bytes) {
            return None;
        }
        match self.choose_arm(peer, bytes) {
            (_, true) => None, // the RTS says when it began
            (arm, false) => Some(EagerCopy { by: arm.copy_loop(), timed: false }),
        }
    }

    #[cold]
    #[inline(never)]
    fn choose_eager_crowded(&mut self, peer: u32, bytes: u64) -> Option<EagerCopy> {
        let is_same_host = self.endpoints[peer].lane.is_same_host();
        self.fits_ring(peer, bytes).then(|| match self.selection.overrides.adapt && is_same_host {
            true => self.choose_eager_copy(bytes),
            false => EagerCopy::PLAIN,
        })
    }

    /// Whether a message may leave at once where ranks share processors: the ring holds several such, since its
    /// receiver may wait for a processor.
    fn fits_ring(&self, peer: u32, bytes: u64) -> bool {
        bytes <= ALWAYS_EAGER || self.endpoints[peer].lane.has_share(RING_MESSAGES * bytes)
    }

    /// Bytes of a longer message that go to a peer without being asked for.
    pub(crate) fn early_to(&self, peer: u32) -> u64 {
        let lane = &self.endpoints[peer].lane;
        let early = self.thresholds.early_on(lane);
        let waits = self.is_crowded() && lane.is_same_host();
        match waits && !self.fits_ring(peer, early) {
            true => early.min(ALWAYS_EAGER),
            false => early,
        }
    }

    /// A message of [`LEARN_MIN`] bytes or more leaves, timed or not.
    #[inline]
    pub(crate) fn count_arm(&mut self, peer: u32, bytes: u64, timed: bool) {
        self.mirrors[octave(bytes)].count();
        if let Some(learnt) = &mut self.endpoints[peer].learnt {
            learnt.entries[octave(bytes)].count(timed);
        }
    }

    /// What the cost model says.
    fn first_arm(&self, bytes: u64) -> Arm {
        match bytes >= self.thresholds.single_copy {
            true => Arm::Cooperative,
            false => Arm::Vector,
        }
    }

    fn learnt(&mut self, peer: u32) -> &mut Learnt {
        if self.endpoints[peer].learnt.is_none() {
            self.begin_learning(peer);
        }
        match &mut self.endpoints[peer].learnt {
            Some(learnt) => learnt,
            None => unreachable!("just made"),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_learning(&mut self, peer: u32) {
        let copies = self.selection.kernel.is_ok();
        let arm = |index: usize| self.first_arm(LEARN_MIN << index);
        let open = |index: usize, arm: Arm| match arm.is_ring() {
            true => arm.copy_loop().is_available(),
            false => copies && LEARN_MIN << index > EARLY_LIMIT,
        };
        let learnt = Learnt {
            entries: std::array::from_fn(|index| Entry::new(arm(index), timed_of(index))),
            learners: std::array::from_fn(|index| {
                Learner::new(arm(index), timed_of(index), |arm| open(index, arm))
            }),
            done_ns: 0,
        };
        self.endpoints[peer].learnt = Some(Box::new(learnt));
    }

    /// A timed message is complete. It began when its sender had it, or when the one before it was complete.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        let (peer, bytes, sent_ns) = (request.peer, request.received, request.sent_ns);
        let is_plain = request.fault == Fault::None && request.is_contiguous();
        let Some(arm) = Arm::of(request.arm).filter(|_| is_plain && bytes >= LEARN_MIN) else {
            return;
        };
        if !self.endpoints[peer].lane.is_same_host() || self.is_crowded() {
            return;
        }
        let now_ns = stamp_ns();
        let learnt = self.learnt(peer);
        let since_last = now_ns.wrapping_sub(learnt.done_ns);
        let taken = now_ns.wrapping_sub(sent_ns).min(since_last);
        learnt.done_ns = now_ns;
        let octave = octave(bytes);
        let Some(advice) = learnt.learners[octave].note(arm, bytes, taken as u64) else {
            return;
        };
        self.mirrors[octave].follow(advice);
        let imm = octave as u32 | (advice.timed as u32) << OCTAVE_BITS;
        let header = Header::new(wire::ADVICE, imm, advice.arm as u64);
        // Nobody waits for it: where there is no room it is not given.
        let _ = self.endpoints[peer].post_signal(header);
    }

    /// What a receiver advises. One that is not understood is not followed.
    pub(crate) fn handle_advice(&mut self, peer: u32, header: Header) {
        let octave = (header.imm & ((1 << OCTAVE_BITS) - 1)) as usize;
        let timed = (header.imm >> OCTAVE_BITS) as u8;
        let arm = u8::try_from(header.key).ok().and_then(Arm::of);
        let (Some(arm), true) = (arm, octave < OCTAVES && timed > 0) else {
            return self.violation();
        };
        if self.endpoints[peer].lane.is_same_host() {
            self.learnt(peer).entries[octave].follow(Advice { arm, timed });
        }
    }

    /// What was learnt of messages from peers of this host, a line for each peer and octave, and of copies where ranks
    /// share processors; in JSON an object each.
    pub fn report_learnt(&self, json: bool) -> Vec<String> {
        let mut lines = self.copy_costs.report(self.rank, json);
        for peer in 0..self.present() {
            let Some(learnt) = &self.endpoints[peer].learnt else {
                continue;
            };
            for (index, learner) in learnt.learners.iter().enumerate() {
                let (arm, rate, messages) = learner.learnt();
                if messages == 0 {
                    continue;
                }
                let (rank, from) = (self.rank, LEARN_MIN << index);
                lines.push(match json {
                    true => serde_json::json!({
                        "rank": rank, "from_rank": peer, "from_bytes": from, "protocol": arm.name(),
                        "ps_per_byte": rate, "timed_messages": messages,
                    })
                    .to_string(),
                    false => format!(
                        "rank {rank}: messages of rank {peer} from {from} B: {} ({:.1} GB/s; \
                         {messages} timed)",
                        arm.name(),
                        1000.0 / rate.max(1) as f64
                    ),
                });
            }
        }
        lines
    }
}
