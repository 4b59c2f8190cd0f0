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
use crate::selection::{Constants, Thresholds};
pub use fragments::Parts;

/// A protocol that a sender chooses by size, between two ranks of a node.
pub struct Record {
    /// Its name in reports, for memory that both sides reach by load and store (`true`) or that they do not.
    pub name: fn(bool) -> &'static str,
    /// Largest message that it serves, of those that no record before it serves.
    pub most: fn(&Thresholds, bool) -> u64,
    /// How the bytes move.
    pub how: fn(&Thresholds, bool) -> String,
    /// What it costs.
    pub cost: fn(&Constants, &Thresholds, bool) -> Curve,
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
}

/// All of them, by rising size and in the order of preference where costs are equal.
pub const RECORDS: [Record; 6] = [
    eager::SHORT,
    eager::EAGER,
    fragments::RECORD,
    pipelined::RECORD,
    get::RECORD,
    cooperative::RECORD,
];

/// What each of them costs.
pub fn curves(c: &Constants, t: &Thresholds, shared: bool) -> [Curve; RECORDS.len()] {
    RECORDS.map(|record| (record.cost)(c, t, shared))
}

/// The largest size below `size`; there is none below no size.
pub(crate) fn below(size: u64) -> u64 {
    if size == u64::MAX { size } else { size - 1 }
}

/// Who copies without the ring.
fn copier(shared: bool) -> &'static str {
    match shared {
        true => "load and store copy",
        false => "the kernel copies",
    }
}
