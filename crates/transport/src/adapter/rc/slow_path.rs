//! Slow paths: missing send buffers, unsignaled sends, device events and failures.
#![allow(unsafe_code)]

use super::super::send_buffers::BufferSlot;
use super::super::stage::Stage;
use super::core::{Core, SMALL};
use crate::verbs::{Access, Failure, InlineChoice, PostError, SendOperation, VerbsError};

const PROBE_NS: u64 = 10_000_000_000;

impl Core {
    #[cold]
    #[inline(never)]
    pub(super) fn post_error_slow(&mut self, index: usize, error: PostError) -> bool {
        let text = match error {
            PostError::Failed(error) => error.to_string(),
            other => format!("the adapter did not accept a send request: {other:?}"),
        };
        self.fail_connection(index, Failure::Local, text);
        false
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_slot_slow(&mut self, index: usize, len: usize) -> Option<BufferSlot> {
        if self.make_slots_slow(len) {
            return self.pool.take(len > SMALL);
        }
        // All buffers count as in use: poll, because some sends may have completed.
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
            // The sends of these buffers may be unsignaled: request completions.
            self.recall();
        }
        slot
    }

    #[cold]
    #[inline(never)]
    pub(super) fn make_slots_slow(&mut self, len: usize) -> bool {
        let (port, pool) = (&mut self.port, &mut self.pool);
        let made = pool.grow(len > SMALL, |bytes| port.more_buffer(bytes, Access::Write));
        port.note(made).unwrap_or(false)
    }

    #[cold]
    pub(super) fn recall(&mut self) {
        for index in self.connections.numbers() {
            self.report_last(index);
        }
    }

    /// Polls completion queues with outstanding sends, because failed unsignaled sends have completions too.
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

    #[cold]
    #[inline(never)]
    pub fn fail_connection(&mut self, index: usize, why: Failure, text: String) {
        let connection = self.connection(index);
        if connection.stage.failure().is_some() {
            return;
        }
        connection.stage = Stage::Failed(why);
        // This flushes posted sends and receives. Their completions are ignored.
        let _ = connection.pair.stop();
        let (queue, expected) = (connection.queue, connection.sends.finish_all());
        self.send_queues[queue].expected -= expected;
        self.counters.failures += 1;
        let detail = if text.is_empty() { why.to_string() } else { text };
        self.port.last_error = Some(detail);
        self.release(index, Err(why));
    }

    #[cold]
    #[inline(never)]
    pub fn lose_device_by(&mut self, error: VerbsError) -> bool {
        self.lose_device(error.to_string())
    }

    #[cold]
    #[inline(never)]
    pub fn lose_device(&mut self, text: String) -> bool {
        for index in self.connections.numbers() {
            self.fail_connection(index, Failure::Local, text.clone());
        }
        false
    }

    pub fn report_last(&mut self, index: usize) {
        let connection = self.connection(index);
        if connection.sends.is_silent() && connection.stage.failure().is_none() {
            self.ask(index);
        }
    }

    fn ask(&mut self, index: usize) {
        if self.connection(index).sends.room() == 0 {
            return;
        }
        // A write of 0 bytes, only for its completion.
        let nothing = SendOperation::Write { address: 0, rkey: 0 };
        // SAFETY: there are no segments, so no memory is accessed.
        unsafe { self.post(index, &nothing, &[], true, InlineChoice::Auto) };
    }

    /// Checks for device events, by a system call. Probes peers at intervals and after a change. A rank that only waits
    /// for a message detects a lost peer only by a probe.
    pub fn look_for_events(&mut self) {
        let changed = match self.port.look_for_change() {
            Ok(changed) => changed,
            Err(why) => {
                self.lose_device(why);
                return;
            }
        };
        let now = self.port.now();
        // A port that is down may come up again. Probe when the port is up, or after the interval.
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

    /// Posts an operation that the peer's adapter acknowledges, unless an acknowledgement is already outstanding.
    fn probe(&mut self, index: usize) {
        let connection = self.connection(index);
        // A peer acknowledges only after it has opened its end, and it may compute before that.
        let ready = connection.stage == Stage::Ready;
        if ready && connection.sends.expected == 0 && !connection.is_said_to_have_left() {
            self.ask(index);
        }
    }

    pub fn is_busy(&self, queue: usize) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|connection| connection.queue == queue && connection.sends.is_busy())
    }
}
