//! Slow paths: missing credits, missing memory, invalid slots.
#![allow(unsafe_code)]

use super::datapath::{Rx, Tx};
use super::wire::*;
use crate::contract::{Arrival, Header};
use fastpath_base::sync::Ordering;
use std::ptr;

impl Tx {
    #[cold]
    #[inline(never)]
    pub(super) fn allot_data_slow(&mut self, len: u32) -> Option<u32> {
        self.refresh_credits();
        loop {
            if let Some(offset) = self.allot_known(len) {
                return Some(offset);
            }
            if !self.grow_data(len) {
                return None;
            }
        }
    }

    /// Reads the consumer's position; returns whether a slot is free now.
    #[cold]
    #[inline(never)]
    pub fn refresh_credits(&mut self) -> bool {
        if self.pair.is_null() {
            return false;
        }
        // ORDERING: acquire pairs with the release in `Rx::publish_to`: the consumer has finished reading what it
        // returns. SAFETY: the region is mapped, as `pair` is not null.
        let head = unsafe { (*self.pair).control.head.load(Ordering::Acquire) };
        // SAFETY: `connect` allocated the queue, and only this process uses it.
        let queue = unsafe { &mut *self.in_data };
        queue.starved = false; // set again if this request lacks memory
        // The peer's position is not trusted: it must be neither beyond the tail nor before its last value. This
        // function also runs while a slot is free, and must leave that slot free.
        if head.wrapping_sub(queue.said) > self.tail.wrapping_sub(queue.said) {
            return false;
        }
        if head < queue.said {
            // SAFETY: the region is mapped, as `pair` is not null.
            let laps = unsafe { &(*self.pair).control.laps };
            laps.store(laps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        queue.said = head;
        let outstanding = self.tail.wrapping_sub(head);
        while queue.first != queue.next {
            // SAFETY: there has been a message in the data area, so the entries exist.
            let (position, end) = unsafe { (*queue.entries)[(queue.first & SLOT_MASK) as usize] };
            if self.tail.wrapping_sub(position) <= outstanding {
                break;
            }
            self.data_head = end;
            queue.first = queue.first.wrapping_add(1);
        }
        if queue.head_pages == HEAD_PAGES {
            self.limit = head.wrapping_add(SLOTS);
            return self.has_room();
        }
        self.has_room() || self.grow_ring()
    }
}

impl Rx {
    /// Returns an arrival with id 255 for an invalid slot. The protocol layer rejects this id.
    #[cold]
    #[inline(never)]
    pub(super) fn look_nonsense(&mut self) -> Option<Arrival<'_>> {
        self.shown.len = 0;
        Some(Arrival::new(Header::new(u8::MAX, 0, 0), ptr::dangling(), 0))
    }
}
