//! Hardware of the machine: measured times ([`measure`]), and attributes of PCI devices ([`pci`]).

pub mod measure;
pub mod pci;
