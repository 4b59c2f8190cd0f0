//! Selection of memory to keep registered: memory that was used before and did not change soon after registration.

use std::collections::HashMap;
use std::mem::take;

const NEEDED: u32 = 2;
/// Number of uses for which keeping a registration pays. Each use saves one registration. A kernel report, which ends a
/// kept registration, costs about as much as a registration.
const WORTH: u32 = 4;
const NEEDED_MOST: u32 = 1 << 16;
const GENERATION: usize = 1024;

struct MemoryUse {
    uses: u32,
    needed: u32,
}

#[derive(Default)]
pub(super) struct Candidates {
    young: HashMap<usize, MemoryUse>,
    old: HashMap<usize, MemoryUse>,
}

impl Candidates {
    fn at(&mut self, start: usize) -> &mut MemoryUse {
        if self.young.len() >= GENERATION && !self.young.contains_key(&start) {
            self.old = take(&mut self.young);
        }
        let old = &mut self.old;
        self.young.entry(start).or_insert_with(|| {
            let fresh = MemoryUse { uses: 0, needed: NEEDED };
            old.remove(&start).unwrap_or(fresh)
        })
    }

    pub(super) fn count_use(&mut self, start: usize) -> bool {
        let candidate = self.at(start);
        candidate.uses = candidate.uses.saturating_add(1);
        candidate.uses >= candidate.needed
    }

    /// Records that a registration at `start` ended after `uses` uses, or could not be kept.
    pub(super) fn note_end(&mut self, start: usize, uses: u32) {
        let candidate = self.at(start);
        candidate.uses = 0;
        if uses < WORTH {
            candidate.needed = (candidate.needed * 2).min(NEEDED_MOST);
        }
    }
}

#[cfg(test)]
impl Candidates {
    pub(super) fn known(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn uses_until_kept(candidates: &mut Candidates, start: usize) -> u32 {
        (1..).find(|_| candidates.count_use(start)).unwrap()
    }

    #[test]
    fn candidates__that_go_soon_need_more_uses_each_time() {
        let mut candidates = Candidates::default();
        for needed in [2, 4, 8, 16] {
            assert_eq!(uses_until_kept(&mut candidates, 4096), needed);
            candidates.note_end(4096, 3);
        }
        assert_eq!(uses_until_kept(&mut candidates, 8192), 2, "of another");
        candidates.note_end(8192, 4);
        assert_eq!(uses_until_kept(&mut candidates, 8192), 2, "it has paid");
        (0..40).for_each(|_| candidates.note_end(4096, 0));
        assert_eq!(uses_until_kept(&mut candidates, 4096), NEEDED_MOST);
    }

    #[test]
    fn candidates__are_known_as_long_as_they_are_used() {
        let mut candidates = Candidates::default();
        candidates.note_end(1, 0);
        for round in 0..10 * GENERATION {
            candidates.count_use(1000 + round);
            assert!(candidates.known() <= 2 * GENERATION);
            if round % GENERATION == 0 {
                candidates.note_end(1, WORTH);
            }
        }
        assert_eq!(uses_until_kept(&mut candidates, 1), 2 * NEEDED);
        assert_eq!(uses_until_kept(&mut candidates, 1000), NEEDED, "forgotten");
    }
}
