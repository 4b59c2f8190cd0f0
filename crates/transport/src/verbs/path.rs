//! Ports, their addresses, and the path between two ports.
//!
//! A process publishes the address of its port ([`PortAddress`]). Each end of a pair compares its own port with the
//! address of the other's. Both ends choose the same kind of address and the smaller MTU. No setting is needed.

use super::abi::{self, AhAttr, Gid, GidEntry, GlobalRoute};
use super::device::DeviceContext;
use super::error::VerbsError;
use std::net::Ipv6Addr;

/// Kinds of port addresses, best first. A pair uses the first kind that both ends have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// RoCE version 2 with an IPv4 address.
    RoceV4 = 1,
    /// RoCE version 2 with an IPv6 address that is not link-local.
    RoceV6 = 2,
    /// RoCE version 2 with a link-local address.
    RoceLink = 3,
    /// RoCE version 1: Ethernet frames with their own type, not routed.
    RoceV1 = 4,
    /// InfiniBand.
    Infiniband = 5,
}

impl Family {
    fn from_wire(byte: u8) -> Option<Self> {
        use Family::*;
        [RoceV4, RoceV6, RoceLink, RoceV1, Infiniband]
            .into_iter()
            .find(|family| *family as u8 == byte)
    }

    /// Kind of the address in a row of the GID table. `ethernet`: whether the port's link layer is Ethernet.
    pub fn of(entry: &GidEntry, ethernet: bool) -> Self {
        let address = Ipv6Addr::from(entry.gid.raw);
        match entry.gid_type {
            _ if !ethernet => Family::Infiniband,
            abi::GID_TYPE_ROCE_V2 if address.to_ipv4_mapped().is_some() => Family::RoceV4,
            abi::GID_TYPE_ROCE_V2 if address.is_unicast_link_local() => Family::RoceLink,
            abi::GID_TYPE_ROCE_V2 => Family::RoceV6,
            _ => Family::RoceV1,
        }
    }
}

impl std::fmt::Debug for Gid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.raw))
    }
}

const KINDS: usize = 2;
/// Bytes of a [`PortAddress`] on the wire.
pub const PORT_ADDRESS_BYTES: usize = 3 + KINDS * 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownGid {
    family: Family,
    gid: Gid,
    index: u8,
}

/// Port of this process's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPort {
    number: u8,
    lid: u16,
    mtu: u8,
    known: Vec<KnownGid>,
}

impl LocalPort {
    /// Chooses the port `wanted` of a device, or else its first active one.
    ///
    /// # Errors
    /// No such port, no active port, or the port has no address.
    pub fn choose(context: &DeviceContext, wanted: Option<u8>) -> Result<Self, VerbsError> {
        let mut seen = Vec::new();
        let candidates = match wanted {
            Some(port) if !(1..=context.ports()).contains(&port) => {
                let (device, last) = (context.name(), context.ports());
                let why = format!("{device} has no port {port}: its ports are 1 to {last}");
                return Err(VerbsError::Value(why));
            }
            Some(port) => port..=port,
            None => 1..=context.ports(),
        };
        for number in candidates {
            let attributes = context.query_port(number)?;
            if attributes.state != abi::PORT_ACTIVE {
                seen.push(format!("port {number} {}", state_name(attributes.state)));
                continue;
            }
            let ethernet = attributes.link_layer == abi::LINK_LAYER_ETHERNET;
            let known = rank_gids(&context.gid_table(number)?, ethernet);
            if known.is_empty() && (ethernet || attributes.lid == 0) {
                let device = context.name().to_owned();
                return Err(VerbsError::NoGid { device, port: number });
            }
            return Ok(LocalPort {
                number,
                lid: attributes.lid,
                mtu: attributes.active_mtu.clamp(abi::MTU_256, abi::MTU_4096) as u8,
                known,
            });
        }
        Err(VerbsError::NoPort { device: context.name().to_owned(), ports: seen.join(", ") })
    }

    /// Number of the port on its device, from 1.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Whether the device reports the port as active.
    pub fn is_active(&self, context: &DeviceContext) -> bool {
        let asked = context.query_port(self.number());
        asked.is_ok_and(|port| port.state == abi::PORT_ACTIVE)
    }

    /// Largest payload of one packet, in bytes.
    pub fn mtu_bytes(&self) -> usize {
        mtu_bytes(self.mtu)
    }

    /// Local identifier within an InfiniBand subnet; 0 on Ethernet.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    /// GID of this port that a path uses, with its row in the GID table. `None` if the port has no GID in that row.
    pub fn gid_to(&self, path: &Path) -> Option<(u8, Gid)> {
        let index = path.route.grh.sgid_index;
        let known = self.known.iter().find(|known| known.index == index);
        known.map(|known| (index, known.gid))
    }

    /// Address for peers.
    pub fn address(&self) -> PortAddress {
        let mut gids = [None; KINDS];
        for (slot, known) in gids.iter_mut().zip(&self.known) {
            *slot = Some((known.family, known.gid));
        }
        PortAddress { lid: self.lid, mtu: self.mtu, gids }
    }

    /// Path to a peer's port.
    ///
    /// # Errors
    /// The ports have no common kind of address; the text lists the addresses of both ports.
    pub fn path_to(&self, peer: &PortAddress) -> Result<Path, VerbsError> {
        let theirs =
            |family| peer.gids.iter().flatten().find(|(f, _)| *f == family).map(|(_, gid)| *gid);
        let shared =
            self.known.iter().take(KINDS).find_map(|own| theirs(own.family).map(|gid| (own, gid)));
        let (grh, is_global) = match shared {
            Some((own, gid)) => {
                let route = GlobalRoute {
                    dgid: gid,
                    sgid_index: own.index,
                    hop_limit: 64,
                    ..GlobalRoute::default()
                };
                // Within an InfiniBand subnet the LID suffices; packets without a global route are shorter.
                let local = own.family == Family::Infiniband && own.gid.raw[..8] == gid.raw[..8];
                (route, !local as u8)
            }
            None if self.lid != 0 && peer.lid != 0 => (GlobalRoute::default(), 0),
            None => {
                let own: Vec<_> = self.known.iter().map(|known| known.gid).collect();
                let other: Vec<_> = peer.gids.iter().flatten().map(|(_, gid)| *gid).collect();
                return Err(VerbsError::Value(format!(
                    "the peer's port cannot be reached: the peer's addresses {other:?} and this \
                     port's addresses {own:?} are of different kinds"
                )));
            }
        };
        Ok(Path {
            route: AhAttr {
                grh,
                dlid: peer.lid,
                is_global,
                port_num: self.number,
                ..AhAttr::default()
            },
            mtu: self.mtu.min(peer.mtu),
        })
    }
}

/// Address of a peer's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAddress {
    lid: u16,
    mtu: u8,
    gids: [Option<(Family, Gid)>; KINDS],
}

impl PortAddress {
    /// Encodes the address.
    pub fn encode(&self) -> [u8; PORT_ADDRESS_BYTES] {
        let mut bytes = [0; PORT_ADDRESS_BYTES];
        bytes[..2].copy_from_slice(&self.lid.to_le_bytes());
        bytes[2] = self.mtu;
        for (to, gid) in bytes[3..].chunks_mut(17).zip(self.gids) {
            if let Some((family, gid)) = gid {
                to[0] = family as u8;
                to[1..].copy_from_slice(&gid.raw);
            }
        }
        bytes
    }

    /// Decodes a peer's address; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PORT_ADDRESS_BYTES] = bytes.try_into().ok()?;
        let mut gids = [None; KINDS];
        for (gid, from) in gids.iter_mut().zip(bytes[3..].chunks(17)) {
            if from[0] != 0 {
                let raw = from[1..].try_into().ok()?;
                *gid = Some((Family::from_wire(from[0])?, Gid { raw }));
            }
        }
        let mtu = bytes[2];
        let right = (abi::MTU_256..=abi::MTU_4096).contains(&(mtu as i32));
        right.then_some(PortAddress { lid: u16::from_le_bytes([bytes[0], bytes[1]]), mtu, gids })
    }
}

/// Path from a local port to a peer's.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// Route in the device's format.
    pub route: AhAttr,
    mtu: u8,
}

impl Path {
    /// Largest payload of a packet on the path, in bytes.
    pub fn mtu_bytes(&self) -> usize {
        mtu_bytes(self.mtu)
    }

    /// Limits packets to `bytes` bytes of payload, 256 or more, rounded down to a power of two.
    pub fn with_mtu(self, bytes: usize) -> Path {
        let code = (bytes.max(256).ilog2() - 7).min(self.mtu.into());
        Path { mtu: code as u8, ..self }
    }

    pub(super) fn mtu_code(&self) -> i32 {
        self.mtu as i32
    }
}

fn mtu_bytes(code: u8) -> usize {
    128 << code
}

fn rank_gids(table: &[GidEntry], ethernet: bool) -> Vec<KnownGid> {
    let mut known: Vec<KnownGid> = Vec::new();
    for entry in table {
        let family = Family::of(entry, ethernet);
        if let (Ok(index), false) =
            (u8::try_from(entry.gid_index), known.iter().any(|k| k.family == family))
        {
            known.push(KnownGid { family, gid: entry.gid, index });
        }
    }
    known.sort_by_key(|known| known.family);
    known
}

/// Name of a port state.
pub fn state_name(state: i32) -> &'static str {
    match state {
        1 => "down",
        2 => "initialising",
        3 => "armed",
        4 => "active",
        5 => "active, deferred",
        _ => "in no known state",
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn row(index: u32, gid_type: u32, address: &str) -> GidEntry {
        let raw = address.parse::<Ipv6Addr>().unwrap().octets();
        GidEntry { gid: Gid { raw }, gid_index: index, port_num: 1, gid_type, ndev_ifindex: 0 }
    }

    fn port(mtu: i32, lid: u16, ethernet: bool, table: &[GidEntry]) -> LocalPort {
        LocalPort { number: 1, lid, mtu: mtu as u8, known: rank_gids(table, ethernet) }
    }

    const V1: u32 = abi::GID_TYPE_ROCE_V1;
    const V2: u32 = abi::GID_TYPE_ROCE_V2;

    #[test]
    fn port__that_the_device_does_not_have_is_named() {
        let context = crate::verbs::fake::open();
        for wanted in [0, 2] {
            let error = LocalPort::choose(&context, Some(wanted)).err().unwrap();
            let why = format!("has no port {wanted}: its ports are 1 to 1");
            assert!(error.to_string().contains(&why), "{error}");
        }
        assert_eq!(LocalPort::choose(&context, Some(1)).unwrap().number(), 1);
    }

    #[test]
    fn gids__version_2_with_an_ipv4_address_is_first() {
        let table = [
            row(0, V1, "fe80::1"),
            row(1, V2, "fe80::1"),
            row(2, V1, "::ffff:10.0.0.1"),
            row(3, V2, "::ffff:10.0.0.1"),
            row(4, V2, "fd00::1"),
        ];
        let known = rank_gids(&table, true);
        let order: Vec<(Family, u8)> = known.iter().map(|k| (k.family, k.index)).collect();
        let expected =
            [(Family::RoceV4, 3), (Family::RoceV6, 4), (Family::RoceLink, 1), (Family::RoceV1, 0)];
        assert_eq!(order, expected);
    }

    #[test]
    fn path__uses_the_kind_that_both_have_and_the_smaller_mtu() {
        let v4 = row(3, V2, "::ffff:10.0.0.1");
        let link = row(1, V2, "fe80::1");
        let far_link = row(0, V2, "fe80::2");
        let a = port(abi::MTU_4096, 0, true, &[link, v4]);
        let b = port(abi::MTU_1024, 0, true, &[far_link]);
        let there = a.path_to(&b.address()).unwrap();
        let back = b.path_to(&a.address()).unwrap();
        assert_eq!((there.mtu_bytes(), back.mtu_bytes()), (1024, 1024));
        assert_eq!(there.route.grh.dgid, far_link.gid);
        assert_eq!(there.route.grh.sgid_index, 1);
        assert_eq!(back.route.grh.dgid, link.gid);
        assert_eq!((there.route.is_global, there.route.port_num), (1, 1));
    }

    #[test]
    fn path__can_be_given_smaller_packets_and_never_larger_ones() {
        let own = port(abi::MTU_1024, 0, true, &[row(3, V2, "::ffff:10.0.0.1")]);
        let path = own.path_to(&own.address()).unwrap();
        let mtu = |bytes| path.with_mtu(bytes).mtu_bytes();
        assert_eq!([1, 256, 300, 512, 1024, 4096].map(mtu), [256, 256, 256, 512, 1024, 1024]);
        assert_eq!(own.gid_to(&path).map(|(index, _)| index), Some(3));
    }

    #[test]
    fn path__without_a_common_kind_names_both_sides() {
        let a = port(5, 0, true, &[row(0, V1, "fe80::1")]);
        let b = port(5, 0, true, &[row(0, V2, "::ffff:10.0.0.2")]);
        let error = a.path_to(&b.address()).unwrap_err().to_string();
        assert!(error.contains("fe80::1") && error.contains("10.0.0.2"), "{error}");
    }

    #[test]
    fn path__within_an_infiniband_subnet_needs_no_global_route() {
        let own = [row(0, 0, "fe80::1")];
        let near = port(5, 4, false, &[row(0, 0, "fe80::2")]).address();
        let far = port(5, 9, false, &[row(0, 0, "fec0::2")]).address();
        let a = port(5, 3, false, &own);
        let path = a.path_to(&near).unwrap().route;
        assert_eq!((path.is_global, path.dlid), (0, 4));
        assert_eq!(a.path_to(&far).unwrap().route.is_global, 1);
    }

    #[test]
    fn address__survives_the_wire() {
        let table = [row(1, V2, "fe80::1"), row(3, V2, "::ffff:10.0.0.1")];
        for port in [port(3, 7, true, &table), port(1, 0xffff, false, &[])] {
            let address = port.address();
            assert_eq!(PortAddress::decode(&address.encode()), Some(address));
        }
    }

    #[test]
    fn fuzz__port_address_is_understood_or_refused() {
        let address = port(3, 7, true, &[row(1, V2, "fe80::1")]).address();
        let own = port(5, 1, true, &[row(0, V2, "fe80::2")]);
        let mut bytes = address.encode();
        for at in 0..bytes.len() {
            for value in [0, 1, 5, 6, 0x7f, 0x80, 0xff] {
                let before = std::mem::replace(&mut bytes[at], value);
                if let Some(address) = PortAddress::decode(&bytes) {
                    let _ = own.path_to(&address);
                    assert_eq!(address.encode().len(), bytes.len());
                }
                bytes[at] = before;
            }
        }
        assert_eq!(PortAddress::decode(&bytes[1..]), None);
        assert_eq!(PortAddress::decode(&[]), None);
    }
}
