//! Model of a PCIe bus and an RDMA adapter: rates, and costs of operations.
//!
//! The model only calculates: it reads no device, no clock and no file. Quantities have their own types ([`units`]), so
//! that MB/s and MiB/s cannot be confused.

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
