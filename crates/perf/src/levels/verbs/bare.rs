//! The bare loops: post, poll, and nothing else.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastpath_bootstrap::Job;
use fastpath_transport::verbs::post::{failure, status_text};
use fastpath_transport::verbs::{
    Library, Operation, PostError, RecvEntry, SendFlags, SendList, Sge, Wc,
};

use super::wire::Wire;
use crate::bench::verbs::{Connection, Polls, VerbsOptions};

/// Looks in vain, after which the processor is offered to others: the two ranks may share one.
const LOOKS: u32 = 512;
/// After so long without an arrival a datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Receive buffers that are posted together.
const REFILL: u32 = 16;
/// Completions taken by one poll, where nothing else is asked for.
pub const POLL_BATCH: u32 = 16;

/// How sends are posted and their completions taken.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Sends under way at most.
    pub depth: u32,
    /// Sends posted by one call.
    pub list: u32,
    /// One of so many reports its success.
    pub moderation: u32,
    /// Completions are polled for after each call.
    pub eager: bool,
}

impl Pace {
    /// That of ping-pongs: one message is under way.
    pub fn of_rounds(options: &VerbsOptions, depth: u32) -> Pace {
        let eager = options.poll != Some(Polls::Lazy);
        let quarter = (depth / 4).max(1);
        Pace {
            depth,
            list: 1,
            moderation: options
                .cq_moderation
                .unwrap_or(if eager { 1 } else { quarter }),
            eager,
        }
    }

    /// That of windows.
    pub fn of_windows(options: &VerbsOptions, depth: u32) -> Pace {
        Pace {
            depth,
            list: options.post_list.unwrap_or(1),
            moderation: options.cq_moderation.unwrap_or((depth / 4).max(1)),
            eager: options.poll == Some(Polls::Eager),
        }
    }
}

/// What was done, since the begin of a case.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sends: u64,
    inline: u64,
    calls: u64,
    completions: u64,
    send_polls: u64,
    most: u64,
    arrivals: u64,
    /// Polls that found arrivals.
    found: u64,
}

/// One of the two ranks, at its queue pair.
pub struct Bare<'a> {
    wire: &'a Wire,
    job: &'static Job,
    pace: Pace,
    batch: Vec<Wc>,
    rooms: Vec<RecvEntry>,
    list: SendList,
    posted: u64,
    done: u64,
    /// Sends since the last that reports its success.
    silent: u32,
    /// Messages that came and were not asked for yet.
    arrived: u32,
    /// Receive buffers that are to be posted again.
    empty: u32,
    /// What the last write in either direction carried.
    written: u8,
    seen: u8,
    counts: Counts,
}

impl<'a> Bare<'a> {
    /// Posts all receive buffers.
    pub fn new(wire: &'a Wire, job: &'static Job, options: &VerbsOptions) -> Bare<'a> {
        let segment = wire.receive_segment();
        let batch = options.poll_batch.unwrap_or(POLL_BATCH);
        let mut bare = Bare {
            wire,
            job,
            pace: Pace::of_rounds(options, wire.pair.send_depth().max(1)),
            batch: vec![Wc::default(); batch as usize],
            rooms: vec![RecvEntry { id: 0, segment }; wire.rx_depth as usize],
            list: SendList::new(),
            posted: 0,
            done: 0,
            silent: 0,
            arrived: 0,
            empty: wire.rx_depth,
            written: 0,
            seen: 0,
            counts: Counts::default(),
        };
        bare.refill();
        bare
    }

    /// A case begins: how it posts, and all is counted from here.
    pub fn begin(&mut self, pace: Pace) {
        self.flush();
        self.pace = pace;
        self.counts = Counts::default();
    }

    /// What was done by this rank in the case.
    pub fn describe_counts(&self) -> BTreeMap<String, f64> {
        let c = &self.counts;
        let each = |n: u64, of: u64| n as f64 / of.max(1) as f64;
        let mut said = BTreeMap::new();
        let mut say = |name: &str, value: f64| {
            said.insert(name.to_owned(), value);
        };
        if c.sends > 0 {
            say("post calls per send", each(c.calls, c.sends));
            say("share of sends inline", each(c.inline, c.sends));
            say("completions per send", each(c.completions, c.sends));
            say(
                "polls of the send queue per send",
                each(c.send_polls, c.sends),
            );
            say("most sends under way", c.most as f64);
        }
        if c.arrivals > 0 {
            say(
                "arrivals per poll that found some",
                each(c.arrivals, c.found),
            );
        }
        said
    }

    // --- sends ---

    #[inline]
    fn under_way(&self) -> u32 {
        (self.posted - self.done) as u32
    }

    #[inline]
    fn await_room(&mut self) {
        let mut looks = 0;
        while self.under_way() >= self.pace.depth {
            if !self.poll_sends() {
                self.pause(&mut looks);
            }
        }
    }

    /// Posts one send, which has room.
    #[inline]
    fn post(&mut self, operation: &Operation<'_>, segment: Sge, report: bool) {
        let signaled = self.is_signaled(report);
        let flags = SendFlags {
            signaled,
            ..SendFlags::default()
        };
        let number = self.posted + 1;
        // SAFETY: the wire's memory stays, and outlives the queue pair.
        match unsafe {
            self.wire
                .pair
                .post_send(number, operation, &[segment], flags)
        } {
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

    /// Posts so many alike by one call.
    fn post_list(&mut self, operation: &Operation<'_>, segment: Sge, count: u32, report: bool) {
        let segments = [segment];
        self.list.clear();
        for index in 1..=count {
            let signaled = self.is_signaled(report && index == count);
            let flags = SendFlags {
                signaled,
                ..SendFlags::default()
            };
            let number = self.posted + u64::from(index);
            match self
                .list
                .push(&self.wire.pair, number, operation, &segments, flags)
            {
                Ok(inline) => self.counts.inline += u64::from(inline),
                Err(refused) => self.end_slow(PostError::Inline(refused)),
            }
        }
        // SAFETY: as in `post`; the segments are still there.
        if let Err((_, error)) = unsafe { self.wire.pair.post_list(&mut self.list) } {
            self.end_slow(error);
        }
        self.posted += u64::from(count);
        self.counts.sends += u64::from(count);
        self.count_call();
    }

    /// Takes completions of sends; says whether there were any.
    #[inline]
    fn poll_sends(&mut self) -> bool {
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

    /// Polls until everything posted is complete, the last of which reports its success.
    #[inline]
    fn await_done(&mut self) {
        let mut looks = 0;
        while self.done < self.posted {
            if !self.poll_sends() {
                self.pause(&mut looks);
            }
        }
    }

    /// Waits until everything posted is complete. Datagrams leave in order: those whose success nobody reports are gone
    /// once a later one reports its own.
    pub fn flush(&mut self) {
        if self.done < self.posted && self.silent > 0 {
            if self.wire.connection == Connection::Ud {
                while self.poll_sends() {}
                return;
            }
            // The last was silent: one that carries nothing reports for all.
            self.await_room();
            self.post_nothing();
        }
        self.await_done();
    }

    fn post_nothing(&mut self) {
        let flags = SendFlags {
            signaled: true,
            ..SendFlags::default()
        };
        let number = self.posted + 1;
        // SAFETY: no memory is named.
        let posted = unsafe {
            self.wire
                .pair
                .post_send(number, &self.wire.write(), &[], flags)
        };
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
            other => end(&format!("a send was not posted: {other:?}")),
        }
    }

    // --- receives ---

    /// Posts the receive buffers that were emptied.
    fn refill(&mut self) {
        // SAFETY: the wire's memory stays, and outlives the queue pair.
        let posted = unsafe { self.wire.pair.post_recv(&self.rooms[..self.empty as usize]) };
        if let Err((_, error)) = posted {
            end(&error.to_string());
        }
        self.empty = 0;
    }

    /// Takes arrivals; says whether there were any.
    #[inline]
    fn poll_receives(&mut self) -> bool {
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
    fn refill_if_worth(&mut self) {
        if self.empty >= REFILL.min(self.wire.rx_depth) {
            self.refill();
        }
    }

    #[inline]
    fn pause(&self, looks: &mut u32) {
        *looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) {
            self.pause_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn pause_slow(&self) {
        if self.job.has_failed() {
            super::super::protocol::end_without_peer();
        }
        std::thread::yield_now();
    }

    // --- operations ---

    /// Posts a message.
    #[inline]
    pub fn post_message(&mut self, bytes: usize) {
        self.await_room();
        let wire = self.wire;
        self.post(&wire.message(), wire.outgoing_segment(bytes), false);
    }

    /// Sends a message; in an eager ping-pong it is complete afterwards.
    #[inline]
    pub fn send(&mut self, bytes: usize) {
        self.post_message(bytes);
        if self.pace.eager && self.silent == 0 {
            self.await_done();
        }
    }

    /// Receives a message.
    #[inline]
    pub fn receive(&mut self) {
        // Before the message is there, so that it waits for nothing.
        self.refill_if_worth();
        if self.arrived == 0 {
            self.await_arrival();
        }
        self.arrived -= 1;
    }

    fn await_arrival(&mut self) {
        let (mut looks, mut since) = (0, None);
        while !self.poll_receives() {
            self.pause(&mut looks);
            let datagrams = self.wire.connection == Connection::Ud;
            if datagrams && looks.is_multiple_of(LOOKS) {
                let since: &mut Instant = since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    end(
                        "a datagram was lost: nothing has come for 10 s; give it a smaller --window or a larger --rx-depth",
                    );
                }
            }
        }
    }

    /// Sends a window of messages.
    pub fn send_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let (operation, segment) = (wire.message(), wire.outgoing_segment(bytes));
        self.post_window(&operation, segment, window, false);
    }

    fn post_window(&mut self, operation: &Operation<'_>, segment: Sge, window: u32, flushed: bool) {
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

    /// Receives a window of messages.
    pub fn receive_window(&mut self, window: u32) {
        (0..window).for_each(|_| self.receive());
    }

    /// Sends a window and receives one at the same time.
    pub fn exchange_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let (operation, segment) = (wire.message(), wire.outgoing_segment(bytes));
        let (mut left, mut wanted, mut looks) = (window, window, 0);
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
            // What comes beyond the window belongs to the next one.
            let taken = wanted.min(self.arrived);
            self.arrived -= taken;
            wanted -= taken;
            if count == 0 && taken == 0 {
                self.pause(&mut looks);
            }
        }
    }

    /// Writes a window to the other rank's memory, and waits until it is there.
    pub fn write_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let segment = wire.outgoing_segment(bytes);
        self.post_window(&wire.write(), segment, window, true);
        self.await_done();
    }

    /// Reads a window from the other rank's memory, and waits until it is here.
    pub fn read_window(&mut self, window: u32, bytes: usize) {
        let wire = self.wire;
        let segment = wire.landing_segment(bytes);
        self.post_window(&wire.read(), segment, window, true);
        self.await_done();
    }

    /// Posts one write or read and does not wait.
    #[inline]
    pub fn post_remote(&mut self, puts: bool, bytes: usize) {
        self.await_room();
        let wire = self.wire;
        match puts {
            true => self.post(&wire.write(), wire.outgoing_segment(bytes), true),
            false => self.post(&wire.read(), wire.landing_segment(bytes), true),
        }
    }

    /// Waits until all that [`Bare::post_remote`] posted is complete.
    #[inline]
    pub fn flush_remote(&mut self) {
        self.await_done();
    }

    /// Both sides' writes begin anew; to be called while nothing is under way.
    pub fn restart_writes(&mut self) {
        (self.written, self.seen) = (0, 0);
        // SAFETY: the landing area has so many bytes, and the other rank writes none of them now.
        unsafe { self.wire.landing().write_bytes(0, self.wire.room) };
    }

    /// Writes a message of 1 byte or more whose last byte says that it is there.
    #[inline]
    pub fn write_marked(&mut self, bytes: usize) {
        self.await_room();
        self.written = self.written.wrapping_add(1);
        let wire = self.wire;
        // SAFETY: inside the outgoing area, which the adapter has read: the other rank has seen the last write.
        unsafe { wire.outgoing().add(bytes - 1).write_volatile(self.written) };
        self.post(&wire.write(), wire.outgoing_segment(bytes), false);
        if self.pace.eager && self.silent == 0 {
            self.await_done();
        }
    }

    /// Waits until the other rank has written such a message.
    #[inline]
    pub fn await_marked(&mut self, bytes: usize) {
        self.seen = self.seen.wrapping_add(1);
        // SAFETY: inside the landing area.
        let last = unsafe { self.wire.landing().add(bytes - 1) };
        let mut looks = 0;
        // SAFETY: as above; the adapter writes it, so it is read anew each time.
        while unsafe { last.read_volatile() } != self.seen {
            self.pause(&mut looks);
        }
    }

    /// The bytes that are sent; to be called while nothing is under way.
    pub fn outgoing(&mut self, bytes: usize) -> &mut [u8] {
        // SAFETY: inside the outgoing area, which the adapter reads only while something is under way.
        unsafe { std::slice::from_raw_parts_mut(self.wire.outgoing(), bytes.min(self.wire.room)) }
    }

    /// The bytes that came; to be called while nothing is under way.
    pub fn landed(&mut self, bytes: usize) -> &mut [u8] {
        // SAFETY: inside the landing area, which the other rank does not reach now.
        unsafe { std::slice::from_raw_parts_mut(self.wire.landing(), bytes.min(self.wire.room)) }
    }
}

/// Ends the process; the launcher ends the other rank.
fn end(why: &str) -> ! {
    eprintln!("fastpath: {why}");
    std::process::exit(1)
}

#[cold]
#[inline(never)]
fn end_failed(completion: &Wc, what: &str) -> ! {
    let said = Library::load().map(|library| status_text(library, completion.status));
    end(&format!("{what} failed: {}", said.unwrap_or_default()))
}
