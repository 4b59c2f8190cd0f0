//! Memory of devices: recognition of pointers, and copies by the vendor's driver.
//!
//! The processor cannot read the memory of a device. [`find`] classifies an address, and [`copy_in`] and [`copy_out`]
//! move data between device memory and [`HostBlock`]s. This module links to no driver and loads none: it uses a driver
//! that the process has loaded. Decision 0099.
//!
//! Drivers of AMD (HIP) and Intel (Level Zero) are recognised, and their memory is refused.

mod block;
mod bytes;
mod copy;
mod cuda;
mod freed;
mod loaded;
mod pipeline;
mod readable;

pub use block::HostBlock;
pub use bytes::DeviceBytes;
pub use copy::{Move, copy_in, copy_out};
pub use freed::detect_freed;
pub use loaded::{Setting, may_appear, start};
pub use pipeline::{CopyPipeline, PIPELINE_MIN};

use loaded::Drivers;
use std::fmt;

/// Kind of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of one device, such as that of `cudaMalloc`. Memory imported from another process has this kind too.
    Device,
    /// Managed memory, whose pages move between host and device (`cudaMallocManaged`).
    Managed,
    /// Memory of a stream-ordered pool (`cudaMallocAsync`).
    Pool,
    /// Memory mapped by virtual memory management (`cuMemMap`).
    Mapped,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryKind::Device => "device memory",
            MemoryKind::Managed => "managed memory",
            MemoryKind::Pool => "pool memory",
            MemoryKind::Mapped => "mapped device memory",
        })
    }
}

/// An allocation in the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Kind.
    pub kind: MemoryKind,
    /// Number of the device, as the driver numbers devices in this process.
    pub device: i32,
    /// Number of the allocation, which the driver never reuses.
    pub allocation: u64,
    /// Context of the allocation; 0 if it belongs to none.
    context: usize,
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of CUDA device {}", self.kind, self.device)
    }
}

/// Reason why device memory cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceError {
    /// A call of the CUDA driver failed with this code.
    Failed(&'static str, i32),
    /// The memory belongs to a vendor whose driver this library does not use.
    Unsupported(&'static str),
    /// The host has no memory for the copy, of this many bytes.
    NoMemory(u64),
    /// The program has freed this memory.
    Freed(DeviceMemory),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Failed(call, code) => {
                write!(f, "{call} failed with error {code} ({})", cuda::name_error(*code))
            }
            DeviceError::Unsupported(vendor) => write!(
                f,
                "the processor cannot read the address, {vendor} is loaded, and memory of its \
                 devices is not supported"
            ),
            DeviceError::NoMemory(bytes) => {
                write!(f, "the host has no memory for a copy of {bytes} bytes")
            }
            DeviceError::Freed(memory) => write!(f, "the program has freed that {memory}"),
        }
    }
}

/// Returns whether the process has loaded the CUDA driver, and pointers to device memory may appear.
pub fn has_cuda() -> bool {
    may_appear() && loaded::drivers().cuda.is_some()
}

/// Checks that an address still belongs to the allocation in which it was found. Errors: the allocation was freed.
/// Without [`detect_freed`], the result is always `Ok`.
pub fn check_kept(address: *const u8, memory: &DeviceMemory) -> Result<(), DeviceError> {
    freed::check_kept(address, memory)
}

/// Returns the device memory at an address; `None` for host memory, pinned host memory included.
pub fn find(address: *const u8) -> Result<Option<DeviceMemory>, DeviceError> {
    if !may_appear() {
        return Ok(None);
    }
    match loaded::drivers() {
        Drivers { cuda: Some(driver), .. } => driver.find(address),
        Drivers { other: Some(vendor), .. } if !readable::is_readable(address) => {
            Err(DeviceError::Unsupported(vendor))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::{Setting, find, may_appear, start};

    #[test]
    fn setting__decides_whether_device_memory_may_appear() {
        let byte = 0_u8;
        for (setting, expected) in [(Setting::Off, false), (Setting::On, true)] {
            assert_eq!(start(setting), expected);
            assert_eq!(may_appear(), expected);
            assert_eq!(find(&raw const byte), Ok(None), "this process has loaded no driver");
        }
        // Without a driver, the decision depends on the device files of the host.
        assert_eq!(start(Setting::Auto), may_appear());
    }
}
