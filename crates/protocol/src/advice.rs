//! Advice on protocols. A receiver sends it after timed messages, and the sender follows it in its plans.

use crate::learning::{Advice, Arm, LEARN_MIN, OCTAVES, octave};
use crate::request::{Fault, RequestId};
use crate::wire;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_transport::Header;

/// Number of low bits of an `ADVICE`'s `header.imm` that hold the octave. The higher bits hold `Advice::timed`.
const OCTAVE_BITS: u32 = 8;

pub(crate) fn stamp_ns() -> u32 {
    clock::now_ns() as u32 | 1
}

impl Worker {
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
        let Some(advice) =
            self.planner.learnt(&mut self.endpoints[peer]).note(arm, bytes, sent_ns, stamp_ns())
        else {
            return;
        };
        let octave = octave(bytes);
        self.planner.mirrors[octave].follow(advice);
        let imm = octave as u32 | (advice.timed as u32) << OCTAVE_BITS;
        let header = Header::new(wire::ADVICE, imm, advice.arm as u64);
        // Advice may be lost, so do not retry if there is no space for it.
        let _ = self.endpoints[peer].post_signal(header);
    }

    pub(crate) fn handle_advice(&mut self, peer: u32, header: Header) {
        let octave = (header.imm & ((1 << OCTAVE_BITS) - 1)) as usize;
        let timed = (header.imm >> OCTAVE_BITS) as u8;
        let arm = u8::try_from(header.key).ok().and_then(Arm::of);
        let (Some(arm), true) = (arm, octave < OCTAVES && timed > 0) else {
            return self.violation();
        };
        if self.endpoints[peer].lane.is_same_host() {
            self.planner.learnt(&mut self.endpoints[peer]).follow(octave, Advice { arm, timed });
        }
    }

    /// Returns the learnt protocols, as lines of text or as JSON objects. There is one for each octave of sizes of each
    /// peer on this host, and some for ranks that share processors.
    pub fn report_learnt(&self, json: bool) -> Vec<String> {
        let mut lines = self.planner.copy_costs.report(self.rank, json);
        for peer in 0..self.present() {
            let Some(learnt) = &self.endpoints[peer].learnt else {
                continue;
            };
            for (from, learner) in learnt.learners() {
                let (arm, rate, messages) = learner.learnt();
                if messages == 0 {
                    continue;
                }
                let rank = self.rank;
                lines.push(match json {
                    true => serde_json::json!({
                        "rank": rank, "from_rank": peer, "from_bytes": from, "protocol": arm.name(),
                        "ps_per_byte": rate, "timed_messages": messages,
                    })
                    .to_string(),
                    false => format!(
                        "rank {rank}: for messages of {from} B or more from rank {peer}, {} was \
                         fastest: {:.1} GB/s ({messages} messages timed)",
                        arm.name(),
                        1000.0 / rate.max(1) as f64
                    ),
                });
            }
        }
        lines
    }
}
