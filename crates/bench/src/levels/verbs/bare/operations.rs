//! Measured operations.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use fastpath_transport::verbs::{SendOperation, Sge};

use super::BareLoop;
use super::queues::{POLLS, WORD_POLLS, end};
use crate::options::verbs::Connection;

/// Time without an arrival after which a datagram counts as lost.
const TIMEOUT: Duration = Duration::from_secs(10);

impl BareLoop<'_> {
    #[inline]
    pub fn post_message(&mut self, bytes: usize) {
        self.await_room();
        let wire = self.wire;
        self.post(&wire.message(), wire.outgoing_segment(bytes), false);
    }

    /// Sends a message; in an eager ping-pong it is complete on return.
    #[inline]
    pub fn send(&mut self, bytes: usize) {
        self.post_message(bytes);
        if self.pace.eager && self.silent == 0 {
            self.await_done();
        }
    }

    #[inline]
    pub fn receive(&mut self) -> u32 {
        // Post receive buffers again before the message arrives, so that the refill does not delay it.
        self.refill_if_worth();
        let polls = match self.arrived {
            0 => self.await_arrival(),
            _ => 0,
        };
        self.arrived -= 1;
        polls
    }

    fn await_arrival(&mut self) -> u32 {
        let (mut polls, mut since) = (0, None);
        while !self.poll_receives() {
            self.pause(&mut polls);
            let datagrams = self.wire.connection == Connection::Ud;
            if datagrams && polls.is_multiple_of(POLLS) {
                let since: &mut Instant = since.get_or_insert_with(Instant::now);
                if since.elapsed() > TIMEOUT {
                    end("a datagram was lost: no message has arrived for 10 s; use a smaller \
                         --window or a larger --rx-depth");
                }
            }
        }
        polls
    }

    pub fn send_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let (operation, segment) = (wire.message(), wire.outgoing_segment(bytes));
        self.post_window(&operation, segment, window, false);
    }

    fn post_window(
        &mut self, operation: &SendOperation<'_>, segment: Sge, window: u32, flushed: bool,
    ) {
        let mut left = window;
        while left > 0 {
            self.await_room();
            let room = self.pace.depth - self.under_way();
            let count = left.min(self.pace.list).min(room);
            let report = flushed && count == left;
            match count {
                1 => self.post(operation, segment, report),
                _ => self.post_list(operation, segment, count, report),
            }
            left -= count;
            if self.pace.eager {
                self.poll_sends();
            }
        }
    }

    pub fn receive_window(&mut self, window: u32) {
        for _ in 0..window {
            self.receive();
        }
    }

    pub fn exchange_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let (operation, segment) = (wire.message(), wire.outgoing_segment(bytes));
        let (mut left, mut wanted, mut polls) = (window, window, 0);
        while left > 0 || wanted > 0 {
            let room = self.pace.depth - self.under_way();
            let count = left.min(self.pace.list).min(room);
            match count {
                0 => {}
                1 => self.post(&operation, segment, false),
                _ => self.post_list(&operation, segment, count, false),
            }
            left -= count;
            if room == 0 || self.pace.eager {
                self.poll_sends();
            }
            self.refill_if_worth();
            self.poll_receives();
            // Arrivals beyond the window belong to the next window.
            let taken = wanted.min(self.arrived);
            self.arrived -= taken;
            wanted -= taken;
            if count == 0 && taken == 0 {
                self.pause(&mut polls);
            }
        }
    }

    /// Writes a window to the other rank's memory, and waits for its completion.
    pub fn write_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let segment = wire.outgoing_segment(bytes);
        self.post_window(&wire.write(), segment, window, true);
        self.await_done();
    }

    /// Reads a window from the other rank's memory, and waits for its completion.
    pub fn read_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let segment = wire.landing_segment(bytes);
        self.post_window(&wire.read(), segment, window, true);
        self.await_done();
    }

    #[inline]
    pub fn post_remote(&mut self, puts: bool, bytes: usize) {
        self.await_room();
        let wire = self.wire;
        match puts {
            true => self.post(&wire.write(), wire.outgoing_segment(bytes), true),
            false => self.post(&wire.read(), wire.landing_segment(bytes), true),
        }
    }

    #[inline]
    pub fn flush_remote(&mut self) {
        self.await_done();
    }

    /// Resets the marks of both directions. Nothing may be in flight.
    pub fn restart_writes(&mut self) {
        (self.written, self.seen) = (0, 0);
        // SAFETY: the landing area has `room` bytes, and the other rank writes none of them now.
        unsafe { self.wire.landing().write_bytes(0, self.wire.room) };
    }

    /// Writes a message of 1 byte or more, whose last byte is the mark.
    #[inline]
    pub fn write_marked(&mut self, bytes: usize) {
        self.await_room();
        self.written = self.written.wrapping_add(1);
        let wire = self.wire;
        // SAFETY: the byte is in the outgoing area, which the adapter has read: the other rank has seen the last write.
        unsafe { wire.outgoing().add(bytes - 1).write_volatile(self.written) };
        self.post(&wire.write(), wire.outgoing_segment(bytes), false);
        if self.pace.eager && self.silent == 0 {
            self.await_done();
        }
    }

    #[inline]
    pub fn await_marked(&mut self, bytes: usize) {
        self.seen = self.seen.wrapping_add(1);
        // SAFETY: callers pass 1 to `room` bytes, so the address is inside the landing area.
        let last = unsafe { self.wire.landing().add(bytes - 1) };
        let mut polls = 0;
        // SAFETY: the byte is inside the landing area; the adapter writes it, hence the volatile read.
        while unsafe { last.read_volatile() } != self.seen {
            self.pause_after(WORD_POLLS, &mut polls);
        }
    }

    /// Outgoing bytes. Nothing may be in flight.
    pub fn outgoing(&mut self, bytes: usize) -> &mut [u8] {
        // SAFETY: the slice is inside the outgoing area, which the adapter reads only while something is in flight.
        unsafe { std::slice::from_raw_parts_mut(self.wire.outgoing(), bytes.min(self.wire.room)) }
    }

    /// Received bytes. Nothing may be in flight.
    pub fn landed(&mut self, bytes: usize) -> &mut [u8] {
        // SAFETY: the slice is inside the landing area, which the other rank does not access now.
        unsafe { std::slice::from_raw_parts_mut(self.wire.landing(), bytes.min(self.wire.room)) }
    }
}
