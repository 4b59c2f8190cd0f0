//! What the data path calls where it cannot go straight on: no send buffer, a full queue, a failure.
#![allow(unsafe_code)]

use super::super::send_buffers::Slot;
use super::super::stage::Stage;
use super::iface::Core;
use super::pool::Packet;
use super::wire::{DatagramKind, HEADER};
use crate::contract::Post;
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
        while self.sends.room() < wanted && self.poll_sends() {}
        self.sends.room() >= wanted && !self.lost
    }

    /// A send buffer where none was free: of sends that are done, or a new one.
    #[cold]
    #[inline(never)]
    pub(super) fn take_slot_slow(&mut self, large: bool, packets: u32) -> Option<Slot> {
        while self.sends.expected > 0 && self.poll_sends() {}
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
        self.pool.grow(&mut self.port, large)
    }

    /// The connection does not work any more: nothing is under way, nothing can be posted.
    #[cold]
    #[inline(never)]
    pub fn fail_link(&mut self, index: usize, why: Failure, text: String) {
        let link = self.link(index);
        if link.stage.failure().is_some() {
            return;
        }
        link.stage = Stage::Failed(why);
        let under_way: Vec<Packet> = link.sender.abandon().collect();
        for packet in under_way {
            self.pool.release(packet.slot, self.sends.done);
        }
        self.counters.failures += 1;
        self.port.last_error = Some(text);
    }

    /// The device does not answer any more, or the queue pair has stopped. Always false.
    #[cold]
    #[inline(never)]
    pub fn lose_device(&mut self, text: String) -> bool {
        self.lost = true;
        self.outage.give_up();
        for index in self.links.numbers() {
            self.fail_link(index, Failure::Local, text.clone());
        }
        false
    }

    /// Says that no more messages come this way.
    #[cold]
    pub fn send_last(&mut self, index: usize) -> Post {
        let link = self.link(index);
        let post = link.stage.admit(link.sender.room() > 0);
        if post != Post::Done {
            return post;
        }
        if !self.has_queue_room(1) {
            return Post::NoResource;
        }
        let Some(slot) = self.take_slot(false, 1) else {
            return Post::NoResource;
        };
        // SAFETY: a buffer has room for a header, and is this packet's alone.
        unsafe { self.pool.stream(slot).write_bytes(0, HEADER) };
        let packet = Packet::alone(slot, HEADER);
        let now = self.port.now();
        match self.send_new(index, &packet, DatagramKind::Last, 0, now) {
            true => Post::Done,
            false => Post::PeerGone,
        }
    }
}
