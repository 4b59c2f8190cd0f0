//! Window locks that their last owner keeps for a while.
//!
//! Passing a lock to the next rank each time is slow. A sleeping rank needs a process switch before it can take the
//! lock. A polling rank has to fetch the lock, the owner word and the protected data from the other processor's cache.
//! So a rank that leaves a contended lock sets [`KEPT`] in the owner word, and wakes the first waiting rank. Until the
//! waiting rank runs and takes the lock away, the owner may retake it. A rank is "inside" while it uses the lock, and
//! "outside" while it only keeps the lock. The ticket order stays: only the first waiting rank may take the lock away.

use fastpath_base::sync::{AtomicU64, Ordering};

/// Flag in the owner word, next to the rank plus 1. The owner is then outside, and the next rank may take the lock.
const KEPT: u64 = 1 << 63;

/// Maximum number of times that the owner retakes the lock while a sleeping rank waits.
pub(super) const KEEP_MAX: u32 = 256;
/// Maximum number of times that the owner retakes the lock while only polling ranks wait.
pub(super) const KEEP_AWAKE: u32 = 16;

pub(super) fn is_kept(owner: u64) -> bool {
    owner & KEPT != 0
}

#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub word: &'a AtomicU64,
    pub rank: u32,
}

impl Owner<'_> {
    fn inside(self) -> u64 {
        u64::from(self.rank) + 1
    }

    /// Ends this rank's use of the lock, and keeps the lock. This rank must be inside.
    pub fn keep(self) {
        // ORDERING: release, pairs with the exchange in `take_away`: the next owner sees this rank's writes to the
        // window.
        self.word.store(KEPT | self.inside(), Ordering::Release);
    }

    /// Returns whether this rank keeps the lock, as far as it knows.
    #[inline]
    pub fn keeps(self) -> bool {
        self.word.load(Ordering::Relaxed) == KEPT | self.inside()
    }

    /// Enters the lock again, unless another rank has taken it away. Returns whether this rank is inside.
    pub fn retake(self) -> bool {
        let (kept, inside) = (KEPT | self.inside(), self.inside());
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        self.word.compare_exchange(kept, inside, done, failed).is_ok()
    }

    /// Takes the lock away from the rank that keeps it. The caller then releases the lock on behalf of that rank.
    /// Returns false if the lock is not kept. Only the first waiting rank, or the keeper, may call this.
    pub fn take_away(self) -> bool {
        let seen = self.word.load(Ordering::Relaxed);
        // ORDERING: acquire, pairs with the store in `keep`.
        let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
        is_kept(seen) && self.word.compare_exchange(seen, 0, done, failed).is_ok()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::lock_word::{ASK, BOUNDARIES, LockWord, leaving};
    use super::*;
    use fastpath_protocol::rma::add_masked;

    fn add(word: &AtomicU64, value: u64) -> LockWord {
        let sum = |word| Some(add_masked(word, value, BOUNDARIES));
        let found = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, sum);
        LockWord(found.unwrap())
    }

    fn take(lock: &AtomicU64, owner: Owner<'_>) {
        if owner.keeps() && owner.retake() {
            return;
        }
        let (ticket, granted) = add(lock, ASK).asked(true);
        let is_turn = || {
            let word = LockWord(lock.load(Ordering::Acquire));
            if word.is_next(ticket) && owner.take_away() {
                add(lock, leaving(true));
            }
            LockWord(lock.load(Ordering::Acquire)).is_turn(ticket, true)
        };
        while !granted && !is_turn() {
            std::thread::yield_now();
        }
        owner.word.store(owner.inside(), Ordering::Relaxed);
    }

    fn give(lock: &AtomicU64, owner: Owner<'_>, kept: &mut u32) {
        let is_awaited = LockWord(lock.load(Ordering::Relaxed)).is_awaited();
        if is_awaited && *kept < KEEP_MAX {
            *kept += 1;
            return owner.keep();
        }
        *kept = 0;
        owner.word.store(0, Ordering::Relaxed);
        add(lock, leaving(true));
    }

    #[test]
    fn kept_lock__lets_one_in_at_a_time_and_everybody_in_the_end() {
        const ROUNDS: u64 = 20_000;
        let (lock, word) = (AtomicU64::new(0), AtomicU64::new(0));
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for rank in 0..4 {
                let (lock, word, sum) = (&lock, &word, &sum);
                scope.spawn(move || {
                    let (owner, mut kept) = (Owner { word, rank }, 0);
                    for _ in 0..ROUNDS {
                        take(lock, owner);
                        // Two ranks inside at the same time would lose an increment.
                        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        give(lock, owner, &mut kept);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * ROUNDS);
        assert!(LockWord(lock.into_inner()).is_free());
        assert_eq!(word.into_inner(), 0);
    }

    #[test]
    fn kept_lock__is_revoked_once_and_never_inside_its_owner() {
        let word = AtomicU64::new(0);
        let [a, b] = [0, 1].map(|rank| Owner { word: &word, rank });
        word.store(a.inside(), Ordering::Relaxed);
        assert!(!b.take_away() && !a.keeps());
        a.keep();
        assert!(a.keeps() && !b.keeps() && !b.retake());
        assert!(a.retake() && !b.take_away());
        a.keep();
        assert!(b.take_away() && !b.take_away() && !a.retake());
    }
}
