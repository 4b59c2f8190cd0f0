//! Shared memory within a node: a ring of cache lines for each pair of ranks that communicates.
pub mod arena;
pub mod cma;
mod data_area;
pub mod datapath;
pub mod direct;
pub mod domain;
pub mod endpoint;
mod grow;
mod idle;
pub mod iface;
pub mod mapped;
#[cfg(not(feature = "loom"))]
pub mod outside;
pub mod recall;
mod recycle;
pub mod ring_tuning;
mod slow_path;
pub mod wire;

pub use arena::Arena;
pub use domain::Domain;
pub use endpoint::ShmEndpoint;
pub use iface::Iface;
#[cfg(all(test, not(feature = "loom")))]
mod hostile;
#[cfg(all(test, feature = "loom"))]
mod loom;
#[cfg(test)]
mod ring;
#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod testing;
