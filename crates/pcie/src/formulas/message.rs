//! Load of one message of an adapter on the bus at each side.

use super::traffic::Traffic;
use crate::descriptor::{self, PostMethod};
use crate::link::Link;
use crate::profile::Adapter;
use crate::units::Bytes;
use crate::wire::{Transport, Verb};

/// Bytes before the payload in a datagram receiver's buffer: the global route header.
pub const DATAGRAM_PREFIX: u64 = 40;

/// A message and its post method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message {
    /// Transport.
    pub transport: Transport,
    /// Operation.
    pub verb: Verb,
    /// Payload.
    pub size: Bytes,
    /// Post method.
    pub way: PostMethod,
    /// Every N-th send requests a completion entry (perftest: cq-mod).
    pub signal_every: u32,
    /// Number of receive descriptors that the adapter fetches at once.
    pub receive_batch: u32,
    /// Payload of a network packet, in bytes.
    pub mtu: u32,
}

impl Message {
    /// Creates a message by DMA with every completion signalled and packets of 4096 bytes.
    pub fn new(transport: Transport, verb: Verb, size: Bytes) -> Message {
        Message {
            transport,
            verb,
            size,
            way: PostMethod::Point,
            signal_every: 1,
            receive_batch: 1,
            mtu: 4096,
        }
    }

    pub(super) fn descriptor(&self, adapter: &Adapter) -> u32 {
        let size = self.size.0.min(1 << 30) as u32;
        let inline = self.way.is_inline();
        descriptor::descriptor(adapter.family, self.transport, self.verb, size, inline)
    }
}

/// A named share of a message's traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficPart {
    /// Name.
    pub name: &'static str,
    /// Load on the link.
    pub traffic: Traffic,
}

/// Load of a message on the sender's bus.
pub fn sender(link: &Link, adapter: &Adapter, message: &Message) -> Vec<TrafficPart> {
    let descriptor = u64::from(message.descriptor(adapter));
    let blocks = Bytes(descriptor.next_multiple_of(u64::from(descriptor::BLOCK)));
    let mut parts = Vec::new();
    let mut push = |name, traffic| parts.push(TrafficPart { name, traffic });
    if message.way.is_blueflame() {
        push("descriptor, written", Traffic::store(link, blocks, 64));
    } else {
        let doorbell = Bytes(u64::from(adapter.doorbell));
        push("doorbell", Traffic::store(link, doorbell, 8));
        push("descriptor, read", Traffic::read(link, blocks));
    }
    if !message.way.is_inline() {
        push("payload, read", Traffic::read(link, message.size));
    }
    let entry = Traffic::write(link, Bytes(u64::from(adapter.completion_entry)));
    push("completion entry", entry * (1.0 / f64::from(message.signal_every.max(1))));
    parts
}

/// Load of a message on the receiver's bus.
pub fn receiver(link: &Link, adapter: &Adapter, message: &Message) -> Vec<TrafficPart> {
    let mut parts = Vec::new();
    let mut push = |name, traffic| parts.push(TrafficPart { name, traffic });
    let entry = Bytes(u64::from(adapter.completion_entry));
    let size = message.size.0;
    match message.transport {
        Transport::Ud => {
            push("payload, written", Traffic::write(link, Bytes(size + DATAGRAM_PREFIX)));
        }
        _ => {
            let mtu = u64::from(message.mtu.max(1));
            let whole = Traffic::write(link, Bytes(mtu)) * (size / mtu) as f64;
            push("payload, written", whole + Traffic::write(link, Bytes(size % mtu)));
        }
    }
    if message.verb == Verb::Send {
        let batch = message.receive_batch.max(1);
        let fetch = Bytes(u64::from(adapter.receive_descriptor) * u64::from(batch));
        let fetch = Traffic::read(link, fetch) * (1.0 / f64::from(batch));
        push("receive descriptor, read", fetch);
        push("completion entry", Traffic::write(link, entry));
    }
    parts
}

/// Sums all parts.
pub fn sum(parts: &[TrafficPart]) -> Traffic {
    parts.iter().fold(Traffic::default(), |sum, part| sum + part.traffic)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::formulas::{DataLink, throughput};
    use crate::profile;

    fn bytes(parts: &[TrafficPart], name: &str) -> (f64, f64) {
        let part = parts.iter().find(|p| p.name == name).unwrap();
        (part.traffic.up.bytes(), part.traffic.down.bytes())
    }

    #[test]
    fn large__sends_cost_their_headers_and_little_else() {
        let link: Link = "2.0x8".parse().unwrap();
        let adapter = profile::adapter("connectx").unwrap();
        let message =
            Message { signal_every: 100, ..Message::new(Transport::Rc, Verb::Send, Bytes(65536)) };
        let parts = receiver(&link, adapter, &message);
        assert_eq!(bytes(&parts, "payload, written"), (65536.0 + 256.0 * 24.0, 0.0));
        assert_eq!(bytes(&parts, "receive descriptor, read"), (24.0, 36.0));
        assert_eq!(bytes(&parts, "completion entry"), (56.0, 0.0));
        let all = throughput(&link, &sum(&parts), DataLink::Ignored).per_s;
        let bare = throughput(&link, &Traffic::write(&link, Bytes(65536)), DataLink::Ignored).per_s;
        let lost = 1.0 - all / bare;
        assert!((0.0005..0.0015).contains(&lost), "{lost}");
        let parts = sender(&link, adapter, &message);
        // A descriptor of 32 bytes is read as a block of 64.
        assert_eq!(bytes(&parts, "descriptor, read"), (24.0, 84.0));
        assert_eq!(bytes(&parts, "doorbell"), (0.0, 28.0));
    }

    #[test]
    fn inline__moves_the_payload_from_reads_to_writes() {
        let link: Link = "2.0x8".parse().unwrap();
        let adapter = profile::adapter("connectx").unwrap();
        let message = Message {
            way: PostMethod::InlineBlueFlame,
            ..Message::new(Transport::Rc, Verb::Write, Bytes(208))
        };
        let parts = sender(&link, adapter, &message);
        assert_eq!(bytes(&parts, "descriptor, written"), (0.0, 256.0 + 4.0 * 24.0));
        assert_eq!(parts.len(), 2, "{parts:?}");
        assert_eq!(receiver(&link, adapter, &message).len(), 1);
    }

    #[test]
    fn datagrams__bring_forty_bytes_more() {
        let link: Link = "2.0x8".parse().unwrap();
        let adapter = profile::adapter("connectx").unwrap();
        let message = Message::new(Transport::Ud, Verb::Send, Bytes(216));
        let parts = receiver(&link, adapter, &message);
        assert_eq!(bytes(&parts, "payload, written"), (256.0 + 24.0, 0.0));
        let one_more = Message::new(Transport::Ud, Verb::Send, Bytes(217));
        let parts = receiver(&link, adapter, &one_more);
        assert_eq!(bytes(&parts, "payload, written"), (257.0 + 48.0, 0.0));
    }
}
