//! Registrations of the program's memory, found again by address.
#![allow(unsafe_code)]

use crate::verbs::{Access, MemoryRegion, ProtectionDomain, VerbsError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

struct Entry {
    len: usize,
    access: Access,
    region: Arc<MemoryRegion>,
}

impl Entry {
    fn range(&self) -> Range<usize> {
        let start = self.region.address().addr();
        start..start + self.len
    }
}

/// Registrations by address.
pub struct Registrations {
    memory: Arc<ProtectionDomain>,
    entries: BTreeMap<(usize, usize), Entry>,
    lasting: Vec<Range<usize>>,
    has_passing: bool,
    hits: u64,
    misses: u64,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn allows(has: Access, wanted: Access) -> bool {
    has == wanted || has == Access::Remote || wanted == Access::Read
}

impl Registrations {
    /// None yet.
    pub fn new(memory: &Arc<ProtectionDomain>) -> Self {
        Registrations {
            memory: memory.clone(),
            entries: BTreeMap::new(),
            lasting: Vec::new(),
            has_passing: false,
            hits: 0,
            misses: 0,
        }
    }

    /// Memory that will stay mapped, and what it holds in place, until [`Registrations::forget`]: its
    /// registration is kept from use to use.
    pub fn declare_lasting(&mut self, range: Range<usize>) {
        self.lasting.push(range);
    }

    /// Whether all of a range will stay mapped, as [`Registrations::declare_lasting`] was told.
    pub fn is_lasting(&self, range: &Range<usize>) -> bool {
        self.surroundings(range).is_some()
    }

    /// The lasting memory at `address` is about to be unmapped: no registration of it remains.
    pub fn forget(&mut self, address: usize) {
        let known = &mut self.lasting;
        let Some(at) = known.iter().position(|range| range.start == address) else {
            return;
        };
        let range = known.swap_remove(at);
        self.entries
            .retain(|_, entry| !overlap(&entry.range(), &range));
    }

    /// A registration of `len` bytes at `address`: one that is in use, one that was kept, or a new one.
    /// Memory of which nobody knows how long it stays is registered for the operations under way and no longer: the
    /// pages of a stale registration are not those of its addresses any more.
    ///
    /// # Safety
    /// As [`MemoryRegion::register`], as long as the answer is held.
    ///
    /// # Errors
    /// The memory is not there, or the limit on locked memory is too low.
    pub unsafe fn register(
        &mut self,
        address: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Arc<MemoryRegion>, VerbsError> {
        let start = address.expose_provenance();
        let wanted = start..start + len.max(1);
        if let Some(found) = self.find(&wanted, access) {
            return Ok(found);
        }
        let (whole, access) = match self.surroundings(&wanted) {
            // Once for every use, since it stays.
            Some(whole) => (whole, Access::Remote),
            None => (wanted, access),
        };
        let at = std::ptr::with_exposed_provenance_mut(whole.start);
        // SAFETY: the caller's; lasting memory stays mapped by `declare_lasting`.
        let region =
            Arc::new(unsafe { MemoryRegion::register(&self.memory, at, whole.len(), access) }?);
        self.misses += 1;
        self.keep(whole, access, &region);
        Ok(region)
    }

    /// Drops what no operation uses any more, but for lasting memory.
    pub(crate) fn release_unused(&mut self) {
        if self.has_passing {
            self.release_slow();
        }
    }

    /// Registrations made, and uses of one that was there.
    pub fn counts(&self) -> (u64, u64) {
        (self.misses, self.hits)
    }

    fn find(&mut self, wanted: &Range<usize>, access: Access) -> Option<Arc<MemoryRegion>> {
        let lasting = self.lasting.iter().any(|range| covers(range, wanted));
        let entry = self
            .entries
            .range(..=(wanted.start, usize::MAX))
            .rev()
            .take(8)
            .map(|(_, entry)| entry)
            .find(|entry| covers(&entry.range(), wanted) && allows(entry.access, access))?;
        // In use, so that its memory is there; or known to stay.
        if Arc::strong_count(&entry.region) == 1 && !lasting {
            return None;
        }
        self.hits += 1;
        Some(entry.region.clone())
    }

    /// The lasting memory around a range.
    fn surroundings(&self, wanted: &Range<usize>) -> Option<Range<usize>> {
        let mut lasting = self.lasting.iter();
        lasting.find(|range| covers(range, wanted)).cloned()
    }

    fn keep(&mut self, range: Range<usize>, access: Access, region: &Arc<MemoryRegion>) {
        self.has_passing |= !self.lasting.contains(&range);
        let entry = Entry {
            len: range.len(),
            access,
            region: region.clone(),
        };
        self.entries.insert((range.start, range.end), entry);
    }

    fn release_slow(&mut self) {
        let lasting = &self.lasting;
        self.entries.retain(|_, entry| {
            Arc::strong_count(&entry.region) > 1 || lasting.contains(&entry.range())
        });
        self.has_passing = self
            .entries
            .values()
            .any(|entry| !lasting.contains(&entry.range()));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::domain::Domain;
    use super::*;
    use crate::verbs::{fake, fault};

    fn domain() -> Domain {
        fake::set_conditions(fake::Conditions::default());
        Domain::new(&fake::open(), None).unwrap()
    }

    #[test]
    fn register__of_passing_memory_lasts_as_long_as_its_use() {
        let mut domain = domain();
        let mut memory = vec![0_u8; 10_000];
        let at = memory.as_mut_ptr();
        // SAFETY: the memory outlives the registrations.
        let register = |domain: &mut Domain| unsafe {
            domain.registrations.register(at, 10_000, Access::Write)
        };
        let first = register(&mut domain).unwrap();
        let second = register(&mut domain).unwrap();
        assert_eq!(domain.registrations.counts(), (1, 1));
        drop((first, second));
        domain.registrations.release_unused();
        assert!(domain.registrations.entries.is_empty());
        drop(register(&mut domain).unwrap());
        // Not used, not yet released: it may not be reused all the same.
        drop(register(&mut domain).unwrap());
        assert_eq!(domain.registrations.counts(), (3, 1));
    }

    #[test]
    fn register__of_lasting_memory_is_kept_until_it_is_forgotten() {
        let mut domain = domain();
        let mut memory = vec![0_u8; 100_000];
        let at = memory.as_mut_ptr();
        let range = at.addr()..at.addr() + memory.len();
        domain.registrations.declare_lasting(range.clone());
        for piece in 0..10 {
            // SAFETY: within the memory, which outlives the registrations.
            let part = unsafe {
                domain
                    .registrations
                    .register(at.add(piece * 100), 5000, Access::Remote)
            };
            drop(part.unwrap());
            domain.registrations.release_unused();
        }
        assert_eq!(domain.registrations.counts(), (1, 9));
        domain.registrations.forget(range.start + 1);
        assert_eq!(domain.registrations.entries.len(), 1);
        domain.registrations.forget(range.start);
        assert!(domain.registrations.entries.is_empty());
    }

    #[test]
    fn register__with_less_access_is_not_enough_for_more() {
        let mut domain = domain();
        let mut memory = vec![0_u8; 100];
        let at = memory.as_mut_ptr();
        // SAFETY: the memory outlives the registrations.
        let (read, remote, write) = unsafe {
            (
                domain
                    .registrations
                    .register(at, 100, Access::Read)
                    .unwrap(),
                domain
                    .registrations
                    .register(at, 100, Access::Remote)
                    .unwrap(),
                domain
                    .registrations
                    .register(at, 50, Access::Write)
                    .unwrap(),
            )
        };
        assert_ne!(read.lkey(), remote.lkey());
        assert_eq!(remote.lkey(), write.lkey());
    }

    #[test]
    fn register__says_that_the_limit_may_be_too_low() {
        let mut domain = domain();
        fake::set_conditions(fake::Conditions {
            lockable: 4096,
            ..fake::Conditions::default()
        });
        let mut memory = vec![0_u8; 8192];
        // SAFETY: the memory outlives the registration, which fails.
        let refused = unsafe {
            domain
                .registrations
                .register(memory.as_mut_ptr(), 8192, Access::Read)
        };
        let text = refused.err().unwrap().to_string();
        assert!(text.contains("ulimit -l"), "{text}");
        drop(domain);
        assert_eq!(fault::alive(), 0);
    }
}
