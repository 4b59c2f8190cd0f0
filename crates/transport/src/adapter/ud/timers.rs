//! Timers: retransmissions, acknowledgements, and detection of lost peers.

use super::core::Core;
use super::link::UdLink;
use crate::verbs::Failure;
use fastpath_base::sync::Ordering;
use std::time::Duration;

/// Number of unanswered checks, each after a retransmission, after which a waiting peer counts as failed. Elapsed time
/// alone is no proof: this process may have been stopped, or the peer may be in a debugger.
const WAITING_MOST: u32 = 300;
const LOOK_NS: u64 = 1_000_000_000;

impl UdLink {
    fn polls_in_vain(&mut self, now: u64) -> u32 {
        if self.silence_ns != self.silent_since_ns {
            (self.silence_ns, self.unanswered) = (self.silent_since_ns, 0);
        }
        if now.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now;
            self.unanswered = if self.is_waiting() { self.unanswered + 1 } else { 0 };
        }
        self.unanswered
    }
}

impl Core {
    pub fn progress(&mut self) -> bool {
        let arrived = self.poll_receives();
        if self.sends.expected > 0 {
            self.poll_sends();
        }
        if !self.busy.is_empty() {
            let now = self.port.now();
            if self.stirred || now >= self.next_due_ns {
                self.tend_all(now);
            }
        }
        if self.port.is_quiet(arrived) {
            self.look_for_failures();
        }
        arrived
    }

    /// Starts the timers of a connection with outstanding packets or an owed acknowledgement.
    #[inline]
    pub fn stir(&mut self, index: usize) {
        self.stirred = true;
        let link = self.link(index);
        if !link.busy {
            link.busy = true;
            self.busy.push(index as u32);
        }
    }

    pub fn until_due(&mut self) -> Duration {
        let now = self.port.now();
        if self.stirred {
            self.tend_all(now);
        }
        match self.busy.is_empty() {
            true => Duration::MAX,
            false => Duration::from_nanos(self.next_due_ns.saturating_sub(now)),
        }
    }

    fn tend_all(&mut self, now: u64) {
        self.stirred = false;
        let mut next = u64::MAX;
        let mut at = 0;
        while at < self.busy.len() {
            let index = self.busy[at] as usize;
            match self.tend(index, now) {
                Some(due) => {
                    next = next.min(due);
                    at += 1;
                }
                None => {
                    self.link(index).busy = false;
                    self.busy.swap_remove(at);
                }
            }
        }
        self.next_due_ns = next;
    }

    fn tend(&mut self, index: usize, now: u64) -> Option<u64> {
        let delay = self.settings.ack_delay_ns;
        let link = self.link(index);
        if !link.stage.is_open() {
            return None;
        }
        if link.receiver.owes_ack() {
            if link.ack_due_ns == 0 {
                link.ack_due_ns = now.saturating_add(delay);
            }
            if link.ack_due_ns <= now {
                self.send_ack(index);
            }
        }
        if self.link(index).sender.in_flight() > 0 {
            if let Some((why, text)) = self.judge(index, now) {
                self.fail_link(index, why, text);
                return None;
            }
            self.resend(index, now);
        }
        let link = self.link(index);
        let ack = link.receiver.owes_ack().then_some(link.ack_due_ns);
        link.sender.deadline_ns().into_iter().chain(ack).min()
    }

    fn judge(&mut self, index: usize, now: u64) -> Option<(Failure, String)> {
        let give_up = self.settings.give_up_ns;
        let link = self.link(index);
        if link.has_left() {
            return Some((Failure::NoAnswer, "the peer has left the job".to_owned()));
        }
        let silent = now.saturating_sub(link.silent_since_ns);
        if link.state.is_some() {
            // A peer that computes may not answer for hours, but it answers while it waits in the library.
            return (link.polls_in_vain(now) >= WAITING_MOST).then(|| {
                let text = "the peer is waiting in MPI but does not answer, so packets between the \
                            two adapters are lost";
                (Failure::NoAnswer, text.to_owned())
            });
        }
        if silent < give_up {
            return None;
        }
        let text = format!("the peer has not answered for {} s", silent / 1_000_000_000);
        Some((Failure::NoAnswer, text))
    }

    fn resend(&mut self, index: usize, now: u64) {
        while self.sends.room() > 1 || self.make_queue_room(2) {
            let Some((_, &packet)) = self.link(index).sender.resend(now) else {
                return;
            };
            self.counters.resent += 1;
            // Resend the packet unchanged: an earlier copy may still be in the send queue.
            if !self.post_packet(index, &packet) {
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn look_for_failures(&mut self) {
        if let Some(polls) = self.polls {
            polls.store(polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        if self.sends.is_busy() {
            self.poll_sends();
        }
        if self.outage.is_on() {
            self.mend();
        }
        if self.port.is_long_quiet() {
            self.look_for_events();
        }
    }
}
