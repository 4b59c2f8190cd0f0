//! Memory that this process exposes.
#![allow(unsafe_code)]

use super::error::RmaError;
use super::key::{Described, PackedKey};
use super::numbered::Numbered;
use crate::worker::Worker;
use fastpath_transport::remote::Registration;

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
    /// What the adapter knows of it.
    _registration: Option<Registration>,
}

impl Numbered<Region> {
    /// Where `len` bytes at `offset` of a region are; `None` where they are not all inside one.
    pub fn locate(&self, id: u64, offset: u64, len: u64) -> Option<*mut u8> {
        let region = self.find(id)?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.len);
        inside.then(|| region.base.wrapping_add(offset as usize))
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
        Exposed {
            id,
            key: described.pack(),
        }
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
            _registration: None,
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
        for (offset, len) in [
            (40, 61),
            (101, 0),
            (u64::MAX, 1),
            (0, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(at(&regions, first, offset, len), None, "{offset} {len}");
        }
        assert_eq!(
            (at(&regions, second, 0, 0), at(&regions, second, 0, 1)),
            (Some(4096), None)
        );
        assert!(regions.remove_if(first, |_| true).is_some());
        assert_eq!(at(&regions, first, 0, 1), None);
    }
}
