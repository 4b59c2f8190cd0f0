//! What the data path calls where it cannot go straight on: no send buffer, silent sends, a failure.

use super::connection::{Slot, Stage};
use super::datapath::{POLLS, QUIET};
use super::iface::Core;
use crate::verbs::{Failure, PostError, VerbsError};

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
            return self.pool.take(len);
        }
        // All are under way, or done and nobody has looked.
        for queue in 0..self.send_queues.len() {
            if self.send_queues[queue].expected > 0 {
                self.poll_sends(queue);
            }
        }
        if matches!(self.connection(index).stage, Stage::Failed(_)) {
            return None;
        }
        let slot = self.pool.take(len);
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
        let (domain, refused) = (&self.domain, &mut self.counters.refused);
        let made = self.pool.prepare(len, |bytes, access| {
            domain.buffer(bytes, access).inspect_err(|_| *refused += 1)
        });
        made.unwrap_or_else(|error| {
            self.last_error = Some(error.to_string());
            false
        })
    }

    /// Makes sure that the success of everything under way will be reported.
    #[cold]
    pub(super) fn recall(&mut self) {
        for index in 0..self.connections.len() {
            if self.connections[index].is_some() {
                self.report_last(index);
            }
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
        self.domain.registrations.release_unused();
        if self.quiet >= QUIET * POLLS {
            self.quiet = 0;
            self.look_for_events();
        }
        found
    }

    /// The connection does not work any more: everything under way has failed.
    #[cold]
    #[inline(never)]
    pub fn fail_connection(&mut self, index: usize, why: Failure, text: String) {
        let connection = self.connection(index);
        if matches!(connection.stage, Stage::Failed(_)) {
            return;
        }
        connection.stage = Stage::Failed(why);
        // What is still posted comes back by itself, and is not looked at.
        let _ = connection.pair.stop();
        connection.done = connection.posted;
        let (queue, expected) = (connection.queue, std::mem::take(&mut connection.expected));
        self.send_queues[queue].expected -= expected;
        self.counters.failures += 1;
        let detail = if text.is_empty() {
            why.to_string()
        } else {
            text
        };
        self.last_error = Some(detail);
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
        for index in 0..self.connections.len() {
            if self.connections[index].is_some() {
                self.fail_connection(index, Failure::Local, text.clone());
            }
        }
        false
    }
}
