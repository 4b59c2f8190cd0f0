//! Virtual clock of the cores of one host, on which each rank has a core.
//!
//! Ranks run the real algorithms, in the real layout of shared lines, and data is copied. The rank with the earliest
//! clock runs next. A line has an owner, its last writer. A core that reads a line waits for the latency between both
//! cores, unless it has read the line since the last store. A line serves one reader after another, and a core collects
//! one line after another. The model is that of Ramos and Hoefler (2013), with the costs of [`Machine`]. A message
//! is one line, as long as its data fits the line.
#![allow(unsafe_code)]

use super::super::choose::{JobProcessors, NodeMap};
use super::super::fabric::Fabric;
use super::super::lines::Lines;
use super::super::scratch::OnStack;
use super::machine::Machine;
use super::{LineMemory, pack, suspend, unpack};
use crate::coll_choice::line_plan::{LineCosts, LinePlan, Readers};
use crate::common::error::Result;
use crate::objects::shared_buffers::{self, BUFFER_BYTES, SharedBuffers};
use crate::objects::shared_lines::{BYTES, LINE_BYTES, SharedLines};
use fastpath_protocol::buffer::Buffer;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Maximum bytes of data in the line of a message.
const MESSAGE_BYTES: usize = 48;
const LINE: usize = 64;

/// Time in picoseconds, an integer, because floating-point numbers are not totally ordered.
type Time = u64;

fn time(ns: f64) -> Time {
    (ns * 1000.0) as Time
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum LineId {
    /// Line of [`SharedLines`], by the address behind its header.
    Shared(usize),
    /// Progress of a rank.
    Progress(u32),
    /// Message of a pair, by its number.
    Message(u32, u32, u64),
    /// Line of a rank that has no contents, for published algorithms.
    Flag(u32, u32),
}

#[derive(Default)]
struct Line {
    owner: u32,
    value: u64,
    /// Adjacent lines with the rest of the data.
    adjacent: usize,
    /// Time from which the line is free for the next reader.
    free: Time,
    readers: HashSet<u32>,
    /// Ranks that wait for a value, with the index in their loads.
    waiting: Vec<(u64, u32, usize)>,
}

/// Lines that a rank loads.
#[derive(Default)]
struct LineLoad {
    missing: usize,
    /// Time at which each line arrives, its index, and the time for its adjacent lines.
    arrivals: Vec<(Time, usize, Time)>,
}

#[derive(Default)]
struct HostState {
    clocks: Vec<Time>,
    /// Time at which the last store of each rank becomes visible.
    stored: Vec<Time>,
    loads: Vec<LineLoad>,
    lines: HashMap<LineId, Line>,
    ready: BinaryHeap<Reverse<(Time, u32)>>,
    messages: HashMap<LineId, Vec<u8>>,
    sent: HashMap<(u32, u32), u64>,
    received: HashMap<(u32, u32), u64>,
}

pub(in super::super) struct Host<'m> {
    machine: &'m Machine,
    lines: Vec<SharedLines>,
    _memory: Vec<LineMemory>,
    shared: Vec<SharedBuffers>,
    _buffers: Vec<Vec<u64>>,
    state: RefCell<HostState>,
}

/// Rank on a core.
pub(in super::super) struct Rank<'h> {
    host: &'h Host<'h>,
    pub(in super::super) rank: u32,
}

impl<'m> Host<'m> {
    /// Puts ranks on consecutive cores. Returns `None` if there is no schedule for them.
    pub(in super::super) fn new(
        machine: &'m Machine, ranks: u32, costs: &LineCosts,
    ) -> Option<Host<'m>> {
        assert!(ranks <= machine.cores());
        let places = machine.places(ranks);
        let mut memory = vec![LineMemory([0; BYTES]); ranks as usize];
        let firsts: Vec<*mut u8> = memory.iter_mut().map(|m| m.0.as_mut_ptr()).collect();
        let lines = |rank| {
            let plan = LinePlan::new(rank, &places, costs)?;
            Some(SharedLines::new(firsts.clone().into(), plan.into()))
        };
        let lines = (0..ranks).map(lines).collect::<Option<Vec<_>>>()?;
        let buffer = |_| vec![0u64; shared_buffers::BYTES / 8];
        let mut buffers: Vec<Vec<u64>> = (0..ranks).map(buffer).collect();
        let starts: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let shared = (0..ranks).map(|_| SharedBuffers::new(starts.clone().into(), BUFFER_BYTES));
        let shared = shared.collect();
        let state = RefCell::default();
        Some(Host { machine, lines, _memory: memory, shared, _buffers: buffers, state })
    }

    pub(in super::super) fn ranks(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Runs the algorithm on every rank from time 0; returns the time at which each rank ended, in ns. Lines keep their
    /// owners and readers from run to run.
    pub(in super::super) fn run<'s, A>(&'s self, algorithm: impl Fn(Rank<'s>) -> A) -> Vec<f64>
    where
        A: Future<Output = Result> + 's,
    {
        let ranks = self.ranks();
        {
            let state = &mut *self.state.borrow_mut();
            state.clocks = vec![0; ranks as usize];
            state.stored = vec![0; ranks as usize];
            state.loads = (0..ranks).map(|_| LineLoad::default()).collect();
            state.lines.values_mut().for_each(|line| line.free = 0);
            state.ready = (0..ranks).map(|rank| Reverse((0, rank))).collect();
        }
        let mut running: Vec<Option<Pin<Box<A>>>> =
            (0..ranks).map(|rank| Some(Box::pin(algorithm(Rank { host: self, rank })))).collect();
        loop {
            let next = self.state.borrow_mut().ready.pop();
            let Some(Reverse((_, rank))) = next else { break };
            let Some(future) = &mut running[rank as usize] else { continue };
            if let Poll::Ready(result) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                result.unwrap();
                running[rank as usize] = None;
            }
        }
        assert!(running.iter().all(Option::is_none), "a deadlock");
        let state = self.state.borrow();
        assert!(state.messages.is_empty(), "a message was never received");
        state.clocks.iter().map(|&clock| clock as f64 / 1000.0).collect()
    }
}

impl HostState {
    /// Makes a line visible, and sends it to the ranks that wait for it.
    fn store(&mut self, machine: &Machine, rank: u32, id: LineId, value: u64, bytes: usize) {
        let costs = &machine.costs;
        let line = self.lines.entry(id).or_default();
        let socket = |rank| machine.place(rank).socket;
        let is_far = line.readers.iter().any(|&reader| socket(reader) != socket(rank));
        let clock = &mut self.clocks[rank as usize];
        *clock += time(costs.instructions);
        // Stores become visible in their order.
        let stored = &mut self.stored[rank as usize];
        *stored = (*stored).max(*clock) + if is_far { time(costs.far_store) } else { 0 };
        (line.owner, line.value, line.free) = (rank, value, *stored);
        line.adjacent = bytes.saturating_sub(LINE_BYTES).div_ceil(LINE);
        line.readers.clear();
        let mut waiting = std::mem::take(&mut line.waiting);
        waiting.sort_by_key(|&(_, reader, _)| (time(machine.latency(rank, reader)), reader));
        for (wanted, reader, index) in waiting {
            if value >= wanted {
                self.serve(machine, id, reader, index);
            } else {
                self.lines.entry(id).or_default().waiting.push((wanted, reader, index));
            }
        }
    }

    /// Sends a line to a rank.
    fn serve(&mut self, machine: &Machine, id: LineId, reader: u32, index: usize) {
        let costs = &machine.costs;
        let line = self.lines.entry(id).or_default();
        let now = self.clocks[reader as usize];
        let has_line = line.owner == reader || line.readers.contains(&reader);
        let (arrives, adjacent) = match has_line {
            true => (now, 0),
            false => {
                let begins = now.max(line.free);
                line.free = begins + time(costs.next_reader);
                line.readers.insert(reader);
                let [owner, place] = [line.owner, reader].map(|core| machine.place(core));
                let each = costs.adjacent[usize::from(owner.socket != place.socket)];
                let latency = time(machine.latency(line.owner, reader));
                (begins + latency, time(each * line.adjacent as f64))
            }
        };
        let load = &mut self.loads[reader as usize];
        load.arrivals.push((arrives, index, adjacent));
        load.missing -= 1;
        if load.missing == 0 {
            load.arrivals.sort();
            let mut done = 0;
            for (at, &(arrives, _, adjacent)) in load.arrivals.iter().enumerate() {
                let next = if at > 0 { done + time(costs.next_line) } else { now };
                done = arrives.max(next) + adjacent;
            }
            self.clocks[reader as usize] = done + time(costs.instructions);
            self.ready.push(Reverse((self.clocks[reader as usize], reader)));
        }
    }
}

impl<'h> Rank<'h> {
    fn with<R>(&self, act: impl FnOnce(&mut HostState) -> R) -> R {
        act(&mut self.host.state.borrow_mut())
    }

    /// Suspends this rank until no other rank has an earlier clock.
    async fn take_turns(&self) {
        self.with(|s| s.ready.push(Reverse((s.clocks[self.rank as usize], self.rank))));
        suspend().await;
    }

    /// Stores a line, and `bytes` bytes of data from it on.
    pub(in super::super) async fn store(&self, id: LineId, value: u64, bytes: usize) {
        self.take_turns().await;
        self.with(|s| s.store(self.host.machine, self.rank, id, value, bytes));
    }

    /// Waits until lines have at least these values. Returns their indices in the order of arrival.
    pub(in super::super) async fn load(
        &self, lines: impl IntoIterator<Item = (LineId, u64)>,
    ) -> Vec<usize> {
        self.take_turns().await;
        let lines: Vec<(LineId, u64)> = lines.into_iter().collect();
        if lines.is_empty() {
            return Vec::new();
        }
        self.with(|s| {
            s.loads[self.rank as usize].missing = lines.len();
            for (index, &(id, wanted)) in lines.iter().enumerate() {
                let line = s.lines.entry(id).or_default();
                match line.value >= wanted {
                    true => s.serve(self.host.machine, id, self.rank, index),
                    false => line.waiting.push((wanted, self.rank, index)),
                }
            }
        });
        suspend().await;
        let arrivals = self.with(|s| std::mem::take(&mut s.loads[self.rank as usize].arrivals));
        arrivals.into_iter().map(|(_, index, _)| index).collect()
    }

    /// Begins a call through shared lines.
    pub(in super::super) fn begin_call(&self) -> LineCall<'h> {
        let Rank { host, rank } = *self;
        let lines = &host.lines[rank as usize];
        LineCall { rank: Rank { host, rank }, lines, call: lines.begin_next() }
    }

    fn post_send(&self, to: u32, data: &Buffer) {
        self.with(|s| {
            let sent = s.sent.entry((self.rank, to)).or_default();
            *sent += 1;
            let id = LineId::Message(self.rank, to, *sent);
            // SAFETY: the contract of `Fabric::send` gives a readable buffer.
            let bytes = unsafe { pack(data) };
            let beyond = LINE_BYTES + bytes.len().saturating_sub(MESSAGE_BYTES);
            s.messages.insert(id, bytes);
            s.store(self.host.machine, self.rank, id, 1, beyond);
        });
    }

    fn post_recv(&self, from: u32) -> LineId {
        self.with(|s| {
            let received = s.received.entry((from, self.rank)).or_default();
            *received += 1;
            LineId::Message(from, self.rank, *received)
        })
    }

    /// Waits for a message. Safety: the buffer is writable.
    async unsafe fn finish_recv(&self, id: LineId, into: &Buffer) {
        self.load([(id, 1)]).await;
        let bytes = self.with(|s| {
            s.lines.remove(&id);
            s.messages.remove(&id).unwrap()
        });
        assert_eq!(bytes.len() as u64, into.bytes);
        // SAFETY: the buffer is writable, and as long as the message.
        unsafe { unpack(into, &bytes) };
    }
}

/// Call of a rank through shared lines. It ends when this object drops.
pub(in super::super) struct LineCall<'h> {
    rank: Rank<'h>,
    lines: &'h SharedLines,
    call: u64,
}

impl LineCall<'_> {
    /// Waits until the memory of a step is free. Counts the lines of progress that this takes.
    async fn wait_for_readers(&self, step: u32, bytes: usize) {
        loop {
            let late = self.lines.find_late_reader(self.call, step, bytes);
            let next = late
                .map(LineId::Progress)
                .map(|id| (id, self.rank.with(|s| s.lines.entry(id).or_default().value + 1)));
            let read = self.lines.progress_reads.take();
            self.rank.load(read.into_iter().map(|rank| (LineId::Progress(rank), 0))).await;
            match next {
                Some(next) => _ = self.rank.load([next]).await,
                None => return,
            }
        }
    }
}

impl Drop for LineCall<'_> {
    fn drop(&mut self) {
        self.lines.end(self.call);
        let Rank { host, rank } = self.rank;
        let id = LineId::Progress(rank);
        self.rank.with(|s| s.store(host.machine, rank, id, self.call, 0));
    }
}

impl Lines for LineCall<'_> {
    fn plan(&self) -> &LinePlan {
        &self.lines.plan
    }

    fn number(&self) -> u64 {
        self.call
    }

    async fn wait_for_end(&self, call: u64, readers: Readers) -> Result {
        let mut late = Vec::new();
        self.plan().each_reader(readers, |rank| late.push(rank));
        late.retain(|&rank| !self.lines.has_ended(rank, call));
        self.lines.progress_reads.take();
        self.rank.load(late.iter().map(|&rank| (LineId::Progress(rank), call))).await;
        late.iter().for_each(|&rank| assert!(self.lines.has_ended(rank, call)));
        self.lines.progress_reads.take();
        Ok(())
    }

    fn note_all_began(&self) {
        self.lines.note_all_began(self.call);
    }

    fn note_began(&self, rank: u32) {
        self.lines.note_began(rank, self.call);
    }

    fn note_copy(&self, from: u32, bytes: usize) {
        let Rank { host, rank } = self.rank;
        let costs = &host.machine.costs;
        let each = match host.machine.place(from).socket == host.machine.place(rank).socket {
            _ if from == rank => costs.own,
            true => costs.adjacent[0],
            false => costs.adjacent[1],
        };
        self.rank.with(|s| s.clocks[rank as usize] += time(each * bytes.div_ceil(LINE) as f64));
    }

    fn look_ahead(&self) {
        self.lines.look_ahead();
        let Rank { host, rank } = self.rank;
        let read = self.lines.progress_reads.take();
        let first = read.iter().map(|&other| host.machine.latency(rank, other));
        let first = first.fold(0.0, f64::max);
        let others = read.len().saturating_sub(1) as f64 * host.machine.costs.next_line;
        self.rank.with(|s| s.clocks[rank as usize] += time(first + others));
    }

    async unsafe fn publish(
        &self, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) -> Result {
        self.wait_for_readers(step, bytes).await;
        self.rank.take_turns().await;
        let Rank { host, rank } = self.rank;
        // SAFETY: the memory of the step is free, and the caller promises that the data fits.
        unsafe { self.lines.publish(self.call, step, bytes, fill, readers) };
        let (_, at) = self.lines.find(rank, self.call, step, bytes).unwrap();
        self.rank.with(|s| {
            let adjacent = bytes.saturating_sub(LINE_BYTES).div_ceil(LINE);
            s.clocks[rank as usize] += time(host.machine.costs.adjacent[0] * adjacent as f64);
            s.store(host.machine, rank, LineId::Shared(at.addr()), self.call, bytes);
        });
        Ok(())
    }

    async fn collect(
        &self, from: &[u32], step: u32, bytes: impl Fn(usize) -> usize,
        mut take: impl FnMut(usize, *const u8),
    ) -> Result {
        let id = |index: usize| {
            let at = self.lines.data_address(from[index], self.call, step, bytes(index));
            (LineId::Shared(at), self.call)
        };
        for index in self.rank.load((0..from.len()).map(id)).await {
            let found = self.lines.find(from[index], self.call, step, bytes(index));
            let (found, at) = found.unwrap();
            assert_eq!(found, bytes(index));
            take(index, at);
        }
        Ok(())
    }
}

/// Started operation: a send, or a receive with its message and buffer.
pub(in super::super) enum Ticket {
    Sent,
    Wanted(LineId, Buffer),
}

impl<'h> Fabric for Rank<'h> {
    type Ticket = Ticket;
    type Near = OnStack;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.host.ranks()
    }

    fn room(&self) -> JobProcessors<'_> {
        JobProcessors::Own
    }

    fn nodes(&self) -> Option<&NodeMap> {
        None
    }

    fn may_share(&self) -> bool {
        true
    }

    fn shared(&self) -> Result<Option<&SharedBuffers>> {
        Ok(Some(&self.host.shared[self.rank as usize]))
    }

    fn may_line(&self) -> bool {
        true
    }

    fn lines(&self) -> Result<Option<impl Lines>> {
        Ok(Some(self.begin_call()))
    }

    async unsafe fn send(&self, to: u32, data: Buffer) -> Result {
        self.take_turns().await;
        self.post_send(to, &data);
        Ok(())
    }

    async unsafe fn recv(&self, from: u32, data: Buffer) -> Result {
        let wanted = self.post_recv(from);
        // SAFETY: FABRIC.
        unsafe { self.finish_recv(wanted, &data).await };
        Ok(())
    }

    async unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, into: Buffer) -> Result {
        self.take_turns().await;
        self.post_send(to, &out);
        let wanted = self.post_recv(from);
        // SAFETY: FABRIC.
        unsafe { self.finish_recv(wanted, &into).await };
        Ok(())
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        self.post_send(to, &data);
        Ok(Ticket::Sent)
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<Ticket> {
        Ok(Ticket::Wanted(self.post_recv(from), data))
    }

    async fn wait(&self, ticket: Ticket) -> Result {
        if let Ticket::Wanted(id, into) = ticket {
            // SAFETY: FABRIC.
            unsafe { self.finish_recv(id, &into).await };
        }
        Ok(())
    }
}
