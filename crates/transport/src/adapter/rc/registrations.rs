//! Registrations of user memory, found by address.
//!
//! A registration stays while operations use it. It is kept longer only if its memory is known to stay mapped. For
//! memory that the library allocates, the owner declares this ([`Registrations::declare_lasting`]). For other memory,
//! the kernel reports changes ([`super::watch`]). In doubt, memory is registered anew.
#![allow(unsafe_code)]

mod candidates;
mod kept;

use super::watch::WatchResult;
use crate::verbs::{Access, MemoryRegion, ProtectionDomain, VerbsError};
use kept::KeepPolicy;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const NEAR: usize = 8;

#[derive(PartialEq, Eq)]
enum RegistrationLifetime {
    /// The memory is registered only while an operation uses it.
    Passing,
    /// The memory is registered until it is freed.
    Lasting,
    /// The memory is registered until the kernel reports a change of it. `used` is the time of the last use, `uses` the
    /// number of uses.
    Kept { used: u64, uses: u32 },
}

struct RegistrationEntry {
    len: usize,
    access: Access,
    region: Arc<MemoryRegion>,
    stay: RegistrationLifetime,
}

impl RegistrationEntry {
    fn range(&self) -> Range<usize> {
        let start = self.region.address().addr();
        start..start + self.len
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.region) > 1
    }

    fn is_kept(&self) -> bool {
        matches!(self.stay, RegistrationLifetime::Kept { .. })
    }
}

enum KnownRange {
    Here(Arc<MemoryRegion>),
    /// There is a kept registration, but its memory may be changing now.
    Doubtful,
    Nothing,
}

/// Event counts of registrations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegistrationCounts {
    /// Registrations made.
    pub made: u64,
    /// Uses of an existing registration.
    pub reused: u64,
    /// Registrations of user memory that are kept now.
    pub kept: u64,
    /// Registrations dropped because their memory was unmapped, moved or discarded, or may have been.
    pub unmapped: u64,
    /// Registrations evicted to make room for other registrations.
    pub evicted: u64,
}

/// Registrations by address.
pub struct Registrations {
    memory: Arc<ProtectionDomain>,
    entries: BTreeMap<(usize, usize), RegistrationEntry>,
    lasting: Vec<Range<usize>>,
    has_passing: bool,
    keeping: Option<KeepPolicy>,
    counts: RegistrationCounts,
    clock: u64,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn allows(has: Access, wanted: Access) -> bool {
    let kept = has == Access::Kept && matches!(wanted, Access::Write | Access::Shown);
    has == wanted || has == Access::Remote || wanted == Access::Read || kept
}

impl Registrations {
    /// Creates an empty table that keeps no user memory.
    pub fn new(memory: &Arc<ProtectionDomain>) -> Self {
        Registrations {
            memory: memory.clone(),
            entries: BTreeMap::new(),
            lasting: Vec::new(),
            has_passing: false,
            keeping: None,
            counts: RegistrationCounts::default(),
            clock: 0,
        }
    }

    /// Declares that `range` keeps its pages until [`Registrations::forget`]. Its registration is kept between uses.
    pub fn declare_lasting(&mut self, range: Range<usize>) {
        self.lasting.push(range);
    }

    /// Whether all of `range` is in memory declared by [`Registrations::declare_lasting`], or in a kept registration.
    pub fn is_lasting(&self, range: &Range<usize>) -> bool {
        self.surroundings(range).is_some()
            || self.near(range).any(|(_, entry)| entry.is_kept() && covers(&entry.range(), range))
    }

    /// Drops all registrations of the lasting memory at `address`, before it is unmapped.
    pub fn forget(&mut self, address: usize) {
        let known = &mut self.lasting;
        let Some(at) = known.iter().position(|range| range.start == address) else {
            return;
        };
        let range = known.swap_remove(at);
        self.drop_kept(|entry| overlap(entry, &range));
        self.entries.retain(|_, entry| !overlap(&entry.range(), &range));
    }

    /// Registers `len` bytes at `address`, or returns an existing registration.
    ///
    /// Memory of unknown lifetime is registered only for the current operations. If it were unmapped and mapped again,
    /// an old registration would still access the old pages.
    ///
    /// # Safety
    /// See [`MemoryRegion::register`]; the conditions hold as long as the result is held.
    ///
    /// # Errors
    /// The memory is not mapped, or the limit on locked memory is too low.
    pub unsafe fn register(
        &mut self, address: *mut u8, len: usize, access: Access,
    ) -> Result<Arc<MemoryRegion>, VerbsError> {
        let start = address.expose_provenance();
        let wanted = start..start + len.max(1);
        self.take_changes();
        let found = self.find(&wanted, access);
        if let KnownRange::Here(region) = found {
            self.counts.reused += 1;
            return Ok(region);
        }
        if let Some(whole) = self.surroundings(&wanted) {
            // Register the whole range once, for every use. SAFETY: the range was passed to `declare_lasting`, whose
            // caller promises that the range keeps its pages until `forget`.
            let region = unsafe { self.make(&whole, Access::Remote) }?;
            self.insert(whole, Access::Remote, &region, RegistrationLifetime::Lasting);
            return Ok(region);
        }
        // SAFETY: the memory stays mapped while the region is used, by this function's contract.
        let keep = |this: &mut Self| unsafe { this.register_to_keep(&wanted, access) };
        if matches!(found, KnownRange::Nothing)
            && let Some(region) = keep(self)
        {
            return Ok(region);
        }
        // SAFETY: the memory stays mapped while the region is used, by this function's contract.
        let region = unsafe { self.make(&wanted, access) }?;
        let same = self.entries.get(&(wanted.start, wanted.end));
        if !same.is_some_and(RegistrationEntry::is_kept) {
            self.has_passing = true;
            self.insert(wanted, access, &region, RegistrationLifetime::Passing);
        }
        Ok(region)
    }

    pub(crate) fn release_unused(&mut self) {
        if self.has_passing {
            self.release_slow();
        }
    }

    /// Event counts.
    pub fn counts(&self) -> RegistrationCounts {
        let kept = self.entries.values().filter(|entry| entry.is_kept());
        RegistrationCounts { kept: kept.count() as u64, ..self.counts }
    }

    /// Registers `range`. If the limit on locked memory is reached, evicts kept unused registrations and tries again.
    ///
    /// # Safety
    /// See [`MemoryRegion::register`].
    unsafe fn make(
        &mut self, range: &Range<usize>, access: Access,
    ) -> Result<Arc<MemoryRegion>, VerbsError> {
        let at = std::ptr::with_exposed_provenance_mut(range.start);
        loop {
            // SAFETY: the memory stays mapped as long as the region, by this function's contract.
            match unsafe { MemoryRegion::register(&self.memory, at, range.len(), access) } {
                Ok(region) => {
                    self.counts.made += 1;
                    return Ok(Arc::new(region));
                }
                Err(error) if error.errno() != libc::ENOMEM || !self.evict() => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn insert(
        &mut self, range: Range<usize>, access: Access, region: &Arc<MemoryRegion>,
        stay: RegistrationLifetime,
    ) {
        let entry = RegistrationEntry { len: range.len(), access, region: region.clone(), stay };
        self.entries.insert((range.start, range.end), entry);
    }

    fn near(
        &self, range: &Range<usize>,
    ) -> impl Iterator<Item = (&(usize, usize), &RegistrationEntry)> {
        let before = self.entries.range(..=(range.start, usize::MAX));
        before.rev().take(NEAR)
    }

    fn find(&mut self, wanted: &Range<usize>, access: Access) -> KnownRange {
        // A passing entry is valid only while operations use it, because its memory may be unmapped afterwards.
        let fits = |entry: &RegistrationEntry| {
            covers(&entry.range(), wanted)
                && allows(entry.access, access)
                && (entry.stay != RegistrationLifetime::Passing || entry.is_used())
        };
        let Some((&key, entry)) = self.near(wanted).find(|(_, entry)| fits(entry)) else {
            return KnownRange::Nothing;
        };
        let asked = entry.is_kept().then(|| self.watch());
        match asked.map(|watch| watch.map_or(WatchResult::Unsure, |watch| watch.look(wanted))) {
            None => {}
            Some(WatchResult::Held) => {}
            Some(WatchResult::Lost) => {
                self.drop_kept(|range| *range == (key.0..key.1));
                return KnownRange::Nothing;
            }
            Some(WatchResult::Unsure) => return KnownRange::Doubtful,
        }
        self.clock += 1;
        let clock = self.clock;
        let Some(entry) = self.entries.get_mut(&key) else {
            return KnownRange::Nothing;
        };
        if let RegistrationLifetime::Kept { used, uses } = &mut entry.stay {
            (*used, *uses) = (clock, uses.saturating_add(1));
        }
        KnownRange::Here(entry.region.clone())
    }

    fn surroundings(&self, wanted: &Range<usize>) -> Option<Range<usize>> {
        let mut lasting = self.lasting.iter();
        lasting.find(|range| covers(range, wanted)).cloned()
    }

    fn release_slow(&mut self) {
        self.entries
            .retain(|_, entry| entry.stay != RegistrationLifetime::Passing || entry.is_used());
        let mut entries = self.entries.values();
        self.has_passing = entries.any(|entry| entry.stay == RegistrationLifetime::Passing);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::verbs::{fake, fault};

    fn fresh() -> Registrations {
        fake::set_conditions(fake::Conditions::default());
        Registrations::new(&ProtectionDomain::new(&fake::open()).unwrap())
    }

    fn count(registrations: &Registrations) -> (u64, u64) {
        let counts = registrations.counts();
        (counts.made, counts.reused)
    }

    #[test]
    fn register__of_passing_memory_lasts_as_long_as_its_use() {
        let mut registrations = fresh();
        let mut memory = vec![0_u8; 10_000];
        let at = memory.as_mut_ptr();
        // SAFETY: the memory outlives the registrations.
        let register = |registrations: &mut Registrations| unsafe {
            registrations.register(at, 10_000, Access::Write)
        };
        let first = register(&mut registrations).unwrap();
        let second = register(&mut registrations).unwrap();
        assert_eq!(count(&registrations), (1, 1));
        drop((first, second));
        registrations.release_unused();
        assert!(registrations.entries.is_empty());
        drop(register(&mut registrations).unwrap());
        // This registration is no longer used, but not yet released. It must not be reused.
        drop(register(&mut registrations).unwrap());
        assert_eq!(count(&registrations), (3, 1));
    }

    #[test]
    fn register__of_lasting_memory_is_kept_until_it_is_forgotten() {
        let mut registrations = fresh();
        let mut memory = vec![0_u8; 100_000];
        let at = memory.as_mut_ptr();
        let range = at.addr()..at.addr() + memory.len();
        registrations.declare_lasting(range.clone());
        for piece in 0..10 {
            // SAFETY: the part is within the memory, which outlives the registrations.
            let part = unsafe { registrations.register(at.add(piece * 100), 5000, Access::Remote) };
            drop(part.unwrap());
            registrations.release_unused();
        }
        assert_eq!(count(&registrations), (1, 9));
        registrations.forget(range.start + 1);
        assert_eq!(registrations.entries.len(), 1);
        registrations.forget(range.start);
        assert!(registrations.entries.is_empty());
    }

    #[test]
    fn register__with_less_access_is_not_enough_for_more() {
        let mut registrations = fresh();
        let mut memory = vec![0_u8; 100];
        let at = memory.as_mut_ptr();
        // SAFETY: the memory outlives the registrations.
        let (read, remote, write) = unsafe {
            (
                registrations.register(at, 100, Access::Read).unwrap(),
                registrations.register(at, 100, Access::Remote).unwrap(),
                registrations.register(at, 50, Access::Write).unwrap(),
            )
        };
        assert_ne!(read.lkey(), remote.lkey());
        assert_eq!(remote.lkey(), write.lkey());
    }

    #[test]
    fn register__says_that_the_limit_may_be_too_low() {
        let mut registrations = fresh();
        fake::set_conditions(fake::Conditions { lockable: 4096, ..fake::Conditions::default() });
        let mut memory = vec![0_u8; 8192];
        // SAFETY: the memory outlives the registration, which fails.
        let refused = unsafe { registrations.register(memory.as_mut_ptr(), 8192, Access::Read) };
        let text = refused.err().unwrap().to_string();
        assert!(text.contains("ulimit -l"), "{text}");
        drop(registrations);
        assert_eq!(fault::alive(), 0);
    }
}
