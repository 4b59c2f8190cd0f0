//! Facts about PCI devices, from `lspci` and the kernel's files. `fastpath explain` interprets them.

mod classes;
pub mod config_space;
pub mod function;
pub mod lspci;
pub mod sysfs;

use function::PciFunction;

/// A device, and the path from it to the processor.
#[derive(Clone, Debug, Default)]
pub struct DevicePath {
    /// The device.
    pub device: PciFunction,
    /// Addresses of the card's other functions, which share its link.
    pub siblings: Vec<String>,
    /// Ports above the device, nearest first, as far as known.
    pub above: Vec<PciFunction>,
    /// Data rate of the network in Gb/s if the device has one, and its name.
    pub network: Option<(f64, String)>,
    /// Source of the facts: `lspci`, `sysfs`.
    pub source: &'static str,
    /// Whether the measured bandwidth is that of copies between memory and device on this machine, without a network or
    /// another host.
    pub copies: bool,
}
