//! A lock that its last owner keeps for a while.
//!
//! A rank that sleeps until its turn needs a processor before it can take the lock: to give the lock to the next one
//! each time costs a switch between processes. A rank that polls has to fetch the lock, the word of the owner and what
//! the lock protects from the other processor's cache. So a rank that leaves the lock while others wait marks it as
//! only kept ([`KEPT`], in the word of the owner), and wakes the first of them. Until that one runs and takes it away,
//! the owner may take it again. The order of the tickets stays: only the first of those that wait may take it away.

use fastpath_base::sync::{AtomicU64, Ordering};

/// In the word of the owner, beside its rank plus 1: it is not inside, and the next rank may have the lock.
const KEPT: u64 = 1 << 63;

/// Times that the owner may take the lock again while another rank waits that sleeps, before it gives it away.
pub(super) const KEEP_MAX: u32 = 256;
/// The same where ranks wait awake.
pub(super) const KEEP_AWAKE: u32 = 16;

/// Whether the word of the owner says that it only keeps the lock.
pub(super) fn is_kept(owner: u64) -> bool {
    owner & KEPT != 0
}

/// The word of the owner, and the rank that uses it.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub word: &'a AtomicU64,
    pub rank: u32,
}

impl Owner<'_> {
    fn inside(self) -> u64 {
        u64::from(self.rank) + 1
    }

    /// This rank, which is inside, leaves, and keeps the lock.
    pub fn keep(self) {
        // ORDERING: what this rank has written to the window is there for who takes the lock away; partner: the
        // exchange in `take_away`.
        self.word.store(KEPT | self.inside(), Ordering::Release);
    }

    /// Whether this rank keeps the lock, as far as it knows.
    #[inline]
    pub fn keeps(self) -> bool {
        self.word.load(Ordering::Relaxed) == KEPT | self.inside()
    }

    /// Enters again, unless the lock was taken away.
    pub fn retake(self) -> bool {
        let (kept, inside) = (KEPT | self.inside(), self.inside());
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        self.word.compare_exchange(kept, inside, done, failed).is_ok()
    }

    /// Takes the lock away from the rank that keeps it. The caller leaves it in that rank's place. Only the first of
    /// those that wait may call this, or that rank.
    pub fn take_away(self) -> bool {
        let seen = self.word.load(Ordering::Relaxed);
        // ORDERING: partner: the store in `keep`.
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

    /// Takes the lock as `lock.rs` does.
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
                        // Two at once would lose one of both.
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
    fn kept_lock__is_taken_away_once_and_by_nobody_while_its_owner_is_inside() {
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
