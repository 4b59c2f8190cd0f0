//! Which way long messages go where ranks share processors: by the time that their copies take, of both sides together.
//!
//! Others run between the beginning of a message and its end, so its time tells of the scheduler. A copy is short, and
//! seldom does somebody else run in between. What a rank copies itself says what its own messages cost: it receives by
//! both ways, and is both sides of the one through the ring. The ranks of a node share their caches alike.

use super::Arm;
use crate::request::Request;
use crate::worker::Worker;
use fastpath_base::clock;
use fastpath_base::copy::CopyLoop;

/// Of so many messages one goes the other way, so that a change is seen; fewer where that takes more than twice as long
/// ([`rarer`]).
const TRIES: u32 = 64;
/// Shortest copy that is timed, in bytes.
const TIMED_MIN: u64 = 8 * 1024;
/// The ring takes so much more than its copies: one part in so many.
const RING_MORE: u64 = 4;
/// How fast a cost rises with what is measured: by one part in so many. It falls by half: others may run in between,
/// and make a copy take more time, but not less.
const RISES: u64 = 8;

/// Picoseconds for each byte; 0: not known.
#[derive(Debug, Clone, Copy, Default)]
struct Cost(u64);

impl Cost {
    /// A copy took so long. One in which this rank lost its processor counts as twice the usual.
    fn note(&mut self, bytes: u64, ns: u64) {
        let took = (ns.saturating_mul(1000) / bytes.max(1)).max(1);
        self.0 = match self.0 {
            0 => took,
            usual if took < usual => usual.midpoint(took).max(1),
            usual => (usual * (RISES - 1) + took.min(2 * usual)).div_ceil(RISES),
        };
    }
}

/// How many times the better of two known ways' time the other one takes more, rounded up, at least 1: if trials of
/// that are so many times as rare, they lose at most the part of all time that one in so many messages is.
fn rarer(one: u64, other: u64) -> u32 {
    let more = one.abs_diff(other).div_ceil(one.min(other).max(1));
    u32::try_from(more).unwrap_or(u32::MAX).max(1)
}

/// What copies of long messages take.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyCosts {
    /// By the receiver alone.
    get: Cost,
    /// Into the ring, past the caches, and out of it.
    pack: Cost,
    unpack: Cost,
    messages: u32,
    /// Of messages that leave at once, by octave.
    eager: [EagerCosts; EAGER_OCTAVES],
}

impl CopyCosts {
    fn eager(&mut self, bytes: u64) -> Option<&mut EagerCosts> {
        let octave = (bytes / EAGER_TIMED_MIN).checked_ilog2()?;
        self.eager.get_mut(octave as usize)
    }

    /// A message of `bytes` bytes that leaves at once is in the ring.
    pub(crate) fn note_eager_pack(&mut self, by: CopyLoop, bytes: u64, began_ns: u64) {
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        if let Some(costs) = self.eager(bytes) {
            costs.of(by).pack.note(bytes, took_ns);
        }
    }

    /// `part` bytes of such a message are copied out of it.
    pub(crate) fn note_eager_unpack(&mut self, by: CopyLoop, bytes: u64, part: u64, began_ns: u64) {
        let took_ns = clock::now_ns().saturating_sub(began_ns);
        if let Some(costs) = self.eager(bytes) {
            costs.of(by).unpack.note(part, took_ns);
        }
    }

    /// A copy has ended that is timed if there is a time at which it began.
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

    /// What both copies of a message through the ring take, with what the ring adds.
    fn ring(&self) -> u64 {
        match self.pack.0.min(self.unpack.0) {
            0 => 0,
            _ => {
                let copies = self.pack.0 + self.unpack.0;
                copies + copies / RING_MORE
            }
        }
    }

    /// What was learnt, a line for each range of sizes of which both ways are known.
    pub(super) fn report(&self, rank: u32, json: bool) -> Vec<String> {
        let eager = self.eager.iter().enumerate().map(|(index, costs)| {
            let ways = [
                (Arm::Vector.name(), costs.vector.sum()),
                (Arm::Streaming.name(), costs.streaming.sum()),
            ];
            let started = costs.messages.wrapping_sub(EagerCosts::default().messages);
            LearntChoice::of(Some(EAGER_TIMED_MIN << index), ways, started)
        });
        let ways = [(Arm::Get.name(), self.get.0), (Arm::Streaming.name(), self.ring())];
        let announced = LearntChoice::of(None, ways, self.messages);
        eager.chain([announced]).flatten().map(|found| found.to_line(rank, json)).collect()
    }

    /// The way of the next message.
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

/// What was learnt of two ways of a message, as it is reported.
struct LearntChoice {
    /// Smallest message, in bytes; that of whatever does not leave at once where it is `None`.
    from_bytes: Option<u64>,
    /// The better way, then the other, with the picoseconds that each takes for a byte.
    ways: [(&'static str, u64); 2],
    messages: u32,
}

impl LearntChoice {
    fn of(
        from_bytes: Option<u64>, mut ways: [(&'static str, u64); 2], messages: u32,
    ) -> Option<LearntChoice> {
        ways.sort_by_key(|&(_, cost)| cost);
        (ways[0].1 != 0).then_some(LearntChoice { from_bytes, ways, messages })
    }

    fn to_line(&self, rank: u32, json: bool) -> String {
        let LearntChoice { from_bytes, ways: [(way, cost), (other, other_cost)], messages } = self;
        if json {
            let found = serde_json::json!({
                "from_bytes": from_bytes, "protocol": way, "ps_per_byte": cost, "other": other,
                "other_ps_per_byte": other_cost, "messages": messages,
            });
            return serde_json::json!({ "rank": rank, "shared_processors": found }).to_string();
        }
        let sizes =
            from_bytes.map_or("announced messages".to_owned(), |b| format!("messages from {b} B"));
        let rate = |cost: &u64| 1000.0 / *cost as f64;
        format!(
            "rank {rank}: {sizes} where ranks share processors: {way} ({:.1} GB/s; {other} {:.1} \
             GB/s; {messages} messages)",
            rate(cost),
            rate(other_cost)
        )
    }
}

/// Smallest message that leaves at once and whose copies are timed, in bytes.
const EAGER_TIMED_MIN: u64 = 8 * 1024;
/// Octaves of them, up to [`crate::worker::EARLY_LIMIT`].
const EAGER_OCTAVES: usize = 4;
/// Of so many messages of an octave some go the other way, in a row: a line tells of the loop that wrote it only when
/// the ring has come round.
const EAGER_CYCLE: u32 = 2048;
/// How many, and how many of them are timed, the last ones.
const EAGER_TRIAL: u32 = 32;
const EAGER_TIMED: u32 = 4;
/// Of so many others one is timed.
const EAGER_SAMPLE: u32 = 16;
/// The other way has to take less by one part in so many.
const EAGER_MARGIN: u64 = 8;

/// What both copies of a message through the ring take.
#[derive(Debug, Clone, Copy, Default)]
struct RingCost {
    pack: Cost,
    unpack: Cost,
}

impl RingCost {
    /// 0: not known.
    fn sum(&self) -> u64 {
        match self.pack.0.min(self.unpack.0) {
            0 => 0,
            _ => self.pack.0 + self.unpack.0,
        }
    }
}

/// How a message that leaves at once is copied into the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EagerCopy {
    /// By this loop.
    pub by: CopyLoop,
    /// Both of its copies are timed.
    pub timed: bool,
}

impl EagerCopy {
    /// Where nothing is learnt.
    pub const PLAIN: EagerCopy = EagerCopy { by: CopyLoop::Vector, timed: false };

    /// `header.imm` of the `EAGER_MIDDLE`s of the message: 0 where its copies are not timed.
    pub fn mark(self) -> u32 {
        match (self.timed, self.by) {
            (false, _) => 0,
            (true, CopyLoop::Streaming) => 2,
            (true, _) => 1,
        }
    }

    /// The loop of a message whose copies are timed; of nothing else, whatever a peer has written.
    pub fn of_mark(mark: u32) -> Option<CopyLoop> {
        match mark {
            1 => Some(CopyLoop::Vector),
            2 => Some(CopyLoop::Streaming),
            _ => None,
        }
    }
}

/// What copies of messages of one octave take that leave at once. A plain store is fastest where the processors share a
/// cache. Where they do not it fetches each line from the reader's cache first, and one past the caches is. The sender
/// cannot tell by its own copies alone: what it stores past the caches its reader fetches from memory.
#[derive(Debug, Clone, Copy)]
struct EagerCosts {
    vector: RingCost,
    streaming: RingCost,
    streams: bool,
    messages: u32,
    /// Of so many cycles one begins with a trial.
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

    /// How the next message is copied.
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

/// A copy of a message, or one half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Get,
    Pack,
    Unpack,
}

impl Worker {
    /// The way of a long message to a rank of this host that may share its processor.
    #[cold]
    pub(super) fn choose_by_copies(&mut self) -> Arm {
        match Arm::Streaming.copy_loop().is_available() {
            true => self.copy_costs.choose(),
            false => Arm::Get,
        }
    }

    /// How a message to a rank of this host is copied that leaves at once, where ranks share processors.
    pub(super) fn choose_eager_copy(&mut self, bytes: u64) -> EagerCopy {
        match self.copy_costs.eager(bytes) {
            Some(costs) if CopyLoop::Streaming.is_available() => costs.choose(),
            _ => EagerCopy::PLAIN,
        }
    }

    /// Whether copies of so many bytes of a message are timed.
    #[inline]
    pub(crate) fn times_copies(&self, half: Half, request: &Request, bytes: u64) -> bool {
        let is_ours = half == Half::Get || Arm::of(request.arm) == Some(Arm::Streaming);
        bytes >= TIMED_MIN && is_ours && self.is_crowded()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// What a rank sends when copies take so many picoseconds for each byte: of 1,000 messages, those by get.
    fn gets(costs: &mut CopyCosts, get: u64, pack: u64, unpack: u64) -> usize {
        const BYTES: u64 = 1 << 20;
        let ns = |ps: u64| ps * BYTES / 1000;
        let mut count = 0;
        for i in 0..1000 {
            // Now and then somebody else runs in between.
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

    /// Of 8 cycles of messages, those that are stored past the caches, when copies take so many picoseconds a byte.
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
        // A shared cache: the reader pays for what was stored past it.
        assert!(streamed(&mut costs, (20, 20), (16, 60)) <= tries);
        // None.
        assert!(streamed(&mut costs, (150, 40), (50, 60)) >= all - tries - EAGER_CYCLE);
        assert!(streamed(&mut costs, (150, 40), (50, 60)) >= all - tries);
        assert!(streamed(&mut costs, (20, 20), (16, 60)) <= tries + EAGER_CYCLE);
        // No better by a part that matters.
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
            // One message more or less than the share, since they are counted from any of them.
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
            line.starts_with("rank 3: announced messages where ranks share processors: get (7."),
            "{line}"
        );
        assert!(line.contains("; 1000 messages)"), "{line}");
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
        let mut cost = Cost::default();
        for (bytes, ns) in [(0, 0), (1, u64::MAX), (u64::MAX, 1), (1 << 14, 1000)] {
            (0..100).for_each(|_| cost.note(bytes, ns));
            assert!(cost.0 > 0);
        }
    }
}
