//! Slow paths: missing send buffers, a full queue, outages and failures.
#![allow(unsafe_code)]

use super::super::send_buffers::BufferSlot;
use super::super::stage::Stage;
use super::core::Core;
use super::outage::{PAUSE_NS, TIMEOUT_NS};
use super::pool::Packet;
use super::wire::{DatagramKind, HEADER};
use crate::contract::Post;
use crate::verbs::{Failure, PostError, VerbsError};
use std::time::Duration;

impl Core {
    #[cold]
    #[inline(never)]
    pub(super) fn post_error_slow(&mut self, error: PostError) -> bool {
        self.lose_device(match error {
            PostError::Failed(error) => error.to_string(),
            other => format!("the adapter did not accept a send request: {other:?}"),
        })
    }

    #[cold]
    #[inline(never)]
    pub fn make_queue_room(&mut self, wanted: u32) -> bool {
        while self.sends.room() < wanted && self.poll_sends() {}
        self.sends.room() >= wanted && !self.lost
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_slot_slow(&mut self, large: bool, packets: u32) -> Option<BufferSlot> {
        while self.sends.expected > 0 && self.poll_sends() {}
        if let Some(slot) = self.pool.take(large, packets) {
            return Some(slot);
        }
        self.make_slots_slow(large);
        self.pool.take(large, packets)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn make_slots_slow(&mut self, large: bool) -> bool {
        self.pool.grow(&mut self.port, large)
    }

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
        // SAFETY: a buffer has room for a header, and belongs to this packet alone.
        unsafe { self.pool.stream(slot).write_bytes(0, HEADER) };
        let packet = Packet::alone(slot, HEADER);
        let now = self.port.now();
        match self.send_new(index, &packet, DatagramKind::Last, 0, now) {
            true => Post::Done,
            false => Post::PeerGone,
        }
    }

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

    /// Stops receiving too, so that the receive buffers return. After a failed send, many adapters stop only the sends.
    fn stop_pair(&mut self) {
        if let Err(error) = self.pair.stop() {
            self.outage.why = error.to_string();
        }
    }

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
                self.stop_pair(); // needed if the device has refused an earlier stop
            }
        }
        let active = self.port.is_active();
        // The adapter may write to each receive buffer until it has returned it, so wait for all of them.
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
            let state = if active { "" } else { "down and " };
            let why = match self.outage.why.as_str() {
                "" => String::new(),
                why => format!(" ({why})"),
            };
            self.lose_device(format!("{name} port {port} has been {state}unusable for 10 s{why}"));
        }
    }

    pub fn until_event(&mut self) -> Duration {
        let failures = self.counters.failures;
        self.look_for_events();
        match self.outage.is_on() {
            _ if self.counters.failures != failures => Duration::ZERO,
            true => Duration::from_nanos(PAUSE_NS),
            false => Duration::MAX,
        }
    }

    /// Restarts the queue pair. After an error the queue pair is unchanged or between two states, and the next attempt
    /// continues from there. Buffers that a failed attempt posted are returned by a stop before the next attempt.
    fn restart(&mut self) -> Result<(), VerbsError> {
        self.pair.reset()?;
        // A reset completes all sends. The queue counts as full until the pair runs, because posts would fail.
        self.sends.block();
        self.pool.sweep(self.sends.done);
        self.pair.restart_datagrams(0)?;
        self.post_receives()?;
        self.sends.finish_all();
        self.outage.stopped = false;
        Ok(())
    }
}
