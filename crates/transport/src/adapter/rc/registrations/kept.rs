//! Kept registrations of user memory: choice, limits and end.
#![allow(unsafe_code)]

use super::super::watch::{ChangedRange, MemoryWatch, WatchResult};
use super::candidates::Candidates;
use super::{RegistrationEntry, RegistrationLifetime, Registrations, covers, overlap};
use crate::verbs::{Access, MemoryRegion};
use std::ops::Range;
use std::sync::Arc;

const KEPT_MOST: usize = 1024;
/// The watch stops when kernel reports outnumber the uses of kept registrations by more than this.
const FREE_REPORTS: u64 = 64;
/// Number of registrations made between the first stop of the watch and its next start. The number doubles with each
/// further stop.
const REST: u64 = 256;

enum Source {
    /// There is no watch yet, or it has stopped after too many reports. One starts once this many registrations were
    /// made.
    From(u64),
    Watch(Box<MemoryWatch>),
    None(String),
}

pub(super) struct KeepPolicy {
    source: Source,
    candidates: Candidates,
    most: usize,
    bytes: usize,
    rests: u32,
}

impl Registrations {
    /// Keeps up to `bytes` bytes of repeatedly used memory registered, if the kernel reports changes; 0 keeps none.
    pub fn keep_most(&mut self, bytes: usize) {
        self.drop_kept(|_| true);
        self.keeping = (bytes > 0).then(|| KeepPolicy {
            source: Source::From(0),
            candidates: Candidates::default(),
            most: bytes,
            bytes: 0,
            rests: 0,
        });
    }

    /// Default limit of kept registrations, in bytes, for each of `processes` processes of this host.
    ///
    /// The limit is the smaller of two values: half of the lockable memory, and a share of an eighth of the host's
    /// memory. Messages and buffers need the other half. The program can use kept memory, but the kernel cannot move or
    /// swap it.
    pub fn default_most(processes: usize) -> usize {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `getrlimit` writes to a local structure; the other calls take plain integers.
        let (limited, pages, page, user) = unsafe {
            (
                libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0,
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
                libc::geteuid(),
            )
        };
        // A failed `sysconf` returns -1, which counts as 0 pages.
        let memory = (pages.max(0) as usize).saturating_mul(page.max(0) as usize);
        let limited = limited && limit.rlim_cur != libc::RLIM_INFINITY && user != 0;
        share(memory, limited.then_some(limit.rlim_cur as usize), processes)
    }

    /// Reason why no user memory is kept registered, for messages; `None` if keeping is possible.
    pub fn refusal(&self) -> Option<String> {
        match &self.keeping {
            None => Some("switched off".to_owned()),
            Some(keeping) => match &keeping.source {
                Source::None(why) => Some(why.clone()),
                _ => None,
            },
        }
    }

    pub(super) fn watch(&self) -> Option<&MemoryWatch> {
        match &self.keeping.as_ref()?.source {
            Source::Watch(watch) => Some(watch),
            _ => None,
        }
    }

    /// Registers repeatedly used memory and keeps the registration. `None` if keeping does not pay or is impossible.
    ///
    /// # Safety
    /// See [`MemoryRegion::register`].
    pub(super) unsafe fn register_to_keep(
        &mut self, wanted: &Range<usize>, access: Access,
    ) -> Option<Arc<MemoryRegion>> {
        let made = self.counts.made;
        let keeping = self.keeping.as_mut()?;
        let worth = access != Access::Remote
            && !matches!(keeping.source, Source::None(_))
            && wanted.len() <= keeping.most
            && keeping.candidates.count_use(wanted.start)
            && keeping.begin(made);
        if !worth {
            return None;
        }
        let mut renewed = Vec::new();
        let covered = self.watch()?.cover(wanted, |mapping| renewed.push(mapping.clone()));
        self.drop_kept(|range| renewed.iter().any(|mapping| overlap(range, mapping)));
        if !covered || !self.make_room(wanted.len()) {
            self.keeping.as_mut()?.candidates.note_end(wanted.start, 0);
            return None;
        }
        // SAFETY: the memory stays mapped while it is used, by this function's contract, and is watched afterwards.
        let region = unsafe { self.make(wanted, Access::Kept) }.ok()?;
        self.take_changes();
        if self.watch()?.look(wanted) != WatchResult::Held {
            // The memory changed during the registration: use the region for this operation only.
            return Some(region);
        }
        // Evict the smaller registrations that the new one covers.
        self.evict_where(|range| covers(wanted, range));
        self.clock += 1;
        let used = self.clock;
        self.keeping.as_mut()?.bytes += wanted.len();
        self.insert(
            wanted.clone(),
            Access::Kept,
            &region,
            RegistrationLifetime::Kept { used, uses: 0 },
        );
        Some(region)
    }

    /// Drops the registrations that the kernel has reported. Drops all of them after too many reports.
    pub(super) fn take_changes(&mut self) {
        while let Some(change) = self.watch().and_then(MemoryWatch::take_change) {
            match change {
                ChangedRange::Range(range) => self.drop_kept(|entry| overlap(entry, &range)),
                ChangedRange::All => self.drop_kept(|_| true),
            }
        }
        if self.watch().is_some_and(MemoryWatch::has_ended) {
            self.drop_kept(|_| true);
            let made = self.counts.made;
            if let Some(keeping) = &mut self.keeping {
                keeping.source = Source::From(made + (REST << keeping.rests.min(32)));
                keeping.rests += 1;
            }
        }
    }

    pub(super) fn drop_kept(&mut self, which: impl Fn(&Range<usize>) -> bool) {
        self.counts.unmapped += self.remove_kept(|entry| which(&entry.range()));
    }

    fn evict_where(&mut self, which: impl Fn(&Range<usize>) -> bool) {
        self.counts.evicted += self.remove_kept(|entry| !entry.is_used() && which(&entry.range()));
    }

    fn remove_kept(&mut self, which: impl Fn(&RegistrationEntry) -> bool) -> u64 {
        let (Some(keeping), mut removed) = (&mut self.keeping, 0) else {
            return 0;
        };
        self.entries.retain(|_, entry| match entry.stay {
            RegistrationLifetime::Kept { uses, .. } if which(entry) => {
                keeping.bytes -= entry.len;
                keeping.candidates.note_end(entry.range().start, uses);
                removed += 1;
                false
            }
            _ => true,
        });
        removed
    }

    fn make_room(&mut self, len: usize) -> bool {
        loop {
            let Some(keeping) = &self.keeping else {
                return false;
            };
            let count = self.entries.values().filter(|entry| entry.is_kept()).count();
            if count < KEPT_MOST && keeping.bytes + len <= keeping.most {
                return true;
            }
            if !self.evict() {
                return false;
            }
        }
    }

    pub(super) fn evict(&mut self) -> bool {
        let last = self.entries.values().filter_map(|entry| match entry.stay {
            RegistrationLifetime::Kept { used, .. } if !entry.is_used() => {
                Some((used, entry.range()))
            }
            _ => None,
        });
        let Some((_, oldest)) = last.min_by_key(|(used, _)| *used) else {
            return false;
        };
        self.evict_where(|range| *range == oldest);
        true
    }
}

fn share(memory: usize, limit: Option<usize>, processes: usize) -> usize {
    let part = memory / 8 / processes.max(1);
    limit.map_or(part, |limit| part.min(limit / 2))
}

impl KeepPolicy {
    fn begin(&mut self, made: u64) -> bool {
        if let Source::From(from) = self.source {
            if made < from {
                return false;
            }
            self.source = match MemoryWatch::start(FREE_REPORTS) {
                Ok(watch) => Source::Watch(Box::new(watch)),
                Err(error) => Source::None(format!("userfaultfd cannot be used: {error}")),
            };
        }
        matches!(self.source, Source::Watch(_))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
