//! Resources of the bare loops: an adapter's port, queues, memory, and the other rank's resources.
#![allow(unsafe_code)]

use std::sync::Arc;

use fastpath_base::clock;
use fastpath_base::config::{Config, Key};
use fastpath_transport::verbs::inline::{Source, requested};
use fastpath_transport::verbs::path::PORT_ADDRESS_BYTES;
use fastpath_transport::verbs::{
    Access, AddressHandle, Buffer, CompletionQueue, DeviceContext, LocalPort, PairSettings, Path,
    PortAddress, ProtectionDomain, QueuePair, RemoteQp, RetryConfig, SendOperation, Service, Sge,
    VerbsError, open_device,
};

use super::super::board::SharedBoard;
use crate::options::verbs::{Connection, VerbsOptions};

/// Default send depths: of messages, of puts and gets.
pub const DEPTHS: [u32; 2] = [128, 256];
const RX_DEPTH: u32 = 512;
/// Largest number of reads in flight; a device may allow fewer.
const READS: u8 = 16;
/// Size of the header before a datagram's payload, in bytes.
const GRH: usize = 40;
/// Q_Key of this program's datagrams. It is not secret: packets carry it openly, like the queue pair number.
const QKEY: u32 = 0x1fa5_7a7b;

#[derive(Clone, Copy, Debug)]
pub struct RemoteEnd {
    pub qpn: u32,
    /// First packet sequence number.
    pub psn: u32,
    pub rkey: u32,
    /// Address at which messages and writes land.
    pub address: u64,
    pub port: PortAddress,
}

/// Two connected queue pairs, one of them local. Fields are dropped in this order.
pub struct ConnectedPair {
    pub pair: QueuePair,
    handle: Option<AddressHandle>,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    buffer: Buffer,
    pub room: usize,
    /// Number of receive buffers that may be posted.
    pub rx_depth: u32,
    pub there: RemoteEnd,
    pub connection: Connection,
    pub path: Path,
    /// First packet sequence number of this end.
    pub psn: u32,
    pub port: LocalPort,
    pub context: Arc<DeviceContext>,
    /// Requested inline data in bytes, and the source of the request.
    pub asked: (u32, Source),
}

/// Size of an encoded [`RemoteEnd`], in bytes. The two ranks exchange their ends in this form.
const CARD: usize = 64;

impl RemoteEnd {
    fn encode(&self) -> [u8; CARD] {
        let mut card = [0; CARD];
        let port = self.port.encode();
        let numbers = [self.qpn, self.psn, self.rkey].map(u32::to_le_bytes);
        let parts = [&port[..], &numbers.concat(), &self.address.to_le_bytes()].concat();
        card[..parts.len()].copy_from_slice(&parts);
        card
    }

    fn decode(card: &[u8; CARD]) -> Option<RemoteEnd> {
        let (port, rest) = card.split_at(PORT_ADDRESS_BYTES);
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?))
        };
        let address = rest.get(12..20)?.try_into().ok()?;
        Some(RemoteEnd {
            qpn: word(0)?,
            psn: word(4)?,
            rkey: word(8)?,
            address: u64::from_le_bytes(address),
            port: PortAddress::decode(port)?,
        })
    }
}

impl ConnectedPair {
    /// Opens the adapter that the configuration names, and connects to the adapter of the other rank. Both ranks call
    /// it.
    pub fn open(
        config: &Config, options: &VerbsOptions, room: usize, board: &SharedBoard, leads: bool,
    ) -> Result<ConnectedPair, VerbsError> {
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
        let own = RemoteEnd {
            qpn: pair.qpn(),
            psn,
            rkey: buffer.region().rkey(),
            address: buffer.address().expose_provenance() as u64 + landing_of(room) as u64,
            port: port.address(),
        };
        let card = board.exchange_bytes(leads, &own.encode());
        let refused = || VerbsError::Value("the other rank sent no valid address".to_owned());
        let there = RemoteEnd::decode(&card).ok_or_else(refused)?;
        let mut path = port.path_to(&there.port)?;
        if let Some(mtu) = options.mtu {
            path = path.with_mtu(mtu as usize);
        }
        let handle = connect(&domain, &pair, connection, &there, path, psn)?;
        Ok(ConnectedPair {
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

    /// Largest message that one send carries, in bytes.
    pub fn largest(&self) -> usize {
        match self.connection {
            Connection::Rc => self.room,
            Connection::Ud => self.room.min(self.path.mtu_bytes()),
        }
    }

    #[inline]
    pub fn message(&self) -> SendOperation<'_> {
        match &self.handle {
            None => SendOperation::Send,
            Some(to) => {
                SendOperation::Datagram { ah: to, qpn: self.there.qpn, qkey: QKEY, immediate: None }
            }
        }
    }

    /// Operation that writes to the landing area of the other end.
    #[inline]
    pub fn write(&self) -> SendOperation<'static> {
        SendOperation::Write { address: self.there.address, rkey: self.there.rkey }
    }

    /// Operation that reads from the landing area of the other end.
    #[inline]
    pub fn read(&self) -> SendOperation<'static> {
        SendOperation::Read { address: self.there.address, rkey: self.there.rkey }
    }

    #[inline]
    pub fn outgoing(&self) -> *mut u8 {
        self.buffer.address()
    }

    /// Address of the landing area, after the header of a datagram.
    #[inline]
    pub fn landing(&self) -> *mut u8 {
        self.buffer.address().wrapping_add(landing_of(self.room))
    }

    /// Segment of `bytes` bytes of the outgoing area.
    #[inline]
    pub fn outgoing_segment(&self, bytes: usize) -> Sge {
        Sge::over(self.outgoing(), bytes, self.buffer.region().lkey())
    }

    /// Segment of `bytes` bytes of the landing area.
    #[inline]
    pub fn landing_segment(&self, bytes: usize) -> Sge {
        Sge::over(self.landing(), bytes, self.buffer.region().lkey())
    }

    /// Receive buffer shared by all receives: its contents are not read.
    pub fn receive_segment(&self) -> Sge {
        let before = match self.connection {
            Connection::Rc => 0,
            Connection::Ud => GRH,
        };
        let at = self.landing().wrapping_sub(before);
        Sge::over(at, before + self.room, self.buffer.region().lkey())
    }

    pub fn shown(&self) -> (u64, u32) {
        let address = self.landing().expose_provenance() as u64;
        (address, self.buffer.region().rkey())
    }
}

/// Offset of the second half of the memory, with room before it for a datagram's header.
fn landing_of(room: usize) -> usize {
    room + 64
}

fn connect(
    domain: &Arc<ProtectionDomain>, pair: &QueuePair, connection: Connection, there: &RemoteEnd,
    path: Path, psn: u32,
) -> Result<Option<AddressHandle>, VerbsError> {
    match connection {
        Connection::Rc => {
            let peer = RemoteQp { path, qpn: there.qpn, psn: there.psn };
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
