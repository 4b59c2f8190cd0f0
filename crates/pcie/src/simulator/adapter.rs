//! Adapters and processes: the path of a message from post to receiver.

use super::events::{PacketPlace, SimEvent, UpPacket};
use super::node::{JobKind, MessageState, WaitingPacket};
use super::packets::Pieces;
use super::{Delivery, Simulator, time};
use crate::descriptor;
use crate::units::Bytes;
use crate::wire::{Transport, Verb};

/// Bytes before a datagram's payload in the receiver's memory: the global route header.
const ROUTE_HEADER: u64 = 40;

impl Simulator {
    pub(super) fn post_at(&mut self, flow: usize, size: Bytes, token: u64, at: u64) -> u32 {
        let id = self.add_message(flow, size.0, token, at);
        self.flows[flow].order.push_back(id);
        let message = self.messages[id as usize];
        let node_id = self.flows[flow].spec.from;
        let node = &mut self.nodes[node_id];
        let times = node.times;
        let mut clock = at.max(node.processor) + times.post;
        if message.way.is_inline() {
            clock += super::fs(times.copy * size.as_f64());
        }
        let node_id = node_id as u32;
        if message.way.is_blueflame() {
            for (bytes, last) in Pieces::new(u64::from(message.descriptor), 64) {
                clock += times.store;
                let (bytes, message) = (bytes as u32, last.then_some(id));
                self.queue.plan(clock, SimEvent::Store { node: node_id, bytes, message });
            }
        } else {
            clock += times.doorbell;
            let (bytes, message) = (node.adapter.doorbell, Some(id));
            self.queue.plan(clock, SimEvent::Store { node: node_id, bytes, message });
        }
        self.nodes[node_id as usize].processor = clock;
        id
    }

    fn add_message(&mut self, flow: usize, size: u64, token: u64, at: u64) -> u32 {
        let state = &mut self.flows[flow];
        let spec = state.spec;
        state.counts.posted += 1;
        let every = u64::from(spec.signal_every.max(1));
        let signalled = state.counts.posted.is_multiple_of(every);
        let node = &self.nodes[spec.from];
        let inline = state.is_inline(size);
        let bytes = size.min(1 << 30) as u32;
        let (transport, verb) = (spec.transport, spec.verb);
        let way = descriptor::way(
            node.adapter.family,
            transport,
            verb,
            bytes,
            inline,
            node.adapter.blueflame,
            1,
        );
        let descriptor =
            descriptor::descriptor(node.adapter.family, transport, verb, bytes, inline);
        let message = MessageState {
            flow: flow as u32,
            size,
            token,
            posted: at,
            way,
            descriptor: descriptor.next_multiple_of(descriptor::BLOCK),
            signalled,
            told: true,
            holders: 2,
        };
        match self.free_messages.pop() {
            Some(id) => {
                self.messages[id as usize] = message;
                id
            }
            None => {
                self.messages.push(message);
                (self.messages.len() - 1) as u32
            }
        }
    }

    fn release_message(&mut self, message: u32) {
        let holders = &mut self.messages[message as usize].holders;
        *holders -= 1;
        if *holders == 0 {
            self.free_messages.push(message);
        }
    }

    pub(super) fn post_next(&mut self, flow: usize) {
        let state = &mut self.flows[flow];
        let (size, left) = &mut state.load;
        if *left > 0 {
            *left -= 1;
            let (size, at) = (*size, self.queue.now.max(state.next_post));
            state.next_post = at + super::fs(state.spec.pace);
            let id = self.post_at(flow, size, 0, at);
            self.messages[id as usize].told = false;
        }
    }

    fn spec_of(&self, message: u32) -> (usize, super::FlowSpec) {
        let flow = self.messages[message as usize].flow as usize;
        (flow, self.flows[flow].spec)
    }

    pub(super) fn take_doorbell(&mut self, node: u32, message: u32) {
        let state = self.messages[message as usize];
        match state.way.is_blueflame() {
            true => self.take_descriptor(message),
            false => {
                let kind = JobKind::Descriptor { message };
                self.read_memory(node, u64::from(state.descriptor), kind);
            }
        }
    }

    /// Handles an available descriptor: sends its inline data, or reads the data that it points at.
    pub(super) fn take_descriptor(&mut self, message: u32) {
        let state = self.messages[message as usize];
        let (_, spec) = self.spec_of(message);
        let whole = PacketPlace { first: true, last: true };
        if state.way.is_inline() || state.size == 0 {
            return self.launch_later(message, state.size as u32, whole);
        }
        let mut first = true;
        for (bytes, last) in Pieces::new(state.size, u64::from(spec.mtu)) {
            let place = PacketPlace { first, last };
            first = false;
            self.read_memory(spec.from as u32, bytes, JobKind::Payload { message, place });
        }
    }

    /// Handles a packet whose payload has been read.
    pub(super) fn prepare_packet(&mut self, message: u32, place: PacketPlace) {
        let (_, spec) = self.spec_of(message);
        let (size, mtu) = (self.messages[message as usize].size, u64::from(spec.mtu));
        let bytes = match place.last && size % mtu != 0 {
            true => size % mtu,
            false => mtu.min(size),
        };
        self.launch_later(message, bytes as u32, place);
    }

    fn launch_later(&mut self, message: u32, bytes: u32, place: PacketPlace) {
        let (_, spec) = self.spec_of(message);
        let at = self.queue.now + self.nodes[spec.from].times.send;
        self.queue.plan(at, SimEvent::Launch { message, bytes, place });
    }

    /// Queues a ready packet. Packets of a queue pair leave in the order of their posts.
    pub(super) fn launch(&mut self, message: u32, bytes: u32, place: PacketPlace) {
        let (flow, spec) = self.spec_of(message);
        self.flows[flow].ready.push_back((message, bytes, place));
        let mut moved = false;
        loop {
            let state = &mut self.flows[flow];
            let next = state.order.front().copied();
            let Some(at) = state.ready.iter().position(|r| Some(r.0) == next) else {
                break;
            };
            let Some((message, bytes, place)) = state.ready.remove(at) else {
                break;
            };
            if place.last {
                state.order.pop_front();
            }
            moved = true;
            self.nodes[spec.from].outbox.push_back(WaitingPacket {
                message,
                bytes,
                place,
                stalled: false,
            });
        }
        if moved && !self.nodes[spec.from].out_planned {
            self.transmit(spec.from as u32);
        }
    }

    fn frame_bytes(&self, message: u32, bytes: u32, place: PacketPlace) -> u64 {
        let (_, spec) = self.spec_of(message);
        let frame = self.nodes[spec.from].frame;
        let around = match spec.transport {
            Transport::Ud => frame.datagram,
            _ => frame.connected,
        };
        // The first packet of a write has the address.
        let address = if spec.verb == Verb::Write && place.first { 16 } else { 0 };
        around + address + u64::from(bytes)
    }

    /// Sends waiting packets, while the line is free and the receiver has room.
    pub(super) fn transmit(&mut self, node: u32) {
        let now = self.queue.now;
        self.nodes[node as usize].out_planned = false;
        while let Some(&WaitingPacket { message, bytes, place, stalled }) =
            self.nodes[node as usize].outbox.front()
        {
            let free_at = self.nodes[node as usize].out.free_at();
            if free_at > now {
                self.nodes[node as usize].out_planned = true;
                return self.queue.plan(free_at, SimEvent::LineFree { node });
            }
            let (flow, spec) = self.spec_of(message);
            let frame = self.frame_bytes(message, bytes, place);
            let to = &mut self.nodes[spec.to];
            if to.buffer_free < frame {
                if !stalled {
                    to.callers.push_back(node);
                    self.flows[flow].counts.stalled += 1;
                    if let Some(front) = self.nodes[node as usize].outbox.front_mut() {
                        front.stalled = true;
                    }
                }
                return;
            }
            to.buffer_free -= frame;
            self.nodes[node as usize].outbox.pop_front();
            let start = now;
            self.nodes[node as usize].out.send(start, frame);
            let to = &mut self.nodes[spec.to];
            let arrival = to.inward.send(start + super::fs(spec.hops), frame);
            let receive = to.times.receive;
            self.packets += 1;
            self.queue.plan(arrival + receive, SimEvent::Received { message, bytes, place });
            if place.last && spec.transport != Transport::Rc {
                self.queue.plan(now, SimEvent::Acknowledged { message });
            }
        }
    }

    pub(super) fn free_buffer(&mut self, node: u32, bytes: u64) {
        self.nodes[node as usize].buffer_free += bytes;
        if let Some(caller) = self.nodes[node as usize].callers.pop_front() {
            if let Some(front) = self.nodes[caller as usize].outbox.front_mut() {
                front.stalled = false;
            }
            if !self.nodes[caller as usize].out_planned {
                self.transmit(caller);
            }
        }
    }

    pub(super) fn receive(&mut self, message: u32, bytes: u32, place: PacketPlace) {
        let (flow, spec) = self.spec_of(message);
        if spec.verb == Verb::Send {
            let state = &mut self.flows[flow];
            let waits = !state.not_ready.is_empty();
            if place.first && state.fetched == 0 || waits {
                let some_come = state.posted + state.fetching > 0;
                if spec.transport == Transport::Rc || some_come {
                    state.counts.not_ready += u64::from(place.first);
                    return state.not_ready.push_back((message, bytes, place));
                }
                state.counts.dropped += 1;
                let frame = self.frame_bytes(message, bytes, place);
                self.free_buffer(spec.to as u32, frame);
                return self.release_message(message);
            }
        }
        self.accept(message, bytes, place);
    }

    fn accept(&mut self, message: u32, bytes: u32, place: PacketPlace) {
        let (flow, spec) = self.spec_of(message);
        let node = spec.to as u32;
        let is_send = spec.verb == Verb::Send;
        if is_send && place.first {
            self.flows[flow].fetched -= 1;
        }
        let frame = self.frame_bytes(message, bytes, place) as u32;
        let prefix = if spec.transport == Transport::Ud { ROUTE_HEADER } else { 0 };
        let data = u64::from(bytes) + prefix;
        self.write_memory(node, data, |end| UpPacket::Payload {
            message,
            end: end.then_some(frame),
            last: end && place.last && !is_send,
        });
        if data == 0 {
            self.free_buffer(node, u64::from(frame));
        }
        if place.last && is_send {
            let entry = u64::from(self.nodes[spec.to].adapter.completion_entry);
            self.write_memory(node, entry, |_| UpPacket::Entry { message });
        } else if place.last && data == 0 {
            self.queue.plan(self.queue.now, SimEvent::Visible { message });
        }
        if is_send && place.first {
            self.fetch_receives(flow);
        }
        if place.last && spec.transport == Transport::Rc {
            let at = self.queue.now + super::fs(spec.hops);
            self.queue.plan(at, SimEvent::Acknowledged { message });
        }
    }

    pub(super) fn acknowledge(&mut self, message: u32) {
        let (flow, spec) = self.spec_of(message);
        if self.messages[message as usize].signalled {
            let entry = u64::from(self.nodes[spec.from].adapter.completion_entry);
            self.write_memory(spec.from as u32, entry, |_| UpPacket::SendEntry);
        }
        self.release_message(message);
        self.post_next(flow);
    }

    pub(super) fn fetch_receives(&mut self, flow: usize) {
        let state = &mut self.flows[flow];
        let batch = state.spec.receive_batch.max(1);
        if state.posted > 0 && state.fetched + state.fetching < batch {
            let count = state.posted.min(batch);
            state.posted -= count;
            state.fetching += count;
            let node = state.spec.to;
            let bytes = u64::from(self.nodes[node].adapter.receive_descriptor) * u64::from(count);
            let kind = JobKind::Receives { flow: flow as u32, count };
            self.read_memory(node as u32, bytes, kind);
        }
    }

    pub(super) fn take_receives(&mut self, flow: usize, count: u32) {
        let state = &mut self.flows[flow];
        state.fetching -= count;
        state.fetched += count;
        self.serve_waiting(flow);
        self.fetch_receives(flow);
    }

    fn serve_waiting(&mut self, flow: usize) {
        while let Some(&(message, bytes, place)) = self.flows[flow].not_ready.front() {
            if place.first && self.flows[flow].fetched == 0 {
                return;
            }
            self.flows[flow].not_ready.pop_front();
            self.accept(message, bytes, place);
        }
    }

    pub(super) fn take_up(&mut self, message: u32) {
        let (_, spec) = self.spec_of(message);
        let node = &mut self.nodes[spec.to];
        let start = self.queue.now.max(node.processes[spec.process]);
        let waited = time(start - self.queue.now);
        let cold = spec.cold.filter(|cold| waited > cold.after);
        let work = cold.map_or(spec.work, |cold| cold.work);
        let end = start + node.times.poll + super::fs(work);
        node.processes[spec.process] = end;
        self.queue.plan(end, SimEvent::Done { message });
    }

    pub(super) fn finish(&mut self, message: u32) {
        let now = self.queue.now;
        let state = self.messages[message as usize];
        let (flow, spec) = self.spec_of(message);
        let entry = &mut self.flows[flow];
        entry.counts.delivered += 1;
        entry.counts.bytes += state.size;
        entry.first_delivery.get_or_insert((now, entry.counts.bytes));
        entry.last_delivery = now;
        if state.told {
            self.deliveries.push_back(Delivery {
                flow,
                token: state.token,
                size: Bytes(state.size),
                posted: time(state.posted),
                delivered: time(now),
            });
        }
        if spec.verb == Verb::Send {
            self.flows[flow].posted += 1;
            self.fetch_receives(flow);
        }
        self.release_message(message);
    }
}
