//! The protocols, a file each: what it costs, which sizes it serves, and what both sides do.
//!
//! [`RECORDS`] is the table that a report shows and the thresholds are made of (`selection::decide`).

pub mod cooperative;
pub mod eager;
pub mod fragments;
mod get;
pub mod pieces;
pub mod pipelined;
mod put;
mod rendezvous;

use crate::selection::envelope::Curve;
use crate::selection::{Constants, Selection, Thresholds};
use fastpath_transport::PeerClass;
pub use fragments::Parts;

/// A protocol: what both sides do with the messages of a size.
pub struct Record {
    /// Its name.
    pub name: &'static str,
    /// Active messages that go to and fro, in order (see `wire`).
    pub steps: &'static str,
    /// Largest message that it serves, of those that no record before it serves; or why it serves none, or not by the
    /// sender's choice.
    pub most: fn(&Case) -> Result<u64, String>,
    /// How the bytes move.
    pub how: fn(&Case) -> String,
    /// What it costs between two ranks of a node, with memory that both reach by load and store or do not.
    pub cost: fn(&Constants, &Thresholds, bool) -> Curve,
}

/// Whom a record is asked about: peers that are served alike.
pub struct Case<'a> {
    /// What was selected.
    pub selection: &'a Selection,
    /// What follows from it.
    pub thresholds: &'a Thresholds,
    /// The peers.
    pub peers: &'a PeerClass,
    /// Whether both sides reach the memory by load and store.
    pub shared: bool,
}

/// Where peers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPlace {
    /// In this process.
    Itself,
    /// On this host.
    Node,
    /// Beyond an adapter.
    Outside,
}

/// Size whose cost stands for those of all long messages, in bytes.
pub const FAR: u64 = 1 << 20;

impl Case<'_> {
    /// Where the peers are.
    pub fn place(&self) -> PeerPlace {
        match self.peers {
            peers if peers.in_process => PeerPlace::Itself,
            peers if peers.same_host => PeerPlace::Node,
            _ => PeerPlace::Outside,
        }
    }

    /// See [`Thresholds::as_one`].
    fn as_one(&self) -> u64 {
        self.thresholds.max_single.min(self.peers.max_single)
    }

    /// What every record costs here.
    pub fn curves(&self) -> [Curve; RECORDS.len()] {
        curves(&self.selection.constants, self.thresholds, self.shared)
    }

    /// What a long message costs by a protocol, in microseconds.
    fn far_us(&self, protocol: Protocol) -> f64 {
        self.curves()[protocol as usize].at(FAR).unwrap_or(f64::NAN) / 1e3
    }

    /// Why no message between two ranks of a node is copied without the ring.
    ///
    /// # Errors
    /// That is why.
    fn check_copies(&self) -> Result<(), String> {
        if self.shared && !self.selection.overrides.direct {
            return Err("switched off by FASTPATH_DISABLE".to_owned());
        }
        if !self.shared {
            self.selection.kernel.clone()?;
        }
        match self.thresholds.copy_from(self.shared) {
            u64::MAX if !self.shared && self.selection.overrides.adapt => {
                Err("not at first: where it was seen to take less".to_owned())
            }
            u64::MAX => Err(format!(
                "costs more: 1 MiB takes {:.1} us instead of {:.1} us",
                self.far_us(Protocol::Cooperative),
                self.far_us(Protocol::Pipelined)
            )),
            _ => Ok(()),
        }
    }

    /// What copies without the ring.
    fn copier(&self) -> &'static str {
        match self.shared {
            true => "load and store copy",
            false => "the kernel copies",
        }
    }
}

/// The places of [`RECORDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Header and payload in one slot.
    Short,
    /// One buffer.
    Eager,
    /// Several buffers without asking.
    Fragments,
    /// Announced, then fragments.
    Pipelined,
    /// Copied by the receiver alone.
    Get,
    /// Copied by both sides.
    Cooperative,
    /// Written by the sender into the receiver's memory; chosen by the receiver.
    Put,
}

/// All of them, by rising size and in the order of preference where costs are equal; last the one that the sender does
/// not choose.
pub const RECORDS: [Record; 7] = [
    eager::SHORT,
    eager::EAGER,
    fragments::RECORD,
    pipelined::RECORD,
    get::RECORD,
    cooperative::RECORD,
    put::RECORD,
];

/// What each of them costs.
pub fn curves(c: &Constants, t: &Thresholds, shared: bool) -> [Curve; RECORDS.len()] {
    RECORDS.map(|record| (record.cost)(c, t, shared))
}

/// The largest size below `size`; there is none below no size.
pub(crate) fn below(size: u64) -> u64 {
    if size == u64::MAX { size } else { size - 1 }
}
