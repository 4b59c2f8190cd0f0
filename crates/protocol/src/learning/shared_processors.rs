//! Learns the protocol of long messages for ranks that share processors, from the time of copies on both sides.
//!
//! The time of a whole message depends on the scheduler, because other processes run in between. A copy is short and
//! seldom interrupted. A rank measures its own copies as sender and as receiver, and so learns the cost of its
//! messages. All ranks of a node share their caches in the same way.

use super::Arm;
use fastpath_base::clock;
use fastpath_base::copy::CopyLoop;

/// One in this many messages tries the other protocol, or fewer if it takes more than twice as long ([`rarer`]).
const TRIES: u32 = 64;
/// Shortest copy, in bytes, that is timed by ranks that share processors.
pub(crate) const TIMED_MIN: u64 = 8 * 1024;
/// A message through the ring takes longer than its copies by 1/`RING_MORE` of their time.
const RING_MORE: u64 = 4;
/// A measurement above a cost raises the cost by 1/`RISES` of the difference. A measurement below it lowers the cost by
/// half of the difference, because an interruption can only lengthen a copy.
const RISES: u64 = 8;

/// Cost in picoseconds per byte; 0 if unknown.
#[derive(Debug, Clone, Copy, Default)]
struct CopyCost(u64);

impl CopyCost {
    /// Notes a copy. A copy counts at most as twice the known cost, because this rank may have lost its processor
    /// during the copy.
    fn note(&mut self, bytes: u64, ns: u64) {
        let took = (ns.saturating_mul(1000) / bytes.max(1)).max(1);
        self.0 = match self.0 {
            0 => took,
            usual if took < usual => usual.midpoint(took).max(1),
            usual => (usual * (RISES - 1) + took.min(2 * usual)).div_ceil(RISES),
        };
    }
}

/// Returns the factor, at least 1, by which trials of the slower of two known protocols are rarer. It is the excess
/// time of the slower protocol divided by the time of the faster one, rounded up. Trials then lose at most 1/[`TRIES`]
/// of all time.
fn rarer(one: u64, other: u64) -> u32 {
    let more = one.abs_diff(other).div_ceil(one.min(other).max(1));
    u32::try_from(more).unwrap_or(u32::MAX).max(1)
}

/// Costs of copies of long messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyCosts {
    get: CopyCost,
    /// Copy into the ring by non-temporal stores.
    pack: CopyCost,
    /// Copy out of the ring.
    unpack: CopyCost,
    messages: u32,
    eager: [EagerCosts; EAGER_OCTAVES],
}

impl CopyCosts {
    fn eager(&mut self, bytes: u64) -> Option<&mut EagerCosts> {
        let octave = (bytes / EAGER_TIMED_MIN).checked_ilog2()?;
        self.eager.get_mut(octave as usize)
    }

    pub(crate) fn note_eager_pack(&mut self, by: CopyLoop, bytes: u64, began_ns: u64) {
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        if let Some(costs) = self.eager(bytes) {
            costs.of(by).pack.note(bytes, took_ns);
        }
    }

    pub(crate) fn note_eager_unpack(&mut self, by: CopyLoop, bytes: u64, part: u64, began_ns: u64) {
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        if let Some(costs) = self.eager(bytes) {
            costs.of(by).unpack.note(part, took_ns);
        }
    }

    #[inline]
    pub(crate) fn note(&mut self, half: Half, began_ns: Option<u64>, bytes: u64) {
        let Some(began_ns) = began_ns.filter(|_| bytes >= TIMED_MIN) else {
            return;
        };
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        self.note_took(half, bytes, took_ns);
    }

    fn note_took(&mut self, half: Half, bytes: u64, took_ns: u64) {
        let cost = match half {
            Half::Get => &mut self.get,
            Half::Pack => &mut self.pack,
            Half::Unpack => &mut self.unpack,
        };
        cost.note(bytes, took_ns);
    }

    fn ring(&self) -> u64 {
        match self.pack.0.min(self.unpack.0) {
            0 => 0,
            _ => {
                let copies = self.pack.0 + self.unpack.0;
                copies + copies / RING_MORE
            }
        }
    }

    pub(crate) fn report(&self, rank: u32, json: bool) -> Vec<String> {
        let eager = self.eager.iter().enumerate().map(|(index, costs)| {
            let ways = [
                (Arm::Vector.name(), costs.vector.sum()),
                (Arm::Streaming.name(), costs.streaming.sum()),
            ];
            let started = costs.messages.wrapping_sub(EagerCosts::default().messages);
            LearnedChoice::of(Some(EAGER_TIMED_MIN << index), ways, started)
        });
        let ways = [(Arm::Get.name(), self.get.0), (Arm::Streaming.name(), self.ring())];
        let announced = LearnedChoice::of(None, ways, self.messages);
        eager.chain([announced]).flatten().map(|found| found.to_line(rank, json)).collect()
    }

    #[cold]
    pub(crate) fn choose_arm(&mut self) -> Arm {
        match Arm::Streaming.copy_loop().is_available() {
            true => self.choose(),
            false => Arm::Get,
        }
    }

    pub(crate) fn choose_eager(&mut self, bytes: u64) -> EagerCopy {
        match self.eager(bytes) {
            Some(costs) if CopyLoop::Streaming.is_available() => costs.choose(),
            _ => EagerCopy::PLAIN,
        }
    }

    fn choose(&mut self) -> Arm {
        self.messages = self.messages.wrapping_add(1);
        let ring = self.ring();
        let by_get = match self.get.0.min(ring) != 0 {
            true => {
                let tries = TRIES.saturating_mul(rarer(self.get.0, ring));
                (self.get.0 <= ring) != self.messages.is_multiple_of(tries)
            }
            false => self.messages.is_multiple_of(2),
        };
        match by_get {
            true => Arm::Get,
            false => Arm::Streaming,
        }
    }
}

struct LearnedChoice {
    /// Smallest message in bytes; `None` for announced messages.
    from_bytes: Option<u64>,
    /// Better protocol, then the other protocol, each with its picoseconds per byte.
    ways: [(&'static str, u64); 2],
    messages: u32,
}

impl LearnedChoice {
    fn of(
        from_bytes: Option<u64>, mut ways: [(&'static str, u64); 2], messages: u32,
    ) -> Option<LearnedChoice> {
        ways.sort_by_key(|&(_, cost)| cost);
        (ways[0].1 != 0).then_some(LearnedChoice { from_bytes, ways, messages })
    }

    fn to_line(&self, rank: u32, json: bool) -> String {
        let LearnedChoice { from_bytes, ways: [(way, cost), (other, other_cost)], messages } = self;
        if json {
            let found = serde_json::json!({
                "from_bytes": from_bytes, "protocol": way, "ps_per_byte": cost, "other": other,
                "other_ps_per_byte": other_cost, "messages": messages,
            });
            return serde_json::json!({ "rank": rank, "shared_processors": found }).to_string();
        }
        let sizes = from_bytes
            .map_or("rendezvous messages".to_owned(), |b| format!("messages of {b} B or more"));
        let rate = |cost: &u64| 1000.0 / *cost as f64;
        format!(
            "rank {rank}: for {sizes} between ranks that share processors, {way} was faster: {:.1} \
             GB/s, against {:.1} GB/s with {other} ({messages} messages timed)",
            rate(cost),
            rate(other_cost)
        )
    }
}

/// Smallest eager message whose copies are timed, in bytes.
const EAGER_TIMED_MIN: u64 = 8 * 1024;
/// Number of octaves of timed eager messages, up to [`crate::wire::EARLY_LIMIT`].
const EAGER_OCTAVES: usize = 4;
/// Number of messages of an octave per cycle. A cycle sends its trial messages in a row, because the effect of a copy
/// loop on a cache line shows only after the ring has wrapped.
const EAGER_CYCLE: u32 = 2048;
/// Number of messages of a trial.
const EAGER_TRIAL: u32 = 32;
/// Number of timed messages of a trial: its last ones.
const EAGER_TIMED: u32 = 4;
/// Outside a trial, one in this many messages is timed.
const EAGER_SAMPLE: u32 = 16;
/// The loop changes only if the other loop is faster by 1/`EAGER_MARGIN`.
const EAGER_MARGIN: u64 = 8;

#[derive(Debug, Clone, Copy, Default)]
struct RingCost {
    pack: CopyCost,
    unpack: CopyCost,
}

impl RingCost {
    fn sum(&self) -> u64 {
        match self.pack.0.min(self.unpack.0) {
            0 => 0,
            _ => self.pack.0 + self.unpack.0,
        }
    }
}

/// Copy of an eager message into the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EagerCopy {
    /// Copy loop.
    pub by: CopyLoop,
    /// Whether the sender's copy into the ring and the receiver's copy out of it are timed.
    pub timed: bool,
}

impl EagerCopy {
    /// Copy without learning.
    pub const PLAIN: EagerCopy = EagerCopy { by: CopyLoop::Vector, timed: false };

    /// Encodes the copy loop for `header.imm` of the message's `EAGER_MIDDLE` parts; 0 if the copy is not timed.
    pub fn mark(self) -> u32 {
        match (self.timed, self.by) {
            (false, _) => 0,
            (true, CopyLoop::Streaming) => 2,
            (true, _) => 1,
        }
    }

    /// Decodes the loop of a timed message. `None` for any other value, since a peer may write anything.
    pub fn of_mark(mark: u32) -> Option<CopyLoop> {
        match mark {
            1 => Some(CopyLoop::Vector),
            2 => Some(CopyLoop::Streaming),
            _ => None,
        }
    }
}

/// Costs of copies of eager messages of one octave. A plain store is fastest if the processors share a cache. Otherwise
/// a plain store first fetches each line from the reader's cache, and a non-temporal store is faster. The reader's
/// copies count too, because the reader fetches lines of non-temporal stores from memory.
#[derive(Debug, Clone, Copy)]
struct EagerCosts {
    vector: RingCost,
    streaming: RingCost,
    streams: bool,
    messages: u32,
    /// Number of cycles per trial.
    cycles: u32,
}

impl Default for EagerCosts {
    fn default() -> Self {
        EagerCosts {
            vector: RingCost::default(),
            streaming: RingCost::default(),
            streams: false,
            messages: EAGER_CYCLE - EAGER_TRIAL,
            cycles: 1,
        }
    }
}

impl EagerCosts {
    fn of(&mut self, by: CopyLoop) -> &mut RingCost {
        match by {
            CopyLoop::Streaming => &mut self.streaming,
            _ => &mut self.vector,
        }
    }

    fn choose(&mut self) -> EagerCopy {
        let (cycle, at) = (self.messages / EAGER_CYCLE, self.messages % EAGER_CYCLE);
        self.messages = self.messages.wrapping_add(1);
        if at == EAGER_TRIAL {
            self.decide();
        }
        let is_last = |at: u32| at % EAGER_TRIAL >= EAGER_TRIAL - EAGER_TIMED;
        let is_trial = at < EAGER_TRIAL && cycle.is_multiple_of(self.cycles);
        let begins = at >= EAGER_CYCLE - EAGER_TRIAL;
        let timed = match is_trial || begins {
            true => is_last(at),
            false => at.is_multiple_of(EAGER_SAMPLE),
        };
        let by = match self.streams != is_trial {
            true => CopyLoop::Streaming,
            false => CopyLoop::Vector,
        };
        EagerCopy { by, timed }
    }

    fn decide(&mut self) {
        let (vector, streaming) = (self.vector.sum(), self.streaming.sum());
        if vector == 0 || streaming == 0 {
            return;
        }
        self.cycles = rarer(vector, streaming);
        self.streams = match self.streams {
            true => streaming - streaming / EAGER_MARGIN <= vector,
            false => streaming < vector - vector / EAGER_MARGIN,
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Get,
    Pack,
    Unpack,
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Sends 1,000 messages whose copies take the given picoseconds per byte. Returns how many the protocol get sent.
    fn gets(costs: &mut CopyCosts, get: u64, pack: u64, unpack: u64) -> usize {
        const BYTES: u64 = 1 << 20;
        let ns = |ps: u64| ps * BYTES / 1000;
        let mut count = 0;
        for i in 0..1000 {
            let lost = if i % 50 == 7 { 3_000_000 } else { 0 };
            if costs.choose() == Arm::Get {
                costs.note_took(Half::Get, BYTES, ns(get) + lost);
                count += 1;
            } else {
                costs.note_took(Half::Pack, BYTES, ns(pack) + lost);
                costs.note_took(Half::Unpack, BYTES, ns(unpack));
            }
        }
        count
    }

    #[test]
    fn copies__go_the_way_that_takes_less_and_follow_a_change() {
        let tries = 1000 / TRIES as usize + 2;
        let mut costs = CopyCosts::default();
        assert!(gets(&mut costs, 130, 60, 80) >= 1000 - tries);
        gets(&mut costs, 250, 60, 80);
        assert!(gets(&mut costs, 250, 60, 80) <= tries);
        gets(&mut costs, 130, 60, 80);
        assert!(gets(&mut costs, 130, 60, 80) >= 1000 - tries);
    }

    /// Sends 8 cycles of messages whose copies have these costs. Returns the number that used non-temporal stores.
    fn streamed(costs: &mut EagerCosts, vector: (u64, u64), streaming: (u64, u64)) -> u32 {
        let mut count = 0;
        for _ in 0..8 * EAGER_CYCLE {
            let EagerCopy { by, timed } = costs.choose();
            let (pack, unpack) = match by {
                CopyLoop::Streaming => streaming,
                _ => vector,
            };
            count += u32::from(by == CopyLoop::Streaming);
            if timed {
                costs.of(by).pack.note(1 << 15, (pack << 15) / 1000);
                costs.of(by).unpack.note(1 << 15, (unpack << 15) / 1000);
            }
        }
        count
    }

    #[test]
    fn eager__goes_by_what_both_copies_take_and_follows_a_change() {
        let (all, tries) = (8 * EAGER_CYCLE, 9 * EAGER_TRIAL);
        let mut costs = EagerCosts::default();
        // With a shared cache, the reader pays for non-temporal stores.
        assert!(streamed(&mut costs, (20, 20), (16, 60)) <= tries);
        // Without a shared cache, non-temporal stores are faster.
        assert!(streamed(&mut costs, (150, 40), (50, 60)) >= all - tries - EAGER_CYCLE);
        assert!(streamed(&mut costs, (150, 40), (50, 60)) >= all - tries);
        assert!(streamed(&mut costs, (20, 20), (16, 60)) <= tries + EAGER_CYCLE);
        // The gain is below the margin.
        assert!(streamed(&mut costs, (20, 20), (18, 20)) <= tries);
    }

    #[test]
    fn trials__lose_at_most_a_sixty_fourth_of_the_time() {
        for get in [130, 400, 2900, 50_000] {
            let mut costs = CopyCosts::default();
            gets(&mut costs, get, 60, 80);
            let (gets, messages) = (gets(&mut costs, get, 60, 80) as f64, 1000.0);
            let ring = 60.0 + 80.0 + (60.0 + 80.0) / RING_MORE as f64;
            let (get, best) = (get as f64, ring.min(get as f64));
            let taken = gets * get + (messages - gets) * ring;
            // Allow one message more than the share, because the count may start at any point of the cycle of trials.
            let most = messages * best * (1.0 + 1.0 / f64::from(TRIES)) + get.max(ring);
            assert!(taken <= most, "get {get}: {taken} of {most}");
        }
        for (vector, streaming) in
            [((20, 20), (16, 60)), ((20, 20), (100, 400)), ((500, 500), (30, 30))]
        {
            let mut costs = EagerCosts::default();
            streamed(&mut costs, vector, streaming);
            let streamed = f64::from(streamed(&mut costs, vector, streaming));
            let messages = f64::from(8 * EAGER_CYCLE);
            let cost = |(pack, unpack): (u64, u64)| (pack + unpack) as f64;
            let (vector, streaming) = (cost(vector), cost(streaming));
            let taken = streamed * streaming + (messages - streamed) * vector;
            let trial = f64::from(EAGER_TRIAL) * vector.max(streaming);
            let most = messages * vector.min(streaming) * (1.0 + 1.0 / 64.0) + trial;
            assert!(taken <= most, "{vector} and {streaming}: {taken} of {most}");
        }
    }

    #[test]
    fn report__names_the_better_way_of_those_that_are_known() {
        let mut costs = CopyCosts::default();
        assert_eq!(costs.report(3, false), [""; 0]);
        gets(&mut costs, 130, 60, 80);
        let text = costs.report(3, false);
        let [line] = text.as_slice() else { panic!("{text:?}") };
        assert!(
            line.starts_with(
                "rank 3: for rendezvous messages between ranks that share processors, get was \
                 faster: 7."
            ),
            "{line}"
        );
        assert!(line.ends_with(" (1000 messages timed)"), "{line}");
        let Some(eager) = costs.eager(EAGER_TIMED_MIN << 1) else {
            panic!("an octave of the table")
        };
        streamed(eager, (20, 20), (16, 60));
        let json = costs.report(3, true);
        assert_eq!(json.len(), 2);
        assert!(
            json[0].contains("\"from_bytes\":16384,")
                && json[0].contains("\"protocol\":\"pipelined\""),
            "{}",
            json[0]
        );
    }

    #[test]
    fn eager_marks__name_the_loops_and_nothing_else() {
        for by in [CopyLoop::Vector, CopyLoop::Streaming] {
            let marked = |timed| EagerCopy::of_mark(EagerCopy { by, timed }.mark());
            assert_eq!((marked(true), marked(false)), (Some(by), None));
        }
        assert_eq!(EagerCopy::of_mark(u32::MAX), None);
    }

    #[test]
    fn cost__stays_in_range() {
        let mut cost = CopyCost::default();
        for (bytes, ns) in [(0, 0), (1, u64::MAX), (u64::MAX, 1), (1 << 14, 1000)] {
            (0..100).for_each(|_| cost.note(bytes, ns));
            assert!(cost.0 > 0);
        }
    }
}
