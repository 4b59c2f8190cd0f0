//! Posting and polling: the steps of every operation.
#![allow(unsafe_code)]

use fastpath_base::tell;
use fastpath_transport::verbs::post::{failure, status_text};
use fastpath_transport::verbs::{Library, PostError, SendFlags, SendOperation, Sge, Wc};

use super::BareLoop;
use crate::options::verbs::Connection;

/// Empty polls after which the processor is yielded: the two ranks may share a processor.
pub(super) const POLLS: u32 = 512;
/// Empty polls of a word of memory after which the processor is yielded. Such a poll takes a few instructions instead
/// of a hundred. A write that arrives while the processor is yielded is detected only afterwards.
pub(super) const WORD_POLLS: u32 = 1 << 15;
/// Receive buffers that are posted together.
const REFILL: u32 = 16;

impl BareLoop<'_> {
    #[inline]
    pub(super) fn under_way(&self) -> u32 {
        (self.posted - self.done) as u32
    }

    #[inline]
    pub(super) fn await_room(&mut self) {
        let mut polls = 0;
        while self.under_way() >= self.pace.depth {
            if !self.poll_sends() {
                self.pause(&mut polls);
            }
        }
    }

    #[inline]
    pub(super) fn post(&mut self, operation: &SendOperation<'_>, segment: Sge, report: bool) {
        let signaled = self.is_signaled(report);
        let flags = SendFlags { signaled, ..SendFlags::default() };
        let number = self.posted + 1;
        // SAFETY: the wire's memory is never moved, and outlives the queue pair.
        match unsafe { self.wire.pair.post_send(number, operation, &[segment], flags) } {
            Ok(posted) => self.counts.inline += u64::from(posted.inline),
            Err(error) => self.end_slow(error),
        }
        self.posted = number;
        self.counts.sends += 1;
        self.count_call();
    }

    #[inline]
    fn is_signaled(&mut self, report: bool) -> bool {
        self.silent += 1;
        let signaled = report || self.silent >= self.pace.moderation;
        if signaled {
            self.silent = 0;
        }
        signaled
    }

    #[inline]
    fn count_call(&mut self) {
        self.counts.calls += 1;
        self.counts.most = self.counts.most.max(self.posted - self.done);
    }

    pub(super) fn post_list(
        &mut self, operation: &SendOperation<'_>, segment: Sge, count: u32, report: bool,
    ) {
        let segments = [segment];
        self.list.clear();
        for index in 1..=count {
            let signaled = self.is_signaled(report && index == count);
            let flags = SendFlags { signaled, ..SendFlags::default() };
            let number = self.posted + u64::from(index);
            match self.list.push(&self.wire.pair, number, operation, &segments, flags) {
                Ok(inline) => self.counts.inline += u64::from(inline),
                Err(refused) => self.end_slow(PostError::Inline(refused)),
            }
        }
        // SAFETY: the wire's memory is never moved, and outlives the queue pair; the segments outlive the call.
        if let Err((_, error)) = unsafe { self.wire.pair.post_list(&mut self.list) } {
            self.end_slow(error);
        }
        self.posted += u64::from(count);
        self.counts.sends += u64::from(count);
        self.count_call();
    }

    #[inline]
    pub fn poll_sends(&mut self) -> bool {
        self.counts.send_polls += 1;
        let count = match self.wire.send_cq.poll(&mut self.batch) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => end(&error.to_string()),
        };
        for completion in &self.batch[..count] {
            if failure(completion).is_some() {
                end_failed(completion, "a send");
            }
            self.done = completion.wr_id;
        }
        self.counts.completions += count as u64;
        true
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        self.done == self.posted
    }

    /// Polls until everything posted is complete. The last send must be signaled.
    #[inline]
    pub(super) fn await_done(&mut self) {
        let mut polls = 0;
        while !self.is_done() {
            if !self.poll_sends() {
                self.pause(&mut polls);
            }
        }
    }

    /// Waits until everything posted is complete. Datagrams leave in order, so the completion of a signaled datagram
    /// shows that earlier datagrams are complete too.
    pub fn flush(&mut self) {
        if self.done < self.posted && self.silent > 0 {
            if self.wire.connection == Connection::Ud {
                while self.poll_sends() {}
                return;
            }
            // The last send was unsignaled. Post an empty signaled send: its completion shows that all earlier sends
            // are complete.
            self.await_room();
            self.post_nothing();
        }
        self.await_done();
    }

    fn post_nothing(&mut self) {
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let number = self.posted + 1;
        // SAFETY: the operation has no memory segment.
        let posted = unsafe { self.wire.pair.post_send(number, &self.wire.write(), &[], flags) };
        if let Err(error) = posted {
            self.end_slow(error);
        }
        (self.posted, self.silent) = (number, 0);
    }

    #[cold]
    #[inline(never)]
    fn end_slow(&self, error: PostError) -> ! {
        match error {
            PostError::Failed(error) => end(&error.to_string()),
            other => end(&format!("cannot post a send: {other:?}")),
        }
    }

    pub(super) fn refill(&mut self) {
        // SAFETY: the wire's memory is never moved, and outlives the queue pair.
        let posted = unsafe { self.wire.pair.post_recv(&self.rooms[..self.empty as usize]) };
        if let Err((_, error)) = posted {
            end(&error.to_string());
        }
        self.empty = 0;
    }

    #[inline]
    pub(super) fn poll_receives(&mut self) -> bool {
        let count = match self.wire.recv_cq.poll(&mut self.batch) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => end(&error.to_string()),
        };
        for completion in &self.batch[..count] {
            if failure(completion).is_some() {
                end_failed(completion, "a receive");
            }
        }
        self.arrived += count as u32;
        self.empty += count as u32;
        self.counts.arrivals += count as u64;
        self.counts.found += 1;
        true
    }

    #[inline]
    pub(super) fn refill_if_worth(&mut self) {
        if self.empty >= REFILL.min(self.wire.rx_depth) {
            self.refill();
        }
    }

    #[inline]
    pub(super) fn pause(&self, polls: &mut u32) {
        self.pause_after(POLLS, polls);
    }

    #[inline]
    pub(super) fn pause_after(&self, most: u32, polls: &mut u32) {
        *polls = polls.wrapping_add(1);
        if polls.is_multiple_of(most) {
            self.pause_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn pause_slow(&self) {
        if self.job.has_failed() {
            crate::levels::protocol::end_without_peer();
        }
        std::thread::yield_now();
    }
}

/// Ends the process; the launcher ends the other rank.
pub(super) fn end(why: &str) -> ! {
    tell!("fastpath: {why}");
    std::process::exit(1)
}

#[cold]
#[inline(never)]
fn end_failed(completion: &Wc, what: &str) -> ! {
    let said = Library::load().map(|library| status_text(library, completion.status));
    end(&format!("{what} failed: {}", said.unwrap_or_default()))
}
