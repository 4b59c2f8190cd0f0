//! Outages: the queue pair has stopped because a send failed, or the port is down (which stops Soft-RoCE's pairs).
//!
//! Outstanding packets count as lost and are retransmitted afterwards. A permanent outage fails every connection.

/// Duration, in nanoseconds, after which an outage is permanent. A link takes seconds to renegotiate.
pub(super) const TIMEOUT_NS: u64 = 10_000_000_000;
pub(super) const PAUSE_NS: u64 = 20_000_000;
/// A new outage continues the last one if it begins within this many nanoseconds, and no datagram arrived in between.
const RELAPSE_NS: u64 = 3_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Start of the current or last outage, in ns. `ended`: end of the last one, and datagrams received until then.
    pub since_ns: u64,
    ended: Option<(u64, u64)>,
    /// Time of the next restart attempt; 0 if there is no outage.
    pub next_ns: u64,
    /// Whether the queue pair is stopped or restarting. While stopped, it returns its receive buffers; none is posted.
    pub stopped: bool,
    pub why: String,
}

impl Outage {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.next_ns != 0
    }

    #[inline]
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    pub fn begin(&mut self, now: u64, heard: u64, why: String) {
        let relapse = self
            .ended
            .is_some_and(|(at, before)| before == heard && now.saturating_sub(at) < RELAPSE_NS);
        if !self.is_on() && !relapse {
            self.since_ns = now;
        }
        (self.next_ns, self.why) = (now.max(1), why);
    }

    pub fn end(&mut self, now: u64, heard: u64) {
        (self.next_ns, self.ended, self.stopped) = (0, Some((now, heard)), false);
    }

    pub fn give_up(&mut self) {
        self.next_ns = 0;
    }
}
