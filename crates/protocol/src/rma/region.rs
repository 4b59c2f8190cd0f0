//! Memory that this process exposes.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::key::{Described, PackedKey};
use super::numbered::Numbered;
use crate::worker::Worker;
use fastpath_base::maps::{self, Mapping};
use fastpath_transport::remote::Registration;
use std::cell::Cell;
use std::ops::{ControlFlow, Range};

/// Names memory that is exposed, at its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

/// Exposed memory.
#[derive(Debug, Clone, Copy)]
pub struct Exposed {
    /// To be given to [`Worker::withdraw_memory`].
    pub id: RegionId,
    /// To be given to peers.
    pub key: PackedKey,
}

pub(super) struct Region {
    base: *mut u8,
    len: u64,
    /// Whether this process may write it, once a peer has asked for that: a window may be of memory that is only read.
    is_writable: Cell<Option<bool>>,
    /// What the adapter knows of it.
    _registration: Option<Registration>,
}

/// Whether the process may write all that is mapped of a range; so where there is no proc.
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

/// Whether the process may not write what is of both.
fn forbids(mapping: &Mapping, range: &Range<usize>) -> bool {
    !mapping.is_writable && mapping.range.start < range.end && range.start < mapping.range.end
}

impl Numbered<Region> {
    /// Where `len` bytes at `offset` of a region are; `None` where they are not all inside one.
    pub fn locate(&self, id: u64, offset: u64, len: u64) -> Option<*mut u8> {
        self.locate_in(id, offset, len).map(|(_, at)| at)
    }

    /// As [`Numbered::locate`], of memory that is to be written; `None` too where this process may not.
    pub fn locate_to_write(&self, id: u64, offset: u64, len: u64) -> Option<*mut u8> {
        let (region, at) = self.locate_in(id, offset, len)?;
        let is_writable = region.is_writable.get().unwrap_or_else(|| {
            let start = region.base.addr();
            may_write(&(start..start.saturating_add(region.len as usize)))
        });
        region.is_writable.set(Some(is_writable));
        is_writable.then_some(at)
    }

    fn locate_in(&self, id: u64, offset: u64, len: u64) -> Option<(&Region, *mut u8)> {
        let region = self.find(id)?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.len);
        inside.then(|| (region, region.base.wrapping_add(offset as usize)))
    }
}

impl Worker {
    /// Exposes `len` bytes at `address` to every rank that is given the key: to be read, written and changed, at any
    /// time until [`Worker::withdraw_memory`]. Memory of [`Worker::allocate_memory`] is reached by load and store by
    /// ranks of this host.
    ///
    /// # Safety
    /// The memory stays mapped until then, and is used by this process as memory that others change.
    pub unsafe fn expose_memory(&mut self, address: *mut u8, len: usize) -> Exposed {
        let at = address.expose_provenance();
        let arena = self.interfaces.locate_shared(at, len);
        // SAFETY: the memory stays mapped until it is withdrawn, by this function's contract; the registration goes
        // then.
        let registration = unsafe { self.interfaces.register_memory(address, len) };
        let adapter = registration.as_ref().map(|r| u64::from(r.rkey()));
        let id = RegionId(self.rma.regions.insert(Region {
            base: address,
            len: len as u64,
            is_writable: Cell::new(arena.map(|_| true)),
            _registration: registration,
        }));
        let described = Described {
            owner: self.rank,
            region: id.0,
            len: len as u64,
            address: at as u64,
            arena,
            process: Some(u64::from(std::process::id())),
            adapter,
        };
        Exposed { id, key: described.pack() }
    }

    /// The memory is not exposed any more; false where it was not. Who still has its key gets
    /// [`RmaError::Withdrawn`] or, by an adapter, loses the connection; what is reached by load and store must not be
    /// reached any more by agreement.
    pub fn withdraw_memory(&mut self, id: RegionId) -> bool {
        let removed = self.rma.regions.remove_if(id.0, |_| true).is_some();
        if removed {
            self.interfaces.release_registrations();
        }
        removed
    }

    /// Own memory that an own key names.
    pub(crate) fn locate_own(&self, described: &Described) -> Result<*mut u8, RmaError> {
        let regions = &self.rma.regions;
        let found = regions.locate(described.region, 0, described.len);
        found.ok_or(RmaError::Withdrawn)
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
        let mut mapping = Mapping {
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
        let mut regions = Numbered::default();
        let [first, second] = [100, 0].map(|len| regions.insert(region(len)));
        let at = |regions: &Numbered<Region>, id, offset, len| {
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
