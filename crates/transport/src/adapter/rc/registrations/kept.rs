//! Of the program's own memory: which is kept registered, how much of it, and for how long.
#![allow(unsafe_code)]

use super::super::watch::{Changed, Look, Watch};
use super::candidates::Candidates;
use super::{Entry, Registrations, Stay, covers, overlap};
use crate::verbs::{Access, MemoryRegion};
use std::ops::Range;
use std::sync::Arc;

/// Registrations kept of the program's own memory at most.
const KEPT_MOST: usize = 1024;
/// Reports of the kernel that may be more than uses.
const FREE_REPORTS: u64 = 64;
/// Registrations made before the kernel is asked again, when there were too many reports; twice as many each time.
const REST: u64 = 256;

/// What the kernel tells of the program's memory.
enum Source {
    /// It was not asked yet, or not since it told too much: it is once so many registrations were made.
    From(u64),
    Watch(Box<Watch>),
    /// It tells nothing; why.
    None(String),
}

/// The program's own memory that is kept.
pub(super) struct Keeping {
    source: Source,
    candidates: Candidates,
    /// Bytes at most, and now.
    most: usize,
    bytes: usize,
    rests: u32,
}

/// The program's own memory.
impl Registrations {
    /// From now on up to so many bytes of the program's own memory stay registered that was used before, where the
    /// kernel tells what becomes of it; 0: none.
    pub fn keep_most(&mut self, bytes: usize) {
        self.drop_kept(|_| true);
        self.keeping = (bytes > 0).then(|| Keeping {
            source: Source::From(0),
            candidates: Candidates::default(),
            most: bytes,
            bytes: 0,
            rests: 0,
        });
    }

    /// Default limit of kept registrations, in bytes, for each of `processes` processes of this host: half of what may
    /// be locked (messages and buffers need some too), or a share of an eighth of the host's memory where that is less.
    /// It is the program's own memory: not used up, but it cannot be moved or swapped.
    pub fn default_most(processes: usize) -> usize {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of the call's own; plain integers.
        let (limited, pages, page, user) = unsafe {
            (
                libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0,
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
                libc::geteuid(),
            )
        };
        // Where the kernel may not be asked, the number of pages is none.
        let memory = (pages.max(0) as usize).saturating_mul(page.max(0) as usize);
        let limited = limited && limit.rlim_cur != libc::RLIM_INFINITY && user != 0;
        share(memory, limited.then_some(limit.rlim_cur as usize), processes)
    }

    /// Why none of the program's own memory is kept, if so, for people.
    pub fn refusal(&self) -> Option<String> {
        match &self.keeping {
            None => Some("switched off".to_owned()),
            Some(keeping) => match &keeping.source {
                Source::None(why) => Some(why.clone()),
                _ => None,
            },
        }
    }

    pub(super) fn watch(&self) -> Option<&Watch> {
        match &self.keeping.as_ref()?.source {
            Source::Watch(watch) => Some(watch),
            _ => None,
        }
    }

    /// Registers memory that is used again, to be kept. `None` where it is not to be, or cannot.
    ///
    /// # Safety
    /// As [`MemoryRegion::register`].
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
        if self.watch()?.look(wanted) != Look::Held {
            // It serves this time alone.
            return Some(region);
        }
        // What it takes the place of.
        self.evict_where(|range| covers(wanted, range));
        self.clock += 1;
        let used = self.clock;
        self.keeping.as_mut()?.bytes += wanted.len();
        self.insert(wanted.clone(), Access::Kept, &region, Stay::Kept { used, uses: 0 });
        Some(region)
    }

    /// Drops what the kernel has reported, and everything where it has reported too much.
    pub(super) fn take_changes(&mut self) {
        while let Some(change) = self.watch().and_then(Watch::take_change) {
            match change {
                Changed::Range(range) => self.drop_kept(|entry| overlap(entry, &range)),
                Changed::All => self.drop_kept(|_| true),
            }
        }
        if self.watch().is_some_and(Watch::has_ended) {
            self.drop_kept(|_| true);
            let made = self.counts.made;
            if let Some(keeping) = &mut self.keeping {
                keeping.source = Source::From(made + (REST << keeping.rests.min(32)));
                keeping.rests += 1;
            }
        }
    }

    /// Nothing is known any more of the kept memory of which `which` says so. What is in use goes with its last user.
    pub(super) fn drop_kept(&mut self, which: impl Fn(&Range<usize>) -> bool) {
        self.counts.unmapped += self.remove_kept(|entry| which(&entry.range()));
    }

    fn evict_where(&mut self, which: impl Fn(&Range<usize>) -> bool) {
        self.counts.evicted += self.remove_kept(|entry| !entry.is_used() && which(&entry.range()));
    }

    fn remove_kept(&mut self, which: impl Fn(&Entry) -> bool) -> u64 {
        let (Some(keeping), mut removed) = (&mut self.keeping, 0) else {
            return 0;
        };
        self.entries.retain(|_, entry| match entry.stay {
            Stay::Kept { uses, .. } if which(entry) => {
                keeping.bytes -= entry.len;
                keeping.candidates.note_end(entry.range().start, uses);
                removed += 1;
                false
            }
            _ => true,
        });
        removed
    }

    /// Makes room for so many bytes more to be kept; whether there is any.
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

    /// Drops what is kept, not in use, and was not used for longest; false where there is none.
    pub(super) fn evict(&mut self) -> bool {
        let last = self.entries.values().filter_map(|entry| match entry.stay {
            Stay::Kept { used, .. } if !entry.is_used() => Some((used, entry.range())),
            _ => None,
        });
        let Some((_, oldest)) = last.min_by_key(|(used, _)| *used) else {
            return false;
        };
        self.evict_where(|range| *range == oldest);
        true
    }
}

/// What one of so many processes keeps at most of a host's memory, where so much may be locked by each.
fn share(memory: usize, limit: Option<usize>, processes: usize) -> usize {
    let part = memory / 8 / processes.max(1);
    limit.map_or(part, |limit| part.min(limit / 2))
}

impl Keeping {
    /// Whether the kernel tells what becomes of memory, when so many registrations were made.
    fn begin(&mut self, made: u64) -> bool {
        if let Source::From(from) = self.source {
            if made < from {
                return false;
            }
            self.source = match Watch::start(FREE_REPORTS) {
                Ok(watch) => Source::Watch(Box::new(watch)),
                Err(error) => Source::None(format!("the kernel's userfaultfd: {error}")),
            };
        }
        matches!(self.source, Source::Watch(_))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
