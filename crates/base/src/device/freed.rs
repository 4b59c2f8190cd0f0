//! Detection of device memory that the program has freed (`FASTPATH_CHECK`).
//!
//! The driver knows neither addresses of freed memory nor addresses of host memory. So the ranges of allocations are
//! kept while checks are on.

use super::readable::is_readable;
use super::{DeviceError, DeviceMemory};
use crate::sync::{StaticOrdering, StaticUsize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// 1 if freed memory is detected.
static IS_ON: StaticUsize = StaticUsize::new(0);

/// Largest number of ranges that are kept.
const KEPT_MAX: usize = 4096;

/// Allocations seen by calls, by their first address: the end of each, and its properties.
static SEEN: Mutex<BTreeMap<usize, (usize, DeviceMemory)>> = Mutex::new(BTreeMap::new());

/// Turns the detection of freed device memory on or off.
pub fn detect_freed(is_on: bool) {
    IS_ON.store(usize::from(is_on), StaticOrdering::Relaxed);
}

pub(super) fn is_on() -> bool {
    IS_ON.load(StaticOrdering::Relaxed) != 0
}

/// Keeps the range of an allocation that a call uses. Earlier allocations there have been freed.
pub(super) fn note(memory: &DeviceMemory, range: Range<usize>) {
    let Ok(mut seen) = SEEN.lock() else { return };
    seen.retain(|&start, &mut (end, _)| end <= range.start || range.end <= start);
    if seen.len() >= KEPT_MAX {
        seen.pop_first();
    }
    seen.insert(range.start, (range.end, *memory));
}

/// Checks an address that the driver does not know. Errors: the address was in an allocation, and the processor cannot
/// read it.
pub(super) fn check_unknown(address: *const u8) -> Result<(), DeviceError> {
    let Ok(seen) = SEEN.lock() else { return Ok(()) };
    match seen.range(..=address.addr()).next_back() {
        Some((_, &(end, memory))) if address.addr() < end && !is_readable(address) => {
            Err(DeviceError::Freed(memory))
        }
        _ => Ok(()),
    }
}

/// Checks that an address still belongs to the allocation in which it was found. Errors: the allocation was freed.
pub(super) fn check_kept(address: *const u8, memory: &DeviceMemory) -> Result<(), DeviceError> {
    match is_on() && super::find(address)?.map(|now| now.allocation) != Some(memory.allocation) {
        true => Err(DeviceError::Freed(*memory)),
        false => Ok(()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::device::MemoryKind;

    #[test]
    fn unknown_address__in_a_seen_allocation__is_freed() {
        let memory = |allocation| DeviceMemory {
            kind: MemoryKind::Device,
            device: 1,
            allocation,
            context: 0,
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping.
        #[allow(unsafe_code)]
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_NONE, flags, -1, 0) };
        let (start, byte) = (at.addr(), 0_u8);
        let check = |offset: usize| check_unknown(at.cast::<u8>().wrapping_add(offset));
        assert_eq!(check(0), Ok(()), "never seen");
        note(&memory(1), start..start + 8192);
        assert_eq!((check(0), check(8191)), (Err(DeviceError::Freed(memory(1))), check(0)));
        assert_eq!(check(8192), Ok(()), "behind the allocation");
        note(&memory(2), start + 4096..start + 8192);
        assert_eq!(check(0), Ok(()), "another allocation has taken a part of the range");
        assert_eq!(check(4096), Err(DeviceError::Freed(memory(2))));
        note(&memory(3), (&raw const byte).addr()..(&raw const byte).addr() + 1);
        assert_eq!(check_unknown(&raw const byte), Ok(()), "now memory of the host");
    }
}
