//! PCI devices as `lspci` and the kernel's files show them. What the facts mean is said elsewhere.

mod classes;
pub mod config_space;
pub mod function;
pub mod lspci;
pub mod sysfs;

use function::Function;

/// A device and what lies between it and the processor.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The device.
    pub device: Function,
    /// Addresses of the other functions of the same card, which share its link.
    pub siblings: Vec<String>,
    /// Ports above it, nearest first, as far as they are known.
    pub above: Vec<Function>,
    /// The network's own rate where the device has one, in Gb/s of data, and its name.
    pub network: Option<(f64, String)>,
    /// The source of the facts: `lspci`, `sysfs`.
    pub source: &'static str,
    /// The bandwidth is that of copies between memory and the device, measured here: no network, no other host.
    pub copies: bool,
}
