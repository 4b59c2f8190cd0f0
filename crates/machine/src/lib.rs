//! This machine: what its hardware takes, measured ([`measure`]), and what its PCI devices say of themselves ([`pci`]).

pub mod measure;
pub mod pci;
