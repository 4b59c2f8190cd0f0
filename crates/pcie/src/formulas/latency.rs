//! One-way time of a message, from the sender's call to the receiver's return, part by part.

use super::message::{DATAGRAM_PREFIX, Message};
use super::traffic::Traffic;
use crate::descriptor::{self, PostMethod};
use crate::link::Link;
use crate::profile::{Adapter, Host};
use crate::units::{Bytes, Time};
use crate::wire::{Transport, Verb, Wire};

/// Two equal hosts with an adapter each, and the network between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path<'a> {
    /// The hosts.
    pub host: &'a Host,
    /// Adapters of the hosts.
    pub adapter: &'a Adapter,
    /// Buses of the adapters.
    pub link: Link,
    /// The network.
    pub wire: Wire,
    /// Latency of cables and switches: from the last bit sent to the last bit received.
    pub hops: Time,
}

/// A part of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyPart {
    /// Name.
    pub name: &'static str,
    /// Duration.
    pub time: Time,
    /// Arithmetic.
    pub how: String,
}

impl<'a> Path<'a> {
    /// Creates the path between two equal hosts, with the adapter's usual bus and network.
    ///
    /// # Errors
    /// The link or wire in the adapter's profile does not exist.
    pub fn new(host: &'a Host, adapter: &'a Adapter) -> Result<Path<'a>, crate::LinkError> {
        Ok(Path {
            host,
            adapter,
            link: adapter.link.parse()?,
            wire: adapter.wire.parse()?,
            hops: Time::from_ns(100.0),
        })
    }

    fn bus_time(&self, bytes: f64) -> Time {
        self.link.raw().time_of(bytes)
    }

    /// Time from the first byte of a read request until the last byte of the answer.
    fn read_time(&self, size: Bytes) -> Time {
        let request = f64::from(self.link.read_request());
        let answer = Traffic::read(&self.link, size).down.bytes();
        self.bus_time(request) + self.host.read + self.bus_time(answer)
    }

    /// Post method of a single message of `size` bytes, requested inline or not.
    pub fn way(&self, transport: Transport, verb: Verb, size: u32, inline: bool) -> PostMethod {
        let adapter = self.adapter;
        descriptor::way(adapter.family, transport, verb, size, inline, adapter.blueflame, 1)
    }

    /// Parts of a message's time. Packets after the first follow at the rate of the slowest stage.
    pub fn parts(&self, message: &Message) -> Vec<LatencyPart> {
        let mut parts = self.sender_parts(message);
        parts.extend(self.network_parts(message));
        parts
    }

    /// Sum of the parts.
    pub fn one_way(&self, message: &Message) -> Time {
        self.parts(message).into_iter().map(|part| part.time).sum()
    }

    /// Busy time of the sender's processor.
    pub fn processor_time(&self, message: &Message) -> Time {
        let mut sum = self.host.post;
        if message.way.is_inline() {
            sum = sum + self.host.copy * message.size.as_f64();
        }
        sum + match message.way.is_blueflame() {
            true => self.host.store * f64::from(self.chunks(message)),
            false => self.host.doorbell,
        }
    }

    fn descriptor_bytes(&self, message: &Message) -> u32 {
        let bytes = message.descriptor(self.adapter);
        bytes.next_multiple_of(descriptor::BLOCK)
    }

    fn chunks(&self, message: &Message) -> u32 {
        self.descriptor_bytes(message) / descriptor::BLOCK
    }

    fn sender_parts(&self, message: &Message) -> Vec<LatencyPart> {
        let host = self.host;
        let mut parts = vec![part("software", host.post, "the call, and the descriptor")];
        let overhead = self.link.write_overhead();
        if message.way.is_inline() {
            let how = format!("{} into the descriptor", message.size);
            parts.push(part("copy", host.copy * message.size.as_f64(), how));
        }
        let descriptor = self.descriptor_bytes(message);
        if message.way.is_blueflame() {
            let chunks = self.chunks(message);
            let last = self.bus_time(f64::from(descriptor::BLOCK + overhead));
            let how = format!("{chunks} * 64 B stored, then {last:.1} on the bus");
            parts.push(part("BlueFlame", host.store * f64::from(chunks) + last, how));
        } else {
            let bus = self.bus_time(f64::from(self.adapter.doorbell + overhead));
            let how = format!("one write, then {bus:.1} on the bus");
            parts.push(part("doorbell", host.doorbell + bus, how));
            let size = Bytes(u64::from(descriptor));
            let how = format!("serial read of {size}, {} away", host.read);
            parts.push(part("descriptor read", self.read_time(size), how));
        }
        if !message.way.is_inline() && message.size.0 > 0 {
            let first = Bytes(message.size.0.min(u64::from(message.mtu)));
            let how = format!("serial read of {first}, {} away", host.read);
            parts.push(part("payload read", self.read_time(first), how));
        }
        parts.push(part("adapter, sending", self.adapter.send, self.adapter.source));
        parts
    }

    fn network_parts(&self, message: &Message) -> Vec<LatencyPart> {
        let (size, mtu) = (message.size, u64::from(message.mtu));
        let first = Bytes(size.0.min(mtu));
        let wire_bytes = self.wire.message_bytes(message.transport, message.verb, first);
        let wire = self.wire.rate.time_of(wire_bytes);
        let how = format!(
            "{wire_bytes:.0} B at {:.1}, then {} of cable and switch",
            self.wire.rate.gb_per_s(),
            self.hops
        );
        let mut parts = vec![part("wire", wire + self.hops, how)];
        if size.0 > mtu {
            let rest = size.0 - mtu;
            let packet = |time: Time| time * (1.0 / mtu as f64);
            let slowest = packet(self.bus_time(Traffic::read(&self.link, Bytes(mtu)).down.bytes()))
                .max(packet(self.wire.rate.time_of(
                    (mtu + u64::from(self.wire.packet_overhead(message.transport))) as f64,
                )))
                .max(packet(self.bus_time(Traffic::write(&self.link, Bytes(mtu)).up.bytes())));
            let how = format!("{} at the rate of the slowest stage", Bytes(rest));
            parts.push(part("further packets", slowest * rest as f64, how));
        }
        parts.push(part("adapter, receiving", self.adapter.receive, self.adapter.source));
        let prefix = if message.transport == Transport::Ud { DATAGRAM_PREFIX } else { 0 };
        let mut up = Traffic::write(&self.link, first + Bytes(prefix)).up.bytes();
        if message.verb == Verb::Send {
            let entry = Bytes(u64::from(self.adapter.completion_entry));
            up += Traffic::write(&self.link, entry).up.bytes();
        }
        let how = format!("{up:.0} B on the bus, then {} into memory", self.host.write);
        parts.push(part("write into memory", self.bus_time(up) + self.host.write, how));
        parts.push(part("poll", self.host.poll, "the receiver sees the payload and returns"));
        parts
    }
}

fn part(name: &'static str, time: Time, how: impl Into<String>) -> LatencyPart {
    LatencyPart { name, time, how: how.into() }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::profile;

    fn path_of_2009() -> Path<'static> {
        let connectx = profile::adapter("connectx").unwrap();
        Path::new(profile::host("2009").unwrap(), connectx).unwrap()
    }

    fn write(path: &Path<'_>, size: u64, inline: bool) -> Message {
        let way = path.way(Transport::Rc, Verb::Write, size as u32, inline);
        Message { way, ..Message::new(Transport::Rc, Verb::Write, Bytes(size)) }
    }

    /// DMA takes 8 ticks of the ACPI timer, inline data 4. Whole ticks may hide up to one tick more.
    #[test]
    fn inline__of_2009_gains_two_reads() {
        let path = path_of_2009();
        let tick = 1e9 / 3_579_545.0;
        for size in [1, 8, 32] {
            let before = path.one_way(&write(&path, size, false)).ns() / tick;
            let after = path.one_way(&write(&path, size, true)).ns() / tick;
            assert_eq!((before.floor(), after.floor()), (8.0, 4.0), "{size}: {before} {after}");
        }
        // 128 bytes: 8 ticks by DMA, 5 inline. 256 bytes no longer fit BlueFlame: 9 ticks by DMA, 8 inline.
        for (size, before, after) in [(128, 8.0, 5.0), (256, 9.0, 8.0)] {
            let found = [false, true].map(|i| path.one_way(&write(&path, size, i)).ns() / tick);
            assert!((found[0] - before).abs() < 1.0, "{size}: {found:?}");
            assert!((found[1] - after).abs() < 1.0, "{size}: {found:?}");
        }
    }

    #[test]
    fn reads__are_counted_by_the_way() {
        let path = path_of_2009();
        let reads = |size, inline| {
            let parts = path.parts(&write(&path, size, inline));
            parts.iter().filter(|p| p.name.ends_with("read")).count() as u32
        };
        assert_eq!((reads(8, true), reads(209, true), reads(8, false)), (0, 1, 2));
    }

    #[test]
    fn cliff__is_one_read_high() {
        let path = path_of_2009();
        let step = path.one_way(&write(&path, 209, true)) - path.one_way(&write(&path, 208, true));
        let read = path.host.read;
        // The step consists of the read, the doorbell and the descriptor's transfer over the bus, less the saved
        // stores.
        assert!((step.ns() - read.ns()).abs() < 250.0, "{step}");
        assert!(step.ns() > 200.0, "{step}");
    }

    #[test]
    fn large__messages_approach_the_slowest_stage() {
        let path = path_of_2009();
        let at = |size| path.one_way(&write(&path, size, false)).ns();
        let per_byte = (at(2 << 20) - at(1 << 20)) / f64::from(1 << 20);
        let bus = 1e9
            / crate::formulas::write_rate(
                &path.link,
                Bytes(1 << 20),
                crate::formulas::DataLink::Ignored,
            )
            .bytes_per_s();
        assert!((per_byte / bus - 1.0).abs() < 1e-3, "{per_byte} {bus}");
    }
}
