use super::{Advice, Arm, LEARN_MIN, Learner, OCTAVES, OctaveState, octave, timed_of};
use crate::wire::EARLY_LIMIT;

/// State learnt about one peer.
pub struct PeerLearning {
    entries: [OctaveState; OCTAVES],
    learners: [Learner; OCTAVES],
    done_ns: u32,
}

impl PeerLearning {
    /// Returns the state before the first message. `first_arm` is the cost model's arm for a size in bytes; `copies` is
    /// whether the kernel copies between processes.
    pub(crate) fn new(copies: bool, first_arm: impl Fn(u64) -> Arm) -> PeerLearning {
        let arm = |index: usize| first_arm(LEARN_MIN << index);
        let open = |index: usize, arm: Arm| match arm.is_ring() {
            true => arm.copy_loop().is_available(),
            false => copies && LEARN_MIN << index > EARLY_LIMIT,
        };
        PeerLearning {
            entries: std::array::from_fn(|index| OctaveState::new(arm(index), timed_of(index))),
            learners: std::array::from_fn(|index| {
                Learner::new(arm(index), timed_of(index), |arm| open(index, arm))
            }),
            done_ns: 0,
        }
    }

    #[inline]
    pub(crate) fn entry(&self, octave: usize) -> &OctaveState {
        &self.entries[octave]
    }

    pub(crate) fn follow(&mut self, octave: usize, advice: Advice) {
        self.entries[octave].follow(advice);
    }

    #[inline]
    pub(crate) fn count(&mut self, bytes: u64, timed: bool) {
        self.entries[octave(bytes)].count(timed);
    }

    /// Notes a timed message of the peer that is complete at `now_ns`. The message's time runs from the start of its
    /// send, or from the completion of the previous message if that was later. Returns new advice for the peer, if any.
    pub(crate) fn note(
        &mut self, arm: Arm, bytes: u64, sent_ns: u32, now_ns: u32,
    ) -> Option<Advice> {
        let since_last = now_ns.wrapping_sub(self.done_ns);
        let taken = now_ns.wrapping_sub(sent_ns).min(since_last);
        self.done_ns = now_ns;
        self.learners[octave(bytes)].note(arm, bytes, taken as u64)
    }

    pub(crate) fn learners(&self) -> impl Iterator<Item = (u64, &Learner)> {
        self.learners.iter().enumerate().map(|(index, learner)| (LEARN_MIN << index, learner))
    }
}
