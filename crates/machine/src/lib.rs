//! The machine: times of its hardware, measured ([`measure`]), and attributes of its PCI devices, read ([`pci`]).

pub mod measure;
pub mod pci;
