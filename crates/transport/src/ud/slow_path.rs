//! What the data path calls where it cannot go straight on: no send buffer, a full queue, a failure.

use super::iface::Core;
use super::link::Stage;
use super::pool::{Packet, Slot};
use crate::verbs::{Failure, PostError};

impl Core {
    /// A refusal although there was room: the queue pair or the device has gone.
    #[cold]
    #[inline(never)]
    pub(super) fn post_error_slow(&mut self, error: PostError) -> bool {
        self.lose_device(match error {
            PostError::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        })
    }

    /// Looks whether sends are done; says whether so many can be posted now.
    #[cold]
    #[inline(never)]
    pub fn make_queue_room(&mut self, wanted: u32) -> bool {
        while self.queue_room() < wanted && self.poll_sends() {}
        self.queue_room() >= wanted && !self.lost
    }

    /// A send buffer where none was free: of sends that are done, or a new one.
    #[cold]
    #[inline(never)]
    pub(super) fn take_slot_slow(&mut self, large: bool, packets: u32) -> Option<Slot> {
        while self.expected > 0 && self.poll_sends() {}
        if let Some(slot) = self.pool.take(large, packets) {
            return Some(slot);
        }
        self.make_slots_slow(large);
        self.pool.take(large, packets)
    }

    /// Makes more send buffers; false where there are no more to come.
    #[cold]
    #[inline(never)]
    pub(super) fn make_slots_slow(&mut self, large: bool) -> bool {
        let (domain, refused) = (&self.domain, &mut self.counters.refused);
        let made = self.pool.grow(large, |bytes, access| {
            domain.buffer(bytes, access).inspect_err(|_| *refused += 1)
        });
        made.unwrap_or_else(|error| {
            self.last_error = Some(error.to_string());
            false
        })
    }

    /// The connection does not work any more: nothing is under way, nothing can be posted.
    #[cold]
    #[inline(never)]
    pub fn fail_link(&mut self, index: usize, why: Failure, text: String) {
        let link = self.link(index);
        if matches!(link.stage, Stage::Failed(_)) {
            return;
        }
        link.stage = Stage::Failed(why);
        let under_way: Vec<Packet> = link.sender.abandon().collect();
        for packet in under_way {
            self.pool.release(packet.slot, self.done);
        }
        self.counters.failures += 1;
        self.last_error = Some(text);
    }

    /// The device does not answer any more, or the queue pair has stopped. Always false.
    #[cold]
    #[inline(never)]
    pub fn lose_device(&mut self, text: String) -> bool {
        self.lost = true;
        self.outage.give_up();
        for index in 0..self.links.len() {
            if self.links[index].is_some() {
                self.fail_link(index, Failure::Local, text.clone());
            }
        }
        false
    }
}
