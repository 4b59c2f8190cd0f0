//! What a PCIe bus and an RDMA adapter can carry, and what an operation costs on them.
//!
//! The model only calculates: it reads no device, no clock and no file. Quantities have types of
//! their own ([`units`]), so that a figure in MB/s cannot be taken for one in MiB/s.

pub mod crossover;
pub mod descriptor;
pub mod formulas;
pub mod link;
pub mod profile;
pub mod simulator;
pub mod units;
pub mod wire;

pub use link::{Generation, Lanes, Link, LinkError};
pub use units::{Bytes, GbPerS, MbPerS, MibPerS, Rate, RateUnit, StatedRate, Time, UnitError};
