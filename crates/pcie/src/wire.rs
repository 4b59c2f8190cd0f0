//! Network links: rates, and packet overhead by transport.
//!
//! Sources: InfiniBand Architecture Specification, volume 1 (packet formats); its annex on RoCEv2; IEEE 802.3 for the
//! bytes around an Ethernet frame.

use std::fmt;
use std::str::FromStr;

use crate::link::LinkError;
use crate::units::{Bytes, GbPerS, Rate};

/// Transport service of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram: one packet per message.
    Ud,
}

/// Operation of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Sent to a receive buffer.
    Send,
    /// Written to an address.
    Write,
}

/// Network technology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Ethernet, with a global route header in the frame.
    RoceV1,
    /// RDMA over UDP over IPv4.
    RoceV2,
}

/// A network link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// Network technology.
    pub fabric: Fabric,
    /// Data rate after the encoding.
    pub rate: Rate,
    /// Signalling rate.
    pub signalling: Rate,
    /// Largest payload of a packet, in bytes.
    pub mtu: u32,
    /// Name: `QDR 4x`, `RoCEv2 100GbE`.
    pub name: &'static str,
}

/// Name, signalling rate of a lane in Gb/s, share left by the encoding.
const SPEEDS: [(&str, f64, f64); 9] = [
    ("SDR", 2.5, 8.0 / 10.0),
    ("DDR", 5.0, 8.0 / 10.0),
    ("QDR", 10.0, 8.0 / 10.0),
    ("FDR10", 10.3125, 64.0 / 66.0),
    ("FDR", 14.0625, 64.0 / 66.0),
    ("EDR", 25.78125, 64.0 / 66.0),
    ("HDR", 53.125, 50.0 / 53.125),
    ("NDR", 106.25, 100.0 / 106.25),
    ("XDR", 212.5, 200.0 / 212.5),
];

/// Bytes around an InfiniBand payload: local route header, base transport header, both checksums, both delimiters.
const INFINIBAND_FRAME: u32 = 8 + 12 + 4 + 2 + 2;
/// Bytes around a RoCEv1 payload: preamble, Ethernet, global route and base transport headers, both checksums, gap.
const ROCE_V1_FRAME: u32 = 8 + 14 + 40 + 12 + 4 + 4 + 12;
/// Bytes around a RoCEv2 payload: preamble, Ethernet, IPv4, UDP and base transport headers, both checksums, gap.
const ROCE_V2_FRAME: u32 = 8 + 14 + 20 + 8 + 12 + 4 + 4 + 12;

const EXPECTED: &str = "an InfiniBand link such as QDR, FDRx4, EDR4x, or RoCE with its rate, such \
    as roce100 or rocev1-40";

impl Wire {
    /// Creates an InfiniBand link of a speed (`QDR`) and 1, 2, 4, 8 or 12 lanes, with packets of 4096 bytes.
    pub fn infiniband(speed: &str, lanes: u32) -> Result<Wire, LinkError> {
        let known = SPEEDS.iter().find(|s| s.0.eq_ignore_ascii_case(speed));
        let known = known.filter(|_| matches!(lanes, 1 | 2 | 4 | 8 | 12));
        let Some(&(name, signalling, encoding)) = known else {
            return Err(refuse(format!("{speed} x{lanes}")));
        };
        let signalling: Rate = GbPerS(signalling * f64::from(lanes)).into();
        Ok(Wire {
            fabric: Fabric::InfiniBand,
            rate: signalling * encoding,
            signalling,
            mtu: 4096,
            name,
        })
    }

    /// Creates RoCE on an Ethernet of `gb_per_s` Gb/s, with packets of 4096 bytes.
    pub fn roce(fabric: Fabric, gb_per_s: u32) -> Result<Wire, LinkError> {
        let encoding = match gb_per_s {
            1 => 8.0 / 10.0,
            10 | 25 | 40 | 50 | 100 | 200 | 400 | 800 => 64.0 / 66.0,
            _ => return Err(refuse(format!("Ethernet of {gb_per_s} Gb/s"))),
        };
        let rate: Rate = GbPerS(f64::from(gb_per_s)).into();
        Ok(Wire {
            fabric,
            rate,
            signalling: rate * (1.0 / encoding),
            mtu: 4096,
            name: match fabric {
                Fabric::RoceV1 => "RoCE",
                _ => "RoCEv2",
            },
        })
    }

    /// Changes the size of packets.
    ///
    /// # Errors
    /// The value is none of 256, 512, 1024, 2048, 4096.
    pub fn with_mtu(mut self, mtu: u64) -> Result<Wire, LinkError> {
        if !matches!(mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(LinkError {
                what: "MTU",
                found: mtu.to_string(),
                expected: "256, 512, 1024, 2048 or 4096 bytes",
            });
        }
        self.mtu = mtu as u32;
        Ok(self)
    }

    /// Bytes around the payload of each packet.
    pub fn packet_overhead(&self, transport: Transport) -> u32 {
        let frame = match self.fabric {
            Fabric::InfiniBand => INFINIBAND_FRAME,
            Fabric::RoceV1 => ROCE_V1_FRAME,
            Fabric::RoceV2 => ROCE_V2_FRAME,
        };
        // A datagram has a header of 8 bytes with its queue pair.
        frame + if transport == Transport::Ud { 8 } else { 0 }
    }

    /// Number of packets of a message; an empty message has one.
    pub fn packets(&self, size: Bytes) -> u64 {
        size.0.div_ceil(u64::from(self.mtu)).max(1)
    }

    /// Bytes on the wire for a message. The first packet of a write has 16 bytes of address.
    pub fn message_bytes(&self, transport: Transport, verb: Verb, size: Bytes) -> f64 {
        let packets = self.packets(size) as f64;
        let address = if verb == Verb::Write { 16.0 } else { 0.0 };
        size.as_f64() + packets * f64::from(self.packet_overhead(transport)) + address
    }

    /// Payload rate in messages of `size` bytes.
    pub fn ceiling(&self, transport: Transport, verb: Verb, size: Bytes) -> Rate {
        self.rate * (size.as_f64() / self.message_bytes(transport, verb, size))
    }
}

fn refuse(found: String) -> LinkError {
    LinkError { what: "wire", found, expected: EXPECTED }
}

impl FromStr for Wire {
    type Err = LinkError;

    /// Parses `QDR` (four lanes), `FDRx1`, `EDR4x`, `roce100`, `rocev2-25`, `rocev1-40`.
    fn from_str(text: &str) -> Result<Wire, LinkError> {
        let lower = text.trim().to_ascii_lowercase();
        let malformed = || refuse(format!("`{}`", text.trim()));
        if let Some(rest) = lower.strip_prefix("roce") {
            let (fabric, rest) = match rest.strip_prefix("v1") {
                Some(rest) => (Fabric::RoceV1, rest),
                None => (Fabric::RoceV2, rest.strip_prefix("v2").unwrap_or(rest)),
            };
            let rate = rest.trim_start_matches('-').parse();
            return Wire::roce(fabric, rate.map_err(|_| malformed())?);
        }
        let split = SPEEDS
            .iter()
            .filter(|s| lower.starts_with(&s.0.to_ascii_lowercase()))
            .max_by_key(|s| s.0.len());
        let (speed, rest) = lower.split_at(split.ok_or_else(malformed)?.0.len());
        let lanes = rest.trim().trim_start_matches('x').trim_end_matches('x');
        match (rest.is_empty(), lanes.parse()) {
            (true, _) => Wire::infiniband(speed, 4),
            (_, Ok(lanes)) => Wire::infiniband(speed, lanes),
            _ => Err(malformed()),
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.1}", self.name, self.rate.gb_per_s())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn qdr__carries_as_much_as_generation_2_x8_before_headers() {
        let wire: Wire = "QDR".parse().unwrap();
        assert_eq!(wire.signalling.gb_per_s().0, 40.0);
        let bus: crate::Link = "2.0x8".parse().unwrap();
        assert!((wire.rate / bus.raw() - 1.0).abs() < 1e-12);
        let ceiling = wire.ceiling(Transport::Rc, Verb::Send, Bytes(65536));
        assert!((ceiling.mb_per_s().0 / 3975.0 - 1.0).abs() < 1e-3, "{ceiling:?}");
        assert!((ceiling.mib_per_s().0 / 3791.0 - 1.0).abs() < 1e-3, "{ceiling:?}");
    }

    #[test]
    fn rates__are_those_of_the_names() {
        for (text, gb) in [
            ("SDR", 8.0),
            ("DDR4x", 16.0),
            ("FDR10", 40.0),
            ("FDR", 54.545),
            ("EDRx4", 100.0),
            ("HDR", 200.0),
            ("NDR", 400.0),
            ("EDRx1", 25.0),
            ("roce25", 25.0),
            ("rocev1-40", 40.0),
        ] {
            let found = text.parse::<Wire>().unwrap().rate.gb_per_s().0;
            assert!((found / gb - 1.0).abs() < 1e-4, "{text}: {found}");
        }
    }

    #[test]
    fn headers__depend_on_fabric_transport_and_verb() {
        let ib: Wire = "QDR".parse().unwrap();
        let bytes = |w: &Wire, t, v| w.message_bytes(t, v, Bytes(2048));
        assert_eq!(bytes(&ib, Transport::Rc, Verb::Send), 2048.0 + 28.0);
        assert_eq!(bytes(&ib, Transport::Ud, Verb::Send), 2048.0 + 36.0);
        assert_eq!(bytes(&ib, Transport::Rc, Verb::Write), 2048.0 + 44.0);
        let small = ib.with_mtu(256).unwrap();
        assert_eq!(bytes(&small, Transport::Rc, Verb::Send), 2048.0 + 8.0 * 28.0);
        let roce: Wire = "roce100".parse().unwrap();
        assert_eq!(bytes(&roce, Transport::Rc, Verb::Send), 2048.0 + 82.0);
        assert_eq!(ib.packets(Bytes(0)), 1);
    }

    #[test]
    fn impossible_wires__are_refused_with_what_was_expected() {
        for text in ["QDRx3", "PDR", "roce", "roce33", "", "FDR4y", "rocev1-"] {
            let error = text.parse::<Wire>().unwrap_err().to_string();
            assert!(error.contains("expected an InfiniBand link"), "{text}: {error}");
        }
        assert!("QDR".parse::<Wire>().unwrap().with_mtu(1500).is_err());
    }
}
