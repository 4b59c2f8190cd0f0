//! What the bare loops run on: an adapter's port, queues, memory, and the same of the other rank.
#![allow(unsafe_code)]

use std::sync::Arc;

use fastpath_base::clock;
use fastpath_base::config::{Config, Key};
use fastpath_transport::verbs::inline::{Source, requested};
use fastpath_transport::verbs::path::PORT_ADDRESS_BYTES;
use fastpath_transport::verbs::{
    Access, AddressHandle, Buffer, CompletionQueue, DeviceContext, LocalPort, Operation,
    PairSettings, Path, Peer, PortAddress, ProtectionDomain, QueuePair, RetryConfig, Service, Sge,
    VerbsError, open_device,
};

use super::super::board::SharedBoard;
use crate::bench::verbs::{Connection, VerbsOptions};

/// Sends under way where nothing else is asked for: of messages, of puts and gets.
pub const DEPTHS: [u32; 2] = [128, 256];
/// Receive buffers that are posted where nothing else is asked for.
const RX_DEPTH: u32 = 512;
/// Reads under way at most; a device may allow fewer.
const READS: u8 = 16;
/// Before the payload of a datagram.
const GRH: usize = 40;
/// The key of our datagrams. It is no secret: it travels as openly as the queue pair's number.
const QKEY: u32 = 0x1fa5_7a7b;

/// The other end.
#[derive(Clone, Copy, Debug)]
pub struct There {
    /// Its queue pair.
    pub qpn: u32,
    /// The number with which its packets begin.
    pub psn: u32,
    /// The key of its memory.
    pub rkey: u32,
    /// Where what is sent or written to it lands.
    pub address: u64,
    /// Its port.
    pub port: PortAddress,
}

/// Two connected queue pairs, one of them here. The fields are dropped in their order.
pub struct Wire {
    /// The queue pair.
    pub pair: QueuePair,
    handle: Option<AddressHandle>,
    /// Where sends complete.
    pub send_cq: Arc<CompletionQueue>,
    /// Where receives complete.
    pub recv_cq: Arc<CompletionQueue>,
    buffer: Buffer,
    /// Bytes of a message at most.
    pub room: usize,
    /// Receive buffers that may be posted.
    pub rx_depth: u32,
    /// The other end.
    pub there: There,
    /// Its kind.
    pub connection: Connection,
    /// The way to it.
    pub path: Path,
    /// The number with which our packets begin.
    pub psn: u32,
    /// The port.
    pub port: LocalPort,
    /// The device.
    pub context: Arc<DeviceContext>,
    /// Inline data that was asked for, and who said so.
    pub asked: (u32, Source),
}

/// The bytes that two ranks tell each other.
const CARD: usize = 64;

impl There {
    fn encode(&self) -> [u8; CARD] {
        let mut card = [0; CARD];
        let port = self.port.encode();
        let numbers = [self.qpn, self.psn, self.rkey].map(u32::to_le_bytes);
        let parts = [&port[..], &numbers.concat(), &self.address.to_le_bytes()].concat();
        card[..parts.len()].copy_from_slice(&parts);
        card
    }

    fn decode(card: &[u8; CARD]) -> Option<There> {
        let (port, rest) = card.split_at(PORT_ADDRESS_BYTES);
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?))
        };
        let address = rest.get(12..20)?.try_into().ok()?;
        Some(There {
            qpn: word(0)?,
            psn: word(4)?,
            rkey: word(8)?,
            address: u64::from_le_bytes(address),
            port: PortAddress::decode(port)?,
        })
    }
}

impl Wire {
    /// Opens the adapter that the configuration names, and connects it with the other rank's. Called by both.
    ///
    /// # Errors
    /// There is no adapter, or it refuses something.
    pub fn open(
        config: &Config, options: &VerbsOptions, room: usize, board: &SharedBoard, leads: bool,
    ) -> Result<Wire, VerbsError> {
        let (context, port) = open_device(config.device(), |context, port| {
            let port = LocalPort::choose(context, port)?;
            Ok((context.clone(), port))
        })?;
        let domain = ProtectionDomain::new(&context)?;
        let connection = options.connection.unwrap_or(Connection::Rc);
        let tx_depth = options.tx_depth.unwrap_or(DEPTHS[1]);
        let rx_depth = options.rx_depth.unwrap_or(RX_DEPTH);
        let send_cq = CompletionQueue::new(&context, tx_depth, None)?;
        let recv_cq = CompletionQueue::new(&context, rx_depth, None)?;
        let set = config.number(Key::MaxInline).map(|bytes| bytes as u32);
        let asked = requested(options.inline, set, None);
        let settings = PairSettings {
            service: match connection {
                Connection::Rc => Service::Reliable,
                Connection::Ud => Service::Datagram,
            },
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            shared: None,
            send_depth: tx_depth,
            recv_depth: rx_depth,
            send_segments: 1,
            inline: asked.0,
            port: port.number(),
            qkey: QKEY,
        };
        let pair = QueuePair::new(&domain, &settings)?;
        let room = room.max(64).next_multiple_of(4096);
        let buffer = Buffer::new(&domain, 2 * room + 4096, Access::Remote)?;
        let psn = (clock::now_ns() as u32 ^ pair.qpn().wrapping_mul(0x9e37_79b9)) & 0xff_ffff;
        let own = There {
            qpn: pair.qpn(),
            psn,
            rkey: buffer.region().rkey(),
            address: buffer.address().expose_provenance() as u64 + landing_of(room) as u64,
            port: port.address(),
        };
        let card = board.exchange_bytes(leads, &own.encode());
        let refused = || VerbsError::Value("the other rank sent no address".to_owned());
        let there = There::decode(&card).ok_or_else(refused)?;
        let mut path = port.path_to(&there.port)?;
        if let Some(mtu) = options.mtu {
            path = path.with_mtu(mtu as usize);
        }
        let handle = connect(&domain, &pair, connection, &there, path, psn)?;
        Ok(Wire {
            pair,
            handle,
            send_cq,
            recv_cq,
            buffer,
            room,
            rx_depth,
            there,
            connection,
            path,
            psn,
            port,
            context,
            asked,
        })
    }

    /// Bytes of the largest message that one send carries.
    pub fn largest(&self) -> usize {
        match self.connection {
            Connection::Rc => self.room,
            Connection::Ud => self.room.min(self.path.mtu_bytes()),
        }
    }

    /// How a message goes to the other end.
    #[inline]
    pub fn message(&self) -> Operation<'_> {
        match &self.handle {
            None => Operation::Send,
            Some(to) => {
                Operation::Datagram { ah: to, qpn: self.there.qpn, qkey: QKEY, immediate: None }
            }
        }
    }

    /// Writes to where messages land at the other end.
    #[inline]
    pub fn write(&self) -> Operation<'static> {
        Operation::Write { address: self.there.address, rkey: self.there.rkey }
    }

    /// Reads from there.
    #[inline]
    pub fn read(&self) -> Operation<'static> {
        Operation::Read { address: self.there.address, rkey: self.there.rkey }
    }

    /// What is sent.
    #[inline]
    pub fn outgoing(&self) -> *mut u8 {
        self.buffer.address()
    }

    /// Where what comes begins, without what the adapter puts before a datagram.
    #[inline]
    pub fn landing(&self) -> *mut u8 {
        self.buffer.address().wrapping_add(landing_of(self.room))
    }

    /// So many bytes of what is sent.
    #[inline]
    pub fn outgoing_segment(&self, bytes: usize) -> Sge {
        Sge::over(self.outgoing(), bytes, self.buffer.region().lkey())
    }

    /// So many bytes of what comes.
    #[inline]
    pub fn landing_segment(&self, bytes: usize) -> Sge {
        Sge::over(self.landing(), bytes, self.buffer.region().lkey())
    }

    /// The receive buffer, which all receives share: its contents are not read.
    pub fn receive_segment(&self) -> Sge {
        let before = match self.connection {
            Connection::Rc => 0,
            Connection::Ud => GRH,
        };
        let at = self.landing().wrapping_sub(before);
        Sge::over(at, before + self.room, self.buffer.region().lkey())
    }

    /// Where peers reach our memory, and by which key.
    pub fn shown(&self) -> (u64, u32) {
        let address = self.landing().expose_provenance() as u64;
        (address, self.buffer.region().rkey())
    }
}

/// Where the second half of the memory begins, with room before it for what precedes a datagram.
fn landing_of(room: usize) -> usize {
    room + 64
}

fn connect(
    domain: &Arc<ProtectionDomain>, pair: &QueuePair, connection: Connection, there: &There,
    path: Path, psn: u32,
) -> Result<Option<AddressHandle>, VerbsError> {
    match connection {
        Connection::Rc => {
            let peer = Peer { path, qpn: there.qpn, psn: there.psn };
            let retry_config = RetryConfig { reads: READS, ..RetryConfig::default() };
            pair.connect(&peer, psn, &retry_config)?;
            Ok(None)
        }
        Connection::Ud => {
            pair.start_datagrams(psn)?;
            AddressHandle::new(domain, &path).map(Some)
        }
    }
}
