//! Optimizations of a ring that can be switched off.

/// Limits of a ring's optimizations. The limit of a disabled one is never reached, so the data path needs no test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingTuning {
    /// Lines are prefetched for at most this many messages since the last wait; more messages count as a stream.
    pub(super) stream: u32,
    /// This many messages taken without a send in between count as a burst. After a burst the consumer pauses.
    pub(super) burst: u32,
    /// Largest payload in the data area, in bytes, that is moved towards a waiting reader's cache. For larger payloads,
    /// and in a stream, the move costs more than it saves.
    pub(super) demoted_max: u32,
    /// Whether replies reuse the bytes of the last message (`recycle`).
    pub(super) recycles: bool,
}

impl Default for RingTuning {
    fn default() -> Self {
        RingTuning { stream: 16, burst: 8, demoted_max: 1024, recycles: true }
    }
}

impl RingTuning {
    /// Default limits, without the optimizations whose names in `FASTPATH_DISABLE` satisfy `is_disabled`.
    #[must_use]
    pub fn without(is_disabled: impl Fn(&str) -> bool) -> Self {
        let mut tuning = RingTuning::default();
        if is_disabled("prefetch") {
            tuning.stream = 0;
        }
        if is_disabled("pause") {
            tuning.burst = u32::MAX;
        }
        if is_disabled("demote") {
            tuning.demoted_max = 0;
        }
        tuning.recycles = !is_disabled("recycle");
        tuning
    }
}
