//! Memory that this process exposes.
#![allow(unsafe_code)]

use super::key::PackedKey;
use super::numbered::NumberedList;
use fastpath_base::maps::{self, MapsEntry};
use fastpath_transport::remote::Registration;
use std::cell::Cell;
use std::ops::{ControlFlow, Range};

/// Id of exposed memory at its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub(crate) u64);

/// Exposed memory.
#[derive(Debug, Clone, Copy)]
pub struct ExposedMemory {
    /// Id to be passed to [`Worker::withdraw_memory`].
    pub id: RegionId,
    /// Key for peers.
    pub key: PackedKey,
}

pub(crate) struct Region {
    pub base: *mut u8,
    pub len: u64,
    /// Whether this process may write the memory; a window may be read-only. `None` until a peer first writes.
    pub is_writable: Cell<Option<bool>>,
    /// Registration with the adapter.
    pub _registration: Option<Registration>,
}

/// Returns whether the process may write all mapped parts of a range. True if `/proc` is not available.
fn may_write(range: &Range<usize>) -> bool {
    let mut may = true;
    let visited = maps::visit(|mapping| {
        may &= !forbids(&mapping, range);
        match may && mapping.range.end < range.end {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    visited.is_err() || may
}

fn forbids(mapping: &MapsEntry, range: &Range<usize>) -> bool {
    !mapping.is_writable && mapping.range.start < range.end && range.start < mapping.range.end
}

impl NumberedList<Region> {
    /// Returns the address of `len` bytes at `offset` of a region. `None` if they are not all inside one region.
    pub fn locate(&self, id: u64, offset: u64, len: u64) -> Option<*mut u8> {
        self.locate_in(id, offset, len).map(|(_, at)| at)
    }

    /// Returns the address of bytes to be written. `None` also if this process may not write them.
    pub fn locate_to_write(&self, id: u64, offset: u64, len: u64) -> Option<*mut u8> {
        let (region, at) = self.locate_in(id, offset, len)?;
        region.may_be_written().then_some(at)
    }

    /// Returns a region that this process may write.
    pub fn find_to_write(&self, id: u64) -> Option<&Region> {
        self.find(id).filter(|region| region.may_be_written())
    }

    pub(crate) fn locate_in(&self, id: u64, offset: u64, len: u64) -> Option<(&Region, *mut u8)> {
        let region = self.find(id)?;
        region.address(offset, len).map(|at| (region, at))
    }
}

impl Region {
    /// Returns the address of `len` bytes at `offset`; `None` if they are not all inside.
    pub fn address(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then(|| self.base.wrapping_add(offset as usize))
    }

    fn may_be_written(&self) -> bool {
        let is_writable = self.is_writable.get().unwrap_or_else(|| {
            let start = self.base.addr();
            may_write(&(start..start.saturating_add(self.len as usize)))
        });
        self.is_writable.set(Some(is_writable));
        is_writable
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn region(len: u64) -> Region {
        Region {
            base: std::ptr::without_provenance_mut(4096),
            len,
            is_writable: Cell::new(None),
            _registration: None,
        }
    }

    #[test]
    fn memory__that_is_only_read_is_not_written() {
        let (data, text) = ([1_u8; 100], "of the program's constants");
        let of = |at: *const u8, len: usize| at.addr()..at.addr() + len;
        assert!(may_write(&of(data.as_ptr(), 100)));
        assert!(!may_write(&of(text.as_ptr(), text.len())));
        let mut mapping = MapsEntry {
            range: 0x7f00_0000_1000..0x7f00_0000_3000,
            is_writable: false,
            is_own: false,
        };
        for (range, forbidden) in
            [(0x1fff..0x2001, true), (0..0x1000, false), (0x3000..0x4000, false)]
        {
            let range = 0x7f00_0000_0000 + range.start..0x7f00_0000_0000 + range.end;
            mapping.is_writable = false;
            assert_eq!(forbids(&mapping, &range), forbidden, "{range:?}");
            mapping.is_writable = true;
            assert!(!forbids(&mapping, &range));
        }
    }

    #[test]
    fn locate__finds_what_is_inside_of_a_region_that_is_there() {
        let mut regions = NumberedList::default();
        let [first, second] = [100, 0].map(|len| regions.insert(region(len)));
        let at = |regions: &NumberedList<Region>, id, offset, len| {
            regions.locate(id, offset, len).map(|p| p.addr())
        };
        assert_eq!(at(&regions, first, 40, 60), Some(4136));
        assert_eq!(at(&regions, first, 100, 0), Some(4196));
        for (offset, len) in
            [(40, 61), (101, 0), (u64::MAX, 1), (0, u64::MAX), (u64::MAX, u64::MAX)]
        {
            assert_eq!(at(&regions, first, offset, len), None, "{offset} {len}");
        }
        assert_eq!((at(&regions, second, 0, 0), at(&regions, second, 0, 1)), (Some(4096), None));
        assert!(regions.remove_if(first, |_| true).is_some());
        assert_eq!(at(&regions, first, 0, 1), None);
    }
}
