//! Times in which the queue pair cannot be used: it has stopped because a send could not leave (Soft-RoCE does so while
//! the port is down), or the port is down and says so.
//!
//! What is under way counts as lost on the wire, and is sent again afterwards. An outage that does not end becomes an
//! error of every connection, as one of the device does.

use super::iface::Core;
use crate::verbs::VerbsError;
use std::time::Duration;

/// An outage of this length is for good: a link that negotiates anew takes seconds.
pub(super) const TIMEOUT_NS: u64 = 10_000_000_000;
/// Time between two attempts to end one.
const PAUSE_NS: u64 = 20_000_000;
/// One that begins so soon after another is the same, unless a peer has been heard meanwhile.
const RELAPSE_NS: u64 = 3_000_000_000;

/// Where an interface stands in this.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Since when there is one, or was the last one, in nanoseconds; when that ended, and what had been heard of peers
    /// until then.
    since_ns: u64,
    ended: Option<(u64, u64)>,
    /// When to try again.
    next_ns: u64,
    /// Whether the queue pair has stopped, or is being started anew: its receive buffers come back, and none is posted.
    stopped: bool,
    why: String,
}

impl Outage {
    /// Whether there is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.next_ns != 0
    }

    /// Whether the queue pair has stopped.
    #[inline]
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    fn begin(&mut self, now: u64, heard: u64, why: String) {
        let relapse = self
            .ended
            .is_some_and(|(at, before)| before == heard && now.saturating_sub(at) < RELAPSE_NS);
        if !self.is_on() && !relapse {
            self.since_ns = now;
        }
        (self.next_ns, self.why) = (now.max(1), why);
    }

    fn end(&mut self, now: u64, heard: u64) {
        (self.next_ns, self.ended, self.stopped) = (0, Some((now, heard)), false);
    }

    /// Nothing will be tried any more.
    pub fn give_up(&mut self) {
        self.next_ns = 0;
    }
}

impl Core {
    /// The queue pair has stopped. What was posted comes back.
    #[cold]
    #[inline(never)]
    pub fn interrupt(&mut self, why: String) {
        if self.lost || self.outage.stopped {
            return;
        }
        self.outage.begin(self.port.now(), self.heard, why);
        self.outage.stopped = true;
        self.counters.outages += 1;
        self.stop_pair();
    }

    /// Receive buffers come back too: many adapters stop sending alone by themselves.
    fn stop_pair(&mut self) {
        if let Err(error) = self.pair.stop() {
            self.outage.why = error.to_string();
        }
    }

    /// Looks, by a system call, for what has happened to the device and its port.
    pub fn look_for_events(&mut self) {
        let changed = match self.port.look_for_change() {
            Ok(changed) => changed,
            Err(why) => {
                self.lose_device(why);
                return;
            }
        };
        if changed && !self.port.is_active() && !self.outage.is_on() {
            let now = self.port.now();
            self.outage.begin(now, self.heard, String::new());
        }
    }

    /// Ends the outage, if that can be; gives everybody up if it has lasted too long.
    #[cold]
    #[inline(never)]
    pub fn mend(&mut self) {
        let now = self.port.now();
        if self.lost || now < self.outage.next_ns {
            return;
        }
        self.outage.next_ns = now + PAUSE_NS;
        if self.outage.stopped {
            while self.poll_sends() {}
            if self.receives.posted() > 0 {
                self.stop_pair(); // the device may have refused it
            }
        }
        let active = self.port.is_active();
        // Until all of its receive buffers are back the adapter may write to them.
        let forgotten = self.outage.stopped && self.receives.posted() == 0;
        if active
            && forgotten
            && let Err(error) = self.restart()
        {
            self.outage.why = error.to_string();
        }
        if active && !self.outage.stopped {
            return self.outage.end(now, self.heard);
        }
        if now.saturating_sub(self.outage.since_ns) > TIMEOUT_NS {
            let (name, port) = self.port.name();
            let state = if active { "" } else { "is down, " };
            let why = &self.outage.why;
            self.lose_device(format!("{name} port {port}: {state}of no use for 10 s {why}"));
        }
    }

    /// Looks for what has happened before a sleep; says how long that may be for this.
    pub fn until_event(&mut self) -> Duration {
        let failures = self.counters.failures;
        self.look_for_events();
        match self.outage.is_on() {
            _ if self.counters.failures != failures => Duration::ZERO,
            true => Duration::from_nanos(PAUSE_NS),
            false => Duration::MAX,
        }
    }

    /// Starts the queue pair anew. Where that fails it is what it was, or stands between two states, out of which the
    /// next attempt takes it; or it runs, and the receive buffers that it has come back.
    fn restart(&mut self) -> Result<(), VerbsError> {
        self.pair.reset()?;
        // The adapter has forgotten what was posted: all sends are done, whatever became of them. Until the queue pair
        // runs it would refuse more: its queue counts as full.
        self.sends.block();
        self.pool.sweep(self.sends.done);
        self.pair.restart_datagrams(0)?;
        self.post_receives()?;
        self.sends.finish_all();
        self.outage.stopped = false;
        Ok(())
    }
}
