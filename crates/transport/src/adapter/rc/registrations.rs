//! Registrations of the program's memory, found again by address.
//!
//! What is registered stays so for the messages under way. It is kept beyond them where somebody says that the memory
//! is still there: its owner, of memory that the library gives out ([`Registrations::declare_lasting`]); the kernel, of
//! what the program uses again ([`super::watch`]). Whatever is in doubt is registered anew.
#![allow(unsafe_code)]

mod candidates;
mod kept;

use super::watch::Look;
use crate::verbs::{Access, MemoryRegion, ProtectionDomain, VerbsError};
use kept::Keeping;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Entries before an address that are asked whether they reach so far.
const NEAR: usize = 8;

/// How long an entry may stay.
#[derive(PartialEq, Eq)]
enum Stay {
    /// As long as it is in use.
    Passing,
    /// Until its memory is given back.
    Lasting,
    /// Until the kernel says that its memory has changed. When it was used last, and how often.
    Kept { used: u64, uses: u32 },
}

struct Entry {
    len: usize,
    access: Access,
    region: Arc<MemoryRegion>,
    stay: Stay,
}

impl Entry {
    fn range(&self) -> Range<usize> {
        let start = self.region.address().addr();
        start..start + self.len
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.region) > 1
    }

    fn is_kept(&self) -> bool {
        matches!(self.stay, Stay::Kept { .. })
    }
}

/// What is known of a range.
enum KnownRange {
    Here(Arc<MemoryRegion>),
    /// It is kept, and just now nobody can say whether that holds.
    Doubtful,
    Nothing,
}

/// What has become of registrations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Registrations made.
    pub made: u64,
    /// Uses of one that was there.
    pub reused: u64,
    /// Of the program's own memory, kept now.
    pub kept: u64,
    /// Dropped since their memory was unmapped, moved or discarded, or may have been.
    pub unmapped: u64,
    /// Dropped for others.
    pub evicted: u64,
}

/// Registrations by address.
pub struct Registrations {
    memory: Arc<ProtectionDomain>,
    entries: BTreeMap<(usize, usize), Entry>,
    lasting: Vec<Range<usize>>,
    has_passing: bool,
    keeping: Option<Keeping>,
    counts: Counts,
    /// Counts uses, for which was the last.
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
    /// None yet, and of the program's own memory none kept.
    pub fn new(memory: &Arc<ProtectionDomain>) -> Self {
        Registrations {
            memory: memory.clone(),
            entries: BTreeMap::new(),
            lasting: Vec::new(),
            has_passing: false,
            keeping: None,
            counts: Counts::default(),
            clock: 0,
        }
    }

    /// Memory that will stay mapped, and what it holds in place, until [`Registrations::forget`]: its
    /// registration is kept from use to use.
    pub fn declare_lasting(&mut self, range: Range<usize>) {
        self.lasting.push(range);
    }

    /// Whether all of a range will stay mapped, as [`Registrations::declare_lasting`] was told, or is kept.
    pub fn is_lasting(&self, range: &Range<usize>) -> bool {
        self.surroundings(range).is_some()
            || self.near(range).any(|(_, entry)| entry.is_kept() && covers(&entry.range(), range))
    }

    /// The lasting memory at `address` is about to be unmapped: no registration of it remains.
    pub fn forget(&mut self, address: usize) {
        let known = &mut self.lasting;
        let Some(at) = known.iter().position(|range| range.start == address) else {
            return;
        };
        let range = known.swap_remove(at);
        self.drop_kept(|entry| overlap(entry, &range));
        self.entries.retain(|_, entry| !overlap(&entry.range(), &range));
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
            // Once for every use, since it stays.
            // SAFETY: lasting memory stays mapped by `declare_lasting`.
            let region = unsafe { self.make(&whole, Access::Remote) }?;
            self.insert(whole, Access::Remote, &region, Stay::Lasting);
            return Ok(region);
        }
        // SAFETY: the memory stays mapped as long as the region is used, by this function's contract.
        let keep = |this: &mut Self| unsafe { this.register_to_keep(&wanted, access) };
        if matches!(found, KnownRange::Nothing)
            && let Some(region) = keep(self)
        {
            return Ok(region);
        }
        // SAFETY: the memory stays mapped as long as the region is used, by this function's contract.
        let region = unsafe { self.make(&wanted, access) }?;
        let same = self.entries.get(&(wanted.start, wanted.end));
        if !same.is_some_and(Entry::is_kept) {
            self.has_passing = true;
            self.insert(wanted, access, &region, Stay::Passing);
        }
        Ok(region)
    }

    /// Drops what no operation uses any more, but for what may stay.
    pub(crate) fn release_unused(&mut self) {
        if self.has_passing {
            self.release_slow();
        }
    }

    /// What has become of registrations so far.
    pub fn counts(&self) -> Counts {
        let kept = self.entries.values().filter(|entry| entry.is_kept());
        Counts { kept: kept.count() as u64, ..self.counts }
    }

    /// Registers; where not so much may be locked, without what is kept and not in use.
    ///
    /// # Safety
    /// As [`MemoryRegion::register`].
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
        &mut self, range: Range<usize>, access: Access, region: &Arc<MemoryRegion>, stay: Stay,
    ) {
        let entry = Entry { len: range.len(), access, region: region.clone(), stay };
        self.entries.insert((range.start, range.end), entry);
    }

    /// Entries that begin at or before a range.
    fn near(&self, range: &Range<usize>) -> impl Iterator<Item = (&(usize, usize), &Entry)> {
        let before = self.entries.range(..=(range.start, usize::MAX));
        before.rev().take(NEAR)
    }

    fn find(&mut self, wanted: &Range<usize>, access: Access) -> KnownRange {
        // A passing one only while it is in use, so that its memory is there.
        let fits = |entry: &Entry| {
            covers(&entry.range(), wanted)
                && allows(entry.access, access)
                && (entry.stay != Stay::Passing || entry.is_used())
        };
        let Some((&key, entry)) = self.near(wanted).find(|(_, entry)| fits(entry)) else {
            return KnownRange::Nothing;
        };
        let asked = entry.is_kept().then(|| self.watch());
        match asked.map(|watch| watch.map_or(Look::Unsure, |watch| watch.look(wanted))) {
            None => {}
            Some(Look::Held) => {}
            Some(Look::Lost) => {
                self.drop_kept(|range| *range == (key.0..key.1));
                return KnownRange::Nothing;
            }
            Some(Look::Unsure) => return KnownRange::Doubtful,
        }
        self.clock += 1;
        let clock = self.clock;
        let Some(entry) = self.entries.get_mut(&key) else {
            return KnownRange::Nothing;
        };
        if let Stay::Kept { used, uses } = &mut entry.stay {
            (*used, *uses) = (clock, uses.saturating_add(1));
        }
        KnownRange::Here(entry.region.clone())
    }

    /// The lasting memory around a range.
    fn surroundings(&self, wanted: &Range<usize>) -> Option<Range<usize>> {
        let mut lasting = self.lasting.iter();
        lasting.find(|range| covers(range, wanted)).cloned()
    }

    fn release_slow(&mut self) {
        self.entries.retain(|_, entry| entry.stay != Stay::Passing || entry.is_used());
        let mut entries = self.entries.values();
        self.has_passing = entries.any(|entry| entry.stay == Stay::Passing);
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
        // Not used, not yet released: it may not be reused all the same.
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
            // SAFETY: within the memory, which outlives the registrations.
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
