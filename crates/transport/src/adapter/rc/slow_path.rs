//! What the data path calls where it cannot go straight on: no send buffer, silent sends, what has happened to the
//! device, a failure.
#![allow(unsafe_code)]

use super::super::send_buffers::Slot;
use super::super::stage::Stage;
use super::iface::{Core, SMALL};
use crate::verbs::{Access, Failure, InlineChoice, Operation, PostError, VerbsError};

/// Time between two questions whether a peer is still there, while this process waits.
const PROBE_NS: u64 = 10_000_000_000;

impl Core {
    /// A refusal although there was room: the queue pair or the device has gone.
    #[cold]
    #[inline(never)]
    pub(super) fn post_error_slow(&mut self, index: usize, error: PostError) -> bool {
        let text = match error {
            PostError::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        self.fail_connection(index, Failure::Local, text);
        false
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_slot_slow(&mut self, index: usize, len: usize) -> Option<Slot> {
        if self.make_slots_slow(len) {
            return self.pool.take(len > SMALL);
        }
        // All are under way, or done and nobody has looked.
        for queue in 0..self.send_queues.len() {
            if self.send_queues[queue].expected > 0 {
                self.poll_sends(queue);
            }
        }
        if self.connection(index).stage.failure().is_some() {
            return None;
        }
        let slot = self.pool.take(len > SMALL);
        if slot.is_none() {
            // Or done in silence: then ask.
            self.recall();
        }
        slot
    }

    /// Makes more send buffers for such payloads; false where there are no more to come.
    #[cold]
    #[inline(never)]
    pub(super) fn make_slots_slow(&mut self, len: usize) -> bool {
        let (port, pool) = (&mut self.port, &mut self.pool);
        let made = pool.grow(len > SMALL, |bytes| port.more_buffer(bytes, Access::Write));
        port.note(made).unwrap_or(false)
    }

    /// Makes sure that the success of everything under way will be reported.
    #[cold]
    pub(super) fn recall(&mut self) {
        for index in self.connections.numbers() {
            self.report_last(index);
        }
    }

    /// Polls the send queues of connections whose sends are all silent: failure is reported all the same.
    #[cold]
    #[inline(never)]
    pub fn look_for_failures(&mut self) -> bool {
        let mut found = false;
        for queue in 0..self.send_queues.len() {
            if self.is_busy(queue) {
                found |= self.poll_sends(queue);
            }
        }
        self.registrations.release_unused();
        if self.port.is_long_quiet() {
            self.look_for_events();
        }
        found
    }

    /// The connection does not work any more: everything under way has failed.
    #[cold]
    #[inline(never)]
    pub fn fail_connection(&mut self, index: usize, why: Failure, text: String) {
        let connection = self.connection(index);
        if connection.stage.failure().is_some() {
            return;
        }
        connection.stage = Stage::Failed(why);
        // What is still posted comes back by itself, and is not looked at.
        let _ = connection.pair.stop();
        let (queue, expected) = (connection.queue, connection.sends.finish_all());
        self.send_queues[queue].expected -= expected;
        self.counters.failures += 1;
        let detail = if text.is_empty() { why.to_string() } else { text };
        self.port.last_error = Some(detail);
        self.release(index, Err(why));
    }

    /// The device does not answer any more, as a call of it has shown.
    #[cold]
    #[inline(never)]
    pub fn lose_device_by(&mut self, error: VerbsError) -> bool {
        self.lose_device(error.to_string())
    }

    /// The device does not answer any more.
    #[cold]
    #[inline(never)]
    pub fn lose_device(&mut self, text: String) -> bool {
        for index in self.connections.numbers() {
            self.fail_connection(index, Failure::Local, text.clone());
        }
        false
    }

    /// Makes sure that the success of what a connection has under way will be reported.
    pub fn report_last(&mut self, index: usize) {
        let connection = self.connection(index);
        if connection.sends.is_silent() && connection.stage.failure().is_none() {
            self.ask(index);
        }
    }

    /// Posts an operation that does nothing, whose success is reported, if there is room.
    fn ask(&mut self, index: usize) {
        if self.connection(index).sends.room() == 0 {
            return;
        }
        // Nothing is written: it is only there to complete.
        let nothing = Operation::Write { address: 0, rkey: 0 };
        // SAFETY: no memory is named.
        unsafe { self.post(index, &nothing, &[], true, InlineChoice::Auto) };
    }

    /// Looks, by a system call, for what has happened to the device; and asks now and then, and after a change,
    /// whether peers are still there: one that only waits for a message learns it by nothing else.
    pub fn look_for_events(&mut self) {
        let changed = match self.port.look_for_change() {
            Ok(changed) => changed,
            Err(why) => {
                self.lose_device(why);
                return;
            }
        };
        let now = self.port.now();
        // A port that is down may come back: an answer is asked for when it has, or at the usual time.
        let down = changed && !self.port.is_active();
        if down || (self.next_probe_ns == 0 && !changed) {
            self.next_probe_ns = now + PROBE_NS;
        } else if changed || now >= self.next_probe_ns {
            self.next_probe_ns = now + PROBE_NS;
            for index in self.connections.numbers() {
                self.probe(index);
            }
        }
    }

    /// Posts something that the peer's adapter answers by itself, unless an answer is awaited already.
    fn probe(&mut self, index: usize) {
        let connection = self.connection(index);
        // Of a peer whose end is not open yet no answer would come: it may compute before it opens that.
        let ready = connection.stage == Stage::Ready;
        if ready && connection.sends.expected == 0 && !connection.is_said_to_have_left() {
            self.ask(index);
        }
    }

    /// Whether sends that complete on this queue are under way.
    pub fn is_busy(&self, queue: usize) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|connection| connection.queue == queue && connection.sends.is_busy())
    }
}
