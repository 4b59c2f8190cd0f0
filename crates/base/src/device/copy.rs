//! Copies between device memory and host memory.
#![allow(unsafe_code)]

use super::cuda::{Direction, Driver, Rows};
use super::{DeviceError, DeviceMemory};

/// Pieces of equal length in device memory, and their places in host memory. Offsets and strides are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// First piece in device memory.
    pub device: *mut u8,
    /// Distance between pieces in device memory.
    pub device_stride: i64,
    /// First piece in host memory.
    pub host: *mut u8,
    /// Distance between pieces in host memory.
    pub host_stride: i64,
    /// Bytes of a piece.
    pub len: u64,
    /// Number of pieces.
    pub count: u64,
}

/// Copies pieces of device memory to host memory. Returns when the copies are complete.
///
/// # Safety
/// Each piece must be valid device memory and valid host memory, which nothing else writes.
pub unsafe fn copy_in(
    memory: &DeviceMemory, moves: impl Fn(&mut dyn FnMut(Move)),
) -> Result<(), DeviceError> {
    // SAFETY: this function's contract.
    unsafe { copy::<true>(memory, moves) }
}

/// Copies pieces of host memory to device memory. Returns when the copies are complete, so that work which the program
/// starts on any stream sees the data.
///
/// # Safety
/// See [`copy_in`].
pub unsafe fn copy_out(
    memory: &DeviceMemory, moves: impl Fn(&mut dyn FnMut(Move)),
) -> Result<(), DeviceError> {
    // SAFETY: this function's contract.
    unsafe { copy::<false>(memory, moves) }
}

/// Safety: see [`copy_in`].
unsafe fn copy<const IN: bool>(
    memory: &DeviceMemory, moves: impl Fn(&mut dyn FnMut(Move)),
) -> Result<(), DeviceError> {
    let Some(driver) = Driver::loaded() else { return Ok(()) };
    let direction = if IN { Direction::In } else { Direction::Out };
    driver.with_live_stream(memory, direction, |stream| {
        let mut result = Ok(());
        moves(&mut |one| {
            if result.is_ok() {
                // SAFETY: this function's contract.
                result = unsafe { begin::<IN>(driver, &one, stream) };
            }
        });
        // A copy that has begun must end before its buffers are used for something else.
        let ended = driver.synchronize(stream);
        result.and(ended)
    })
}

/// Begins the copies of some pieces: by rows if both strides allow that, otherwise piece by piece. Safety: see
/// [`copy_in`].
unsafe fn begin<const IN: bool>(
    driver: &Driver, one: &Move, stream: usize,
) -> Result<(), DeviceError> {
    let (len, count) = (one.len as usize, one.count as usize);
    let pair = |device: *mut u8, host: *mut u8| match IN {
        true => (host.addr(), device.addr()),
        false => (device.addr(), host.addr()),
    };
    let is_row = |stride: i64| u64::try_from(stride).is_ok_and(|stride| stride >= one.len);
    // SAFETY: this function's contract.
    unsafe {
        if count == 1 {
            let (to, from) = pair(one.device, one.host);
            return driver.copy(to, from, len, stream);
        }
        if is_row(one.device_stride) && is_row(one.host_stride) {
            let (to, from) = pair(one.device, one.host);
            let (device, host) = (one.device_stride as usize, one.host_stride as usize);
            let (to_pitch, from_pitch) = if IN { (host, device) } else { (device, host) };
            let mut rows = Rows::new();
            (rows.dst, rows.dst_pitch) = (to, to_pitch);
            (rows.src, rows.src_pitch) = (from, from_pitch);
            (rows.width, rows.height) = (len, count);
            // The driver refuses strides above a limit of the device.
            if driver.copy_rows(&rows, stream).is_ok() {
                return Ok(());
            }
        }
        for piece in 0..one.count as i64 {
            let at = |start: *mut u8, stride: i64| {
                start.wrapping_offset(stride.wrapping_mul(piece) as isize)
            };
            let (to, from) = pair(at(one.device, one.device_stride), at(one.host, one.host_stride));
            driver.copy(to, from, len, stream)?;
        }
    }
    Ok(())
}
