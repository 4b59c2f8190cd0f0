//! The bus: packets in flight, and their handling on arrival.

use super::Simulator;
use super::events::{DownPacket, SimEvent, UpPacket};
use super::node::{AdapterJob, JobKind};

impl Simulator {
    /// Sends a packet to the host; `data` of its `bytes` are data.
    pub(super) fn send_up(&mut self, node: u32, packet: UpPacket, data: u64, bytes: u64) {
        let now = self.queue.now;
        let line = &mut self.nodes[node as usize].up;
        line.tally.count(data, bytes);
        let at = line.send(now, bytes);
        self.packets += 1;
        self.queue.plan(at, SimEvent::Up { node, packet });
    }

    fn send_down(&mut self, node: u32, packet: DownPacket, data: u64, bytes: u64) {
        let now = self.queue.now;
        let line = &mut self.nodes[node as usize].down;
        line.tally.count(data, bytes);
        let at = line.send(now, bytes);
        self.packets += 1;
        self.queue.plan(at, SimEvent::Down { node, packet });
    }

    /// Writes `bytes` bytes to memory; `packet` returns the description of each write, given whether it is the last.
    pub(super) fn write_memory(
        &mut self, node: u32, bytes: u64, packet: impl Fn(bool) -> UpPacket,
    ) {
        let packets = self.nodes[node as usize].packets;
        for (data, last) in packets.writes(bytes) {
            self.send_up(node, packet(last), data, packets.request_bytes(data));
        }
    }

    /// Sends the processor's write to the device.
    pub(super) fn store(&mut self, node: u32, data: u32, message: Option<u32>) {
        let bytes = self.nodes[node as usize].packets.request_bytes(u64::from(data));
        let packet = match message {
            Some(message) => DownPacket::Doorbell { message },
            None => DownPacket::Chunk,
        };
        self.send_down(node, packet, u64::from(data), bytes);
    }

    /// Plans the answers to an arrival: each packet is acknowledged, and used credits are returned.
    fn plan_answers(&mut self, node: u32, up: bool, uses_credits: bool) {
        let now = self.queue.now;
        for update in [false, true] {
            if update && !uses_credits {
                continue;
            }
            let node_state = &mut self.nodes[node as usize];
            let line = if up { &mut node_state.up } else { &mut node_state.down };
            if let Some(at) = line.owe(now, update) {
                self.queue.plan(at, SimEvent::Answer { node, up, update });
            }
        }
    }

    pub(super) fn answer(&mut self, node: u32, up: bool, update: bool) {
        let now = self.queue.now;
        let node = &mut self.nodes[node as usize];
        let line = if up { &mut node.up } else { &mut node.down };
        line.answer(now, update);
    }

    pub(super) fn arrive_at_host(&mut self, node: u32, packet: UpPacket) {
        self.plan_answers(node, false, true);
        let now = self.queue.now;
        let times = self.nodes[node as usize].times;
        match packet {
            UpPacket::Request { job, bytes } => {
                self.queue.plan(now + times.read, SimEvent::Memory { node, job, bytes });
            }
            UpPacket::Payload { message, end, last } => {
                if let Some(bytes) = end {
                    self.free_buffer(node, u64::from(bytes));
                }
                if last {
                    self.queue.plan(now + times.write, SimEvent::Visible { message });
                }
            }
            UpPacket::Entry { message } => {
                self.queue.plan(now + times.write, SimEvent::Visible { message });
            }
            UpPacket::SendEntry => (),
            UpPacket::Stream { stream, end } => {
                if end {
                    self.finish_half(stream as usize);
                }
            }
        }
    }

    pub(super) fn arrive_at_adapter(&mut self, node: u32, packet: DownPacket) {
        // Completions use no credits: the requester has reserved room for the answer.
        let is_completion = matches!(packet, DownPacket::Completion { .. });
        self.plan_answers(node, true, !is_completion);
        match packet {
            DownPacket::Chunk => (),
            DownPacket::Doorbell { message } => self.take_doorbell(node, message),
            DownPacket::Completion { job, bytes, end } => {
                let missing = &mut self.jobs[job as usize].missing;
                *missing -= u64::from(bytes);
                let done = *missing == 0;
                if end {
                    self.nodes[node as usize].reads_free += 1;
                }
                if done {
                    let kind = self.jobs[job as usize].kind;
                    self.free_jobs.push(job);
                    self.finish_read(kind);
                }
                self.ask_memory(node);
            }
        }
    }

    pub(super) fn complete_read(&mut self, node: u32, job: u32, bytes: u32) {
        let packets = self.nodes[node as usize].packets;
        for (data, end) in packets.completions(u64::from(bytes)) {
            let packet = DownPacket::Completion { job, bytes: data as u32, end };
            self.send_down(node, packet, data, packets.completion_bytes(data));
        }
    }

    pub(super) fn read_memory(&mut self, node: u32, bytes: u64, kind: JobKind) {
        let job = AdapterJob { kind, unrequested: bytes, missing: bytes };
        let id = match self.free_jobs.pop() {
            Some(id) => {
                self.jobs[id as usize] = job;
                id
            }
            None => {
                self.jobs.push(job);
                (self.jobs.len() - 1) as u32
            }
        };
        self.nodes[node as usize].reads.push_back(id);
        self.ask_memory(node);
    }

    /// Sends requests while the adapter may have more outstanding reads.
    fn ask_memory(&mut self, node: u32) {
        loop {
            let state = &mut self.nodes[node as usize];
            let Some(&job) = state.reads.front() else {
                return;
            };
            if state.reads_free == 0 {
                return;
            }
            let packets = state.packets;
            let work = &mut self.jobs[job as usize];
            let Some((bytes, last)) = packets.requests(work.unrequested).next() else {
                return;
            };
            work.unrequested -= bytes;
            state.reads_free -= 1;
            if last {
                state.reads.pop_front();
            }
            let packet = UpPacket::Request { job, bytes: bytes as u32 };
            self.send_up(node, packet, 0, packets.request_bytes(0));
        }
    }

    fn finish_read(&mut self, kind: JobKind) {
        match kind {
            JobKind::Descriptor { message } => self.take_descriptor(message),
            JobKind::Payload { message, place } => self.prepare_packet(message, place),
            JobKind::Receives { flow, count } => self.take_receives(flow as usize, count),
            JobKind::Stream { stream } => self.finish_half(stream as usize),
        }
    }

    pub(super) fn issue_pair(&mut self, stream: usize) {
        let state = &mut self.streams[stream];
        if state.left == 0 {
            return;
        }
        state.left -= 1;
        let (node, write, read) = (state.node, state.write, state.read);
        let stream = stream as u32;
        self.write_memory(node, write, |end| UpPacket::Stream { stream, end });
        if read > 0 {
            self.read_memory(node, read, JobKind::Stream { stream });
        }
    }

    fn finish_half(&mut self, stream: usize) {
        let now = self.queue.now;
        let state = &mut self.streams[stream];
        state.halves += 1;
        let both = if state.write > 0 && state.read > 0 { 2 } else { 1 };
        if state.halves.is_multiple_of(both) {
            state.completed += 1;
            state.first.get_or_insert(now);
            state.last = now;
            self.issue_pair(stream);
        }
    }
}
