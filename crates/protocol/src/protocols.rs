//! Protocols, one file each: cost, sizes and the steps of both sides.
//!
//! Reports and thresholds (`decide`) use the table [`RECORDS`]. A send starts by the protocol of its plan:
//! [`start_now`] without a request, [`start`] with one.
#![allow(unsafe_code)]

pub mod cooperative;
pub mod eager;
pub mod fragments;
mod get;
pub mod pieces;
pub mod pipelined;
mod put;
mod rendezvous;

use crate::endpoint::Endpoint;
use crate::learning::{Arm, Half, TIMED_MIN};
use crate::plan::{LaneSizes, SendPlan, SendProtocol};
use crate::request::{Request, RequestId};
use crate::selection::envelope::Curve;
use crate::selection::{Constants, Selection, Thresholds};
use crate::worker::Worker;
use fastpath_transport::{PeerClass, Post};
pub use fragments::Parts;

/// Description of a protocol.
pub struct Record {
    /// Name.
    pub name: &'static str,
    /// Active messages in the order sent (see `wire`).
    pub steps: &'static str,
    /// Returns the size of the largest message that this protocol serves and no earlier record serves. The error is the
    /// reason why there is no such message.
    pub probe: fn(&SelectionCase) -> Result<u64, String>,
    /// Describes how the bytes move, for reports.
    pub describe: fn(&SelectionCase) -> String,
    /// Returns the cost between two ranks of a node, in nanoseconds by size. Last argument: whether memory is shared.
    pub cost: fn(&Constants, &Thresholds, bool) -> Curve,
}

/// Peers with equal capabilities, for which a record is evaluated.
pub struct SelectionCase<'a> {
    /// Selected constants and settings.
    pub selection: &'a Selection,
    /// Thresholds of the selection.
    pub thresholds: &'a Thresholds,
    /// Class of the peers.
    pub peers: &'a PeerClass,
    /// Whether both sides reach the memory by load and store.
    pub shared: bool,
}

/// Location of peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPlace {
    /// In this process.
    Itself,
    /// On this host, in another process.
    Node,
    /// On another host, or reached through an adapter.
    Outside,
}

/// Size, in bytes, whose cost reports show for long messages.
pub const FAR: u64 = 1 << 20;

impl SelectionCase<'_> {
    /// Returns the location of the peers.
    pub fn place(&self) -> PeerPlace {
        match self.peers {
            peers if peers.in_process => PeerPlace::Itself,
            peers if peers.same_host => PeerPlace::Node,
            _ => PeerPlace::Outside,
        }
    }

    fn sizes(&self) -> LaneSizes {
        self.thresholds.sizes(self.peers.max_single, self.peers.bulk)
    }

    /// Returns the costs of all records.
    pub fn curves(&self) -> [Curve; RECORDS.len()] {
        curves(&self.selection.constants, self.thresholds, self.shared)
    }

    fn far_us(&self, protocol: Protocol) -> f64 {
        self.curves()[protocol as usize].at(FAR).unwrap_or(f64::NAN) / 1e3
    }

    /// Checks whether messages between two ranks of a node are copied without the ring.
    ///
    /// # Errors
    /// The reason why they are copied through the ring.
    fn check_copies(&self) -> Result<(), String> {
        if self.shared && !self.selection.overrides.direct {
            return Err("switched off by FASTPATH_DISABLE".to_owned());
        }
        if !self.shared {
            self.selection.kernel.clone()?;
        }
        match self.thresholds.copy_from(self.shared) {
            u64::MAX if !self.shared && self.selection.overrides.adapt => {
                Err("used only after a measurement shows that it is faster".to_owned())
            }
            u64::MAX => Err(format!(
                "slower: 1 MiB takes {:.1} us, against {:.1} us through the ring",
                self.far_us(Protocol::Cooperative),
                self.far_us(Protocol::Pipelined)
            )),
            _ => Ok(()),
        }
    }

    /// Describes how bytes are copied between two ranks of a node, in words that follow a verb such as "copied".
    fn copy_method(&self) -> &'static str {
        match self.shared {
            true => "by load and store",
            false => "through the kernel",
        }
    }
}

/// Indexes of [`RECORDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Header and payload in one slot.
    Short,
    /// One buffer.
    Eager,
    /// Several buffers, all sent at once.
    Fragments,
    /// Announcement, then fragments.
    Pipelined,
    /// Copied by the receiver alone.
    Get,
    /// Copied by both sides.
    Cooperative,
    /// Written by the sender into the receiver's memory. The receiver chooses this protocol.
    Put,
}

/// All protocols by rising size, in order of preference at equal costs. Only receivers choose the last.
pub const RECORDS: [Record; 7] = [
    eager::SHORT,
    eager::EAGER,
    fragments::RECORD,
    pipelined::RECORD,
    get::RECORD,
    cooperative::RECORD,
    put::RECORD,
];

/// Sends a contiguous message by its plan without a request; `NoResource` if that needs a request or lacks space.
///
/// # Safety
/// `data` is readable for `len` bytes.
#[inline]
pub(crate) unsafe fn start_now(
    endpoint: &mut Endpoint, plan: &SendPlan, (key, tag): (u64, i32), data: *const u8, len: usize,
) -> Post {
    // SAFETY: `data` is readable for `len` bytes, by this function's contract.
    unsafe {
        match plan.protocol {
            SendProtocol::Whole => eager::start_now(endpoint, plan, (key, tag), data, len),
            SendProtocol::Fragments => fragments::start_now(endpoint, plan, (key, tag), data, len),
            SendProtocol::Announced => Post::NoResource,
        }
    }
}

pub(crate) fn start(worker: &mut Worker, plan: &SendPlan, id: RequestId) -> Post {
    match plan.protocol {
        SendProtocol::Whole => eager::start(worker, id),
        SendProtocol::Fragments | SendProtocol::Announced => rendezvous::start(worker, plan, id),
    }
}

impl Worker {
    #[inline]
    pub(crate) fn times_copies(&self, half: Half, request: &Request, bytes: u64) -> bool {
        let is_ours = half == Half::Get || Arm::of(request.arm) == Some(Arm::Streaming);
        bytes >= TIMED_MIN && is_ours && self.is_crowded()
    }
}

/// Returns the costs of all records.
pub fn curves(c: &Constants, t: &Thresholds, shared: bool) -> [Curve; RECORDS.len()] {
    RECORDS.map(|record| (record.cost)(c, t, shared))
}

pub(crate) fn below(size: u64) -> u64 {
    if size == u64::MAX { size } else { size - 1 }
}
